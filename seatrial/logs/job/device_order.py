"""The order in which names of network devices are reported; without the reader of logs, for the checks use it, too."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from functools import lru_cache


def compact_devices(names: AbstractSet[str]) -> list[str]:
    """Return device names in a stable order, numbers by value."""
    return list(_in_order(frozenset(names)))


@lru_cache(maxsize=4096)
def _in_order(names: frozenset[str]) -> tuple[str, ...]:
    """The ranks of a job use few sets of devices."""
    return tuple(sorted(names, key=lambda name: (name.rstrip("0123456789/:"), len(name), name)))
