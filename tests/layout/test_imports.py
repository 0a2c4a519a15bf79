"""The import directions of this repository."""

import ast
import functools
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from seatrial import logs

ROOT = Path(__file__).resolve().parents[2]
OURS = {"checks", "cli", "jobs", "reports", "lab", "seatrial"}
ALLOWED = {
    "seatrial": set(),
    "jobs": {"seatrial.faults", "seatrial.logs"},
    # types: the return value of conclude() that explain prints; and the comparison of a read record with its own
    "reports": {
        "seatrial.logs.job_document",
        "jobs.pod.sweep.rows",
        "jobs.cluster.json_types",
        "seatrial.faults.actions",
    },
    "checks": {
        "seatrial.faults",
        "seatrial.logs",
        "jobs",
        "reports.record",
        "reports.schema",
        "reports.plain",
        "reports.stash",
    },
    "cli": {"checks", "jobs", "reports", "seatrial.faults", "seatrial.logs"},
    "lab": set(),
}
# Inside a package: its rooms in dependency order. A module may import from the rooms before its own, for types too.
ROOMS = {
    "jobs": ("cluster", "trial", "diagnosis", "run"),
    "seatrial/logs/reader": ("redact", "dcgm", "own_symptoms", "lines", "state", "tables", "events", "digest", "scan"),
    "seatrial/logs": (
        *("kinds", "listing", "reader", "job_document", "sources", "parallel", "job", "diagnosis", "bandwidth"),
        *("document", "hang", "explanation"),
    ),
}
# `python -m checks` is the command line; `seatrial rehearse` starts trials and reads their records
COMPOSITION = (Path("checks/__main__.py"), Path("lab/rehearse"))


