"""The rounds of a sweep: nodes alone, matchings inside and across leaves, then only what is ambiguous.

`next_round` is a pure function of what ran: a coordinator that is started again goes on with the same history.
"""

from __future__ import annotations

import random
from typing import Dict, List, Optional, Sequence, Set

from .judgement import FAIL, HARD, PASS, Facts, judge
from .model import Done, Fleet, Nodes, Round, Rules
from .state import REPEATS, State, constant, pair_of

SMALL = 32
"""Nodes up to which four matchings are run: a median of few pairs is poor, and a fault with some partners is met."""
UPLINK_PROBES = 3


def matchings_of(fleet: Fleet) -> int:
    """Return how many times every node is paired before anything is ambiguous."""
    return min(4 if len(fleet.nodes) <= SMALL else 2, max(0, len(fleet.nodes) - 1))


def next_round(fleet: Fleet, rules: Rules, history: Sequence[Done]) -> Optional[Round]:
    """Return the next round; None when there is nothing left to find out."""
    facts = judge(fleet, rules, matchings_of(fleet), history)
    return planned(fleet, rules, history, facts, None)


def planned(
    fleet: Fleet, rules: Rules, history: Sequence[Done], facts: Facts, state: Optional[State]
) -> Optional[Round]:
    """Return the next round for a history that has been judged."""
    number = 1 + max([done.round.number for done in history], default=0)
    at_once = facts.at_once or len(fleet.nodes) or 1
    ran: Dict[int, Set[Nodes]] = {}
    for done in history:
        if done.round.number not in facts.undone:
            ran.setdefault(done.round.stage, set()).update(done.round.tests)
    base = range(0 if rules.alone else 1, matchings_of(fleet) + 1)
    for stage in base:
        if stage == 1 and (again := _alone_again(facts)):
            return Round(number, 0, tuple(again[:at_once]))
        todo = [test for test in _base(fleet, rules, facts, stage) if test not in ran.get(stage, set())]
        if todo:
            return Round(number, stage, tuple(todo[:at_once]))
    if not matchings_of(fleet) and (again := _alone_again(facts)):
        return Round(number, 0, tuple(again[:at_once]))
    tests = _ambiguous(state or State(fleet, rules, facts))
    return Round(number, matchings_of(fleet) + 1, tuple(tests[:at_once])) if tests else None


def _alone_again(facts: Facts) -> List[Nodes]:
    """Return the nodes to test alone once more: one failure, nothing at all, or a value between."""
    grades: Dict[Nodes, List[str]] = {}
    for each in facts.judged:
        if len(each.nodes) == 1:
            grades.setdefault(each.nodes, []).append(each.grade)
    return [n for n, all_ in grades.items() if not {PASS, HARD} & set(all_) and len(all_) < 3 and all_.count(FAIL) < 2]


