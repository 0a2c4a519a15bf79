"""The archive for a pod: complete, small, compatible with old Pythons, and limited to the standard library."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import jobs.pod
from jobs.pod.stages.payload import of_archive
from jobs.trial import payload
from seatrial.logs import reader
from tests.waiting import HANG_S

TORCH_ONLY_IN = ("bench/program.py", "bench/training.py")


def pythons() -> list[Path]:
    """Yield other Pythons on this machine that the probe must run on, the oldest first."""
    interpreters = sorted(
        (Path.home() / ".pyenv" / "versions").glob("3.*/bin/python"),
        key=lambda path: [int(x) for x in path.parts[-3].split(".")],
    )
    return [path for path in interpreters if int(path.parts[-3].split(".")[1]) >= 8]


@pytest.fixture
def shipped() -> dict[str, str]:
    return dict(payload.files())


@pytest.fixture
def archive(shipped, tmp_path: Path) -> Path:
    place = tmp_path / payload.ARCHIVE
    place.write_bytes(payload.archive(shipped))
    return place


def test_what_is_shipped_is_the_source(shipped) -> None:
    """Every file of jobs/pod except those of the host, and of the reader, unchanged except for the reader's name."""
    texts = {}
    for here, below in (Path(jobs.pod.__file__).parent, ""), (Path(reader.__file__).parent, "reader/"):
        for path in (*here.rglob("*.py"), *here.rglob("*.json")):
            texts[below + path.relative_to(here).as_posix()] = path.read_text("utf-8")
    texts = {
        name: text.replace("from seatrial.logs.reader", "from seatrial_pod.reader") for name, text in texts.items()
    }
    assert not [name for name, text in texts.items() if "seatrial.logs" in text]
    expected = {f"{payload.PACKAGE}/{name}": text for name, text in texts.items() if name not in payload.HOST_ONLY}
    assert set(payload.HOST_ONLY) <= set(texts)
    assert expected.pop(f"{payload.PACKAGE}/probe.py") == shipped.pop(payload.ENTRY)
    assert shipped == expected


def test_it_fits_into_a_config_map(shipped) -> None:
    """1 MiB is a ConfigMap's limit; trial.json and a run's state need a part of it, and a third is reserved."""
    assert len(payload.archive(shipped)) < 400_000


def test_the_same_source_makes_the_same_archive(shipped, archive: Path, monkeypatch) -> None:
    """The order of files, the clock, its zone and the umask have no effect."""
    monkeypatch.setattr("time.time", lambda: 2e9)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    before = os.umask(0o077)
    try:
        made = payload.archive(dict(reversed(shipped.items())))
    finally:
        os.umask(before)
    assert made == archive.read_bytes()
    with zipfile.ZipFile(archive) as packed:
        told = {(each.date_time, each.external_attr >> 16, each.create_system) for each in packed.infolist()}
        assert told == {((1980, 1, 1, 0, 0, 0), 0o100644, 3)}
        assert packed.namelist() == sorted(shipped)


def test_the_digest_is_that_of_the_source_however_it_is_packed(shipped, archive: Path, tmp_path: Path) -> None:
    """Compressors differ between machines. Any change of a name or a text changes the digest; every user can compute
    it."""
    digest = payload.digest(shipped)
    assert of_archive(str(archive)) == digest
    with zipfile.ZipFile(tmp_path / "stored", "w") as packed:
        for name, text in shipped.items():
            packed.writestr(name, text)
    assert of_archive(str(tmp_path / "stored")) == digest
    name, text = next(iter(shipped.items()))
    renamed = {name + "c" if other == name else other: text for other, text in shipped.items()}
    others = ({**shipped, name: text + "#"}, {**shipped, "more.py": ""}, renamed)
    assert digest not in {payload.digest(other) for other in others}
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tmp_path / "src")
    command = "find * -type f | LC_ALL=C sort | xargs sha256sum | sha256sum"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path / "src", capture_output=True, text=True, check=True)
    assert digest == f"sha256:{done.stdout.split()[0]}"


def test_an_image_without_zlib_is_reported(archive: Path, tmp_path: Path) -> None:
    """The entry is read without zlib; the trial gets a line of evidence, torchrun's programs one sentence."""
    hides = "import sys; sys.modules['zlib'] = None"
    (tmp_path / "sitecustomize.py").write_text(hides)
    message = tmp_path / "message"
    message.touch()
    env = {"PYTHONPATH": str(tmp_path), "SEATRIAL_RUN": "r-test", "SEATRIAL_TERMINATION_LOG": str(message)}
    done, measured = (
        subprocess.run([sys.executable, archive, *words], capture_output=True, text=True, env=env, check=False)
        for words in ((), ("measure",))
    )
    assert (done.returncode, done.stderr) == (65, "")
    line = json.loads(done.stdout)
    assert line["stage"] == "start" and "has no zlib" in line["data"]["error"]
    assert message.read_text() == line["data"]["error"]  # job.failed quotes it
    assert (measured.returncode, measured.stdout) == (1, "")
    assert measured.stderr.startswith("seatrial: Python ") and measured.stderr.count("\n") == 1


