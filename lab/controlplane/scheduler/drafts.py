"""Whether a pod's resource claims could be allocated on a node, before the scheduler decides.

Messages are those of pkg/scheduler/framework/plugins/dynamicresources.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from . import devices
from .devices import CLAIMS, CLASSES, FINALIZER, SLICES
from .placement import Refusal

if TYPE_CHECKING:
    from ...apiserver.store import Store

Object = dict[str, Any]


class Draft:
    """The claims of one pod, and the nodes on which they could be allocated."""

    def __init__(self, store: Store, pod: Object) -> None:
        self._store, self._pod = store, pod
        self._named = devices.of_pod(store, pod)
        self.claims = [claim for _, _, claim in self._named if claim is not None]
        self.open = [claim for claim in self.claims if not (claim.get("status") or {}).get("allocation")]
        self._results: dict[str, list[list[Object]]] = {}
        self._busy = devices.taken(store.list(CLAIMS)) if self.open else set()
        self._classes = {c["metadata"]["name"]: c for c in store.list(CLASSES)} if self.open else {}
        self._slices = store.list(SLICES) if self.open else []

    @property
    def waits(self) -> bool:
        """Return whether claims are yet to be created from templates: the scheduler skips such a pod."""
        return any(not name for _, name, _ in self._named)

    def trouble(self, nodes: int) -> str | None:
        """Return the reason why no node at all is suitable."""
        why = ""
        for _, name, claim in self._named:
            if claim is None:
                why = why or f'resourceclaim.resource.k8s.io "{name}" not found'
        for claim in self.claims:
            users = (claim.get("status") or {}).get("reservedFor") or []
            if claim["metadata"].get("deletionTimestamp"):
                why = why or f'resourceclaim "{claim["metadata"]["name"]}" is being deleted'
            elif len(users) >= 256 and all(user["uid"] != self._pod["metadata"]["uid"] for user in users):
                why = why or "resourceclaim in use"  # ResourceClaimReservedForMaxSize
        for claim in self.open:
            part = devices.unsupported(claim)
            if part:
                why = why or f"this simulated scheduler does not know {part} of resource claims"
            for request in (claim["spec"].get("devices") or {}).get("requests") or []:
                kind = (request.get("exactly") or request).get("deviceClassName", "")
                if kind not in self._classes:
                    why = why or f"request {request['name']}: device class {kind} does not exist"
        if not why:
            return None
        return (
            f"0/{nodes} nodes are available: {why}. no new claims to deallocate, preemption: 0/{nodes} nodes are "
            f"available: {nodes} Preemption is not helpful for scheduling."
        )

    def refuse(self, node: Object) -> Refusal | None:
        """Return why a node cannot satisfy the claims; None if it can."""
        name = node["metadata"]["name"]
        if any(name not in _nodes(claim) for claim in self.claims if claim not in self.open):
            return Refusal(("resourceclaim not available on the node",), final=True)
        if not self.open:
            return None
        try:
            results = devices.allocate(self.open, devices.of_node(self._slices, node), self._busy, self._classes)
        except devices.Unreadable as part:
            return Refusal((f"this simulated scheduler cannot evaluate CEL: {part}",), final=True)
        if results is None:
            return Refusal(("cannot allocate all claims",), final=True)
        self._results[name] = results
        return None

    def reserve(self, node: str) -> None:
        """Allocate the claims on a suitable node, and reserve all for the pod."""
        meta = self._pod["metadata"]
        results = dict(zip((c["metadata"]["name"] for c in self.open), self._results.get(node, []), strict=False))
        user = {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}
        for claim in self.claims:
            name = claim["metadata"]["name"]
            if name in results:
                self._store.mutate(CLAIMS, meta["namespace"], name, _protect)

            change = functools.partial(_reserve, user=user, node=node, got=results.get(name))
            self._store.mutate(CLAIMS, meta["namespace"], name, change, "status")


def _protect(claim: Object) -> None:
    held = claim["metadata"].setdefault("finalizers", [])
    if FINALIZER not in held:
        held.append(FINALIZER)


def _reserve(claim: Object, *, user: Object, node: str, got: list[Object] | None) -> None:
    status = claim.setdefault("status", {})
    if got is not None:
        status["allocation"] = {"devices": {"results": got}, "nodeSelector": _selector(node)}
    users = status.setdefault("reservedFor", [])
    if user not in users:
        users.append(user)


def _selector(node: str) -> Object:
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    return {"nodeSelectorTerms": [{"matchFields": fields}]}


def _nodes(claim: Object) -> set[str]:
    """Return the nodes on which an allocated claim can be used."""
    terms = ((claim["status"]["allocation"].get("nodeSelector") or {}).get("nodeSelectorTerms")) or []
    return {value for term in terms for field in term.get("matchFields") or [] for value in field["values"]}
