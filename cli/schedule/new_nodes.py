"""``seatrial cron --new-nodes``: tries nodes that joined or came back with proven ones, then opens them.

The result is stored on the node: our condition holds passed or failed, the boot and the driver. A node is unproven
without this condition, with Unknown, after a change of boot or driver, or if it has passed but has the taint or label
of new nodes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from checks.rules.capacity import rooms
from checks.rules.pool import Pool, product
from jobs.cluster import node_labels as marking
from jobs.cluster.facts.inventory import Inventory, Node
from jobs.cluster.unstructured import Unstructured
from jobs.listing import first_of
from jobs.trial.rooms import Room
from jobs.trial.spec import TrialSpec

from .node_history import Choice, choose, next_nodes
from .remembered import NodeHistory, Watched

TRIABLE = ("", "gpu.missing")
"""The faults with which a node is tried: the trial names too few GPUs; a busy or closed node waits."""
_FEW = 8


@dataclass(frozen=True, slots=True)
class Outlook:
    """The nodes to try, notes on the other unproven nodes, and whether one of these waits for a later run."""

    choice: Choice
    notes: tuple[str, ...] = ()
    waits: bool = False


def standing(raw: Unstructured, key: str) -> bool | None:
    """Return the known result of a node in its present state: True failed, False proven, None unproven."""
    said = marking.judged(raw)
    return None if said is False and key and marking.carries(raw, key) else said


def assumed(state: NodeHistory, nodes: Mapping[str, Unstructured], key: str, now: float) -> NodeHistory:
    """Return the history corrected by the nodes' conditions: a good partner has passed in its present state.

    Strikes of a machine that has since changed no longer count.
    """
    known = dict(state.nodes)
    for name, raw in nodes.items():
        past, stands = known.get(name, Watched(seen=now)), standing(raw, key)
        if stands is None:
            strikes = past.strikes if marking.is_of_this_machine(raw) else 0
            known[name] = replace(past, suspect=True, strikes=strikes)
        elif stands is False and not past.strikes and not past.suspect:
            known[name] = replace(past, passed=past.passed or now)
    return replace(state, nodes=known)


def outlook(
    cluster: Inventory,
    pool: Pool,
    spec: TrialSpec,
    nodes: Mapping[str, Unstructured],
    state: NodeHistory,
    *,
    key: str,
    most: int,
    now: float,
) -> Outlook:
    """Choose unproven nodes of one kind, and proven partners of that kind; ``state``: as ``assumed`` returns it.

    ``nodes``: all raw objects of the API server. ``most``: the places of a sweep; 0 for a trial, which takes one
    unproven node and partners.
    """
    known = {node.name: standing(nodes[node.name], key) for node in pool.nodes if node.name in nodes}
    unproven = [node for node in pool.nodes if known.get(node.name, False) is None]
    failed = [node.name for node in pool.nodes if known.get(node.name)]
    notes = [f"failed, and not changed since: {first_of(failed, _FEW)}"] if failed else []
    strange = [name for name, raw in nodes.items() if key and marking.carries(raw, key)]
    strange = [name for name in strange if name not in known and name not in pool.outside]
    notes += [f"{first_of(strange, _FEW)} waits: marked as new, but it does not have the profile's GPUs"] * bool(
        strange
    )
    if not known:
        return Outlook(Choice((), "the profile's pool has no node: nothing is started"), tuple(notes), waits=True)
    if not unproven:
        return Outlook(Choice((), "no unproven node: nothing is started"), tuple(notes), waits=bool(strange))
    places = {room.node: room for room in rooms(cluster, pool.nodes, spec, pool.parts)}
    obstacles = {node.name: why for node in unproven if (why := _obstacle(node, places.get(node.name)))}
    notes += [f"{name} waits: {why}" for name, why in list(obstacles.items())[:_FEW]]
    cordoned = {
        node.name for node in unproven if node.unschedulable
    }  # an administrator's decision: nothing to wait for
    past = {node.name: state.nodes.get(node.name, Watched()) for node in pool.nodes}
    # Nodes take turns: an inconclusive run tested no node, and must not be repeated while others wait.
    turns = {node.name: marking.written(nodes[node.name]) for node in unproven if node.name not in obstacles}
    tried = sorted((n for n in unproven if n.name in turns), key=lambda n: (turns[n.name], n.name))
    order = replace(state, nodes=past | {name: replace(past[name], tested=turn) for name, turn in turns.items()})
    free = [n for n in pool.nodes if n.ready and n.name in places and not places[n.name].fault]
    proven = [n for n in free if known.get(n.name) is False and past[n.name].good]
    for first in tried:
        group = [n.name for n in (*tried, *proven) if product(n) == product(first)]
        if most:
            choice = next_nodes(order, group, most=most, now=now, every_s=math.inf)
        else:
            choice = choose(order, group, need=spec.nodes, now=now, every_s=math.inf)
        if choice.nodes:
            return Outlook(
                replace(choice, why=_reason(choice.nodes, {n.name for n in tried})), tuple(notes), waits=True
            )
    why = f"{len(unproven)} unproven nodes, and none can be tried"
    if tried:
        why += (
            f": {first_of([n.name for n in tried], _FEW)} would need a proven partner of the same kind with free GPUs"
        )
    return Outlook(Choice((), why), tuple(notes), waits=bool(strange) or len(cordoned) < len(unproven))


def _obstacle(node: Node, room: Room | None) -> str:
    if not node.ready:
        return f"not Ready ({node.ready_reason})"
    if room is None or room.fault not in TRIABLE:
        return room.observed if room else "the profile's selector leaves it out"
    return "" if node.boot else "its kubelet reports no boot id (status.nodeInfo.bootID): a pass would outlive a reboot"


def _reason(chosen: Collection[str], unproven: Collection[str]) -> str:
    fresh = [name for name in chosen if name in unproven]
    if len(fresh) < len(chosen):
        return f"{first_of(fresh, _FEW)} unproven, with nodes that have passed"
    return "no proven node of their kind is free: they are tried with each other, and a failure may be of any of them"
