"""Conditions and counts of ClusterQueues and LocalQueues.

Reasons and messages are those of pkg/cache/clusterqueue.go and pkg/controller/core/localqueue_controller.go.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ...apiserver.schema.quantity import value as parse
from ..conditions import holds, put
from . import workloads
from .quota import Quotas, Share, shown

if TYPE_CHECKING:
    from ...apiserver.store import Store

Object = dict[str, Any]
CLUSTER, LOCAL = "clusterqueues.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io"
FLAVORS, CHECKS = "resourceflavors.kueue.x-k8s.io", "admissionchecks.kueue.x-k8s.io"
SHUT = "Can't submit new workloads to clusterQueue"


def usage_of(workload: Object) -> Quotas:
    """Return a workload's usage of each flavor."""
    usage: Quotas = {}
    for each in workload["status"]["admission"]["podSetAssignments"]:
        for resource, flavor in (each.get("flavors") or {}).items():
            amount = parse((each.get("resourceUsage") or {}).get(resource, "0"))
            usage[flavor, resource] = usage.get((flavor, resource), Fraction(0)) + amount
    return usage


def _names(queue: Object) -> list[str]:
    return [flavor["name"] for group in queue["spec"].get("resourceGroups") or [] for flavor in group["flavors"]]


def _shut(store: Store, queue: Object) -> tuple[str, str] | None:
    """Return why a ClusterQueue admits nothing; None if it is active."""
    if queue["metadata"].get("deletionTimestamp"):
        return "Terminating", "Can't admit new workloads; clusterQueue is terminating"
    reasons: list[tuple[str, str]] = []
    if queue["spec"].get("stopPolicy", "None") != "None":
        reasons.append(("Stopped", "is stopped"))
    missing = [name for name in _names(queue) if store.get(FLAVORS, None, name) is None]
    if missing:
        reasons.append(("FlavorNotFound", f"references missing ResourceFlavor(s): {','.join(missing)}"))
    checks = queue["spec"].get("admissionChecks") or []
    known = {name: store.get(CHECKS, None, name) for name in checks}
    lost = [name for name, check in known.items() if check is None]
    if lost:
        reasons.append(("AdmissionCheckNotFound", f"references missing AdmissionCheck(s): {','.join(lost)}"))
    idle = [name for name, check in known.items() if check is not None and not holds(check, "Active")]
    if idle:
        reasons.append(("AdmissionCheckInactive", f"references inactive AdmissionCheck(s): {','.join(idle)}"))
    if not reasons:
        return None
    return reasons[0][0], f"Can't admit new workloads: {', '.join(why for _, why in reasons)}."


def show_activity(store: Store) -> None:
    """Update the condition Active of all queues."""
    for queue in store.list(CLUSTER):
        shut = _shut(store, queue)
        reason, message = shut or ("Ready", "Can admit new workloads")
        _activity(store, CLUSTER, queue, (shut is None, reason, message))
    for local in store.list(LOCAL):
        cluster = store.get(CLUSTER, None, str(local["spec"].get("clusterQueue", "")))
        if local["spec"].get("stopPolicy", "None") != "None":
            said = False, "Stopped", "LocalQueue is stopped"
        elif cluster is None:
            said = False, "ClusterQueueDoesNotExist", SHUT
        elif not holds(cluster, "Active"):
            said = False, "ClusterQueueIsInactive", SHUT
        else:
            said = True, "Ready", "Can submit new workloads to localQueue"
        _activity(store, LOCAL, local, said)


def _activity(store: Store, key: str, queue: Object, said: tuple[bool, str, str]) -> None:
    state, reason, message = said
    _write(store, key, queue, lambda q: put(q, "Active", state, reason, message, store.now()))


def show_counts(store: Store) -> None:
    """Update the numbers of pending, reserving and admitted workloads of each queue, and their usage."""
    living = [w for w in store.list(workloads.KEY) if not workloads.is_finished(w)]
    for queue in store.list(CLUSTER):
        name = queue["metadata"]["name"]
        locals_ = {
            (q["metadata"]["namespace"], q["metadata"]["name"])
            for q in store.list(LOCAL)
            if q["spec"].get("clusterQueue") == name
        }
        held = [w for w in living if workloads.is_reserved(w) and w["status"]["admission"]["clusterQueue"] == name]
        waiting = [w for w in living if not workloads.is_reserved(w) and _place(w) in locals_]
        _count(store, CLUSTER, queue, queue, waiting, held)
    for local in store.list(LOCAL):
        place = local["metadata"]["namespace"], local["metadata"]["name"]
        mine = [w for w in living if _place(w) == place]
        cluster = store.get(CLUSTER, None, str(local["spec"].get("clusterQueue", "")))
        held = [w for w in mine if workloads.is_reserved(w)]
        _count(store, LOCAL, local, cluster, [w for w in mine if not workloads.is_reserved(w)], held)


def _place(workload: Object) -> tuple[str, str]:
    return workload["metadata"]["namespace"], str(workload["spec"].get("queueName", ""))


def _count(
    store: Store, key: str, queue: Object, cluster: Object | None, waiting: list[Object], held: list[Object]
) -> None:
    admitted = [w for w in held if workloads.is_admitted(w)]
    shut = key == LOCAL and queue["spec"].get("stopPolicy", "None") != "None"
    active = [w for w in waiting if w["spec"].get("active", True)]
    counts = {
        "pendingWorkloads": 0 if shut else len(active),
        "reservingWorkloads": len(held),
        "admittedWorkloads": len(admitted),
        "flavorsReservation": _flavors(cluster, held, key == CLUSTER),
        "flavorsUsage": _flavors(cluster, admitted, key == CLUSTER),
    }
    if key == LOCAL and cluster is not None:
        counts["flavors"] = [
            {
                "name": flavor["name"],
                "resources": [each["name"] for each in flavor["resources"]],
                **_labels(store, flavor["name"]),
            }
            for group in cluster["spec"].get("resourceGroups") or []
            for flavor in group["flavors"]
        ]
    _write(store, key, queue, lambda q: q.setdefault("status", {}).update(counts))


def _labels(store: Store, name: str) -> Object:
    spec = (store.get(FLAVORS, None, name) or {}).get("spec") or {}
    return {"nodeLabels": spec["nodeLabels"]} if spec.get("nodeLabels") else {}


def _flavors(cluster: Object | None, holders: list[Object], borrowing: bool) -> list[Object]:
    """Return the usage of each flavor, including borrowed quota in a ClusterQueue."""
    if cluster is None:
        return []
    used: Quotas = {}
    for workload in holders:
        for place, amount in usage_of(workload).items():
            used[place] = used.get(place, Fraction(0)) + amount
    share = Share.of(cluster, used)
    usage = []
    for group in cluster["spec"].get("resourceGroups") or []:
        for flavor in group["flavors"]:
            resources = []
            for each in flavor["resources"]:
                place, name = (flavor["name"], each["name"]), each["name"]
                total = used.get(place, Fraction(0))
                entry = {"name": name, "total": shown(name, total)}
                if borrowing:
                    entry["borrowed"] = shown(name, max(Fraction(0), total - share.nominal.get(place, Fraction(0))))
                resources.append(entry)
            usage.append({"name": flavor["name"], "resources": resources})
    return usage


def _write(store: Store, key: str, queue: Object, change: Any) -> None:
    store.mutate(key, queue["metadata"].get("namespace"), queue["metadata"]["name"], change, "status")
