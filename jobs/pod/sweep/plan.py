"""The rounds of a sweep: nodes alone, matchings inside and across leaves, then repeats of ambiguous tests.

`next_round` is a pure function of the history: a restarted coordinator continues from it, over the current nodes.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import AbstractSet, Dict, List, Optional, Sequence, Set

from .evidence import SILENT, pair_of
from .judgement import FAIL, HARD, PASS, Facts, Judged, fails_alone, judge, matchings_of
from .model import Done, Fleet, Nodes, Round, Rules
from .state import REPEATS, State, constant

UPLINK_PROBES = 3
REPEATED_SHARE = 4
DECISIVE_SHARE = 16
MOST_EXTRA = 6  # tests of each node after the pairings, on average: more would not decide open questions
OF_NO_LEVEL = 6  # rounds after the pairings if tests have no common level: a test may fail by one and pass by another
ALONE = 3  # most single-node tests of a node that has not failed
FEWEST = 8
"""A round that repeats failed pairs has at most one test for every 4 nodes, or for every 16 if its repeats may decide,
and at least 8. A disturbance by many simultaneous tests must not be confirmed by as many."""


def next_round(
    fleet: Fleet, rules: Rules, history: Sequence[Done], left_s: Optional[float] = None, round_s: float = 40.0
) -> Optional[Round]:
    """Return the next round; None if nothing is open, or no time is left.

    `left_s`: remaining seconds of the budget, None without one. A round is expected to take as long as the longest so
    far, `round_s` before any. `decode` lists what the budget leaves open: the verdict is then not a go.
    """
    if left_s is not None:
        longest = max([done.seconds for done in history if 0 < done.seconds < float("inf")], default=round_s)
        if not left_s >= longest:  # NaN after a clock jump
            return None
    facts = judge(fleet, rules, history)
    return planned(fleet, rules, facts, None)


def planned(fleet: Fleet, rules: Rules, facts: Facts, state: Optional[State]) -> Optional[Round]:
    """Return the next round for a judged history."""
    number = 1 + max([done.round.number for done in facts.history], default=0)
    at_once = facts.at_once or len(fleet.nodes) or 1
    order = {node: place for place, node in enumerate(fleet.nodes)}
    matchings = matchings_of(fleet, rules)
    for stage in range(0 if rules.alone else 1, matchings + 1):
        if stage == 1 and (again := _alone_again(fleet, rules, facts)):
            return Round(number, 0, tuple(again[:at_once]))
        if todo := _base(fleet, rules, facts, stage):
            todo.sort(key=lambda test: min(order[node] for node in test))
            return Round(number, stage, tuple(todo[:at_once]))
    if not matchings and (again := _alone_again(fleet, rules, facts)):
        return Round(number, 0, tuple(again[:at_once]))
    extra = [done for done in facts.history if done.round.stage > matchings]
    if (facts.undecided or facts.apart) and len(extra) >= OF_NO_LEVEL:
        return None
    if sum(len(test) for done in extra for test in done.round.tests) > MOST_EXTRA * max(FEWEST, len(fleet.nodes)):
        return None
    tests = _disjoint(facts.again, fleet) or _ambiguous(state or State(fleet, rules, facts))
    tests = (_controls(fleet, facts, tests)[: at_once // 2] + tests)[:at_once]
    return Round(number, matchings + 1, tuple(tests)) if tests else None


def _disjoint(tests: Sequence[Nodes], fleet: Fleet) -> List[Nodes]:
    """Return the tests that can run at the same time: the first of each node, of nodes in the fleet."""
    busy = set(fleet.gone)
    return [test for test in tests if busy.isdisjoint(test) and not busy.update(test)]  # type: ignore[func-returns-value]


def _controls(fleet: Fleet, facts: Facts, tests: Sequence[Nodes]) -> List[Nodes]:
    """Return passed pairs to test again as controls, one of each kind of the tests, the least tested first.

    Two of a kind if the tests are few for the fleet, because a single disturbed control would cost a round.
    """
    busy = {node for test in tests for node in test}.union(fleet.gone)
    ran = Counter(test for done in facts.history for test in done.round.tests)
    bad = {each.nodes for each in facts.judged if each.grade != PASS}
    pairs = {each.nodes for each in facts.judged if len(each.nodes) > 1}
    passed = sorted(pairs - bad, key=lambda test: (ran[test], test))
    controls: List[Nodes] = []
    for kind in sorted({fleet.kind_of(test) for test in tests}):
        for _ in range(2 if DECISIVE_SHARE * len(tests) <= len(fleet.nodes) else 1):
            control = next((test for test in passed if fleet.kind_of(test) == kind and busy.isdisjoint(test)), None)
            if control:
                controls.append(control)
                busy.update(control)
    return controls


def _alone_again(fleet: Fleet, rules: Rules, facts: Facts) -> List[Nodes]:
    """Return the nodes to test alone once more: too few failures, no result, an unclear value, or one too fast."""
    tests: Dict[Nodes, List[Judged]] = {}
    for each in facts.judged:
        if len(each.nodes) == 1 and each.nodes[0] not in fleet.gone:
            tests.setdefault(each.nodes, []).append(each)
    again = [node for node in facts.again if len(tests.get(node, ())) in range(1, ALONE)]
    for node, ran in tests.items():
        failures = [each.grade for each in ran].count(FAIL)
        decided = any(each.grade in (PASS, HARD) for each in ran) or fails_alone(ran, rules.proofs)
        if not decided and len(ran) < (rules.proofs + 1 if failures else ALONE):
            again.append(node)
    return list(dict.fromkeys(again))


def _base(fleet: Fleet, rules: Rules, facts: Facts, stage: int) -> List[Nodes]:
    """Return the rest of a stage, in which every available sound node has one test."""
    ran: Set[str] = set()
    met: Set[Nodes] = set()
    for done in facts.history:
        if done.round.number not in facts.undone:
            met.update(done.round.tests)
            if done.round.stage == stage:
                ran.update(node for test in done.round.tests for node in test)
    left = [node for node in fleet.nodes if node not in fleet.gone]
    if stage == 0:
        return [(node,) for node in left if node not in ran]
    failed = {each.nodes[0] for each in facts.judged if len(each.nodes) == 1 and each.grade in (FAIL, HARD)}
    passed = {each.nodes[0] for each in facts.judged if len(each.nodes) == 1 and each.grade == PASS}
    out = failed - passed
    out |= {each.nodes[0] for each in facts.judged if len(each.nodes) == 1 and each.grade == HARD}
    nodes = [node for node in left if node not in out]
    random.Random(rules.seed).shuffle(nodes)  # noqa: S311 -- a plan that can be repeated
    everyone = matchings_of(fleet, rules) >= len(nodes) - 1  # each node meets all others, whatever their leaves
    if everyone or len({fleet.leaf(node) for node in nodes}) < 2:
        whole = _circle(nodes, stage)
    else:
        whole = _within_leaves(fleet, nodes, (stage + 1) // 2) if stage % 2 else _across(fleet, nodes, stage // 2)
    tests = [test for test in whole if test not in met and not ran.intersection(test)]
    taken = ran.union(*tests)
    return tests + _greedy([node for node in nodes if node not in taken], met)


def _greedy(nodes: List[str], met: Set[Nodes]) -> List[Nodes]:
    """Pair nodes that the matching left over because of changes to the fleet, each with the first it has not met."""
    tests: List[Nodes] = []
    while nodes:
        one = nodes.pop(0)
        other = next((each for each in nodes if pair_of(one, each) not in met), None)
        if other is not None:
            nodes.remove(other)
            tests.append(pair_of(one, other))
    return tests


def _circle(nodes: List[str], turn: int) -> List[Nodes]:
    """Return the turn-th perfect matching of the circle method: no pair repeats within len - 1 turns."""
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


def _within_leaves(fleet: Fleet, nodes: List[str], turn: int) -> List[Nodes]:
    """Pair nodes inside their leaves; the odd ones out with each other."""
    tests: List[Nodes] = []
    for mates in _by_leaf(fleet, nodes).values():
        tests += _circle(mates, turn)
    met = {node for test in tests for node in test}
    return tests + _circle([node for node in nodes if node not in met], turn)


def _across(fleet: Fleet, nodes: List[str], turn: int) -> List[Nodes]:
    """Pair the first half of the leaves with the second, each turn with another leaf of it."""
    leaves = _by_leaf(fleet, nodes)
    row = [node for mates in leaves.values() for node in mates]
    half = len(row) // 2
    by = (turn - 1) * (1 + (len(row) // len(leaves) if len(leaves) > 3 else 0)) % max(1, half)
    second = row[half : 2 * half]
    return [pair_of(a, b) for a, b in zip(row[:half], second[by:] + second[:by])]


class _Draft:
    """A round in the making: each node in at most one test, and no pair that ran, except for repeats."""

    def __init__(self, state: State) -> None:
        self.state, self.busy, self.tests = state, set(), []  # type: State, Set[str], List[Nodes]
        self.by_leaf: Dict[str, List[str]] = {}
        self.failing: Dict[str, List[str]] = {}  # nodes with more passes than failures; used if no other node is left
        for node in state.fleet.nodes:
            if node not in state.fleet.gone and state.trusted(node):
                nodes_of = self.failing if state.against(node) else self.by_leaf
                nodes_of.setdefault(state.fleet.leaf(node), []).append(node)

    def add(self, one: str, other: Optional[str]) -> bool:
        if other is None or one in self.busy or other in self.busy:
            return False
        self.busy |= {one, other}
        self.tests.append(pair_of(one, other))
        return True

    def partner(
        self, node: str, leaves: List[str], first: AbstractSet[str] = frozenset(), last: AbstractSet[str] = frozenset()
    ) -> Optional[str]:
        """Return a free proven node that this one has not met, from the first leaf that has one.

        Across all leaves, nodes in `first` are preferred, those in `last` are used only if no other exists. If there is
        none, return a partner without any measurement, until that pair was tried often enough.
        """
        met = self.state.met[node]
        mates = [other for leaf in leaves for other in self.by_leaf.get(leaf, ())]
        mates = sorted(mates, key=lambda n: (n not in first, n in last)) if first or last else mates
        if self.state.against(node):
            mates += [other for leaf in leaves for other in self.failing.get(leaf, ())]
        for other in mates:
            if other != node and other not in met and other not in self.busy and self.informs(node, other):
                return other
        blank = {p for p in self.state.blank(node) - self.busy if len(self.state.of[pair_of(node, p)]) < SILENT}
        return next((p for leaf in leaves if blank for p in self.by_leaf.get(leaf, ()) if p in blank), None)

    def informs(self, node: str, other: str) -> bool:
        """Return whether a node is in this one's group.

        For a node without a group, return whether it has met the other's group least often.
        """
        groups = self.state.groups
        if not groups or node in groups:
            return not self.state.between((node, other))
        met: Counter[int] = Counter(groups[n] for n in self.state.met[node] if n in groups)
        return other in groups and met[groups[other]] == min(met[number] for number in set(groups.values()))

    def leaves(self, own: str, *, across: bool) -> List[str]:
        """Return the leaves to search for a partner, best first: its own first, unless slow or `across` is set."""
        doubtful = self.state.hot | self.state.bad_leaves
        if own in doubtful and not across:
            return [own]
        known = dict.fromkeys([*self.by_leaf, *self.failing])
        elsewhere = [leaf for leaf in known if leaf != own and leaf not in doubtful]
        return [*elsewhere, own] if across or own in self.state.slow_leaves else [own, *elsewhere]


def _ambiguous(state: State) -> List[Nodes]:
    """Return the tests that decide open questions: uplink probes first, repeats, then nodes that lack passes."""
    draft = _Draft(state)
    fleet = state.fleet
    wanting = [node for node in fleet.nodes if state.wants(node)]
    for leaf in sorted(state.hot):
        ready = [n for n in wanting if fleet.leaf(n) == leaf and state.passed[n]][:UPLINK_PROBES]
        met = Counter(fleet.leaf(n) for pair in state.of if any(fleet.leaf(n) == leaf for n in pair) for n in pair)
        leaves = sorted((each for each in draft.leaves(leaf, across=True) if each != leaf), key=met.__getitem__)
        for turn, node in enumerate(ready):
            draft.add(node, draft.partner(node, leaves[turn % len(leaves) :] + leaves if leaves else []))
        # With an odd number, one node must stay free for the next round, which tests them with each other.
        spare = [n for n in wanting if fleet.leaf(n) == leaf and n not in draft.busy and state.passed[n]]
        if spare and (len(spare) + len(ready)) % 2:
            draft.add(spare[0], draft.partner(spare[0], [leaf]))
    for node, group in sorted(state.held.items()):
        draft.add(node, next(iter(sorted(group - draft.busy)), None))
    open_ = [node for node in fleet.nodes if state.open_end(node)]
    for node in open_:
        bad, good = len(state.against(node)), len(state.passed[node])
        once = [p for p in state.against(node) if len(state.of[pair_of(node, p)]) < 2 and state.passed[p]]
        if bad > 2 or (bad > 1 and good < state.rules.proofs and not (good and once)):  # two may be accidents
            draft.add(node, draft.partner(node, draft.leaves(fleet.leaf(node), across=False)))
    for pair in state.unmeasured():
        if len(state.of[pair]) < SILENT and not set(pair) & set(fleet.gone) and all(map(state.trusted, pair)):
            draft.add(*pair)
    most = _repeat(state, draft)
    lacking = {node for node in wanting if fleet.leaf(node) not in state.hot}
    across = {node for node in wanting if _to_go_across(state, node)}
    for node in wanting:
        leaf = fleet.leaf(node)
        if node in draft.busy or (leaf in state.hot and state.passed[node]):
            continue
        served = {n for n in lacking if fleet.leaf(n) != leaf or not across & {n, node}}
        draft.add(node, draft.partner(node, draft.leaves(leaf, across=node in across), served, lacking - served))
    for node in open_:
        if node not in draft.busy and all(_settled(state, node, p) for p in state.against(node)):
            draft.add(node, draft.partner(node, draft.leaves(fleet.leaf(node), across=False)))
    return draft.tests[:most]


def _to_go_across(state: State, node: str) -> bool:
    """Return whether a node that lacks a pass has one inside its leaf already, or cannot get one there."""
    leaf = state.fleet.leaf(node)
    if leaf in state.slow_leaves:
        return True
    return leaf not in state.bad_leaves and any(state.fleet.leaf(other) == leaf for other in state.passed[node])


def _settled(state: State, node: str, partner: str) -> bool:
    """Return whether a failed pair needs no further repeat."""
    tests = state.of[pair_of(node, partner)]
    grades = [each.grade for each in tests]
    return HARD in grades or constant(tests) or len(grades) >= REPEATS or bool({node, partner} & set(state.fleet.gone))


def _few_below(state: State) -> List[Nodes]:
    """Return a few disjoint pairs below the floor to repeat, for a fleet without a passed pair."""
    few: List[Nodes] = []
    for pair in state.below_floor():
        if len(few) < FEWEST and not any(set(pair) & set(other) for other in few):
            few.append(pair)
    return [pair for pair in few if not _settled(state, *pair)]


def _repeat(state: State, draft: _Draft) -> int:
    """Repeat failed and unclear pairs of two proven nodes, which are flaky, or have a faulty path between them.

    Returns the limit of tests for the round.
    """
    size = len(state.fleet.nodes)
    most = size
    pairs = {pair_of(n, p) for n in state.fleet.nodes if state.failed[n] for p in state.against(n)}.union(
        state.unclear()
    )
    open_ = [pair for pair in pairs if not _settled(state, *pair) and all(state.passed[node] for node in pair)]
    if not any(state.passed.values()):
        open_ = _few_below(state)
    for pair in sorted(open_, key=lambda each: (len(state.of[each]), each)):
        share = DECISIVE_SHARE if len(state.of[pair]) > 1 else REPEATED_SHARE
        allowed = max(FEWEST, size // share)
        if len(draft.tests) < allowed and draft.add(*pair):
            most = min(most, allowed)
    return most