def _base(fleet: Fleet, rules: Rules, facts: Facts, stage: int) -> List[Nodes]:
    if stage == 0:
        return [(node,) for node in fleet.nodes]
    failed = [each.nodes[0] for each in facts.judged if len(each.nodes) == 1 and each.grade in (FAIL, HARD)]
    passed = {each.nodes[0] for each in facts.judged if len(each.nodes) == 1 and each.grade == PASS}
    out = {n for n in failed if n not in passed}
    out |= {each.nodes[0] for each in facts.judged if len(each.nodes) == 1 and each.grade == HARD}
    nodes = [node for node in fleet.nodes if node not in out]
    random.Random(rules.seed).shuffle(nodes)  # noqa: S311 -- a plan that can be repeated
    if len({fleet.leaf(node) for node in nodes}) < 2:
        return _circle(nodes, stage)
    return _inside(fleet, nodes, (stage + 1) // 2) if stage % 2 else _across(fleet, nodes, stage // 2)


def _circle(nodes: List[str], turn: int) -> List[Nodes]:
    """Return the turn-th perfect matching of the circle method: no pair comes twice in len - 1 turns."""
    if len(nodes) < 2:
        return []
    ring: List[Optional[str]] = [*nodes, *([None] if len(nodes) % 2 else [])]
    turn %= len(ring) - 1
    ring = [ring[0], *ring[1 + turn :], *ring[1 : 1 + turn]]
    half = len(ring) // 2
    return [pair_of(a, b) for a, b in zip(ring[:half], reversed(ring[half:])) if a and b]


def _by_leaf(fleet: Fleet, nodes: List[str]) -> Dict[str, List[str]]:
    leaves: Dict[str, List[str]] = {}
    for node in sorted(nodes, key=fleet.leaf):
        leaves.setdefault(fleet.leaf(node), []).append(node)
    return leaves


def _inside(fleet: Fleet, nodes: List[str], turn: int) -> List[Nodes]:
    """Pair nodes inside their leaves; the odd ones out with each other."""
    tests: List[Nodes] = []
    for mates in _by_leaf(fleet, nodes).values():
        tests += _circle(mates, turn)
    met = {node for test in tests for node in test}
    return tests + _circle([node for node in nodes if node not in met], turn)


def _across(fleet: Fleet, nodes: List[str], turn: int) -> List[Nodes]:
    """Pair the first half of the leaves with the second: across leaves wherever none has half of all nodes."""
    row = [node for mates in _by_leaf(fleet, nodes).values() for node in mates]
    half = len(row) // 2
    second = row[half : 2 * half]
    second = second[turn - 1 :] + second[: turn - 1]
    return [pair_of(a, b) for a, b in zip(row[:half], second)]


class _Draft:
    """A round in the making: nodes in one test at most, never a pair that ran unless it is to be repeated."""

    def __init__(self, state: State) -> None:
        self.state, self.busy, self.tests = state, set(), []  # type: State, Set[str], List[Nodes]
        self.by_leaf: Dict[str, List[str]] = {}
        for node in state.fleet.nodes:
            if state.trusted(node) and not state.against(node):
                self.by_leaf.setdefault(state.fleet.leaf(node), []).append(node)

    def add(self, one: str, other: Optional[str]) -> bool:
        if other is None or one in self.busy or other in self.busy:
            return False
        self.busy |= {one, other}
        self.tests.append(pair_of(one, other))
        return True

    def partner(self, node: str, leaves: List[str]) -> Optional[str]:
        """Return a free proven node that this one has not met, of the first leaf that has one."""
        met = self.state.met[node]
        for leaf in leaves:
            for other in self.by_leaf.get(leaf, ()):
                if other != node and other not in met and other not in self.busy:
                    return other
        return None

    def leaves(self, own: str, *, across: bool) -> List[str]:
        """Return the leaves to look for a partner in, best first; own first unless a partner across is wanted."""
        doubtful = self.state.hot | self.state.bad_leaves
        if own in doubtful and not across:
            return [own]
        others = [leaf for leaf in self.by_leaf if leaf != own and leaf not in doubtful]
        return [*others, own] if across else [own, *others]


def _ambiguous(state: State) -> List[Nodes]:
    draft = _Draft(state)
    fleet = state.fleet
    wanting = [node for node in fleet.nodes if state.wants(node)]
    for leaf in sorted(state.hot):
        ready = [n for n in wanting if fleet.leaf(n) == leaf and state.passed[n]][:UPLINK_PROBES]
        others = [each for each in draft.leaves(leaf, across=True) if each != leaf]
        for turn, node in enumerate(ready):
            draft.add(node, draft.partner(node, others[turn % len(others) :] + others if others else []))
    for node in wanting:
        leaf = fleet.leaf(node)
        if node in draft.busy or (leaf in state.hot and state.passed[node]):
            continue
        inside = any(fleet.leaf(p) == leaf for p in state.passed[node])
        draft.add(node, draft.partner(node, draft.leaves(leaf, across=inside and leaf not in state.bad_leaves)))
    _repeat(state, draft)
    for node in fleet.nodes:
        if node not in draft.busy and state.open_end(node) and all(_twice(state, node, p) for p in state.against(node)):
            draft.add(node, draft.partner(node, draft.leaves(fleet.leaf(node), across=False)))
    return draft.tests


def _twice(state: State, node: str, partner: str) -> bool:
    grades = [each.grade for each in state.of[pair_of(node, partner)]]
    return HARD in grades or constant(state.of[pair_of(node, partner)]) or len(grades) >= REPEATS


def _repeat(state: State, draft: _Draft) -> None:
    """Repeat failed pairs both of whose nodes are proven: flaky, or the path between them."""
    for pair in sorted({pair_of(n, p) for n in state.fleet.nodes if state.failed[n] for p in state.against(n)}):
        grades = [each.grade for each in state.of[pair]]
        if HARD in grades or constant(state.of[pair]) or len(grades) >= REPEATS:
            continue
        if all(state.passed[node] for node in pair):
            draft.add(*pair)
