"""The steps between the request and the store: admission, preparation, validation, deletion.

There is one function for each kind of write, in the API server's order: defaults, mutating admission, preparation,
validation, then validating admission (PodSecurity, quota).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import admission, advice, base, customs, defaults, fieldsets, prepare, validation
from .admission import lifecycle
from .errors import conflict, invalid
from .kinds import WITH_GENERATION
from .validation import events, pods
from .values import clone, rfc3339

if TYPE_CHECKING:
    from .kinds import Kind
    from .requests import Request
    from .seams import Objects
    from .values import Object


BASE_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
# Kinds whose dependents are orphaned if no policy is given: batch/v1 jobs and replication controllers
# (rest.OrphanDependents as default in their strategies).
ORPHANS_BY_DEFAULT = frozenset({"jobs.batch", "replicationcontrollers"})


def bootstrap(store: Objects) -> None:
    """Create the initial objects of every cluster."""
    for name in BASE_NAMESPACES:
        store.create("namespaces", {"metadata": {"name": name}})
        store.create("serviceaccounts", {"metadata": {"name": "default"}}, name)
    for key, obj in base.objects():
        store.create(key, obj, obj["metadata"].get("namespace"))


def create(store: Objects, kind: Kind, new: Object, request: Request) -> None:
    """Prepare, default and check a new object."""
    if not request.trusted:
        _defaults(kind, new)
        admission.mutate(store, kind, new, request)
        for webhook in store.webhooks:
            webhook(kind, new, None)
    if kind.key in WITH_GENERATION or kind.custom:
        new["metadata"]["generation"] = 1
    prepare.create(store, kind, new, request)
    if request.trusted:
        lifecycle.namespace_takes(store, kind, new, request)
        return
    causes = validation.check(kind, new)
    if kind.key == "events.events.k8s.io":
        causes += events.new_event(new)
    if kind.key == "pods":
        causes += pods.new_pod(new)
    if causes:
        raise invalid(kind.kind, _error_group(kind), new["metadata"].get("name", ""), causes)
    request.warnings.extend(advice.on_create(kind, new))
    admission.judge(store, kind, new, request)
    fieldsets.track(kind, {}, new, request, store.clock())


def _defaults(kind: Kind, new: Object) -> None:
    if kind.custom:
        customs.fill(kind, new)
    else:
        defaults.fill(kind.key, new)


def _error_group(kind: Kind) -> str:
    return "" if kind.stored_as == "events" else kind.group


def update(store: Objects, kind: Kind, old: Object, new: Object, request: Request) -> Object:
    """Prepare, default and check a new state of an object; return the state to store."""
    if not request.trusted:
        _defaults(kind, new)
    new = prepare.update(store, kind, old, new, request)
    if (kind.key in WITH_GENERATION or kind.custom) and prepare.desired_state(kind, old) != prepare.desired_state(
        kind, new
    ):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    if request.trusted:
        return new
    causes = validation.check(kind, new)
    if request.subresource not in ("status", "resize", "ephemeralcontainers"):
        causes += validation.check_change(kind.key, old, new)
    elif request.subresource == "ephemeralcontainers":
        causes += pods.ephemeral_change(old, new)
    if causes:
        raise invalid(kind.kind, _error_group(kind), old["metadata"]["name"], causes)
    request.warnings.extend(advice.on_update(kind, old, new))
    admission.judge_change(store, kind, old, new, request)
    for webhook in () if request.subresource == "status" else store.webhooks:
        webhook(kind, new, old)
    fieldsets.track(kind, old, new, request, store.clock())
    return new


def same(old: Object, new: Object) -> bool:
    """Return whether a write changes nothing but its manager (then the resourceVersion stays)."""
    return old == new or fieldsets.same_but_times(old, new)


def precondition(kind: Kind, old: Object, uid: str | None, resource_version: str | None) -> None:
    """Reject a deletion whose preconditions name another object or another state."""
    meta = old["metadata"]
    if uid and uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(kind.kind, kind.group, meta["name"], why)
    if resource_version and resource_version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({resource_version}) does not match the ResourceVersion in "
            f"record ({meta['resourceVersion']}). The object might have been modified"
        )
        raise conflict(kind.kind, kind.group, meta["name"], why)


def deleting(store: Objects, kind: Kind, old: Object, request: Request) -> None:
    """Reject the deletion of a protected object."""
    del store, request
    lifecycle.deletable(kind, old["metadata"]["name"])


def mark_deleted(store: Objects, kind: Kind, old: Object, grace: int | None, propagation: str | None) -> Object:
    """Return the object after the start of its deletion: finalizers of the propagation policy, time, grace period."""
    new: Object = clone(old)
    meta = new["metadata"]
    finalizers = _finalizers(kind, meta, propagation)
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
    if finalizers or kind.key in ("pods", "namespaces"):
        # Only objects that remain for now are marked; others are deleted unchanged.
        meta["deletionTimestamp"] = rfc3339(store.clock() + seconds)
        meta["deletionGracePeriodSeconds"] = seconds
        if "generation" in meta:
            meta["generation"] += 1  # rest.BeforeDelete: the start of a deletion is a change of the desired state
    if kind.key == "namespaces":
        new["status"] = {**new.get("status", {}), "phase": "Terminating"}
    return new


def _finalizers(kind: Kind, meta: Object, propagation: str | None) -> list[str]:
    held = meta.get("finalizers") or []
    if propagation is None:
        chosen = [f for f in held if f in (FOREGROUND, ORPHAN)]
        if not chosen and kind.key in ORPHANS_BY_DEFAULT and not meta.get("deletionTimestamp"):
            chosen = [ORPHAN]
    else:
        chosen = [{"Foreground": FOREGROUND, "Orphan": ORPHAN}[propagation]] if propagation != "Background" else []
    return [f for f in held if f not in (FOREGROUND, ORPHAN)] + chosen


def _grace(pod: Object, asked: int | None) -> int:
    """Return a pod's grace period in seconds: 0 before it has a node and after it has ended."""
    spec = pod.get("spec", {})
    if not spec.get("nodeName") or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if asked is not None and asked >= 0:
        return asked
    own = int(spec.get("terminationGracePeriodSeconds", 30))
    return own if asked is None and own >= 0 else 1


