"""Findings from a sweep coordinator's output: attributed faults, their texts, and results that are never a pass."""

import random
import re
from dataclasses import replace
from itertools import product

import pytest

from checks.rules.findings import failed, unknown
from checks.rules.sweep import node_findings, ran_findings, scale_findings
from checks.rules.sweep_reading import ENDED, NEVER_JOINED, NO_AGENT
from checks.rules.sweep_texts import notes, seen_again
from checks.rules.swept import with_findings
from jobs.diagnosis.state import ERR_INFRA, ERR_PROGRAM, FailureAnalysis, interrupted
from jobs.pod.sweep.model import Finding as Accusation
from jobs.run.evidence import RankEvidence
from reports.sweep.text import lines
from seatrial.faults.advice import explain
from tests.by_hand import Stages
from tests.checks.sweeps import PROFILE, everything, on, printed, swept
from tests.table import table


@pytest.mark.parametrize("nodes", [2, 3, 6, 17])
def test_a_healthy_fleet_holds(nodes):
    """In an even and an odd fleet every node is proven, and every finding is ok."""
    sweep = swept(*printed(nodes, lambda _: 380.0))
    assert sweep.blame.verdict == "go", sweep.blame.reasons
    assert all(f.ok for f in everything(sweep))
    assert sweep.section["verdict"] == "go"
    assert next(notes(sweep)).startswith(f"proven: {nodes} nodes")


def test_a_slow_node_is_at_fault_and_no_other():
    """The finding has three failures with proven partners, and the cordon command."""
    sweep = swept(*printed(8, lambda pair: 200.0 if "node-3" in pair else 380.0))
    bad = [f for f in everything(sweep) if f.ok is not True]
    assert [(f.subject, f.fault) for f in bad] == [("node-3", "sweep.node")]
    assert any("kubectl cordon node-3" in text for text in notes(sweep))


def test_a_slow_pair_is_a_fault_of_neither_of_its_nodes():
    """Both nodes of a slow pair pass with all others."""
    sweep = swept(*printed(8, lambda pair: 200.0 if pair == ("node-2", "node-5") else 380.0))
    bad = [f for f in everything(sweep) if f.ok is not True]
    assert [(f.subject, f.fault) for f in bad] == [("node-2 - node-5", "sweep.pair")]
    why = "3 of 3 tests fail though both nodes pass with others: 0.53 of the median; all others at 1.00"
    assert bad[0].observed == why
    assert explain("sweep.pair", bad[0].subject)["confirm"] == "seatrial accept --on node-2,node-5"


def test_a_slow_uplink_is_a_fault_of_a_leaf_and_no_node():
    """The leaf's nodes pass among themselves and are slow with all other leaves."""
    leaves = {f"node-{n}": f"leaf-{n // 4}" for n in range(16)}

    def speed(pair):
        same_leaf = leaves[pair[0]] == leaves[pair[1]]
        return 200.0 if not same_leaf and "leaf-1" in (leaves[pair[0]], leaves[pair[1]]) else 380.0

    sweep = swept(*printed(16, speed, leaves=leaves), leaves=leaves)
    bad = [f for f in everything(sweep) if f.ok is not True]
    assert {f.fault for f in bad} == {"sweep.uplink"}
    assert all("leaf-1" in f.subject for f in bad)
    (finding,) = bad
    count = r"(\d+) of \1 pairs with other leaves fail though their nodes pass otherwise: 0\.53 of the median; "
    assert re.fullmatch(rf"{count}all others at 1\.00", finding.observed)  # without a node name: no node is at fault
    again = "to see the uplink of leaf-1 again: seatrial sweep --on node-4,node-5,node-0,node-1"
    assert list(seen_again(sweep)) == [again]
    (named,) = sweep.section["findings"]
    assert named["rest"] == 1.0


