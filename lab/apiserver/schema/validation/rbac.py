"""Validation of roles and bindings, on creation and on update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import Cause, invalid_value, required, unsupported
from . import metadata

if TYPE_CHECKING:
    from ..values import Object

SUBJECTS = ("ServiceAccount", "User", "Group")
RBAC = "rbac.authorization.k8s.io"


def role(obj: Object) -> list[Cause]:
    """Validate a Role."""
    return _rules(obj.get("rules"), namespaced=True)


def cluster_role(obj: Object) -> list[Cause]:
    """Validate a ClusterRole."""
    return _rules(obj.get("rules"), namespaced=False)


def _rules(given: Any, *, namespaced: bool) -> list[Cause]:
    causes: list[Cause] = []
    for index, rule in enumerate(given or []):
        at = f"rules[{index}]"
        if not rule.get("verbs"):
            causes.append(required(f"{at}.verbs", "verbs must contain at least one value"))
        paths = rule.get("nonResourceURLs")
        if paths:
            if namespaced:
                causes.append(
                    invalid_value(f"{at}.nonResourceURLs", paths, "namespaced rules cannot apply to non-resource URLs")
                )
            elif rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                text = "rules cannot apply to both regular resources and non-resource URLs"
                causes.append(invalid_value(f"{at}.nonResourceURLs", paths, text))
            continue
        if not rule.get("apiGroups"):
            causes.append(required(f"{at}.apiGroups", "resource rules must supply at least one api group"))
        if not rule.get("resources"):
            causes.append(required(f"{at}.resources", "resource rules must supply at least one resource"))
    return causes


def role_binding(obj: Object) -> list[Cause]:
    """Validate a RoleBinding."""
    return _binding(obj, ("Role", "ClusterRole"), namespaced=True)


def cluster_role_binding(obj: Object) -> list[Cause]:
    """Validate a ClusterRoleBinding."""
    return _binding(obj, ("ClusterRole",), namespaced=False)


def _binding(obj: Object, roles: tuple[str, ...], *, namespaced: bool) -> list[Cause]:
    reference = obj.get("roleRef") or {}
    causes: list[Cause] = []
    if reference.get("apiGroup") != RBAC:
        causes.append(unsupported("roleRef.apiGroup", reference.get("apiGroup", ""), [RBAC]))
    if reference.get("kind", "") not in roles:
        causes.append(unsupported("roleRef.kind", reference.get("kind", ""), roles))
    name = reference.get("name", "")
    if not name:
        causes.append(required("roleRef.name"))
    else:
        causes += [invalid_value("roleRef.name", name, text) for text in metadata.path_segment(name)]
    for index, subject in enumerate(obj.get("subjects") or []):
        causes += _subject(subject, f"subjects[{index}]", namespaced=namespaced)
    return causes


def _subject(subject: Object, at: str, *, namespaced: bool) -> list[Cause]:
    causes: list[Cause] = []
    if not subject.get("name"):
        causes.append(required(f"{at}.name"))
    kind, group = subject.get("kind", ""), subject.get("apiGroup", "")
    if kind == "ServiceAccount":
        name = subject.get("name", "")
        if name:
            causes += [invalid_value(f"{at}.name", name, text) for text in metadata.dns_subdomain(name)]
        if group:
            causes.append(unsupported(f"{at}.apiGroup", group, [""]))
        if not namespaced and not subject.get("namespace"):
            causes.append(required(f"{at}.namespace"))
    elif kind in ("User", "Group"):
        if group != RBAC:
            causes.append(unsupported(f"{at}.apiGroup", group, [RBAC]))
    else:
        causes.append(unsupported(f"{at}.kind", kind, SUBJECTS))
    return causes


def binding_change(old: Object, new: Object) -> list[Cause]:
    """Validate an update of a binding."""
    if old.get("roleRef") == new.get("roleRef"):
        return []
    return [invalid_value("roleRef", new.get("roleRef"), "cannot change roleRef")]
