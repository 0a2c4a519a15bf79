"""Comparison of two explanations for failures among all pairs: bad nodes, or a path that several nodes share.

Behind an unlabelled uplink with some bad paths, a node fails with most of its partners now and then. The pairs of its
neighbours then fail, too, and none between them: a group explains more than a bad node does. The explanations are
compared by the likelihood of the tests, with unknown rates (Bayes factor, Kass and Raftery 1995: from 100 on the
evidence is decisive). One fault slows all its pairs equally. So each speed of failing pairs has a cost, once for each
element that explains them, and for each unexplained pair (minimum description length, Rissanen 1978).
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from math import lgamma, log
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

DECISIVE = log(100)
ACCIDENT = (1.0, 99.0)  # Beta prior of the share of pairs that fail without a fault: 1 % (docs/fleet.md)
ANY = (1.0, 1.0)  # of a rate without prior knowledge
LEAST = 3  # nodes of a group: two that fail are two bad nodes
MOST = 32  # nodes among which a group is searched: those in the most failed pairs
LARGE = 64  # nodes; larger fleets are compared only within sets of nodes that failing pairs connect
SPREAD = 0.1  # of the level: failures of one fault at 0.9 differ by that, at 5 sigma of 2 % of noise
SPEEDS = 9  # distinguishable speeds below 0.90

Shares = Mapping[Tuple[str, ...], Optional[float]]
Edges = Mapping[str, Mapping[str, Optional[float]]]
Count = Tuple[int, int]  # failures, tests


def contested(named: Sequence[str], size: int, shares: Shares) -> Tuple[Set[str], Set[str]]:
    """Return the named nodes that a shared path explains nearly as well, and the nodes that would share it.

    `shares` has each measured pair: its share of the level if it fails, None if it passes; `size`: number of nodes in
    the fleet. The least certain node is dropped first, until the tests are 100 times likelier with each node than
    without it.
    """
    parts = _parts(named, shares) if size > LARGE else [{node for pair in shares for node in pair}]
    contests = [_contested(part.intersection(named), size, _near(part, shares)) for part in parts]
    return set().union(*(each[0] for each in contests)), set().union(*(each[1] for each in contests))


def _parts(named: Sequence[str], shares: Shares) -> List[Set[str]]:
    """Return the sets of nodes that failing pairs connect with the named ones."""
    partners: Dict[str, List[str]] = {}
    for (one, other), share in shares.items():
        if share is not None:
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


def _near(part: Set[str], shares: Shares) -> Shares:
    return {pair: share for pair, share in shares.items() if not part.isdisjoint(pair)}


def _contested(named: Set[str], size: int, shares: Shares) -> Tuple[Set[str], Set[str]]:
    left, shared = set(named), set()  # type: Set[str], Set[str]
    while left:
        with_it, _ = _best(left, frozenset(), size, shares)
        losses = [(*_without(node, left, size, shares), node) for node in sorted(left)]
        without, group, node = max(losses, key=lambda each: each[0])
        gain = with_it - without
        if gain >= DECISIVE:
            break
        left.discard(node)
        shared |= group
    return named - left, shared


def _without(node: str, named: Set[str], size: int, shares: Shares) -> Tuple[float, FrozenSet[str]]:
    """Return the likelihood of the tests if a node is not bad, and the group that replaces it.

    Either the other named nodes remain bad, or none of them is: all may be in one group.
    """
    explanations = [_best(bad, frozenset({node}), size, shares) for bad in (named - {node}, set())]
    return max(explanations, key=lambda each: each[0])


def _best(bad: Set[str], sound: FrozenSet[str], size: int, shares: Shares) -> Tuple[float, FrozenSet[str]]:
    """Return the likelihood of the tests if some nodes are bad and others sound, and the best group.

    Failures among the other nodes are explained by more bad nodes, or by a group.
    """
    best = _with_group(bad, size, shares)
    more = set(bad)
    score = _of_nodes(more, size, shares)
    while True:
        failing = [pair for pair, share in shares.items() if share is not None and more.isdisjoint(pair)]
        often = Counter(n for pair in failing for n in pair if n not in sound)
        node = min(often, key=lambda n: (-often[n], n), default="")
        likelihood = _of_nodes(more | {node}, size, shares)
        if not node or likelihood <= score:
            break
        more, score = more | {node}, likelihood
    return max(best, _with_group(more, size, shares), key=lambda each: each[0]) if more != bad else best


def _of_nodes(bad: Set[str], size: int, shares: Shares) -> float:
    """Return the likelihood of the tests if some nodes are bad, and otherwise only single pairs."""
    rest = [share for pair, share in shares.items() if bad.isdisjoint(pair)]
    return _by_nodes(bad, size, shares) + _by_accident(_count(rest))


def _by_nodes(bad: Set[str], size: int, shares: Shares) -> float:
    """Return the likelihood of the tests of bad nodes."""
    left = {pair: share for pair, share in shares.items() if not bad.isdisjoint(pair)}
    score = _beta(_count(left.values()), ANY) - len(bad) * log(size)
    for node in sorted(bad):
        own = [pair for pair in left if node in pair]
        score -= _speeds(left.pop(pair) for pair in own)
    return score


def _with_group(bad: Set[str], size: int, shares: Shares) -> Tuple[float, FrozenSet[str]]:
    """Return the likelihood of the tests if some nodes are bad, and the most likely group of the others."""
    score, group = _group({pair: share for pair, share in shares.items() if bad.isdisjoint(pair)}, size)
    return score + _by_nodes(bad, size, shares), group


def _group(shares: Shares, size: int) -> Tuple[float, FrozenSet[str]]:
    """Return the most likely group behind a bad path; an empty one if accidents are likelier.

    At least two of its nodes pass with each other: otherwise it cannot be distinguished from as many bad nodes.
    """
    edges: Dict[str, Dict[str, Optional[float]]] = {}
    for (one, other), failing in shares.items():
        edges.setdefault(one, {})[other] = failing
        edges.setdefault(other, {})[one] = failing
    times = {node: _count(partners.values())[0] for node, partners in edges.items()}
    often = sorted((n for n in times if times[n]), key=lambda n: (-times[n], n))[:MOST]
    total = _count(shares.values())
    best = (_by_accident(total), frozenset())  # type: Tuple[float, FrozenSet[str]]
    for first in often[: MOST // 4]:
        group: Set[str] = set()
        across, node = (0, 0), first
        while node:
            across = _moved(across, node, group, edges)
            group.add(node)
            if len(group) >= LEAST and any(edges[n].get(other, 0.0) is None for n in group for other in group):
                out = (share for node in group for other, share in edges[node].items() if other not in group)
                score = _score(across, total, len(group), size) - _speeds(out)
                best = max(best, (score, frozenset(group)), key=lambda each: each[0])
            node = _next(often, across, group, edges, total, size) if 2 * len(group) < size else ""
    return best


def _next(often: List[str], across: Count, group: Set[str], edges: Edges, total: Count, size: int) -> str:
    """Return the node that improves a group's explanation most; '' without one."""
    count = len(group) + 1
    scores = [(_score(_moved(across, n, group, edges), total, count, size), n) for n in often if n not in group]
    return max(scores, default=(0.0, ""))[1]


