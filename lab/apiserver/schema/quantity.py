"""Kubernetes quantities ("500m", "1Gi"): exact values, comparison and the canonical text.

Follows k8s.io/apimachinery `resource.Quantity`: decimal SI, binary SI and exponent formats; rounding up at nano.
"""

from __future__ import annotations

import functools
import math
import re
from fractions import Fraction

_QUANTITY = re.compile(r"^([+-]?)(\d+\.?\d*|\.\d+)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?\d+)?$")
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
DECIMAL = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
}


def _split(text: str) -> tuple[Fraction, str]:
    match = _QUANTITY.match(text)
    if match is None:
        raise ValueError(f"not a quantity: {text!r}")
    sign, digits, unit = match[1], match[2], match[3] or ""
    number = Fraction(digits) * (-1 if sign == "-" else 1)
    if unit in BINARY:
        return number * BINARY[unit], "binary"
    if unit[:1] in ("e", "E") and len(unit) > 1:
        return number * Fraction(10) ** int(unit[1:]), "exponent"
    return number * DECIMAL[unit], "decimal"


@functools.lru_cache(maxsize=4096)
def value(text: str | float) -> Fraction:
    """Parse a quantity; raises ValueError."""
    return _split(str(text))[0]


@functools.lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """Return the canonical text of the server: no fraction digits, the largest fitting suffix."""
    number, form = _split(text)
    return render(number, form)


def render(number: Fraction | int, form: str = "decimal") -> str:
    """Format a value as canonical text (decimal, binary or exponent)."""
    number = Fraction(number)
    if number == 0:
        return "0"
    if form == "binary" and (abs(number) < 1024 or number.denominator != 1):
        form = "decimal"
    if form == "binary":
        whole = number.numerator
        for unit in reversed(BINARY):
            if whole % BINARY[unit] == 0:
                return f"{whole // BINARY[unit]}{unit}"
        return str(whole)
    nano = math.ceil(number * 10**9) if number > 0 else -math.ceil(-number * 10**9)
    exponent = -9
    while nano % 1000 == 0 and exponent < 18:
        nano //= 1000
        exponent += 3
    if form == "exponent":
        return f"{nano}e{exponent}" if exponent else str(nano)
    unit = next(unit for unit, factor in DECIMAL.items() if factor == Fraction(10) ** exponent)
    return f"{nano}{unit}"


def form(text: str) -> str:
    """Return the format of a quantity, for a sum in the same format."""
    return _split(text)[1]


def add(first: str, second: str) -> str:
    """Return the canonical sum, in the format of the first quantity unless that is zero."""
    shape = form(second) if value(first) == 0 else form(first)
    return render(value(first) + value(second), shape)
