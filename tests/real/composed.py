"""Builds new timelines from recorded ones: changes are added, removed, rewritten or moved."""

import copy
import datetime
from dataclasses import replace
from pathlib import Path

from tests.real.playing import load
from tests.real.server import Change, at

RECORDINGS = Path(__file__).parent / "recordings"


def case_of(name):
    """Return the recording whose name starts with this text."""
    return load(min(RECORDINGS.glob(f"{name}*.jsonl.gz")))


def stamp(case, moment):
    """Format a moment of the recording like the API server."""
    wall = datetime.datetime.fromisoformat(case.recording.wall) + datetime.timedelta(seconds=moment)
    return wall.strftime("%Y-%m-%dT%H:%M:%SZ")


def then(*changes):
    """Apply the changes of a play in sequence."""

    def change(play):
        for each in changes:
            play = each(play)
        return play

    return change


def with_more(*more):
    """Add some changes, each as old as its predecessor."""

    def change(play):
        changes = list(play.changes)
        for each in more:
            before = max((c.version for c in changes if c.at <= each.at), default=0)
            item = copy.deepcopy(each.object)
            item["metadata"]["resourceVersion"] = str(before)
            changes.append(replace(each, object=item))
        return replace(play, changes=tuple(sorted(changes, key=lambda c: c.at)))

    return change


def without(selected):
    """Remove the changes for which `selected(change)` is true."""
    return lambda play: replace(play, changes=tuple(c for c in play.changes if c.at <= play.start or not selected(c)))


def rewritten(selected, edit):
    """Apply `edit(object)` in place to changes for which `selected(change)` is true."""

    def change(play):
        changes = []
        for c in play.changes:
            if selected(c):
                item = copy.deepcopy(c.object)
                edit(item)
                c = replace(c, object=item)  # noqa: PLW2901
            changes.append(c)
        return replace(play, changes=tuple(changes))

    return change


def later_from(since, seconds):
    """Delay everything from a moment on, in the same order."""
    return lambda play: replace(
        play, changes=tuple(at(c, c.at + seconds) if c.at >= since else c for c in play.changes)
    )


def first(case, selected):
    """Return the first change for which `selected` is true."""
    return next(c for c in case.play.changes if selected(c))


def is_pod(rank, case):
    """Say whether a change concerns the pod of a rank of the case's Job."""
    return lambda c: c.kind == "Pod" and c.name.startswith(f"{case.expected.job}-{rank}-")


def node_says(case, node, *moments):
    """Set the node's Ready condition to these values, given as (moment, status)."""
    for moment, status in moments:
        latest = [c for c in case.play.changes if c.kind == "Node" and c.name == node and c.at <= moment][-1]
        item = copy.deepcopy(latest.object)
        for condition in item["status"]["conditions"]:
            if condition["type"] == "Ready":
                condition |= {"status": status, "lastTransitionTime": stamp(case, moment)}
        yield Change(moment, "Node", "MODIFIED", item)


def namespace_goes(case, moment, *, gone=False):
    """Delete the namespace, which is Terminating from then on, or gone at once."""
    latest = [c for c in case.play.changes if c.kind == "Namespace" and c.at <= moment][-1]
    item = copy.deepcopy(latest.object)
    item["metadata"]["deletionTimestamp"] = stamp(case, moment)
    item["status"] = {"phase": "Terminating"}
    return Change(moment, "Namespace", "DELETED" if gone else "MODIFIED", item)


def event(case, about, moment, *, kind="Pod", reason, message, severity="Warning"):
    """Return a core/v1 Event about an object, in the form of kubelets and controllers."""
    meta = about["metadata"]
    item = {
        "metadata": {
            "name": f"{meta['name']}.{reason.lower()}",
            "namespace": case.recording.namespace,
            "uid": f"e-{reason}-{moment}",
        },
        "involvedObject": {
            "kind": kind,
            "name": meta["name"],
            "namespace": case.recording.namespace,
            "uid": meta["uid"],
        },
        "reason": reason,
        "message": message,
        "type": severity,
        "count": 1,
        "firstTimestamp": stamp(case, moment),
        "lastTimestamp": stamp(case, moment),
        "source": {"component": "kubelet"},
        "reportingComponent": "kubelet",
    }
    return Change(moment, "Event", "ADDED", item)
