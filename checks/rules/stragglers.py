"""Who is slower than the others at the same work: medians of ratios, and a limit that follows the measured spread.

Times are compared step by step with the median of the others at the same step, so that what slows all at once (heat, a
busy machine) accuses nobody. One outlier moves no median; what is left of noise is measured, not assumed.
"""

from __future__ import annotations

import bisect
import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

K = TypeVar("K")

LEAST = 0.05
"""A share. Nobody is named for less, however quiet the others are: GPUs of one kind and one healthy machine differ by
a few percent (benchmarks/straggler.py draws ranks with a spread of 1 %, for which this is five times the spread)."""
SIGMAS = 4.0
"""How many standard deviations above the others: of 64 ranks with normal noise, one run in 500 names somebody by
chance; LEAST lies above that wherever the spread is below 1.25 %."""
TELLS = 0.10
"""A share. Where noise would hide a rank that is slower by this much, nothing is told instead of a pass."""
CHUNK = 5
"""Steps that lie close together share their noise: their median counts as one observation."""
FEW, LEAST_OF_FEW = 4, 0.06
"""Among so few the spread between them is not known: two healthy ranks differ by up to this (four times 1.4 %)."""
SOAK = 120
"""Steps from which on the last third is judged besides all: it then has the 40 steps of a shared mode."""
HANDFUL = 15
"""Members of two nodes of eight GPUs, less the one that is judged."""
_TO_SIGMA = 1.4826  # the median of absolute deviations of a normal distribution, as its standard deviation
_OF_MEDIAN = 1.2533  # the standard error of a median against that of a mean


@dataclass(frozen=True, slots=True)
class Standing:
    """One member against all others: the share by which it is slower (``excess``), and from where on it is named."""

    excess: float
    limit: float
    median: float
    reference: float
    conclusive: bool
    """Whether one that is slower by TELLS would be named, for most of the members."""

    late: bool = False
    """Whether it is of the last third of the steps alone."""

    @property
    def slow(self) -> bool:
        """Whether it is slower than noise and spread explain."""
        return self.excess > self.limit


def standings(times: Mapping[K, Sequence[float]]) -> dict[K, Standing]:
    """Compare each member's times with the others' at the same steps; {} for fewer than two members or no steps."""
    members = list(times)
    steps = min((len(times[m]) for m in members), default=0)
    if len(members) < 2 or steps == 0:
        return {}
    columns = [sorted(times[m][i] for m in members) for i in range(steps)]
    ratios: dict[K, list[float]] = {}
    references: dict[K, float] = {}
    for member in members:
        others = [without(columns[i], times[member][i]) for i in range(steps)]
        ratios[member] = [t / max(other, 1e-12) for t, other in zip(times[member], others, strict=False)]
        references[member] = statistics.median(others)
    excess = {m: statistics.median(ratios[m]) - 1 for m in members}
    ordered = sorted(excess.values())
    limits = {}
    for member in members:
        noise = _error(ratios[member])
        spread = _spread_of_others(ordered, excess[member]) if len(members) > FEW else LEAST_OF_FEW / SIGMAS
        limits[member] = max(LEAST, SIGMAS * math.hypot(spread, noise))
    conclusive = statistics.median(limits.values()) <= TELLS
    medians = {m: statistics.median(times[m]) for m in members}
    return {m: Standing(excess[m], limits[m], medians[m], references[m], conclusive) for m in members}


def soaked(times: Mapping[K, Sequence[float]]) -> dict[K, Standing]:
    """Compare all steps, and of a soak the last third, too: the median of all hides what becomes slow in its heat."""
    whole, steps = standings(times), min((len(each) for each in times.values()), default=0)
    if steps < SOAK:
        return whole
    late = standings({member: each[steps - steps // 3 : steps] for member, each in times.items()})
    return {
        m: replace(late[m], late=True) if late[m].slow and not stands.slow else stands for m, stands in whole.items()
    }


def without(ordered: Sequence[float], value: float) -> float:
    """Return the median of sorted values with one of them, ``value``, left out."""
    place, count = bisect.bisect_left(ordered, value), len(ordered) - 1
    middle = count // 2

    def at(index: int) -> float:
        return ordered[index if index < place else index + 1]

    return at(middle) if count % 2 else (at(middle - 1) + at(middle)) / 2


def _error(ratios: Sequence[float]) -> float:
    """Return the standard error of the ratios' median, from the spread of chunks of steps."""
    chunks = [statistics.median(ratios[i : i + CHUNK]) for i in range(0, len(ratios), CHUNK)]
    return _OF_MEDIAN * _sigma(chunks) / math.sqrt(len(chunks))


def _spread_of_others(ordered: Sequence[float], value: float) -> float:
    others = list(ordered)
    del others[bisect.bisect_left(ordered, value)]
    # Of a handful, the median of deviations is itself off by half; the plain deviation is not, unless one more is slow.
    return min(_sigma(others), statistics.stdev(others)) if len(others) < HANDFUL else _sigma(others)


def _sigma(values: Sequence[float]) -> float:
    middle = statistics.median(values)
    return _TO_SIGMA * float(statistics.median(abs(value - middle) for value in values))
