"""Cells of tables: columns, durations, ages, label pairs and selectors, as kubectl prints them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .schema.values import epoch

if TYPE_CHECKING:
    from collections.abc import Callable

    from .schema.values import Object

    Cells = Callable[[Object, float], list[Any]]

NONE = "<none>"
HOUR, DAY = 3600, 86400
# Limit in seconds, unit, and the smaller unit printed with it.
STEPS = (
    (120, "s", 1, "", 1),
    (600, "m", 60, "s", 1),
    (3 * HOUR, "m", 60, "", 1),
    (8 * HOUR, "h", HOUR, "m", 60),
    (48 * HOUR, "h", HOUR, "", 1),
    (8 * DAY, "d", DAY, "h", HOUR),
    (730 * DAY, "d", DAY, "", 1),
    (8 * 365 * DAY, "y", 365 * DAY, "d", DAY),
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a Table."""

    name: str
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""


def layout(names: str, wide: str = "") -> list[Column]:
    """Return columns from their names; a colon adds a type."""
    columns = []
    for text, priority in ((names, 0), (wide, 1)):
        for entry in filter(None, text.split("|")):
            name, _, kind = entry.partition(":")
            columns.append(Column(name, kind or "string", priority))
    return columns


def duration(seconds: float) -> str:
    """Format a duration as k8s.io/apimachinery duration.HumanDuration does."""
    if seconds < -1:
        return "<invalid>"
    total = max(int(seconds), 0)
    for below, unit, size, part, part_size in STEPS:
        if total < below:
            rest = total % size // part_size if part else 0
            return f"{total // size}{unit}" + (f"{rest}{part}" if rest else "")
    return f"{total // (365 * DAY)}y"


def age(stamp: str | None, now: float) -> str:
    """Format the time since a time."""
    return duration(now - epoch(stamp)) if stamp else "<unknown>"


def age_of(obj: Object, now: float) -> str:
    """Format the age of an object."""
    return age(obj["metadata"].get("creationTimestamp"), now)


def name_of(obj: Object) -> str:
    """Return an object's name."""
    return str(obj["metadata"]["name"])


def pairs(given: Object | None) -> str:
    """Format labels as k=v,k=v."""
    return ",".join(f"{key}={value}" for key, value in sorted((given or {}).items())) or NONE


def selector(given: Object | None) -> str:
    """Format a LabelSelector as text."""
    if given is None:
        return NONE
    parts = [f"{key}={value}" for key, value in sorted((given.get("matchLabels") or {}).items())]
    for expression in given.get("matchExpressions") or []:
        key, operator, values = expression["key"], expression["operator"], ",".join(expression.get("values") or [])
        texts = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        parts.append(texts.get(operator, key))
    return ",".join(parts) or NONE


def containers(spec: Object) -> tuple[str, str]:
    """Return the names and the images of a pod spec."""
    containers = spec.get("containers") or []
    return ",".join(c["name"] for c in containers), ",".join(c.get("image", "") for c in containers)


def template(obj: Object) -> Object:
    """Return the pod spec of a workload's template."""
    pod_spec: Object = obj["spec"].get("template", {}).get("spec", {})
    return pod_spec


def stamped(obj: Object, now: float) -> list[Any]:
    """Format a name and its creation time."""
    del now
    return [name_of(obj), obj["metadata"].get("creationTimestamp", "")]


def simple(*paths: str) -> Cells:
    """Return a function that formats the values at some paths."""

    def cells(obj: Object, now: float) -> list[Any]:
        row: list[Any] = [name_of(obj)]
        for path in paths:
            at: Any = obj
            for part in path.split("."):
                at = at.get(part) if isinstance(at, dict) else None
            row.append(at if at is not None else "")
        return [*row, age_of(obj, now)]

    return cells
