"""What earlier looks at a job saw: an object says how things are, and not always in which order they came."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..cluster.unstructured import Unstructured, as_list, as_map, uid_of

_MOST = 5000


@dataclass(slots=True)
class History:
    """Remembers across looks; empty where there was only one.

    `resumed`: the Job was seen not suspended. `ran`: a container of it was seen running. `deleted_first`,
    `ended_first`: uids of pods that were seen on their way out while they ran, or ended before anybody deleted them.
    `followed`: uids of those that were asked to go only after another pod had failed by itself.
    `departed`: the last state of pods that are gone, by uid. `finished`: names of pods that had told all evidence.
    """

    resumed: bool = False
    ran: bool = False
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
        """Take in one look: the job in the words of a batch/v1 Job, its pods, and the last states of those gone."""
        if job is not None and as_map(job.get("spec")).get("suspend") is not True:
            self.resumed = True
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
        """All that a diagnosis reads of it, as a copy: what is equal later has not changed meanwhile."""
        before = set(self.deleted_first), set(self.ended_first), set(self.followed)
        return self.resumed, self.ran, *before, list(self.departed.values()), self.finished

    def order(self, pod: str, fault: str) -> int:
        """In which order this trouble was first seen, from 0."""
        return self._order.setdefault((pod, fault), len(self._order))


def ended(pod: Unstructured) -> bool:
    """Tell whether the pod has ended, or a container of it that is not restarted."""
    status = as_map(pod.get("status"))
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    states = [as_map(entry.get("state")) for entry in as_list(status.get("containerStatuses"))]
    return any("terminated" in state for state in states)


def failed(pod: Unstructured) -> bool:
    """Tell whether the pod has failed, or a container of it that is not restarted."""
    status = as_map(pod.get("status"))
    ends = [as_map(as_map(e.get("state")).get("terminated")) for e in as_list(status.get("containerStatuses"))]
    return status.get("phase") == "Failed" or any(end and end.get("exitCode") != 0 for end in ends)
