"""What a sweep's coordinator told becomes findings: whom they accuse, in which words, and what is never a pass."""

import base64
import json
import re
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from checks.faults.catalogue import explain
from checks.framework.evidence import Blocked
from checks.framework.options import Options
from checks.framework.sweep_run import fits, resumed, run_sweep
from checks.framework.sweep_spec import LEAF_LABELS, leaves_of, rules_of, sweep_spec
from checks.framework.trial_spec import build_spec
from checks.profiles.loader import load_profile
from checks.rules.capacity import rooms
from checks.rules.pool import Pool
from checks.rules.sweep import link_findings, node_findings, ran_findings, read_sweep, scale_findings
from checks.rules.sweep_told import notes, seen_again
from jobs.diagnosis.state import FailureAnalysis, JobState
from jobs.pod.sweep.model import Done, Result, Rules
from jobs.pod.sweep.model import Finding as Accusation
from jobs.pod.sweep.model import Fleet as PlannedFleet
from jobs.pod.sweep.plan import next_round
from jobs.run.evidence import RankEvidence
from jobs.run.result import TrialResult
from jobs.trial.names import SpecError
from jobs.trial.parts import ClaimSpec, Queue, Sweep
from jobs.trial.spec import TrialSpec
from reports.record import Run

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


def swept(names, stages, *, analysis=None, leaves=(), left=(), earlier=None, placed=None, **evidence):
    made = Sweep(token="t", nodes=tuple(names), leaves=dict(leaves))
    found = {0: RankEvidence(rank=0, stages=stages, **evidence)} if stages is not None else {}
    where = {"placed": on([*names, *dict(left)]) if placed is None else placed, "state": JobState.COMPLETE}
    trial = TrialResult(job="seatrial-x", evidence=found, analysis=analysis, **where)
    return read_sweep(trial, made, RULES, earlier.history if earlier else [], dict(left), earlier)


def on(nodes):
    """Where the API server says that pods are: the one with index n on the n-th node."""
    return {node: frozenset({rank}) for rank, node in enumerate(nodes)}


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
    why = "3 of 3 tests fail though both nodes pass with others: 0.53 of the median; all others at 1.00"
    assert bad[0].observed == why
    assert explain("sweep.pair", bad[0].subject)["confirm"] == "seatrial accept --on node-2,node-5"


def test_a_sweep_is_of_two_nodes_or_more_however_many_a_trial_spans():
    """One node has no partner: a line says so. Two are enough where the profile's trial spans four."""
    four = replace(load_profile("h100-ib"), nodes=4)
    options = Options(sweep=True, trial_on=("n1", "n2"))
    assert build_spec(four, options, run_id="r1", namespace="default").nodes == 2
    alone = replace(options, trial_on=("n1", "n1"))
    with pytest.raises(SpecError, match="--on n1: a sweep tests nodes in pairs"):
        build_spec(four, alone, run_id="r1", namespace="default")


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
    (finding,) = bad
    count = r"(\d+) of \1 pairs with other leaves fail though their nodes pass otherwise: 0\.53 of the median; "
    assert re.fullmatch(rf"{count}all others at 1\.00", finding.observed)  # and no node's name: none is at fault
    again = "to see the uplink of leaf-1 again: seatrial sweep --on node-4,node-5,node-0,node-1"
    assert list(seen_again(found)) == [again]
    (named,) = found.section["findings"]
    assert named["rest"] == 1.0


def test_an_uplink_that_no_label_names_accuses_nobody():
    """The nodes of the leaf are told, with how often they fail with the others, and what to label."""
    leaf = {f"node-{n}" for n in range(4, 8)}
    found = swept(*told(16, lambda pair: 200.0 if len(leaf.intersection(pair)) == 1 else 380.0))
    bad = [f for f in everything(found) if f.ok is not True]
    assert [(f.ok, f.fault) for f in bad if f.fault == "sweep.groups"] == [(None, "sweep.groups")]
    assert not [f for f in bad if f.ok is False]
    (group,) = (f for f in bad if f.fault == "sweep.groups")
    assert group.subject == "4 nodes (node-4, node-5, node-6, node-7)"
    assert "fail (0.53 of the median): a link between two groups of nodes" in group.observed
    assert found.section["apart"][0]["names"] == sorted(leaf)
    assert found.blame.verdict == "inconclusive"


