"""Validation of requests and limits: names, amounts, and resources that cannot be overcommitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import quantity
from ..errors import Cause, forbidden_field, invalid_value, required
from . import metadata

if TYPE_CHECKING:
    from ..values import Object

STANDARD = ("cpu", "memory", "ephemeral-storage")
HUGEPAGES = "hugepages-"


def is_native(name: str) -> bool:
    """Return whether a resource is one of Kubernetes' own."""
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    """Return whether a resource is an extended one, such as nvidia.com/gpu."""
    return not is_native(name) and not name.startswith("requests.")


def is_overcommittable(name: str) -> bool:
    """Return whether requests may be lower than limits."""
    return is_native(name) and not name.startswith(HUGEPAGES)


def name_causes(name: str, at: str) -> list[Cause]:
    """Validate a container's resource name."""
    wrong = [invalid_value(at, name, text) for text in metadata.qualified_name(name)]
    if wrong:
        return wrong
    if "/" not in name and name not in STANDARD and not name.startswith(HUGEPAGES):
        return [
            invalid_value(at, name, "must be a standard resource type or fully qualified"),
            invalid_value(at, name, "must be a standard resource for containers"),
        ]
    return []


def amount_causes(name: str, amount: str, at: str) -> list[Cause]:
    """Validate an amount of a resource."""
    exact = quantity.value(amount)
    if exact < 0:
        return [invalid_value(at, amount, "must be greater than or equal to 0")]
    if is_extended(name) and exact.denominator != 1:
        return [invalid_value(at, amount, "must be an integer")]
    return []


def requirements(given: Object, field: str) -> list[Cause]:
    """Validate the resources of a container."""
    limits, requests = given.get("limits") or {}, given.get("requests") or {}
    causes: list[Cause] = []
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            at = f"{field}.{part}[{name}]"
            causes += name_causes(name, at) + amount_causes(name, amount, at)
            if part == "requests":
                causes += _against_limit(name, amount, limits, field)
    named = {*limits, *requests}
    if any(name.startswith(HUGEPAGES) for name in named) and not named & {"cpu", "memory"}:
        causes.append(forbidden_field(field, "HugePages require cpu or memory"))
    return causes


def _against_limit(name: str, amount: str, limits: Object, field: str) -> list[Cause]:
    limit = limits.get(name)
    if limit is None:
        if is_overcommittable(name):
            return []
        return [required(f"{field}.limits", "Limit must be set for non overcommitable resources")]
    want, have = quantity.value(amount), quantity.value(limit)
    if is_overcommittable(name) and want > have:
        return [invalid_value(f"{field}.requests", amount, f"must be less than or equal to {name} limit of {limit}")]
    if not is_overcommittable(name) and want != have:
        return [invalid_value(f"{field}.requests", amount, f"must be equal to {name} limit of {limit}")]
    return []
