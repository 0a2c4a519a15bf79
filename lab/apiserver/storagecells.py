"""Table cells of volumes, claims and storage classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cells import age_of, name_of

if TYPE_CHECKING:
    from .schema.values import Object


def claim(obj: Object, now: float) -> list[Any]:
    """Format a table row of claims."""
    spec, status = obj["spec"], obj.get("status", {})
    phase = "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", "")
    modes = _modes(status.get("accessModes")) if spec.get("volumeName") else ""
    size = (status.get("capacity") or {}).get("storage", "") if spec.get("volumeName") else ""
    kind = spec.get("storageClassName") or ""
    attributes = spec.get("volumeAttributesClassName") or "<unset>"
    return [
        name_of(obj),
        phase,
        spec.get("volumeName", ""),
        size,
        modes,
        kind,
        attributes,
        age_of(obj, now),
        spec.get("volumeMode", "<unset>"),
    ]


def volume(obj: Object, now: float) -> list[Any]:
    """Format a table row of volumes."""
    spec, status = obj["spec"], obj.get("status", {})
    reference = spec.get("claimRef") or {}
    claim = f"{reference.get('namespace')}/{reference.get('name')}" if reference else ""
    phase = "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", "")
    size = (spec.get("capacity") or {}).get("storage", "")
    front = [
        name_of(obj),
        size,
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        phase,
        claim,
    ]
    return [
        *front,
        spec.get("storageClassName", ""),
        "<unset>",
        status.get("reason", ""),
        age_of(obj, now),
        spec.get("volumeMode", "<unset>"),
    ]


def _modes(modes: Any) -> str:
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    return ",".join(short.get(mode, mode) for mode in modes or [])


def storage_class(obj: Object, now: float) -> list[Any]:
    """Format a table row of storage classes."""
    annotations = obj["metadata"].get("annotations") or {}
    name = name_of(obj) + (
        " (default)" if annotations.get("storageclass.kubernetes.io/is-default-class") == "true" else ""
    )
    expands = bool(obj.get("allowVolumeExpansion", False))
    return [
        name,
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", ""),
        obj.get("volumeBindingMode", ""),
        expands,
        age_of(obj, now),
    ]
