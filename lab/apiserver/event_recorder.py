"""Events as components record them: a repeated event increments the count of the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .schema import recorder
from .schema.errors import ApiError
from .schema.requests import Request

if TYPE_CHECKING:
    from .schema.seams import Objects
    from .schema.values import Object

MAX_REMEMBERED = 4096  # like the cache of client-go's event correlator


class EventRecorder:
    """The recorder of core/v1 Events in one store."""

    def __init__(self, store: Objects) -> None:
        self._store = store
        self._known: dict[tuple[str, ...], tuple[str, str]] = {}
        self._last = 0

    def record(
        self,
        involved: Object,
        type: str,  # noqa: A002 - the name of the field
        reason: str,
        message: str,
        component: str,
        host: str = "",
        field_path: str = "",
    ) -> Object | None:
        """Record an Event about an object; None if the namespace is terminating."""
        store, meta = self._store, involved.get("metadata", {})
        namespace = meta.get("namespace") or "default"
        identity = (namespace, meta.get("uid", ""), meta.get("name", ""), type, reason, message, component, field_path)
        known = self._known.get(identity)
        if known is not None:

            def again(event: Object) -> None:
                event["count"] = int(event.get("count", 1)) + 1
                event["lastTimestamp"] = store.now()

            counted = store.mutate("events", *known, again)
            if counted is not None:
                return counted
        self._last = max(self._last + 1, int(store.clock() * 1e9))
        event = recorder.event(involved, type, reason, message, component, host, field_path, store.clock())
        event["metadata"]["name"] = f"{meta.get('name', '')}.{self._last:x}"
        try:
            event = store.create("events", event, namespace, request=Request(user=f"system:{component}", trusted=True))
        except ApiError:
            return None
        if len(self._known) >= MAX_REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[identity] = (namespace, event["metadata"]["name"])
        return event
