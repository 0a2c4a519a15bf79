"""Defaults of volumes, claims and storage classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..values import Object


def claim(obj: Object) -> None:
    """Set the defaults of a PersistentVolumeClaim."""
    obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    obj["spec"].setdefault("resources", {})


def volume(obj: Object) -> None:
    """Set the defaults of a PersistentVolume."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")


def storage_class(obj: Object) -> None:
    """Set the defaults of a StorageClass."""
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")
