"""Slow majorities and noise: tests with two levels, rails or paths that are slow everywhere, noisy values.

Faults only make tests slower. So the level of tests is that of sound elements if most are sound. If most are not, a few
faster tests show it, or another rail, or the tests in a leaf. The tests do not show which level is sound: both are
reported, no node is found at fault, and the sweep is not go.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import hypot
from statistics import median, median_low
from typing import Dict, List, Mapping, Sequence, Set, Tuple

from .disturbed import upper
from .model import ACROSS, INSIDE, Finding, Fleet, Nodes

Key = Tuple[str, int]  # kind of test and rail (-1: all rails together)
Tests = Sequence[Tuple[float, Nodes]]  # GB/s, and the nodes

GROUP = (0.88, 0.95)  # of the median: the range of a healthy second group (real ones are 7 to 11 % apart; noise 2 %)
FAST_SIGMAS = 5.0  # above the level: by chance once in 3 million values
FAULT_SIGMAS = (3.3, 6.0)
"""Below the level: by chance one of nine values of a test once in 230 tests, less often than accidents (1 % of tests).
The second value applies to noise too high for any go: then only much slower elements are found at fault."""
LEAST_AT_FAULT = 0.85
"""Noise above 4.5 % (0.15 / 3.3) hides faults of 10 to 15 %: an element at 0.85 then still passes one test in 27."""
NORMAL = 1.4826  # sigma over the median deviation of a normal distribution
HEAPS_SIGMAS = 5.0  # least distance of two levels; the halves of one normal distribution have 2.3 of their own sigma
UNSURE = 5  # divided by the number of values: by this share an estimate from few values may be too low
LEAST_VALUES, FEW_VALUES = 3, 8  # above the level, before an estimate is made, and before it is trusted
UNKNOWN = 0.06  # assumed noise of few values
OWN = 16  # values above the level of a kind before its own noise is used
REPEATED = 3  # fast tests of a kind that need no repetition
SHOWN = 4  # names


@dataclass(frozen=True)
class Heaps:
    """The findings of a history apart from faults of single elements, and the tests to repeat before the report."""

    found: Tuple[Finding, ...]
    again: Tuple[Nodes, ...]


@dataclass(frozen=True)
class Noise:
    """The noise of tests of a kind: sigma relative to the level, and its upper bound by the number of values."""

    sigma: float = 0.0
    most: float = 0.0


def noise_of(tests: Mapping[Key, Tests]) -> Dict[Tuple[str, bool], Noise]:
    """Return the noise of each kind of test and, under True, of single rails.

    The noise of all rails together is that of the values above the level, since lower ones may be faults. A single rail
    adds the differences between the rails of one test. Two healthy groups are not noise.
    """
    above = {key: _above(values) for key, values in tests.items()}
    whole = _noise([share for (_, rail), shares in above.items() if rail < 0 for share in shares])
    rails = _noise([share for (_, rail), shares in above.items() if rail >= 0 for share in shares])
    within = _noise(_within_tests(tests))
    if within.sigma:
        rails = Noise(hypot(within.sigma, whole.sigma), hypot(within.most, whole.most))
    noise: Dict[Tuple[str, bool], Noise] = {}
    for kind, rail in tests:
        own = _noise(above[kind, rail]) if rail < 0 and len(above[kind, rail]) >= OWN else Noise()
        noise[kind, rail >= 0] = rails if rail >= 0 else max(whole, own, key=lambda each: each.sigma)
    return noise


def _noise(deviations: Sequence[float]) -> Noise:
    if not deviations:
        return Noise()
    count = len(deviations)
    sigma = NORMAL * median(deviations) if count >= LEAST_VALUES else 0.0
    return Noise(sigma, max(sigma * (1 + UNSURE / count), UNKNOWN if count < FEW_VALUES else 0.0))


def _above(values: Tests) -> List[float]:
    """Return the deviations of values above the level, without those of a faster group."""
    level = upper([value for value, _ in values])
    near = sorted(value for value, _ in values if level * GROUP[0] <= value <= level / GROUP[0])
    level = _upper_heap(near) if near else level
    return [value / level - 1 for value, _ in values if level < value <= level / GROUP[0]]


def _within_tests(tests: Mapping[Key, Tests]) -> List[float]:
    """Return the deviations of each test's rails from their median, relative to the level."""
    of_test: Dict[Tuple[str, int], List[float]] = {}
    for (kind, rail), values in tests.items():
        level = upper([value for value, _ in values])
        for at, (value, _) in enumerate(values if rail >= 0 else ()):
            of_test.setdefault((kind, at), []).append(value / level)
    every = [[abs(share / median(shares) - 1) for share in shares] for shares in of_test.values() if len(shares) > 2]
    return [off for each in every for off in each]


