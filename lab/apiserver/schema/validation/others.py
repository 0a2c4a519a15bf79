"""Validation of ConfigMaps, Secrets, nodes, claims, quotas, limits and classes, on creation and on update."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING

from .. import quantity
from ..errors import Cause, forbidden_field, invalid_value, required, too_long, unsupported
from . import metadata

if TYPE_CHECKING:
    from ..values import Object

_KEY = re.compile(r"^[-._a-zA-Z0-9]+$")
KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
MAX_DATA = 1024 * 1024
FROZEN = "field is immutable when `immutable` is set"


def _key(key: str) -> list[str]:
    found = [metadata.length(253)] if len(key) > 253 else []
    if not _KEY.match(key):
        found.append(KEY_TEXT)
    if key == ".":
        found.append("must not be '.'")
    elif key == "..":
        found.append("must not be '..'")
    elif key.startswith(".."):
        found.append("must not start with '..'")
    return found


def _size(value: str) -> int:
    return len(base64.b64decode(value))


def config_map(obj: Object) -> list[Cause]:
    """Judge a ConfigMap."""
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    found: list[Cause] = []
    size = 0
    for key, value in data.items():
        found += [invalid_value(f"data[{key}]", key, text) for text in _key(key)]
        if key in binary:
            found.append(invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData"))
        size += len(value.encode())
    for key, value in binary.items():
        found += [invalid_value(f"binaryData[{key}]", key, text) for text in _key(key)]
        size += _size(value)
    if size > MAX_DATA:
        found.append(too_long("[]", MAX_DATA))
    return found


def _frozen(old: Object, new: Object, parts: tuple[str, ...]) -> list[Cause]:
    if not old.get("immutable"):
        return []
    found = [] if new.get("immutable") else [forbidden_field("immutable", FROZEN)]
    return found + [forbidden_field(part, FROZEN) for part in parts if (old.get(part) or {}) != (new.get(part) or {})]


def config_map_change(old: Object, new: Object) -> list[Cause]:
    """Judge a change of a ConfigMap."""
    return _frozen(old, new, ("data", "binaryData"))


SECRET_NEEDS: dict[str, tuple[str, ...]] = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def secret(obj: Object) -> list[Cause]:
    """Judge a Secret."""
    data = obj.get("data") or {}
    found: list[Cause] = []
    for key in data:
        found += [invalid_value(f"data[{key}]", key, text) for text in _key(key)]
    if sum(_size(value) for value in data.values()) > MAX_DATA:
        found.append(too_long("data", MAX_DATA))
    kind = obj.get("type", "")
    for key in SECRET_NEEDS.get(kind, ()):
        if key not in data:
            found.append(required(f"data[{key}]"))
        elif key.startswith(".docker"):
            found += _docker(key, data[key])
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & set(data):
        found += [required("data[username]"), required("data[password]")]
    if kind == "kubernetes.io/service-account-token":
        name = "kubernetes.io/service-account.name"
        if not (obj["metadata"].get("annotations") or {}).get(name):
            found.append(required(f"metadata.annotations[{name}]"))
    return found


def _docker(key: str, value: str) -> list[Cause]:
    text = base64.b64decode(value).decode(errors="replace")
    try:
        json.loads(text)
    except ValueError:
        first = text.strip()[:1]
        why = f"invalid character '{first}' looking for beginning of value" if first else "unexpected end of JSON input"
        return [invalid_value(f"data[{key}]", "<secret contents redacted>", why)]
    return []


def secret_change(old: Object, new: Object) -> list[Cause]:
    """Judge a change of a Secret."""
    found = []
    if old.get("type") != new.get("type"):
        found.append(invalid_value("type", new.get("type"), "field is immutable"))
    return found + _frozen(old, new, ("data",))


def node(obj: Object) -> list[Cause]:
    """Judge a Node."""
    found: list[Cause] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(obj.get("spec", {}).get("taints") or []):
        at = f"metadata.taints[{index}]"  # the real server says metadata, too
        key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        found += [invalid_value(f"{at}.key", key, text) for text in metadata.qualified_name(key)]
        found += [invalid_value(f"{at}.value", value, text) for text in metadata.label_value(value)]
        if not effect:
            found.append(required(f"{at}.effect"))
        elif effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            found.append(unsupported(f"{at}.effect", effect, ["NoSchedule", "PreferNoSchedule", "NoExecute"]))
        if (key, effect) in seen:
            text = "taints must be unique by key and effect pair"
            found.append(Cause(at, "FieldValueDuplicate", f"Duplicate value: {json.dumps(taint)}: {text}"))
        seen.add((key, effect))
    return found


ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def claim(obj: Object) -> list[Cause]:
    """Judge a PersistentVolumeClaim."""
    spec = obj.get("spec", {})
    found: list[Cause] = []
    if not spec.get("accessModes"):
        found.append(required("spec.accessModes", "at least 1 access mode is required"))
    for mode in spec.get("accessModes") or []:
        if mode not in ACCESS_MODES:
            found.append(unsupported("spec.accessModes", mode, ACCESS_MODES))
    found += metadata.selector(spec.get("selector"), "spec.selector")
    size = (spec.get("resources", {}).get("requests") or {}).get("storage")
    if size is None:
        found.append(required("spec.resources[storage]"))
    elif quantity.value(size) <= 0:
        found.append(invalid_value("spec.resources[storage]", size, "must be greater than zero"))
    if name := spec.get("storageClassName"):
        found += [invalid_value("spec.storageClassName", name, text) for text in metadata.dns_subdomain(name)]
    return found


CLAIM_TEXT = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


def claim_change(old: Object, new: Object) -> list[Cause]:
    """Judge a change of a PersistentVolumeClaim."""
    before, after = dict(old.get("spec", {})), dict(new.get("spec", {}))
    if old.get("status", {}).get("phase") == "Bound":
        after["resources"] = before.get("resources")
    if not before.get("volumeName"):
        before["volumeName"] = after.get("volumeName")  # the binder's field
        after["volumeName"] = before["volumeName"]
    return [] if before == after else [forbidden_field("spec", CLAIM_TEXT)]


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


def _quota_name(name: str, at: str) -> list[Cause]:
    wrong = [invalid_value(at, name, text) for text in metadata.qualified_name(name)]
    if wrong or "/" in name or name in QUOTA_STANDARD or name.startswith(("hugepages-", "requests.hugepages-")):
        return wrong
    return [
        invalid_value(at, name, "must be a standard resource type or fully qualified"),
        invalid_value(at, name, "must be a standard resource for quota"),
    ]


LEVELS = ("privileged", "baseline", "restricted")
MODES = ("audit", "enforce", "warn")


def namespace(obj: Object) -> list[Cause]:
    """Judge the labels by which a Namespace sets its pod security level (the plugin PodSecurity does)."""
    labels, found = obj["metadata"].get("labels") or {}, []
    for mode in MODES:
        name = f"pod-security.kubernetes.io/{mode}"
        if name in labels and labels[name] not in LEVELS:
            text = f"must be one of {', '.join(LEVELS)}"
            found.append(invalid_value(f"metadata.labels[{name}]", labels[name], text))
        version = labels.get(f"{name}-version", "latest")
        if version != "latest" and not re.fullmatch(r"v1\.([0-9]|[1-9][0-9]*)", version):
            text = 'must be "latest" or "v1.x"'
            found.append(invalid_value(f"metadata.labels[{name}-version]", version, text))
    return found


SCOPES = (
    *("Terminating", "NotTerminating", "BestEffort", "NotBestEffort"),
    *("PriorityClass", "CrossNamespacePodAffinity", "VolumeAttributesClass"),
)
COMPUTED = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")


def quota(obj: Object) -> list[Cause]:
    """Judge a ResourceQuota."""
    found: list[Cause] = []
    for name, amount in (obj.get("spec", {}).get("hard") or {}).items():
        at = f"spec.hard[{name}]"
        found += _quota_name(name, at)
        if quantity.value(amount) < 0:
            found.append(invalid_value(at, amount, "must be greater than or equal to 0"))
        elif (name in COUNTED or name.startswith("count/")) and quantity.value(amount).denominator != 1:
            found.append(invalid_value(at, amount, "must be an integer"))
    return found + _scopes(obj.get("spec") or {})


def _scopes(spec: Object) -> list[Cause]:
    """Judge the scopes of a quota, each by itself, with the resources and with each other."""
    scopes, found = spec.get("scopes") or [], []
    for scope in scopes:
        if scope not in SCOPES:
            found.append(invalid_value("spec.scopes", scopes, "unsupported scope"))
        allowed = ("pods",) if scope == "BestEffort" else ("pods", *COMPUTED)
        found += [
            invalid_value("spec.scopes", scopes, "unsupported scope applied to resource")
            for name in spec.get("hard") or {}
            if scope in SCOPES and (name in COMPUTED or name in COUNTED) and name not in allowed
        ]
    for pair in ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"}):
        if pair <= set(scopes):
            found.append(invalid_value("spec.scopes", scopes, "conflicting scopes"))
    return found


def quota_change(old: Object, new: Object) -> list[Cause]:
    """Judge what an update changes in a ResourceQuota."""
    before, after = old["spec"].get("scopes") or [], new["spec"].get("scopes") or []
    if sorted(before) == sorted(after):
        return []
    return [invalid_value("spec.scopes", after, "field is immutable")]


def runtime_class(obj: Object) -> list[Cause]:
    """Judge a RuntimeClass."""
    handler = obj.get("handler", "")
    if not handler:
        return [required("handler")]
    return [invalid_value("handler", handler, text) for text in metadata.dns_label(handler)]


def runtime_class_change(old: Object, new: Object) -> list[Cause]:
    """Judge a change of a RuntimeClass."""
    if old.get("handler") == new.get("handler"):
        return []
    return [invalid_value("handler", new.get("handler"), "field is immutable")]


HIGHEST_USER_PRIORITY = 1_000_000_000


def priority_class(obj: Object) -> list[Cause]:
    """Judge a PriorityClass."""
    found: list[Cause] = []
    name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
    if name.startswith("system-"):
        if name not in ("system-node-critical", "system-cluster-critical"):
            text = "priority class names with 'system-' prefix are reserved for system use only. error: " + name
            found.append(forbidden_field("metadata.name", text))
    elif value > HIGHEST_USER_PRIORITY:
        text = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        found.append(forbidden_field("value", text))
    policy = obj.get("preemptionPolicy")
    if policy not in (None, "Never", "PreemptLowerPriority"):
        found.append(unsupported("preemptionPolicy", policy, ["PreemptLowerPriority", "Never"]))
    return found


def priority_class_change(old: Object, new: Object) -> list[Cause]:
    """Judge a change of a PriorityClass."""
    found: list[Cause] = []
    if old.get("value") != new.get("value"):
        found.append(forbidden_field("value", "may not be changed in an update."))
    if old.get("preemptionPolicy") != new.get("preemptionPolicy"):
        found.append(invalid_value("preemptionPolicy", new.get("preemptionPolicy"), "field is immutable"))
    return found


def storage_class(obj: Object) -> list[Cause]:
    """Judge a StorageClass."""
    found: list[Cause] = [] if obj.get("provisioner") else [required("provisioner")]
    if obj.get("reclaimPolicy") not in ("Delete", "Retain"):
        found.append(unsupported("reclaimPolicy", obj.get("reclaimPolicy"), ["Delete", "Retain"]))
    if obj.get("volumeBindingMode") not in ("Immediate", "WaitForFirstConsumer"):
        found.append(
            unsupported("volumeBindingMode", obj.get("volumeBindingMode"), ["Immediate", "WaitForFirstConsumer"])
        )
    return found


def storage_class_change(old: Object, new: Object) -> list[Cause]:
    """Judge a change of a StorageClass."""
    found: list[Cause] = []
    if (old.get("parameters") or {}) != (new.get("parameters") or {}):
        found.append(forbidden_field("parameters", "updates to parameters are forbidden."))
    for name in ("provisioner", "reclaimPolicy"):
        if old.get(name) != new.get(name):
            found.append(forbidden_field(name, f"updates to {name} are forbidden."))
    return found


def lease(obj: Object) -> list[Cause]:
    """Judge a Lease."""
    spec = obj.get("spec") or {}
    found: list[Cause] = []
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        found.append(invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        found.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return found
