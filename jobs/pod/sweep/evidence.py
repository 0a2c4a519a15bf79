"""Passes and failures of each pair, and their explanations: the tallies of judged tests."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Dict, FrozenSet, List, Set, Tuple

from .judgement import FAIL, HARD, NOTHING, PASS, Facts, Judged, matchings_of
from .model import Finding, Fleet, Nodes, Rules

SILENT = 3  # tests without a report before a node is given up; partners, or tests of a pair, that measured nothing


class Evidence:
    """All tests by element; the modules that find faults fill `findings` and other explanations."""

    def __init__(self, fleet: Fleet, rules: Rules, facts: Facts) -> None:
        self.fleet, self.rules, self.matchings = fleet, rules, matchings_of(fleet, rules)
        self.passed: Dict[str, Set[str]] = defaultdict(set)
        self.failed: Dict[str, Set[str]] = defaultdict(set)
        self.met: Dict[str, Set[str]] = defaultdict(set)
        self.measured: Dict[str, Set[str]] = defaultdict(set)
        self.silent: Counter = Counter()  # type: ignore[type-arg]
        self.empty: Counter = Counter()  # type: ignore[type-arg]
        self.tests: Counter = Counter()  # type: ignore[type-arg]
        self.of: Dict[Nodes, List[Judged]] = defaultdict(list)
        self.findings: Dict[Tuple[str, Nodes], Finding] = {}
        self.hot: Set[str] = set()
        self.bad_leaves: Set[str] = set()
        self.groups: Dict[str, int] = {}
        self.held: Dict[str, Set[str]] = {}
        self.slow: FrozenSet[str] = frozenset()
        self.slow_leaves: FrozenSet[str] = frozenset()
        for each in facts.judged:
            self._take(each)
        self.flaky = sorted(p for p in self.of if self._is_flaky(p))
        for pair, tests in self.of.items():
            if len(pair) > 1:
                self._relate(pair, tests)

    def _take(self, each: Judged) -> None:
        self.of[each.nodes].append(each)
        for node in each.nodes:
            self.tests[node] += 1
            self.met[node] |= set(each.nodes) - {node}
            if each.grade != NOTHING:
                self.measured[node] |= set(each.nodes) - {node}
                continue
            self.empty[node] += 1
            if node not in each.reported:
                self.silent[node] += 1

    def _is_flaky(self, pair: Nodes) -> bool:
        grades = {each.grade for each in self.of[pair]}
        return FAIL in grades and PASS in grades and HARD not in grades

    def _relate(self, pair: Nodes, tests: List[Judged]) -> None:
        grades = {each.grade for each in tests}
        target = self.failed if HARD in grades or (FAIL in grades and PASS not in grades) else self.passed
        if target is self.passed and PASS not in grades:
            return
        target[pair[0]].add(pair[1])
        target[pair[1]].add(pair[0])

    def at_fault(self, node: str) -> bool:
        """Return whether a node (or a rail of it) is at fault."""
        return ("node", (node,)) in self.findings

    def explained(self, pair: Nodes) -> bool:
        """Return whether a node at fault, or an uplink at fault or in doubt, may explain a pair's failure."""
        for node in pair:
            if node in self.held or node in self.slow or self.at_fault(node):
                return True
        return self.between(pair) or self.behind_uplink(pair) or self.inside_slow(pair)

    def behind_uplink(self, pair: Nodes) -> bool:
        """Return whether a pair uses an uplink at fault or in doubt."""
        if not (self.hot or self.bad_leaves) or not self.fleet.crosses(pair):
            return False
        return any(self.fleet.leaf(node) in self.hot or self.fleet.leaf(node) in self.bad_leaves for node in pair)

    def inside_slow(self, pair: Nodes) -> bool:
        """Return whether a pair is inside a leaf in which nearly all pairs are slow."""
        return bool(self.slow_leaves) and self.fleet.leaf(pair[0]) in self.slow_leaves and not self.fleet.crosses(pair)

    def between(self, pair: Nodes) -> bool:
        """Return whether a pair's nodes are in two groups that fail with each other."""
        return bool(self.groups) and len({self.groups[node] for node in pair if node in self.groups}) > 1

    def against(self, node: str) -> Set[str]:
        """Return the partners of a node's failures that have no other explanation."""
        return {p for p in self.failed[node] if not self.explained(pair_of(node, p))}

    def trusted(self, node: str) -> bool:
        """Return whether a node can prove others: it passed, with at least as many partners as it failed with."""
        passes = len(self.passed[node])
        return bool(passes) and not self.at_fault(node) and passes >= len(self.against(node))

    def can_answer(self, node: str) -> bool:
        """Return whether a node is in the fleet and reports."""
        return node not in self.fleet.gone and self.silent[node] < SILENT


def pair_of(one: str, other: str) -> Nodes:
    """Return a pair's nodes in the order of tests."""
    return (one, other) if one < other else (other, one)
