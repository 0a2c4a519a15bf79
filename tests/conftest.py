"""Fixtures and options for every test."""

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
    """Turn warnings into errors here only; on a user's machine they must not become a verdict."""
    config.addinivalue_line("filterwarnings", "error")
    # Drawn examples are the same each time, and none has its own time limit: a busy machine would fail it.
    hypothesis.settings.register_profile("ours", deadline=None, derandomize=True)
    hypothesis.settings.load_profile("ours")
    # The tests start hundreds of our processes, which share compiled code (up to half of their time).
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    programs.on_path()
    # A background shell passes on an ignored SIGINT; the tests that send it expect a terminal's.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip modules and folders without slow tests if only slow ones are selected: each worker would import them all."""
    if config.option.markexpr != "slow" or not collection_path.is_relative_to(ROOT / "tests"):
        return None
    return None if collection_path in _with_slow_tests() else True


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop the leases of unfinished runs at the end of a module: another test's server may get their port."""
    if nextitem is not None and nextitem.path == item.path:
        return
    for thread in threading.enumerate():
        if thread.name == "renewal" and (target := vars(thread).get("_target")):  # removed by a thread that ends
            target.__self__.stop()


@functools.cache
def _with_slow_tests() -> set[Path]:
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    modules = [path for path, text in texts.items() if "mark.slow" in text or "rest_is_slow" in text]
    return {place for module in modules for place in (module, *module.parents)}


def pytest_itemcollected(item: pytest.Item) -> None:
    """The other half of the tests reads all modules and detects slow tests that the slow half would skip."""
    if item.get_closest_marker("slow") and item.path not in _with_slow_tests():
        raise pytest.UsageError(f"{item.nodeid} is slow, and conftest.py does not see it in its module")


# Modules with slow tests of a quarter of a minute and more, and single tests, by the longest duration.
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
    """Return the workers of `-n auto`: several per core, since tests wait for processes, and most for the slow half."""
    return min((5 if config.option.markexpr == "slow" else 3) * len(os.sched_getaffinity(0)), 24)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Distribute the long tests so that each worker starts with them: one that starts last would delay the end.

    With `--dist worksteal` a worker first gets as many consecutive tests as any other.
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
    """Freeze the collected objects: no garbage collection traverses them, neither now (a fifth of the time) nor later
    (a twentieth)."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the omitted tests with their reasons, which a place in a file and a letter among the dots do not show."""
    skipped = terminalreporter.stats.get("skipped", [])
    why = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for text, count in why.most_common():
        terminalreporter.write_line(f"Skipped {count}: {text}")


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Restore the signal handlers for the next test: a command sets them for the rest of its process."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture
def forked_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the processes that a command starts, of `cron` and a cluster, if a test runs it in its own process."""
    from checks.framework import signals, simulation
    from tests.program import Lab, Program

    monkeypatch.setattr(signals, "subprocess", SimpleNamespace(Popen=Program))
    started = {"PIPE": subprocess.PIPE, "TimeoutExpired": subprocess.TimeoutExpired}
    monkeypatch.setattr(simulation, "subprocess", SimpleNamespace(Popen=Lab, **started))


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the recorded material next to the checkout; without it the test is skipped with a reason."""
    folder = ROOT.parent / "shared"
    if not (folder / "nccl-corpus").is_dir():
        pytest.skip("needs recorded material that is not in the repository")
    return folder


@pytest.fixture
def rendered(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Render an overlay by kubectl's built-in kustomize; in another namespace through a kustomization around it."""
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
    """Judge bandwidths by a few published rows, so that a test of the rules does not depend on the data."""
    monkeypatch.setattr(published, "FILE", ROOT / "tests" / "logs" / "data" / "few-references.yaml")
    published.published.cache_clear()
    yield
    monkeypatch.undo()
    published.published.cache_clear()
