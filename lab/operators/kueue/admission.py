"""Admission of workloads: a pass over the queues in order of priority and age, for whole workloads only.

StrictFIFO waits for the first in line, BestEffortFIFO tries the next (pkg/queue, pkg/scheduler). A workload may preempt
others to get their quota, if its ClusterQueue's preemption policy allows it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from ...apiserver.schema import selectors
from ...apiserver.schema.values import epoch, rfc3339
from ..conditions import find, holds, put
from . import queues, workloads
from .fit import Fit
from .preemption import Preemption
from .quota import Assignment, cohort_of
from .workloads import KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...apiserver.store import Store

Object = dict[str, Any]
COMPONENT = "kueue-admission"
BACKOFF_S = 60
"""requeuingStrategy.backoffBaseSeconds of Kueue's configuration."""
WATCHED = (KEY, queues.CLUSTER, queues.LOCAL, queues.FLAVORS, queues.CHECKS)


class Admission:
    """The admission loop: a pass over all queues after each change, in one step, so that no quota is given twice."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ends: list[Callable[[], None]] = []
        self._due = False
        self._timer: asyncio.TimerHandle | None = None
        self.fit = Fit(store)

    def start(self) -> None:
        """Watch Workloads, queues and flavors."""
        self._ends = [self._store.subscribe(key, self._soon) for key in WATCHED]
        self._ends.append(self._store.subscribe(KEY, self.fit.arrived))
        self._soon()

    def close(self) -> None:
        """Stop."""
        self._due = True
        if self._timer is not None:
            self._timer.cancel()
        for end in self._ends:
            end()

    def _soon(self, *_: object) -> None:
        if not self._due:
            with contextlib.suppress(RuntimeError):  # no loop yet: the first change after the start triggers it
                asyncio.get_running_loop().call_soon(self._pass)
                self._due = True

    def _pass(self) -> None:
        self._due = False
        store = self._store
        queues.show_activity(store)
        living = [
            w for w in store.list(KEY) if not workloads.is_finished(w) and not w["metadata"].get("deletionTimestamp")
        ]
        lines: dict[str, list[Object]] = {}
        for workload in living:
            queue = self._place(workload)
            if queue and not workloads.is_reserved(workload):
                lines.setdefault(queue, []).append(workload)
        for workload in living:
            if workloads.is_reserved(workload):
                self._check(workload)
        for queue in sorted(lines):
            self._line(queue, sorted(lines[queue], key=self.fit.order))
        queues.show_counts(store)

    # -- the queue of a workload

    def _place(self, workload: Object) -> str:
        """Return the ClusterQueue of a workload; '' without one, with the reason in its conditions."""
        store, name = self._store, str(workload["spec"].get("queueName", ""))
        if not workload["spec"].get("active", True):
            if workloads.is_reserved(workload) and not holds(workload, "Evicted"):
                self.evict(workload, "Deactivated", "The workload is deactivated")
            elif not holds(workload, "Evicted"):
                self._change(
                    workload, lambda w: workloads.evict(w, "Deactivated", "The workload is deactivated", store.now())
                )
            return ""
        local = store.get(queues.LOCAL, workload["metadata"]["namespace"], name)
        cluster = str((local or {"spec": {}})["spec"].get("clusterQueue", ""))
        cluster_queue = store.get(queues.CLUSTER, None, cluster) if cluster else None
        why = ""
        if local is None:
            why = f"LocalQueue {name} doesn't exist"
        elif local["spec"].get("stopPolicy", "None") != "None":
            why = f"LocalQueue {name} is inactive"
        elif cluster_queue is None:
            why = f"ClusterQueue {cluster} doesn't exist"
        elif not holds(cluster_queue, "Active"):
            why = f"ClusterQueue {cluster} is inactive"
        if not why:
            self._restarted(workload)
            if self._backs_off(workload):
                return ""
        elif workloads.is_reserved(workload):
            self._drain(workload, local, cluster_queue)
        else:
            self._refuse(workload, "Inadmissible", why)
        return "" if why else cluster

    def _drain(self, workload: Object, local: Object | None, cluster: Object | None) -> None:
        """Evict admitted workloads of a queue with HoldAndDrain."""
        for queue, reason, what in (
            (local, "LocalQueueStopped", "LocalQueue"),
            (cluster, "ClusterQueueStopped", "ClusterQueue"),
        ):
            stops = queue is not None and queue["spec"].get("stopPolicy") == "HoldAndDrain"
            if stops and not holds(workload, "Evicted"):
                self.evict(workload, reason, f"The {what} is stopped")
                return

    def _backs_off(self, workload: Object) -> bool:
        """Return whether a workload waits for its requeue time; a timer triggers the next pass."""
        state = (workload.get("status") or {}).get("requeueState") or {}
        left = epoch(state["requeueAt"]) - self._store.clock() if state.get("requeueAt") else 0.0
        if left <= 0:
            return False
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(left, self._soon)
        return True

    def _restarted(self, workload: Object) -> None:
        held = find(workload, "Requeued")
        if held is None or held["status"] == "True":
            return
        restarts = {
            "ClusterQueueStopped": ("ClusterQueueRestarted", "The ClusterQueue was restarted after being stopped"),
            "LocalQueueStopped": ("LocalQueueRestarted", "The LocalQueue was restarted after being stopped"),
            "Deactivated": ("Reactivated", "The workload was reactivated"),
        }
        if held["reason"] in restarts:
            reason, message = restarts[held["reason"]]
            self._change(workload, lambda w: put(w, "Requeued", True, reason, message, self._store.now()))

    # -- one queue

    def _line(self, name: str, waiting: list[Object]) -> None:
        queue = self._store.need(queues.CLUSTER, None, name)
        strict = queue["spec"].get("queueingStrategy") == "StrictFIFO"
        for workload in waiting:
            if not self._try(queue, workload) and strict:
                return

    def _try(self, queue: Object, workload: Object) -> bool:
        store = self._store
        labels = (store.get("namespaces", None, workload["metadata"]["namespace"]) or {"metadata": {}})["metadata"]
        selector = queue["spec"].get("namespaceSelector")
        if selector is None or not selectors.labels(selector)(labels.get("labels") or {}):
            self._refuse(workload, "Pending", "Workload namespace doesn't match ClusterQueue selector")
            return False
        assignment = self.fit.assign(queue, workload)
        if assignment.fits:
            self._reserve(workload, queue, assignment)
            return True
        victims = Preemption(store, self.fit).victims(queue, workload) if assignment.preempting else []
        message = assignment.message
        if victims:
            message += f". Pending the preemption of {len(victims)} workload(s)"
        self._refuse(workload, "Pending", message)
        for victim in victims:
            if not holds(victim, "Evicted"):
                self._preempt(queue, workload, victim)
        return False

    def _reserve(self, workload: Object, queue: Object, assignment: Assignment) -> None:
        name, store = queue["metadata"]["name"], self._store
        checks = queue["spec"].get("admissionChecks") or []
        waited = store.clock() - epoch(workload["metadata"]["creationTimestamp"])

        def change(w: Object) -> None:
            now = store.now()
            workloads.reserve(w, name, assignment, now)
            if checks:
                w["status"]["admissionChecks"] = [
                    {"name": check, "state": "Pending", "message": "", "lastTransitionTime": now} for check in checks
                ]
            else:
                workloads.admit(w, now)

        self._change(workload, change)
        text = f"Quota reserved in ClusterQueue {name}, wait time since queued was {waited:.0f}s"
        self._event(workload, "Normal", "QuotaReserved", text)
        if not checks:
            self._event(
                workload, "Normal", "Admitted", f"Admitted by ClusterQueue {name}, wait time since reservation was 0s"
            )

    def _check(self, workload: Object) -> None:
        """Admit a workload that waited for admission checks only."""
        checks = (workload.get("status") or {}).get("admissionChecks") or []
        if workloads.is_admitted(workload) or holds(workload, "Evicted") or not checks:
            return
        if all(check["state"] == "Ready" for check in checks):
            self._change(workload, lambda w: workloads.admit(w, self._store.now()))
        elif any(check["state"] == "Rejected" for check in checks):
            self.evict(workload, "AdmissionCheck", "At least one admission check is false")

    # -- rejecting, evicting

    def _refuse(self, workload: Object, reason: str, message: str) -> None:
        before = find(workload, "QuotaReserved") or {}
        if (before.get("status"), before.get("reason"), before.get("message")) == ("False", reason, message):
            return
        self._change(workload, lambda w: workloads.refuse(w, reason, message, self._store.now()))
        if reason == "Pending":
            self._event(workload, "Warning", "Pending", message[:1024])

    def evict(self, workload: Object, reason: str, message: str) -> None:
        """Evict a workload, so that its job is suspended.

        A workload whose pods did not start has a longer back-off after each eviction.
        """

        def change(w: Object) -> None:
            workloads.evict(w, reason, message, self._store.now())
            if reason == "PodsReadyTimeout":
                count = int((w["status"].get("requeueState") or {}).get("count", 0)) + 1
                at = self._store.clock() + BACKOFF_S * 2 ** (count - 1)
                w["status"]["requeueState"] = {"count": count, "requeueAt": rfc3339(at)}

        self._change(workload, change)
        self._event(workload, "Normal", f"EvictedDueTo{reason}", message)

    def _preempt(self, queue: Object, workload: Object, victim: Object) -> None:
        same = victim["status"]["admission"]["clusterQueue"] == queue["metadata"]["name"]
        reason = "InClusterQueue" if same else "InCohortReclamation"
        why = "prioritization in the ClusterQueue" if same else "reclamation within the cohort"
        uid = workload["metadata"]["uid"]
        owner = next((o["uid"] for o in workload["metadata"].get("ownerReferences") or []), "UNKNOWN")
        theirs = self._store.need(queues.CLUSTER, None, victim["status"]["admission"]["clusterQueue"])
        paths = f"preemptor path: {_path(queue)}; preemptee path: {_path(theirs)}"
        message = f"Preempted to accommodate a workload (UID: {uid}, JobUID: {owner}) due to {why}; {paths}"
        self._change(victim, lambda w: put(w, "Preempted", True, reason, message, self._store.now()))
        self.evict(victim, "Preempted", message)
        self._event(victim, "Normal", "Preempted", message)

    # -- helpers

    def _change(self, workload: Object, change: Callable[[Object], object]) -> None:
        meta = workload["metadata"]
        self._store.mutate(KEY, meta["namespace"], meta["name"], change, "status")

    def _event(self, workload: Object, kind: str, reason: str, message: str) -> None:
        self._store.event(workload, kind, reason, message, COMPONENT)


def _path(queue: Object) -> str:
    """Format a ClusterQueue below its cohort, as Kueue does (buildCQPath of pkg/scheduler/preemption)."""
    return "/".join(["", *filter(None, [cohort_of(queue)]), queue["metadata"]["name"]])