def test_an_uplink_that_no_label_names_raises_no_fault():
    """The leaf's nodes are listed with their failures, and the missing label is named."""
    leaf = {f"node-{n}" for n in range(4, 8)}
    sweep = swept(*printed(16, lambda pair: 200.0 if len(leaf.intersection(pair)) == 1 else 380.0))
    bad = [f for f in everything(sweep) if f.ok is not True]
    assert [(f.ok, f.fault) for f in bad if f.fault == "sweep.groups"] == [(None, "sweep.groups")]
    assert not [f for f in bad if f.ok is False]
    (group,) = (f for f in bad if f.fault == "sweep.groups")
    assert group.subject == "4 nodes (node-4, node-5, node-6, node-7)"
    assert "fail (0.53 of the median): a link between two groups of nodes" in group.observed
    assert sweep.section["apart"][0]["names"] == sorted(leaf)
    assert sweep.blame.verdict == "inconclusive"


def test_a_rail_that_is_slow_everywhere_is_named_by_its_device_and_no_node():
    """sweep.plane: a rail that is slow on all nodes is not a node fault; a rail at 0.9 of the others is not a fault."""
    sweep = swept(*printed(6, lambda _: 380.0, pinned=[48.0] * 3 + [19.2]))
    bad = [f for f in everything(sweep) if f.ok is not True]
    assert [(f.ok, f.fault) for f in bad] == [(None, "sweep.plane")]
    assert bad[0].subject.startswith("rail mlx5_3 of 6 nodes (node-0, ")
    assert bad[0].observed.startswith("rail 3 at 0.40 of rail 0 on all of 6 nodes")
    near = swept(*printed(6, lambda _: 380.0, pinned=[48.0] * 3 + [43.2]))
    assert all(f.ok for f in everything(near))


def test_noise_that_hides_faults_is_reported_and_raises_no_fault():
    """sweep.noise: the finding states the detection limit."""
    rng = random.Random(1)
    sweep = swept(*printed(16, lambda _: 420.0 * rng.gauss(1, 0.07)))
    bad = [f for f in everything(sweep) if f.ok is not True]
    (noise,) = (f for f in bad if f.fault == "sweep.noise")
    assert re.match(r"tests have a noise of [5-9]\.\d %: a fault that leaves", noise.observed)
    assert not [f for f in bad if f.ok is False]


def test_two_heaps_of_nodes_are_reported_with_their_members():
    """sweep.groups: 13 of 16 nodes are slow with each other, too; no node is reported as at fault, and the verdict is
    not go."""
    slow = {f"node-{n}" for n in range(13)}
    sweep = swept(*printed(16, lambda pair: 320.0 if slow.intersection(pair) else 400.0))
    bad = [f for f in everything(sweep) if f.ok is not True]
    assert {(f.ok, f.fault) for f in bad} == {(None, "sweep.groups")}
    assert "two levels" in bad[0].observed


def test_what_no_round_tested_is_in_the_result():
    sweep = swept(*printed(16, lambda _: 380.0))
    ran = next(iter(ran_findings(sweep)))
    said = "; no round tested 72 of 120 pairs, uplinks (no leaf is known), single rails of 48 of 48 pairs"
    assert ran.observed.endswith(said)
    assert next(lines(sweep.section)).endswith(said)


@pytest.mark.parametrize(
    ("ranks", "placed", "named"),
    [
        ({}, {"node-3": None}, "node-3"),  # no pod ran there
        ({}, {"node-3": None, "node-9": {3}}, "node-3"),  # its pod was on another node
        ({"node-3": 5}, {}, "node-3"),  # the pod of node-5 claims to be node-3
        ({"node-9": 3}, {}, "node-9"),  # an unrequested node without results
    ],
)
@pytest.mark.parametrize("slow", ["", "node-3"])
def test_results_of_a_node_on_which_no_pod_ran_count_for_nothing(ranks, placed, named, slow):
    """sweep.misplaced: never go, and the node whose name was used is not at fault."""
    names, stages = printed(8, lambda pair: 200.0 if slow in pair else 380.0)
    stages["sweep.fleet.1"]["ranks"] = {name: rank for rank, name in enumerate(names)} | ranks
    where = {node: there for node, there in {**on(names), **placed}.items() if there}
    sweep = swept(names, stages, placed=where)
    bad = [f for f in everything(sweep) if f.ok is not True]
    assert (named, None, "sweep.misplaced") in [(f.subject, f.ok, f.fault) for f in bad], bad
    assert not [f for f in bad if f.ok is False and named == slow]
    assert sweep.section["verdict"] != "go"


