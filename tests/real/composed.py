"""Builds new timelines from recorded ones: changes are added, left out, rewritten or moved."""

import copy
import datetime
from dataclasses import replace
from pathlib import Path

from tests.real.playing import load
from tests.real.server import Change, at

RECORDINGS = Path(__file__).parent / "recordings"


def case_of(name):
    """The recording with a name that begins so."""
    return load(min(RECORDINGS.glob(f"{name}*.jsonl.gz")))


def stamp(case, moment):
    """A moment of the recording as the API server writes it."""
    wall = datetime.datetime.fromisoformat(case.recording.wall) + datetime.timedelta(seconds=moment)
    return wall.strftime("%Y-%m-%dT%H:%M:%SZ")


def then(*changes):
    """One change of a play after the other."""

    def change(play):
        for each in changes:
            play = each(play)
        return play

    return change


def with_more(*more):
    """Some changes are added, each as old as what was heard just before it."""

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
    """What `selected(change)` names is never heard."""
    return lambda play: replace(play, changes=tuple(c for c in play.changes if c.at <= play.start or not selected(c)))


def rewritten(selected, edit):
    """`edit(object)` changes in place what `selected(change)` names."""

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
    """Everything from a moment on comes later, in the same order."""
    return lambda play: replace(
        play, changes=tuple(at(c, c.at + seconds) if c.at >= since else c for c in play.changes)
    )


def first(case, selected):
    """The first change that `selected` names."""
    return next(c for c in case.play.changes if selected(c))


def is_pod(rank, case):
    """Tell whether a change is of the pod of a rank of the case's Job."""
    return lambda c: c.kind == "Pod" and c.name.startswith(f"{case.expected.job}-{rank}-")


def node_says(case, node, *moments):
    """The node's Ready condition takes these values, given as (moment, status)."""
    for moment, status in moments:
        latest = [c for c in case.play.changes if c.kind == "Node" and c.name == node and c.at <= moment][-1]
        item = copy.deepcopy(latest.object)
        for condition in item["status"]["conditions"]:
            if condition["type"] == "Ready":
                condition |= {"status": status, "lastTransitionTime": stamp(case, moment)}
        yield Change(moment, "Node", "MODIFIED", item)


def namespace_goes(case, moment, *, gone=False):
    """Somebody deletes the namespace, which is Terminating from then on, or is gone at once."""
    latest = [c for c in case.play.changes if c.kind == "Namespace" and c.at <= moment][-1]
    item = copy.deepcopy(latest.object)
    item["metadata"]["deletionTimestamp"] = stamp(case, moment)
    item["status"] = {"phase": "Terminating"}
    return Change(moment, "Namespace", "DELETED" if gone else "MODIFIED", item)


def event(case, about, moment, *, kind="Pod", reason, message, severity="Warning"):
    """A core/v1 Event about an object, as kubelets and controllers write it."""
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
