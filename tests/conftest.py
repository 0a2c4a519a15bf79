"""What every test may ask for."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """A warning is an error here; on a user's machine it must not become a verdict."""
    config.addinivalue_line("filterwarnings", "error")
    # The tests start hundreds of processes of ours: what one has compiled, the others need not (up to half of their time).
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # A shell in the background hands SIGINT down as ignored; the tests that send it mean a terminal's.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Give the signals back to the next test: a command that ends takes them over for the rest of its process."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The recorded material beside the checkout; without it the test is skipped and says so."""
    folder = ROOT.parent / "shared"
    if not (folder / "nccl-corpus").is_dir():
        pytest.skip("needs the recorded material (../shared), which is not part of the repository")
    return folder


@pytest.fixture
def rendered(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Render an overlay by kustomize, as kubectl has it built in; in another namespace through a kustomization around it."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("needs kubectl, to render with kustomize")

    def render(overlay: str, namespace: str = "default", *components: str) -> list[dict[str, Any]]:
        deploy = ROOT / "deploy"
        folder = deploy / "overlays" / overlay
        if namespace != "default" or components:
            places = {
                "resources": [folder],
                "transformers": [deploy / "anywhere"],
                "components": [deploy / c for c in components],
            }
            around = {key: [os.path.relpath(p, tmp_path) for p in paths] for key, paths in places.items()}
            folder = tmp_path
            (folder / "kustomization.yaml").write_text(yaml.safe_dump({"namespace": namespace, **around}))
        done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return list(yaml.safe_load_all(done.stdout))

    return render
