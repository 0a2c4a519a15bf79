"""The garbage collector: deletes objects after their owners.

Dependents are deleted after their last owner (background), block it until they are gone (foreground), or stay without
the reference (orphan). A dependent whose owner never existed is collected, too.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..apiserver.schema.errors import ApiError
from .queue import Key, Queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..apiserver.store import Store

Object = dict[str, Any]
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
SKIPPED = frozenset({"events", "events.events.k8s.io"})
"""Numerous objects that own nothing (the collector ignores them: GetDefaultIgnoredResources)."""


class GarbageCollector:
    """The collector, which tracks the owner references of all kinds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._alive: dict[str, tuple[str, str, str]] = {}
        """uid -> (store key, namespace, name)."""
        self._dependents: dict[str, set[str]] = {}
        self._owners: dict[str, list[str]] = {}
        self._queue = Queue(self._look)
        self._ends: dict[str, Callable[[], None]] = {}

    def start(self) -> None:
        """Watch every kind, and the kinds that are added later."""
        self._follow()
        self._ends["+"] = self._store.subscribe(
            "customresourcedefinitions.apiextensions.k8s.io", lambda *_: self._follow()
        )

    def close(self) -> None:
        """Stop."""
        self._queue.close()
        for end in self._ends.values():
            end()

    def _follow(self) -> None:
        for kind in list(self._store.kinds.by_key.values()):
            key = kind.store_key
            if key in self._ends or key in SKIPPED:
                continue
            try:
                existing = self._store.list(key)
            except ApiError:
                continue  # a resource without storage, such as an access review
            self._ends[key] = self._store.subscribe(key, self._listener(key))
            for obj in existing:
                self._changed(key, "ADDED", obj)

    def _listener(self, key: str) -> Callable[[str, Object, Object | None], None]:
        def listen(change: str, obj: Object, _: Object | None) -> None:
            self._changed(key, change, obj)

        return listen

    def _changed(self, key: str, change: str, obj: Object) -> None:
        meta = obj["metadata"]
        uid = meta["uid"]
        if change == "DELETED":
            self._alive.pop(uid, None)
            for owner in self._owners.pop(uid, []):
                self._dependents.get(owner, set()).discard(uid)
                self._queue.add(("", owner))
            for dependent in list(self._dependents.get(uid, ())):
                self._queue.add(("", dependent))
            self._dependents.pop(uid, None)
            return
        self._alive[uid] = (key, meta.get("namespace", ""), meta["name"])
        owners = [o["uid"] for o in meta.get("ownerReferences") or []]
        before = self._owners.get(uid, [])
        if owners != before:
            for gone in set(before) - set(owners):
                self._dependents.get(gone, set()).discard(uid)
                self._queue.add(("", gone))
            for owner in owners:
                self._dependents.setdefault(owner, set()).add(uid)
            self._owners[uid] = owners
        waits = {FOREGROUND, ORPHAN} & set(meta.get("finalizers") or [])
        if owners or (meta.get("deletionTimestamp") and waits):
            self._queue.add(("", uid))

    def _get(self, uid: str) -> tuple[str, Object] | None:
        where = self._alive.get(uid)
        obj = self._store.get(*where) if where else None
        return (where[0], obj) if where and obj is not None and obj["metadata"]["uid"] == uid else None

    def _look(self, item: Key) -> float | None:
        uid = item[1]
        located = self._get(uid)
        if located is None:
            return None
        key, obj = located
        finalizers = obj["metadata"].get("finalizers") or []
        if obj["metadata"].get("deletionTimestamp"):
            if ORPHAN in finalizers:
                self._orphan(key, obj)
            elif FOREGROUND in finalizers:
                self._foreground(key, obj)
            return None
        self._collect(key, obj)
        return None

    def _collect(self, key: str, obj: Object) -> None:
        """Delete an object without remaining owners; drop references to missing ones."""
        references = obj["metadata"].get("ownerReferences") or []
        solid = [r for r in references if self._exists(r, obj)]
        if not references or len(solid) == len(references):
            return
        meta = obj["metadata"]
        if solid:
            self._keep(key, obj, lambda r: r in solid)
            return
        finalizers = meta.get("finalizers") or []
        policy = "Orphan" if ORPHAN in finalizers else "Foreground" if FOREGROUND in finalizers else "Background"
        with contextlib.suppress(ApiError):
            self._store.delete(key, meta.get("namespace", ""), meta["name"], propagation=policy, uid=meta["uid"])

    def _exists(self, reference: Object, dependent: Object) -> bool:
        if reference["uid"] in self._alive:
            return True
        group = reference["apiVersion"].rpartition("/")[0]
        for kind in self._store.kinds.by_key.values():
            if kind.kind == reference["kind"] and kind.group == group:
                namespace = dependent["metadata"].get("namespace", "") if kind.namespaced else ""
                owner = self._store.get(kind.key, namespace, reference["name"])
                return owner is not None and owner["metadata"]["uid"] == reference["uid"]
        return True  # an unknown kind (so far): the collector waits

    def _keep(self, key: str, obj: Object, keeps: Callable[[Object], bool]) -> None:
        meta = obj["metadata"]

        def change(o: Object) -> None:
            left = [r for r in o["metadata"].get("ownerReferences") or [] if keeps(r)]
            if left:
                o["metadata"]["ownerReferences"] = left
            else:
                o["metadata"].pop("ownerReferences", None)

        self._store.mutate(key, meta.get("namespace", ""), meta["name"], change)

    def _release(self, key: str, obj: Object, finalizer: str) -> None:
        meta = obj["metadata"]

        def change(o: Object) -> None:
            left = [f for f in o["metadata"].get("finalizers") or [] if f != finalizer]
            if left:
                o["metadata"]["finalizers"] = left
            else:
                o["metadata"].pop("finalizers", None)

        self._store.mutate(key, meta.get("namespace", ""), meta["name"], change)

    def _orphan(self, key: str, owner: Object) -> None:
        uid = owner["metadata"]["uid"]
        for dependent in list(self._dependents.get(uid, ())):
            located = self._get(dependent)
            if located is not None:
                self._keep(*located, lambda r: r["uid"] != uid)
        self._release(key, owner, ORPHAN)

    def _foreground(self, key: str, owner: Object) -> None:
        uid = owner["metadata"]["uid"]
        blocking = False
        for dependent in list(self._dependents.get(uid, ())):
            located = self._get(dependent)
            if located is None:
                continue
            dependent_key, obj = located
            meta = obj["metadata"]
            other_owners = [r for r in meta.get("ownerReferences") or [] if r["uid"] != uid and self._exists(r, obj)]
            if other_owners:
                self._keep(dependent_key, obj, lambda r: r["uid"] != uid)
                continue
            if not meta.get("deletionTimestamp"):
                policy = "Foreground" if self._dependents.get(dependent) else "Background"
                with contextlib.suppress(ApiError):
                    self._store.delete(
                        dependent_key, meta.get("namespace", ""), meta["name"], propagation=policy, uid=meta["uid"]
                    )
                located = self._get(dependent)
            reference: Object = next((r for r in meta.get("ownerReferences") or [] if r["uid"] == uid), {})
            blocking = blocking or (located is not None and bool(reference.get("blockOwnerDeletion")))
        if not blocking:
            self._release(key, owner, FOREGROUND)
