"""The idle nodes that a scheduled sweep tests, in their order, from what is remembered; and who is never idle."""

from __future__ import annotations

from collections.abc import Sequence

from .node_history import Choice, spoken
from .remembered import NodeHistory, Watched

LEAST = 2
"""Nodes of a sweep: one alone proves no link."""
STARVED_S = 28 * 86400.0
"""A node that nothing has tested for so long is told, as by the alert SeatrialNodeUntested (deploy/monitoring)."""


OLDEST_SHARE = 0.5
"""Of the places of a run, for who was not tested longest: so that many suspects cannot keep the others from theirs."""


def next_nodes(state: NodeHistory, idle: Sequence[str], *, most: int, now: float, every_s: float) -> Choice:
    """Choose at most ``most`` idle nodes in the order in which they are to be tested; none where none is due.

    Suspects come first, each with a node that has passed beside it, then who was not tested longest, for whom half of
    the places are kept; of fewer than four places, all are for those of the two that wait longer. What is over of an
    odd number gets a partner that has passed. Their pairs are new ones in each run: its id is the planner's seed.
    """
    known = {name: state.nodes.get(name, Watched()) for name in idle}
    last = {name: node.tested if 0 <= node.tested <= now else 0.0 for name, node in known.items()}  # a wrong clock
    doubted = sorted((n for n in idle if known[n].suspect or known[n].strikes), key=lambda n: (last[n], n))
    due = sorted((n for n in idle if n not in doubted and now - last[n] >= every_s), key=lambda n: (last[n], n))
    good = sorted((n for n in idle if known[n].good and n not in due), key=lambda n: (-known[n].passed, n))
    chosen: list[str] = []
    partners = iter(good)
    for name in doubted:
        partner = next(partners, None)
        chosen += [name] if partner is None else [name, partner]
    places = max(most, LEAST)
    reserved = int(OLDEST_SHARE * places) if places >= 2 * LEAST else 0
    if places < 2 * LEAST and doubted and due and last[due[0]] < last[doubted[0]]:
        reserved = places
    chosen = (chosen[: places - min(reserved, len(due))] + due)[:places]
    if chosen and (len(chosen) < LEAST or len(chosen) % 2) and len(chosen) < max(most, LEAST):
        rest = [*good, *sorted(idle, key=lambda n: (last[n], n))]
        chosen += [name for name in dict.fromkeys(rest) if name not in chosen][:1]
    if not chosen:
        return Choice((), f"all {len(idle)} idle nodes were tested within {spoken(every_s)}")
    if len(chosen) < LEAST:
        return Choice((), "1 idle node; a sweep needs 2: the cluster is at work and is left alone")
    reasons = [f"{len(doubted)} under suspicion"] * bool(doubted) + [f"{len(due)} due"] * bool(due)
    return Choice(tuple(chosen), f"of {len(idle)} idle nodes {' and '.join(reasons)}")


def overdue(state: NodeHistory, *, now: float, limit_s: float) -> tuple[str, ...]:
    """Return the nodes that nothing has tested for longer than a limit, longest first: never idle when a run came."""
    return tuple(name for name, (since, _, _) in state.series(now).items() if now - since > limit_s)
