"""Kubernetes quantities ("16Gi", "1500m", "8") as numbers."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation

_SHAPE = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?\d{1,3}))?")
# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_LONGEST = 64


def quantity(text: object) -> Decimal | None:
    """Read a quantity in its base unit (bytes, cores, pieces); None where it is none."""
    match = _SHAPE.fullmatch(str(text).strip()) if len(str(text)) <= _LONGEST else None
    if match is None:
        return None
    number, binary, decimal, exponent = match.groups()
    try:
        value = Decimal(number)
        if binary:
            return value * _BINARY[binary]
        return value.scaleb(_DECIMAL[decimal] if decimal else int(exponent or 0))
    except (InvalidOperation, OverflowError):
        return None


def whole(text: object, *, milli: bool = False) -> int:
    """Read a quantity as a whole number (rounded up as Kubernetes does), in thousandths if `milli`; 0 if unreadable."""
    value = quantity(text)
    if value is None or not value.is_finite() or abs(value) > Decimal(10) ** 24:
        return 0
    if milli:
        value *= 1000
    return math.ceil(value)
