"""A history as it can be judged: no node of another fleet, no round twice, no value that no hardware gives.

What reports itself cannot be trusted to be whole, in order or finite; what is taken out is told.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from .model import Done, Fleet, Nodes, Result, Round

HIGHEST = 100_000.0
"""GB/s: a hundred times what a node of today moves over its NICs and NVLinks together. More was not measured."""


def tidy(fleet: Fleet, history: Sequence[Done]) -> Tuple[List[Done], List[str]]:
    """Return the rounds in their order, and what was taken out of them."""
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
    """Return a round with tests of this fleet only, each once, each of one node or of two."""
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
    """Return how many rails most tests of a kind told of."""
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
    """Return a result with None for what was not measured: an odd number, or a rail that is not told of."""
    rails_of = tuple(_value(each) for each in result.rails)
    missing = (None,) * (rails - len(rails_of)) if result.busbw is not None else ()
    return replace(result, busbw=_value(result.busbw), rails=rails_of + missing)


def _value(value: Optional[float]) -> Optional[float]:
    return value if value is not None and math.isfinite(value) and 0 <= value <= HIGHEST else None
