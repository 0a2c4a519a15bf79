"""Validation of Events: lenient in the core API, strict in events.k8s.io."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import Cause, invalid_value, required

if TYPE_CHECKING:
    from ..values import Object


def event(obj: Object) -> list[Cause]:
    """Validate an Event in its stored form."""
    causes: list[Cause] = []
    namespace = obj["metadata"].get("namespace", "")
    involved = obj.get("involvedObject") or {}
    space = involved.get("namespace", "")
    if not space:
        if namespace not in ("default", "kube-system"):
            text = "does not match event.namespace"
            causes.append(invalid_value("involvedObject.namespace", space, text))
    elif space != namespace:
        causes.append(invalid_value("involvedObject.namespace", space, "does not match event.namespace"))
    return causes


def new_event(obj: Object) -> list[Cause]:
    """Validate an Event that was sent to events.k8s.io (stored form)."""
    causes: list[Cause] = []
    if not obj.get("eventTime"):
        causes.append(required("eventTime"))
    type_ = obj.get("type", "")
    if type_ not in ("Normal", "Warning"):
        causes.append(invalid_value("type", type_, f"has invalid value: {type_}"))
    if obj.get("eventTime"):
        for field, name in (
            ("reportingComponent", "reportingController"),
            ("reportingInstance", "reportingInstance"),
            ("reason", "reason"),
        ):
            if not obj.get(field):
                causes.append(required(name))
    return causes
