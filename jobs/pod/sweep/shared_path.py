"""Comparison of two explanations for failures among all pairs: bad nodes, or a path that several nodes share.

Behind an unlabelled uplink with some bad paths, a node fails with most of its partners now and then. The pairs of its
neighbours then fail, too, and none between them: a group explains more than a bad node does. likelihood.py compares
the explanations.
"""

from __future__ import annotations

from collections import Counter
from math import log
from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Set, Tuple

from .likelihood import DECISIVE, Count, at_unknown_rate, by_pairs, counted, log_of_groups, speeds

LEAST = 3  # nodes of a group: two that fail are two bad nodes
MOST = 32  # nodes among which a group is searched: those in the most failed pairs
LARGE = 64  # nodes; larger fleets are compared only within sets of nodes that failing pairs connect

Shares = Mapping[Tuple[str, ...], Optional[float]]
Edges = Mapping[str, Mapping[str, Optional[float]]]


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
    return _by_nodes(bad, size, shares) + by_pairs(counted(rest))


def _by_nodes(bad: Set[str], size: int, shares: Shares) -> float:
    """Return the likelihood of the tests of bad nodes."""
    left = {pair: share for pair, share in shares.items() if not bad.isdisjoint(pair)}
    score = at_unknown_rate(counted(left.values())) - len(bad) * log(size)
    for node in sorted(bad):
        own = [pair for pair in left if node in pair]
        score -= speeds(left.pop(pair) for pair in own)
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
    times = {node: counted(partners.values())[0] for node, partners in edges.items()}
    often = sorted((n for n in times if times[n]), key=lambda n: (-times[n], n))[:MOST]
    total = counted(shares.values())
    best = (by_pairs(total), frozenset())  # type: Tuple[float, FrozenSet[str]]
    for first in often[: MOST // 4]:
        group: Set[str] = set()
        across, node = (0, 0), first
        while node:
            across = _moved(across, node, group, edges)
            group.add(node)
            if len(group) >= LEAST and any(edges[n].get(other, 0.0) is None for n in group for other in group):
                out = (share for node in group for other, share in edges[node].items() if other not in group)
                score = _score(across, total, len(group), size) - speeds(out)
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
    of_choices = log_of_groups(count, size) + log(size)  # and of how many nodes
    return at_unknown_rate(across) + by_pairs(rest) - of_choices
