"""Groups of nodes that pass with each other and fail with the others: a faulty link that no label shows.

Bad nodes fail with each other, too. Nodes that fail with most of a fleet and pass with each other are not bad: the
fault is in the link between them and the others. A cut of the fleet is accepted if it explains the tests decisively
better than bad nodes or bad pairs do (likelihood.py).
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from typing import Dict, FrozenSet, List, Mapping, Sequence, Set, Tuple

from .likelihood import ACCIDENT, DECISIVE, Count, at_unknown_rate, log_of_groups

Met = Mapping[str, Set[str]]

LEAST = 4  # failing tests across a cut: as many as of two bad paths between four nodes
WEIGHTS = (1, 3)  # passes that a failure outweighs: more than one if half of the paths across are bad
MOST = 4  # groups to search for: a fabric with more of them needs labels
TURNS = 20
STARTS, LARGE = 16, 1000  # random starts, in fleets of up to LARGE nodes: one disturbed test may mislead a single start


def groups_of(nodes: Sequence[str], passed: Met, failed: Met) -> List[FrozenSet[str]]:
    """Return the groups between which a fleet's failures lie, the largest first; [] without a clear cut.

    `passed` and `failed` list the partners of each node, without those that an element at fault explains.
    """
    left = [node for node in nodes if passed.get(node)]  # a node that never passes is in no group
    groups: List[FrozenSet[str]] = []
    while len(groups) < MOST:
        cut = _cut(left, passed, failed)
        if not cut:
            break
        together = next(
            (n for n, each in enumerate(groups) if not any(failed.get(node, set()) & each for node in cut)), None
        )
        if together is None:
            groups.append(cut)
        else:  # they may be one group
            groups[together] |= cut
        left = [node for node in left if node not in cut]
    return [frozenset(_sure(group, passed, failed)) for group in ([frozenset(left), *groups] if groups else [])]


def _sure(group: FrozenSet[str], passed: Met, failed: Met) -> List[str]:
    """Return the nodes that mostly pass inside a group; for the others the group is unknown."""
    return [n for n in group if len(passed.get(n, set()) & group) > len(failed.get(n, set()) & group)]


def _cut(nodes: Sequence[str], passed: Met, failed: Met) -> FrozenSet[str]:
    """Return the smaller side of a clear cut; empty without one."""
    fit = set(nodes)
    edges = {
        node: {**dict.fromkeys(passed.get(node, set()) & fit, 1), **dict.fromkeys(failed.get(node, set()) & fit, -1)}
        for node in nodes
    }
    failing = [node for node in nodes if -1 in edges[node].values()]
    if len(failing) <= LEAST or sum(list(edges[node].values()).count(-1) > 1 for node in failing) < 2:
        return frozenset()
    rng = random.Random(len(nodes))  # noqa: S311 -- a search that can be repeated
    starts = [_failing(edges, times) for times in (2, 3, 4)] + [_doubtful(edges)]
    starts += [_balanced(nodes, edges, rng) for _ in range(STARTS if len(nodes) <= LARGE else 1)]
    best: Tuple[float, List[str]] = (DECISIVE, [])
    weighted = [_weighted(nodes, edges, weight) for weight in WEIGHTS]
    for start, pulls in product(starts, weighted):
        side = _pruned(_settled(pulls, start), edges)
        if 2 * len(side) > len(nodes):
            side = _pruned(fit - side, edges)
        if len(side) > 1:
            best = max(best, (_gain(side, fit - side, edges), sorted(side)))
    return frozenset(best[1])


Edges = Mapping[str, Mapping[str, int]]


def _failing(edges: Edges, times: int) -> Set[str]:
    return {node for node, signs in edges.items() if sum(sign < 0 for sign in signs.values()) >= times}


def _doubtful(edges: Edges) -> Set[str]:
    """Return the nodes that fail at least as often as they pass, and with two partners."""
    counted = {node: Counter(signs.values()) for node, signs in edges.items()}
    return {node for node, each in counted.items() if each[-1] > 1 and each[-1] >= each[1]}


def _balanced(nodes: Sequence[str], edges: Edges, rng: random.Random) -> Set[str]:
    """Return one of two sides, built from random nodes: a pass joins the same side, a failure the other."""
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


def _weighted(nodes: Sequence[str], edges: Edges, weight: int) -> List[Tuple[str, List[Tuple[str, int]]]]:
    """Return for each node its partners and their weights for its own side; a failure counts `weight` passes."""
    return [(n, [(other, sign if sign > 0 else -weight) for other, sign in edges[n].items()]) for n in nodes]


def _settled(pulls: Sequence[Tuple[str, Sequence[Tuple[str, int]]]], start: Set[str]) -> Set[str]:
    """Move single nodes to the other side as long as fewer tests then contradict the cut."""
    side = {node: -1 if node in start else 1 for node, _ in pulls}
    for _ in range(TURNS):
        moved = 0
        for node, partners in pulls:
            against = sum([pull * side[other] for other, pull in partners])
            if against * side[node] < 0:
                side[node] = -side[node]
                moved += 1
        if not moved:
            break
    return {node for node, sign in side.items() if sign < 0}


def _pruned(side: Set[str], edges: Edges) -> Set[str]:
    """Remove nodes that pass with no other node of the side."""
    while True:
        linked = {node for node in side if any(sign > 0 and other in side for other, sign in edges[node].items())}
        if linked == side:
            return side
        side = linked


def _gain(side: Set[str], rest: Set[str], edges: Edges) -> float:
    """Return the gain of a cut over bad nodes of its smaller side, or bad pairs, as explanations; in nats."""
    across, in_side, in_rest = (_count(*each, edges) for each in ((side, rest), (side, side), (rest, rest)))
    if across[0] < max(LEAST, len(side)):
        return 0.0
    chosen = log_of_groups(len(side), len(side) + len(rest))
    inside = _sum(in_side, in_rest)
    by_cut = at_unknown_rate(across) + at_unknown_rate(inside, ACCIDENT) - chosen
    of_nodes = (across[0] + in_side[0], across[1] + 2 * in_side[1] - in_side[0])  # two bad ones pass: two passes
    by_nodes = at_unknown_rate(of_nodes) + at_unknown_rate(in_rest, ACCIDENT) - chosen
    return by_cut - max(by_nodes, at_unknown_rate(_sum(across, inside)))


def _sum(one: Count, other: Count) -> Count:
    return one[0] + other[0], one[1] + other[1]


def _count(side: Set[str], rest: Set[str], edges: Edges) -> Count:
    """Return the failures and tests between two sets, or inside one."""
    signs = [sign for node in side for other, sign in edges[node].items() if other in rest]
    twice = 2 if side is rest else 1
    return sum(sign < 0 for sign in signs) // twice, len(signs) // twice
