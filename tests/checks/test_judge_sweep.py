"""What a sweep's coordinator told becomes findings: whom they accuse, in which words, and what is never a pass."""

from dataclasses import replace

import pytest

from checks.profiles.loader import load_profile
from checks.rules.sweep import link_findings, node_findings, notes, ran_findings, read_sweep, scale_findings
from jobs.diagnosis.state import FailureAnalysis, JobState
from jobs.pod.sweep.model import Done, Result, Rules
from jobs.pod.sweep.model import Fleet as PlannedFleet
from jobs.pod.sweep.plan import next_round
from jobs.run.evidence import RankEvidence
from jobs.run.result import TrialResult
from jobs.trial.spec import Sweep

RULES = Rules(pair_floor=300.0, node_floor=400.0)
PROFILE = load_profile("h100-ib")


def told(nodes, speed, *, rounds=99, leaves=(), alone=lambda node: 480.0):
    """The stages that a coordinator prints over a fleet in which `speed(pair)` is a pair's busbw, or an outcome."""
    names = tuple(f"node-{n}" for n in range(nodes))
    fleet = PlannedFleet(names, dict(leaves))
    stages, history = {}, []
    rails = {name: [f"mlx5_{n}" for n in range(8)] for name in names}
    stages["sweep.fleet.1"] = {"nodes": list(names), "leaves": dict(leaves), "rails": rails}
    while (each := next_round(fleet, RULES, history)) is not None and len(history) < rounds:
        results, rows = {}, []
        for test in each.tests:
            value = alone(test[0]) if len(test) == 1 else speed(test)
            row = {"nodes": list(test), "outcome": "measured", "busbw": value}
            if isinstance(value, str):
                row = {"nodes": list(test), "outcome": value, "why": {test[0]: "it said why"}}
            elif value is None:
                row = {"nodes": list(test), "outcome": "nothing", "reported": []}
            rows.append(row)
            reported = tuple(row.get("reported", test))
            results[test] = Result(row["outcome"], row.get("busbw"), (), reported)
        history.append(Done(each, results))
        stages[f"sweep.round.{each.number}"] = {
            "number": each.number,
            "stage": each.stage,
            "seconds": 1.0,
            "tests": rows,
        }
    stages["sweep.end"] = {"why": ""}
    stages["end"] = {"seconds": 1.0, "stopped": None}
    return names, stages


def swept(names, stages, *, analysis=None, leaves=(), left=(), **evidence):
    made = Sweep(token="t", nodes=tuple(names), leaves=dict(leaves))
    found = {0: RankEvidence(rank=0, stages=stages, **evidence)} if stages is not None else {}
    trial = TrialResult(job="seatrial-x", state=JobState.COMPLETE, evidence=found, analysis=analysis)
    return read_sweep(trial, made, RULES, [], dict(left))


def everything(found):
    return [*ran_findings(found), *node_findings(found), *link_findings(found)]


@pytest.mark.parametrize("nodes", [2, 3, 6, 17])
def test_a_healthy_fleet_holds(nodes):
    """Also of an odd number: every node is proven, and every finding is good."""
    found = swept(*told(nodes, lambda _: 380.0))
    assert found.blame.verdict == "go", found.blame.reasons
    assert all(f.ok for f in everything(found))
    assert found.section["verdict"] == "go"
    assert next(notes(found)).startswith(f"proven: {nodes} nodes")


def test_a_slow_node_is_accused_and_no_other():
    """With three failures with proven partners, and the command that keeps others off it."""
    found = swept(*told(8, lambda pair: 200.0 if "node-3" in pair else 380.0))
    bad = [f for f in everything(found) if f.ok is not True]
    assert [(f.subject, f.fault) for f in bad] == [("node-3", "sweep.node")]
    assert any("kubectl cordon node-3" in text for text in notes(found))


def test_a_slow_pair_accuses_neither_of_its_nodes():
    """Both pass with everybody else."""
    found = swept(*told(8, lambda pair: 200.0 if pair == ("node-2", "node-5") else 380.0))
    bad = [f for f in everything(found) if f.ok is not True]
    assert [(f.subject, f.fault) for f in bad] == [("node-2 - node-5", "sweep.pair")]


def test_a_slow_uplink_accuses_a_leaf_and_no_node():
    """Its nodes pass among themselves, and are slow with all other leaves."""
    leaves = {f"node-{n}": f"leaf-{n // 4}" for n in range(16)}

    def speed(pair):
        inside = leaves[pair[0]] == leaves[pair[1]]
        return 200.0 if not inside and "leaf-1" in (leaves[pair[0]], leaves[pair[1]]) else 380.0

    found = swept(*told(16, speed, leaves=leaves), leaves=leaves)
    bad = [f for f in everything(found) if f.ok is not True]
    assert {f.fault for f in bad} == {"sweep.uplink"}
    assert all("leaf-1" in f.subject for f in bad)


