"""What the tests of the deployment share."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def rendered() -> Callable[[str], list[dict[str, Any]]]:
    """Render an overlay by kustomize, as kubectl has it built in."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("needs kubectl, to render with kustomize")

    def render(overlay: str) -> list[dict[str, Any]]:
        done = subprocess.run([kubectl, "kustomize", str(ROOT / "deploy" / "overlays" / overlay)], capture_output=True,
                              text=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return list(yaml.safe_load_all(done.stdout))

    return render
