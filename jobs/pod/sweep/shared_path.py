"""Whether bad nodes, or a path that several nodes share, explain better what failed among all pairs.

Behind an uplink that no label names and of which some paths are bad, a node fails with most of its partners now and
then. The pairs of its neighbours fail then, too, and none between them: a group explains more than a bad node does. Two
explanations are compared by how likely they make the tests, with rates that are not known (Bayes factor, Kass and
Raftery 1995: from 100 on the evidence is decisive).
"""

from __future__ import annotations

from collections import Counter
from math import lgamma, log
from typing import Dict, FrozenSet, List, Mapping, Sequence, Set, Tuple

DECISIVE = log(100)
ACCIDENT = (1.0, 99.0)  # Beta prior of the share of pairs that fail for no node: 1 % (docs/fleet.md)
ANY = (1.0, 1.0)  # of a rate of which nothing is known
LEAST = 3  # nodes of a group: two that fail are two bad nodes
MOST = 32  # nodes that a group is looked for among
LARGE = 64  # nodes; in larger fleets only what failing pairs connect is compared

Failed = Mapping[Tuple[str, ...], bool]
Edges = Mapping[str, Mapping[str, bool]]
Count = Tuple[int, int]  # failures, tests


def contested(named: Sequence[str], size: int, failed: Failed) -> Tuple[Set[str], Set[str]]:
    """Return which of the named nodes a shared path explains nearly as well, and the nodes that would share it.

    `failed` says of each pair that was measured whether it fails; `size`: nodes of the fleet. The node that is least
    sure goes first, as long as the tests are not 100 times likelier with it than without.
    """
    parts = _parts(named, failed) if size > LARGE else [{node for pair in failed for node in pair}]
    found = [_contested(part.intersection(named), size, _near(part, failed)) for part in parts]
    return set().union(*(each[0] for each in found)), set().union(*(each[1] for each in found))


def _parts(named: Sequence[str], failed: Failed) -> List[Set[str]]:
    """Return the nodes that failing pairs connect with each of the named ones."""
    partners: Dict[str, List[str]] = {}
    for (one, other), bad in failed.items():
        if bad:
            partners.setdefault(one, []).append(other)
            partners.setdefault(other, []).append(one)
    parts: List[Set[str]] = []
    for first in named:
        if not any(first in part for part in parts):
            part, queue = {first}, [first]
            for node in queue:
                new = [n for n in partners.get(node, ()) if n not in part]
                part.update(new)
                queue += new
            parts.append(part)
    return parts


def _near(part: Set[str], failed: Failed) -> Failed:
    return {pair: bad for pair, bad in failed.items() if not part.isdisjoint(pair)}


def _contested(named: Set[str], size: int, failed: Failed) -> Tuple[Set[str], Set[str]]:
    left, shared = set(named), set()  # type: Set[str], Set[str]
    while left:
        with_it, _ = _best(left, frozenset(), size, failed)
        losses = [(*_without(node, left, size, failed), node) for node in sorted(left)]
        without, group, node = max(losses, key=lambda each: each[0])
        gain = with_it - without
        if gain >= DECISIVE:
            break
        left.discard(node)
        shared |= group
    return named - left, shared


def _without(node: str, named: Set[str], size: int, failed: Failed) -> Tuple[float, FrozenSet[str]]:
    """Return how likely the tests are where a node is not bad, and the group that does without it.

    The other named ones are bad still, or none of them is: all may be of one group.
    """
    others = [_best(bad, frozenset({node}), size, failed) for bad in (named - {node}, set())]
    return max(others, key=lambda each: each[0])


