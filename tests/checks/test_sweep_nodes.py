"""Nodes of a sweep, their order, and their leaves."""

from dataclasses import replace

import pytest

from checks.framework.options import Options
from checks.framework.sweep_run import run_sweep
from checks.framework.sweep_spec import LEAF_LABELS, leaves_of, rules_of, sweep_spec
from checks.framework.trial_spec import build_spec
from checks.profiles.loader import load_profile
from checks.rules.capacity import rooms
from checks.rules.pool import Pool
from checks.rules.sweep import link_findings
from jobs.diagnosis.state import JobState
from jobs.pod.sweep.model import Fleet as PlannedFleet
from jobs.pod.sweep.plan import next_round
from jobs.run.result import TrialResult
from jobs.trial.names import SpecError
from jobs.trial.parts import ClaimSpec, Queue
from jobs.trial.spec import TrialSpec
from tests.checks.sweeps import PROFILE, everything, printed, swept


def test_a_sweep_is_of_two_nodes_or_more_however_many_a_trial_spans():
    """One node has no partner, which is reported. Two are enough even if the profile's trial spans four."""
    four = replace(load_profile("h100-ib"), nodes=4)
    options = Options(sweep=True, trial_on=("n1", "n2"))
    assert build_spec(four, options, run_id="r1", namespace="default").nodes == 2
    alone = replace(options, trial_on=("n1", "n1"))
    with pytest.raises(SpecError, match="--on n1: a sweep tests nodes in pairs"):
        build_spec(four, alone, run_id="r1", namespace="default")


def test_a_busy_node_is_named_and_no_pass():
    """A busy node is not used, and a sweep without it is not go."""
    names, stages = printed(6, lambda _: 380.0)
    sweep = swept(names, stages, left={"node-busy": "0 of 8 free; held by Job/other"})
    bad = [f for f in everything(sweep) if f.ok is not True]
    assert [(f.subject, f.ok) for f in bad if f.subject != "seatrial-x"] == [("node-busy", None)]
    assert "held by Job/other" in bad[0].observed
    assert sweep.section["verdict"] == "inconclusive"


def test_a_part_of_the_fleet_is_swept_in_its_order_with_new_partners_in_each_run():
    """A scheduled sweep keeps the chosen node order; a sweep of all nodes has the same pairs each time."""
    names = tuple(f"node-{n}" for n in (5, 2, 9, 1, 7, 4))

    def first(run, trial_on):
        spec = TrialSpec(run_id=run, namespace="n", image="i", nodes=2, gpus_per_node=1)
        made = sweep_spec(spec, names, {}, PROFILE, Options(trial_on=trial_on)).sweep
        assert made.nodes == names
        return next_round(PlannedFleet(made.nodes), replace(rules_of(made), alone=False), []).tests

    assert first("2a3b4c5d6e", ()) == first("9z8y7x6w5v", ())
    assert set(first("2a3b4c5d6e", names)) != set(first("9z8y7x6w5v", names))


@pytest.mark.parametrize(("resource", "free"), [("", ["a"]), ("nvidia.com/gpu", [])])
def test_where_gpus_are_claimed_only_the_scheduler_knows_which_are_free(inventory, node, resource, free):
    """No node offers a countable resource; a cordoned or tainted node still gets no pod."""
    nodes = [node("a", allocatable=None), node("b", allocatable=None, unschedulable=True)]
    claim = () if resource else (ClaimSpec(name="gpus", device_class="gpu.nvidia.com", count=8),)
    spec = TrialSpec(
        run_id="2a3b4c5d6e", namespace="n", image="i", nodes=2, gpus_per_node=8, gpu_resource=resource, claims=claim
    )
    node_rooms = rooms(inventory(nodes), nodes, spec)
    assert [room.node for room in node_rooms if not room.fault] == free
    assert node_rooms[1].fault == "nodes.cordoned"


def test_a_busy_node_that_became_free_is_judged_like_the_others():
    """For a node that was busy when the sweep started, the coordinator's later report counts."""
    names, stages = printed(6, lambda pair: 200.0 if "node-5" in pair else 380.0)
    sweep = swept(names[:5], stages, left={"node-5": "0 of 8 free"}.items())
    assert [(f.subject, f.fault) for f in everything(sweep) if f.ok is not True] == [("node-5", "sweep.node")]
    assert sweep.left == {} and sweep.asked == names
    names, stages = printed(5, lambda _: 380.0)
    sweep = swept(names, stages, left={"node-5": "0 of 8 free"}.items())
    assert sweep.blame.verdict == "inconclusive" and "node-5" in sweep.left


@pytest.mark.parametrize("take_in", [False, True])
def test_pods_wait_for_busy_nodes_where_that_is_asked(inventory, node, take_in):
    """Every node gets a pod, busy ones too; a cordoned node gets none and is not waited for."""
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
        with pytest.raises(pytest.UsageError, match="a queue admits all pods"):
            run_sweep(runs, queued, cluster, Pool(tuple(nodes)), PROFILE, options, {})
        with pytest.raises(pytest.UsageError, match="cannot be combined with --no-scale"):
            run_sweep(runs, spec, cluster, Pool(tuple(nodes)), PROFILE, replace(options, scale=False), {})


@pytest.mark.parametrize(("labels", "lacking"), [("xxyy", ()), ("xxy ", ("d",)), ("    ", ("a", "b", "c", "d"))])
def test_a_label_that_the_profile_names_is_on_every_node_or_no_uplink_is_tested(inventory, node, labels, lacking):
    """An empty label is missing; nodes without it are named, and uplinks do not pass."""
    nodes = [node(name, labels={"rack": value.strip()}) for name, value in zip("abcd", labels, strict=True)]
    spec = TrialSpec(run_id="2a3b4c5d6e", namespace="n", image="i", nodes=2, gpus_per_node=8)
    profile = replace(PROFILE, topology=replace(PROFILE.topology, leaf_label="rack"))

    def runs(_):
        return TrialResult(job="j", state=JobState.COMPLETE)

    sweep = run_sweep(runs, spec, inventory(nodes), Pool(tuple(nodes)), profile, Options(), {})
    findings = [f for f in link_findings(sweep) if f.subject == "leaves"]
    assert sweep.unlabelled == lacking
    assert [f.ok for f in findings] == [None] * bool(lacking)
    assert all(name in findings[0].observed for name in lacking)


@pytest.mark.parametrize("label", [*LEAF_LABELS, "example.com/leaf"])
def test_leaves_are_read_from_the_label_of_each_source(node, label):
    """A custom label counts only if the profile names it; one that some nodes lack, or that has a single value, is
    ignored."""
    own = label if label not in LEAF_LABELS else None
    leaves = {"a": "x", "b": "x", "c": "y", "d": "y"}
    nodes = [node(name, labels={label: leaf}) for name, leaf in leaves.items()]
    assert leaves_of(nodes, own) == leaves
    assert leaves_of([*nodes, node("e")], own) == {}
    assert leaves_of([node(name, labels={label: "x"}) for name in leaves], own) == {}
    assert leaves_of([node(name, labels={label: name}) for name in leaves], own) == {}
    assert leaves_of(nodes, "another.example/label") == {}
