"""Names in one line."""

from __future__ import annotations

from collections.abc import Iterable


def first_of(names: Iterable[str], most: int) -> str:
    """Return at most so many names, and the number of others: 'a, b and 3 more'."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
