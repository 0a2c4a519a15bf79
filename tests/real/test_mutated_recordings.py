"""Recordings with a concurrent event: a flapping node, a Job with the same name, another Job's messages."""

import copy

import pytest

from tests.real.composed import case_of, node_says, then, with_more
from tests.real.playing import play, wrong
from tests.real.server import Change
from tests.real.variants import VARIANTS

HEARD = ("as recorded", "batches of 1 s", "Pods 1.5 s late")


def ended(case):
    """Return the time at which the first rank ended."""
    phases = ("Succeeded", "Failed")
    return min(c.at for c in case.play.changes if c.kind == "Pod" and c.object.get("status", {}).get("phase") in phases)


@pytest.mark.parametrize("heard", HEARD)
@pytest.mark.parametrize("name", ["01-healthy-a", "04-both", "05-oom", "35b-evicted"])
def test_a_node_that_flaps_while_ranks_end_is_not_what_ended_them(name, heard):
    """The other pod's node is not Ready when a container is OOM-killed, or when a program fails."""
    case = case_of(name)
    since = ended(case) - 0.5
    flaps = node_says(case, "gpu-node-2", (since, "Unknown"), (since + 20, "True"))
    outcome = play(case, then(with_more(*flaps), VARIANTS[heard]))
    assert not wrong(case, outcome), outcome


@pytest.mark.parametrize("heard", HEARD)
@pytest.mark.parametrize("name", ["17-job-deleted-background", "17b-job-deleted-foreground"])
def test_a_job_of_the_same_name_is_not_ours(name, heard):
    """Our Job is deleted and replaced by a suspended one with its name: ours was deleted."""
    case = case_of(name)
    ours = [c for c in case.play.changes if c.kind == "Job" and c.name == case.expected.job]
    item = copy.deepcopy(ours[0].object)
    item["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    gone = next(c.at for c in ours if c.type == "DELETED")
    outcome = play(case, then(with_more(Change(gone + 0.3, "Job", "ADDED", item)), VARIANTS[heard]))
    assert not wrong(case, outcome), outcome


def test_pods_of_a_namesake_are_not_ours():
    """Another Job's pod with our labels is evicted, which does not concern our trial."""
    case = case_of("01-healthy-a")
    running = next(
        c for c in case.play.changes if c.kind == "Pod" and c.object.get("status", {}).get("phase") == "Running"
    )
    item = copy.deepcopy(running.object)
    item["metadata"] |= {"name": f"{case.expected.job}-0-zzzzz", "uid": "6"}
    item["metadata"]["ownerReferences"] = [{"kind": "Job", "name": case.expected.job, "uid": "5", "controller": True}]
    item["status"] = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    outcome = play(case, with_more(Change(running.at + 0.1, "Pod", "ADDED", item)))
    assert not wrong(case, outcome), outcome
