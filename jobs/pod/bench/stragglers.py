"""Detection of stragglers: members that are slower than others at the same work.

Uses medians of ratios, and a limit that follows the measured spread.

Times are compared step by step with the median of the others at the same step, so that a common slowdown (heat, a busy
machine) is not a fault. A single outlier does not change the median. The remaining noise is measured, not assumed.

The ranks call `settled` to decide whether they have made enough steps; checks/rules/training.py judges by the same
functions.
"""

from __future__ import annotations

import bisect
import math
import statistics
from typing import Dict, List, Mapping, NamedTuple, Sequence, TypeVar

K = TypeVar("K")

LEAST = 0.05
"""A share. The smallest excess that is reported: GPUs of one kind and one healthy machine differ by a few percent
(benchmarks/straggler.py draws ranks with a spread of 1 %, for which this is five times the spread)."""
SIGMAS = 4.0
"""Minimum distance from the others, in standard deviations. Of 64 ranks with normal noise, one run in 500 reports a
rank by chance (BY_CHANCE); LEAST is above that if the spread is below 1.25 %. More ranks need more: 5.0 for 8,000."""
BY_CHANCE = 1 / 500
TELLS = 0.10
"""A share. If noise could hide a slowdown of this size, the member is left undecided instead of passed."""
SURE = 3.0
"""Standard deviations: chance exceeds them in one of 1,000 repetitions."""
CHUNK = 5
"""Consecutive steps may share their noise: the medians of so many then scatter more than expected."""
FEW, LEAST_OF_FEW = 4, 0.06
"""Among so few members the spread is unknown: two healthy ranks differ by up to this (four times 1.4 %)."""
SOAK = 120
"""Number of steps from which the last third is also judged alone; it then has the 40 steps of a shared mode."""
HANDFUL = 15
"""Members of two nodes of eight GPUs, less the judged one."""
_TO_SIGMA = 1.4826  # ratio of a normal distribution's standard deviation to its median absolute deviation
_OF_MEDIAN = 1.2533  # ratio of the standard error of a median to that of a mean


class Standing(NamedTuple):
    """One member compared with all others: by which share it is slower (``excess``), and the limit."""

    excess: float
    limit: float
    error: float
    """The standard deviation of ``excess`` among healthy members, from their spread and the scatter of steps."""

    median: float
    reference: float
    late: bool = False
    """Whether it covers only the last third of the steps."""

    @property
    def slow(self) -> bool:
        """Whether the member is slower than noise and spread explain."""
        return self.excess > self.limit

    @property
    def conclusive(self) -> bool:
        """Whether the member is slow, or a slowdown by TELLS is ruled out."""
        return self.slow or self.excess + SURE * self.error < TELLS


def standings(times: Mapping[K, Sequence[float]]) -> Dict[K, Standing]:
    """Compare each member's times with the others' at the same steps; {} for fewer than two members or no steps."""
    members = list(times)
    steps = min((len(times[m]) for m in members), default=0)
    if len(members) < 2 or steps == 0:
        return {}
    columns = [sorted(times[m][i] for m in members) for i in range(steps)]
    ratios: Dict[K, List[float]] = {}
    references: Dict[K, float] = {}
    for member in members:
        references_of = [without(columns[i], times[member][i]) for i in range(steps)]
        ratios[member] = [t / max(other, 1e-12) for t, other in zip(times[member], references_of)]
        references[member] = statistics.median(references_of)
    excess = {m: statistics.median(ratios[m]) - 1 for m in members}
    ordered = sorted(excess.values())
    noise = _errors(ratios)
    errors = {}
    sigmas = max(SIGMAS, statistics.NormalDist().inv_cdf(1 - BY_CHANCE / len(members)))
    for member in members:
        spread = _spread_of_others(ordered, excess[member]) if len(members) > FEW else LEAST_OF_FEW / sigmas
        errors[member] = math.hypot(spread, noise[member])
    medians = {m: statistics.median(times[m]) for m in members}
    return {
        m: Standing(excess[m], max(LEAST, sigmas * errors[m]), errors[m], medians[m], references[m]) for m in members
    }


def settled(times: Mapping[K, Sequence[float]]) -> bool:
    """Return whether the result is conclusive for each member."""
    return all(each.conclusive for each in standings(times).values())


def soaked(times: Mapping[K, Sequence[float]]) -> Dict[K, Standing]:
    """Compare all steps, and for a soak also the last third: the overall median hides a slowdown by heat."""
    whole, steps = standings(times), min((len(each) for each in times.values()), default=0)
    if steps < SOAK:
        return whole
    late = standings({member: each[steps - steps // 3 : steps] for member, each in times.items()})
    return {
        m: late[m]._replace(late=True) if late[m].slow and not standing.slow else standing
        for m, standing in whole.items()
    }


def without(ordered: Sequence[float], value: float) -> float:
    """Return the median of sorted values with one of them, ``value``, left out."""
    place, count = bisect.bisect_left(ordered, value), len(ordered) - 1
    middle = count // 2

    def at(index: int) -> float:
        return ordered[index if index < place else index + 1]

    return at(middle) if count % 2 else (at(middle - 1) + at(middle)) / 2


def _errors(ratios: Mapping[K, Sequence[float]]) -> Dict[K, float]:
    """Return the standard error of each median of ratios, from the spread of the member's own steps.

    The error grows because consecutive steps share their noise. A few chunks of one member cannot show by how much, so
    the factor is the median over all members.
    """
    each = {member: _error(values) for member, values in ratios.items()}
    shared = [
        _error([statistics.median(ratios[member][i : i + CHUNK]) for i in range(0, len(ratios[member]), CHUNK)]) / alone
        for member, alone in each.items()
        if alone
    ]
    grows = max(1.0, statistics.median(shared)) if shared else 1.0
    return {member: error * grows for member, error in each.items()}


def _error(values: Sequence[float]) -> float:
    return _OF_MEDIAN * _sigma(values) / math.sqrt(len(values))


def _spread_of_others(ordered: Sequence[float], value: float) -> float:
    rest = list(ordered)
    del rest[bisect.bisect_left(ordered, value)]
    # For a handful, the median of deviations may be off by half; the standard deviation is not, unless another one is
    # slow.
    return min(_sigma(rest), statistics.stdev(rest)) if len(rest) < HANDFUL else _sigma(rest)


def _sigma(values: Sequence[float]) -> float:
    middle = statistics.median(values)
    return _TO_SIGMA * float(statistics.median(abs(value - middle) for value in values))
