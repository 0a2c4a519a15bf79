"""Admission plugin DefaultStorageClass: the class of a PVC without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..seams import Objects
    from ..values import Object

DEFAULT = "storageclass.kubernetes.io/is-default-class"


def default_class(store: Objects, claim: Object) -> None:
    """Set the newest default class on a PVC, if there is one."""
    spec = claim.setdefault("spec", {})
    if spec.get("storageClassName") is not None:
        return
    defaults = [
        item
        for item in store.list("storageclasses.storage.k8s.io")
        if (item["metadata"].get("annotations") or {}).get(DEFAULT) == "true"
    ]
    if defaults:
        spec["storageClassName"] = max(defaults, key=lambda item: item["metadata"]["creationTimestamp"])["metadata"][
            "name"
        ]
