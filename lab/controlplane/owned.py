"""Pods of a workload: adoption, creation from its template, availability."""

from __future__ import annotations

import contextlib
import json
import zlib
from typing import TYPE_CHECKING, Any

from ..apiserver.schema import selectors
from ..apiserver.schema.errors import ApiError
from ..apiserver.schema.values import clone, epoch
from .endpoints import is_ready
from .queue import Key, Queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..apiserver.store import Store

Object = dict[str, Any]
ENDED = ("Succeeded", "Failed")
SAFE = "bcdfghjklmnpqrstvwxz2456789"
"""The alphabet of generated names (k8s.io/apimachinery/pkg/util/rand), without vowels to avoid real words."""


def reference(owner: Object) -> Object:
    """Return the ownerReference for objects that a controller creates."""
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(obj: Object) -> Object | None:
    """Return the ownerReference of the object's controller."""
    return next((o for o in obj["metadata"].get("ownerReferences") or [] if o.get("controller")), None)


def is_of(owner: Object, obj: Object) -> bool:
    """Return whether `owner` controls `obj`."""
    held = controller_of(obj)
    return held is not None and held["uid"] == owner["metadata"]["uid"]


def template_hash(template: Object) -> str:
    """Return a short hash of a template; a real cluster's differs, as it hashes Go's print of the object."""
    digits = str(zlib.crc32(json.dumps(template, sort_keys=True).encode()))
    return "".join(SAFE[ord(digit) % len(SAFE)] for digit in digits)


def new_pod(owner: Object, **labels: str) -> Object:
    """Return the next pod of a workload's template."""
    meta, template = owner["metadata"], clone(owner["spec"]["template"])
    held = template.get("metadata") or {}
    metadata = {
        "generateName": f"{meta['name']}-",
        "namespace": meta["namespace"],
        "labels": {**(held.get("labels") or {}), **labels},
        "ownerReferences": [reference(owner)],
    }
    for part in ("annotations", "finalizers"):
        if held.get(part):
            metadata[part] = held[part]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def available_in(pod: Object, min_ready_s: int, now: float) -> float | None:
    """Return the seconds until a pod is available: 0 now, None if it is not ready."""
    if not is_ready(pod) or pod["metadata"].get("deletionTimestamp"):
        return None
    if not min_ready_s:
        return 0.0
    since = next(c.get("lastTransitionTime") for c in pod["status"]["conditions"] if c["type"] == "Ready")
    return max(0.0, epoch(since) + min_ready_s - now) if since else 0.0


def condition(status: Object, kind: str, state: str, reason: str, message: str, now: str) -> None:
    """Set a condition of a workload; its transition time changes with its status only."""
    conditions = status.setdefault("conditions", [])
    held = next((c for c in conditions if c["type"] == kind), None)
    if held is not None and (held["status"], held["reason"], held["message"]) == (state, reason, message):
        return
    new = {
        "type": kind,
        "status": state,
        "lastUpdateTime": now,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }
    if held is not None:
        if held["status"] == state:
            new["lastTransitionTime"] = held["lastTransitionTime"]
        conditions.remove(held)
    conditions.append(new)


class QueueController:
    """A queue of objects of one kind, triggered by changes of them and of objects they own."""

    key = component = ""
    owns: tuple[str, ...] = ("pods",)

    def __init__(self, store: Store) -> None:
        self.store = store
        self.queue = Queue(self.sync)
        self._ends: list[Callable[[], None]] = []

    def start(self) -> None:
        """Watch."""
        self._ends = [self.store.subscribe(self.key, self._changed)]
        self._ends += [self.store.subscribe(key, self._part_changed) for key in self.owns]

    def close(self) -> None:
        """Stop."""
        self.queue.close()
        for end in self._ends:
            end()

    def _changed(self, change: str, obj: Object, old: Object | None) -> None:
        raise NotImplementedError

    def _part_changed(self, change: str, part: Object, old: Object | None) -> None:
        raise NotImplementedError

    def sync(self, key: Key) -> float | None:
        """Reconcile one object; return the seconds until the next time."""
        raise NotImplementedError