def _upper_heap(values: Sequence[float]) -> float:
    """Return the median of sorted values, or of the upper group if there are clearly two (two means)."""
    best, split, total, left = 0.0, 0, sum(values), 0.0
    for at in range(1, len(values)):
        left += values[at - 1]
        between = at * (len(values) - at) * (left / at - (total - left) / (len(values) - at)) ** 2
        best, split = max((best, split), (between, at))
    heaps_of = [values[:split], values[split:]]
    if split and min(map(len, heaps_of)) > len(values) / 5:
        middles = [median(heap) for heap in heaps_of]
        off = [abs(value - middle) for heap, middle in zip(heaps_of, middles) for value in heap]
        if middles[1] - middles[0] > HEAPS_SIGMAS * NORMAL * median(off):
            return middles[1]
    return median(values)


def fault_below(noise: Mapping[Tuple[str, bool], Noise], usual: float) -> Dict[Tuple[str, bool], float]:
    """Return the share of the level below which a value of each kind fails: lower if noise reaches the usual one."""
    hidden = any(1 - FAULT_SIGMAS[0] * each.sigma < LEAST_AT_FAULT for each in noise.values())
    return {key: min(usual, 1 - FAULT_SIGMAS[hidden] * each.most) for key, each in noise.items()}


def heaps(
    fleet: Fleet, tests: Mapping[Key, Tests], levels: Mapping[Key, float], noise: Mapping[Tuple[str, bool], Noise]
) -> Heaps:
    """Find slowness or noise in most tests; `tests` are all that were not disturbed."""
    found = [_noisy(fleet, noise)]
    again: Set[Nodes] = set()
    split: Set[str] = set()
    for key in sorted(levels):
        fast = _fast(tests[key], levels[key], noise[key[0], key[1] >= 0].sigma)
        if not fast:
            continue
        if len(fast) < REPEATED:
            again.update(nodes for nodes, values in fast.items() if len(values) < 2)
        if key[0] not in split:  # a rail is reported only if all rails together do not show it
            split.update(key[:1] if key[1] < 0 else ())
            found.append([_two_heaps(fleet, key, tests[key], levels[key], fast)])
    ways = _slow_ways(tests, levels)
    if ways:  # a round that slowed itself is detected by a few repeated tests
        kind = min((INSIDE, ACROSS), key=lambda each: levels.get((each, -1), 0.0))
        again.update(_to_repeat(tests.get((kind, -1), ())))
    found += [_slow_rails(tests, levels, noise), ways]
    return Heaps(tuple(each for part in found for each in part), tuple(sorted(again)))


def _to_repeat(tests: Tests) -> List[Nodes]:
    """Return a few tests that ran once; none if as many ran twice."""
    times = Counter(nodes for _, nodes in tests)
    left = REPEATED - sum(count > 1 for count in times.values())
    return sorted(nodes for nodes, count in times.items() if count == 1)[: max(0, left)]


def _noisy(fleet: Fleet, noise: Mapping[Tuple[str, bool], Noise]) -> List[Finding]:
    found = []
    for of_rails, what in ((False, "tests"), (True, "single rails in tests")):
        sigma = max((each.sigma for key, each in noise.items() if key[1] == of_rails), default=0.0)
        least = 1 - FAULT_SIGMAS[0] * sigma
        if least < LEAST_AT_FAULT:
            why = "%s have a noise of %.1f %%: a fault that leaves more than %.2f of the level is not distinguishable"
            found.append(Finding("noise", fleet.nodes, (), why % (what, 100 * sigma, max(0.0, least))))
    return found