def test_a_job_over_all_nodes_is_of_nodes_on_which_pods_ran():
    """sweep.misplaced: a row with another node's name is not a pass."""
    names, stages = printed(4, lambda _: 380.0)
    rows = [[1 << 30, 380.0, 0]]
    stages["sweep.job"] = {"nodes": list(names), "outcome": "measured", "busbw": 380.0, "rows": rows, "asked": 4}
    (good,) = scale_findings(swept(names, stages), PROFILE)
    assert good.ok
    away = {node: there for node, there in on(names).items() if node != "node-2"}
    (bad,) = scale_findings(swept(names, stages, placed=away), PROFILE)
    assert (bad.ok, bad.observed) == (None, "it names nodes without a pod of the sweep: node-2")


def test_a_suspect_is_neither_at_fault_nor_proven():
    """sweep.suspect: for two nodes it is unknown which is slow."""
    sweep = swept(*printed(3, lambda pair: 380.0 if pair == ("node-0", "node-1") else 200.0))
    bad = {f.fault: f.ok for f in everything(sweep) if f.ok is not True}
    assert "sweep.suspect" in bad
    assert set(bad.values()) == {None}
    assert sweep.blame.verdict != "go"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda names, stages: (names, None), "reported nothing"),
        (lambda names, stages: (names, {}), "reported nothing"),
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
    """The fault is sweep.not-tested, with the reason."""
    names, stages = change(*printed(6, lambda _: 380.0))
    sweep = swept(names, stages)
    bad = [f for f in ran_findings(sweep) if f.ok is not True]
    assert bad and all(f.ok is None for f in bad)
    assert {f.fault for f in bad} == {"sweep.not-tested"}
    assert any(said in f.observed for f in bad), [f.observed for f in bad]
    assert sweep.section["verdict"] != "go" or sweep.problem


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
    """With one node, no reports, or a uniformly slow fleet no check passes all of its findings."""
    sweep = swept(*printed(nodes, speed, alone=alone))
    assert sweep.blame.verdict != "go"
    assert any(f.ok is not True for f in everything(sweep))


@pytest.mark.parametrize("value", [float("nan"), "nothing"], ids=["not a number", "nothing"])
@pytest.mark.parametrize("passing", [("node-5",), ("node-1", "node-5"), ()])
def test_a_node_that_measured_nothing_is_not_proven(value, passing):
    """Meeting all partners proves nothing without a measurement."""

    def speed(pair):
        return value if "node-3" in pair and not set(passing).intersection(pair) else 380.0

    sweep = swept(*printed(8, speed))
    bad = {f.subject: f for f in everything(sweep) if f.ok is not True}
    assert sweep.blame.verdict == "inconclusive"
    assert "node-3" in bad and bad.keys() <= {"node-3", "paths"}
    assert all(f.ok is None for f in bad.values())
    assert (bad["node-3"].fault, "measured nothing in" in bad["node-3"].observed) == ("sweep.not-tested", True)


@pytest.mark.parametrize("nodes", [3, 4])
def test_a_pair_of_a_small_fleet_that_no_one_measured_is_no_go(nodes):
    """A pair is tried three times; if one attempt measures it, there is no finding."""
    path = ("node-0", "node-2")
    sweep = swept(*printed(nodes, lambda pair: None if pair == path else 380.0))
    assert sweep.blame.verdict == "inconclusive"
    assert any("nothing was measured between node-0 and node-2" in f.observed for f in everything(sweep))
    tries = iter([None, 380.0])
    sweep = swept(*printed(nodes, lambda pair: next(tries) if pair == path else 380.0))
    assert (sweep.blame.verdict, sweep.blame.reasons) == ("go", ())


