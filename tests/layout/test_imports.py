"""The import directions of the house: which package may know which."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = {"checks", "cli", "jobs", "reports", "lab"}
ALLOWED = {
    "jobs": set(),
    "reports": {"jobs.nccl.job_document"},  # types: what conclude() returns and explain tells
    "checks": {"jobs", "reports.record", "reports.sizes"},
    "cli": {"checks", "jobs", "reports"},
    "lab": set(),
}
# Inside a package: its rooms from the ground up. A module knows the rooms below its own when it runs (types apart).
ROOMS = {
    "jobs": ("cluster", "trial", "diagnosis", "run"),
    "jobs/pod/nccl_reader": ("lines", "state", "tables", "events", "digest", "scan"),
    "jobs/nccl": ("job_document", "sources", "parallel", "job", "diagnosis", "document"),
}
COMPOSITION = (Path("checks/__main__.py"),)  # `python -m checks` is the command line


def imported(path: Path) -> set[str]:
    """Absolute imports of our packages anywhere in the file, as dotted names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level > 0:
            above = path.relative_to(ROOT).parts[: -node.level]
            assert above, f"{path} reaches above its package"
    return {name for name in found if name.split(".")[0] in OURS}


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_a_package_imports_only_what_it_may(package):
    """DESIGN: jobs and lab know nothing of ours, reports only its record, checks the jobs and the record."""
    for path in (ROOT / package).rglob("*.py"):
        if any(path.relative_to(ROOT).is_relative_to(place) for place in COMPOSITION):
            continue
        for name in imported(path):
            if name.split(".")[0] == package:
                continue
            allowed = any(name == a or name.startswith(a + ".") for a in ALLOWED[package])
            assert allowed, f"{path.relative_to(ROOT)} imports {name}"


def known_when_it_runs(path: Path, package: Path) -> set[str]:
    """The rooms of a package that a module of it imports, without those under `if TYPE_CHECKING`."""
    here = path.relative_to(package).parts[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    only_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and id(node) not in only_types:
            whole = [*here[: len(here) - node.level + 1], *(node.module or "").split(".")]
            found |= {whole[0]} if whole[0] else {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("package", sorted(ROOMS))
def test_a_room_knows_only_those_below(package):
    """What is further up is not imported: whoever reads a room needs to have read only those before it."""
    order = ROOMS[package]
    for number, room in enumerate(order):
        place = ROOT / package / room
        above = set(order[number + 1 :])
        for path in place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]:
            assert not known_when_it_runs(path, ROOT / package) & above, path.relative_to(ROOT)


def test_only_one_module_imports_the_kubernetes_client():
    """jobs/cluster/client/kube.py is the only importer of `kubernetes`."""
    users = set()
    for package in OURS:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
                if any(n.split(".")[0] == "kubernetes" for n in names):
                    users.add(str(path.relative_to(ROOT)))
    assert users == {"jobs/cluster/client/kube.py"}


def test_collecting_the_checks_does_not_import_the_kubernetes_client():
    """`--collect-only` and `--help` stay light: the client costs a large part of a second."""
    code = (
        "import sys, pytest\n"
        f"code = pytest.main(['--config-file={ROOT}/pyproject.toml', '--rootdir={ROOT}', '-p', 'no:cacheprovider',"
        f" '{ROOT}/checks', '--collect-only', '-qq'])\n"
        "assert code == 0, code\n"
        "heavy = sorted({m.split('.')[0] for m in sys.modules} & {'kubernetes', 'pydantic', 'aiohttp', 'cryptography'})\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
