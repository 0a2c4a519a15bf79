"""What every test may ask for."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import yaml

from seatrial.logs.bandwidth import published
from tests.real_cluster import programs

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """A warning is an error here; on a user's machine it must not become a verdict."""
    config.addinivalue_line("filterwarnings", "error")
    # Drawn examples are the same each time, and none has a limit of time of its own: a busy machine would fail it.
    hypothesis.settings.register_profile("ours", deadline=None, derandomize=True)
    hypothesis.settings.load_profile("ours")
    # The tests start hundreds of processes of ours: what one has compiled, the others need not (up to half of their time).
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    programs.on_path()
    # A shell in the background hands SIGINT down as ignored; the tests that send it mean a terminal's.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of the slow tests alone, leave modules and folders that have none unread: each worker would import them all."""
    if config.option.markexpr != "slow" or not collection_path.is_relative_to(ROOT / "tests"):
        return None
    return None if collection_path in _with_slow_tests() else True


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """At the end of a module stop the leases of runs that it left unfinished: another test's server may get their port."""
    if nextitem is not None and nextitem.path == item.path:
        return
    for thread in threading.enumerate():
        if thread.name == "renewal" and (target := vars(thread).get("_target")):  # which a thread that ends drops
            target.__self__.stop()


@functools.cache
def _with_slow_tests() -> set[Path]:
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    modules = [path for path, text in texts.items() if "mark.slow" in text or "rest_is_slow" in text]
    return {place for module in modules for place in (module, *module.parents)}


def pytest_itemcollected(item: pytest.Item) -> None:
    """The other half of the tests reads all modules: a slow test that the slow half would not read is noticed there."""
    if item.get_closest_marker("slow") and item.path not in _with_slow_tests():
        raise pytest.UsageError(f"{item.nodeid} is slow, and conftest.py does not see it in its module")


# The modules with slow tests of a quarter of a minute and more, and single tests, by how long the longest takes.
LONG = (
    "tests/deploy/test_gates.py",
    "tests/e2e/test_kills.py",
    "tests/e2e/test_rights_audit.py",
    "tests/e2e/test_scenarios.py::test_a_scenario_is_recognised_for_the_right_reason[node-lost]",
    "tests/cli/test_readme.py",
    "tests/e2e/test_cronjob.py",
    "tests/e2e/test_scenarios.py::test_a_scenario_is_recognised_for_the_right_reason[storage-hangs]",
    "tests/lab/contract/test_contract_cases.py",
    "tests/real/test_composed_recordings.py",
    "tests/e2e/test_scenarios.py::test_a_scenario_is_recognised_for_the_right_reason[sweep-node-lost]",
    "tests/e2e/test_sweeps.py",
    "tests/real/test_real_recordings.py",
    "tests/e2e/test_fault_pairs.py",
    "tests/e2e/test_canary.py",
    "tests/e2e/test_interrupt.py",
    "tests/e2e/test_attach.py",
    "tests/cli/test_cron_command.py",
    "tests/layout/test_wheel.py",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Of `-n auto`: several for a core, since tests wait for processes; the slow ones most, of which each reads few."""
    return min((5 if config.option.markexpr == "slow" else 3) * len(os.sched_getaffinity(0)), 24)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deal out the long tests, so that each worker begins with them: one that begins last keeps all others waiting.

    With `--dist worksteal` a worker first gets as many tests in a row as any other.
    """
    slow = [item for item in items if item.get_closest_marker("slow")]
    places = {item: at for item in slow for at, name in enumerate(LONG) if item.nodeid.startswith(name)}
    long = sorted(places, key=places.__getitem__)
    rest = iter([item for item in items if item not in places])
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    dealt: list[pytest.Item] = []
    for number in range(workers):
        share = (len(items) - len(dealt)) // (workers - number)
        hand = long[number::workers]
        dealt += [*hand, *islice(rest, max(0, share - len(hand)))]
    items[:] = [*dealt, *rest]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """What is collected stays: no look for cycles goes over it, meanwhile (a fifth of the time) or later (a twentieth)."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out, and why: a place in a file and a letter among the dots do not say it."""
    skipped = terminalreporter.stats.get("skipped", [])
    why = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for text, count in why.most_common():
        terminalreporter.write_line(f"Skipped {count}: {text}")


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Give the signals back to the next test: a command that ends takes them over for the rest of its process."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture
def forked_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command starts, runs as of `cron` and a cluster, is forked as well where a test runs it in its own process."""
    from checks.framework import signals, simulation
    from tests.program import Lab, Program

    monkeypatch.setattr(signals, "subprocess", SimpleNamespace(Popen=Program))
    started = {"PIPE": subprocess.PIPE, "TimeoutExpired": subprocess.TimeoutExpired}
    monkeypatch.setattr(simulation, "subprocess", SimpleNamespace(Popen=Lab, **started))


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The recorded material next to the checkout; without it the test is skipped and says so."""
    folder = ROOT.parent / "shared"
    if not (folder / "nccl-corpus").is_dir():
        pytest.skip("needs recorded material that is not in the repository")
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


@pytest.fixture
def few_references(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Judge bandwidths by a few published rows, so that a test of the rules does not change with the data."""
    monkeypatch.setattr(published, "FILE", ROOT / "tests" / "logs" / "data" / "few-references.yaml")
    published.published.cache_clear()
    yield
    monkeypatch.undo()
    published.published.cache_clear()
