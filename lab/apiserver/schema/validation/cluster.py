"""Validation of nodes, namespaces and leases, and of PriorityClasses and RuntimeClasses."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from ..errors import Cause, forbidden_field, invalid_value, required, unsupported
from . import metadata

if TYPE_CHECKING:
    from ..values import Object


LEVELS = ("privileged", "baseline", "restricted")


MODES = ("audit", "enforce", "warn")


HIGHEST_USER_PRIORITY = 1_000_000_000


def node(obj: Object) -> list[Cause]:
    """Validate a Node."""
    causes: list[Cause] = []
    pairs: set[tuple[str, str]] = set()
    for index, taint in enumerate(obj.get("spec", {}).get("taints") or []):
        at = f"metadata.taints[{index}]"  # the real server also names metadata
        key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        causes += [invalid_value(f"{at}.key", key, text) for text in metadata.qualified_name(key)]
        causes += [invalid_value(f"{at}.value", value, text) for text in metadata.label_value(value)]
        if not effect:
            causes.append(required(f"{at}.effect"))
        elif effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            causes.append(unsupported(f"{at}.effect", effect, ["NoSchedule", "PreferNoSchedule", "NoExecute"]))
        if (key, effect) in pairs:
            text = "taints must be unique by key and effect pair"
            causes.append(Cause(at, "FieldValueDuplicate", f"Duplicate value: {json.dumps(taint)}: {text}"))
        pairs.add((key, effect))
    return causes


def namespace(obj: Object) -> list[Cause]:
    """Validate the labels with which a Namespace sets its pod security level (as the plugin PodSecurity does)."""
    labels, causes = obj["metadata"].get("labels") or {}, []
    for mode in MODES:
        name = f"pod-security.kubernetes.io/{mode}"
        if name in labels and labels[name] not in LEVELS:
            text = f"must be one of {', '.join(LEVELS)}"
            causes.append(invalid_value(f"metadata.labels[{name}]", labels[name], text))
        version = labels.get(f"{name}-version", "latest")
        if version != "latest" and not re.fullmatch(r"v1\.([0-9]|[1-9][0-9]*)", version):
            text = 'must be "latest" or "v1.x"'
            causes.append(invalid_value(f"metadata.labels[{name}-version]", version, text))
    return causes


def runtime_class(obj: Object) -> list[Cause]:
    """Validate a RuntimeClass."""
    handler = obj.get("handler", "")
    if not handler:
        return [required("handler")]
    return [invalid_value("handler", handler, text) for text in metadata.dns_label(handler)]


def runtime_class_change(old: Object, new: Object) -> list[Cause]:
    """Validate an update of a RuntimeClass."""
    if old.get("handler") == new.get("handler"):
        return []
    return [invalid_value("handler", new.get("handler"), "field is immutable")]


def priority_class(obj: Object) -> list[Cause]:
    """Validate a PriorityClass."""
    causes: list[Cause] = []
    name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
    if name.startswith("system-"):
        if name not in ("system-node-critical", "system-cluster-critical"):
            text = "priority class names with 'system-' prefix are reserved for system use only. error: " + name
            causes.append(forbidden_field("metadata.name", text))
    elif value > HIGHEST_USER_PRIORITY:
        text = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        causes.append(forbidden_field("value", text))
    policy = obj.get("preemptionPolicy")
    if policy not in (None, "Never", "PreemptLowerPriority"):
        causes.append(unsupported("preemptionPolicy", policy, ["PreemptLowerPriority", "Never"]))
    return causes


def priority_class_change(old: Object, new: Object) -> list[Cause]:
    """Validate an update of a PriorityClass."""
    causes: list[Cause] = []
    if old.get("value") != new.get("value"):
        causes.append(forbidden_field("value", "may not be changed in an update."))
    if old.get("preemptionPolicy") != new.get("preemptionPolicy"):
        causes.append(invalid_value("preemptionPolicy", new.get("preemptionPolicy"), "field is immutable"))
    return causes


def lease(obj: Object) -> list[Cause]:
    """Validate a Lease."""
    spec = obj.get("spec") or {}
    causes: list[Cause] = []
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        causes.append(invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        causes.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return causes
