"""Training steps before and after: TFLOP/s of each GPU, of trials on the same nodes.

A run's value is the median of its steps. A change is called from 10 % on, where each side has three runs from 6 % on;
between them one run a side cannot tell, and says so: twelve series of one GPU had medians 1.5 % apart
(docs/training.md), and the rule of bandwidth (regression.py) has the same limits.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from .regression import LEAST_RUNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..schema import Record

CALLED, CALLED_OF_RUNS = 0.10, 0.06
"""Shares of the earlier rate."""


def paces(side: Sequence[Record]) -> dict[tuple[str, ...], list[float]]:
    """Return TFLOP/s of each run by the nodes that trained; runs that told of no steps are not there."""
    found: dict[tuple[str, ...], list[float]] = {}
    for record in side:
        steps = record["training"]
        if steps and steps.get("tflops", 0) > 0:
            found.setdefault(tuple(sorted({rank["node"] for rank in steps["ranks"]})), []).append(steps["tflops"])
    return found


def changed(
    before: Sequence[Record], after: Sequence[Record]
) -> Iterator[tuple[tuple[str, ...], float, float, bool | None]]:
    """Yield nodes, TFLOP/s before and after, and whether that is worse: None where it cannot be told from noise."""
    old, new = paces(before), paces(after)
    for nodes in sorted(old.keys() & new.keys()):
        was, now = statistics.median(old[nodes]), statistics.median(new[nodes])
        share = abs(now / was - 1)
        sure = share >= CALLED or min(len(old[nodes]), len(new[nodes])) >= LEAST_RUNS
        if share >= CALLED_OF_RUNS:
            yield nodes, was, now, now < was if sure else None
