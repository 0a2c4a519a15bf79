"""The common part of job controllers: a queue of jobs that is triggered by changes of their objects."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..apiserver.schema.errors import ApiError
from ..apiserver.schema.values import clone
from ..controlplane.owned import QueueController, controller_of, is_of, reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..controlplane.queue import Key

Object = dict[str, Any]
ENDED = ("Succeeded", "Failed")


class OwnerController(QueueController):
    """A controller of one custom kind, whose objects own other objects."""

    owns: tuple[str, ...] = ("pods", "jobs.batch")

    def start(self) -> None:
        """Watch, and process existing objects."""
        super().start()
        for obj in self.store.list(self.key):
            self._changed("ADDED", obj, None)

    def _changed(self, _: str, obj: Object, __: Object | None) -> None:
        self.queue.add((obj["metadata"]["namespace"], obj["metadata"]["name"]))

    def _part_changed(self, _: str, part: Object, __: Object | None) -> None:
        """Queue the owner after a change of its object, or of an object that its Job owns."""
        owner, kind, space = controller_of(part), self.store.kind(self.key).kind, part["metadata"]["namespace"]
        if owner is not None and owner["kind"] == "Job" and kind != "Job":
            job = self.store.get("jobs.batch", space, owner["name"])
            owner = controller_of(job) if job else None
        if owner is not None and owner["kind"] == kind:
            self.queue.add((space, owner["name"]))

    def sync(self, key: Key) -> float | None:
        """Reconcile one object; return the seconds until the next time."""
        obj = self.store.get(self.key, *key)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return None
        return self.reconcile(clone(obj))

    def reconcile(self, obj: Object) -> float | None:
        """Reconcile a copy of the object."""
        raise NotImplementedError

    # -- owned objects

    def ensure(self, owner: Object, key: str, body: Object) -> Object | None:
        """Return the object with that name, created if it is missing; None if it has another owner or is rejected."""
        space, name = owner["metadata"]["namespace"], body["metadata"]["name"]
        existing = self.store.get(key, space, name)
        if existing is None:
            return self.make(owner, key, body)
        if not is_of(owner, existing):
            kind = self.store.kind(key).kind
            self.event(
                owner,
                "Warning",
                "ErrResourceExists",
                f'Resource "{name}" of Kind "{kind}" already exists and is not managed by {owner["kind"]}',
            )
            return None
        return existing

    def make(self, owner: Object, key: str, body: Object) -> Object | None:
        """Create an object with this owner; None if the API server rejects it, which an event reports."""
        kind = self.store.kind(key)
        meta = {**body["metadata"], "namespace": owner["metadata"]["namespace"], "ownerReferences": [reference(owner)]}
        full = {"apiVersion": kind.api_version, "kind": kind.kind, **body, "metadata": meta}
        try:
            return self.store.create(key, full, meta["namespace"], user=f"system:serviceaccount:{self.component}")
        except ApiError as error:
            if "is being terminated" not in error.message:
                self.refused(owner, kind.kind, body, error.message)
            self.queue.later(
                (meta["namespace"], owner["metadata"]["name"]),
                self.queue.failed((meta["namespace"], owner["metadata"]["name"])),
            )
            return None

    def refused(self, owner: Object, kind: str, body: Object, why: str) -> None:
        """Record that the API server rejected an object."""
        del body
        self.event(owner, "Warning", f"FailedCreate{kind}", f"Error creating: {why}")

    def owned(self, owner: Object, key: str = "pods") -> list[Object]:
        """Return the objects of the owner."""
        return [each for each in self.store.list(key, owner["metadata"]["namespace"]) if is_of(owner, each)]

    def remove(self, key: str, obj: Object, propagation: str | None = "Background") -> None:
        """Delete an object, unless it is gone."""
        meta = obj["metadata"]
        if not meta.get("deletionTimestamp"):
            with contextlib.suppress(ApiError):
                self.store.delete(key, meta["namespace"], meta["name"], uid=meta["uid"], propagation=propagation)

    def change(self, key: str, obj: Object, change: Callable[[Object], object], subresource: str | None = None) -> None:
        """Edit an object."""
        self.store.mutate(key, obj["metadata"]["namespace"], obj["metadata"]["name"], change, subresource)

    def write(self, obj: Object) -> None:
        """Write the status of the copy."""
        status, uid = obj.get("status") or {}, obj["metadata"]["uid"]

        def change(held: Object) -> None:
            if held["metadata"]["uid"] == uid:
                held["status"] = status

        self.change(self.key, obj, change, "status")

    def event(self, obj: Object, kind: str, reason: str, message: str) -> None:
        """Record an event."""
        self.store.event(obj, kind, reason, message[:1024], self.component)


def phase(pod: Object) -> str:
    """Return a pod's phase."""
    return str((pod.get("status") or {}).get("phase", "Pending"))


def headless(name: str, selector: dict[str, str], **more: Any) -> Object:
    """Return a headless Service."""
    return {"metadata": {"name": name}, "spec": {"clusterIP": "None", "selector": selector, **more}}
