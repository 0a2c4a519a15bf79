"""The core/v1 Event that a component records about an object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .values import rfc3339

if TYPE_CHECKING:
    from .values import Object

MAX_MESSAGE = 1024  # maximum length in the recorder of client-go


def event(
    involved: Object, type_: str, reason: str, message: str, component: str, host: str, field_path: str, seconds: float
) -> Object:
    """Return a new Event about an object, without a name."""
    meta = involved.get("metadata", {})
    about = {
        "kind": involved.get("kind", ""),
        "namespace": meta.get("namespace", ""),
        "name": meta.get("name", ""),
        "uid": meta.get("uid", ""),
        "apiVersion": involved.get("apiVersion", ""),
        "resourceVersion": meta.get("resourceVersion", ""),
        "fieldPath": field_path,
    }
    source = {"component": component, "host": host}
    return {
        "metadata": {"namespace": meta.get("namespace") or "default"},
        "involvedObject": {key: value for key, value in about.items() if value},
        "reason": reason,
        "message": message[:MAX_MESSAGE],
        "source": {key: value for key, value in source.items() if value},
        "firstTimestamp": rfc3339(seconds),
        "lastTimestamp": rfc3339(seconds),
        "count": 1,
        "type": type_,
        "eventTime": None,
        "reportingComponent": component,
        "reportingInstance": host,
    }
