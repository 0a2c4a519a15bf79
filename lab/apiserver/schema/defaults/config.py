"""Defaults of Secrets and LimitRanges."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from .. import quantity

if TYPE_CHECKING:
    from ..values import Object


def secret(obj: Object) -> None:
    """Set the defaults of a Secret: stringData moves into data."""
    obj.setdefault("type", "Opaque")
    for key, value in (obj.pop("stringData", None) or {}).items():
        obj.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()


def limit_range(obj: Object) -> None:
    """Set the defaults of a LimitRange: those of containers are derived from max and min."""
    for item in (obj.get("spec") or {}).get("limits") or []:
        if item.get("type") != "Container":
            continue
        for source, target in (("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")):
            for name, amount in (item.get(source) or {}).items():
                item.setdefault(target, {}).setdefault(name, quantity.canonical(amount))
