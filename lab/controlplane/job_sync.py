"""One synchronisation of a Job: the pods that it needs now, and its status.

The rules and texts of pkg/controller/job of Kubernetes 1.36: every pod is counted once (a finalizer holds it until
then). An end is announced by FailureTarget or SuccessCriteriaMet and becomes Failed or Complete when no pod runs.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..apiserver.schema.errors import ApiError
from ..apiserver.schema.values import clone, epoch
from .job_pods import (
    ENDED,
    FAILURES,
    TRACKING,
    failure_action,
    format_indexes,
    index_of,
    is_indexed,
    new_pod,
    parse_indexes,
    success_rule,
)

if TYPE_CHECKING:
    from ..apiserver.store import Store
    from .queue import Key, Queue

Object = dict[str, Any]
JOBS = "jobs.batch"
COMPONENT = "job-controller"
POD_BACKOFF_S, MAX_POD_BACKOFF_S = 10, 600
"""DefaultJobPodFailureBackOff and MaxJobPodFailureBackOff in pkg/controller/job."""
FAILED_TEXTS = {
    "BackoffLimitExceeded": "Job has reached the specified backoff limit",
    "DeadlineExceeded": "Job was active longer than specified deadline",
    "FailedIndexes": "Job has failed indexes",
    "MaxFailedIndexesExceeded": "Job has exceeded the specified maximal number of failed indexes",
}


def true_condition(status: Object, *kinds: str) -> Object | None:
    """Return the first condition of these types that is True."""
    return next((c for c in status.get("conditions") or [] if c["type"] in kinds and c["status"] == "True"), None)


def show_count(status: Object, key: str, count: int) -> None:
    """Omit counters that are zero."""
    if count:
        status[key] = count
    else:
        status.pop(key, None)


class Jobs:
    """State shared by all synchronisations of Jobs."""

    def __init__(self, store: Store, queue: Queue) -> None:
        self.store, self.queue = store, queue
        self.last_failure: dict[str, tuple[int, float]] = {}
        """By Job uid: failures since the last success, and the time of the last one."""

    def pods(self, job: Object) -> list[Object]:
        """Return the pods that a Job controls."""
        uid, namespace = job["metadata"]["uid"], job["metadata"]["namespace"]
        return [
            pod
            for pod in self.store.list("pods", namespace, f"batch.kubernetes.io/controller-uid={uid}")
            if any(o["uid"] == uid for o in pod["metadata"].get("ownerReferences") or [])
        ]

    def untrack(self, pod: Object) -> None:
        """Remove the finalizer from a counted pod."""
        meta = pod["metadata"]
        if TRACKING not in (meta.get("finalizers") or []):
            return

        def change(p: Object) -> None:
            left = [f for f in p["metadata"].get("finalizers") or [] if f != TRACKING]
            if left:
                p["metadata"]["finalizers"] = left
            else:
                p["metadata"].pop("finalizers", None)

        self.store.mutate("pods", meta["namespace"], meta["name"], change)

    def event(self, job: Object, kind: str, reason: str, message: str) -> None:
        """Record an event about a Job."""
        self.store.event(job, kind, reason, message, COMPONENT)


class JobSync:
    """One synchronisation of a Job that has not ended."""

    def __init__(self, controller: Jobs, key: Key, job: Object) -> None:
        self.controller, self.store, self.key, self.job = controller, controller.store, key, job
        self.spec, self.uid = job["spec"], job["metadata"]["uid"]
        self.status: Object = clone(job.get("status") or {})
        self.now = self.store.now()
        self.pods = controller.pods(job)
        self.indexed = is_indexed(job)
        self.completed = parse_indexes(self.status.get("completedIndexes", ""))
        self.broken = parse_indexes(self.status.get("failedIndexes", ""))
        self.counted: list[Object] = []
        self.uncounted: dict[str, list[Object]] = {"succeeded": [], "failed": []}
        self.new_failures: list[Object] = []
        self.fail_job = ""
        self.created = False
        self.again: list[float] = []

    def act(self) -> None:
        """Count, decide, create or delete."""
        suspended = bool(self.spec.get("suspend"))
        if not self.status.get("startTime") and not suspended:
            self.status["startTime"] = self.now
        if self.spec.get("activeDeadlineSeconds") is not None and self.status.get("startTime"):
            self.again.append(self._deadline_in())
        self._count()
        self._decide()
        ending = true_condition(self.status, "FailureTarget", "SuccessCriteriaMet")
        active = self._active()
        if ending is not None or suspended:
            for pod in active if ending is None else ():
                self.controller.untrack(pod)  # so that it does not count
            for pod in active:
                self._delete(pod, counts=True)
            self.pods = self.controller.pods(self.job)
            if ending is not None and ending["type"] == "FailureTarget":
                self._count()
        if ending is None and not suspended:
            self._manage(active)

    def conclude(self) -> float | None:
        """Write the status, and the events about it; return the seconds until the next synchronisation."""
        ending = true_condition(self.status, "FailureTarget", "SuccessCriteriaMet")
        events = self._suspension(bool(self.spec.get("suspend"))) if ending is None else []
        self._totals()
        self._announce()
        events += self._finish(ending)
        self._write(self.status)
        for kind, reason, message in events:
            self.controller.event(self.job, kind, reason, message)
        return min((max(s, 0.0) for s in self.again if s < 1e9), default=None)

    def _announce(self) -> None:
        """Write the pods to count before their finalizers are removed, and an end before it takes effect.

        trackJobStatusAndRemoveFinalizers of pkg/controller/job; an Indexed Job counts its successes by index.
        """
        status = clone(self.status)
        for name, pods in self.uncounted.items():
            if pods:
                status["uncountedTerminatedPods"][name] = [pod["metadata"]["uid"] for pod in pods]
                show_count(status, name, status.get(name, 0) - len(pods))
        if self.counted or true_condition(status, "FailureTarget", "SuccessCriteriaMet"):
            self._write(status)
        for pod in self.counted:
            self.controller.untrack(pod)

    # -- counting

    def _count(self) -> None:
        ending = true_condition(self.status, "FailureTarget")
        only_failed = self.spec.get("podReplacementPolicy") == "Failed"
        counted = {p["metadata"]["uid"] for p in self.counted}
        for pod in self.pods:
            meta, phase = pod["metadata"], pod["status"].get("phase")
            if TRACKING not in (meta.get("finalizers") or []) or meta["uid"] in counted:
                continue
            deleted = bool(meta.get("deletionTimestamp"))
            if phase == "Succeeded":
                self._succeeded(pod)
            elif phase == "Failed" or (deleted and (not only_failed or ending is not None)):
                self._failed(pod)
            else:
                continue
            self.counted.append(pod)

    def _succeeded(self, pod: Object) -> None:
        self.controller.last_failure.pop(self.uid, None)
        if self.indexed:
            index = index_of(pod)
            if 0 <= index < self._completions():
                self.completed.add(index)
        else:
            self.status["succeeded"] = self.status.get("succeeded", 0) + 1
            self.uncounted["succeeded"].append(pod)

    def _failed(self, pod: Object) -> None:
        action, why = failure_action(self.job, pod)
        if action == "FailJob" and not self.fail_job:
            self.fail_job = why
        if action == "Ignore":
            return
        self.status["failed"] = self.status.get("failed", 0) + 1
        self.uncounted["failed"].append(pod)
        self.new_failures.append(pod)
        failures, _ = self.controller.last_failure.get(self.uid, (0, 0.0))
        self.controller.last_failure[self.uid] = failures + 1, self._ended_at(pod)
        limit = self.spec.get("backoffLimitPerIndex")
        if self.indexed and limit is not None:
            before = int((pod["metadata"].get("annotations") or {}).get(FAILURES, "0"))
            if action == "FailIndex" or before >= limit:
                self.broken.add(index_of(pod))

    def _ended_at(self, pod: Object) -> float:
        times = [
            c["state"]["terminated"]["finishedAt"]
            for c in pod["status"].get("containerStatuses") or []
            if (c["state"].get("terminated") or {}).get("finishedAt")
        ]
        return max((epoch(t) for t in times), default=self.store.clock())

    def _completions(self) -> int:
        return int(self.spec.get("completions") or 0)

    def _active(self) -> list[Object]:
        return [
            p for p in self.pods if p["status"].get("phase") not in ENDED and not p["metadata"].get("deletionTimestamp")
        ]

    # -- deciding

    def _deadline_in(self) -> float:
        return float(epoch(self.status["startTime"]) + self.spec["activeDeadlineSeconds"] - self.store.clock())

    def _decide(self) -> None:
        if true_condition(self.status, "FailureTarget", "SuccessCriteriaMet"):
            return
        reason = self._failure()
        if reason:
            self._condition("FailureTarget", "True", reason, self.fail_job or FAILED_TEXTS[reason])
            return
        rule = success_rule(self.job, self.completed) if self.indexed else None
        if rule is not None:
            self._condition("SuccessCriteriaMet", "True", "SuccessPolicy", f"Matched rules at index {rule}")
        elif self._complete():
            self._condition(
                "SuccessCriteriaMet", "True", "CompletionsReached", "Reached expected number of succeeded pods"
            )

    def _failure(self) -> str:
        limit = self.spec.get("backoffLimit", 6)
        most_broken = self.spec.get("maxFailedIndexes")
        if self.fail_job:
            return "PodFailurePolicy"
        if (self.new_failures and self.status.get("failed", 0) > limit) or self._restarted_too_often(limit):
            return "BackoffLimitExceeded"
        if (
            self.spec.get("activeDeadlineSeconds") is not None
            and not self.spec.get("suspend")
            and (self.status.get("startTime") and self._deadline_in() <= 0)
        ):
            return "DeadlineExceeded"
        if most_broken is not None and len(self.broken) > most_broken:
            return "MaxFailedIndexesExceeded"
        if self.broken and len(self.broken | self.completed) >= self._completions():
            return "FailedIndexes"
        return ""

    def _restarted_too_often(self, limit: int) -> bool:
        if self.spec["template"]["spec"].get("restartPolicy") != "OnFailure":
            return False
        restarts = sum(
            c["restartCount"]
            for pod in self.pods
            if pod["status"].get("phase") in ("Pending", "Running")
            for key in ("initContainerStatuses", "containerStatuses")
            for c in pod["status"].get(key) or []
        )
        return bool(restarts > 0 if limit == 0 else restarts >= limit)

    def _complete(self) -> bool:
        if self.indexed:
            return len(self.completed) >= self._completions() and not self.broken
        succeeded, completions = self.status.get("succeeded", 0), self.spec.get("completions")
        if completions is None:
            return int(succeeded) > 0 and not self._active()
        return int(succeeded) >= int(completions)

    def _condition(self, kind: str, status: str, reason: str, message: str) -> bool:
        conditions = self.status.setdefault("conditions", [])
        held = next((c for c in conditions if c["type"] == kind), None)
        if held is not None and held["status"] == status:
            return False
        if held is not None:
            conditions.remove(held)
        conditions.append(
            {
                "type": kind,
                "status": status,
                "lastProbeTime": self.now,
                "lastTransitionTime": self.now,
                "reason": reason,
                "message": message,
            }
        )
        return True

    def _suspension(self, suspended: bool) -> list[tuple[str, str, str]]:
        if suspended:
            if self._condition("Suspended", "True", "JobSuspended", "Job suspended"):
                self.status.pop("startTime", None)
                return [("Normal", "Suspended", "Job suspended")]
        elif true_condition(self.status, "Suspended"):
            self._condition("Suspended", "False", "JobResumed", "Job resumed")
            self.status["startTime"] = self.now
            return [("Normal", "Resumed", "Job resumed")]
        return []

    # -- pods

    def _manage(self, active: list[Object]) -> None:
        parallelism = int(self.spec.get("parallelism", 1))
        missing: list[int | None]
        if self.indexed:
            incomplete = [i for i in range(self._completions()) if i not in self.completed and i not in self.broken]
            surplus = [p for p in active if index_of(p) not in incomplete]
            for pod in surplus:
                self._delete(pod)
            active = [p for p in active if p not in surplus]
            taken = {index_of(p) for p in active} | self._occupied()
            missing = [*[i for i in incomplete if i not in taken][: max(0, parallelism - len(active))]]
        else:
            completions = self.spec.get("completions")
            left = parallelism if completions is None else completions - self.status.get("succeeded", 0)
            if completions is None and self.status.get("succeeded", 0):
                left = len(active)
            missing = [None] * max(0, min(parallelism, left) - len(active) - len(self._occupied()))
        for pod in active[parallelism:]:
            self._delete(pod)
        if missing and self._backing_off():
            return
        self._create(missing)

    def _occupied(self) -> set[int]:
        """Return the indexes (or numbers) of terminating pods that still count by the replacement policy."""
        if self.spec.get("podReplacementPolicy") != "Failed":
            return set()
        ending = [p for p in self.pods if p["metadata"].get("deletionTimestamp") and p["status"]["phase"] not in ENDED]
        return {index_of(p) if self.indexed else -number - 2 for number, p in enumerate(ending)}

    def _backing_off(self) -> bool:
        failures, last = self.controller.last_failure.get(self.uid, (0, 0.0))
        if not failures:
            return False
        left = last + min(POD_BACKOFF_S * 2 ** (failures - 1), MAX_POD_BACKOFF_S) - self.store.clock()
        if left > 0:
            self.again.append(left)
        return bool(left > 0)

    def _create(self, missing: list[int | None]) -> None:
        for index in missing:
            failures = sum(1 for p in self.pods if self.indexed and index_of(p) == index)
            try:
                pod = self.store.create(
                    "pods",
                    new_pod(self.job, index, failures),
                    self.key[0],
                    user="system:serviceaccount:kube-system:job-controller",
                )
            except ApiError as error:
                if "is being terminated" not in error.message:
                    self.controller.event(self.job, "Warning", "FailedCreate", f"Error creating: {error.message}")
                    self.again.append(self.controller.queue.failed(self.key))
                return
            self.pods.append(pod)
            self.created = True
            self.controller.event(self.job, "Normal", "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
        self.controller.queue.forget(self.key)

    def _delete(self, pod: Object, *, counts: bool = False) -> None:
        """Delete a pod; unless it counts as failed, its finalizer is removed first so that it does not count."""
        meta = pod["metadata"]
        if not counts:
            self.controller.untrack(pod)
        with contextlib.suppress(ApiError):
            self.store.delete("pods", meta["namespace"], meta["name"], uid=meta["uid"])
            self.controller.event(self.job, "Normal", "SuccessfulDelete", f"Deleted pod: {meta['name']}")

    # -- status

    def _totals(self) -> None:
        self.pods = [p for p in (self.store.get("pods", self.key[0], q["metadata"]["name"]) for q in self.pods) if p]
        active = self._active()
        show_count(self.status, "active", len(active))
        self.status["ready"] = sum(1 for p in active if true_condition(p["status"], "Ready"))
        self.status["terminating"] = sum(
            1 for p in self.pods if p["metadata"].get("deletionTimestamp") and p["status"].get("phase") not in ENDED
        )
        self.status["uncountedTerminatedPods"] = {}
        if self.indexed:
            show_count(self.status, "succeeded", len(self.completed))
            for key, indexes in ("completedIndexes", self.completed), ("failedIndexes", self.broken):
                if indexes:
                    self.status[key] = format_indexes(indexes)

    def _finish(self, ending: Object | None) -> list[tuple[str, str, str]]:
        if ending is None or self.status.get("active") or self.status["terminating"]:
            return []
        if ending["type"] == "FailureTarget":
            self._condition("Failed", "True", ending["reason"], ending["message"])
            return [("Warning", ending["reason"], ending["message"])]
        self._condition("Complete", "True", ending["reason"], ending["message"])
        self.status["completionTime"] = self.now
        return [("Normal", "Completed", "Job completed")]

    def _write(self, status: Object) -> None:
        uid = self.uid

        def change(job: Object) -> None:
            if job["metadata"]["uid"] == uid:
                job["status"] = clone(status)

        self.store.mutate(JOBS, *self.key, change, "status")
