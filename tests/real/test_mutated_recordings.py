"""Recordings with something else happening at the same time: a node that flaps, a namesake, another Job's words."""

import copy
import datetime
from dataclasses import replace

import pytest

from tests.real.playing import load, play, wrong
from tests.real.server import Change
from tests.real.test_real_recordings import RECORDINGS
from tests.real.variants import VARIANTS

HEARD = ("as recorded", "batches of 1 s", "Pods 1.5 s late")


def case_of(name):
    return load(next(path for path in RECORDINGS if path.name.startswith(name)))


def with_more(change, *more):
    """The variant of a play to which some changes are added, each as old as what was heard just before it."""

    def altered(recorded):
        changes = list(recorded.changes)
        for each in more:
            before = max((c.version for c in changes if c.at <= each.at), default=0)
            item = copy.deepcopy(each.object)
            item["metadata"]["resourceVersion"] = str(before)
            changes.append(replace(each, object=item))
        return change(replace(recorded, changes=tuple(sorted(changes, key=lambda c: c.at))))

    return altered


def ended(case):
    """When the first rank was over."""
    phases = ("Succeeded", "Failed")
    return min(c.at for c in case.play.changes if c.kind == "Pod" and c.object.get("status", {}).get("phase") in phases)


def not_ready(case, node, since, until):
    """The node loses its kubelet's heartbeat, and gets it back."""
    seen = [c for c in case.play.changes if c.kind == "Node" and c.name == node and c.at <= since][-1]
    for moment, status in ((since, "Unknown"), (until, "True")):
        item = copy.deepcopy(seen.object)
        wall = datetime.datetime.fromisoformat(case.recording.wall) + datetime.timedelta(seconds=moment)
        for condition in item["status"]["conditions"]:
            if condition["type"] == "Ready":
                condition |= {"status": status, "lastTransitionTime": wall.strftime("%Y-%m-%dT%H:%M:%SZ")}
        yield Change(moment, "Node", "MODIFIED", item)


@pytest.mark.parametrize("heard", HEARD)
@pytest.mark.parametrize("name", ["01-healthy-a", "04-both", "05-oom", "35b-evicted"])
def test_a_node_that_flaps_while_ranks_end_is_not_what_ended_them(name, heard):
    """The other pod's node is not Ready as a container is killed for its memory, or as a program fails by itself."""
    case = case_of(name)
    since = ended(case) - 0.5
    told = play(case, with_more(VARIANTS[heard], *not_ready(case, "gpu-node-2", since, since + 20)))
    assert not wrong(case, told), told


@pytest.mark.parametrize("heard", HEARD)
@pytest.mark.parametrize("name", ["17-job-deleted-background", "17b-job-deleted-foreground"])
def test_a_job_of_the_same_name_is_not_ours(name, heard):
    """Somebody deletes our Job and makes another of its name, which is suspended: ours was deleted."""
    case = case_of(name)
    ours = [c for c in case.play.changes if c.kind == "Job" and c.name == case.expected.job]
    item = copy.deepcopy(ours[0].object)
    item["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    gone = next(c.at for c in ours if c.type == "DELETED")
    told = play(case, with_more(VARIANTS[heard], Change(gone + 0.3, "Job", "ADDED", item)))
    assert not wrong(case, told), told


def test_pods_of_a_namesake_are_not_ours():
    """Another Job's pod with our labels is evicted: it says nothing of our trial."""
    case = case_of("01-healthy-a")
    running = next(
        c for c in case.play.changes if c.kind == "Pod" and c.object.get("status", {}).get("phase") == "Running"
    )
    item = copy.deepcopy(running.object)
    item["metadata"] |= {"name": f"{case.expected.job}-0-zzzzz", "uid": "6"}
    item["metadata"]["ownerReferences"] = [{"kind": "Job", "name": case.expected.job, "uid": "5", "controller": True}]
    item["status"] = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    told = play(case, with_more(VARIANTS["as recorded"], Change(running.at + 0.1, "Pod", "ADDED", item)))
    assert not wrong(case, told), told
