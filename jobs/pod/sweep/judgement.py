"""Tests judged against their peers: pass, fail or unclear, and the rails at fault.

A value is compared with the level of tests of its kind (in a leaf, across leaves) in all undisturbed base rounds.
Faults only make tests slower, so the level is that of the upper half, lowered if a healthy group is slower. A disturbed
round's slow values are not evidence; its passes and its wrong sums count.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import median
from typing import AbstractSet, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from .disturbed import ENOUGH, FALLEN, disturbed, tidy, upper
from .heaps import GROUP, Tests, fault_below, heaps, noise_of
from .model import (
    ACROSS,
    AT_ONCE,
    FAILED,
    INSIDE,
    MEASURED,
    NO_END,
    NOTHING_MEASURED,
    Done,
    Finding,
    Fleet,
    Nodes,
    Rails,
    Result,
    Rules,
)

PASS, FAIL, UNCLEAR, NOTHING, HARD = "pass", "fail", "unclear", "nothing", "hard"
PAIRINGS = ((12, 11), (32, 6), (128, 4))
"""Fleet sizes up to which every node is paired so many times; twice in larger fleets, where more would exceed 2.5 tests
a node. Up to 12 nodes this covers every pair: otherwise a node that fails with two of nine others could miss both in
a sweep of 12. A node that fails with four of five partners passes with all of six once in 15,000 sweeps, of four
once in 600, of two once in 25."""
TOO_FAST = 2.0  # times the level: faults only make tests slower, so the measurement is invalid, or used another path
FEW = 2 * 3  # tests of a kind that may all be those of bad nodes
GROUP_SHARE = 0.3  # of the tests; faults are rarer
GROUP_NODES = 4  # fewer slow nodes are not a group: in a small pool they are as likely at fault
ODD_TESTS = 3  # fastest tests with one node, and tests of the others: fewer are as likely single bad pairs
GROUP_TESTS = 6  # tests among the slow nodes (all pairs of four), if only the group's level is evidence


@dataclass(frozen=True)
class Judged:
    """A test's judgement; value is its lowest share of the reference, None if nothing was measured.

    `shares` are those of all rails together and then of each; empty if nothing was measured.
    """

    nodes: Nodes
    grade: str
    value: Optional[float]
    rails: Rails
    outcome: str
    reported: Nodes
    at: Nodes
    shares: Tuple[float, ...] = ()
    round: int = 0
    busbw: float = 0.0  # GB/s; 0 if nothing was measured, or the test did not end
    fault_below: float = 0.9  # the lowest threshold of its shares


@dataclass(frozen=True)
class Facts:
    """A history, and all of its tests judged, in order.

    `undone` are the rounds to repeat with at most `at_once` tests at a time. `levels` are the reference values in GB/s,
    by kind of test and rail (-1: all rails). `apart` has the findings about most tests (heaps.py). `again` are tests
    that are faster than the level, to run once more.
    """

    judged: Tuple[Judged, ...]
    undone: Tuple[int, ...]
    at_once: int
    notes: Tuple[str, ...]
    levels: Mapping[Tuple[str, int], float] = field(default_factory=dict)
    undecided: Tuple[str, ...] = ()  # parts without a reference level: none is found slow, and the verdict is not a go
    history: Tuple[Done, ...] = ()
    apart: Tuple[Finding, ...] = ()
    again: Tuple[Nodes, ...] = ()


def matchings_of(fleet: Fleet, rules: Rules) -> int:
    """Return how many times every node is paired before ambiguous results are repeated."""
    size = len(fleet.nodes)
    matchings = rules.matchings or next((times for most, times in PAIRINGS if size <= most), 2)
    return min(matchings, size - 1 + size % 2) if size > 1 else 0  # with an odd number, one is left over in each


def judge(fleet: Fleet, rules: Rules, rounds: Sequence[Done]) -> Facts:
    """Judge every test of a history. Tests of unknown nodes and results without a test are ignored."""
    history, odd = tidy(fleet, rounds)
    matchings = matchings_of(fleet, rules)
    measured = {done.round.number: _values(done) for done in history}
    found_slow = disturbed(fleet, rules, matchings, history, measured)
    notes = [*_without_rails(history), *odd, *found_slow.notes]
    base, tests = _measured(fleet, matchings, history, found_slow.slowed)
    reference, noise = _references(base, notes), noise_of(tests)
    found = heaps(fleet, tests, reference, noise)
    limits = fault_below(noise, rules.accuses)
    judged = []
    for done in history:
        for nodes in done.round.tests:
            result = done.results.get(nodes, Result(NOTHING_MEASURED))
            each = replace(_judge(fleet, rules, nodes, result, reference, limits), round=done.round.number)
            if (done.round.number, fleet.kind_of(nodes)) in found_slow.slowed and each.grade in (FAIL, UNCLEAR):
                continue
            judged.append(each)
    undone = tuple(sorted(found_slow.rounds))
    at_once, stays = found_slow.at_once, found_slow.stays
    every = (tuple(judged), undone, at_once, tuple(notes), reference, stays, tuple(history), found.found, found.again)
    return Facts(*every)


def _speed(result: Optional[Result], nodes: Nodes) -> Optional[float]:
    """Return the bandwidth of a complete result; None without one, 0 for a test that did not end."""
    if result is None or set(nodes) - set(result.reported):
        return None
    if result.outcome in (NO_END, FAILED):
        return 0.0
    return result.busbw if result.outcome == MEASURED and result.busbw is not None and result.busbw >= 0 else None


def _values(done: Done) -> Dict[Nodes, float]:
    speeds = {nodes: _speed(done.results.get(nodes), nodes) for nodes in done.round.tests}
    return {nodes: value for nodes, value in speeds.items() if value is not None}


def _without_rails(history: Sequence[Done]) -> List[str]:
    """Describe how many measured pairs report no rail: all rails together may hide a slow one."""
    with_rails: Dict[Nodes, bool] = {}
    for done in history:
        for nodes in done.round.tests:
            result = done.results.get(nodes)
            if len(nodes) > 1 and result is not None and _speed(result, nodes):
                with_rails[nodes] = with_rails.get(nodes, False) or bool(result.rails)
    count = (list(with_rails.values()).count(False), len(with_rails))
    return ["rails not tested: %d of %d pairs measured all rails together only" % count] if count[0] else []


Reference = Dict[Tuple[str, int], float]  # kind and rail (-1: all rails) -> GB/s


def _measured(
    fleet: Fleet, matchings: int, history: Sequence[Done], slowed: AbstractSet[Tuple[int, str]]
) -> Tuple[Dict[Tuple[str, int], Tests], Dict[Tuple[str, int], Tests]]:
    """Return the measurements of each kind and rail in base rounds, and in all.

    If base rounds have few, all rounds count: the tests excluded earlier may be the only healthy ones.
    """
    base: Dict[Tuple[str, int], List[Tuple[float, Nodes]]] = {}
    every: Dict[Tuple[str, int], List[Tuple[float, Nodes]]] = {}
    for done in history:
        for nodes in done.round.tests:
            result, kind = done.results.get(nodes), fleet.kind_of(nodes)
            if (done.round.number, kind) in slowed or result is None or not _speed(result, nodes):
                continue
            for rail, value in enumerate([result.busbw, *result.rails], -1):
                for values in (every, base)[: 2 - (done.round.stage > matchings)] if value else ():
                    values.setdefault((kind, rail), []).append((value or 0.0, nodes))
    return {key: base[key] if len(base.get(key, ())) >= FEW else tests for key, tests in every.items()}, {**every}


def _references(base: Mapping[Tuple[str, int], Tests], notes: List[str]) -> Reference:
    """Return the levels; add notes about healthy groups."""
    levels: Reference = {}
    grouped: Set[str] = set()
    for key in sorted(base):  # all rails together first: a rail is reported if they do not show it
        levels[key], group = _level(base[key])
        if group and key[0] not in grouped:
            where = key[0] if key[1] < 0 else "%s, rail %d" % key
            notes.append("two groups %s, %s: reported, not judged" % (where, group))
            if key[1] < 0:
                grouped.add(key[0])
    notes += _ways_apart({key: len(tests) for key, tests in base.items()}, levels)
    return levels


def _ways_apart(counts: Mapping[Tuple[str, int], int], levels: Reference) -> List[str]:
    """Report tests across leaves that are all slower, or faster, than in a leaf.

    Single rails are reported only if all rails together do not differ.
    """
    notes: List[str] = []
    for rail in sorted(rail for kind, rail in levels if kind == ACROSS and (INSIDE, rail) in levels):
        share = levels[ACROSS, rail] / levels[INSIDE, rail]
        count = (counts[ACROSS, rail], counts[INSIDE, rail])
        near = GROUP[1] <= share <= 1 / GROUP[1] or not GROUP[0] <= share <= 1 / GROUP[0]  # or heaps.py reports it
        if near or min(count) < ENOUGH:
            continue
        where = ", rail %d" % rail if rail >= 0 else ""
        note = "the level across leaves%s is %.2f of that in a leaf (%d and %d tests): reported, not judged"
        notes.append(note % (where, share, *count))
        if rail < 0:
            break
    return notes


def _level(tests: Tests) -> Tuple[float, str]:
    """Return the median, or that of a large lower group, and a description of the group.

    It is not a group if a few nodes explain it, which are in all of its tests and in no other: those are slow.
    """
    tests = _without_odd(tests)
    values = [value for value, _ in tests]
    middle = upper(values)
    low = [(value, nodes) for value, nodes in tests if GROUP[0] * middle <= value < GROUP[1] * middle]
    if len(low) < max(2, GROUP_SHARE * len(values)):
        return middle, ""
    quick = {node for value, nodes in tests if value >= GROUP[1] * middle for node in nodes}
    slow = {node for _, nodes in low for node in nodes} - quick
    level = median([value for value, _ in low])
    within = sum(slow.issuperset(nodes) for _, nodes in low)
    few = len(slow) < max(GROUP_NODES, GROUP_SHARE * len(slow | quick))
    few |= within < GROUP_TESTS and level < FALLEN * middle
    if few and all(slow.intersection(nodes) for _, nodes in low):
        return middle, ""
    return level, "%d of %d tests at %.2f" % (len(low), len(values), level / middle)


def _without_odd(tests: Tests) -> Tests:
    """Return tests without those of a node that is in all of the fastest: its clock is wrong, and no other is slow.

    A node cannot make others faster. In a small fleet its tests would become the level, and all others fail.
    """
    least = FALLEN * upper([value for value, _ in tests])
    fast = [set(nodes) for value, nodes in tests if value >= least]
    shared = set.intersection(*fast)
    rest = [(value, nodes) for value, nodes in tests if not shared.intersection(nodes)]
    return rest if len(shared) == 1 and min(len(fast), len(rest)) >= ODD_TESTS else tests


def _judge(
    fleet: Fleet,
    rules: Rules,
    nodes: Nodes,
    result: Result,
    reference: Reference,
    limits: Mapping[Tuple[str, bool], float],
) -> Judged:
    at = tuple(node for node in result.at if node in nodes)
    if result.outcome in AT_ONCE:
        return Judged(nodes, HARD, None, frozenset(), result.outcome, result.reported, at)
    if len(nodes) == 1 and not rules.bus and result.outcome == MEASURED and nodes[0] in result.reported:
        return Judged(nodes, PASS, None, frozenset(), result.outcome, result.reported, at)
    speed = _speed(result, nodes)
    silent = rules.rails and len(nodes) > 1 and not result.rails
    whole = speed is not None and (speed == 0 or not (silent or None in result.rails))
    if not whole or speed is None:
        return Judged(nodes, NOTHING, None, frozenset(), result.outcome, result.reported, at)
    kind = fleet.kind_of(nodes)
    shares = {-1: _share(speed, reference.get((kind, -1)))}
    for rail, value in enumerate(result.rails if speed > 0 else ()):
        shares[rail] = _share(value or 0.0, reference.get((kind, rail)))
    floor = rules.node_floor if len(nodes) == 1 else rules.pair_floor
    at_fault = {rail: limits.get((kind, rail >= 0), rules.accuses) for rail in shares}
    below, least = {rail for rail, share in shares.items() if share < at_fault[rail]}, min(at_fault.values())
    slow = frozenset(below - {-1})
    lowest = min(shares.values())
    if shares[-1] > TOO_FAST:
        return Judged(nodes, NOTHING, None, frozenset(), result.outcome, result.reported, at)
    if speed <= 0 or below or (floor is not None and speed < floor):
        grade = FAIL
    else:
        grade = PASS if lowest >= rules.clears else UNCLEAR
    rails = slow if len(slow) < len(result.rails) else frozenset()
    every = tuple(shares[rail] for rail in sorted(shares))
    return Judged(nodes, grade, lowest, rails, result.outcome, result.reported, at, every, 0, speed, least)


def _share(value: float, reference: Optional[float]) -> float:
    return value / reference if reference else (1.0 if value > 0 else 0.0)


def fails_alone(tests: Sequence[Judged], proofs: int) -> bool:
    """Return whether a node alone fails beyond accident: twice without an end, or in as many tests as `proofs`."""
    failed = [each for each in tests if each.grade == FAIL]
    without_end = sum(not each.busbw for each in failed)
    return all(each.grade != PASS for each in tests) and (len(failed) >= proofs or without_end > 1)


def how_failed(tests: Iterable[Judged]) -> str:
    """Describe how tests failed: by their share of their peers' level, or by outcome."""
    failed = [each for each in tests if each.grade in (FAIL, HARD)]
    dead = sorted({each.outcome for each in failed if not each.value})
    slow = sorted(each.value for each in failed if each.value)
    spread = list(dict.fromkeys("%.2f" % each for each in slow))
    parts = ["%s of the median" % " to ".join(dict.fromkeys((spread[0], spread[-1])))] if slow else []
    return ", ".join([*parts, *dead])