def may_vanish(kind: Kind, obj: Object) -> bool:
    """Return whether a deleted object can be removed."""
    meta = obj["metadata"]
    if meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return False
    return not (kind.key == "namespaces" and obj.get("spec", {}).get("finalizers"))


def committed(store: Objects, kind: Kind, new: Object, old: Object | None) -> None:
    """Act on a stored object: a definition starts to serve its kind."""
    if kind.key != customs.KEY or (old is not None and old["spec"] == new["spec"]):
        return
    spec = new["spec"]
    store.kinds.remove(spec["group"], spec["names"]["plural"])
    for served in customs.kinds(new):
        store.kinds.add(served)
    status = customs.established(new, store.clock())
    store.mutate(kind.key, None, new["metadata"]["name"], lambda obj: obj.update(status=status))


def removed(store: Objects, kind: Kind, last: Object) -> None:
    """Act on a removed object: a definition's objects and kind are removed, too."""
    if kind.key != customs.KEY:
        return
    spec = last["spec"]
    key = f"{spec['names']['plural']}.{spec['group']}"
    if key in store.kinds.by_key:
        for obj in store.list(key):
            meta = obj["metadata"]
            store.mutate(
                key, meta.get("namespace"), meta["name"], lambda held: held["metadata"].pop("finalizers", None)
            )
            store.delete(key, meta.get("namespace"), meta["name"])
    store.kinds.remove(spec["group"], spec["names"]["plural"])


__all__ = [
    "bootstrap",
    "committed",
    "create",
    "deleting",
    "mark_deleted",
    "may_vanish",
    "precondition",
    "removed",
    "same",
    "update",
]
