"""The output of `dcgmi diag` in a log: its JSON and its tables, of DCGM 3 and 4, as files and inside of other text.

The tables' forms are those of NVIDIA/DCGM, dcgmi/Diag.cpp; that of a failed cuInit is shortened from nccl-tests#264.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.hardware.fakes.dcgm import document
from seatrial.logs import explain
from seatrial.logs.job_document import JobDocument
from seatrial.logs.reader.dcgm import read_table
from tests.logs.logmaker import Maker, interleaved

MISMATCH = {"status": "Fail", "warning": "A mismatch.", "category": 10, "id": 58, "severity": 2}
GOOD_JOB = interleaved(Maker(hosts=("gpu-node-0", "gpu-node-1"), gpus=8).processes(), 5).decode()
RULE = "+---------------------------+------------------------------------------------+"
Findings = list[tuple[str, str]]


def report(release: str, *gpus: dict[str, object], indent: str | None = "\t") -> str:
    world = {"gpu": {"driver": "580.95.05"}, "gpus": [{"dcgm": each} for each in gpus], "dcgm": release}
    return json.dumps(document(world, 2), indent=indent) + "\n"


def table(*rows: str, release: str = "4.4.2") -> str:
    """Return a table with these rows: a name and a value, or a category in dashes."""
    head = ["Successfully ran diagnostic for group.", RULE, row("Diagnostic|Result"), RULE.replace("-", "=")]
    about = [row("-Metadata"), row(f"DCGM Version|{release}"), row("GPU Device IDs Detected|2330,2330")]
    return "\n".join([*head, *about, *map(row, rows), RULE, ""])


def row(text: str) -> str:
    if text.startswith("-"):
        return f"+-----  {text[1:]}  ".ljust(28, "-") + "+" + "-" * 48 + "+"
    name, _, value = text.partition("|")
    pieces = [value[at : at + 45] for at in range(0, len(value), 45)] or [""]
    return "\n".join(f"| {name if not at else '':<25} | {piece:<46} |" for at, piece in enumerate(pieces))


MEMORY_4 = ("-Hardware", "memory|Fail", "|GPU0: Pass", "|GPU1: Fail")
WARNING = "Warning: GPU1|Found 12 memory mismatches on GPU 1. Run a field diagnostic on the GPU, please."
CUDA_3 = "Error using CUDA API cuInit. Unable to initialize CUDA library: 'system not yet initialized'."


def only(text: str) -> JobDocument:
    (job,) = explain(text)
    return job


def found(job: JobDocument) -> Findings:
    return [(each["fault"], each["subject"]) for each in job["faults"] if each["severity"] != "info"]


@pytest.mark.parametrize("indent", ["\t", None])
@pytest.mark.parametrize(("release", "name"), [("4.4.1", "memory"), ("3.3.9", "GPU Memory")])
def test_a_failed_test_in_json_accuses_its_gpu(release: str, name: str, indent: str | None) -> None:
    job = only("Warning: not root\n" + report(release, {}, {"memory": MISMATCH}, indent=indent))
    assert (job["verdict"], found(job)) == ("no-go", [("gpu.dcgm-failed", "GPU 1")])
    assert job["faults"][0]["cause"].startswith(f"{name} failed: A mismatch.")
    assert job["failure_class"] == "infrastructure"


def test_the_node_action_of_dcgms_error_is_in_the_remedy() -> None:
    """58 is DCGM_FR_MEMORY_MISMATCH (dcgm.csv): the vendor's; a table has no numbers, and no action is guessed."""
    job = only(report("4.4.1", {"memory": MISMATCH}))
    assert "contact its vendor's support" in job["faults"][0]["remedy"]
    assert "Action for the node" not in only(table(*MEMORY_4))["faults"][0]["remedy"]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((*MEMORY_4, WARNING), [("gpu.dcgm-failed", "GPU 1")]),
        (("-Hardware", "GPU Memory|Pass - GPU: 1", "|Fail - GPU: 0"), [("gpu.dcgm-failed", "GPU 0")]),
        (
            ("-Hardware", "GPU Memory|Fail - GPUs: 0, 1", "-Stress", "EUD Test|Skip - All"),
            [("gpu.dcgm-failed", "GPU 0"), ("gpu.dcgm-failed", "GPU 1")],
        ),
        (("-Hardware", "GPU Memory|Fail - All"), [("gpu.dcgm-failed", "no single GPU")]),
        (
            ("-Hardware", "GPU Memory|Fail - All", f"Warning|GPU 0 {CUDA_3}", f"Warning|GPU 1 {CUDA_3}"),
            [("runtime.dcgm-setup", "GPU 0"), ("runtime.dcgm-setup", "GPU 1")],
        ),
        (("-Deployment", "NVML Library|Fail", "Error|not found"), [("runtime.dcgm-setup", "no single GPU")]),
        (("-Deployment", "Page Retirement/Row Remap|Fail"), [("gpu.dcgm-failed", "no single GPU")]),
    ],
)
def test_a_failed_row_of_a_table_is_a_finding(rows: tuple[str, ...], expected: Findings) -> None:
    """By GPU, whether it is named in the row (DCGM 3), in a row below (DCGM 4) or in the warning alone."""
    job = only(table(*rows))
    assert (job["verdict"], found(job)) == ("no-go", expected)
    assert job["diagnosis"] == "degraded"


def test_a_warning_that_was_wrapped_is_one_text() -> None:
    assert only(table(*MEMORY_4, WARNING))["faults"][0]["cause"] == f"memory failed: {WARNING.partition('|')[2]}"


