"""What happens to an object between the request and the shelf? Preparation, defaults, validation, admission, deletion.

One entry for each kind of write; the order is the API server's: prepare, mutate by admission, default, validate, then
the admission that only says yes or no (PodSecurity, quota).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from . import base
from .errors import ApiError, conflict, forbidden, not_found
from .kinds import WITH_GENERATION
from .values import clone, rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable

    from .kinds import Kind, Kinds
    from .requests import Request
    from .values import Object


class Objects(Protocol):
    """What the rules ask of the store."""

    kinds: Kinds
    clock: Callable[[], float]

    def get(self, key: str, ns: str | None, name: str) -> Object | None:
        """Return an object or None."""

    def list(self, key: str, ns: str | None = None, selector: Any = "") -> list[Object]:
        """Return the objects of a namespace."""

    def create(self, key: str, obj: Object, ns: str | None = None) -> Object:
        """Create an object."""


BASE_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
UNDELETABLE = ("default", "kube-public", "kube-system")  # admission plugin NamespaceLifecycle
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
# Kinds whose dependents stay when nobody names a policy: batch/v1 jobs and replication controllers
# (rest.GarbageCollectionPolicyOrphan in their strategies).
ORPHANS_BY_DEFAULT = frozenset({"jobs.batch", "replicationcontrollers"})


def bootstrap(store: Objects) -> None:
    """Create what every cluster has from its first second."""
    for name in BASE_NAMESPACES:
        store.create("namespaces", {"metadata": {"name": name}})
    for key, obj in base.objects():
        store.create(key, obj, obj["metadata"].get("namespace"))


def create(store: Objects, kind: Kind, new: Object, request: Request) -> None:
    """Prepare, default and check an object that is to be created."""
    _namespace_takes(store, kind, new, request)
    if kind.key in WITH_GENERATION or kind.custom:
        new["metadata"]["generation"] = 1
    if kind.key == "namespaces":
        new.setdefault("metadata", {}).setdefault("labels", {})["kubernetes.io/metadata.name"] = new["metadata"].get("name", "")
        new["spec"] = {"finalizers": ["kubernetes"]}
        new["status"] = {"phase": "Active"}
    if kind.key == "pods":
        new.setdefault("status", {}).setdefault("phase", "Pending")


def created(store: Objects, kind: Kind, new: Object, request: Request) -> None:
    """Apply what comes last, once the name is known to be free."""


def _namespace_takes(store: Objects, kind: Kind, new: Object, request: Request) -> None:
    if not kind.namespaced or request.trusted:
        return
    meta = new["metadata"]
    namespace = store.get("namespaces", None, meta["namespace"])
    if namespace is None:
        raise not_found("namespaces", "", meta["namespace"])
    if namespace["metadata"].get("deletionTimestamp"):
        text = (
            f"unable to create new content in namespace {meta['namespace']} because it is being terminated"
        )
        error = forbidden(kind.plural, kind.group, meta.get("name", ""), text)
        error.details["causes"] = [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {meta['namespace']} is being terminated",
                "field": "metadata.namespace",
            }
        ]
        raise error


def update(store: Objects, kind: Kind, old: Object, new: Object, request: Request) -> Object:
    """Prepare, default and check a new state of an object; returns what is to be stored."""
    new = {"apiVersion": old["apiVersion"], "kind": old["kind"], **{k: v for k, v in new.items() if k not in ("kind", "apiVersion")}}
    meta, held = new["metadata"], old["metadata"]
    for fixed in ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "generateName"):
        if fixed in held:
            meta[fixed] = held[fixed]
        else:
            meta.pop(fixed, None)
    if kind.sub("status") is not None and not request.trusted:
        _isolate(old, new, request.subresource)
    if (kind.key in WITH_GENERATION or kind.custom) and _desired(old) != _desired(new):
        meta["generation"] = held.get("generation", 0) + 1
    return new


def updated(store: Objects, kind: Kind, old: Object, new: Object, request: Request) -> None:
    """Apply what comes last, once it is known that something changed."""


def _isolate(old: Object, new: Object, subresource: str) -> None:
    """Keep the part that the path does not write."""
    if subresource == "status":
        for part in [part for part in new if part not in ("metadata", "status", "kind", "apiVersion")]:
            del new[part]
        new.update({part: clone(value) for part, value in old.items() if part not in ("metadata", "status")})
    elif "status" in old:
        new["status"] = clone(old["status"])
    else:
        new.pop("status", None)


def _desired(obj: Object) -> Object:
    return {part: value for part, value in obj.items() if part not in ("metadata", "status")}


def same(old: Object, new: Object) -> bool:
    """Tell whether a write changes nothing (then the resourceVersion stays)."""
    return old == new


def precondition(kind: Kind, old: Object, uid: str | None, resource_version: str | None) -> None:
    """Refuse a deletion that was meant for another object or another state."""
    meta = old["metadata"]
    if uid and uid != meta["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}"
        raise conflict(kind.plural, kind.group, meta["name"], why)
    if resource_version and resource_version != meta["resourceVersion"]:
        why = (
            f"Precondition failed: ResourceVersion in precondition: {resource_version}, "
            f"ResourceVersion in object meta: {meta['resourceVersion']}"
        )
        raise conflict(kind.plural, kind.group, meta["name"], why)


def deleting(store: Objects, kind: Kind, old: Object, request: Request) -> None:
    """Refuse what may not be deleted."""
    name = old["metadata"]["name"]
    if kind.key == "namespaces" and name in UNDELETABLE:
        raise forbidden("namespaces", "", name, "this namespace may not be deleted")


def mark_deleted(store: Objects, kind: Kind, old: Object, grace: int | None, propagation: str | None) -> Object:
    """Return the object as a deletion leaves it: finalizers of the propagation policy, time, grace period."""
    new: Object = clone(old)
    meta = new["metadata"]
    finalizers = [f for f in meta.get("finalizers") or [] if f not in (FOREGROUND, ORPHAN)]
    if propagation is None:
        held = [f for f in meta.get("finalizers") or [] if f in (FOREGROUND, ORPHAN)]
        finalizers += held or ([ORPHAN] if kind.key in ORPHANS_BY_DEFAULT else [])
    elif propagation in ("Foreground", "Orphan"):
        finalizers.append(FOREGROUND if propagation == "Foreground" else ORPHAN)
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
    seconds = _grace(old, grace) if kind.key == "pods" else 0
    if meta.get("deletionTimestamp"):
        if seconds < meta.get("deletionGracePeriodSeconds", 0):
            meta["deletionGracePeriodSeconds"] = seconds
            meta["deletionTimestamp"] = rfc3339(store.clock() + seconds)
        return new
    meta["deletionTimestamp"] = rfc3339(store.clock() + seconds)
    meta["deletionGracePeriodSeconds"] = seconds
    if kind.key == "namespaces":
        new["status"] = {**new.get("status", {}), "phase": "Terminating"}
    if "generation" in meta and (finalizers or seconds):
        meta["generation"] += 1  # registry/rest BeforeDelete: the start of a graceful deletion is a change of the wish
    return new


def _grace(pod: Object, asked: int | None) -> int:
    """Return a pod's grace period in seconds: none before it has a node and after it has ended."""
    if asked is not None and asked >= 0:
        seconds = asked
    else:
        spec = pod.get("spec", {})
        seconds = int(spec.get("terminationGracePeriodSeconds", 30))
        seconds = max(seconds, 1) if asked is not None else seconds
    if not pod.get("spec", {}).get("nodeName") or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    return seconds


def may_vanish(kind: Kind, obj: Object) -> bool:
    """Tell whether nothing holds a deleted object any more."""
    meta = obj["metadata"]
    if meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return False
    return not (kind.key == "namespaces" and obj.get("spec", {}).get("finalizers"))


def removed(store: Objects, kind: Kind, last: Object) -> None:
    """Clean up after an object that is gone (custom resources lose their kind)."""


__all__ = ["ApiError", "Objects", "bootstrap", "create", "created", "deleting", "mark_deleted", "may_vanish", "precondition", "removed", "same", "update", "updated"]