@pytest.mark.parametrize("python", [sys.executable, *map(str, pythons())])
def test_a_traceback_shows_file_line_and_source(shipped, python: str, tmp_path: Path) -> None:
    """A traceback from the archive looks like one from a file on every Python."""
    path = f"{payload.PACKAGE}/stages/run.py"
    head, begins, rest = shipped[path].partition("def main(archive: str) -> int:\n")
    broken = f"{head}{begins}    raise ValueError('broken')  # here\n{rest}"
    archive = tmp_path / payload.ARCHIVE
    archive.write_bytes(payload.archive({**shipped, path: broken}))
    done = subprocess.run([python, archive], capture_output=True, text=True, check=False, env={})
    number = broken[: broken.index("raise ValueError('broken')")].count("\n") + 1
    said = f"  File \"{archive}/{path}\", line {number}, in main\n    raise ValueError('broken')  # here\n"
    assert said in done.stderr and done.stderr.endswith("ValueError: broken\n") and done.returncode == 1


def imported_by(path: str, shipped: dict[str, str]) -> set[str]:
    """Return the shipped files that one of them imports when it runs, including the packages on the path."""
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
        elif isinstance(node, ast.Constant) and str(node.value).startswith(f"{payload.PACKAGE}."):
            names.append(str(node.value).split("."))
    files = set()
    for name in names:
        files |= {"/".join([*name[:end], "__init__.py"]) for end in range(1, len(name) + 1)} | {"/".join(name) + ".py"}
    return files & set(shipped)


def test_all_that_travels_is_imported_by_what_the_pod_starts(shipped) -> None:
    """Files that no entry point imports are not shipped: diagnosis, documents and other files of the host."""
    reached, todo = set(), [payload.ENTRY]
    while todo:
        path = todo.pop()
        if path not in reached:
            reached.add(path)
            todo += imported_by(path, shipped)
    packages = {path for path in shipped if path.endswith("/__init__.py")}
    assert set(shipped) - packages - {f"{payload.PACKAGE}/reader/events/symptoms.json"} == reached - packages


def test_python_3_8_can_read_it(shipped) -> None:
    """Every file parses with Python 3.8's grammar."""
    for path, text in shipped.items():
        ast.parse(text, path, feature_version=(3, 8))


def test_only_the_standard_library_is_imported(shipped) -> None:
    """Only the bench imports torch."""
    for path, text in shipped.items():
        for node in ast.walk(ast.parse(text)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            elif isinstance(node, ast.ImportFrom):
                assert node.level < path.count("/") + 1, f"{path}: a relative import beyond its package"
            for name in names:
                top = name.partition(".")[0]
                own = path.removeprefix(f"{payload.PACKAGE}/")
                allowed = top in {*sys.stdlib_module_names, payload.PACKAGE} or (
                    top == "torch" and own in TORCH_ONLY_IN
                )
                assert allowed, f"{path} imports {name}"


def test_the_oldest_python_runs_a_trial(pods) -> None:
    """A whole trial runs on the oldest available Python (3.8 if present)."""
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


def test_nothing_is_written_with_the_probe(pods) -> None:
    """The folder is a read-only mount in a pod: no byte code, no log."""
    pods.seal()
    before = {path: path.read_bytes() for path in pods.mount.rglob("*")}
    pods.run()
    assert {path: path.read_bytes() for path in pods.mount.rglob("*")} == before
    assert sorted(path.name for path in before) == [payload.ARCHIVE, "trial.json"]


def test_what_ran_is_in_the_evidence(pods) -> None:
    """The evidence has the digest that --print-manifests shows for the same source."""
    pods.trial["collectives"] = []
    pods.seal()
    digest = of_archive(str(pods.archive))
    assert digest and {stages["start"]["probe"] for stages in pods.run().values()} == {digest}


def test_safe_path_mode_is_no_obstacle(pods) -> None:
    """PYTHONSAFEPATH removes a script's folder from sys.path, but the probe still finds its stages."""
    pods.trial["collectives"] = []
    assert pods.run(PYTHONSAFEPATH="1")[0]["end"]["stopped"] is None


def test_a_missing_stage_is_a_broken_probe(pods) -> None:
    """With an incomplete archive the probe ends non-zero: that is its own fault, not the cluster's."""
    (pods.here / "stages" / "run.py").unlink()
    pods.seal()
    done = subprocess.run([sys.executable, pods.archive], capture_output=True, timeout=HANG_S, env={}, check=False)
    assert done.returncode != 0
