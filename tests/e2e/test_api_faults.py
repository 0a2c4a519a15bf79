"""The trial under API faults: never a wrong verdict, and usually the right one."""

import json

import pytest

from tests.program import seatrial

KINDS = (
    "throttled",
    "errors",
    "resets",
    "slow",
    "short-watches",
    "stale",
    "torn-logs",
    "cut-bodies",
    "repeated-events",
    "late-events",
    "lagging-watches",
    "storm",
)


def accept(scenario, api_faults, seed, out):
    done = seatrial("accept", "--cluster", f"sim:{scenario}?api-faults={api_faults}&seed={seed}", "--out", str(out))
    assert (out / "report.json").exists(), done.stdout + done.stderr
    return json.loads((out / "report.json").read_text())


def faults_of(record):
    return {
        fault
        for check in record["checks"]
        for finding in check["findings"]
        if finding["ok"] is not True
        for fault in [finding["fault"]]
        if fault
    } | {c["fault"] for c in record["checks"] if c["fault"]}


def said(record):
    return "\n".join(
        f"{c['id']}: {c['outcome']} {c['reason']} {c['fault']}" for c in record["checks"] if c["outcome"] != "passed"
    )


@pytest.mark.slow
@pytest.mark.parametrize("api_faults", KINDS)
def test_a_healthy_cluster_is_not_at_fault_for_api_faults(api_faults, tmp_path):
    """go or inconclusive; no cluster fault is invented, and no object is left behind."""
    record = accept("healthy", api_faults, 1, tmp_path / "out")
    assert record["verdict"] in ("go", "inconclusive"), said(record)
    assert not [c["id"] for c in record["checks"] if c["outcome"] == "failed"], said(record)
    assert record["leftovers"] == []
    assert record["cluster"]["api_faults"] == f"{api_faults}:1"


@pytest.mark.slow
@pytest.mark.parametrize("api_faults", KINDS)
def test_a_fault_is_recognised_under_any_api_faults(api_faults, tmp_path):
    """The socket fault is reported under any API faults, and is the only fault."""
    record = accept("socket-fallback", api_faults, 1, tmp_path / "out")
    assert (record["verdict"], faults_of(record)) == ("no-go", {"nccl.socket-fallback"}), said(record)
