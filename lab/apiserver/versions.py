"""Conversion between APIs: the two Event APIs share one storage key; custom kinds share versions.

Field names follow pkg/apis/core and pkg/apis/events conversion: events.k8s.io calls involvedObject `regarding`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .schema.kinds import Kind
    from .schema.values import Object

# events.k8s.io/v1 -> core/v1
EVENT_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_BACK = {core: new for new, core in EVENT_NAMES.items()}


def stored(kind: Kind, obj: Object) -> Object:
    """Convert an object to its stored form."""
    if kind.key == "events.events.k8s.io":
        return {"apiVersion": "v1", "kind": "Event", **_renamed(obj, EVENT_NAMES)}
    return obj


def served(kind: Kind, obj: Object) -> Object:
    """Convert a stored object to the form of a kind's version."""
    if kind.key == "events.events.k8s.io":
        return {"kind": "Event", "apiVersion": kind.api_version, **_renamed(obj, _BACK)}
    if obj.get("apiVersion") != kind.api_version:
        return {**obj, "apiVersion": kind.api_version}
    return obj


def _renamed(obj: Object, names: dict[str, str]) -> Object:
    return {names.get(key, key): value for key, value in obj.items() if key not in ("kind", "apiVersion")}