@pytest.mark.parametrize(
    ("ranks", "placed", "named"),
    [
        ({}, {"node-3": None}, "node-3"),  # no pod was ever there
        ({}, {"node-3": None, "node-9": {3}}, "node-3"),  # its pod was on another node
        ({"node-3": 5}, {}, "node-3"),  # the pod of node-5 says that it is node-3
        ({"node-9": 3}, {}, "node-9"),  # a node that nobody asked for, and no results of it
    ],
)
@pytest.mark.parametrize("slow", ["", "node-3"])
def test_results_of_a_node_on_which_no_pod_ran_count_for_nothing(ranks, placed, named, slow):
    """sweep.misplaced: never a go, and the node whose name was used is not accused."""
    names, stages = told(8, lambda pair: 200.0 if slow in pair else 380.0)
    stages["sweep.fleet.1"]["ranks"] = {name: rank for rank, name in enumerate(names)} | ranks
    where = {node: there for node, there in {**on(names), **placed}.items() if there}
    found = swept(names, stages, placed=where)
    bad = [f for f in everything(found) if f.ok is not True]
    assert (named, None, "sweep.misplaced") in [(f.subject, f.ok, f.fault) for f in bad], bad
    assert not [f for f in bad if f.ok is False and named == slow]
    assert found.section["verdict"] != "go"


def test_a_job_over_all_nodes_is_of_nodes_on_which_pods_ran():
    """sweep.misplaced: a row that names another node is no pass."""
    names, stages = told(4, lambda _: 380.0)
    rows = [[1 << 30, 380.0, 0]]
    stages["sweep.job"] = {"nodes": list(names), "outcome": "measured", "busbw": 380.0, "rows": rows, "asked": 4}
    (good,) = scale_findings(swept(names, stages), PROFILE)
    assert good.ok
    away = {node: there for node, there in on(names).items() if node != "node-2"}
    (bad,) = scale_findings(swept(names, stages, placed=away), PROFILE)
    assert (bad.ok, bad.observed) == (None, "it names nodes on which no pod of the sweep was: node-2")


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


@pytest.mark.parametrize("value", [float("nan"), "nothing"], ids=["not a number", "nothing"])
@pytest.mark.parametrize("passing", [("node-5",), ("node-1", "node-5"), ()])
def test_a_node_that_measured_nothing_is_not_proven(value, passing):
    """Though it reported: that it met all others proves nothing where nothing came of it."""

    def speed(pair):
        return value if "node-3" in pair and not set(passing).intersection(pair) else 380.0

    found = swept(*told(8, speed))
    bad = {f.subject: f for f in everything(found) if f.ok is not True}
    assert found.blame.verdict == "inconclusive"
    assert "node-3" in bad and bad.keys() <= {"node-3", "paths"}
    assert all(f.ok is None for f in bad.values())
    assert (bad["node-3"].fault, "measured nothing in" in bad["node-3"].observed) == ("sweep.not-tested", True)


@pytest.mark.parametrize("nodes", [3, 4])
def test_a_pair_of_a_small_fleet_that_nobody_measured_is_no_go(nodes):
    """It is tried three times; where one of them measures, nothing is left to say."""
    path = ("node-0", "node-2")
    found = swept(*told(nodes, lambda pair: None if pair == path else 380.0))
    assert found.blame.verdict == "inconclusive"
    assert any("nothing was measured between node-0 and node-2" in f.observed for f in everything(found))
    tries = iter([None, 380.0])
    found = swept(*told(nodes, lambda pair: next(tries) if pair == path else 380.0))
    assert (found.blame.verdict, found.blame.reasons) == ("go", ())


@pytest.mark.parametrize("outcome", ["wrong sums", "wrong transport"])
@pytest.mark.parametrize("nodes", [2, 4, 16])
def test_what_is_wrong_everywhere_is_no_go_and_names_nobody(outcome, nodes):
    """No partner is proven that would tell which node it is."""
    found = swept(*told(nodes, lambda _: outcome))
    blame = found.blame
    assert (blame.verdict, blame.findings) == ("no-go", ())
    assert [(f.subject, f.fault) for f in node_findings(found) if f.ok is False] == [
        (f"fleet of {nodes}", "sweep.fleet")
    ]
    assert blame.reasons[0].startswith(f"{outcome}: ")
    assert not any("is not decided" in reason for reason in blame.reasons)


