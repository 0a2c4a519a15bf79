"""Admission plugin ResourceQuota: the usage of a namespace, and whether one more object fits.

Usage is counted from the objects themselves, so that admission never waits for the quota controller; that controller
can use `usage` for the status that it writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import quantity
from ..errors import forbidden
from .limits import total

if TYPE_CHECKING:
    from ..kinds import Kind
    from ..seams import Objects
    from ..values import Object

COMPUTE = ("cpu", "memory", "ephemeral-storage")
# If a quota limits these resources, every container must specify them (pkg/quota/v1/evaluator/core/pods.go).
MUST_SAY = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
COUNTED = (
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
)


def usage(store: Objects, namespace: str, quota: Object) -> dict[str, str]:
    """Return the namespace's usage of everything that the quota limits."""
    hard = quota.get("spec", {}).get("hard") or {}
    used = dict.fromkeys(hard, "0")
    for key in _keys(store, hard):
        for obj in store.list(key, namespace):
            for name, amount in _charge(key, obj, quota).items():
                if name in used:
                    used[name] = quantity.add(used[name], amount)
    return used


def _keys(store: Objects, hard: Object) -> set[str]:
    keys: set[str] = set()
    for name in hard:
        if name.startswith("count/"):
            if name.removeprefix("count/") in store.kinds.by_key:
                keys.add(name.removeprefix("count/"))
        elif name.startswith("services"):
            keys.add("services")
        elif name == "requests.storage" or ".storageclass.storage.k8s.io/" in name:
            keys.add("persistentvolumeclaims")
        elif name in COUNTED:
            keys.add(name)
        else:
            keys.add("pods")
    return keys


def _charge(key: str, obj: Object, quota: Object) -> dict[str, str]:
    """Return the usage of one object in the terms of quotas; empty if the quota's scopes exclude it."""
    charge = {f"count/{key}": "1"}
    if key == "pods":
        if obj.get("status", {}).get("phase") in ("Succeeded", "Failed") or not in_scope(obj, quota):
            # Ended pods only count as objects.
            return charge if in_scope(obj, quota) else {}
        return {**charge, **_pod(obj)}
    if key in COUNTED:
        charge[key] = "1"
    if key == "services":
        kind = obj.get("spec", {}).get("type")
        if kind in ("NodePort", "LoadBalancer"):
            charge["services.nodeports"] = str(len(obj["spec"].get("ports") or []))
        if kind == "LoadBalancer":
            charge["services.loadbalancers"] = "1"
    if key == "persistentvolumeclaims":
        spec = obj.get("spec", {})
        size = (spec.get("resources", {}).get("requests") or {}).get("storage", "0")
        charge["requests.storage"] = size
        if spec.get("storageClassName"):
            prefix = f"{spec['storageClassName']}.storageclass.storage.k8s.io"
            charge[f"{prefix}/requests.storage"] = size
            charge[f"{prefix}/persistentvolumeclaims"] = "1"
    return charge


def _pod(pod: Object) -> dict[str, str]:
    charge = {"pods": "1"}
    for name, amount in total(pod.get("spec", {}), "requests").items():
        charge[f"requests.{name}"] = amount
        if name in COMPUTE or name.startswith("hugepages-"):
            charge[name] = amount
    for name, amount in total(pod.get("spec", {}), "limits").items():
        if name in COMPUTE:
            charge[f"limits.{name}"] = amount
    return charge


def in_scope(pod: Object, quota: Object) -> bool:
    """Return whether a quota's scopes cover a pod."""
    spec = quota.get("spec", {})
    best_effort = pod.get("status", {}).get("qosClass") == "BestEffort"
    terminating = pod.get("spec", {}).get("activeDeadlineSeconds") is not None
    simple = {
        "BestEffort": best_effort,
        "NotBestEffort": not best_effort,
        "Terminating": terminating,
        "NotTerminating": not terminating,
    }
    requirements = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or []]
    requirements += (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    for expression in requirements:
        name, operator = expression.get("scopeName"), expression.get("operator", "Exists")
        if name in simple:
            if not simple[name]:
                return False
        elif name == "PriorityClass":
            held = pod.get("spec", {}).get("priorityClassName", "")
            values = expression.get("values") or []
            fits = {"Exists": bool(held), "DoesNotExist": not held, "In": held in values, "NotIn": held not in values}
            if not fits.get(operator, False):
                return False
    return True


def judge(store: Objects, kind: Kind, new: Object) -> None:
    """Reject an object that does not fit into a quota of its namespace."""
    if not kind.namespaced:
        return
    namespace, name = new["metadata"]["namespace"], new["metadata"].get("name", "")
    for quota in store.list("resourcequotas", namespace):
        hard = quota.get("spec", {}).get("hard") or {}
        charge = {item: amount for item, amount in _charge(kind.key, new, quota).items() if item in hard}
        if kind.key == "pods" and in_scope(new, quota):
            _complete(new, quota, hard)
        if not charge:
            continue
        used = usage(store, namespace, quota)
        over = sorted(
            item
            for item, amount in charge.items()
            if quantity.value(amount) > 0
            and quantity.value(used[item]) + quantity.value(amount) > quantity.value(hard[item])
        )
        if over:
            requested, have, limited = (
                ",".join(f"{item}={quantity.canonical(amounts[item])}" for item in over)
                for amounts in (charge, used, hard)
            )
            why = (
                f"exceeded quota: {quota['metadata']['name']}, requested: {requested}, used: {have}, limited: {limited}"
            )
            raise forbidden(kind.plural, kind.group, name, why)


def _complete(pod: Object, quota: Object, hard: Object) -> None:
    """Reject a pod without a request for a resource that the quota limits."""
    missing: dict[str, list[str]] = {}
    for item in sorted(set(MUST_SAY) & set(hard)):
        part, _, resource = item.rpartition(".")
        for container in [*pod["spec"].get("containers", []), *(pod["spec"].get("initContainers") or [])]:
            if resource not in ((container.get("resources") or {}).get(part or "requests") or {}):
                missing.setdefault(item, []).append(container["name"])
    if missing:
        listed = "; ".join(f"{item} for: {','.join(sorted(names))}" for item, names in missing.items())
        why = f"failed quota: {quota['metadata']['name']}: must specify {listed}"
        raise forbidden("pods", "", pod["metadata"].get("name", ""), why)