def _moved(across: Count, node: str, group: Set[str], edges: Edges) -> Count:
    """Return the failures and tests across a group's border when a node joins it."""
    bad, tests = across
    for other, share in edges[node].items():
        sign = -1 if other in group else 1
        bad, tests = bad + sign * (share is not None), tests + sign
    return bad, tests


def _score(across: Count, total: Count, count: int, size: int) -> float:
    """Return the likelihood of the tests if the paths of a group of so many nodes are bad, without their speeds."""
    rest = (total[0] - across[0], total[1] - across[1])
    return _beta(across, ANY) + _by_accident(rest) - _log_of_groups(count, size)


@lru_cache(maxsize=1 << 16)
def _log_of_groups(count: int, size: int) -> float:
    """Return the log of the number of groups of so many nodes."""
    return lgamma(size + 1) - lgamma(count + 1) - lgamma(size - count + 1) + log(size)


def _by_accident(count: Count) -> float:
    """Return the likelihood of so many failures of single pairs, each with its own speed."""
    return _beta(count, ACCIDENT) - count[0] * log(SPEEDS)


def _speeds(shares: Iterable[Optional[float]]) -> float:
    """Return the cost of describing the speeds of one element: the distinct values, and the value of each failure."""
    values = sorted(share for share in shares if share is not None)
    different, least = 0, -SPREAD
    for value in values:
        if value > least + SPREAD or not different:
            different, least = different + 1, value
    return different * log(SPEEDS) + len(values) * log(max(1, different))


def _count(shares: Iterable[Optional[float]]) -> Count:
    each = list(shares)
    return sum(share is not None for share in each), len(each)


@lru_cache(maxsize=1 << 16)
def _beta(count: Count, prior: Tuple[float, float]) -> float:
    """Return the log-likelihood of so many failures in so many tests at a rate with a Beta prior."""
    (bad, tests), (one, other) = count, prior
    return _ln_beta(one + bad, other + tests - bad) - _ln_beta(one, other)


def _ln_beta(one: float, other: float) -> float:
    return lgamma(one) + lgamma(other) - lgamma(one + other)