def test_one_node_with_wrong_sums_is_still_named():
    """Its partners pass with each other."""
    for nodes in (3, 8, 16):
        blame = swept(*told(nodes, lambda pair: "wrong sums" if "node-0" in pair else 380.0)).blame
        assert [f.names for f in blame.findings] == [("node-0",)], blame.reasons


@pytest.mark.parametrize(("nodes", "pairs"), [(2, "1 of 1 pairs"), (4, "6 of 6 pairs"), (16, "48 of 48 pairs")])
def test_a_fleet_below_its_floor_is_no_go_in_one_line(nodes, pairs):
    """sweep.fleet, with numbers: all pairs are alike, so none is slower than the others, and all are too slow."""
    found = swept(*told(nodes, lambda _: 200.0))
    blame = found.blame
    assert (blame.verdict, blame.findings) == ("no-go", ())
    said = [reason for reason in blame.reasons if "below the floor of 300 GB/s: 200 GB/s" in reason]
    assert len(said) == 1 and said[0].startswith(pairs)
    first = next(iter(node_findings(found)))
    assert (first.ok, first.fault, first.observed.startswith(said[0])) == (False, "sweep.fleet", True)
    assert all(f.ok for f in ran_findings(found)), "what failed was tested"
    again = iter([200.0])
    once = swept(*told(nodes, lambda _: next(again, 380.0))).blame
    assert once.verdict != "no-go", "one test below the floor that passes when it is repeated is flaky"


def test_a_node_that_failed_alone_and_then_passed_is_told():
    """It is go, and no secret."""
    tries = iter(["no end"])
    found = swept(*told(8, lambda _: 380.0, alone=lambda node: next(tries, 480.0) if node == "node-3" else 480.0))
    assert (found.blame.verdict, found.blame.flaky) == ("go", (("node-3",),))
    assert any("node-3 failed and then passed" in text for text in notes(found))


@pytest.mark.parametrize(("nodes", "slow"), [(3, 1), (5, 2), (6, 2), (8, 3), (12, 4)])
def test_few_slow_nodes_of_a_small_pool_are_no_healthy_group(nodes, slow):
    """At 0.87 of the others."""
    bad = {f"node-{n}" for n in range(slow)}
    found = swept(*told(nodes, lambda pair: 0.87 * 380.0 if bad.intersection(pair) else 380.0))
    assert found.blame.verdict != "go"
    assert {f.names[0] for f in found.blame.findings} <= bad
    assert bad <= {f.names[0] for f in found.blame.findings} | set(found.blame.suspects)


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
        ({"outcome": "measured", "busbw": 330.0, "rows": [[2**30, 330.0, 0]]}, None),
        ({"outcome": "measured", "busbw": 1.0, "rows": [[2**30, 1.0, 0]]}, None),
        ({"outcome": "measured", "busbw": 370.0}, None),
        ({"outcome": "measured", "busbw": 370.0, "rows": [[2**30, "x", 0], 5, [1]]}, None),
        ({"outcome": "measured", "rows": [[2**30, 370.0, 0]]}, None),
        ({"outcome": "measured", "busbw": float("inf"), "rows": [[2**30, 370.0, 0]]}, None),
        ({"outcome": "measured", "busbw": 370.0, "rows": [[2**30, float("nan"), 0]]}, None),
        ({"outcome": "measured", "busbw": 370.0, "rows": [[2**30, 370.0, 0]], "reported": ["node-0"]}, None),
        ({"outcome": "measured", "busbw": 370.0, "rows": [[2**30, 370.0, 0]], "nodes": ["node-0", "node-1"]}, None),
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


@pytest.mark.parametrize(
    ("speed", "ok", "said"),
    [
        (lambda _: 380.0, True, "15 of 15 pairs passed"),
        (lambda _: 100.0, None, "0 of 15 pairs passed; 15 failed and are not decided"),
        (lambda _: "no end", None, "failed and are not decided"),
        (lambda _: None, None, "measured nothing"),
        (lambda pair: 200.0 if "node-3" in pair else 380.0, True, "by what is named at fault"),
        (lambda pair: 200.0 if pair == ("node-2", "node-5") else 380.0, True, "14 of 15 pairs passed; 1 failed or"),
        (
            lambda pair: None if pair == ("node-2", "node-5") else 380.0,
            None,
            "14 of 15 pairs passed; 1 measured nothing",
        ),
        (lambda pair: 350.0 if pair == ("node-2", "node-5") else 380.0, True, "14 of 15 pairs passed; 1 are too slow"),
    ],
    ids=["healthy", "all slow", "all hang", "silence", "a bad node", "a bad pair", "a silent pair", "between"],
)
def test_a_pair_passes_by_a_pass_of_its_own(speed, ok, said):
    """Or by an accused node or path that explains it: what failed and is not decided is no pass."""
    (paths,) = (f for f in link_findings(swept(*told(6, speed))) if f.subject == "paths")
    assert paths.ok is ok
    assert said in paths.observed