@pytest.mark.parametrize("outcome", ["wrong sums", "wrong transport"])
@pytest.mark.parametrize("nodes", [2, 4, 16])
def test_what_is_wrong_everywhere_is_no_go_and_names_no_one(outcome, nodes):
    """No proven partner can identify the node at fault."""
    sweep = swept(*printed(nodes, lambda _: outcome))
    blame = sweep.blame
    assert (blame.verdict, blame.findings) == ("no-go", ())
    assert [(f.subject, f.fault) for f in node_findings(sweep) if f.ok is False] == [
        (f"fleet of {nodes}", "sweep.fleet")
    ]
    assert blame.reasons[0].startswith(f"{outcome}: ")
    assert not any("undecided" in reason for reason in blame.reasons)


def test_one_node_with_wrong_sums_is_still_named():
    """The node's partners pass with each other."""
    for nodes in (3, 8, 16):
        blame = swept(*printed(nodes, lambda pair: "wrong sums" if "node-0" in pair else 380.0)).blame
        assert [f.names for f in blame.findings] == [("node-0",)], blame.reasons


@pytest.mark.parametrize(("nodes", "pairs"), [(2, "1 of 1 pairs"), (4, "6 of 6 pairs"), (16, "48 of 48 pairs")])
def test_a_fleet_below_its_floor_is_no_go_in_one_line(nodes, pairs):
    """sweep.fleet, with numbers: no pair is slower than the others, but all are below the floor."""
    sweep = swept(*printed(nodes, lambda _: 200.0))
    blame = sweep.blame
    assert (blame.verdict, blame.findings) == ("no-go", ())
    said = [reason for reason in blame.reasons if "below the floor of 300 GB/s: 200 GB/s" in reason]
    assert len(said) == 1 and said[0].startswith(pairs)
    first = next(iter(node_findings(sweep)))
    assert (first.ok, first.fault, first.observed.startswith(said[0])) == (False, "sweep.fleet", True)
    assert all(f.ok for f in ran_findings(sweep)), "the failed subject was tested"
    again = iter([200.0])
    once = swept(*printed(nodes, lambda _: next(again, 380.0))).blame
    assert once.verdict != "no-go", "one test below the floor that passes when it is repeated is flaky"


def test_a_node_that_failed_alone_and_then_passed_is_reported():
    """The verdict is go, and the first failure is reported."""
    tries = iter(["no end"])
    sweep = swept(*printed(8, lambda _: 380.0, alone=lambda node: next(tries, 480.0) if node == "node-3" else 480.0))
    assert (sweep.blame.verdict, sweep.blame.flaky) == ("go", (("node-3",),))
    assert any("node-3 failed and then passed" in text for text in notes(sweep))


@pytest.mark.parametrize(("nodes", "slow"), [(3, 1), (5, 2), (6, 2), (8, 3), (12, 4)])
def test_few_slow_nodes_of_a_small_pool_are_no_healthy_group(nodes, slow):
    """The ratio is 0.87 of the others."""
    bad = {f"node-{n}" for n in range(slow)}
    sweep = swept(*printed(nodes, lambda pair: 0.87 * 380.0 if bad.intersection(pair) else 380.0))
    assert sweep.blame.verdict != "go"
    assert {f.names[0] for f in sweep.blame.findings} <= bad
    assert bad <= {f.names[0] for f in sweep.blame.findings} | set(sweep.blame.suspects)


