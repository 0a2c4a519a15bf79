"""Validation of PersistentVolumeClaims and StorageClasses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import quantity
from ..errors import Cause, forbidden_field, invalid_value, required, unsupported
from . import metadata

if TYPE_CHECKING:
    from ..values import Object


ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


CLAIM_TEXT = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


def claim(obj: Object) -> list[Cause]:
    """Validate a PersistentVolumeClaim."""
    spec = obj.get("spec", {})
    causes: list[Cause] = []
    if not spec.get("accessModes"):
        causes.append(required("spec.accessModes", "at least 1 access mode is required"))
    for mode in spec.get("accessModes") or []:
        if mode not in ACCESS_MODES:
            causes.append(unsupported("spec.accessModes", mode, ACCESS_MODES))
    causes += metadata.selector(spec.get("selector"), "spec.selector")
    size = (spec.get("resources", {}).get("requests") or {}).get("storage")
    if size is None:
        causes.append(required("spec.resources[storage]"))
    elif quantity.value(size) <= 0:
        causes.append(invalid_value("spec.resources[storage]", size, "must be greater than zero"))
    if name := spec.get("storageClassName"):
        causes += [invalid_value("spec.storageClassName", name, text) for text in metadata.dns_subdomain(name)]
    return causes


def claim_change(old: Object, new: Object) -> list[Cause]:
    """Validate an update of a PersistentVolumeClaim."""
    before, after = dict(old.get("spec", {})), dict(new.get("spec", {}))
    if old.get("status", {}).get("phase") == "Bound":
        after["resources"] = before.get("resources")
    if not before.get("volumeName"):
        before["volumeName"] = after.get("volumeName")  # the binder's field
        after["volumeName"] = before["volumeName"]
    return [] if before == after else [forbidden_field("spec", CLAIM_TEXT)]


def storage_class(obj: Object) -> list[Cause]:
    """Validate a StorageClass."""
    causes: list[Cause] = [] if obj.get("provisioner") else [required("provisioner")]
    if obj.get("reclaimPolicy") not in ("Delete", "Retain"):
        causes.append(unsupported("reclaimPolicy", obj.get("reclaimPolicy"), ["Delete", "Retain"]))
    if obj.get("volumeBindingMode") not in ("Immediate", "WaitForFirstConsumer"):
        causes.append(
            unsupported("volumeBindingMode", obj.get("volumeBindingMode"), ["Immediate", "WaitForFirstConsumer"])
        )
    return causes


def storage_class_change(old: Object, new: Object) -> list[Cause]:
    """Validate an update of a StorageClass."""
    causes: list[Cause] = []
    if (old.get("parameters") or {}) != (new.get("parameters") or {}):
        causes.append(forbidden_field("parameters", "updates to parameters are forbidden."))
    for name in ("provisioner", "reclaimPolicy"):
        if old.get(name) != new.get(name):
            causes.append(forbidden_field(name, f"updates to {name} are forbidden."))
    return causes
