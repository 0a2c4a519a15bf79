"""Workload objects and their conditions, as pure functions.

Reasons and messages are those of Kueue's pkg/workload and pkg/controller/core/workload_controller.go.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from ...apiserver.schema.values import clone
from ...controlplane.owned import reference
from ..conditions import find, holds, put
from .jobs import PRIORITY, PodSet, queue_of
from .quota import Assignment, shown, totals

if TYPE_CHECKING:
    from ...apiserver.schema.kinds import Kind
    from ...apiserver.store import Store

Object = dict[str, Any]
KEY = "workloads.kueue.x-k8s.io"
CLASSES = "workloadpriorityclasses.kueue.x-k8s.io"
POD_CLASSES = "priorityclasses.scheduling.k8s.io"
IN_USE = "kueue.x-k8s.io/resource-in-use"
LONGEST = 63 - 6  # a name, a dash and five digits must fit into a label


def name_for(job: Object, kind: Kind) -> str:
    """Return the Workload's name: kind, name, and some digits of a hash of both and the uid."""
    seed = f"{kind.kind}\n{kind.group}\n{job['metadata']['name']}\n{job['metadata']['uid']}"
    digest = hashlib.sha1(seed.encode(), usedforsecurity=False).hexdigest()[:5]
    return f"{kind.kind.lower()}-{job['metadata']['name']}"[:LONGEST] + f"-{digest}"


def new(store: Store, kind: Kind, job: Object, pod_sets: list[PodSet]) -> Object:
    """Return the Workload of a job."""
    meta = job["metadata"]
    spec = {
        "active": True,
        "queueName": queue_of(job),
        "podSets": described(pod_sets),
        **_priority(store, job, pod_sets),
    }
    return {
        "metadata": {
            "name": name_for(job, kind),
            "labels": {"kueue.x-k8s.io/job-uid": meta["uid"]},
            "finalizers": [IN_USE],
            "ownerReferences": [{**reference(job), "apiVersion": kind.api_version}],
        },
        "spec": spec,
    }


def described(pod_sets: list[PodSet]) -> list[Object]:
    """Return the pod sets in the format of a Workload."""
    return [{"name": each.name, "count": each.count, "template": clone(each.template)} for each in pod_sets]


def _priority(store: Store, job: Object, pod_sets: list[PodSet]) -> Object:
    """Return the priority of the workload's own class, else of its pods' class."""
    name = (job["metadata"].get("labels") or {}).get(PRIORITY)
    priority_class = store.get(CLASSES, None, name) if name else None
    if priority_class is not None:
        return {
            "priorityClassName": name,
            "priority": priority_class["value"],
            "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
            "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name},
        }
    names = [str(each.template["spec"].get("priorityClassName", "")) for each in pod_sets]
    name = next(filter(None, names), "")
    priority_class = store.get(POD_CLASSES, None, name) if name else None
    if priority_class is not None:
        return {
            "priorityClassName": name,
            "priority": priority_class["value"],
            "priorityClassSource": "scheduling.k8s.io/priorityclass",
            "priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": name},
        }
    return {"priority": 0, "priorityClassSource": ""}


def is_reserved(workload: Object) -> bool:
    """Return whether quota is reserved for it."""
    return holds(workload, "QuotaReserved")


def is_admitted(workload: Object) -> bool:
    """Return whether its job may run."""
    return holds(workload, "Admitted")


def is_finished(workload: Object) -> bool:
    """Return whether its job has ended."""
    return holds(workload, "Finished")


def reserve(workload: Object, queue: str, assignment: Assignment, now: str) -> None:
    """Reserve quota, in place."""
    assignments = []
    for pod_set in workload["spec"]["podSets"]:
        flavors, requested = assignment.flavors[pod_set["name"]], totals(pod_set)
        assignments.append(
            {
                "name": pod_set["name"],
                "count": pod_set["count"],
                "flavors": flavors,
                "resourceUsage": {
                    name: shown(name, requested.get(name, requested.get("pods", pod_set["count"]))) for name in flavors
                },
            }
        )
    workload.setdefault("status", {})["admission"] = {"clusterQueue": queue, "podSetAssignments": assignments}
    put(workload, "QuotaReserved", True, "QuotaReserved", f"Quota reserved in ClusterQueue {queue}", now)
    held = find(workload, "Evicted")
    if held is not None and held["status"] == "True":
        put(workload, "Evicted", False, "QuotaReserved", f"Previously: {held['message']}", now)
    workload["status"].pop("resourceRequests", None)


def admit(workload: Object, now: str) -> None:
    """Admit it, in place."""
    put(workload, "Admitted", True, "Admitted", "The workload is admitted", now)


def refuse(workload: Object, reason: str, message: str, now: str) -> bool:
    """Reserve quota or record why not, in place; return whether this changed anything."""
    status = workload.setdefault("status", {})
    held = status.pop("admission", None) is not None
    changed = put(workload, "QuotaReserved", False, reason, message, now)
    if find(workload, "Admitted") is not None:
        changed = put(workload, "Admitted", False, "NoReservation", "The workload has no reservation", now) or changed
    if reason == "Pending":
        status["resourceRequests"] = [
            {"name": each["name"], "resources": {name: shown(name, amount) for name, amount in totals(each).items()}}
            for each in workload["spec"]["podSets"]
        ]
    return changed or held


def evict(workload: Object, reason: str, message: str, now: str) -> None:
    """Mark it as evicted, in place; the quota stays in use until no pod runs."""
    put(workload, "Evicted", True, reason, message, now)
    for check in workload["status"].get("admissionChecks") or []:
        check |= {
            "state": "Pending",
            "message": "Reset to Pending after eviction. Previously: " + check["state"],
            "lastTransitionTime": now,
        }
