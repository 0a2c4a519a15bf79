"""Tolerant access to fields and quantities of unstructured objects."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, TypeAlias

Unstructured: TypeAlias = dict[str, Any]
"""An object of the API, or a part of it, as decoded JSON: a field may be missing, or have another shape."""


def as_map(value: object) -> Unstructured:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Unstructured]:
    """Return the mappings of a list; [] for any other value."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def as_texts(value: object) -> list[str]:
    """Return the texts of a list; [] for any other value."""
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []


def statuses_of(status: Unstructured) -> list[Unstructured]:
    """Return a pod's container statuses, init containers first."""
    return [*as_list(status.get("initContainerStatuses")), *as_list(status.get("containerStatuses"))]


def name_of(item: Unstructured) -> str:
    """Return an object's name, '' where it has none."""
    return str(as_map(item.get("metadata")).get("name") or "")


def uid_of(item: Unstructured) -> str:
    """Return an object's uid, '' where it has none."""
    return str(as_map(item.get("metadata")).get("uid") or "")


def labels_of(item: Unstructured) -> Unstructured:
    """Return an object's labels."""
    return as_map(as_map(item.get("metadata")).get("labels"))


def node_of(pod: Unstructured) -> str:
    """Return the node to which a pod is bound, '' before binding."""
    return str(as_map(pod.get("spec")).get("nodeName") or "")


def phase_of(pod: Unstructured) -> str:
    """Return a pod's phase, '' where none is reported."""
    return str(as_map(pod.get("status")).get("phase") or "")


def by_type(status: Unstructured) -> dict[str, Unstructured]:
    """Return the conditions of a status by type."""
    return {str(entry.get("type")): entry for entry in as_list(status.get("conditions"))}


_SHAPE = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?\d{1,3}))?")
# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_LONGEST = 64


def quantity(text: object) -> Decimal | None:
    """Read a quantity in its base unit (bytes, cores, pieces); None if it is invalid."""
    written = str(text)
    return _quantity(written) if len(written) <= _LONGEST else None


@lru_cache(maxsize=4096)  # cached: among thousands of nodes and pods, most amounts repeat
def _quantity(text: str) -> Decimal | None:
    match = _SHAPE.fullmatch(text.strip())
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