def test_a_suspect_is_neither_accused_nor_proven():
    """sweep.suspect: of two nodes nothing tells who is slow."""
    found = swept(*told(3, lambda pair: 380.0 if pair == ("node-0", "node-1") else 200.0))
    bad = {f.fault: f.ok for f in everything(found) if f.ok is not True}
    assert "sweep.suspect" in bad
    assert set(bad.values()) == {None}
    assert found.blame.verdict != "go"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda names, stages: (names, None), "told nothing"),
        (lambda names, stages: (names, {}), "told nothing"),
        (lambda names, stages: (names, {k: v for k, v in stages.items() if k != "sweep.end"}), "ended before"),
        (
            lambda names, stages: (names, {k: v for k, v in stages.items() if k != "sweep.round.2"}),
            "without a record: 2",
        ),
        (lambda names, stages: (names, stages | {"sweep.end": {"why": "its budget of 60 s was over"}}), "budget"),
        (lambda names, stages: ((*names, "node-x"), stages), "did not start"),
    ],
    ids=["no log", "no stage", "no end", "a round is missing", "budget", "a node never came"],
)
def test_what_is_missing_is_never_a_pass(change, said):
    """sweep.not-tested, and why."""
    names, stages = change(*told(6, lambda _: 380.0))
    found = swept(names, stages)
    bad = [f for f in ran_findings(found) if f.ok is not True]
    assert bad and all(f.ok is None for f in bad)
    assert {f.fault for f in bad} == {"sweep.not-tested"}
    assert any(said in f.observed for f in bad), [f.observed for f in bad]
    assert found.section["verdict"] != "go" or found.problem


@pytest.mark.parametrize(
    ("nodes", "speed", "alone"),
    [
        (1, lambda _: 380.0, lambda _: 480.0),
        (6, lambda _: None, lambda _: 480.0),
        (6, lambda _: None, lambda _: None),
        (6, lambda _: 100.0, lambda _: 480.0),
        (6, lambda _: 380.0, lambda _: 100.0),
        (6, lambda pair: None if "node-2" in pair else 380.0, lambda _: 480.0),
        (6, lambda _: "no end", lambda _: 480.0),
    ],
    ids=["one node", "no pair", "nothing", "all pairs slow", "all nodes slow", "a silent agent", "all hang"],
)
def test_no_sweep_is_go_that_proved_too_little(nodes, speed, alone):
    """One node, nobody who reports, a fleet that is slow as a whole: no check passes all of its findings."""
    found = swept(*told(nodes, speed, alone=alone))
    assert found.blame.verdict != "go"
    assert any(f.ok is not True for f in everything(found))


def test_a_coordinator_that_was_taken_away_is_no_end():
    """Its words until then are kept, and the disruption is named."""
    names, stages = told(6, lambda _: 380.0, rounds=2)
    lost = FailureAnalysis(
        fault="job.disrupted", subject="pod", observed="pod x is gone", expected="", suggestion="", disrupted=True
    )
    found = swept(names, {k: v for k, v in stages.items() if not k.endswith("end")}, analysis=lost)
    first = next(iter(ran_findings(found)))
    assert (first.ok, first.fault) == (None, "job.disrupted")
    assert "2 rounds, then: pod x is gone" in first.observed
    assert len(found.section["rounds"]) == 2


def test_lost_lines_are_no_pass():
    """A log of which lines are missing may have lost the round that failed."""
    names, stages = told(6, lambda _: 380.0)
    found = swept(names, stages, missing=(7,))
    assert "1 lines" in next(iter(ran_findings(found))).observed


@pytest.mark.parametrize(
    ("row", "ok"),
    [
        ({"outcome": "measured", "busbw": 370.0, "rows": [[2**30, 370.0, 0]]}, True),
        ({"outcome": "failed"}, False),
        ({"outcome": "wrong sums"}, False),
        ({"outcome": "nothing"}, None),
        ({"outcome": "anything"}, None),
        ({}, None),
    ],
)
def test_the_job_over_all_nodes(row, ok):
    """sweep.scale: an end that failed accuses no node; one that said nothing is no pass."""
    names, stages = told(6, lambda _: 380.0)
    found = swept(names, stages | {"sweep.job": {"nodes": list(names), **row}})
    assert [f.ok for f in scale_findings(found, PROFILE)] == [ok]


def test_a_floor_for_as_many_nodes_is_held():
    """Where the profile has one."""
    names, stages = told(6, lambda _: 380.0)
    floor = replace(PROFILE.floor("all_reduce", "ring", 2)[0], nodes=6)
    profile = replace(PROFILE, floors=(floor,))
    row = {"nodes": list(names), "outcome": "measured", "busbw": 100.0, "rows": [[int(floor.size), 100.0, 0]]}
    found = swept(names, stages | {"sweep.job": row})
    assert [(f.ok, f.fault) for f in scale_findings(found, profile)] == [(False, "sweep.scale")]


def test_a_busy_node_is_named_and_no_pass():
    """It is left alone; a sweep of the fleet without it is no go."""
    names, stages = told(6, lambda _: 380.0)
    found = swept(names, stages, left={"node-busy": "0 of 8 free; held by Job/other"})
    bad = [f for f in everything(found) if f.ok is not True]
    assert [(f.subject, f.ok) for f in bad if f.subject != "seatrial-x"] == [("node-busy", None)]
    assert "held by Job/other" in bad[0].observed
    assert found.section["verdict"] == "inconclusive"
