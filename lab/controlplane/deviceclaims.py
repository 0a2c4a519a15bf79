"""The ResourceClaim controller: claims from templates, and the release of devices.

As in pkg/controller/resourceclaim: one claim per pod and template, which is deleted after the pod has ended; a claim
without pods releases its devices.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..apiserver.schema.errors import ApiError
from ..apiserver.schema.values import clone
from .owned import controller_of, is_of
from .queue import Key, Queue
from .scheduler.devices import CLAIMS, FINALIZER, TEMPLATES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..apiserver.store import Store

Object = dict[str, Any]
COMPONENT = "resource_claim"
POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
ENDED = ("Succeeded", "Failed")


class ResourceClaimController:
    """The controller that creates claims from templates and releases unused ones."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pods, self._claims = Queue(self._pod), Queue(self._claim)
        self._ends: list[Callable[[], None]] = []

    def start(self) -> None:
        """Watch pods, claims and templates."""
        self._ends = [
            self._store.subscribe("pods", self._pod_changed),
            self._store.subscribe(CLAIMS, self._claim_changed),
            self._store.subscribe(TEMPLATES, self._template_changed),
        ]

    def close(self) -> None:
        """Stop."""
        self._pods.close()
        self._claims.close()
        for end in self._ends:
            end()

    def _pod_changed(self, _: str, pod: Object, __: Object | None) -> None:
        if not pod["spec"].get("resourceClaims"):
            return
        meta = pod["metadata"]
        self._pods.add((meta["namespace"], meta["name"]))
        names = [s.get("resourceClaimName") for s in (pod.get("status") or {}).get("resourceClaimStatuses") or []]
        names += [pod_claim.get("resourceClaimName") for pod_claim in pod["spec"]["resourceClaims"]]
        for name in filter(None, names):
            self._claims.add((meta["namespace"], name))

    def _claim_changed(self, _: str, claim: Object, __: Object | None) -> None:
        self._claims.add((claim["metadata"]["namespace"], claim["metadata"]["name"]))

    def _template_changed(self, _: str, template: Object, __: Object | None) -> None:
        for pod in self._store.list("pods", template["metadata"]["namespace"]):
            self._pod_changed("", pod, None)

    def _pod(self, key: Key) -> None:
        """Create the claims for a pod's templates."""
        pod = self._store.get("pods", *key)
        if pod is None or pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") in ENDED:
            return
        made = {s["name"]: s for s in pod["status"].get("resourceClaimStatuses") or []}
        for pod_claim in pod["spec"].get("resourceClaims") or []:
            name = pod_claim.get("resourceClaimTemplateName")
            if not name or pod_claim["name"] in made:
                continue
            template = self._store.get(TEMPLATES, key[0], name)
            if template is None:
                self._store.event(
                    pod,
                    "Warning",
                    "FailedResourceClaimCreation",
                    f'PodResourceClaim {pod_claim["name"]}: resource claim template "{name}": '
                    f'resourceclaimtemplate.resource.k8s.io "{name}" not found',
                    COMPONENT,
                )
                continue
            claim = self._made(pod, pod_claim["name"], template)
            if claim is not None:
                made[pod_claim["name"]] = {"name": pod_claim["name"], "resourceClaimName": claim["metadata"]["name"]}
        statuses = list(made.values())
        if statuses != (pod["status"].get("resourceClaimStatuses") or []):
            self._store.mutate("pods", *key, lambda p: p["status"].update(resourceClaimStatuses=statuses), "status")

    def _made(self, pod: Object, name: str, template: Object) -> Object | None:
        meta = pod["metadata"]
        for claim in self._store.list(CLAIMS, meta["namespace"]):
            if is_of(pod, claim) and (claim["metadata"].get("annotations") or {}).get(POD_CLAIM) == name:
                return claim
        spec = template["spec"]
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        given = spec.get("metadata") or {}
        body = {
            "metadata": {
                "generateName": f"{meta['name']}-{name}-",
                "labels": dict(given.get("labels") or {}),
                "annotations": {**(given.get("annotations") or {}), POD_CLAIM: name},
                "ownerReferences": [owner],
            },
            "spec": clone(spec["spec"]),
        }
        with contextlib.suppress(ApiError):  # the namespace is terminating
            return self._store.create(CLAIMS, body, meta["namespace"])
        return None

    def _claim(self, key: Key) -> None:
        """Remove users that have ended; release the devices after the last one; delete claims of ended pods."""
        claim = self._store.get(CLAIMS, *key)
        if claim is None:
            return
        status = claim.get("status") or {}
        users = [user for user in status.get("reservedFor") or [] if self._uses(key[0], user)]
        if users != (status.get("reservedFor") or []) or (status.get("allocation") and not users):
            self._store.mutate(CLAIMS, *key, lambda c: _release(c, users), "status")
        claim = self._store.get(CLAIMS, *key)
        if claim is None:
            return
        protected = FINALIZER in (claim["metadata"].get("finalizers") or [])
        if protected and not (claim.get("status") or {}).get("allocation"):
            self._store.mutate(CLAIMS, *key, _unprotect)
        owner = controller_of(claim)
        if owner is not None and owner["kind"] == "Pod" and not claim["metadata"].get("deletionTimestamp"):
            pod = self._store.get("pods", key[0], owner["name"])
            if pod is None or pod["metadata"]["uid"] != owner["uid"] or pod["status"].get("phase") in ENDED:
                with contextlib.suppress(ApiError):
                    self._store.delete(CLAIMS, *key)

    def _uses(self, namespace: str, user: Object) -> bool:
        pod = self._store.get("pods", namespace, user["name"])
        return pod is not None and pod["metadata"]["uid"] == user["uid"] and pod["status"].get("phase") not in ENDED


def _release(claim: Object, users: list[Object]) -> None:
    status = claim.setdefault("status", {})
    if users:
        status["reservedFor"] = users
    else:
        status.pop("reservedFor", None)
        status.pop("allocation", None)


def _unprotect(claim: Object) -> None:
    left = [f for f in claim["metadata"].get("finalizers") or [] if f != FINALIZER]
    claim["metadata"]["finalizers"] = left
    if not left:
        del claim["metadata"]["finalizers"]
