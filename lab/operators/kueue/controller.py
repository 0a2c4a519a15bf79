"""One Workload per job, resumed when admitted, suspended when evicted.

As pkg/controller/jobframework/reconciler.go: the Workload decides, the job's `suspend` follows.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from ...apiserver.schema.errors import ApiError
from ...apiserver.schema.values import clone
from ...controlplane.owned import controller_of, is_of
from ...controlplane.queue import Key, Queue
from ..conditions import find, holds, put
from . import workloads
from .admission import Admission
from .jobs import INTEGRATIONS, Integration, PodSet, queue_of
from .webhook import BY_KIND, parent_in_queue
from .workloads import IN_USE, KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...apiserver.store import Store

Object = dict[str, Any]
FLAVORS = "resourceflavors.kueue.x-k8s.io"
# pkg/controller/jobframework: the component name in the events of each kind's reconciler.
COMPONENTS = {
    "jobs.batch": "batch/job-kueue-controller",
    "jobsets.jobset.x-k8s.io": "jobset.x-k8s.io/jobset-kueue-controller",
    "mpijobs.kubeflow.org": "kubeflow.org/mpijob-kueue-controller",
    "pytorchjobs.kubeflow.org": "kubeflow.org/pytorchjob-kueue-controller",
    "trainjobs.trainer.kubeflow.org": "trainer.kubeflow.org/trainjob-kueue-controller",
}


class KueueController:
    """The controller of the Workloads of jobs; `Admission` decides about them."""

    def __init__(self, store: Store, options: Mapping[str, Any]) -> None:
        self.store = store
        self.wait_for_pods_s: float | None = options.get("wait_for_pods_ready_s")
        left_out = options.get("without") or []
        self.kinds = [each for each in INTEGRATIONS if each.key in store.kinds.by_key and each.key not in left_out]
        self._queues = {each.key: Queue(functools.partial(self._sync, each)) for each in self.kinds}
        self._admission = Admission(store)
        self._ends: list[Callable[[], None]] = []

    def start(self) -> None:
        """Watch jobs and Workloads."""
        for each in self.kinds:
            self._ends.append(self.store.subscribe(each.key, functools.partial(self._job, each)))
            for job in self.store.list(each.key):
                self._job(each, "ADDED", job, None)
        self._ends.append(self.store.subscribe(KEY, self._workload))
        self._admission.start()

    def close(self) -> None:
        """Stop."""
        self._admission.close()
        for queue in self._queues.values():
            queue.close()
        for end in self._ends:
            end()

    def _job(self, kind: Integration, _: str, job: Object, __: Object | None) -> None:
        self._queues[kind.key].add((job["metadata"]["namespace"], job["metadata"]["name"]))

    def _workload(self, change: str, workload: Object, _: Object | None) -> None:
        owner = controller_of(workload)
        key = BY_KIND.get(owner["kind"], "") if owner else ""
        if owner is not None and key in self._queues:
            self._queues[key].add((workload["metadata"]["namespace"], owner["name"]))
        if change != "DELETED" and owner is not None and workload["metadata"].get("deletionTimestamp"):
            job = self.store.get(key, workload["metadata"]["namespace"], owner["name"]) if key in self._queues else None
            if job is None or job["metadata"]["uid"] != owner["uid"]:
                self._release(workload)

    def _sync(self, kind: Integration, key: Key) -> float | None:
        """Reconcile one job and its Workload; return the seconds until the next time."""
        job = self.store.get(kind.key, *key)
        if job is not None and job["metadata"].get("deletionTimestamp"):  # a foreground deletion waits for the Workload
            workload = next((w for w in self.store.list(KEY, key[0]) if is_of(job, w)), None)
            if workload is not None and workload["metadata"].get("finalizers"):
                self._release(workload)
            return None
        if job is None or not queue_of(job) or parent_in_queue(self.store, job):
            return None
        pod_sets = kind.pod_sets(self.store, job)
        workload = next((w for w in self.store.list(KEY, key[0]) if is_of(job, w)), None)
        end = kind.end(job)
        if workload is None:
            if end is None and pod_sets:
                self._create(kind, job, pod_sets)
            return None
        if workload["metadata"].get("deletionTimestamp"):
            self._stop(kind, job, workload, "Workload is deleted")
            self._release(workload)
            return None
        if end is not None:
            self._finish(kind, job, workload, end)
            return None
        return self._follow(kind, job, workload, pod_sets)

    def _follow(self, kind: Integration, job: Object, workload: Object, pod_sets: list[PodSet]) -> float | None:
        """Start or stop the job according to its Workload."""
        if holds(workload, "Evicted") and workloads.is_reserved(workload):
            self._evicted(kind, job, workload)
        elif not kind.is_suspended(job):
            if not workloads.is_admitted(workload):
                self._stop(kind, job, workload, "Not admitted by cluster queue")
            else:
                return self._pods_ready(kind, job, workload)
        elif workloads.is_admitted(workload):
            self._run(kind, job, workload)
        elif not workloads.is_reserved(workload):
            self._agree(kind, job, workload, pod_sets)
        return None

    # -- the life of a Workload

    def _create(self, kind: Integration, job: Object, pod_sets: list[PodSet]) -> None:
        meta, served = job["metadata"], self.store.kind(kind.key)
        if not kind.is_suspended(job):
            self._stop(kind, job, None, "Missing Workload; unable to restore pod templates")
        made = workloads.new(self.store, served, job, pod_sets)
        with contextlib.suppress(ApiError):  # the old Workload of that name is still terminating
            self.store.create(KEY, made, meta["namespace"])
            self._event(
                kind, job, "CreatedWorkload", f"Created Workload: {meta['namespace']}/{made['metadata']['name']}"
            )

    def _agree(self, kind: Integration, job: Object, workload: Object, pod_sets: list[PodSet]) -> None:
        """Update a pending Workload after a change of its job."""
        spec = workload["spec"]
        desired = workloads.described(pod_sets)
        if spec.get("queueName") != queue_of(job) or spec["podSets"] != desired:
            self.change(workload, lambda w: w["spec"].update(queueName=queue_of(job), podSets=desired))
            self._event(
                kind,
                job,
                "UpdatedWorkload",
                "Updated not matching Workload for suspended job: "
                f"{workload['metadata']['namespace']}/{workload['metadata']['name']}",
            )

    def _run(self, kind: Integration, job: Object, workload: Object) -> None:
        """Resume the job on the nodes of its flavors."""
        admission = workload["status"]["admission"]
        infos = {each["name"]: self._info(workload, each) for each in admission["podSetAssignments"]}

        def change(obj: Object) -> None:
            kind.inject(self.store, obj, infos)
            kind.set_suspended(obj, False)

        self.store.mutate(kind.key, job["metadata"]["namespace"], job["metadata"]["name"], change)
        self._event(kind, job, "Started", f"Admitted by clusterQueue {admission['clusterQueue']}")

    def _info(self, workload: Object, assignment: Object) -> Object:
        selector: dict[str, str] = {}
        tolerations: list[Object] = []
        for name in dict.fromkeys(assignment["flavors"].values()):
            spec = (self.store.get(FLAVORS, None, name) or {}).get("spec") or {}
            selector |= spec.get("nodeLabels") or {}
            tolerations += spec.get("tolerations") or []
        return {
            "count": assignment["count"],
            "nodeSelector": selector,
            "tolerations": tolerations,
            "labels": {"kueue.x-k8s.io/podset": assignment["name"]},
            "annotations": {"kueue.x-k8s.io/workload": workload["metadata"]["name"]},
        }

    def _stop(self, kind: Integration, job: Object, workload: Object | None, why: str) -> None:
        """Suspend a running job and restore its templates."""
        if kind.is_suspended(job):
            return
        original = {each["name"]: each["template"] for each in workload["spec"]["podSets"]} if workload else {}

        def change(obj: Object) -> None:
            kind.set_suspended(obj, True)
            kind.restore(self.store, obj, original)

        self.store.mutate(kind.key, job["metadata"]["namespace"], job["metadata"]["name"], change)
        self._event(kind, job, "Stopped", why)

    def _evicted(self, kind: Integration, job: Object, workload: Object) -> None:
        held = find(workload, "Evicted") or {}
        self._stop(kind, job, workload, held["message"])
        if kind.active(job):
            return  # the quota stays in use until the last pod has ended

        def change(w: Object) -> None:
            now, active = self.store.now(), w["spec"].get("active", True)
            waits = not active or held["reason"] in ("ClusterQueueStopped", "LocalQueueStopped")
            put(w, "Requeued", not waits, held["reason"], held["message"], now)
            workloads.refuse(w, "Pending", held["message"], now)

        self.change(workload, change, "status")

    def _finish(self, kind: Integration, job: Object, workload: Object, end: Object) -> None:
        if not workloads.is_finished(workload):
            reason = "Succeeded" if end["type"] == kind.finished[0] else "Failed"
            how = "successfully" if reason == "Succeeded" else "with failure"
            message = end.get("message") or f"Job finished {how}"
            self.change(workload, lambda w: put(w, "Finished", True, reason, message, self.store.now()), "status")
            meta = workload["metadata"]
            self._event(
                kind, job, "FinishedWorkload", f"Workload '{meta['namespace']}/{meta['name']}' is declared finished"
            )
        if workload["metadata"].get("finalizers"):
            self._release(workload)

    def _release(self, workload: Object) -> None:
        """Remove Kueue's finalizer."""

        def change(w: Object) -> None:
            left = [f for f in w["metadata"].get("finalizers") or [] if f != IN_USE]
            w["metadata"]["finalizers"] = left
            if not left:
                del w["metadata"]["finalizers"]

        self.change(workload, change)

    def _pods_ready(self, kind: Integration, job: Object, workload: Object) -> float | None:
        """With waitForPodsReady: set the condition PodsReady, and evict a workload after its timeout."""
        if self.wait_for_pods_s is None:
            return None
        ready, now = kind.ready(job), self.store.clock()
        reason, message = (
            ("Started", "All pods reached readiness and the workload is running")
            if ready
            else ("WaitForStart", "Not all pods are ready or succeeded")
        )
        self.change(workload, lambda w: put(w, "PodsReady", ready, reason, message, self.store.now()), "status")
        if ready:
            return None
        left = self._admission.fit.since(workload, "Admitted") + self.wait_for_pods_s - now
        if left > 0:
            return left
        where = f"{workload['metadata']['namespace']}/{workload['metadata']['name']}"
        self._admission.evict(workload, "PodsReadyTimeout", f"Exceeded the PodsReady timeout {where}")
        return None

    # -- helpers

    def change(self, workload: Object, change: Callable[[Object], object], subresource: str | None = None) -> None:
        """Edit a Workload."""
        meta = workload["metadata"]
        self.store.mutate(KEY, meta["namespace"], meta["name"], change, subresource)

    def _event(self, kind: Integration, job: Object, reason: str, message: str) -> None:
        self.store.event(clone(job), "Normal", reason, message, COMPONENTS[kind.key])
