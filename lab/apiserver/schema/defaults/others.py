"""Defaults of Secrets, claims, bindings, limits and definitions."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from .. import quantity

if TYPE_CHECKING:
    from ..values import Object

RBAC = "rbac.authorization.k8s.io"


def secret(obj: Object) -> None:
    """Fill in a Secret: stringData moves into data."""
    obj.setdefault("type", "Opaque")
    for key, value in (obj.pop("stringData", None) or {}).items():
        obj.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()


def node(obj: Object) -> None:
    """Fill in a Node: what it can allocate is what it has, unless it says otherwise."""
    obj.setdefault("spec", {})
    status = obj.get("status") or {}
    if status.get("capacity") and "allocatable" not in status:
        status["allocatable"] = dict(status["capacity"])


def claim(obj: Object) -> None:
    """Fill in a PersistentVolumeClaim."""
    obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    obj["spec"].setdefault("resources", {})


def volume(obj: Object) -> None:
    """Fill in a PersistentVolume."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")


def storage_class(obj: Object) -> None:
    """Fill in a StorageClass."""
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def binding(obj: Object) -> None:
    """Fill in a RoleBinding or ClusterRoleBinding."""
    reference = obj.setdefault("roleRef", {"apiGroup": "", "kind": "", "name": ""})
    reference["apiGroup"] = reference.get("apiGroup") or RBAC
    for subject in obj.get("subjects") or []:
        if subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = subject.get("apiGroup") or RBAC


def limit_range(obj: Object) -> None:
    """Fill in a LimitRange: default limits and requests of containers follow from max and min."""
    for item in (obj.get("spec") or {}).get("limits") or []:
        if item.get("type") != "Container":
            continue
        for source, target in (("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")):
            for name, amount in (item.get(source) or {}).items():
                item.setdefault(target, {}).setdefault(name, quantity.canonical(amount))


def priority_class(obj: Object) -> None:
    """Fill in a PriorityClass."""
    obj.setdefault("value", 0)
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def definition(obj: Object) -> None:
    """Fill in a CustomResourceDefinition."""
    spec = obj.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    if kind:
        names["singular"] = names.get("singular") or kind.lower()
        names["listKind"] = names.get("listKind") or f"{kind}List"
    spec.setdefault("conversion", {"strategy": "None"})
