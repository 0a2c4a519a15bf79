"""The quality of service of a pod: Guaranteed, Burstable or BestEffort (pkg/apis/core/helper/qos)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import quantity

if TYPE_CHECKING:
    from .values import Object

COUNTED = ("cpu", "memory")


def of(spec: Object) -> str:
    """Return the QoS class of a pod spec."""
    requested: set[str] = set()
    guaranteed = True
    for container in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]:
        resources = container.get("resources") or {}
        requests = _positive(resources.get("requests"))
        limits = _positive(resources.get("limits"))
        requested |= {*requests, *limits}
        if set(limits) != set(COUNTED) or any(requests.get(name, limits[name]) != limits[name] for name in limits):
            guaranteed = False
    if not requested:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _positive(amounts: Object | None) -> dict[str, object]:
    values = {name: quantity.value((amounts or {})[name]) for name in COUNTED if name in (amounts or {})}
    return {name: amount for name, amount in values.items() if amount > 0}
