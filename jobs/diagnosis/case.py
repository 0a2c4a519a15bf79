"""Which objects belong to one job, and where does it stand as a whole?

Pods are the job's by their owner's uid (by label where they have none), events by uid too: an earlier job of the same
name must not be mistaken for this one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..facts.events import Event, about, latest, read_events
from ..launchers import KINDS
from ..launchers.kind import MOST_REPLICAS
from ..raw import as_list, as_map, by_type
from ..state import JobState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..launchers import Kind

# Job conditions' and events' reasons (kubernetes pkg/controller/job, api/batch/v1).
FAILED = ("BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy", "FailedIndexes", "MaxFailedIndexesExceeded")
# Of the Job controller, and of the Training Operator (pkg/controller.v1/control/pod_control.go).
CREATED, REMOVED = ("SuccessfulCreate", "SuccessfulCreatePod"), ("SuccessfulDelete", "SuccessfulDeletePod")


class Case:
    """One job's objects, sorted out."""

    def __init__(
        self,
        job: Mapping[str, Any] | None,
        pods: Iterable[Any],
        events: Iterable[Any],
        nodes: Iterable[Any],
        name: str,
        kind: Kind = KINDS["indexed"],
    ) -> None:
        self.kind = kind
        self.given_up: frozenset[str] = frozenset()
        self.raw = as_map(job)
        self.job = kind.as_job(self.raw) if self.raw else {}
        self.meta, self.spec, self.status = (as_map(self.job.get(key)) for key in ("metadata", "spec", "status"))
        self.all_events = read_events(events)
        self.name = name or str(self.meta.get("name") or "") or _only_job(self.all_events, kind.kind)
        self.uid = str(self.meta.get("uid") or "")
        children = kind.children(self.name)
        own = about(self.all_events, kind.kind, self.name, self.uid)
        self.events = [e for e in self.all_events if e in own or (e.kind, e.name) in children] if children else own
        self.conditions = {kind: c for kind, c in by_type(self.status).items() if c.get("status") == "True"}
        self.pods = sorted(
            (pod for pod in pods if isinstance(pod, dict) and self.mine(pod)),
            key=lambda pod: (self.index(pod), str(pod["metadata"].get("creationTimestamp") or "")),
        )
        self.nodes = {str(as_map(node.get("metadata")).get("name")): node for node in nodes if isinstance(node, dict)}
        self.removed = {word for e in self.events if e.reason in REMOVED for word in _pod_names(e)}
        self.created = [word for e in self.events if e.reason in CREATED for word in _pod_names(e)]
        # With an anti-affinity to its own kind (or all GPUs of a node) a waiting pod cannot join a peer.
        self.own_nodes = frozenset(
            str(as_map(pod.get("spec")).get("nodeName") or "")
            for pod in self.pods
            if as_map(pod.get("status")).get("phase") not in ("Succeeded", "Failed")
        )
        failing = self.conditions.get("FailureTarget") or self.conditions.get("Failed") or {}
        told = latest(self.events, *FAILED)
        self.failing_since = str(failing.get("lastTransitionTime") or (told.when if told and not self.job else ""))

    def mine(self, pod: Mapping[str, Any]) -> bool:
        """Tell whether a pod is this job's."""
        owners = as_list(as_map(pod.get("metadata")).get("ownerReferences"))
        if self.uid and any(owner.get("uid") == self.uid for owner in owners):
            return True
        if self.uid and any(owner.get("kind") == self.kind.kind for owner in owners):
            return False
        return self.kind.belongs(pod, self.name)

    def index(self, pod: Mapping[str, Any]) -> int:
        """The pod's rank; behind all ranks for a pod that only starts the others; MOST_REPLICAS where nothing tells."""
        found = self.kind.index(pod)
        return self.wanted() - 1 if found >= MOST_REPLICAS and self.kind.multiplexed else found

    def tried_again(self, pod: Mapping[str, Any]) -> bool:
        """Tell whether a launcher pod failed and its controller starts another: no rank had begun then."""
        if not (self.kind.multiplexed and self.kind.tells(pod)) or self.finished():
            return False
        if as_map(pod.get("metadata")).get("name") in self.given_up:
            return False
        gone = [p for p in self.pods if self.kind.tells(p) and as_map(p.get("status")).get("phase") == "Failed"]
        return pod in gone and len(gone) <= (self.spec.get("backoffLimit") or 0)

    def state(self) -> JobState:  # noqa: PLR0911  (one line per state is the clearest form)
        """Name the state in the user's words."""
        if not self.job:
            return self._state_of_gone()
        if "Complete" in self.conditions:
            return JobState.COMPLETE
        if "Failed" in self.conditions:
            return JobState.ERROR
        if self.meta.get("deletionTimestamp"):
            return JobState.CANCELED
        if "FailureTarget" in self.conditions:
            return JobState.ERROR
        if "Suspended" in self.conditions:
            return JobState.PENDING
        phases = [as_map(pod.get("status")).get("phase") for pod in self.pods]
        limit = self.spec.get("backoffLimit")
        if phases.count("Failed") > (limit if isinstance(limit, int) else 6):
            return JobState.ERROR
        if "Running" in phases or "Succeeded" in phases or self.status.get("ready") or self.status.get("succeeded"):
            return JobState.RUNNING
        return JobState.PENDING

    def _state_of_gone(self) -> JobState:
        last = latest(self.events, "Completed", *FAILED)
        if last is not None:
            return JobState.COMPLETE if last.reason == "Completed" else JobState.ERROR
        return JobState.CANCELED if self.events or self.pods else JobState.UNKNOWN

    def finished(self) -> bool:
        """True once the job has succeeded or is failing."""
        return bool({"Complete", "Failed", "FailureTarget"} & self.conditions.keys())

    def living(self) -> list[Mapping[str, Any]]:
        """Pods that are not on their way out."""
        return [pod for pod in self.pods if not as_map(pod.get("metadata")).get("deletionTimestamp")]

    def wanted(self) -> int:
        """How many pods the job wants."""
        indexed = self.spec.get("completionMode") == "Indexed"
        counts = [self.spec.get("parallelism"), self.spec.get("completions") if indexed else None]
        wanted = max((n for n in counts if isinstance(n, int) and not isinstance(n, bool)), default=1)
        return min(max(wanted, 0), MOST_REPLICAS)

    def vanished(self) -> list[str]:
        """Pods that were created and are gone, though nobody of the cluster's own removed them."""
        here = {str(as_map(pod.get("metadata")).get("name")) for pod in self.pods}
        return [name for name in self.created if self.job and name not in here and name not in self.removed]

    def related(self) -> list[Event]:
        """Events about the job and all its pods."""
        pods = {str(as_map(pod.get("metadata")).get("name")) for pod in self.pods} | set(self.created)
        return [
            e
            for e in self.all_events
            if e in self.events or (e.kind == "Pod" and e.name in pods)
        ]


def _only_job(events: Sequence[Event], kind: str) -> str:
    """The name of the Job when only its events are left and they are about one."""
    names = {event.name for event in events if event.kind == kind}
    return names.pop() if len(names) == 1 else ""


def _pod_names(event: Event) -> list[str]:
    """Pods named in a SuccessfulCreate or SuccessfulDelete event of the Job controller."""
    found = re.search(r"(?:Created|Deleted) pod: (\S+)", event.message)
    return [found[1]] if found else []