def _fast(tests: Tests, level: float, sigma: float) -> Dict[Nodes, List[float]]:
    """Return the tests that are faster than a healthy group in all of their runs."""
    values: Dict[Nodes, List[float]] = {}
    for value, nodes in tests:
        values.setdefault(nodes, []).append(value / level)
    limit = max(1 / GROUP[0], 1 + FAST_SIGMAS * sigma)
    return {nodes: shares for nodes, shares in values.items() if median_low(shares) > limit}


def _two_heaps(fleet: Fleet, key: Key, tests: Tests, level: float, fast: Mapping[Nodes, Sequence[float]]) -> Finding:
    kind, rail = key
    ran = {nodes for _, nodes in tests}
    quick = {node for nodes in fast for node in nodes}
    slow = {node for nodes in ran for node in nodes} - quick
    if kind == ACROSS:
        leaves = {fleet.leaf(node) for node in quick}
        slow = {node for node in slow if fleet.leaf(node) not in leaves}
    shares = sorted(share for values in fast.values() for share in values)
    where = kind + (", rail %d" % rail) * (rail >= 0)
    why = "%d of %d tests %s reach %.2f to %.2f of the level of %.4g GB/s: two levels, and the tests do not show which"
    why = (why + " is sound; fast: %s") % (
        len(fast), len(ran), where, shares[0], shares[-1], level, _named(fleet, quick, kind),
    )  # fmt: skip
    if slow:
        why += "; not faster in any test: %s" % _named(fleet, slow, kind)
    return Finding("groups", tuple(sorted(slow or quick)), (rail,) if rail >= 0 else (), why)


def _named(fleet: Fleet, nodes: Set[str], kind: str) -> str:
    names = sorted({fleet.leaf(node) for node in nodes} if kind == ACROSS else nodes)
    more = ", ..." if len(names) > SHOWN else ""
    return "%d %s (%s%s)" % (len(names), "leaves" if kind == ACROSS else "nodes", ", ".join(names[:SHOWN]), more)


def _slow_rails(
    tests: Mapping[Key, Tests], levels: Mapping[Key, float], noise: Mapping[Tuple[str, bool], Noise]
) -> List[Finding]:
    """Return the rails whose level is below that of the fastest: those of one plane are slow on every node."""
    for kind in (INSIDE, ACROSS):
        rails = {rail: level for (of, rail), level in levels.items() if of == kind and rail >= 0}
        best = max(rails.values(), default=0.0)
        least = min((len(tests[kind, rail]) for rail in rails), default=1)
        limit = min(GROUP[0], 1 - FAST_SIGMAS * noise.get((kind, True), Noise()).sigma / least**0.5)
        slow = sorted(rail for rail, level in rails.items() if level < limit * best)
        if slow:
            shares = sorted(rails[rail] / best for rail in slow)
            spread = " to ".join(dict.fromkeys("%.2f" % share for share in (shares[0], shares[-1])))
            nodes = sorted({node for rail in slow for _, pair in tests[kind, rail] for node in pair})
            count = (spread, next(rail for rail in rails if rails[rail] == best), len(nodes))
            which = "%s %s" % ("rail" if len(slow) == 1 else "rails", ", ".join(map(str, slow)))
            why = which + " at %s of rail %d on all of %d nodes: their switch or plane, or NICs of another rate" % count
            return [Finding("groups", tuple(nodes), tuple(slow), why)]
    return []


def _slow_ways(tests: Mapping[Key, Tests], levels: Mapping[Key, float]) -> List[Finding]:
    """Report tests across leaves that differ from those in a leaf by more than healthy groups do."""
    for rail in sorted(rail for kind, rail in levels if kind == ACROSS and (INSIDE, rail) in levels):
        share = levels[ACROSS, rail] / levels[INSIDE, rail]
        if not GROUP[0] <= share <= 1 / GROUP[0]:
            where = ", rail %d," % rail if rail >= 0 else ""
            why = "the level across leaves%s is %.2f of that in a leaf (%d and %d tests): " % (
                where, share, len(tests[ACROSS, rail]), len(tests[INSIDE, rail]),
            )  # fmt: skip
            why += "most uplinks, or fewer of them than nodes" if share < 1 else "most of what is inside leaves"
            nodes = {node for _, pair in tests[ACROSS, rail] for node in pair}
            return [
                Finding("groups", tuple(sorted(nodes)), (rail,) if rail >= 0 else (), why + "; no node is at fault")
            ]
    return []
