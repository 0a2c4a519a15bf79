"""What is sent into a pod: complete, small, old-Python-proof and free of anything but the standard library."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobs import pod as probes
from jobs.nccl import Partial
from tests.waiting import HANG_S

OWN = {"stages", "nccl_reader", "bench"}
TORCH_ONLY_IN = ("bench/program.py", "bench/training.py")


@pytest.fixture(scope="module")
def shipped() -> dict[str, str]:
    return probes.files()


def test_everything_needed_is_shipped(shipped) -> None:
    """The entry, the bench, all stages and the whole analyzer, as ConfigMap keys can carry them."""
    here = Path(probes.__file__).parent
    assert {"probe.py", "measure.py", "bench/sweep.py", "stages/__init__.py", "stages/run.py"} <= set(shipped)
    assert {path.name for path in (here / "stages").glob("*.py")} == {
        p.partition("/")[2] for p in shipped if p.startswith("stages/")
    }
    reader = here.parent / "pod" / "nccl_reader"
    files = (*reader.rglob("*.py"), reader / "events" / "symptoms.json")
    assert {path.relative_to(reader.parent).as_posix() for path in files} == {
        p for p in shipped if p.startswith("nccl_reader/")
    }
    for path in shipped:
        assert all(part.replace("_", "a").replace(".", "a").isalnum() for part in path.split("/")), path


def test_it_fits_into_a_config_map(shipped) -> None:
    """1 MiB is a ConfigMap's limit; keys and trial.json need some of it, and what is to come a third."""
    assert sum(len(text.encode()) for text in shipped.values()) < 700_000


def test_comments_and_docstrings_stay_at_home_and_nothing_else(shipped) -> None:
    """Every shipped file says what its source says, on the same lines."""
    home = Path(__file__).resolve().parents[2] / "jobs" / "pod"
    for path, text in shipped.items():
        here, there = ast.parse((home / path).read_text(encoding="utf-8")), ast.parse(text)
        assert not any(docstring.value.value for docstring in docstrings(there)), path
        assert bare(here) == bare(there), path
        assert not any(line.lstrip().startswith("#") for line in text.splitlines()), path


def docstrings(tree: ast.Module) -> list[ast.Expr]:
    """Return the strings that stand alone."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]


def bare(tree: ast.Module) -> str:
    """Return what a file says and on which lines its statements begin, its docstrings empty."""
    for docstring in docstrings(tree):
        docstring.value.value = ""
    for node in ast.walk(tree):
        for end in ("col_offset", "end_lineno", "end_col_offset"):
            node.__dict__.pop(end, None)
    return ast.dump(tree, include_attributes=True)


def imported_by(path: str, shipped: dict[str, str]) -> set[str]:
    """Return the shipped files that one of them imports when it runs, those of the packages on the way included."""
    tree = ast.parse(shipped[path])
    only_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in only_types:
            parts = path.split("/")[: -node.level] if node.level else []
            base = [*parts, *(node.module or "").split(".")] if node.module else parts
            names += [base, *([*base, alias.name] for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "importlib.import_module":
            names.append(ast.literal_eval(node.args[0]).split("."))
    files = set()
    for name in names:
        files |= {"/".join([*name[:end], "__init__.py"]) for end in range(1, len(name) + 1)} | {"/".join(name) + ".py"}
    return files & set(shipped)


def test_all_that_travels_is_imported_by_what_the_pod_starts(shipped) -> None:
    """Diagnosis, documents and all else of the host stay at home: what no import reaches from the entries goes nowhere."""
    reached, todo = set(), ["probe.py", "measure.py", "bench/checkpoint.py"]
    while todo:
        path = todo.pop()
        if path not in reached:
            reached.add(path)
            todo += imported_by(path, shipped)
    packages = {path for path in shipped if path.endswith("/__init__.py")}
    assert set(shipped) - packages - {"nccl_reader/events/symptoms.json"} == reached - packages


def test_the_reader_alone_reads(shipped, tmp_path) -> None:
    """The shipped files read a log without the rest of the suite, and send home a state that merges."""
    for path, text in shipped.items():
        if path.startswith("nccl_reader/"):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
    code = (
        "import json, nccl_reader as r;"
        "log = b'a:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 commId 0x2 - Init START\\n';"
        "print(json.dumps(r.read([('x', [log])]).to_dict(r.POD_BUDGET)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert Partial.from_dict(json.loads(done.stdout)).sources[0].nccl_lines == 1


def test_python_3_8_can_read_it(shipped) -> None:
    """Every file parses with Python 3.8's grammar."""
    for path, text in shipped.items():
        ast.parse(text, path, feature_version=(3, 8))


def test_only_the_standard_library_is_imported(shipped) -> None:
    """No import reaches outside the standard library and the shipped packages; torch is the bench's alone."""
    for path, text in shipped.items():
        for node in ast.walk(ast.parse(text)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            elif isinstance(node, ast.ImportFrom):
                assert node.level <= path.count("/"), f"{path}: a relative import beyond its package"
            for name in names:
                top = name.partition(".")[0]
                allowed = top in sys.stdlib_module_names or top in OWN or (top == "torch" and path in TORCH_ONLY_IN)
                assert allowed, f"{path} imports {name}"


def pythons() -> list[Path]:
    """Other Pythons on this machine that the probe must run on, the oldest first."""
    interpreters = sorted(
        (Path.home() / ".pyenv" / "versions").glob("3.*/bin/python"),
        key=lambda path: [int(x) for x in path.parts[-3].split(".")],
    )
    return [path for path in interpreters if int(path.parts[-3].split(".")[1]) >= 8]


def test_the_oldest_python_runs_a_trial(pods) -> None:
    """A whole trial on the oldest Python at hand (3.8 where there is one)."""
    interpreters = pythons()
    if not interpreters:
        pytest.skip("no other Python below ~/.pyenv/versions")
    for rank in (0, 1):
        pods.start(rank, python=str(interpreters[0]))
    for rank in (0, 1):
        stages = pods.stages(rank)
        assert stages["collective.ring"]["exit"] == 0
        assert stages["collective.ring"]["error"] is None
        assert stages["start"]["python"].startswith(".".join(interpreters[0].parts[-3].split(".")[:2]))


def test_nothing_is_written_beside_the_probe(pods) -> None:
    """The folder is a read-only mount in a pod: no byte code, no log, nothing."""
    for compiled in pods.here.rglob("__pycache__"):
        shutil.rmtree(compiled)
    pods.seal()
    before = sorted(path.relative_to(pods.here) for path in pods.here.rglob("*"))
    pods.run()
    assert sorted(path.relative_to(pods.here) for path in pods.here.rglob("*")) == before


def test_safe_path_mode_is_no_obstacle(pods) -> None:
    """PYTHONSAFEPATH keeps the script's folder out of sys.path: the probe finds its stages all the same."""
    pods.trial["collectives"] = []
    assert pods.run(PYTHONSAFEPATH="1")[0]["end"]["stopped"] is None


def test_a_missing_stage_is_a_broken_probe(pods) -> None:
    """If the mount is incomplete the probe ends non-zero: that is its own fault, not the cluster's."""
    (pods.here / "stages" / "run.py").unlink()
    pods.seal()
    done = subprocess.run(
        [sys.executable, pods.here / "probe.py"], capture_output=True, timeout=HANG_S, env={}, check=False
    )
    assert done.returncode != 0
