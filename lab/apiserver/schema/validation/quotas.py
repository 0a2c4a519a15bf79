"""Validation of ResourceQuotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import quantity
from ..errors import Cause, invalid_value
from . import metadata

if TYPE_CHECKING:
    from ..values import Object


COUNTED = {
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
}


QUOTA_STANDARD = COUNTED | {
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "storage",
}


SCOPES = (
    *("Terminating", "NotTerminating", "BestEffort", "NotBestEffort"),
    *("PriorityClass", "CrossNamespacePodAffinity", "VolumeAttributesClass"),
)


COMPUTED = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")


def quota(obj: Object) -> list[Cause]:
    """Validate a ResourceQuota."""
    causes: list[Cause] = []
    for name, amount in (obj.get("spec", {}).get("hard") or {}).items():
        at = f"spec.hard[{name}]"
        causes += _quota_name(name, at)
        if quantity.value(amount) < 0:
            causes.append(invalid_value(at, amount, "must be greater than or equal to 0"))
        elif (name in COUNTED or name.startswith("count/")) and quantity.value(amount).denominator != 1:
            causes.append(invalid_value(at, amount, "must be an integer"))
    return causes + _scopes(obj.get("spec") or {})


def quota_change(old: Object, new: Object) -> list[Cause]:
    """Validate an update of a ResourceQuota."""
    before, after = old["spec"].get("scopes") or [], new["spec"].get("scopes") or []
    if sorted(before) == sorted(after):
        return []
    return [invalid_value("spec.scopes", after, "field is immutable")]


def _quota_name(name: str, at: str) -> list[Cause]:
    wrong = [invalid_value(at, name, text) for text in metadata.qualified_name(name)]
    if wrong or "/" in name or name in QUOTA_STANDARD or name.startswith(("hugepages-", "requests.hugepages-")):
        return wrong
    return [
        invalid_value(at, name, "must be a standard resource type or fully qualified"),
        invalid_value(at, name, "must be a standard resource for quota"),
    ]


def _scopes(spec: Object) -> list[Cause]:
    """Validate the scopes of a quota: each alone, with the resources and with each other."""
    scopes, causes = spec.get("scopes") or [], []
    for scope in scopes:
        if scope not in SCOPES:
            causes.append(invalid_value("spec.scopes", scopes, "unsupported scope"))
        allowed = ("pods",) if scope == "BestEffort" else ("pods", *COMPUTED)
        causes += [
            invalid_value("spec.scopes", scopes, "unsupported scope applied to resource")
            for name in spec.get("hard") or {}
            if scope in SCOPES and (name in COMPUTED or name in COUNTED) and name not in allowed
        ]
    for pair in ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"}):
        if pair <= set(scopes):
            causes.append(invalid_value("spec.scopes", scopes, "conflicting scopes"))
    return causes
