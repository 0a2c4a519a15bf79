"""The owner of a failure: by fault, by the launcher's analysis, by run, by explained job."""

import json
from pathlib import Path

import pytest

from checks.framework.failures import failure_class_of, failure_of
from cli.explain import _failure_class, main
from jobs.diagnosis.state import ERR_INFRA, ERR_PROGRAM, FailureAnalysis
from reports.record import CheckResult, Finding, Outcome, Run
from seatrial.faults.advice import FAULTS
from seatrial.faults.catalogue import failure_class


def run_of(*checks, trial=None):
    """A run of (outcome, fault) checks."""
    results = [
        CheckResult(
            id=f"check-{number}",
            title="",
            outcome=outcome,
            findings=(Finding(subject="x", ok=outcome is Outcome.PASSED, observed="", fault=fault),),
        )
        for number, (outcome, fault) in enumerate(checks)
    ]
    faults = {fault: {"failure": FAULTS[fault].failure} for _, fault in checks if fault}
    return Run(results=results, faults=faults, trial=trial or {})


def analysis(err_class, *, disrupted=False):
    return FailureAnalysis(
        fault="job.failed",
        subject="pod",
        observed="",
        expected="",
        suggestion="",
        err_class=err_class,
        disrupted=disrupted,
    )


def test_every_fault_has_one_of_three_classes():
    assert {fault.failure for fault in FAULTS.values()} == {"infrastructure", "program", "unknown"}
    assert FAULTS["gpu.missing"].failure == "infrastructure"
    assert FAULTS["image.no-python"].failure == FAULTS["nccl.hang-mismatch"].failure == "program"


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ([], None),
        (["unknown"], None),
        (["program", "unknown"], "program"),
        (["program", "infrastructure"], "infrastructure"),
    ],
)
def test_one_fault_of_the_cluster_is_enough(classes, expected):
    assert failure_class(classes) == expected


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ([(Outcome.PASSED, "")], None),
        ([(Outcome.FAILED, "gpu.missing")], "infrastructure"),
        ([(Outcome.ERROR, "image.no-python")], "program"),
        ([(Outcome.FAILED, "nccl.cuda-arch"), (Outcome.ERROR, "gpu.missing")], "program"),
        ([(Outcome.ERROR, "job.disrupted")], None),
    ],
)
def test_only_what_decided_counts(checks, expected):
    assert failure_class_of(run_of(*checks)) == expected


@pytest.mark.parametrize(("err_class", "expected"), [(ERR_INFRA, "infrastructure"), (ERR_PROGRAM, "program")])
def test_of_a_failed_job_its_analysis_says_whose_it_was(err_class, expected):
    """Exit code 137 belongs to the node, 1 to the program, though the fault id is the same."""
    trial = {"failure": {"fault": "job.failed", "failure": failure_of(analysis(err_class))}}
    assert failure_class_of(run_of((Outcome.ERROR, "job.failed"), trial=trial)) == expected


def test_what_others_interrupted_is_nobodys():
    assert failure_of(analysis(ERR_INFRA, disrupted=True)) == "unknown"


def test_explain_says_it_of_each_job(tmp_path, capsys):
    log = tmp_path / "job.log"
    log.write_text("host:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda12.9\nhost:1:1 [0] NCCL WARN nothing known\n")
    main([str(log), "--format", "json"])
    assert [job["failure_class"] for job in json.loads(capsys.readouterr().out)["jobs"]] == [None]


KERNEL = "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
XID = "NVRM: Xid (PCI:0000:1b:00): {}, pid=9, name=python\n"


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (KERNEL, "program"),
        ("RuntimeError: CUDA error: device-side assert triggered\n", "program"),
        (KERNEL + XID.format(31), "program"),  # the driver's message for the same fault
        (KERNEL + XID.format(48), "infrastructure"),
        (XID.format(79) + KERNEL, "infrastructure"),
        ("RuntimeError: CUDA error: unspecified launch failure\n", "infrastructure"),
    ],
)
def test_what_a_kernel_did_is_the_programs_unless_the_driver_reports_the_gpu(tmp_path, capsys, ending, expected):
    log = tmp_path / "job.log"
    log.write_text("host:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda12.9\n" + ending)
    main([str(log), "--format", "json"])
    assert [job["failure_class"] for job in json.loads(capsys.readouterr().out)["jobs"]] == [expected]


@pytest.mark.parametrize(
    ("kind", "role", "expected"),
    [
        ("gpu", "likely", "infrastructure"),
        ("gpu", "possible", "program"),  # an Xid that programs can cause
        ("storage", "nearby", "program"),
        ("eviction", "likely", None),
    ],
)
def test_what_happened_to_a_job_comes_before_what_its_log_says(tmp_path, capsys, kind, role, expected):
    """An illegal access after Xid 79 or after SIGTERM is not the program's fault."""
    log = tmp_path / "job.log"
    log.write_text("host:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda12.9\n" + KERNEL)
    main([str(log), "--format", "json"])
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert _failure_class(job | {"around": [{"kind": kind, "role": role}]}) == expected


@pytest.mark.parametrize(("case", "expected"), [("sleep", None), ("branch", "program")])
def test_sockets_are_not_why_a_rank_is_late(capsys, case, expected):
    """Both recorded jobs also fell back to sockets, which are slow but cause no timeout."""
    recorded = Path(__file__).parents[1] / "hang" / "data" / "nccl-2.28.9" / case
    main([str(recorded), "--format", "json"])
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert "nccl.socket-fallback" in {fault["fault"] for fault in job["faults"]}
    assert job["failure_class"] == expected
    assert {cause["fault"] for cause in job["causes"]} == {f"nccl.{job['diagnosis']}"}
