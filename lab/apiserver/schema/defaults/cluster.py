"""Defaults of nodes, role bindings, priority classes and custom resource definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..values import Object


RBAC = "rbac.authorization.k8s.io"


def node(obj: Object) -> None:
    """Set the defaults of a Node: allocatable defaults to capacity."""
    obj.setdefault("spec", {})
    status = obj.get("status") or {}
    if status.get("capacity") and "allocatable" not in status:
        status["allocatable"] = dict(status["capacity"])


def binding(obj: Object) -> None:
    """Set the defaults of a RoleBinding or ClusterRoleBinding."""
    reference = obj.setdefault("roleRef", {"apiGroup": "", "kind": "", "name": ""})
    reference["apiGroup"] = reference.get("apiGroup") or RBAC
    for subject in obj.get("subjects") or []:
        if subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = subject.get("apiGroup") or RBAC


def priority_class(obj: Object) -> None:
    """Set the defaults of a PriorityClass."""
    obj.setdefault("value", 0)
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def definition(obj: Object) -> None:
    """Set the defaults of a CustomResourceDefinition."""
    spec = obj.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    if kind:
        names["singular"] = names.get("singular") or kind.lower()
        names["listKind"] = names.get("listKind") or f"{kind}List"
    spec.setdefault("conversion", {"strategy": "None"})
