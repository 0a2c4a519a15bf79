"""Validation of a LimitRange: smallest, default request, default limit, largest, in this order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import quantity
from ..errors import Cause, duplicate, forbidden_field, invalid_value, required
from . import metadata, resources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..values import Object

TYPES = ("Container", "Pod", "PersistentVolumeClaim")
PARTS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
# (the smaller field, the larger field, the field in the server's message, the value in it, its text)
ORDER = (
    ("min", "max", "min", "min", "min value {} is greater than max value {}"),
    (
        "min",
        "defaultRequest",
        "defaultRequest",
        "defaultRequest",
        "min value {} is greater than default request value {}",
    ),
    (
        "defaultRequest",
        "max",
        "defaultRequest",
        "defaultRequest",
        "default request value {} is greater than max value {}",
    ),
    (
        "defaultRequest",
        "default",
        "defaultRequest",
        "defaultRequest",
        "default request value {} is greater than default limit value {}",
    ),
    ("min", "default", "default", "min", "min value {} is greater than default value {}"),
    ("default", "max", "default", "max", "default value {} is greater than max value {}"),
)


def limit_range(obj: Object) -> list[Cause]:
    """Validate a LimitRange."""
    causes: list[Cause] = []
    types: set[str] = set()
    for index, item in enumerate((obj.get("spec") or {}).get("limits") or []):
        at, type_ = f"spec.limits[{index}]", item.get("type", "")
        causes += _type(type_, f"{at}.type")
        if type_ in types:
            causes.append(duplicate(f"{at}.type", type_))
        types.add(type_)
        causes += _item(item, type_, at)
    return causes


def _type(type_: str, at: str) -> Iterator[Cause]:
    wrong = metadata.qualified_name(type_)
    if not wrong and "/" not in type_ and type_ not in TYPES:
        wrong = ["must be a standard limit type or fully qualified"]
    return (invalid_value(at, type_, text) for text in wrong)


def _item(item: Object, type_: str, at: str) -> Iterator[Cause]:
    parts = {part: item.get(part) or {} for part in PARTS}
    if type_ == "Pod":
        for part in ("default", "defaultRequest"):
            if parts.pop(part):
                yield forbidden_field(f"{at}.{part}", "may not be specified when `type` is 'Pod'")
    for part, amounts in parts.items():
        for name in amounts if type_ in ("Container", "Pod") else ():
            yield from resources.name_causes(name, f"{at}.{part}[{name}]")
    if type_ == "PersistentVolumeClaim" and not {"storage"} & {*parts["min"], *parts["max"]}:
        text = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{at}.limits", text)
    for low, high, accused, shown, message in ORDER:
        for name in sorted({*parts.get(low, {})} & {*parts.get(high, {})}):
            small, large = parts[low][name], parts[high][name]
            if quantity.value(small) > quantity.value(large):
                yield invalid_value(f"{at}.{accused}[{name}]", parts[shown][name], message.format(small, large))
    for name, ratio in parts["maxLimitRequestRatio"].items():
        if quantity.value(ratio) < 1:
            yield invalid_value(f"{at}.maxLimitRequestRatio[{name}]", ratio, f"ratio {ratio} is less than 1")