class WorkloadController(QueueController):
    """The common part of the controllers of pods.

    Initial objects of the world are left unchanged until they, or an object they own, change.
    """

    kind = ""

    def _changed(self, change: str, obj: Object, old: Object | None) -> None:
        meta = obj["metadata"]
        if (
            change == "MODIFIED"
            and old is not None
            and obj["spec"] == old["spec"]
            and (
                {k: v for k, v in meta.items() if k != "resourceVersion"}
                == {k: v for k, v in old["metadata"].items() if k != "resourceVersion"}
            )
        ):
            return  # our own status
        self.queue.add((meta["namespace"], meta["name"]))

    def _part_changed(self, _: str, obj: Object, __: Object | None) -> None:
        owner = controller_of(obj)
        if owner is not None and owner["kind"] == self.kind:
            self.queue.add((obj["metadata"]["namespace"], owner["name"]))

    def living(self, key: Key) -> Object | None:
        """Return the workload, unless it is deleted or terminating."""
        workload = self.store.get(self.key, *key)
        return None if workload is None or workload["metadata"].get("deletionTimestamp") else workload

    def pods(self, owner: Object) -> list[Object]:
        """Return the pods of a workload; matching pods without an owner are adopted."""
        namespace = owner["metadata"]["namespace"]
        matches = selectors.labels(owner["spec"].get("selector") or {})
        pods = []
        for pod in self.store.list("pods", namespace):
            held = controller_of(pod)
            if (
                held is None
                and not pod["metadata"].get("deletionTimestamp")
                and (pod["status"].get("phase") not in ENDED and matches(pod["metadata"].get("labels") or {}))
            ):
                pod = self._adopt(owner, pod)  # noqa: PLW2901 - the same pod, adopted
                held = controller_of(pod)
            if held is not None and held["uid"] == owner["metadata"]["uid"]:
                pods.append(pod)
        return pods

    def _adopt(self, owner: Object, pod: Object) -> Object:
        def adopt(p: Object) -> None:
            p["metadata"].setdefault("ownerReferences", []).append(reference(owner))

        return self.store.mutate("pods", pod["metadata"]["namespace"], pod["metadata"]["name"], adopt) or pod

    def active(self, owner: Object) -> list[Object]:
        """Return its pods that have neither ended nor are terminating."""
        return [
            p
            for p in self.pods(owner)
            if p["status"].get("phase") not in ENDED and not p["metadata"].get("deletionTimestamp")
        ]

    def create(self, owner: Object, pod: Object) -> str:
        """Create a pod; return the reason of a failure, which an event reports, too."""
        try:
            made = self.store.create(
                "pods", pod, owner["metadata"]["namespace"], user=f"system:serviceaccount:kube-system:{self.component}"
            )
        except ApiError as error:
            if "is being terminated" not in error.message:
                self.event(owner, "Warning", "FailedCreate", f"Error creating: {error.message}")
            return error.message
        self.event(owner, "Normal", "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
        return ""

    def remove(self, owner: Object, pod: Object) -> None:
        """Delete a pod."""
        meta = pod["metadata"]
        with contextlib.suppress(ApiError):  # already deleted
            self.store.delete("pods", meta["namespace"], meta["name"], uid=meta["uid"])
            self.event(owner, "Normal", "SuccessfulDelete", f"Deleted pod: {meta['name']}")

    def write(self, owner: Object, status: Object) -> None:
        """Write the status if it changed."""
        if owner.get("status") == status:
            return
        uid = owner["metadata"]["uid"]

        def change(obj: Object) -> None:
            if obj["metadata"]["uid"] == uid:
                obj["status"] = status

        self.store.mutate(self.key, owner["metadata"]["namespace"], owner["metadata"]["name"], change, "status")

    def event(self, owner: Object, kind: str, reason: str, message: str) -> None:
        """Record an event about a workload."""
        self.store.event(owner, kind, reason, message, self.component)