def _best(bad: Set[str], sound: FrozenSet[str], size: int, failed: Failed) -> Tuple[float, FrozenSet[str]]:
    """Return how likely the tests are where some nodes are bad and others are not, and the group that helps most.

    What fails among the other nodes is explained by more bad nodes, or by a group.
    """
    best = _with_group(bad, size, failed)
    more = set(bad)
    score = _of_nodes(more, size, failed)
    while True:
        often = Counter(n for pair, found in failed.items() if found and more.isdisjoint(pair) for n in pair)
        node = min((n for n in often if n not in sound), key=lambda n: (-often[n], n), default="")
        found = _of_nodes(more | {node}, size, failed)
        if not node or found <= score:
            break
        more, score = more | {node}, found
    return max(best, _with_group(more, size, failed), key=lambda each: each[0]) if more != bad else best


def _of_nodes(bad: Set[str], size: int, failed: Failed) -> float:
    counts = [[0, 0], [0, 0]]
    for pair, found in failed.items():
        count = counts[bad.isdisjoint(pair)]
        count[0] += found
        count[1] += 1
    return _beta(counts[0], ANY) + _beta(counts[1], ACCIDENT) - len(bad) * log(size)


def _with_group(bad: Set[str], size: int, failed: Failed) -> Tuple[float, FrozenSet[str]]:
    theirs = [found for pair, found in failed.items() if not bad.isdisjoint(pair)]
    score, group = _group({pair: found for pair, found in failed.items() if bad.isdisjoint(pair)}, size)
    return score + _beta((sum(theirs), len(theirs)), ANY) - len(bad) * log(size), group


def _group(failed: Failed, size: int) -> Tuple[float, FrozenSet[str]]:
    """Return the most likely group that a bad path leads to; none where accidents are likelier.

    Two of it pass with each other: where none does, nothing tells it from as many bad nodes.
    """
    edges: Dict[str, Dict[str, bool]] = {}
    for (one, other), found in failed.items():
        edges.setdefault(one, {})[other] = found
        edges.setdefault(other, {})[one] = found
    often = sorted(edges, key=lambda n: (-sum(edges[n].values()), n))
    often = [node for node in often if any(edges[node].values())][:MOST]
    total = (sum(failed.values()), len(failed))
    best = (_beta(total, ACCIDENT), frozenset())  # type: Tuple[float, FrozenSet[str]]
    for first in often[: MOST // 4]:
        group: Set[str] = set()
        across, node = (0, 0), first
        while node:
            across = _moved(across, node, group, edges)
            group.add(node)
            if len(group) >= LEAST and any(edges[n].get(other) is False for n in group for other in group):
                best = max(best, (_score(across, total, len(group), size), frozenset(group)), key=lambda each: each[0])
            node = _next(often, across, group, edges, total, size) if 2 * len(group) < size else ""
    return best


def _next(often: List[str], across: Count, group: Set[str], edges: Edges, total: Count, size: int) -> str:
    """Return the node that a group explains best with; the empty string where there is none."""
    count = len(group) + 1
    scores = [(_score(_moved(across, n, group, edges), total, count, size), n) for n in often if n not in group]
    return max(scores, default=(0.0, ""))[1]


def _moved(across: Count, node: str, group: Set[str], edges: Edges) -> Count:
    """Return the failures and tests across a group's border when a node joins it."""
    bad, tests = across
    for other, found in edges[node].items():
        sign = -1 if other in group else 1
        bad, tests = bad + sign * found, tests + sign
    return bad, tests


def _score(across: Count, total: Count, count: int, size: int) -> float:
    chosen = lgamma(size + 1) - lgamma(count + 1) - lgamma(size - count + 1) + log(size)  # log of the groups there are
    rest = (total[0] - across[0], total[1] - across[1])
    return _beta(across, ANY) + _beta(rest, ACCIDENT) - chosen


def _beta(count: Sequence[int], prior: Tuple[float, float]) -> float:
    """Return the log-likelihood of so many failures of so many tests at a rate that has a Beta prior."""
    (bad, tests), (one, other) = count, prior
    return _ln_beta(one + bad, other + tests - bad) - _ln_beta(one, other)


def _ln_beta(one: float, other: float) -> float:
    return lgamma(one) + lgamma(other) - lgamma(one + other)
