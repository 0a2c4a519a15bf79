"""Nodes that pass with each other and fail with the others: a link between two groups, which no label names.

A bad node fails with a bad one, too. Nodes that fail with most of a fleet and pass with each other are not bad: what is
between them and the others is. Failing pairs are cut: most of the tests across the cut fail, those inside pass.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Dict, FrozenSet, List, Mapping, Sequence, Set, Tuple

Met = Mapping[str, Set[str]]

CLEAN, HASHED, MANY = 0.25, 1.5, 20
"""Passes across a cut for each failure, at most: a side can be chosen so that it meets any few bad pairs. More where
many tests fail across: half of the paths of a hashed uplink may be fine."""
LEAST_ACROSS = 4  # failing tests across a cut: two bad paths between four nodes are that
INSIDE = 3  # passes inside a group for each failure there, and at least as many, or one less than it has nodes
MOST = 4  # groups that are looked for: a fabric with more of them needs labels
TURNS = 20
STARTS, LARGE = 16, 1000  # of the search, in fleets up to so many nodes: one disturbed test may mislead a start


def groups_of(nodes: Sequence[str], passed: Met, failed: Met) -> List[FrozenSet[str]]:
    """Return the groups that the failures of a fleet lie between, the largest first; [] where there is no clear cut.

    `passed` and `failed` tell of each node with whom it did; what an accused element explains is not among them.
    """
    left = [node for node in nodes if passed.get(node)]  # who passes with nobody is in no group
    found: List[FrozenSet[str]] = []
    while len(found) < MOST:
        cut = _cut(left, passed, failed)
        if not cut:
            break
        alike = next(
            (n for n, each in enumerate(found) if not any(failed.get(node, set()) & each for node in cut)), None
        )
        if alike is None:
            found.append(cut)
        else:  # not known to be two
            found[alike] |= cut
        left = [node for node in left if node not in cut]
    return [frozenset(_sure(group, passed, failed)) for group in ([frozenset(left), *found] if found else [])]


def _sure(group: FrozenSet[str], passed: Met, failed: Met) -> List[str]:
    """Return who passes inside a group more often than not: of the others it is not known where they belong."""
    return [n for n in group if len(passed.get(n, set()) & group) > len(failed.get(n, set()) & group)]


def _cut(nodes: Sequence[str], passed: Met, failed: Met) -> FrozenSet[str]:
    """Return the smaller side of a clear cut; empty where there is none."""
    fit = set(nodes)
    edges = {
        node: {**dict.fromkeys(passed.get(node, set()) & fit, 1), **dict.fromkeys(failed.get(node, set()) & fit, -1)}
        for node in nodes
    }
    failing = [node for node in nodes if -1 in edges[node].values()]
    if len(failing) <= LEAST_ACROSS or sum(list(edges[node].values()).count(-1) > 1 for node in failing) < 2:
        return frozenset()
    rng = random.Random(len(nodes))  # noqa: S311 -- a search that can be repeated
    starts = [_doubtful(edges), *(_balanced(nodes, edges, rng) for _ in range(STARTS if len(nodes) <= LARGE else 1))]
    best: Tuple[int, List[str]] = (0, [])
    for start in starts:
        side = _pruned(_settled(nodes, edges, start), edges)
        if 2 * len(side) > len(nodes):
            side = _pruned(fit - side, edges)
        rest = fit - side
        if side and _is_clear(side, rest, edges):
            speaks = _count(side, side, edges)[-1] + _count(rest, rest, edges)[-1] + 2 * _count(side, rest, edges)[1]
            if not best[1] or speaks < best[0]:
                best = (speaks, sorted(side))
    return frozenset(best[1])


Edges = Mapping[str, Mapping[str, int]]


def _doubtful(edges: Edges) -> Set[str]:
    """Return who fails at least as often as it passes, and with two partners."""
    counted = {node: Counter(found.values()) for node, found in edges.items()}
    return {node for node, each in counted.items() if each[-1] > 1 and each[-1] >= each[1]}


def _balanced(nodes: Sequence[str], edges: Edges, rng: random.Random) -> Set[str]:
    """Return one of two sides, drawn from some node on: a pass is the same side, a failure the other."""
    side: Dict[str, int] = {}
    for first in rng.sample(nodes, len(nodes)):
        if first in side:
            continue
        side[first] = 1
        queue = [first]
        for node in queue:
            for other in rng.sample(sorted(edges[node]), len(edges[node])):
                if other not in side:
                    side[other] = edges[node][other] * side[node]
                    queue.append(other)
    return {node for node in nodes if side[node] < 0}


def _settled(nodes: Sequence[str], edges: Edges, start: Set[str]) -> Set[str]:
    """Move single nodes to the other side for as long as fewer tests then speak against the cut."""
    side = {node: -1 if node in start else 1 for node in nodes}
    for _ in range(TURNS):
        moved = 0
        for node in nodes:
            if sum(sign * side[other] for other, sign in edges[node].items()) * side[node] < 0:
                side[node] = -side[node]
                moved += 1
        if not moved:
            break
    return {node for node in nodes if side[node] < 0}


def _pruned(side: Set[str], edges: Edges) -> Set[str]:
    """Leave out who does not pass with another of the side."""
    while True:
        kept = {node for node in side if any(sign > 0 and other in side for other, sign in edges[node].items())}
        if kept == side:
            return side
        side = kept


def _is_clear(side: Set[str], rest: Set[str], edges: Edges) -> bool:
    inside = _count(side, side, edges)
    across = _count(side, rest, edges)
    other = _count(rest, rest, edges)
    if across[-1] < max(LEAST_ACROSS, len(side)) or across[1] > (HASHED if across[-1] >= MANY else CLEAN) * across[-1]:
        return False
    if len(side) <= INSIDE and across[1]:
        return False  # two nodes that fail with most partners may pass with each other
    for found, size in ((inside, len(side)), (other, len(rest))):
        passes = found[1] // 2
        if passes < min(INSIDE, size - 1) or found[1] < INSIDE * found[-1]:
            return False
    return sum(-1 in edges[node].values() for node in side) > 1


def _count(side: Set[str], rest: Set[str], edges: Edges) -> Dict[int, int]:
    counted: Counter[int] = Counter(sign for node in side for other, sign in edges[node].items() if other in rest)
    return counted
