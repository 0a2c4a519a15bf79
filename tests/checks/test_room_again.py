"""Before a retry, the trial checks for room on the nodes and for the state of the earlier ones."""

from dataclasses import replace

import pytest

from checks.rules.capacity import no_room, rooms
from checks.rules.pool import Pool
from jobs.diagnosis.state import JobState, Replica, interrupted
from jobs.run.result import TrialResult
from jobs.trial.parts import Queue

HELD = ("default", "urgent", "b", 8, "")


@pytest.fixture
def trial():
    """Return a trial on a and b that lost its pod on b."""
    replicas = tuple(Replica(index=rank, pod=f"p-{rank}", node=name) for rank, name in enumerate("ab"))
    return TrialResult(job="j", state=JobState.ERROR, replicas=replicas, analysis=interrupted("p-1", "evicted"))


@pytest.fixture
def again(inventory, node, spec, trial):
    """Return the reason for lack of room on the current nodes, where a and b were free before."""

    def look(now, pods=(), asked=spec, not_seen=None):
        before = inventory([node("a"), node("b")])
        return no_room(
            rooms(before, before.nodes, spec), inventory(now, pods, not_seen), Pool(tuple(now)), asked, trial
        )

    return look


@pytest.mark.parametrize(
    ("there", "pods", "said"),
    [
        ({"unschedulable": True}, (), "b was drained and is cordoned: 1 of 2 nodes are left for another attempt"),
        (None, (), "b is gone: 1 of 2"),
        ({"ready": False}, (), "b is not Ready (KubeletNotReady: no cni): 1 of 2"),
        (
            {"taints": [("karpenter.sh/disrupted", "", "NoSchedule")]},
            (),
            "b has no room (taint karpenter.sh/disrupted:NoSchedule",
        ),
        ({"allocatable": 0}, (), "b has no room (0 of 0 free)"),
        ({}, (HELD,), "b has no room (0 of 8 free; in use by other workloads: Pod/urgent in default (8)): 1 of 2"),
    ],
)
def test_what_an_interruption_left_without_room_is_named(again, node, there, pods, said):
    now = [node("a"), *([] if there is None else [node("b", **there)])]
    assert again(now, pods).startswith(said)


@pytest.mark.parametrize(
    ("now", "others"),
    [
        ({}, ()),  # b has returned
        ({"unschedulable": True}, ("c",)),  # another node has room
    ],
)
def test_room_for_all_ranks_is_no_obstacle(again, node, now, others):
    assert again([node("a"), node("b", **now), *map(node, others)]) == ""


def test_the_node_that_lost_its_pod_comes_first_and_another_was_only_cordoned(again, node):
    now = [node("a", unschedulable=True), node("b", unschedulable=True)]
    assert again(now).startswith("b was drained and is cordoned, a is cordoned: 0 of 2")


def test_nodes_that_the_trial_keeps_off_are_no_room(again, node, spec):
    now = [node("a"), node("b", unschedulable=True), node("c")]
    assert again(now, asked=replace(spec, avoided=("c",))).endswith("1 of 2 nodes are left for another attempt")


def test_where_nodes_are_not_seen_or_a_queue_gives_room_nothing_is_said(again, node, spec):
    assert again([], not_seen={"nodes": "no right"}) == ""
    queued = replace(spec, queue=Queue(kind="kueue", name="q"))
    assert again([node("a"), node("b")], [HELD], asked=queued) == ""
    assert "b was drained" in again([node("a"), node("b", unschedulable=True)], asked=queued)
