"""The history of a job across polls: when a pod's deletion was requested, and whether it had ended before.

A single object shows the current state, and not always the order of changes.
"""

from __future__ import annotations

import datetime
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..cluster.unstructured import Unstructured, as_list, as_map, by_type, statuses_of, uid_of
from ..trial.launchers.kind import whole

_KILLED_BY_KUBELET = (128 + signal.SIGTERM, 128 + signal.SIGKILL)


def was_taken(pod: Unstructured, noticed: bool | None) -> bool:
    """Return whether the pod's deletion was requested before it ended, and is the only cause of its failure.

    The kubelet sends SIGTERM and, after the grace period, SIGKILL; a forced deletion has no grace period. `noticed` is
    the result of earlier polls. Without it the timestamps decide (whole seconds, of the API server and of the node).
    """
    meta, spec, status = (as_map(pod.get(key)) for key in ("metadata", "spec", "status"))
    deletion = str(meta.get("deletionTimestamp") or "")
    if not deletion:
        return False
    sidecars = sidecar_names(spec)
    entries = statuses_of(status)
    ends = [
        as_map(as_map(entry.get("state")).get("terminated"))
        for entry in entries
        if str(entry.get("name")) not in sidecars
    ]
    failed = [end for end in ends if end and end.get("exitCode") != 0]
    if any(end.get("exitCode") not in _KILLED_BY_KUBELET or end.get("reason") == "OOMKilled" for end in failed):
        return False
    if noticed is not None:
        return noticed
    asked = asked_at(deletion, meta.get("deletionGracePeriodSeconds"))
    if failed:
        return all(str(end.get("finishedAt") or "9") >= asked for end in failed)
    return (last_end(status) or "9") >= asked


def last_end(status: Unstructured) -> str:
    """Return when the last of the pod's containers ended; '' while one runs or if none has run."""
    states = [as_map(entry.get("state")) for entry in as_list(status.get("containerStatuses"))]
    if any("terminated" not in state for state in states):
        return ""
    return max((str(as_map(state.get("terminated")).get("finishedAt") or "") for state in states), default="")


def sidecar_names(spec: Unstructured) -> set[str]:
    """Return the names of native sidecars: they are restarted, and killed when the trial has ended."""
    return {str(c.get("name")) for c in as_list(spec.get("initContainers")) if c.get("restartPolicy") == "Always"}


def asked_at(when: str, seconds: object) -> str:
    """Return when the deletion was requested: deletionTimestamp less the grace period."""
    return later(when, -seconds if isinstance(seconds, int) and 0 <= seconds < 86_400 else 0)


def later(when: str, seconds: int) -> str:
    """Return the time so many seconds later, as Kubernetes writes it; an invalid time is returned unchanged."""
    try:
        moment = datetime.datetime.fromisoformat(when)
    except ValueError:
        return when
    return (moment + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


_MOST = 5000


@dataclass(slots=True)
class History:
    """The state across polls; empty after a single one.

    `resumed`: the Job was observed not suspended. `ran`: a container of it was observed running. `deleted_first`,
    `ended_first`: uids of pods that were observed terminating while they ran, or ended before they were deleted.
    `followed`: uids of pods whose deletion was requested only after another pod had failed by itself. `departed`: the
    last state of deleted pods, by uid. `finished`: names of pods that had printed all evidence. `first`: the Job's
    first observed spec. `resized`: an external change of it, after which not all ranks run together.
    """

    resumed: bool = False
    ran: bool = False
    first: Unstructured = field(default_factory=dict)
    resized: str = ""
    deleted_first: set[str] = field(default_factory=set)
    ended_first: set[str] = field(default_factory=set)
    followed: set[str] = field(default_factory=set)
    departed: dict[str, Unstructured] = field(default_factory=dict)
    finished: frozenset[str] = frozenset()
    _order: dict[tuple[str, str], int] = field(default_factory=dict)
    _failed: bool = False

    def enter(
        self, job: Unstructured | None, pods: Iterable[Unstructured], departed: Iterable[Unstructured] = ()
    ) -> None:
        """Add one poll: the job in the form of a batch/v1 Job, its pods, and the last states of deleted pods."""
        if job is not None:
            self.resumed = self.resumed or as_map(job.get("spec")).get("suspend") is not True
            self.first = self.first or as_map(job.get("spec"))
            self.resized = self.resized or _resized(self.first, job)
        gone = {uid_of(pod): pod for pod in departed}
        before = self._failed
        for uid, pod in {**{uid_of(pod): pod for pod in pods}, **gone}.items():
            if uid in self.deleted_first or uid in self.ended_first:
                continue
            deleted = bool(as_map(pod.get("metadata")).get("deletionTimestamp"))
            if ended(pod) and not deleted:
                self.ended_first.add(uid)
                self._failed = self._failed or failed(pod)
            elif deleted and not ended(pod):
                self.deleted_first.add(uid)
                if before:
                    self.followed.add(uid)
        self.departed = dict(list(gone.items())[:_MOST])

    def snapshot(self) -> tuple[object, ...]:
        """Return a copy of the fields that a diagnosis reads; equal snapshots mean an unchanged history."""
        before = set(self.deleted_first), set(self.ended_first), set(self.followed)
        return self.resumed, self.ran, self.resized, *before, list(self.departed.values()), self.finished

    def order(self, pod: str, fault: str) -> int:
        """Return this problem's position in the order of first observation, from 0."""
        return self._order.setdefault((pod, fault), len(self._order))


def at_a_time(spec: Unstructured) -> int:
    """Return how many pods a Job runs at a time: its parallelism, for an Indexed Job at most its completions."""
    parallelism = whole(spec.get("parallelism"), 1)
    return min(parallelism, whole(spec.get("completions"), parallelism))


def _resized(first: Unstructured, job: Unstructured) -> str:
    """Describe external changes of a Job's number of pods; '' if all ranks have succeeded."""
    spec, status = as_map(job.get("spec")), as_map(job.get("status"))
    if at_a_time(spec) == at_a_time(first):
        return ""
    if (by_type(status).get("Complete") or {}).get("status") == "True":
        succeeded = status.get("succeeded")
        if not isinstance(succeeded, int) or succeeded >= at_a_time(first):
            return ""
    return changes(first, spec, "parallelism", "completions")


def changes(before: Unstructured, now: Unstructured, *fields: str) -> str:
    """Describe how these numbers of a Job's spec differ."""
    differs = [name for name in fields if before.get(name) != now.get(name)]
    return ", ".join(f"{name} from {before.get(name)} to {now.get(name)}" for name in differs)


def ended(pod: Unstructured) -> bool:
    """Return whether the pod has ended, or a container of it that is not restarted."""
    status = as_map(pod.get("status"))
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    states = [as_map(entry.get("state")) for entry in as_list(status.get("containerStatuses"))]
    return any("terminated" in state for state in states)


def failed(pod: Unstructured) -> bool:
    """Return whether the pod has failed, or a container of it that is not restarted."""
    status = as_map(pod.get("status"))
    ends = [as_map(as_map(e.get("state")).get("terminated")) for e in as_list(status.get("containerStatuses"))]
    return status.get("phase") == "Failed" or any(end and end.get("exitCode") != 0 for end in ends)
