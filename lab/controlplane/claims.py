"""The PersistentVolume controller's binding of PVCs.

A class that the world offers provisions a volume at once; without a class, or with a missing one, the PVC stays Pending
with the reason.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..apiserver.schema.errors import ApiError
from . import volumes
from .queue import Key, Queue
from .scheduler.volumes import NO_PROVISIONER, waits_for_consumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..apiserver.store import Store

Object = dict[str, Any]
CLAIMS, CLASSES, VOLUMES = "persistentvolumeclaims", "storageclasses.storage.k8s.io", "persistentvolumes"
COMPONENT = "persistentvolume-controller"
PROTECTION = "kubernetes.io/pvc-protection"
ENDED = ("Succeeded", "Failed")
HOSTNAME = "kubernetes.io/hostname"
LOCAL = ("local", "topolvm", "hostpath", "lvm")
"""Provisioners of node-local disks, by a word in their name (rancher.io/local-path, topolvm.io, openebs.io/local):
their volumes are on the node of their first consumer."""


class ClaimController:
    """The controller that binds PVCs, and releases deleted ones when no pod uses them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue = Queue(self.sync)
        self._volumes = volumes.VolumeController(store, self._look)
        self._ends: list[Callable[[], None]] = []

    def start(self) -> None:
        """Watch PVCs and pods."""
        self._ends = [self._store.subscribe(CLAIMS, self._claim), self._store.subscribe("pods", self._pod)]
        self._volumes.start()
        self._look()

    def _look(self) -> None:
        """Process all PVCs: a volume has become free."""
        for claim in self._store.list(CLAIMS):
            if (claim.get("status") or {}).get("phase", "Pending") == "Pending":
                self._claim("ADDED", claim, None)

    def close(self) -> None:
        """Stop."""
        self._queue.close()
        self._volumes.close()
        for end in self._ends:
            end()

    def _claim(self, change: str, claim: Object, _: Object | None) -> None:
        if change != "DELETED":
            self._queue.add((claim["metadata"]["namespace"], claim["metadata"]["name"]))

    def _pod(self, _: str, pod: Object, __: Object | None) -> None:
        for volume in pod["spec"].get("volumes") or []:
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if name:
                self._queue.add((pod["metadata"]["namespace"], name))

    def _users(self, key: Key, *, scheduled: bool) -> list[Object]:
        return [
            p
            for p in self._store.list("pods", key[0])
            if p["status"].get("phase") not in ENDED
            and (not scheduled or p["spec"].get("nodeName"))
            and any(
                (v.get("persistentVolumeClaim") or {}).get("claimName") == key[1]
                for v in p["spec"].get("volumes") or []
            )
        ]

    def sync(self, key: Key) -> float | None:
        """Reconcile one PVC with a volume."""
        claim = self._store.get(CLAIMS, *key)
        if claim is None:
            return None
        if claim["metadata"].get("deletionTimestamp"):
            if not self._users(key, scheduled=True):
                self._store.mutate(CLAIMS, *key, _unprotect)
            return None
        if (claim.get("status") or {}).get("phase", "Pending") != "Pending":
            return None
        existing = volumes.best(self._store, claim, self._node(key, claim))
        if existing is not None:
            self._bind(claim, existing)
        elif not claim["spec"].get("volumeName"):
            self._ask(key, claim)
        return None

    def _node(self, key: Key, claim: Object) -> Object | None:
        """Return the node of the first consumer for which a PVC waits; None: any node."""
        users = self._users(key, scheduled=True)
        if not users or not waits_for_consumer(self._store, claim):
            return None
        return self._store.get("nodes", None, users[0]["spec"]["nodeName"])

    def _ask(self, key: Key, claim: Object) -> None:
        """Let the PVC's class provision a volume, or record why it cannot."""
        name = claim["spec"].get("storageClassName")
        if not name:
            self._store.event(
                claim,
                "Normal",
                "FailedBinding",
                "no persistent volumes available for this claim and no storage class is set",
                COMPONENT,
            )
            return
        storage_class = self._store.get(CLASSES, None, name)
        if storage_class is None:
            self._store.event(
                claim, "Warning", "ProvisioningFailed", f'storageclass.storage.k8s.io "{name}" not found', COMPONENT
            )
        elif storage_class.get("volumeBindingMode") == "WaitForFirstConsumer" and not self._users(key, scheduled=True):
            self._store.event(
                claim,
                "Normal",
                "WaitForFirstConsumer",
                "waiting for first consumer to be created before binding",
                COMPONENT,
            )
        elif storage_class.get("provisioner") != NO_PROVISIONER:
            self._provide(claim, storage_class, self._node(key, claim))

    def _provide(self, claim: Object, class_: Object, node: Object | None) -> None:
        meta, spec = claim["metadata"], claim["spec"]
        name, size = f"pvc-{meta['uid']}", spec["resources"]["requests"]["storage"]
        driver = class_.get("provisioner", "sim")
        body = {
            "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": driver}},
            "spec": {
                "accessModes": spec["accessModes"],
                "capacity": {"storage": size},
                "storageClassName": spec["storageClassName"],
                "persistentVolumeReclaimPolicy": class_.get("reclaimPolicy", "Delete"),
                "volumeMode": spec.get("volumeMode", "Filesystem"),
                "claimRef": volumes.reference(claim),
                "csi": {"driver": driver, "volumeHandle": name},
            },
        }
        if node is not None and any(word in driver for word in LOCAL):
            host = (node["metadata"].get("labels") or {}).get(HOSTNAME, node["metadata"]["name"])
            expressions = [{"key": HOSTNAME, "operator": "In", "values": [host]}]
            body["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
        with contextlib.suppress(ApiError):
            volume = self._store.create(VOLUMES, body)
            self._store.event(
                claim,
                "Normal",
                "ProvisioningSucceeded",
                f"Successfully provisioned volume {volume['metadata']['name']}",
                COMPONENT,
            )
            self._bind(claim, volume)

    def _bind(self, claim: Object, volume: Object) -> None:
        meta, spec, name = claim["metadata"], claim["spec"], volume["metadata"]["name"]

        def bind(c: Object) -> None:
            c["metadata"].setdefault("annotations", {}).update(
                {
                    "pv.kubernetes.io/bind-completed": "yes",
                    **({} if spec.get("volumeName") else {"pv.kubernetes.io/bound-by-controller": "yes"}),
                }
            )
            c["spec"]["volumeName"] = name
            c["status"] = {
                "phase": "Bound",
                "accessModes": volume["spec"].get("accessModes") or [],
                "capacity": dict(volume["spec"]["capacity"]),
            }

        def take(v: Object) -> None:
            if not v["spec"].get("claimRef"):
                v["metadata"].setdefault("annotations", {})["pv.kubernetes.io/bound-by-controller"] = "yes"
            v["spec"]["claimRef"] = volumes.reference(claim)

        self._store.mutate(VOLUMES, None, name, take)
        self._store.mutate(CLAIMS, meta["namespace"], meta["name"], bind)
        self._store.mutate(
            VOLUMES,
            None,
            name,
            lambda v: v.update(status={"phase": "Bound", "lastPhaseTransitionTime": self._store.now()}),
            "status",
        )


def _unprotect(claim: Object) -> None:
    left = [f for f in claim["metadata"].get("finalizers") or [] if f != PROTECTION]
    if left:
        claim["metadata"]["finalizers"] = left
    else:
        claim["metadata"].pop("finalizers", None)