@pytest.mark.parametrize(
    ("fault", "blame", "disrupted", "ok"),
    [
        (
            "job.disrupted",
            ERR_INFRA,
            True,
            None,
        ),  # terminated by others: the cluster is not at fault, whatever else was reported
        ("node.lost", ERR_INFRA, False, False),
        ("job.failed", ERR_PROGRAM, False, None),
        ("job.failed", None, False, None),
    ],
)
def test_a_coordinator_that_was_taken_away_is_no_end(fault, blame, disrupted, ok):
    """The coordinator's earlier output is kept, and the reason for its termination is named: red if the infrastructure
    failed."""
    names, stages = printed(6, lambda _: 380.0, rounds=2)
    lost = FailureAnalysis(
        fault=fault,
        subject="pod",
        observed="pod x is gone",
        expected="",
        suggestion="",
        err_class=blame,
        disrupted=disrupted,
    )
    sweep = swept(names, {k: v for k, v in stages.items() if not k.endswith("end")}, analysis=lost)
    first = next(iter(ran_findings(sweep)))
    assert (first.ok, first.fault) == (ok, fault)
    assert "2 rounds, then: pod x is gone" in first.observed
    assert len(sweep.section["rounds"]) == 2


@pytest.mark.parametrize(("fleets", "last"), [(False, ENDED), (True, "")])
def test_a_node_whose_pod_ran_is_not_reported_as_one_that_did_not_start(fleets, last):
    """The leader was evicted before or after it reported its fleet; the last node's pod never started."""
    names, stages = printed(6, lambda _: 380.0, rounds=1)
    taken = interrupted("x-0", "pod x-0 on node-0: EvictionByEvictionAPI: Eviction API: evicting")
    kept = {name: data for name, data in stages.items() if fleets and not name.endswith("end")}
    sweep = swept([*names, "node-9"], kept, analysis=taken, ran=names)
    said = {finding.subject: finding.observed for finding in ran_findings(sweep)}
    assert all("did not start" not in said[name] for name in names)
    assert said[names[-1]].startswith(last)
    assert said["node-9"].startswith(NEVER_JOINED)


def test_an_agent_that_did_not_come_though_its_pod_ran_is_reported_as_that():
    names, stages = printed(6, lambda _: 380.0)
    sweep = swept([*names, "node-9"], stages, ran=[*names, "node-9"])
    assert {f.subject: f.observed for f in ran_findings(sweep)}["node-9"].startswith(NO_AGENT)


def test_lost_lines_are_no_pass():
    """A missing line may report a failed round."""
    names, stages = printed(6, lambda _: 380.0)
    sweep = swept(names, stages, missing=(7,))
    assert "1 lines" in next(iter(ran_findings(sweep))).observed


