"""Names in one line: the first ones with the number of the rest, and the nearest match of a misspelt name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from seatrial.logs.listing import first_of

from .cluster.redact import safe

__all__ = ["first_of", "nearest"]

MOST_CHOICES = 40


def nearest(word: object, choices: Iterable[str]) -> str:
    """Return '; did you mean X?' for the nearest of the choices, else '; there are: ...'; '' without any."""
    known = sorted(filter(None, choices))
    if near := difflib.get_close_matches(str(word), known, n=1, cutoff=0.5):
        return f"; did you mean {safe(near[0], 80)}?"
    return f"; there are: {first_of((safe(each, 80) for each in known), MOST_CHOICES)}" if known else ""
