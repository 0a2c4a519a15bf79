"""Rounds that something slowed as a whole, told by the rounds of the same kind and by controls.

A control is a pair that passed and is tested again beside what is repeated. One that is much faster then says that its
first round was slowed; controls that fail say that theirs is. What failed in a slowed round accuses nobody.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median, median_low
from typing import Dict, FrozenSet, List, Mapping, Sequence, Set, Tuple

from .model import Done, Fleet, Nodes, Rules

FALLEN = 0.90  # of the level of a kind: the tolerance of a single test; a median of three is nearer
ENOUGH = 3  # tests of a kind that make a median
ATTEMPTS = 4  # at a pairing, each with half as many at once: what slows 3 rounds of 10 slows four in a row once in 120

Values = Mapping[Nodes, float]  # GB/s of the tests of a round that measured something


@dataclass(frozen=True)
class Disturbed:
    """What was slowed: `rounds` are repeated, at most `at_once` tests at a time; `slowed` are rounds and their kinds.

    `stays` says which pairings are slow however few run at once.
    """

    rounds: FrozenSet[int]
    slowed: FrozenSet[Tuple[int, str]]
    at_once: int
    notes: Tuple[str, ...]
    stays: Tuple[str, ...]


def upper(values: Sequence[float]) -> float:
    """Return the median of the values near the upper quartile: half of the tests may fail without moving it."""
    quartile = sorted(values)[len(values) * 3 // 4]
    return median([v for v in values if v >= FALLEN * quartile])


def disturbed(
    fleet: Fleet, rules: Rules, matchings: int, history: Sequence[Done], measured: Mapping[int, Values]
) -> Disturbed:
    """Find what was slowed in a history; `measured` has the values of each round by its number."""
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
        what = "round %d: tests %s reach %.2f of what others of their kind do" % (number, kind, share)
        if tried[stage] < ATTEMPTS:
            undone[number] = stage
            at_once = min(at_once or count, max(1, count // 2))
            notes.append("%s: they disturb each other; repeated with %d at once" % (what, at_once))
        elif tried[stage] == ATTEMPTS:
            undone = {each: of for each, of in undone.items() if of != stage}
            at_once = rules.at_once
            stays.append("%s, however few run at once: which of them fail is not known" % what)
    slowed |= _controlled(fleet, matchings, history, measured, levels, slowed)
    return Disturbed(frozenset(undone), frozenset(slowed), at_once, tuple(notes), tuple(stays))


def by_kind(fleet: Fleet, values: Values) -> Dict[str, Dict[Nodes, float]]:
    """Return the values of pairs by the kind of test."""
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
    usual: Dict[Nodes, Tuple[float, float]] = {}  # of tests that are near their round's level: value and level
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
    for kind, together in few.items():  # of rounds that are too small to have a level of their own
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
    """Return the later rounds, and kinds, whose controls all fail."""
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