def test_pairs_behind_a_bad_uplink_are_explained():
    """They fail, and the uplink is named for it."""
    leaves = {f"node-{n}": f"leaf-{n // 4}" for n in range(16)}

    def speed(pair):
        ways = {leaves[node] for node in pair}
        return 200.0 if len(ways) > 1 and "leaf-1" in ways else 380.0

    (paths,) = (f for f in link_findings(swept(*told(16, speed, leaves=leaves), leaves=leaves)) if f.subject == "paths")
    assert paths.ok is True
    assert "by what is named at fault" in paths.observed


def test_a_slow_job_over_a_bad_path_is_no_fault_of_its_own():
    """And no pass: the path is named already."""
    names, stages = told(8, lambda pair: 200.0 if pair == ("node-2", "node-5") else 380.0)
    row = {"nodes": list(names), "outcome": "measured", "busbw": 200.0, "rows": [[2**30, 200.0, 0]]}
    (found,) = scale_findings(swept(names, stages | {"sweep.job": row}), PROFILE)
    assert (found.ok, found.fault) == (None, "")
    assert "node-2 - node-5, at fault by itself (sweep.pair)" in found.observed


NEW = {"verdict": "go"}
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def record(folder, *, nodes=6, sweep=NEW, **changes):
    """The record of a sweep in a folder."""
    names, stages = told(nodes, lambda _: 380.0)
    made = {
        "schema": 1,
        "run_id": "before",
        "verdict": "go",
        "scope": "full",
        "checks": [],
        "collectives": {},
        "started": "2026-11-22T10:00:00+00:00",
        "seconds": 600.0,
        "simulated": False,
        "cluster": {"server": "https://a", "ca": "sha256:a"},
        "profile_digest": "sha256:p",
        "sweep": sweep and {**swept(names, stages).section, "gpus_per_node": 8, "image": "i", **sweep},
        **changes,
    }
    (folder / "report.json").write_text(json.dumps(made))
    return folder


def run(**changes):
    made = {"cluster": {"server": "https://a", "ca": "sha256:a"}, "profile_digest": "sha256:p"}
    return Run(**(made | changes))


SIMULATED = {"simulated": True, "cluster": {"server": "https://b", "scenario": "sweep-node", "platform": "h100-ib"}}


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({}, {}, ""),
        ({"cluster": {"server": "https://a"}}, {}, ""),
        ({"cluster": {"server": "https://b", "ca": "sha256:a"}}, {}, "server is https://b, this one's https://a"),
        ({"cluster": {"server": "https://a", "ca": "sha256:b"}}, {}, "ca is sha256:b"),
        ({"cluster": {}}, {}, "does not say of which cluster"),
        (SIMULATED, {}, "it is of a simulated cluster"),
        ({}, SIMULATED, "it is of a real cluster"),
        (SIMULATED, SIMULATED | {"cluster": SIMULATED["cluster"] | {"server": "https://c", "ca": "x"}}, ""),
        (SIMULATED, SIMULATED | {"cluster": SIMULATED["cluster"] | {"scenario": "sweep-healthy"}}, "scenario"),
        (SIMULATED, SIMULATED | {"cluster": SIMULATED["cluster"] | {"platform": "h200-ib"}}, "platform"),
        ({"profile_digest": "sha256:q"}, {}, "profile (q)"),
        ({"profile_digest": ""}, {}, "profile (none)"),
        ({"started": "2026-11-21T11:49:00+00:00"}, {}, "more than 24 hours"),
        ({"started": "2026-11-21T13:49:00+02:00", "seconds": 600}, {}, "more than 24 hours"),
        ({"started": "2026-11-21T11:51:00+00:00"}, {}, ""),
        ({"started": "2026-11-22T12:05:00+00:00"}, {}, "yet to come"),
        ({"started": "2026-11-22T10:00:00"}, {}, "does not say when"),
        ({"started": "yesterday"}, {}, "does not say when"),
        ({"started": None}, {}, "does not say when"),
        ({"seconds": None}, {}, "how long"),
        ({"seconds": 1e17}, {}, "how long"),
        ({"sweep": None}, {}, "no sweep"),
    ],
)
def test_only_a_sweep_of_this_cluster_and_day_is_resumed(tmp_path, before, now, said):
    """What differs is named; what a record does not tell is no proof."""
    made = record(tmp_path, **before)

    def resume():
        fits(resumed(made), run(**now), made, NOW)

    if not said:
        resume()
        return
    with pytest.raises(pytest.UsageError, match="--resume") as error:
        resume()
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ({"gpus_per_node": None}, "GPUs per node"),
        ({"resumed": {"ended": "2026-11-21T10:00:00+00:00"}}, "more than 24 hours"),
        ({"resumed": {"ended": 5}}, "does not say when"),
        ({"resumed": "x"}, "does not say when"),
    ],
)
def test_rounds_grow_no_younger_by_being_resumed(tmp_path, sweep, said):
    """A record that went on with another is as old as that one."""
    with pytest.raises(pytest.UsageError, match=said):
        fits(resumed(record(tmp_path, sweep=sweep)), run(), tmp_path, NOW)


