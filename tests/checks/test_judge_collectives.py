"""Results for single nodes, send/recv and all_to_all, and inconsistent repeats."""

import copy
from dataclasses import replace

import pytest

from checks.profiles.trial import NODE
from checks.rules.bandwidth import (
    blind_findings,
    correct,
    correctness_findings,
    floor_findings,
    notes,
    rows_of,
    spread_findings,
    table_of,
)
from checks.rules.collectives import alone_findings, completed_findings, over_all_nodes
from checks.rules.intra_node import path_findings

NODES = ["gpu-node-0", "gpu-node-1"]

NO_CHANNELS = {"p2p": 0, "shm": 0, "mnnvl": 0, "net": 0, "nvls": None}


def test_a_healthy_trial_raises_nothing(trial, whole_spec, all_jobs, node_jobs, h100, bad):
    """No rule raises a finding for five healthy collectives."""
    assert list(over_all_nodes(whole_spec)) == ["ring", "default", "sendrecv", "alltoall"]
    for findings in (
        completed_findings(trial, whole_spec, all_jobs),
        alone_findings(trial, whole_spec, node_jobs),
        path_findings(trial, whole_spec, node_jobs, "p2p"),
        correctness_findings(all_jobs),
        floor_findings(table_of(node_jobs[0]), h100.floor("all_reduce", "default", 1), "gpu-node-0"),
        floor_findings(table_of(all_jobs["sendrecv"], "sendrecv"), h100.floor("sendrecv", "default", 2)),
        floor_findings(table_of(all_jobs["alltoall"], "all_to_all"), h100.floor("all_to_all", "default", 2)),
        spread_findings(table_of(all_jobs["ring"]), "all_reduce ring", 0.1),
    ):
        assert not bad(findings)


# --------------------------------------------------------------------------------------------------------- single nodes


def test_the_node_that_hangs_alone_is_named(trial, whole_spec, node_jobs):
    """Only the node whose single-node run hangs is at fault; its peer completed."""
    trial.evidence[1].stages["collective.node"].update(timed_out=True, exit=None, seconds=240.0)
    node_jobs[1].update(hang=True, tables=[])
    findings = list(alone_findings(trial, whole_spec, node_jobs))
    assert [(f.subject, f.ok, f.fault) for f in findings] == [(NODES[0], True, ""), (NODES[1], False, "nccl.hang")]


def test_a_node_without_evidence_is_not_reported(trial, whole_spec, node_jobs):
    """A rank whose probe ended early is undetermined."""
    del trial.evidence[0].stages["collective.node"]
    finding = next(alone_findings(trial, whole_spec, {**node_jobs, 0: None}))
    assert (finding.subject, finding.ok) == (NODES[0], None)


def test_host_memory_where_nvlink_was_paid_for_is_a_fault(trial, whole_spec, node_jobs, bad):
    """SHM between GPUs of an NVLink machine, with the setting that caused it; the healthy node is not named."""
    node_jobs[1].update(intra_node=NO_CHANNELS | {"shm": 128}, env={"NCCL_P2P_DISABLE": "1"})
    findings = list(path_findings(trial, whole_spec, node_jobs, "p2p"))
    assert bad(findings) == [("gpu-node-1", "nccl.intra-node-path")]
    assert "128 channels by shared memory (through the host) (NCCL_P2P_DISABLE=1 is set)" in findings[1].observed


def test_shared_memory_is_normal_on_pcie_machines(trial, whole_spec, node_jobs, bad):
    """Where the profile says shm, SHM and faster transports pass; the network inside a node does not."""
    node_jobs[0]["intra_node"] = NO_CHANNELS | {"shm": 64}
    assert not bad(path_findings(trial, whole_spec, node_jobs, "shm"))
    node_jobs[0]["intra_node"] = NO_CHANNELS | {"shm": 60, "net": 4}
    assert bad(path_findings(trial, whole_spec, node_jobs, "shm")) == [("gpu-node-0", "nccl.intra-node-path")]


def test_a_log_without_channels_is_no_evidence(trial, whole_spec, node_jobs):
    """An empty log is an error, never a pass or a node fault."""
    node_jobs[0]["intra_node"] = NO_CHANNELS
    finding = next(path_findings(trial, whole_spec, node_jobs, "p2p"))
    assert (finding.ok, finding.fault) == (None, "nccl.no-evidence")
    node_jobs[0]["truncated"] = True
    assert next(path_findings(trial, whole_spec, node_jobs, "p2p")).fault == "nccl.log-truncated"


def test_the_slow_node_is_named(node_jobs, h100, bad):
    """The single-node floor applies, and the fault names the node."""
    table = copy.deepcopy(table_of(node_jobs[1]))
    for row in table["rows"]:
        for side in ("in_place", "out_of_place"):
            row[side]["busbw_gbps"] *= 0.5
    faults_raised = bad(floor_findings(table, h100.floor("all_reduce", "default", 1), "gpu-node-1"))
    assert {fault for _, fault in faults_raised} == {"nccl.low-bandwidth-node"}
    assert all(subject.startswith("gpu-node-1 all_reduce 8G") for subject, _ in faults_raised)


def test_wrong_sums_of_one_node_name_it(node_jobs):
    """The counts work as over all nodes: N/A is not 0."""
    table = table_of(node_jobs[0])
    assert correct("gpu-node-0", table).ok is True
    table["rows"][2]["in_place"]["wrong"] = 3
    assert (correct("gpu-node-0", table).fault, correct("gpu-node-0", None).ok) == ("nccl.wrong-results", None)


