"""PersistentVolumes: the matching volume for a PVC, and its release after the PVC is deleted."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..apiserver.schema import selectors
from ..apiserver.schema.errors import ApiError
from ..apiserver.schema.quantity import value as parse
from .queue import Key, Queue
from .scheduler.volumes import reaches

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..apiserver.store import Store

Object = dict[str, Any]
CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"
PROTECTION = "kubernetes.io/pv-protection"
DYNAMIC = "pv.kubernetes.io/provisioned-by"


def suits(volume: Object, claim: Object) -> bool:
    """Return whether a free volume, or one reserved for the PVC, satisfies it."""
    spec, claim_spec = volume["spec"], claim["spec"]
    if volume["metadata"].get("deletionTimestamp") or (volume.get("status") or {}).get("phase") not in (
        "Available",
        "Pending",
        None,
    ):
        return False
    held, meta = spec.get("claimRef"), claim["metadata"]
    if held and (held.get("namespace"), held.get("name")) != (meta["namespace"], meta["name"]):
        return False
    if claim_spec.get("volumeName") and claim_spec["volumeName"] != volume["metadata"]["name"]:
        return False
    return (
        (spec.get("storageClassName") or "") == (claim_spec.get("storageClassName") or "")
        and spec.get("volumeMode", "Filesystem") == claim_spec.get("volumeMode", "Filesystem")
        and set(claim_spec.get("accessModes") or []) <= set(spec.get("accessModes") or [])
        and parse(spec["capacity"]["storage"]) >= parse(claim_spec["resources"]["requests"]["storage"])
        and selectors.labels(claim_spec.get("selector") or {})(volume["metadata"].get("labels") or {})
    )


def best(store: Store, claim: Object, node: Object | None = None) -> Object | None:
    """Return the smallest matching volume (usable on a node); one reserved for the PVC has precedence."""
    candidates = [
        volume for volume in store.list(VOLUMES) if suits(volume, claim) and (node is None or reaches(volume, node))
    ]
    return min(
        candidates,
        key=lambda v: (not v["spec"].get("claimRef"), parse(v["spec"]["capacity"]["storage"]), v["metadata"]["name"]),
        default=None,
    )


def reference(claim: Object) -> Object:
    """Return the claimRef of a bound volume."""
    meta = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "name": meta["name"],
        "namespace": meta["namespace"],
        "uid": meta["uid"],
        "resourceVersion": meta["resourceVersion"],
    }


class VolumeController:
    """The controller that updates the phase of volumes, and reclaims them."""

    def __init__(self, store: Store, look: Callable[[], None]) -> None:
        self._store, self._look = store, look
        self._queue = Queue(self.sync)
        self._ends: list[Callable[[], None]] = []

    def start(self) -> None:
        """Watch volumes and PVCs; `look` is called when a volume becomes free."""
        self._ends = [self._store.subscribe(VOLUMES, self._volume), self._store.subscribe(CLAIMS, self._claim)]
        for volume in self._store.list(VOLUMES):
            self._volume("ADDED", volume, None)

    def close(self) -> None:
        """Stop."""
        self._queue.close()
        for end in self._ends:
            end()

    def _volume(self, change: str, volume: Object, _: Object | None) -> None:
        if change != "DELETED":
            self._queue.add(("", volume["metadata"]["name"]))

    def _claim(self, change: str, claim: Object, _: Object | None) -> None:
        if change == "DELETED" and claim["spec"].get("volumeName"):
            self._queue.add(("", claim["spec"]["volumeName"]))

    def sync(self, key: Key) -> float | None:
        """Update one volume's phase."""
        volume = self._store.get(VOLUMES, None, key[1])
        if volume is None:
            return None
        held = volume["spec"].get("claimRef") or {}
        claim = self._store.get(CLAIMS, held.get("namespace"), held.get("name", "")) if held else None
        if claim is not None and held.get("uid") in (None, "", claim["metadata"]["uid"]):
            phase = "Bound" if claim["spec"].get("volumeName") == key[1] else "Available"
        else:
            phase = "Released" if held.get("uid") else "Available"
        if volume["metadata"].get("deletionTimestamp") and phase != "Bound":
            self._store.mutate(VOLUMES, None, key[1], _unprotect)
            return None
        if (volume.get("status") or {}).get("phase") != phase:
            self._store.mutate(
                VOLUMES,
                None,
                key[1],
                lambda v: v.update(status={"phase": phase, "lastPhaseTransitionTime": self._store.now()}),
                "status",
            )
        if phase == "Available":
            self._look()
        elif (
            phase == "Released"
            and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
            and (DYNAMIC in (volume["metadata"].get("annotations") or {}))
        ):
            with contextlib.suppress(ApiError):  # another client was faster
                self._store.delete(VOLUMES, None, key[1])
        return None


def _unprotect(volume: Object) -> None:
    left = [f for f in volume["metadata"].get("finalizers") or [] if f != PROTECTION]
    volume["metadata"]["finalizers"] = left
    if not left:
        del volume["metadata"]["finalizers"]