def test_nodes_with_other_gpus_are_not_resumed(tmp_path):
    """Nothing is started for it."""
    spec = SimpleNamespace(gpus_per_node=4, image="i")
    with pytest.raises(Blocked, match="tested 8 GPUs per node, this one tests 4"):
        run_sweep(pytest.fail, spec, None, None, PROFILE, None, {}, resumed(record(tmp_path)))
    spec = SimpleNamespace(gpus_per_node=8, image="another")
    with pytest.raises(Blocked, match="it ran i, this one runs another"):
        run_sweep(pytest.fail, spec, None, None, PROFILE, None, {}, resumed(record(tmp_path)))


def test_what_a_machine_showed_before_it_started_again_does_not_count(tmp_path, inventory, node):
    """It may have another driver, or be another machine of that name: its tests, and its partners', run anew."""
    boots = {f"node-{n}": f"boot-{n}" for n in range(6)}
    earlier = resumed(record(tmp_path, sweep={"boots": {**boots, "node-3": "an earlier one"}}))
    nodes = [replace(node(name), boot=boot) for name, boot in boots.items()]
    spec = TrialSpec(run_id="2a3b4c5d6e", namespace="n", image="i", nodes=2, gpus_per_node=8)
    asked = []

    def runs(made):
        asked.extend(json.loads(zlib.decompress(base64.b64decode(made.sweep.history))))
        stages = {"sweep.fleet.1": {"nodes": list(boots)}, "sweep.end": {"why": ""}}
        return TrialResult(job="j", state=JobState.COMPLETE, evidence={0: RankEvidence(rank=0, stages=stages)})

    found = run_sweep(runs, spec, inventory(nodes), Pool(tuple(nodes)), PROFILE, Options(), {}, earlier)
    tests = [test["nodes"] for row in asked for test in row["tests"]]
    assert tests and not any("node-3" in test for test in tests)
    assert found.blame.verdict == "inconclusive"
    assert found.blame.not_tested["node-3"] == "not tested"
    assert any("tested anew" in text and text.endswith(": 1 node (node-3)") for text in notes(found))
    assert found.section["boots"] == boots and found.section["image"] == "i"


def test_the_result_says_what_is_of_the_earlier_run(tmp_path):
    """Rounds and nodes of which this run has shown nothing count, and are named."""
    earlier = resumed(record(tmp_path))
    names, stages = told(6, lambda _: 380.0)
    found = swept(names, {k: v for k, v in stages.items() if not k.startswith("sweep.round")}, earlier=earlier)
    first, *nodes = ran_findings(found)
    count = len(earlier.history)
    assert f"{count} of {count} rounds are of run before, 2026-11-22 10:00 UTC" in first.observed
    assert [(f.ok, "rounds of run before" in f.observed) for f in nodes] == [(True, True)] * 6
    assert any("not tested in this run" in text and "6 nodes" in text for text in notes(found))
    assert found.section["resumed"] == {
        "run_id": "before",
        "started": "2026-11-22T10:00:00+00:00",
        "ended": "2026-11-22T10:10:00+00:00",
        "rounds": count,
    }