PASSES = ("-Deployment", "software|Pass", "|GPU0: Pass", "|GPU1: Pass")
SKIPS = ("-Integration", "pcie|Skip", "|GPU0: Skip", "|GPU1: Skip")
PERSISTENCE = "Warning: GPU0|Persistence Mode: Persistence mode for GPU 0 is disabled."
WARNS = ("-Hardware", "memory|Warn", "|GPU0: Fail", "Warning: GPU0|Less than half of it was free.", "|GPU1: Pass")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (report("4.4.1", {}, {}), "DCGM 4.4.1: 3 tests passed on 2 GPUs;"),
        (report("3.3.9", {}, {}), "DCGM 3.3.9: 11 tests passed on 2 GPUs;"),
        (table(*PASSES, *SKIPS), "DCGM 4.4.2: 1 test passed on 2 GPUs, 1 skipped;"),
        (table("-Hardware", "GPU Memory|Skip - All"), "DCGM 4.4.2: no test passed, 1 skipped;"),
        (table("-Deployment", "Denylist|Pass", "-Hardware", "GPU Memory|Pass - All"), "2 tests passed on 2 GPUs;"),
        (table("-Deployment", "software|Warn", "|GPU0: Fail", PERSISTENCE, "|GPU1: Pass"), "1 test passed on 1 GPU;"),
        (table(*WARNS), "no test passed, 1 open; memory warns: Less than half of it was free.;"),
        (table(*PASSES).rpartition("+--")[0], "its table is cut short"),
        (report("4.4.1", {}, {"memory": MISMATCH})[:900], "no test passed; this report of dcgmi diag is not read"),
    ],
)
def test_a_report_alone_is_never_a_go(text: str, said: str) -> None:
    """Passes, skips and warnings are counted apart; half of a report is said to be unread."""
    job = only(text)
    assert (job["verdict"], found(job)) == ("inconclusive", [])
    assert said in job["sentence"]
    assert "no NCCL log here" in job["sentence"]


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ("", "go"),
        ("$ dcgmi diag -r 3 | tee out; the diagnostic of GPU Memory | Fail |\n", "go"),
        (report("4.4.1", {}, {}), "go"),
        (table(*PASSES, *SKIPS), "go"),
        (table(*MEMORY_4), "no-go"),
        (report("3.3.9", {}, {"memory": MISMATCH}), "no-go"),
        (table(*WARNS), "inconclusive"),
        (table(*PASSES).rpartition("+--")[0], "inconclusive"),
        (report("4.4.1", {}, {})[:900] + "\n", "inconclusive"),
        (table(*PASSES).rpartition("+--")[0] + table(*PASSES), "inconclusive"),
    ],
)
def test_inside_a_healthy_jobs_log_what_is_not_passed_counts(more: str, verdict: str) -> None:
    assert only(more + GOOD_JOB)["verdict"] == verdict
    assert only(GOOD_JOB + more)["verdict"] == verdict


@pytest.mark.parametrize("text", [table(*MEMORY_4), report("4.4.1", {}, {"memory": MISMATCH})])
def test_a_report_in_a_wrapping_that_is_not_looked_into_is_no_pass(text: str) -> None:
    """Docker's records, one a line: the report's lines are found behind the place where reports are read."""
    wrapped = [json.dumps({"log": f"{line}\n", "stream": "stdout"}) for line in (text + GOOD_JOB).splitlines()]
    assert only("\n".join(wrapped))["verdict"] != "go"
    healthy = [json.dumps({"log": f"{line}\n", "stream": "stdout"}) for line in GOOD_JOB.splitlines()]
    assert only("\n".join(healthy))["verdict"] == "go"


def test_the_hosts_tag_names_the_node() -> None:
    text = "".join(f"[node-3] {line}\n" for line in table(*MEMORY_4).splitlines())
    assert found(only(text)) == [("gpu.dcgm-failed", "node-3 GPU 1")]
    stamped = "".join(
        f"2026-11-29T02:{n:02d}:00Z stdout F {line}\n" for n, line in enumerate(table(*MEMORY_4).split("\n"))
    )
    assert found(only(stamped)) == [("gpu.dcgm-failed", "GPU 1")]


def test_tables_of_two_hosts_that_are_mixed_are_no_pass() -> None:
    bad, good = (
        table(*MEMORY_4).splitlines(),
        table("-Hardware", "memory|Pass", "|GPU0: Pass", "|GPU1: Pass").splitlines(),
    )
    mixed = [f"node-{n}: {line}\n" for lines in zip(good, bad, strict=True) for n, line in enumerate(lines)]
    job = only("".join(mixed))
    assert "another report is between its lines" in job["sentence"]
    assert only("".join(mixed) + GOOD_JOB)["verdict"] == "inconclusive"


def test_files_of_reports_belong_to_the_job_beside_them(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(GOOD_JOB)
    (tmp_path / "diag.json").write_text(report("4.4.1", {}, {"memory": MISMATCH}))
    (job,) = explain(tmp_path)
    assert (job["verdict"], found(job)) == ("no-go", [("gpu.dcgm-failed", "GPU 1")])
    (tmp_path / "diag.json").write_text(report("4.4.1", {}, {}))
    (tmp_path / "README.md").write_text("what a bad GPU looks like:\n" + table(*MEMORY_4))
    assert [job["verdict"] for job in explain(tmp_path)] == ["go"]


def test_a_flood_of_failures_is_bounded_and_counted() -> None:
    rows = [f"test{n}|Fail - GPU: {n % 8}" for n in range(200)]
    job = only(table("-Hardware", *rows))
    assert len(found(job)) == 24
    assert "176 more tests failed" in job["sentence"]
    assert len(read_table([row("a|Fail")] * 10_000)[1]) <= 256


def test_credentials_in_a_warning_are_not_shown() -> None:
    job = only(table(*MEMORY_4, "Warning: GPU1|failed with API_TOKEN=abcdef123456 set"))
    assert "abcdef123456" not in json.dumps(job)
