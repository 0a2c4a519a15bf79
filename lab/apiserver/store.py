"""The store: every object, one global resourceVersion, a history for watches.

The store is synchronous and therefore atomic: a call either raises `ApiError` and changes nothing, or the change is
visible to the next call and announced to subscribers in order. Results of `get` and `list` are shared: never mutate
them.
"""

from __future__ import annotations

import asyncio
import functools
import time
from typing import TYPE_CHECKING, Any

from .event_recorder import EventRecorder
from .schema import rules, seams, selectors
from .schema.errors import ApiError, already_exists, conflict, not_found
from .schema.history import FIRST_REVISION, Change, ChangeType, History, Stored
from .schema.kinds import Kind, Kinds, registry
from .schema.requests import Request
from .schema.values import Object, clone, generated_name, new_uid, rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .authority import Authority

__all__ = ["FIRST_REVISION", "ApiError", "Change", "Kind", "Kinds", "Object", "Request", "Store", "Stored", "clone"]

WINDOW = 20_000  # changes kept per resource for watches that resume


class Store:
    """All objects of one cluster.

    `key` is a plural with its group: "pods", "jobs.batch", "endpointslices.discovery.k8s.io".
    """

    def __init__(self, *, clock: Callable[[], float] = time.time, window: int = WINDOW) -> None:
        self.kinds: Kinds = registry()
        self.clock = clock
        self.revision = FIRST_REVISION
        self._window = window
        self._tables: dict[str, dict[str, dict[str, Stored]]] = {}
        self._histories: dict[str, History] = {}
        self._subscribers: dict[str, list[Callable[[str, Object, Object | None], object]]] = {}
        self._backlog: list[Callable[[], object]] = []
        self.event = EventRecorder(self).record
        self._ordered: dict[str, tuple[int, list[Stored]]] = {}
        self.webhooks: list[seams.Webhook] = []
        """The operators' webhooks: called with (kind, new, old or None), may change a new object."""
        rules.bootstrap(self)

    @functools.cached_property
    def authority(self) -> Authority:
        """The cluster's identity: certificate authority, server certificate, service account signing key."""
        from .authority import Authority  # noqa: PLC0415 - costs the import of cryptography; not every store signs

        return Authority.create(self.clock)

    # -- reading

    def kind(self, key: str) -> Kind:
        """Return the kind for a key; 404 for an unknown one."""
        try:
            return self.kinds.by_key[key]
        except KeyError:
            raise ApiError(404, "NotFound", "the server could not find the requested resource") from None

    def now(self) -> str:
        """Return the current time in the format of objects."""
        return rfc3339(self.clock())

    def table(self, key: str) -> dict[str, dict[str, Stored]]:
        """Return namespace -> name -> stored object ("" is the namespace of cluster-scoped kinds)."""
        return self._tables.setdefault(self.kind(key).store_key, {})

    def history(self, key: str) -> History:
        """Return the history of a resource."""
        key = self.kind(key).store_key
        if key not in self._histories:
            self._histories[key] = History(FIRST_REVISION, self._window)
        return self._histories[key]

    def stored(self, key: str, ns: str | None, name: str) -> Stored | None:
        """Return the stored form of an object, with its encoded bytes."""
        return self.table(key).get(ns or "", {}).get(name)

    def get(self, key: str, ns: str | None, name: str) -> Object | None:
        """Return an object or None. Shared: do not mutate."""
        stored = self.stored(key, ns, name)
        return stored.obj if stored else None

    def need(self, key: str, ns: str | None, name: str) -> Object:
        """Return an object; 404 if it does not exist."""
        return self._need(self.kind(key), ns or "", name).obj

    def scan(self, key: str, ns: str | None = None) -> Iterator[Stored]:
        """Yield the stored objects in list order."""
        if ns is None:
            yield from self.ordered(key)
            return
        names = self.table(key).get(ns, {})
        for name in sorted(names):
            yield names[name]

    def ordered(self, key: str) -> list[Stored]:
        """Return all stored objects in the order of "namespace/name", as in etcd; shared until one changes."""
        table, latest = self.table(key), self.history(key).latest
        held = self._ordered.get(self.kind(key).store_key)
        if held is None or held[0] != latest:
            spaces = sorted(table, key=lambda namespace: f"{namespace}/")
            held = latest, [table[space][name] for space in spaces for name in sorted(table[space])]
            self._ordered[self.kind(key).store_key] = held
        return held[1]

    def scan_at(self, key: str, ns: str | None, revision: int) -> Iterator[Stored]:
        """Yield the objects at an earlier revision; 410 Expired if the history does not contain it."""
        then: dict[tuple[str, str], Stored | None] = {}
        for change in self.history(key).since(revision):
            then.setdefault((change.new.namespace, change.new.name), change.old)
        current = {(stored.namespace, stored.name): stored for stored in self.scan(key, ns)}
        for place, old in then.items():
            if ns is not None and place[0] != ns:
                continue
            if old is None:
                current.pop(place, None)
            else:
                current[place] = old
        for place in sorted(current, key=lambda place: (f"{place[0]}/", place[1])):
            yield current[place]

    def list(self, key: str, ns: str | None = None, selector: str | Mapping[str, Any] | None = "") -> list[Object]:
        """Return the objects of a namespace (None: of all) that match a label selector (text or LabelSelector)."""
        if selector == "":
            return [stored.obj for stored in self.scan(key, ns)]
        matches = selectors.labels(selector)
        return [s.obj for s in self.scan(key, ns) if matches(s.obj["metadata"].get("labels") or {})]

    # -- writing

    def create(
        self,
        key: str,
        obj: Object,
        ns: str | None = None,
        *,
        dry_run: bool = False,
        user: str = "",
        request: Request | None = None,
    ) -> Object:
        """Create an object after defaults, validation and admission; return it as stored."""
        kind = self.kind(key)
        request = request or Request(user=user or "system:admin", dry_run=dry_run)
        request.operation = "CREATE"
        new: Object = {"apiVersion": kind.api_version, "kind": kind.kind, **clone(obj)}
        meta: Object = new.setdefault("metadata", {})
        self._place(kind, meta, ns)
        names = self.table(key).get(meta.get("namespace", ""), {})
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = generated_name(meta["generateName"])
            while meta["name"] in names:
                meta["name"] = generated_name(meta["generateName"])
        meta["uid"] = new_uid()
        meta["creationTimestamp"] = self.now()
        for stale in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"):
            meta.pop(stale, None)
        rules.create(self, kind, new, request)
        if meta["name"] in names:
            raise already_exists(kind.plural, kind.group, meta["name"])
        return new if request.dry_run else self._commit(kind, "ADDED", new, None)

    def load(self, key: str, obj: Object, ns: str | None = None) -> Object:
        """Store an object unchanged, including its status, to build the initial state of a cluster.

        No defaults, no validation, no admission; uid and creationTimestamp are filled in. Takes ownership of `obj`.
        """
        kind = self.kind(key)
        obj.setdefault("apiVersion", kind.api_version)
        obj.setdefault("kind", kind.kind)
        meta = obj.setdefault("metadata", {})
        self._place(kind, meta, ns)
        meta.setdefault("uid", new_uid())
        meta.setdefault("creationTimestamp", self.now())
        return self._commit(kind, "ADDED", obj, None)

    def replace(
        self, key: str, obj: Object, subresource: str | None = None, *, request: Request | None = None
    ) -> Object:
        """Replace an object; 409 if its resourceVersion or uid is not the current one."""
        kind = self.kind(key)
        meta = obj.get("metadata", {})
        old = self._need(kind, meta.get("namespace", "") if kind.namespaced else "", meta.get("name", ""))
        return self._update(kind, old, clone(obj), subresource or "", request or Request(user="system:admin"))

    def mutate(
        self,
        key: str,
        ns: str | None,
        name: str,
        change: Callable[[Object], object],
        subresource: str | None = None,
        *,
        request: Request | None = None,
    ) -> Object | None:
        """Let `change` edit a copy in place and store it; None if the object does not exist.

        For controllers: it cannot conflict, and does not validate unless a request is given.
        """
        kind = self.kind(key)
        old = self.stored(key, ns, name)
        if old is None:
            return None
        new = clone(old.obj)
        change(new)
        request = request or Request(user="system:admin", trusted=True)
        return self._update(kind, old, new, subresource or "", request)

    def delete(
        self,
        key: str,
        ns: str | None,
        name: str,
        grace: int | None = None,
        propagation: str | None = None,
        uid: str | None = None,
        *,
        resource_version: str | None = None,
        request: Request | None = None,
    ) -> Object:
        """Delete an object, or mark it if finalizers or a grace period hold it; return its last state.

        `propagation` is Background, Foreground or Orphan; uid and resource_version are preconditions.
        """
        kind = self.kind(key)
        old = self._need(kind, ns or "", name)
        request = request or Request(user="system:admin", trusted=True)
        request.operation = "DELETE"
        rules.precondition(kind, old.obj, uid, resource_version)
        rules.deleting(self, kind, old.obj, request)
        new = rules.mark_deleted(self, kind, old.obj, grace, propagation)
        if rules.may_vanish(kind, new):
            if request.dry_run:
                return new
            if kind.key == "pods" and new != old.obj:
                # A grace period that starts, or is shortened, is written before the object is removed
                # (registry/store.go).
                new = self._commit(kind, "MODIFIED", new, old)
                old = self._need(kind, ns or "", name)
            return self._remove(kind, old, new)
        if new == old.obj or request.dry_run:
            return new
        return self._commit(kind, "MODIFIED", new, old)

    # -- watching

    def subscribe(self, key: str, callback: Callable[[str, Object, Object | None], object]) -> Callable[[], None]:
        """Call back (type, object, previous object) after each change, in order, from the event loop.

        Return a function that ends the subscription. Existing objects are not announced.
        """
        followers = self._subscribers.setdefault(self.kind(key).store_key, [])
        followers.append(callback)

        def unsubscribe() -> None:
            if callback in followers:
                followers.remove(callback)

        return unsubscribe

    def deliver(self) -> None:
        """Run callbacks that were queued before an event loop existed (tests, and the initial state of a cluster)."""
        backlog, self._backlog = self._backlog, []
        for call in backlog:
            call()

    # -- internal

    def _place(self, kind: Kind, meta: Object, ns: str | None) -> None:
        if not kind.namespaced:
            meta.pop("namespace", None)
        elif ns:
            meta["namespace"] = ns
        elif not meta.get("namespace"):
            raise ApiError(400, "BadRequest", f"an object of {kind.key} needs a namespace")

    def _need(self, kind: Kind, ns: str, name: str) -> Stored:
        stored = self._tables.get(kind.store_key, {}).get(ns, {}).get(name)
        if stored is None:
            raise not_found(kind.plural, kind.group, name)
        return stored

    def _update(self, kind: Kind, old: Stored, new: Object, subresource: str, request: Request) -> Object:
        request.operation = "UPDATE"
        request.subresource = subresource
        given = new.setdefault("metadata", {})
        held = old.obj["metadata"]
        if given.get("uid") not in (None, "", held["uid"]):
            raise _other_object(kind, old, given["uid"])
        if given.get("resourceVersion") not in (None, "", held["resourceVersion"]):
            raise conflict(kind.plural, kind.group, held["name"])
        new = rules.update(self, kind, old.obj, new, request)
        new["metadata"]["resourceVersion"] = held["resourceVersion"]
        if rules.same(old.obj, new):
            return old.obj
        if request.dry_run:
            return new
        if new["metadata"].get("deletionTimestamp") and rules.may_vanish(kind, new):
            return self._remove(kind, old, old.obj)  # the last state is the one with the finalizer
        return self._commit(kind, "MODIFIED", new, old)

    def _commit(self, kind: Kind, change: ChangeType, new: Object, old: Stored | None) -> Object:
        self.revision += 1
        new["metadata"]["resourceVersion"] = str(self.revision)
        stored = Stored(new, self.revision)
        self._tables.setdefault(kind.store_key, {}).setdefault(stored.namespace, {})[stored.name] = stored
        self._announce(kind, Change(self.revision, change, stored, old))
        rules.committed(self, kind, new, old.obj if old else None)
        return new

    def _remove(self, kind: Kind, old: Stored, last: Object) -> Object:
        self.revision += 1
        gone = {**last, "metadata": {**last["metadata"], "resourceVersion": str(self.revision)}}
        names = self._tables[kind.store_key][old.namespace]
        del names[old.name]
        if not names:
            del self._tables[kind.store_key][old.namespace]
        rules.removed(self, kind, gone)
        self._announce(kind, Change(self.revision, "DELETED", Stored(gone, self.revision), old))
        return gone

    def _announce(self, kind: Kind, change: Change) -> None:
        self.history(kind.store_key).append(change)
        followers = self._subscribers.get(kind.store_key)
        if not followers:
            return
        try:
            soon = asyncio.get_running_loop().call_soon
        except RuntimeError:
            soon = None
        for follower in tuple(followers):
            call = functools.partial(_tell, followers, follower, change)
            if soon is None:
                self._backlog.append(call)
                continue
            if self._backlog:
                soon(self.deliver)
            soon(call)


def _tell(
    followers: list[Callable[[str, Object, Object | None], object]],
    follower: Callable[[str, Object, Object | None], object],
    change: Change,
) -> None:
    if follower in followers:
        follower(change.type, change.new.obj, change.old.obj if change.old else None)


def _other_object(kind: Kind, held: Stored, uid: str) -> ApiError:
    name, actual = held.name, held.obj["metadata"]["uid"]
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{kind.plural}/{held.namespace}/{name}, ResourceV"
        f"ersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}"
    )
    return conflict(kind.plural, kind.group, name, why)