@functools.cache
def statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Return the imports anywhere in the file."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imported(path: Path) -> set[str]:
    """Return absolute imports of our packages anywhere in the file, as dotted names."""
    names = set()
    for node in statements(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level > 0:
            above = path.relative_to(ROOT).parts[: -node.level]
            assert above, f"{path} reaches above its package"
    return {name for name in names if name.split(".")[0] in OURS}


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_a_package_imports_only_what_it_may(package):
    """The table of docs/house.md: jobs and lab import no package of ours, reports only its record, checks jobs and the
    record."""
    for path in (ROOT / package).rglob("*.py"):
        if any(path.relative_to(ROOT).is_relative_to(place) for place in COMPOSITION):
            continue
        for name in imported(path):
            if name.split(".")[0] == package:
                continue
            allowed = any(name == a or name.startswith(a + ".") for a in ALLOWED[package])
            assert allowed, f"{path.relative_to(ROOT)} imports {name}"


TOOLS = {"tests.logs.logmaker", "tests.lab.clusters", "tests.real.playing", "tests.hang.recorded", "tests.real_cluster"}
"""Folders with helpers that make logs, clusters and recordings, but no tests."""


def test_tests_of_one_room_import_none_of_another():
    """A change of one room's tests does not affect another room's; shared helpers are outside the rooms."""
    tests = ROOT / "tests"
    rooms = {path.name for path in tests.iterdir() if path.is_dir()}
    wrong = set()
    for path in sorted(tests.rglob("*.py")):
        own = path.relative_to(tests).parts[0]
        for node in statements(path):
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{name}" for name in names] if node.level == 0 else []
            for name in names:
                room = name.split(".")[1] if name.startswith("tests.") else own
                tool = any(name == each or name.startswith(f"{each}.") for each in TOOLS)
                if room in rooms - {own} and not tool:
                    wrong.add(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == set()


def modules() -> dict[str, Path]:
    """Return the installed modules by dotted name, with a package under its own name."""
    files = [path for package in sorted(OURS) for path in (ROOT / package).rglob("*.py")]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


def known(name: str, path: Path, all_modules: dict[str, Path]) -> set[str]:
    """Return the imports of a module, anywhere in the file and for types too."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    names = set()
    for node in statements(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        else:
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *(node.module or "").split(".")]).rstrip(".")
            names |= {f"{source}.{a.name}" if f"{source}.{a.name}" in all_modules else source for a in node.names}
    return names & all_modules.keys() - {name}


@functools.cache
def imports() -> dict[str, set[str]]:
    """Return the imports of each installed module."""
    every = modules()
    return {name: known(name, path, every) for name, path in every.items()}


def test_no_module_comes_back_to_itself():
    """The imports have no cycle, including imports for types."""
    TopologicalSorter(imports()).prepare()  # a CycleError names the modules


@pytest.mark.parametrize("package", sorted(ROOMS))
def test_a_room_knows_only_those_below(package):
    """A room imports only from earlier rooms, so they are sufficient to understand it."""
    prefix = package.replace("/", ".") + "."
    order = {room: number for number, room in enumerate(ROOMS[package])}

    def place(name: str) -> int | None:
        return order.get(name.removeprefix(prefix).split(".")[0]) if name.startswith(prefix) else None

    for name, imports_of in imports().items():
        own = place(name)
        above = {each for each in imports_of if own is not None and (place(each) or 0) > own}
        assert not above, f"{name} imports {sorted(above)}"


def test_the_catalogue_knows_of_the_logs_their_reader_alone():
    """The catalogue tests its patterns with the reader, but does not judge logs."""
    wrong = {
        f"{name} imports {each}"
        for name, imports_of in imports().items()
        for each in imports_of
        if name.startswith("seatrial.faults") and each.startswith("seatrial.logs") and ".reader" not in each
    }
    assert wrong == set()


def test_the_reader_of_logs_knows_itself_alone():
    """The pods run the reader without any other package."""
    wrong = {
        f"{name} imports {each}"
        for name, imports_of in imports().items()
        for each in imports_of
        if name.startswith("seatrial.logs.reader") and not each.startswith("seatrial.logs.reader")
    }
    assert wrong == set()


def test_only_one_module_imports_the_kubernetes_client():
    """jobs/cluster/client/credentials.py is the only importer of `kubernetes`."""
    users = set()
    for package in OURS:
        for path in (ROOT / package).rglob("*.py"):
            for node in statements(path):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
                if any(n.split(".")[0] == "kubernetes" for n in names):
                    users.add(str(path.relative_to(ROOT)))
    assert users == {"jobs/cluster/client/credentials.py"}


def test_collecting_the_checks_imports_neither_the_kubernetes_client_nor_the_reader_of_logs():
    """`--collect-only` and `--help` stay fast: the client takes a large part of a second, the reader a tenth."""
    code = (
        "import sys, pytest\n"
        f"code = pytest.main(['--config-file={ROOT}/pyproject.toml', '--rootdir={ROOT}', '-p', 'no:cacheprovider',"
        f" '{ROOT}/checks', '--collect-only', '-qq'])\n"
        "assert code == 0, code\n"
        "heavy = {m.split('.')[0] for m in sys.modules} & {'kubernetes', 'pydantic', 'aiohttp', 'cryptography'}\n"
        "reader = {m for m in sys.modules if m.startswith('seatrial.logs.reader.')}\n"
        "heavy |= reader - {'seatrial.logs.reader.redact', 'seatrial.logs.reader.own_symptoms'}\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_a_log_is_explained_without_pytest_the_profiles_and_the_kubernetes_client():
    """The imports add to the run time of `seatrial explain`."""
    log = ROOT / "tests/pod/data/nccl-2.28.9-node0.log"
    code = (
        "import sys\nfrom cli.__main__ import main\n"
        f"assert main(['explain', {str(log)!r}]) == 1\n"
        "heavy = {m for m in sys.modules if m.split('.')[0] in ('pytest', '_pytest', 'kubernetes', 'urllib3')}\n"
        "heavy |= {m for m in sys.modules if m.startswith(('checks.profiles.', 'checks.rules.'))}\n"
        "assert heavy == {'checks.profiles.errors'}, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_all_of_the_log_analysis_is_found_where_it_is_asked_for():
    """The package imports each part at its first use: every public name is available, and no other."""
    assert sorted(logs._HOMES) == sorted(logs.__all__)
    assert all(getattr(logs, name) is not None for name in logs.__all__)
    assert getattr(logs, "no_such_part", None) is None
