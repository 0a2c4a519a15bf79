"""Checkpoints before and after: MB/s of all ranks together, of runs on the same nodes that saved as many bytes.

Shared storage wavers more than GPUs do. A rate within 20 % of another is the same: SNIA's Solid State Storage
Performance Test Specification calls a device steady whose rounds stay within 20 % of their average. Beyond it, three
runs a side whose ranges do not overlap are called; fewer only where a rate has halved or doubled, and else cannot tell.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from .regression import LEAST_RUNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..schema import Record

STEADY, HALVED = 0.20, 0.50
"""Shares of the faster side."""
Key = tuple[tuple[str, ...], int]


def rates(side: Sequence[Record]) -> dict[Key, list[float]]:
    """Return MB/s of each run by the nodes that saved and the bytes; runs without a rate of all ranks are not there."""
    found: dict[Key, list[float]] = {}
    for record in side:
        saved = record["checkpoint"]
        if saved and saved.get("mb_s", 0) > 0:
            nodes = tuple(sorted({each["node"] for each in saved.get("nodes", [])}))
            found.setdefault((nodes, saved.get("bytes", 0)), []).append(saved["mb_s"])
    return found


def changed(
    before: Sequence[Record], after: Sequence[Record]
) -> Iterator[tuple[tuple[str, ...], float, float, bool | None]]:
    """Yield nodes, MB/s before and after, and whether that is worse: None where it cannot be told from noise."""
    old, new = rates(before), rates(after)
    for key in sorted(old.keys() & new.keys()):
        was, now = statistics.median(old[key]), statistics.median(new[key])
        share = 1 - min(was, now) / max(was, now)
        apart = max(old[key]) < min(new[key]) or max(new[key]) < min(old[key])
        sure = share >= HALVED or (apart and min(len(old[key]), len(new[key])) >= LEAST_RUNS)
        if share >= STEADY:
            yield key[0], was, now, now < was if sure else None
