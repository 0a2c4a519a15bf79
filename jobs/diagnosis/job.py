"""The objects of one job, and its state as a whole.

Pods belong to the job by their owner's uid (by label if they have no owner), events also by uid. An earlier job of the
same name must not be mistaken for this one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from ..cluster.facts.events import Event, about, latest, read_events
from ..cluster.unstructured import Unstructured, as_list, as_map, by_type, name_of, node_of, phase_of
from ..trial.launchers import KINDS, Kind
from ..trial.launchers.kind import MOST_REPLICAS
from .history import History, at_a_time, last_end, later, was_taken
from .state import JobState

# Reasons in a Job's conditions and events (kubernetes pkg/controller/job, api/batch/v1).
FAILED = ("BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy", "FailedIndexes", "MaxFailedIndexesExceeded")
# Reasons of the Job controller and of the Training Operator (pkg/controller.v1/control/pod_control.go).
CREATED, REMOVED = ("SuccessfulCreate", "SuccessfulCreatePod"), ("SuccessfulDelete", "SuccessfulDeletePod")


# The deletionTimestamp given to a job that existed and is now missing.
GONE = "gone"
_CANCELLED = "Cancelling deletion of Pod"


class JobObjects:
    """One job's objects, separated from others."""

    def __init__(
        self,
        job: Unstructured | None,
        pods: Iterable[Any],
        events: Iterable[Any],
        nodes: Iterable[Any],
        name: str,
        kind: Kind = KINDS["indexed"],
        history: History | None = None,
    ) -> None:
        self.kind = kind
        self.history = history or History()
        self.given_up: frozenset[str] = frozenset()
        self.raw = as_map(job)
        # A job that is read only through its pods is already in the form of a batch/v1 Job (launchers/foreign.py,
        # unread).
        retold = self.raw.get("apiVersion") == "batch/v1"
        self.job = (self.raw if retold else kind.as_job(self.raw)) if self.raw else {}
        self.meta, self.spec, self.status = (as_map(self.job.get(key)) for key in ("metadata", "spec", "status"))
        # The spec decides: the condition Suspended is written after the pods have been created or removed (job
        # controller).
        self.suspended = self.spec.get("suspend") is True
        self.all_events = _standing(read_events(events))
        self.name = name or str(self.meta.get("name") or "") or _only_job(self.all_events, kind.kind)
        self.uid = str(self.meta.get("uid") or "")
        children = kind.children(self.name)
        own = about(self.all_events, kind.kind, self.name, self.uid)
        self.events = [e for e in self.all_events if e in own or (e.kind, e.name) in children] if children else own
        self.conditions = {kind: c for kind, c in by_type(self.status).items() if c.get("status") == "True"}
        # A job that wants no pods never ends.
        none = bool(self.job) and not (at_a_time(self.spec) or self.suspended or "Complete" in self.conditions)
        self.resized = self.history.resized or ("parallelism is 0" if none else "")
        self.pods = sorted(
            (pod for pod in pods if isinstance(pod, dict) and self.mine(pod)),
            key=lambda pod: (self.index(pod), str(pod["metadata"].get("creationTimestamp") or "")),
        )
        self.nodes = {name_of(node): node for node in nodes if isinstance(node, dict)}
        self.removed = {word for e in self.events if e.reason in REMOVED for word in _pod_names(e)}
        self.created = [word for e in self.events if e.reason in CREATED for word in _pod_names(e)]
        # With an anti-affinity to the same kind (or all GPUs of a node), a waiting pod cannot share a peer's node.
        self.own_nodes = frozenset(node_of(pod) for pod in self.pods if phase_of(pod) not in ("Succeeded", "Failed"))
        self.ending_since = self._ending_since()

    def _ending_since(self) -> str:
        """Return when the controller began to delete pods because the Job fails; '' if it does not fail.

        It deletes the others as soon as it sees what fails the Job and writes FailureTarget afterwards; both may have
        the same second (recordings).
        """
        failing = self.conditions.get("FailureTarget") or self.conditions.get("Failed") or {}
        event = latest(self.events, *FAILED) if not self.job else None
        since = str(failing.get("lastTransitionTime") or (event.when if event else ""))
        reason = failing.get("reason") or (event.reason if event else "")
        if reason == "DeadlineExceeded":
            limit = self.spec.get("activeDeadlineSeconds")
            due = later(str(self.status.get("startTime") or ""), limit) if isinstance(limit, int) else ""
            return later(min(filter(None, (due, since)), default=""), -1)
        if self.kind.operator:
            return since
        ends = sorted(filter(None, (self._own_end(pod) for pod in [*self.pods, *self.history.departed.values()])))
        limit = self.spec.get("backoffLimit")
        if since or len(ends) > (limit if isinstance(limit, int) else 6):
            return min(filter(None, (*ends[:1], since)), default="")
        return ""

    def _own_end(self, pod: Unstructured) -> str:
        """Return when a pod failed by itself; '' if it did not, or if its deletion was requested before."""
        meta, status = as_map(pod.get("metadata")), as_map(pod.get("status"))
        if status.get("phase") != "Failed" or was_taken(pod, self.taken(pod)):
            return ""
        return last_end(status) or str(status.get("startTime") or meta.get("creationTimestamp") or "")

    def taken(self, pod: Unstructured) -> bool | None:
        """Return whether earlier polls saw the pod terminating before it ended; None if unknown."""
        uid = str(as_map(pod.get("metadata")).get("uid") or "")
        return True if uid in self.history.deleted_first else False if uid in self.history.ended_first else None

    def mine(self, pod: Unstructured) -> bool:
        """Return whether a pod belongs to this job."""
        owners = as_list(as_map(pod.get("metadata")).get("ownerReferences"))
        if self.uid and any(owner.get("uid") == self.uid for owner in owners):
            return True
        if self.uid and any(owner.get("kind") == self.kind.kind for owner in owners):
            return False
        return self.kind.belongs(pod, self.name)

    def index(self, pod: Unstructured) -> int:
        """Return the pod's rank; after all ranks for a launcher pod; MOST_REPLICAS if unknown."""
        index_of_pod = self.kind.index(pod)
        return self.desired_pods() - 1 if index_of_pod >= MOST_REPLICAS and self.kind.multiplexed else index_of_pod

    def tried_again(self, pod: Unstructured) -> bool:
        """Return whether a launcher pod failed and its controller starts another: no rank had begun before."""
        if not (self.kind.multiplexed and self.kind.prints_evidence(pod)) or self.finished():
            return False
        if name_of(pod) in self.given_up:
            return False
        gone = [p for p in self.pods if self.kind.prints_evidence(p) and phase_of(p) == "Failed"]
        return pod in gone and len(gone) <= (self.spec.get("backoffLimit") or 0)

    def state(self) -> JobState:  # noqa: PLR0911  (one line per state is the clearest form)
        """Return the state in the user's terms."""
        if not self.job:
            return self._state_of_gone()
        if "Complete" in self.conditions:
            return JobState.COMPLETE
        if "Failed" in self.conditions:
            return JobState.ERROR
        if self.meta.get("deletionTimestamp"):
            # Deleted between two polls: only its events show its result.
            gone = self._state_of_gone() if self.meta["deletionTimestamp"] == GONE else JobState.CANCELED
            return gone if gone.final else JobState.CANCELED
        if "FailureTarget" in self.conditions:
            return JobState.ERROR
        if self.suspended:
            return JobState.PENDING
        phases = [phase_of(pod) for pod in self.pods]
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
        """Return whether the job has succeeded or is failing."""
        return bool({"Complete", "Failed", "FailureTarget"} & self.conditions.keys())

    def living(self) -> list[Unstructured]:
        """Return the pods that are not terminating."""
        return [pod for pod in self.pods if not as_map(pod.get("metadata")).get("deletionTimestamp")]

    def desired_pods(self) -> int:
        """Return how many pods the job wants."""
        indexed = self.spec.get("completionMode") == "Indexed"
        counts = [self.spec.get("parallelism"), self.spec.get("completions") if indexed else None]
        count = max((n for n in counts if isinstance(n, int) and not isinstance(n, bool)), default=1)
        return min(max(count, 0), MOST_REPLICAS)

    def vanished(self) -> list[str]:
        """Return the names of pods that were created and then deleted, but not by a component of the cluster."""
        here = {name_of(pod) for pod in self.pods}
        return [name for name in self.created if self.job and name not in here and name not in self.removed]

    def related(self) -> list[Event]:
        """Return the events about the job and all its pods."""
        pods = {name_of(pod) for pod in self.pods} | set(self.created)
        return [e for e in self.all_events if e in self.events or (e.kind == "Pod" and e.name in pods)]


def _only_job(events: Sequence[Event], kind: str) -> str:
    """Return the Job's name if only its events remain and all are about the same Job."""
    names = {event.name for event in events if event.kind == kind}
    return names.pop() if len(names) == 1 else ""


def _standing(events: list[Event]) -> list[Event]:
    """Exclude canceled evictions: the taint manager reports both with one reason (pkg/controller/tainteviction)."""
    back = {(e.name, e.uid) for e in events if e.reason == "TaintManagerEviction" and e.message.startswith(_CANCELLED)}
    return [e for e in events if e.reason != "TaintManagerEviction" or (e.name, e.uid) not in back]


def _pod_names(event: Event) -> list[str]:
    """Return the pods in a SuccessfulCreate or SuccessfulDelete event of the Job controller."""
    match = re.search(r"(?:Created|Deleted) pod: (\S+)", event.message)
    return [match[1]] if match else []
