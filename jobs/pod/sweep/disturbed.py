"""Detection of rounds that were slowed as a whole, by rounds of the same kind and by controls.

A control is a pair that passed and is tested again together with repeated pairs. A much faster control shows that its
first round was slowed; controls that all fail show that theirs is. Failures in a slowed round are not evidence of a
fault.

Results may be incomplete, out of order or not finite. So a history is first reduced to valid entries: no node of
another fleet, no repeated round, no implausible value. Removed values are reported.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from statistics import median, median_low
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from .model import Done, Fleet, Nodes, Result, Round, Rules

HIGHEST = 100_000.0
"""GB/s: a hundred times what a current node moves over its NICs and NVLinks together. A higher value is invalid."""


def tidy(fleet: Fleet, history: Sequence[Done]) -> Tuple[List[Done], List[str]]:
    """Return the rounds in order, and notes about removed entries."""
    known = set(fleet.nodes)
    rounds: Dict[int, Done] = {}
    notes: List[str] = []
    for done in history:
        number = done.round.number
        if number in rounds:
            notes.append("round %d was recorded twice: the first report of each of its tests holds" % number)
            rounds[number] = _together(rounds[number], _of_fleet(done, known))
        else:
            rounds[number] = _of_fleet(done, known)
    ordered = [rounds[number] for number in sorted(rounds)]
    rails = {alone: _usual_rails(ordered, alone) for alone in (False, True)}
    return [_whole(done, rails) for done in ordered], notes


def _of_fleet(done: Done, known: Iterable[str]) -> Done:
    """Return a round with tests of this fleet only, each once, with one node or two."""
    fit = set(known)
    tests = tuple(
        dict.fromkeys(t for t in done.round.tests if 1 <= len(t) <= 2 and len(set(t)) == len(t) and fit >= {*t})
    )
    return replace(done, round=replace(done.round, tests=tests))


def _together(first: Done, again: Done) -> Done:
    tests = tuple(dict.fromkeys((*first.round.tests, *again.round.tests)))
    results = {**again.results, **first.results}
    return Done(Round(first.round.number, first.round.stage, tests), results, max(first.seconds, again.seconds))


def _usual_rails(history: Sequence[Done], alone: bool) -> int:
    """Return the number of rails that most tests of a kind reported."""
    counted: Counter[int] = Counter(
        len(done.results[test].rails)
        for done in history
        for test in done.round.tests
        if test in done.results and (len(test) == 1) == alone and done.results[test].busbw is not None
    )
    return max(counted, key=lambda count: (counted[count], count), default=0)


def _whole(done: Done, rails: Dict[bool, int]) -> Done:
    results: Dict[Nodes, Result] = {}
    for test in done.round.tests:
        if test in done.results:
            results[test] = _sound(done.results[test], rails[len(test) == 1])
    return replace(done, results=results)


def _sound(result: Result, rails: int) -> Result:
    """Return a result with None for invalid values and for rails that are not reported."""
    rails_of = tuple(_value(each) for each in result.rails)
    missing = (None,) * (rails - len(rails_of)) if result.busbw is not None else ()
    return replace(result, busbw=_value(result.busbw), rails=rails_of + missing)


def _value(value: Optional[float]) -> Optional[float]:
    return value if value is not None and math.isfinite(value) and 0 <= value <= HIGHEST else None


FALLEN = 0.90  # of the level of a kind: the tolerance of a single test; a median of three is closer
ENOUGH = 3  # tests of a kind that make a median
ATTEMPTS = 4  # per pairing, each with half as many at once: if 3 of 10 rounds are slowed, four in a row are once in 120

Values = Mapping[Nodes, float]  # GB/s of the tests of a round that measured something


@dataclass(frozen=True)
class Disturbed:
    """The slowed rounds: `rounds` are repeated, at most `at_once` tests at a time; `slowed` are rounds and their kinds.

    `stays` names pairings that are slow at any number of simultaneous tests.
    """

    rounds: FrozenSet[int]
    slowed: FrozenSet[Tuple[int, str]]
    at_once: int
    notes: Tuple[str, ...]
    stays: Tuple[str, ...]


def upper(values: Sequence[float]) -> float:
    """Return the median of the values near the upper quartile, which holds if up to half of the tests fail."""
    quartile = sorted(values)[len(values) * 3 // 4]
    return median([v for v in values if v >= FALLEN * quartile])


def disturbed(
    fleet: Fleet, rules: Rules, matchings: int, history: Sequence[Done], measured: Mapping[int, Values]
) -> Disturbed:
    """Find the slowed rounds of a history; `measured` has the values of each round by its number."""
    levels, first = _levels(fleet, matchings, history, measured)
    slowed: Set[Tuple[int, str]] = set()
    undone: Dict[int, int] = {}
    tried: Counter[int] = Counter()
    notes: List[str] = []
    stays: List[str] = []
    at_once = rules.at_once
    for done in history:
        number, stage, count = done.round.number, done.round.stage, len(done.round.tests)
        fallen = {k: m / levels[k] for k, m in first.get(number, {}).items() if m < FALLEN * levels[k]}
        slowed |= {(number, kind) for kind in fallen}
        if not fallen:
            continue
        tried[stage] += 1
        kind, share = min(fallen.items(), key=lambda each: each[1])
        what = "round %d: tests %s reach %.2f of the level of their kind" % (number, kind, share)
        if tried[stage] < ATTEMPTS:
            undone[number] = stage
            at_once = min(at_once or count, max(1, count // 2))
            notes.append("%s: they disturb each other; repeated with %d at once" % (what, at_once))
        elif tried[stage] == ATTEMPTS:
            undone = {each: of for each, of in undone.items() if of != stage}
            at_once = rules.at_once
            stays.append("%s, however few run at once: the ones that fail are unknown" % what)
    slowed |= _controlled(fleet, matchings, history, measured, levels, slowed)
    return Disturbed(frozenset(undone), frozenset(slowed), at_once, tuple(notes), tuple(stays))


def by_kind(fleet: Fleet, values: Values) -> Dict[str, Dict[Nodes, float]]:
    """Return the values of pairs by kind of test."""
    kinds: Dict[str, Dict[Nodes, float]] = {}
    for nodes, value in values.items():
        if len(nodes) > 1:
            kinds.setdefault(fleet.kind_of(nodes), {})[nodes] = value
    return kinds


def _levels(
    fleet: Fleet, matchings: int, history: Sequence[Done], measured: Mapping[int, Values]
) -> Tuple[Dict[str, float], Dict[int, Dict[str, float]]]:
    """Return the best level of each kind, and the level of each kind in each round of the pairings."""
    levels: Dict[str, float] = {}
    first: Dict[int, Dict[str, float]] = {}
    few: Dict[str, List[float]] = {}
    again: Dict[str, List[float]] = {}
    usual: Dict[Nodes, Tuple[float, float]] = {}  # of tests near their round's level: value and level
    for done in history:
        base = 1 <= done.round.stage <= matchings
        for kind, values in by_kind(fleet, measured[done.round.number]).items():
            if base and len(values) >= ENOUGH:
                level = upper(list(values.values()))
                first.setdefault(done.round.number, {})[kind] = level
                levels[kind] = max(levels.get(kind, 0.0), level)
                usual.update({nodes: (value, level) for nodes, value in values.items() if value >= FALLEN * level})
            elif base:
                few.setdefault(kind, []).extend(values.values())
            else:
                again.setdefault(kind, []).extend(
                    v / usual[n][0] * usual[n][1] for n, v in values.items() if n in usual
                )
    for kind, together in few.items():  # of rounds that are too small for a level of their own
        if len(together) >= ENOUGH:
            levels[kind] = max(levels.get(kind, 0.0), upper(together))
    for kind, controls in again.items():
        if controls:
            levels[kind] = max(levels.get(kind, 0.0), median_low(controls))
    return levels, first


def _controlled(
    fleet: Fleet,
    matchings: int,
    history: Sequence[Done],
    measured: Mapping[int, Values],
    levels: Mapping[str, float],
    slowed: Set[Tuple[int, str]],
) -> Set[Tuple[int, str]]:
    """Return the later rounds, and kinds, in which all controls fail."""
    disturbed_rounds: Set[Tuple[int, str]] = set()
    passed: Dict[Nodes, bool] = {}
    for done in history:
        number, base = done.round.number, done.round.stage <= matchings
        for kind, values in by_kind(fleet, measured[number]).items():
            good = {nodes: value >= FALLEN * levels.get(kind, 0.0) for nodes, value in values.items()}
            controls = [good[nodes] for nodes in values if passed.get(nodes)]
            if not base and controls and not any(controls):
                disturbed_rounds.add((number, kind))
            elif (number, kind) not in slowed:
                passed.update({nodes: is_good and passed.get(nodes, True) for nodes, is_good in good.items()})
    return disturbed_rounds
