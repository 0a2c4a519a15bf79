"""Conditions in the two formats that operators use."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def find(obj: Object, kind: str) -> Object | None:
    """Return an object's condition of a type."""
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == kind), None)


def holds(obj: Object, *kinds: str) -> bool:
    """Return whether one of these conditions is True."""
    return any((find(obj, kind) or {}).get("status") == "True" for kind in kinds)


def put(obj: Object, kind: str, state: bool, reason: str, message: str, now: str) -> bool:
    """Set a metav1.Condition in place; its transition time changes with its status only. Return whether it changed."""
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    text = "True" if state else "False"
    held = find(obj, kind)
    if held is not None and (held["status"], held["reason"], held["message"]) == (text, reason, message):
        return False
    new = {
        "type": kind,
        "status": text,
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
        "observedGeneration": obj["metadata"].get("generation", 1),
    }
    if held is None:
        conditions.append(new)
        return True
    if held["status"] == text:
        new["lastTransitionTime"] = held["lastTransitionTime"]
    conditions[conditions.index(held)] = new
    return True


def put_job(obj: Object, kind: str, state: bool, reason: str, message: str, now: str) -> bool:
    """Set a condition in the format of Kubeflow's v1 and v2beta1 jobs: with lastUpdateTime, the newest last.

    If status and reason are unchanged, nothing changes. An end removes Running (kubeflow/common pkg/util/status.go).
    """
    status = obj.setdefault("status", {})
    conditions = status.setdefault("conditions", [])
    text, held = "True" if state else "False", find(obj, kind)
    if held is not None and (held["status"], held["reason"]) == (text, reason):
        return False
    new = {
        "type": kind,
        "status": text,
        "reason": reason,
        "message": message,
        "lastUpdateTime": now,
        "lastTransitionTime": held["lastTransitionTime"] if held and held["status"] == text else now,
    }
    remaining = [c for c in conditions if c["type"] != kind and {kind, c["type"]} != {"Running", "Restarting"}]
    if kind in ("Failed", "Succeeded"):
        remaining = [{**c, "status": "False"} if c["type"] == "Running" else c for c in remaining]
    status["conditions"] = [*remaining, new]
    return True
