"""The nodes on which a pod's volumes can be used.

Messages are those of pkg/scheduler/framework/plugins/volumebinding and volumerestrictions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...apiserver.schema.quantity import value as parse
from .placement import ENDED, Refusal, node_term

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...apiserver.store import Store
    from .placement import NodeView

Object = dict[str, Any]
CLAIMS, VOLUMES, CLASSES = "persistentvolumeclaims", "persistentvolumes", "storageclasses.storage.k8s.io"
NO_PROVISIONER = "kubernetes.io/no-provisioner"


def claims_of(pod: Object) -> list[str]:
    """Return the names of the PVCs that a pod mounts."""
    claims = [volume.get("persistentVolumeClaim") or {} for volume in pod["spec"].get("volumes") or []]
    return [claim["claimName"] for claim in claims if claim.get("claimName")]


def waits_for_consumer(store: Store, claim: Object) -> bool:
    """Return whether a PVC is bound only when a pod that uses it is scheduled."""
    storage_class = store.get(CLASSES, None, claim["spec"].get("storageClassName") or "")
    return (storage_class or {}).get("volumeBindingMode") == "WaitForFirstConsumer"


def reaches(volume: Object, node: Object) -> bool:
    """Return whether a volume can be used on a node."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return required is None or any(node_term(node, term) for term in required.get("nodeSelectorTerms") or [])


class Places:
    """The PVCs of one pod that restrict its nodes."""

    def __init__(self, store: Store, pod: Object) -> None:
        self._space = pod["metadata"]["namespace"]
        claims = [store.get(CLAIMS, self._space, name) for name in claims_of(pod)]
        self._claims = [claim for claim in claims if claim is not None]
        self._bound = [
            volume
            for claim in self._claims
            if (volume := store.get(VOLUMES, None, claim["spec"].get("volumeName") or ""))
        ]
        self._open = [claim for claim in self._claims if not claim["spec"].get("volumeName") and _static(store, claim)]
        self._free = [v for v in store.list(VOLUMES) if not v["spec"].get("claimRef")] if self._open else []
        alone = {c["metadata"]["name"] for c in self._claims if c["spec"].get("accessModes") == ["ReadWriteOncePod"]}
        self._alone = alone

    def refuse(self, view: NodeView, views: Iterable[NodeView]) -> Refusal | None:
        """Return why the volumes exclude a node; None if they do not."""
        if any(not reaches(volume, view.node) for volume in self._bound):
            return Refusal(("node(s) had volume node affinity conflict",), final=True)
        for claim in self._open:
            if not any(_suits(volume, claim) and reaches(volume, view.node) for volume in self._free):
                return Refusal(("node(s) didn't find available persistent volumes to bind",), final=True)
        if self._alone and any(
            other["metadata"]["namespace"] == self._space and self._alone & set(claims_of(other))
            for each in views
            for other in each.pods.values()
        ):
            return Refusal(
                ("node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode",),
                final=False,
            )
        return None


def _static(store: Store, claim: Object) -> bool:
    """Return whether a PVC's class has no provisioner: it needs an existing volume."""
    storage_class = store.get(CLASSES, None, claim["spec"].get("storageClassName") or "")
    return storage_class is not None and storage_class.get("provisioner") == NO_PROVISIONER


def _suits(volume: Object, claim: Object) -> bool:
    spec, claim_spec = volume["spec"], claim["spec"]
    return (
        (spec.get("storageClassName") or "") == (claim_spec.get("storageClassName") or "")
        and set(claim_spec.get("accessModes") or []) <= set(spec.get("accessModes") or [])
        and parse(spec["capacity"]["storage"]) >= parse(claim_spec["resources"]["requests"]["storage"])
    )


def elsewhere(store: Store, pod: Object) -> tuple[str, list[str]] | None:
    """Return (volume, pod names) of a volume for a single node that is in use on another node; else None."""
    node, space = pod["spec"].get("nodeName"), pod["metadata"]["namespace"]
    for name in claims_of(pod):
        claim = store.get(CLAIMS, space, name) or {"spec": {}}
        volume = store.get(VOLUMES, None, claim["spec"].get("volumeName") or "")
        modes = set((volume or {"spec": {}})["spec"].get("accessModes") or [])
        if volume is None or not modes or modes & {"ReadWriteMany", "ReadOnlyMany"} or not volume["spec"].get("csi"):
            continue
        users = [
            p["metadata"]["name"]
            for p in store.list("pods", space)
            if name in claims_of(p)
            and p["spec"].get("nodeName") not in (None, node)
            and (p.get("status") or {}).get("phase") not in ENDED
            and (p.get("status") or {}).get("containerStatuses")
        ]
        if users:
            return volume["metadata"]["name"], users
    return None