def test_a_part_of_the_fleet_is_swept_in_its_order_with_new_partners_in_each_run():
    """A patrol's nodes come as it chose them; a sweep of all nodes pairs them alike each time."""
    names = tuple(f"node-{n}" for n in (5, 2, 9, 1, 7, 4))

    def first(run, trial_on):
        spec = TrialSpec(run_id=run, namespace="n", image="i", nodes=2, gpus_per_node=1)
        made = sweep_spec(spec, names, {}, PROFILE, Options(trial_on=trial_on)).sweep
        assert made.nodes == names
        return next_round(PlannedFleet(made.nodes), rules_of(made), []).tests

    assert first("2a3b4c5d6e", ()) == first("9z8y7x6w5v", ())
    assert set(first("2a3b4c5d6e", names)) != set(first("9z8y7x6w5v", names))


def test_a_rail_at_fault_is_whywith_its_card_and_a_slowed_gpu_with_its_serial():
    """A person finds the card by it; a GPU that slowed itself down in a node that passes is told, and not blamed."""
    names, stages = told(8, lambda _: 380.0)
    for row in stages["sweep.round.1"]["tests"]:
        gpu = {"index": 3, "uuid": "GPU-aa", "serial": "165000", "mhz": [345.0, 1185.0, 1980.0]}
        gpu["throttle"] = ["hw_thermal_slowdown"] if row["nodes"] == ["node-1"] else []
        card = {"serial": "MT2231X00001", "pci": "0000:9a:00.0"}
        row["hardware"] = {"gpus": [gpu], "cards": {"mlx5_3": card}}
    found = swept(names, stages)
    slowed = "node-1: GPU 3 (serial 165000) was slowed by hw_thermal_slowdown at 1185 MHz"
    assert [text for text in notes(found) if "slowed" in text] == [slowed]
    assert all(f.ok for f in everything(found))
    accused = Accusation("rail", ("node-2",), (3,), "3 of 3 pairs: 0.50 of the median")
    bad = replace(found, blame=replace(found.blame, findings=(accused,)))
    (finding,) = [f for f in node_findings(bad) if f.ok is False]
    assert finding.subject == "node-2 rail mlx5_3"
    assert finding.observed.endswith("; all others at 1.00; mlx5_3: serial MT2231X00001, PCI 0000:9a:00.0")
    assert "mlxlink -d mlx5_3 " in explain("sweep.rail", finding.subject)["confirm"]


def test_port_counters_that_grew_are_told_and_blame_nobody():
    """Of a node that passes they are a note; of one at fault they stand beside what speaks against it."""
    names, stages = told(8, lambda pair: 200.0 if "node-3" in pair else 380.0)
    for stage, row in stages.items():
        for test in row.get("tests", ()) if stage != "sweep.round.1" else ():
            test["errors"] = {n: {"mlx5_2/symbol_error": 4} for n in test["nodes"] if n in ("node-3", "node-5")}
    found = swept(names, stages)
    (bad,) = [f for f in everything(found) if f.ok is not True]
    count = found.errors["node-3"]["mlx5_2/symbol_error"]
    assert bad.subject == "node-3" and count >= 12
    assert bad.observed.endswith(f"; node-3: port counters that grew: mlx5_2/symbol_error {count}")
    assert any(text.startswith("node-5: port counters that grew: mlx5_2/symbol_error ") for text in notes(found))


SPEEDS = {
    "healthy": lambda pair: 380.0,
    "slow": lambda pair: 100.0,
    "hang": lambda pair: "no end",
    "crash": lambda pair: "failed",
    "silent": lambda pair: None,
    "wrong": lambda pair: "wrong sums",
    "sockets": lambda pair: "wrong transport",
    "between": lambda pair: 345.0 if "node-1" in pair else 380.0,
    "a node": lambda pair: 200.0 if "node-1" in pair else 380.0,
    "a wrong node": lambda pair: "wrong sums" if "node-1" in pair else 380.0,
    "a silent node": lambda pair: None if "node-1" in pair else 380.0,
    "a pair": lambda pair: 200.0 if pair == ("node-0", "node-1") else 380.0,
    "most pairs": lambda pair: 380.0 if "node-0" in pair else 200.0,
    "half": lambda pair: 200.0 if int(pair[0][5:]) % 2 else 380.0,
}


