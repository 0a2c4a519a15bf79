"""Which nodes a sweep needs no more: they have passed, and are nobody's partner in what is still open."""

from __future__ import annotations

from collections import Counter
from typing import AbstractSet, List, Sequence

from .decode import decode
from .judgement import matchings_of
from .model import Done, Fleet, Round, Rules

OF_A_LEAF = 3  # proven nodes of other leaves that stay: as many as a suspected uplink is probed with


def spare(fleet: Fleet, rules: Rules, history: Sequence[Done], each: Round, kept: AbstractSet[str]) -> List[str]:
    """Return the proven nodes that neither the next round nor any later one needs; `kept` are never among them.

    None before every node was paired; nor a node at fault, which would take the next job. Who may be a partner still
    stays: all of the leaves in doubt, some of each other leaf, and as many as suspects may meet.
    """
    if each.stage <= matchings_of(fleet, rules):
        return []
    proven = decode(fleet, rules, history).proven
    busy = {node for nodes in each.tests for node in nodes}
    doubted = set(fleet.nodes) - set(fleet.gone) - set(proven)
    near = {fleet.leaf(node) for node in doubted | busy if fleet.leaf(node)}
    unneeded: List[str] = []
    of_leaf: Counter = Counter()  # type: ignore[type-arg]
    for node in proven:
        if node in busy or node in fleet.gone or node in kept:
            continue
        leaf = fleet.leaf(node)
        of_leaf[leaf] += 1
        if not (leaf and (leaf in near or of_leaf[leaf] <= OF_A_LEAF)):
            unneeded.append(node)
    partners = rules.most_partners * max(1, len(doubted))
    return unneeded[max(0, partners - (len(proven) - len(unneeded))) :]
