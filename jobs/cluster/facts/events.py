"""The events of some objects, in order, in one form.

Events come from core/v1 and events.k8s.io/v1, with counts, with series, or with neither. They may be out of order,
about earlier objects of the same name, or missing (they expire after an hour, and are dropped under load). No
conclusion requires a particular event.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..redact import safe
from ..unstructured import Unstructured, as_map

_MESSAGE = 1000


@dataclass(frozen=True, slots=True)
class Event:
    """One event about one object; `when` is its last occurrence (RFC 3339 in UTC, sorts as text), empty if unknown.

    `since` is its first occurrence, `source` the component that wrote it. `instant` orders events of the same second:
    nanoseconds, 0 if the name has none.
    """

    kind: str
    name: str
    uid: str
    warning: bool
    reason: str
    message: str
    count: int
    when: str
    host: str
    since: str = ""
    instant: int = 0
    source: str = ""

    def __str__(self) -> str:
        times = f" (x{self.count})" if self.count > 1 else ""
        return f"{self.reason} {self.kind.lower()}/{self.name}{times}: {self.message}"


def read_events(items: Iterable[Any]) -> list[Event]:
    """Project raw events of either API to records, oldest first; invalid events are skipped.

    Values that are records already are unchanged.
    """
    events = [item if isinstance(item, Event) else read_event(item) for item in items if isinstance(item, dict | Event)]
    return sorted((event for event in events if event is not None), key=lambda event: (event.when, event.instant))


def about(events: Iterable[Event], kind: str, name: str, uid: str = "") -> list[Event]:
    """Return the events about one object; those of an earlier object of the same name are excluded by uid."""
    return [e for e in events if e.kind == kind and e.name == name and not (uid and e.uid and e.uid != uid)]


def latest(events: Iterable[Event], *reasons: str) -> Event | None:
    """Return the last event with one of these reasons."""
    newest = None
    for event in events:
        if event.reason in reasons:
            newest = event
    return newest


def warnings(events: Iterable[Event], most: int = 10) -> tuple[str, ...]:
    """Return the last warnings as text, oldest first."""
    return tuple(str(event) for event in [e for e in events if e.warning][-most:])


def read_event(item: Unstructured) -> Event | None:
    """Project a raw event; None if it has no object."""
    target = item.get("involvedObject") or item.get("regarding")
    if not isinstance(target, dict):
        return None
    meta = as_map(item.get("metadata"))
    series = as_map(item.get("series"))
    source = as_map(item.get("source")) or as_map(item.get("deprecatedSource"))
    when = (
        series.get("lastObservedTime")
        or item.get("lastTimestamp")
        or item.get("deprecatedLastTimestamp")
        or item.get("eventTime")
        or item.get("firstTimestamp")
        or item.get("deprecatedFirstTimestamp")
        or meta.get("creationTimestamp")
        or ""
    )
    count = series.get("count") or item.get("count") or item.get("deprecatedCount") or 1
    return Event(
        kind=str(target.get("kind") or ""),
        name=str(target.get("name") or ""),
        uid=str(target.get("uid") or ""),
        warning=item.get("type") == "Warning",
        reason=safe(item.get("reason") or "", 100),
        message=safe(item.get("message") or item.get("note") or "", _MESSAGE),
        count=count if isinstance(count, int) and count > 0 else 1,
        when=str(when)[:40],
        host=str(source.get("host") or item.get("reportingInstance") or ""),
        since=str(item.get("firstTimestamp") or item.get("eventTime") or meta.get("creationTimestamp") or when)[:40],
        instant=_instant(str(meta.get("name") or "")),
        source=safe(
            source.get("component") or item.get("reportingComponent") or item.get("reportingController") or "", 100
        ),
    )


def _instant(name: str) -> int:
    """Return the creation time in the event's name.

    client-go writes it there (tools/record/event.go: "%v.%x", UnixNano).
    """
    suffix = name.rpartition(".")[2]
    return int(suffix, 16) if re.fullmatch(r"[0-9a-f]{16}", suffix) else 0