@table(
    "row, ok",
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
    """sweep.scale: a failed job is not attributed to a node; a missing result is not a pass."""
    names, stages = printed(6, lambda _: 380.0)
    sweep = swept(names, stages | {"sweep.job": {"nodes": list(names), **row}})
    assert [f.ok for f in scale_findings(sweep, PROFILE)] == [ok]


def test_a_floor_for_as_many_nodes_is_held():
    """The floor for this number of nodes applies if the profile has one."""
    names, stages = printed(6, lambda _: 380.0)
    floor = replace(PROFILE.floor("all_reduce", "ring", 2)[0], nodes=6)
    profile = replace(PROFILE, floors=(floor,))
    row = {"nodes": list(names), "outcome": "measured", "busbw": 100.0, "rows": [[int(floor.size), 100.0, 0]]}
    sweep = swept(names, stages | {"sweep.job": row})
    assert [(f.ok, f.fault) for f in scale_findings(sweep, profile)] == [(False, "sweep.scale")]


def test_a_slow_job_over_a_bad_path_is_no_fault_of_its_own():
    """The path is already reported, so the job is neither a fault nor a pass."""
    names, stages = printed(8, lambda pair: 200.0 if pair == ("node-2", "node-5") else 380.0)
    row = {"nodes": list(names), "outcome": "measured", "busbw": 200.0, "rows": [[2**30, 200.0, 0]]}
    (finding,) = scale_findings(swept(names, stages | {"sweep.job": row}), PROFILE)
    assert (finding.ok, finding.fault) == (None, "")
    assert "node-2 - node-5, at fault by itself (sweep.pair)" in finding.observed


def test_a_rail_at_fault_is_reported_with_its_card_and_a_slowed_gpu_with_its_serial():
    """The serial locates the part; a throttled GPU on a passing node is reported without a fault."""
    names, stages = printed(8, lambda _: 380.0)
    for row in stages["sweep.round.1"]["tests"]:
        gpu = {"index": 3, "uuid": "GPU-aa", "serial": "165000", "mhz": [345.0, 1185.0, 1980.0]}
        gpu["throttle"] = ["hw_thermal_slowdown"] if row["nodes"] == ["node-1"] else []
        card = {"serial": "MT2231X00001", "pci": "0000:9a:00.0"}
        row["hardware"] = {"gpus": [gpu], "cards": {"mlx5_3": card}}
    sweep = swept(names, stages)
    slowed = "node-1: GPU 3 (serial 165000) was throttled by hw_thermal_slowdown at 1185 MHz"
    assert [text for text in notes(sweep) if "throttled" in text] == [slowed]
    assert all(f.ok for f in everything(sweep))
    accused = Accusation("rail", ("node-2",), (3,), "3 of 3 pairs: 0.50 of the median")
    bad = replace(sweep, blame=replace(sweep.blame, findings=(accused,)))
    (finding,) = [f for f in node_findings(bad) if f.ok is False]
    assert finding.subject == "node-2 rail mlx5_3"
    assert finding.observed.endswith("; all others at 1.00; mlx5_3: serial MT2231X00001, PCI 0000:9a:00.0")
    assert "mlxlink -d mlx5_3 " in explain("sweep.rail", finding.subject)["confirm"]


def test_rdma_writes_of_a_rail_at_fault_are_reported_with_it():
    """RDMA writes distinguish a slow link from slow NCCL; writes of other rails and nodes are not reported."""
    names, stages = printed(8, lambda _: 380.0)
    for name, row in stages.items():
        for test in row.get("tests", ()) if name.startswith("sweep.round.") else ():
            if len(test["nodes"]) == 2:
                test["writes"] = {"mlx5_2": [392.0, 391.0], "mlx5_3": [392.0, 190.5, None], "x": ["y"]}
    sweep = swept(names, stages)
    accused = Accusation("rail", ("node-2",), (3,), "3 of 3 pairs: 0.50 of the median")
    bad = replace(sweep, blame=replace(sweep.blame, findings=(accused,)))
    (finding,) = [f for f in node_findings(bad) if f.ok is False]
    assert finding.observed.count("RDMA writes of mlx5_3, ") == sum("node-2" in pair for pair in sweep.writes)
    assert ": 190.5 to 392 Gb/s" in finding.observed
    assert "mlx5_2" not in finding.observed
    assert all(f.ok for f in everything(sweep))


def test_port_counters_that_grew_are_reported_and_raise_no_fault():
    """On a passing node grown counters are a note; on a node at fault they appear with the contradicting evidence."""
    names, stages = printed(8, lambda pair: 200.0 if "node-3" in pair else 380.0)
    for stage, row in stages.items():
        for test in row.get("tests", ()) if stage != "sweep.round.1" else ():
            test["errors"] = {n: {"mlx5_2/symbol_error": 4} for n in test["nodes"] if n in ("node-3", "node-5")}
    sweep = swept(names, stages)
    (bad,) = [f for f in everything(sweep) if f.ok is not True]
    count = sweep.errors["node-3"]["mlx5_2/symbol_error"]
    assert bad.subject == "node-3" and count >= 12
    assert bad.observed.endswith(f"; node-3: port counters that grew: mlx5_2/symbol_error {count}")
    assert any(text.startswith("node-5: port counters that grew: mlx5_2/symbol_error ") for text in notes(sweep))


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


@table("nodes, name", product([2, 3, 5, 8], SPEEDS))
def test_the_checks_say_what_the_sweeps_own_section_says(name, nodes):
    """Section and checks have one verdict: no-go means a failed finding, go means all findings hold, otherwise a result
    is undetermined."""
    sweep = swept(*printed(nodes, SPEEDS[name]))
    shown = {f.ok for f in everything(sweep)}
    verdict = "no-go" if False in shown else "inconclusive" if None in shown else "go"
    assert verdict == sweep.blame.verdict == sweep.section["verdict"], sweep.blame.reasons


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"outcome": "failed", "why": {"node-2": "rank 16 exited 1"}}, "failed (node-2: rank 16 exited 1)"),
        (
            {"outcome": "wrong sums", "why": {"node-0": "3 wrong", "node-5": "3 wrong"}},
            "wrong sums (node-0: 3 wrong; node-5: 3 wrong)",
        ),
        ({"outcome": "no end", "why": {}}, "no end"),
        ({"outcome": "failed", "why": None}, "failed"),
    ],
)
def test_a_job_over_all_nodes_that_failed_says_which_node_said_why(row, said):
    """sweep.scale: each reason is quoted with its node."""
    names, stages = printed(6, lambda _: 380.0)
    (finding,) = scale_findings(swept(names, stages | {"sweep.job": {"nodes": list(names), **row}}), PROFILE)
    assert (finding.subject, finding.observed, finding.ok) == ("all_reduce of 6 nodes", said, False)


