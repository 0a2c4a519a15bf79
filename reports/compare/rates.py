"""Training steps and checkpoints before and after: rates of a job as a whole, of runs on the same nodes.

A run's rate of training steps is TFLOP/s of each GPU, of the median of its steps. A change is called from 10 % on,
where each side has three runs from 6 % on; between them one run a side cannot tell, and says so: twelve series of one
GPU had medians 1.5 % apart (docs/training.md), and the rule of bandwidth (regression.py) has the same limits.

A checkpoint's is MB/s of all ranks together, of runs that saved as many bytes. Shared storage wavers more than GPUs
do. A rate within 20 % of another is the same: SNIA's Solid State Storage Performance Test Specification calls a device
steady whose rounds stay within 20 % of their average. Beyond it, three runs a side whose ranges do not overlap are
called; fewer only where a rate has halved or doubled, and else cannot tell.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..schema import Record
from .regression import LEAST_RUNS

Key = tuple[tuple[str, ...], int]
"""The nodes, and what else must be the same: bytes."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What a run tells of a rate, and from which share of change on it is noticed, and called of one run a side."""

    area: str
    unit: str
    of: Callable[[Record], tuple[Key, float] | None]
    share: Callable[[float, float], float]  # of the rates before and after
    noticed: float
    called: float
    apart: bool  # of several runs a side: whether their ranges must not overlap


def _steps(record: Record) -> tuple[Key, float] | None:
    steps = record["training"]
    if steps and steps.get("tflops", 0) > 0:
        return (tuple(sorted({rank["node"] for rank in steps["ranks"]})), 0), steps["tflops"]
    return None


def _checkpoint(record: Record) -> tuple[Key, float] | None:
    saved = record["checkpoint"]
    if saved and saved.get("mb_s", 0) > 0:
        return (tuple(sorted({each["node"] for each in saved.get("nodes", [])})), saved.get("bytes", 0)), saved["mb_s"]
    return None


def _of_before(was: float, now: float) -> float:
    return abs(now / was - 1)


def _of_faster(was: float, now: float) -> float:
    return 1 - min(was, now) / max(was, now)


RATES = (
    Rate("training", "TFLOP/s a GPU", _steps, _of_before, noticed=0.06, called=0.10, apart=False),
    Rate("checkpoint", "MB/s of all ranks", _checkpoint, _of_faster, noticed=0.20, called=0.50, apart=True),
)


def changed(
    rate: Rate, before: Sequence[Record], after: Sequence[Record]
) -> Iterator[tuple[tuple[str, ...], float, float, bool | None]]:
    """Yield nodes, the rate before and after, and whether that is worse: None where it cannot be told from noise."""
    old, new = _by_key(rate, before), _by_key(rate, after)
    for key in sorted(old.keys() & new.keys()):
        was, now = statistics.median(old[key]), statistics.median(new[key])
        share = rate.share(was, now)
        apart = not rate.apart or max(old[key]) < min(new[key]) or max(new[key]) < min(old[key])
        sure = share >= rate.called or (apart and min(len(old[key]), len(new[key])) >= LEAST_RUNS)
        if share >= rate.noticed:
            yield key[0], was, now, now < was if sure else None


def _by_key(rate: Rate, side: Sequence[Record]) -> dict[Key, list[float]]:
    """Return the rate of each run; runs that tell of none are not there."""
    values: dict[Key, list[float]] = {}
    for measured in filter(None, map(rate.of, side)):
        values.setdefault(measured[0], []).append(measured[1])
    return values