# ---------------------------------------------------------------------------------------------------- other collectives


@pytest.mark.parametrize(
    ("name", "op", "fault"),
    [
        ("sendrecv", "sendrecv", "nccl.low-bandwidth-sendrecv"),
        ("alltoall", "all_to_all", "nccl.low-bandwidth-alltoall"),
    ],
)
def test_a_slow_pattern_has_a_fault_of_its_own(all_jobs, h100, bad, name, op, fault):
    """Pipelines and experts have other causes than sums; the entry names them."""
    table = table_of(all_jobs[name], op)
    for row in table["rows"]:
        for side in ("in_place", "out_of_place"):
            row[side]["busbw_gbps"] *= 0.4
    assert {f for _, f in bad(floor_findings(table, h100.floor(op, "default", 2)))} == {fault}


def test_nccl_tests_own_spelling_is_the_same_collective():
    """alltoall_perf prints alltoall; a table of another collective is not accepted for it."""
    job = {"tables": [{"collective": "all_gather", "rows": [1]}, {"collective": "alltoall", "rows": [2]}]}
    assert table_of(job, "all_to_all")["rows"] == [2]
    assert table_of(job, "sendrecv") is None


def test_a_size_rounded_to_whole_parts_is_the_row_that_was_meant():
    """Six ranks round 1 GiB to 1073741808; half a GiB is a different row."""
    rows = [{"size_bytes": 536870904}, {"size_bytes": 1073741808}, {"size_bytes": 2147483640}]
    assert rows_of(rows, 2**30) == [rows[1]]
    assert rows_of(rows, 2**32) == []


# -------------------------------------------------------------------------------------------------------------- repeats


def repeated(table, *shares):
    rows = [copy.deepcopy(row) for _ in shares for row in table["rows"]]
    for number, row in enumerate(rows):
        for side in ("in_place", "out_of_place"):
            row[side]["busbw_gbps"] *= shares[number // len(table["rows"])]
    return dict(table, rows=rows)


def test_the_median_of_repeats_meets_the_floor(jobs, h100, bad):
    """One slow repeat of three passes; two fail."""
    floors = h100.floor("all_reduce", "ring", 2)
    assert not bad(floor_findings(repeated(jobs["ring"]["tables"][0], 1.0, 0.6, 1.0), floors))
    assert bad(floor_findings(repeated(jobs["ring"]["tables"][0], 1.0, 0.6, 0.6), floors))


def test_repeats_far_apart_are_unstable(jobs, bad):
    """Rows of 1 GiB and more are judged by (largest - smallest) / median."""
    table = repeated(jobs["ring"]["tables"][0], 1.0, 0.7, 1.0)
    findings = list(spread_findings(table, "all_reduce ring", 0.1))
    assert {fault for _, fault in bad(findings)} == {"nccl.unstable"}
    assert {f.subject.split()[2] for f in findings} == {"1G", "2G", "4G", "8G"}
    assert "differ by 30.0%" in findings[0].observed


def test_a_repeat_that_shows_nothing_is_no_agreement(jobs, bad):
    """A repeat of 0.00 GB/s counts; without it the others would agree."""
    table = repeated(jobs["ring"]["tables"][0], 1.0, 0.0, 1.0)
    assert {fault for _, fault in bad(spread_findings(table, "all_reduce ring", 0.1))} == {"nccl.unstable"}
    nothing = repeated(jobs["ring"]["tables"][0], 0.0, 0.0, 0.0)
    assert not bad(spread_findings(nothing, "all_reduce ring", 0.1))  # reported by the floor's finding


def test_a_floor_far_too_low_proves_nothing(jobs, h100):
    """40 of 400 GB/s looks like a fallback: with a floor of 3 it is inconclusive, a healthy rate passes."""
    (low,) = {f for f in h100.floor("all_reduce", "ring", 2) if f.size == 2**33}
    blind = (replace(low, busbw_gbps=3.0),)
    slow = repeated(jobs["ring"]["tables"][0], 0.1, 0.1, 0.1)
    (finding,) = blind_findings(slow, blind, h100)
    assert finding.ok is None
    assert "less than half of the link rate" in finding.observed
    assert list(blind_findings(jobs["ring"]["tables"][0], blind, h100)) == []
    assert list(blind_findings(slow, (low,), h100)) == []  # already below its floor: one finding is enough


def test_repeats_close_together_and_single_runs_are_quiet(jobs, bad):
    """5 % is noise; a single run has no spread."""
    table = jobs["ring"]["tables"][0]
    assert not bad(spread_findings(repeated(table, 1.0, 0.95, 0.98), "all_reduce ring", 0.1))
    assert list(spread_findings(table, "all_reduce ring", 0.1)) == []


def test_a_slow_first_repetition_is_reported(jobs, h100):
    """The start-up cost of a job is shown, unless the first repetition is as fast as the others."""
    table = jobs["ring"]["tables"][0]
    facts = {"first_us": {str(2**33): 9000.0, str(2**32): 1.2, str(2**20): 9000.0, "x": None}}
    said = [text for text in notes("ring", jobs["ring"], table, h100, facts) if "first repetition" in text]
    assert said == ["the first repetition of 8G took 9.0 ms, 9000.0 times the other repetitions"]
    assert not [t for t in notes(NODE, jobs["ring"], table, h100, None) if "first" in t or "wire" in t]
