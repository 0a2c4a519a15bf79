"""The order in which network devices are reported; without the reader of logs, since the checks use it, too."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from functools import lru_cache


def compact_devices(names: AbstractSet[str]) -> list[str]:
    """Return device names in a stable order, with numbers by value."""
    return list(_in_order(frozenset(names)))


@lru_cache(maxsize=4096)
def _in_order(names: frozenset[str]) -> tuple[str, ...]:
    """Return the sorted names; cached, since the ranks of a job use few sets of devices."""
    return tuple(sorted(names, key=lambda name: (name.rstrip("0123456789/:"), len(name), name)))
