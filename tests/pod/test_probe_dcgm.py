"""DCGM's diagnostics in a pod: run and parse."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.pod.stages import dcgm
from lab.hardware.fakes.dcgm import document
from seatrial.logs.reader import dcgm as diag

MISMATCH = {"status": "Fail", "warning": "A mismatch.", "category": 10, "id": 58, "severity": 2}
ENGINE = """#!{python} -IS
import os, signal, socket, sys
if {refuses}:
    sys.exit("Unable to start: the driver is not loaded, TOKEN=abcdef123456")
os.chdir(os.path.dirname(sys.argv[sys.argv.index("-d") + 1]))
listener = socket.socket(socket.AF_UNIX)
listener.bind("dcgm.sock")
open("engine.pid", "w").write(str(os.getpid()))
signal.pause()
"""
DCGMI = """#!{python} -IS
import sys, time
assert sys.argv[1:3] == ["diag", "--host"] and sys.argv[3].startswith("unix:///"), sys.argv
assert sys.argv[4:] == ["-r", "2", "-j"], sys.argv
sys.stdout.write({says!r})
sys.stdout.flush()
time.sleep({hangs})
sys.exit(226)
"""

STAGE = """
import json, os, sys
from jobs.pod.stages import dcgm
from jobs.pod.stages.deadline import Watch
limit_s, folder, programs = sys.argv[1:]
data = dcgm.blank(2)
status = dcgm.run(data, float(limit_s), folder, {**os.environ, "PATH": programs}, Watch(600, 10))
print(json.dumps([status, data]))
"""


def world(release: str, **first: object) -> dict[str, object]:
    return {"gpu": {"driver": "580.95.05"}, "gpus": [first, {}], "dcgm": release}


def told(release: str, level: int = 2, **first: object) -> tuple[str | None, dict[tuple[str, str], list[str]], str]:
    text = json.dumps(document(world(release, **first), level)).encode()
    version, results, error = diag.read(b"Warning: not root\n" + text + b"\n")
    return version, {(each["test"], each["status"]): each["who"] for each in results}, error


def test_both_shapes_are_read_by_gpu_and_test() -> None:
    """Failures come first, each separately; GPUs that pass share an entry; numbers are those of DCGM 4."""
    version, by_test, error = told("4.4.1", dcgm={"memory": MISMATCH})
    assert (version, error) == ("4.4.1", "")
    assert by_test == {
        ("memory", "fail"): ["GPU 0"],
        ("software", "pass"): ["GPU 0", "GPU 1"],
        ("pcie", "pass"): ["GPU 0", "GPU 1"],
        ("memory", "pass"): ["GPU 1"],
    }
    version, by_test, error = told("3.3.9", dcgm={"memory": MISMATCH, "pcie": {"status": "Skip", "info": "No."}})
    assert (version, error) == ("3.3.9", "")
    assert by_test[("GPU Memory", "fail")] == ["GPU 0"]
    assert by_test[("PCIe", "skip")] == ["GPU 0"]
    assert by_test[("NVML Library", "pass")] == ["GPU 0", "GPU 1"]


def test_warnings_keep_their_numbers_and_lose_credentials() -> None:
    said = {**MISMATCH, "warning": "A mismatch.\n TOKEN=abcdef123456"}
    result = diag.read(json.dumps(document(world("4.4.1", dcgm={"memory": said}), 2)).encode())[1][0]
    assert result["said"] == [{"text": "A mismatch. TOKEN=[REDACTED]", "id": 58, "severity": 2, "category": 10}]
    old = diag.read(json.dumps(document(world("3.3.9", dcgm={"memory": said}), 2)).encode())[1][0]
    assert old["said"] == [{"text": "A mismatch. TOKEN=[REDACTED]", "id": None, "severity": None, "category": None}]


def test_a_summary_that_no_result_shows_is_a_result() -> None:
    """A separate summary has no subject; a failing result without a text gets the text of its summary."""
    summary = {"status": "Fail", "warnings": [{"warning": "The plugin crashed.", "error_id": 1}]}
    test = {"name": "pcie", "results": [{"entity_group": "GPU", "entity_id": 0, "status": "Pass"}]}
    body = {"test_categories": [{"category": "Integration", "tests": [{**test, "test_summary": summary}, None]}]}
    results = diag.read(json.dumps({"DCGM Diagnostic": body}).encode())[1]
    assert [(each["status"], each["who"]) for each in results] == [("fail", []), ("pass", ["GPU 0"])]
    test["results"][0]["status"] = "Fail"  # type: ignore[index]
    body["test_categories"][0]["tests"][0] = {**test, "test_summary": summary}  # type: ignore[index]
    (result,) = diag.read(json.dumps({"DCGM Diagnostic": body}).encode())[1]
    assert (result["who"], result["said"][0]["text"]) == (["GPU 0"], "The plugin crashed.")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "no output"),
        (b"Error: cannot connect", "no JSON: Error: cannot connect"),
        (b"{" * 100_000 + b"}", "broken JSON"),
        (b'{"a": ' * 100_000 + b"1" + b"}" * 100_000, "broken JSON"),
        (b'{"DCGM": {}}', "not from dcgmi diag"),
        (b'{"DCGM GPU Diagnostic": {"version": "4.2.3"}}', "it reports no result"),
        (b'{"DCGM Diagnostic": {"runtime_error": "Unable to run on GPU 0."}}', "Unable to run on GPU 0."),
    ],
)
def test_what_is_no_result_is_said(text: bytes, problem: str) -> None:
    _, results, error = diag.read(text)
    assert (results, problem in error) == ([], True), error


def test_a_flood_of_results_is_bounded_and_loses_no_failure() -> None:
    entries = [{"gpu_ids": str(n % 8), "status": "PASS", "warnings": f"w{n}"} for n in range(5000)]
    tests = [{"name": "x", "results": [*entries, {"gpu_ids": "7", "status": "FAIL", "warnings": ["a" * 9000] * 9}]}]
    results = diag.read(json.dumps({"DCGM Diagnostic": {"test_categories": [{"tests": tests}]}}).encode())[1]
    assert len(results) <= diag.MOST_RESULTS
    assert (results[0]["status"], results[0]["who"]) == ("fail", ["GPU 7"])
    assert [len(each["text"]) for each in results[0]["said"]] == [diag.TEXT] * diag.MOST_SAID


def test_a_nodes_results_in_a_sweep_fit_into_a_message_and_what_is_left_out_is_said() -> None:
    """Failures come first; sixteen GPUs with the longest failures still fit."""
    said = [{"id": 1, "severity": 2, "category": 10, "text": "w" * diag.TEXT}] * diag.MOST_SAID
    head = {"category": "Hardware", "test": "memory", "said": said}
    fails = [{**head, "who": [f"GPU {n}"], "status": "fail"} for n in range(16)]
    few = dcgm.brief({**dcgm.blank(2), "results": fails})
    assert (len(few["results"]), few["error"]) == (16, None)
    many = dcgm.brief({**dcgm.blank(2), "error": "cut", "results": [*fails, *[{**fails[0], "status": "skip"}] * 240]})
    assert len(json.dumps(many)) < dcgm.BYTES_ALONE + 500
    kept = len(many["results"])
    assert many["results"][:16] == few["results"] and many["error"] == f"cut; {256 - kept} of its results are left out"


def ran(folder: Path, *, limit_s: float = 60.0, **given: object) -> tuple[str, dict[str, object]]:
    """Run the stage with this test's programs."""
    programs = folder / "bin"
    programs.mkdir()
    for name, text in (("nv-hostengine", ENGINE), ("dcgmi", DCGMI)):
        if name not in str(given.get("without")):
            values = {"refuses": given.get("refuses"), "hangs": given.get("hangs", 0), "says": given.get("says", "")}
            (programs / name).write_text(text.format(python=sys.executable, **values))
            (programs / name).chmod(stat.S_IRWXU)
    # In a separate process, like a pod's: the stage ends every process below its own.
    asked = [sys.executable, "-c", STAGE, str(limit_s), str(folder), str(programs)]
    said = subprocess.run(asked, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, check=True).stdout
    status, data = json.loads(said)
    return status, data


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder whose path is short enough for a socket."""
    return tmp_path_factory.mktemp("d")


def test_the_diagnostics_run_and_nothing_of_them_stays(folder: Path) -> None:
    """The exit code of a failed test is not an error of the stage, and the host engine has ended."""
    says = json.dumps(document(world("4.4.1", dcgm={"memory": MISMATCH}), 2))
    status, data = ran(folder, says=says)
    assert (status, data["found"], data["exit"], data["error"]) == ("failed", True, 226, None)
    assert not Path("/proc", (folder / "engine.pid").read_text()).exists()


def test_without_the_programs_nothing_is_started(folder: Path) -> None:
    status, data = ran(folder, without="nv-hostengine")
    assert (status, data["found"], data["missing"], data["results"]) == ("skipped", False, ["nv-hostengine"], [])


def test_an_engine_that_ends_is_reported_without_its_credentials(folder: Path) -> None:
    status, data = ran(folder, refuses=True)
    assert status == "failed"
    assert "the driver is not loaded" in str(data["error"])
    assert "abcdef123456" not in str(data["error"])


def test_what_hangs_is_ended_at_the_limit(folder: Path) -> None:
    """The hanging command's host engine ends with it."""
    status, data = ran(folder, limit_s=2.0, hangs=600)
    assert (status, data["exit"]) == ("failed", None)
    assert "did not end" in str(data["error"])
    assert not Path("/proc", (folder / "engine.pid").read_text()).exists()