@pytest.mark.parametrize("nodes", [2, 3, 5, 8])
@pytest.mark.parametrize("name", SPEEDS)
def test_the_checks_say_what_the_sweeps_own_section_says(name, nodes):
    """One verdict everywhere: no-go is a finding that failed, go is that all hold, and else something is not known."""
    found = swept(*told(nodes, SPEEDS[name]))
    shown = {f.ok for f in everything(found)}
    verdict = "no-go" if False in shown else "inconclusive" if None in shown else "go"
    assert verdict == found.blame.verdict == found.section["verdict"], found.blame.reasons


@pytest.mark.parametrize(("resource", "free"), [("", ["a"]), ("nvidia.com/gpu", [])])
def test_where_gpus_are_claimed_only_the_scheduler_knows_which_are_free(inventory, node, resource, free):
    """No node offers a resource to count; what is cordoned or tainted takes no pod all the same."""
    nodes = [node("a", allocatable=None), node("b", allocatable=None, unschedulable=True)]
    claim = () if resource else (ClaimSpec(name="gpus", device_class="gpu.nvidia.com", count=8),)
    spec = TrialSpec(
        run_id="2a3b4c5d6e", namespace="n", image="i", nodes=2, gpus_per_node=8, gpu_resource=resource, claims=claim
    )
    found = rooms(inventory(nodes), nodes, spec)
    assert [room.node for room in found if not room.fault] == free
    assert found[1].fault == "nodes.cordoned"


def test_a_busy_node_that_became_free_is_judged_like_the_others():
    """It was left alone when the sweep began; what the coordinator tells of it counts."""
    names, stages = told(6, lambda pair: 200.0 if "node-5" in pair else 380.0)
    found = swept(names[:5], stages, left={"node-5": "0 of 8 free"}.items())
    assert [(f.subject, f.fault) for f in everything(found) if f.ok is not True] == [("node-5", "sweep.node")]
    assert found.left == {} and found.asked == names
    names, stages = told(5, lambda _: 380.0)
    found = swept(names, stages, left={"node-5": "0 of 8 free"}.items())
    assert found.blame.verdict == "inconclusive" and "node-5" in found.left


@pytest.mark.parametrize("take_in", [False, True])
def test_pods_wait_for_busy_nodes_where_that_is_asked(inventory, node, take_in):
    """A pod for each node, those that are busy too; a cordoned one gets none, and nobody waits for them."""
    nodes = [node(name, unschedulable=name == "d") for name in "abcd"]
    cluster = inventory(nodes, [("team", "p", "b", 8, "Job/train")])
    spec = TrialSpec(run_id="2a3b4c5d6e", namespace="n", image="i", nodes=2, gpus_per_node=8)
    asked = []

    def runs(made):
        asked.append(made)
        return TrialResult(job="j", state=JobState.COMPLETE)

    options = Options(take_in=take_in)
    run_sweep(runs, spec, cluster, Pool(tuple(nodes)), PROFILE, options, {})
    assert asked[0].sweep.nodes == ("a", "c")
    assert asked[0].node_names == (("a", "c", "b") if take_in else ("a", "c"))
    assert asked[0].nodes == len(asked[0].node_names)
    queued = replace(spec, queue=Queue(kind="kueue", name="q"))
    if take_in:
        with pytest.raises(pytest.UsageError, match="a queue lets in all pods"):
            run_sweep(runs, queued, cluster, Pool(tuple(nodes)), PROFILE, options, {})
        with pytest.raises(pytest.UsageError, match="does not go with --no-scale"):
            run_sweep(runs, spec, cluster, Pool(tuple(nodes)), PROFILE, replace(options, scale=False), {})


@pytest.mark.parametrize("label", [*LEAF_LABELS, "example.com/leaf"])
def test_leaves_are_read_from_the_label_of_each_source(node, label):
    """A label of our own only where the profile names it; one that not all nodes have, or that tells nobody apart, is none."""
    own = label if label not in LEAF_LABELS else None
    leaves = {"a": "x", "b": "x", "c": "y", "d": "y"}
    nodes = [node(name, labels={label: leaf}) for name, leaf in leaves.items()]
    assert leaves_of(nodes, own) == leaves
    assert leaves_of([*nodes, node("e")], own) == {}
    assert leaves_of([node(name, labels={label: "x"}) for name in leaves], own) == {}
    assert leaves_of([node(name, labels={label: name}) for name in leaves], own) == {}
    assert leaves_of(nodes, "another.example/label") == {}