def test_why_an_agent_did_not_come_is_said_by_its_own_pod():
    """A missing agent's pod is quoted if the coordinator has not met it; output before it joined does not count."""
    names, stages = printed(3, lambda _: 380.0)
    stages["sweep.fleet.1"] |= {
        "ranks": {"node-0": 0, "node-1": 1, "node-2": 2},
        "nodes": [*names, "node-3", "node-4"],
        "gone": {"node-3": "its agent did not connect", "node-4": "its agent did not connect"},
    }
    why = {"address": "t-0.t:29500 (10.0.0.1)", "error": "connection refused"}
    agents = {rank: RankEvidence(rank=rank, stages=Stages({"sweep.agent.1": why})) for rank in (2, 3)}
    sweep = swept([*names, "node-3", "node-4"], stages, ran=[*names, "node-3", "node-4"], agents=agents)
    found = {f.subject: f for f in ran_findings(sweep)}
    assert found["node-3"].observed == (
        "its pod ran, but its agent did not reach rank 0's pod at t-0.t:29500 (10.0.0.1): connection refused; not tested"
    )
    assert found["node-4"].observed == f"{NO_AGENT}; not tested"
    assert found["node-2"].ok


def test_a_node_that_lost_gpus_in_a_sweep_is_not_proven_by_it():
    """Marks, metrics and scheduled runs read the section: the node is at fault, and a departed node is undetermined."""
    sweep = swept(*printed(4, lambda _: 380.0))
    lost = failed("node-1", "6 nvidia.com/gpu allocatable after the trial", "8", "gpu.missing")
    gone = unknown("node-2", "no longer a node of the cluster", "the node that was tried", fault="job.disrupted")
    section = with_findings(sweep, {"node-1": [lost], "node-2": [gone]}).section
    assert (section["verdict"], section["proven"]) == ("no-go", ["node-0", "node-3"])
    assert [(f["names"], f["fault"], f["why"]) for f in section["findings"]] == [
        (["node-1"], "gpu.missing", "6 nvidia.com/gpu allocatable after the trial")
    ]
    states = {row["name"]: row["state"] for row in section["elements"]["nodes"]}
    assert (states["node-1"], states["node-2"], states["node-3"]) == ("at fault", "not tested", "proven")
    assert with_findings(sweep, {"node-2": [gone]}).section["verdict"] == "inconclusive"
    assert with_findings(sweep, {}).section["verdict"] == "go"
