"""The statistic of a sweep: the likelihood of its tests under an explanation, in nats.

An element at fault (a node, an uplink, a path that a group of nodes shares) fails tests at an unknown rate, accidents
occur at about 1 %. Explanations are compared by the likelihood of the tests over those rates (Bayes factor, Kass and
Raftery 1995: from 100 on the evidence is decisive). The cost of choosing the elements among all, and of the speeds at
which they fail, is subtracted (minimum description length, Rissanen 1978): one fault slows all its tests equally, each
accident differently.
"""

from __future__ import annotations

from functools import lru_cache
from math import lgamma, log
from typing import Iterable, List, Optional, Sequence, Tuple

DECISIVE = log(100)
ACCIDENT = (1.0, 99.0)  # Beta prior of the share of pairs that fail without a fault: 1 % (docs/fleet.md)
ANY = (1.0, 1.0)  # of a rate without prior knowledge
SPREAD = 0.1  # of the level: failures of one fault at 0.9 differ by that, at 5 sigma of 2 % of noise
SPEEDS = 9  # distinguishable speeds below 0.90
OF_ACCIDENTS = 2  # disturbances take 15 to 40 % (benchmarks/sweep_model.py), SPREAD apart: three agree now and then

Count = Tuple[int, int]  # failures, tests


def counted(shares: Iterable[Optional[float]]) -> Count:
    """Count failures and tests: a share of the level of each failing test, None for a passing one."""
    each = list(shares)
    return sum(share is not None for share in each), len(each)


@lru_cache(maxsize=1 << 16)
def at_unknown_rate(count: Count, prior: Tuple[float, float] = ANY) -> float:
    """Return the log-likelihood of so many failures in so many tests at a rate with a Beta prior."""
    (bad, tests), (one, other) = count, prior
    return _ln_beta(one + bad, other + tests - bad) - _ln_beta(one, other)


@lru_cache(maxsize=1 << 16)
def by_pairs(count: Count) -> float:
    """Return the log-likelihood of failures of single pairs without a common cause, each at any speed."""
    return at_unknown_rate(count, ACCIDENT) - count[0] * log(SPEEDS)


def by_accident(count: Count, elsewhere: Count = (0, 0)) -> float:
    """Return the log-likelihood of so many disturbed tests.

    `elsewhere` counts other tests, from which the rate of accidents is known.
    """
    prior = (ACCIDENT[0] + elsewhere[0], ACCIDENT[1] + elsewhere[1] - elsewhere[0])
    return at_unknown_rate(count, prior) - count[0] * log(OF_ACCIDENTS)


def gain(shares: Sequence[Optional[float]], choices: int, elsewhere: Count = (0, 0)) -> float:
    """Return the gain of one fault among so many elements over accidents, as explanations of its tests, in nats."""
    count = counted(shares)
    return at_unknown_rate(count) - speeds(shares) - log(choices) - by_accident(count, elsewhere)


def speeds(shares: Iterable[Optional[float]]) -> float:
    """Return the cost of describing the speeds of one element: the distinct values, and the value of each failure."""
    values: List[float] = sorted(share for share in shares if share is not None)
    different, least = 0, -SPREAD
    for value in values:
        if value > least + SPREAD or not different:
            different, least = different + 1, value
    return different * log(SPEEDS) + len(values) * log(max(1, different))


@lru_cache(maxsize=1 << 16)
def log_of_groups(count: int, size: int) -> float:
    """Return the log of the number of groups of so many nodes."""
    return lgamma(size + 1) - lgamma(count + 1) - lgamma(size - count + 1)


def _ln_beta(one: float, other: float) -> float:
    return lgamma(one) + lgamma(other) - lgamma(one + other)
