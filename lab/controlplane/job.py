"""The Job controller's queue: when a Job is synchronised, and its removal after its time to live.

Each synchronisation is a `JobSync`. A Job that has ended releases its pods and, with a TTL, is deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from ..apiserver.schema.errors import ApiError
from ..apiserver.schema.values import epoch
from .job_pods import ENDED, TRACKING
from .job_sync import JOBS, Jobs, JobSync, show_count, true_condition
from .queue import Key, Queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..apiserver.store import Store

Object = dict[str, Any]
STATUS_LAG_S = 0.03
"""Seconds from the creation of pods to the Job's status update. As on a real cluster (30 to 60 ms were measured on
1.36), it is written once, at the end of a synchronisation. Before that, pods may be bound, but none runs, at any load
of this machine."""
BATCH_S = 1.0
"""syncJobBatchPeriod of pkg/controller/job: changes of pods, and of a Job's status, are batched."""


class JobController(Jobs):
    """The controller of all Jobs."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, Queue(self.sync))
        self._ends: list[Callable[[], None]] = []
        self._unfinished: dict[Key, tuple[asyncio.TimerHandle, JobSync]] = {}
        """Synchronisations that created pods and have yet to write the status, with their timers."""

    def start(self) -> None:
        """Watch Jobs and their pods."""
        self._ends = [self.store.subscribe(JOBS, self._job), self.store.subscribe("pods", self._pod)]
        for job in self.store.list(JOBS):
            self._job("ADDED", job, None)

    def close(self) -> None:
        """Stop."""
        self.queue.close()
        for timer, _ in self._unfinished.values():
            timer.cancel()
        for end in self._ends:
            end()

    def _job(self, change: str, job: Object, old: Object | None) -> None:
        key = (job["metadata"]["namespace"], job["metadata"]["name"])
        generations = {item["metadata"].get("generation") for item in (job, old) if item is not None}
        if change == "MODIFIED" and old is not None and len(generations) == 1:
            self.queue.later(key, BATCH_S)
        else:
            self.queue.add(key)

    def _pod(self, _: str, pod: Object, __: Object | None) -> None:
        for owner in pod["metadata"].get("ownerReferences") or []:
            if owner.get("controller") and owner["kind"] == "Job":
                key = (pod["metadata"]["namespace"], owner["name"])
                self.queue.later(key, BATCH_S)
                if key in self._unfinished and pod["status"].get("startTime"):  # its kubelet has started it
                    asyncio.get_running_loop().call_soon(self._conclude, key)

    def sync(self, key: Key) -> float | None:
        """Reconcile one Job; return the seconds until its next synchronisation."""
        if key in self._unfinished:
            return STATUS_LAG_S
        job = self.store.get(JOBS, *key)
        if job is None or job["metadata"].get("deletionTimestamp"):
            return self._let_go(key, job)
        if job["spec"].get("managedBy") not in (None, "kubernetes.io/job-controller"):
            return None
        finished = true_condition(job.get("status") or {}, "Complete", "Failed")
        if finished is None:
            look = JobSync(self, key, job)
            look.act()
            if not look.created or not STATUS_LAG_S:
                return look.conclude()
            timer = asyncio.get_running_loop().call_later(STATUS_LAG_S, self._conclude, key)
            self._unfinished[key] = timer, look
            return None
        for pod in self.pods(job):
            self.untrack(pod)
        return self._expire(job, finished)

    def _conclude(self, key: Key) -> None:
        """End the synchronisation that created pods, unless it has ended."""
        if key not in self._unfinished:
            return
        timer, look = self._unfinished.pop(key)
        timer.cancel()
        again = look.conclude()
        if again is not None:
            self.queue.later(key, again)

    def _expire(self, job: Object, finished: Object) -> float | None:
        seconds = job["spec"].get("ttlSecondsAfterFinished")
        if seconds is None:
            return None
        left = epoch(finished["lastTransitionTime"]) + float(seconds) - self.store.clock()
        if left > 0:
            return left
        meta = job["metadata"]
        with contextlib.suppress(ApiError):
            self.store.delete(JOBS, meta["namespace"], meta["name"], propagation="Foreground", uid=meta["uid"])
        return None

    def _let_go(self, key: Key, job: Object | None) -> float | None:
        """Release the pods of a deleted Job; one that waits for them counts the rest later."""
        if job is None:
            for pod in self.store.list("pods", key[0], f"batch.kubernetes.io/job-name={key[1]}"):
                self.untrack(pod)
            return None
        pods = self.pods(job)
        held = [pod for pod in pods if TRACKING in (pod["metadata"].get("finalizers") or [])]
        for pod in held:
            self.untrack(pod)
        if held:
            return BATCH_S
        living = [p for p in pods if p["status"].get("phase") not in ENDED]

        def change(j: Object) -> None:
            status = j.setdefault("status", {})
            status["terminating"] = sum(1 for p in living if p["metadata"].get("deletionTimestamp"))
            status["ready"] = 0
            show_count(status, "active", len(living) - status["terminating"])

        if (job.get("status") or {}).get("startTime"):
            self.store.mutate(JOBS, *key, change, "status")
        return None
