"""Build the graph of waits: from Flight Recorder dumps to the ranks that block other ranks and wait for none.

A rank is at its first pending operation. It waits for each member of that operation's group that has neither completed
it nor is at it. Groups nest, so a chain of waits is followed to its end. A rank there is late, whether it queued
nothing or queued work that its GPU does not finish. A member without a dump may be that end, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from .flight_recorder import EQUAL_SIZES
from .gloo import called_apart, completed, may_have_broken, may_have_failed
from .model import Evidence, Operation

MAX_EDGES = 3_000_000
_EQUAL_SIZES_BY_GLOO = frozenset(["gloo:all_gather", "gloo:gather"])
"""Collectives that gloo refuses if sizes differ from the rank's own (ProcessGroupGloo.cpp), so that all send the same.
"""


@dataclass(slots=True)
class Waits:
    """The result of the dumps; all ranks are world ranks."""

    late: set[int] = field(default_factory=set)
    stalled: set[int] = field(default_factory=set)
    """Late ranks that queued the operation that the others wait for, with a GPU that does not reach it."""
    differing: set[int] = field(default_factory=set)
    """The strict minority that is at another operation or size under the same number."""
    inside: set[int] = field(default_factory=set)
    """Ranks that all are in one operation that all have joined."""
    unknown: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    crossed: bool = False
    """Ranks wait for one another in different operations: the order of the calls differs."""
    out_of_step: set[int] = field(default_factory=set)
    """Among ranks with another order, the smallest set that others wait for: a minority; empty if two are equally
    small."""
    stuck: Operation | None = None
    heads: dict[int, Operation] = field(default_factory=dict)
    mismatch: str = ""
    """The operation of the majority, and those that others called in its place."""


def analyse(evidence: Evidence) -> Waits:
    """Return the ends of all chains of waits."""
    heads = {rank: made.pending[0] for rank, made in evidence.ranks.items() if made.pending}
    waits = Waits(heads=heads, unknown=evidence.world - set(evidence.ranks), waiting=set(heads))
    at: dict[tuple[str, int], set[int]] = defaultdict(set)
    for rank, head in heads.items():
        if not head.p2p:
            at[head.group, head.sequence].add(rank)
    if _mismatch(waits, at, evidence):
        return waits
    edges = _edges(evidence, heads, at)
    _ends(waits, evidence, edges)
    waits.late -= {rank for rank in waits.late - set(heads) if may_have_failed(evidence, rank)}
    return waits


def _mismatch(waits: Waits, at: dict[tuple[str, int], set[int]], evidence: Evidence) -> bool:
    """Find ranks that called different operations, or sizes, under one number of one group.

    A rank may have completed its different operation: the others may have supplied the data that it waited for.
    """
    through: dict[tuple[str, int], dict[int, Operation]] = defaultdict(dict)
    for rank, made in evidence.ranks.items():
        for group, done in made.finished.items():
            through[group, done.sequence][rank] = done
    apart = called_apart(evidence, {head.group for head in waits.heads.values()})
    through.update(apart)
    for group, sequence in [*apart, *sorted(at)]:
        standing = at.get((group, sequence), set())
        called = {**through.get((group, sequence), {}), **{rank: waits.heads[rank] for rank in standing}}
        ranks = set(called)
        names = Counter(operation.name for operation in called.values())
        name = next(iter(names))
        uniform = len(names) == 1 and (name.rpartition(":")[2] in EQUAL_SIZES or name in _EQUAL_SIZES_BY_GLOO)
        sized = Counter(operation.sizes for operation in called.values() if operation.sizes) if uniform else Counter()
        kinds = names if len(names) > 1 else sized
        ranks = ranks if kinds is names else {rank for rank in ranks if called[rank].sizes}
        if len(kinds) < 2:
            continue
        ordered = kinds.most_common()
        common = ordered[0]
        label = {r: called[r].name if kinds is names else called[r].sizes for r in ranks}
        waits.stuck = next(called[r] for r in sorted(ranks) if label[r] == common[0])
        if common[1] > len(ranks) - common[1]:
            waits.differing = {r for r in ranks if label[r] != common[0]}
        waits.waiting |= ranks if (group, sequence) in apart else set()
        waits.waiting -= waits.differing
        waits.mismatch = f"as number {sequence}: " + ", ".join(
            f"{count} rank{'s' if count > 1 else ''} called {text}" for text, count in ordered[:4]
        )
        return True
    return False


Node = int | tuple[str, int]


def _edges(
    evidence: Evidence, heads: dict[int, Operation], at: dict[tuple[str, int], set[int]]
) -> dict[Node, set[Node]]:
    """Return the waits; the ranks at one operation share one node for it, so that the graph stays small."""
    edges: dict[Node, set[Node]] = defaultdict(set)
    lowest: dict[str, int] = {}
    for group, sequence in at:
        lowest[group] = min(sequence, lowest.get(group, sequence))
    total = 0
    for (group, sequence), here in at.items():
        node = (group, sequence)
        for rank in here:
            edges[rank].add(node)
        members = evidence.groups[group].members
        if total > MAX_EDGES and sequence > lowest[group]:
            edges[node].add((group, lowest[group]))
            edges[node] |= at[group, lowest[group]]
            continue
        blocking = {m for m in members if m not in here and not completed(evidence.ranks.get(m), group, sequence)}
        total += len(blocking)
        edges[node] |= blocking
    for rank, head in heads.items():
        if head.p2p:
            edges[rank] |= _partners(evidence, heads, rank, head)
    return edges


def _partners(evidence: Evidence, heads: dict[int, Operation], rank: int, head: Operation) -> set[int]:
    """Return the peers that a send or a receive waits for; without a named peer, the ranks at other operations."""
    if head.peers:
        return set(head.peers) - {rank}
    members = evidence.groups[head.group].members
    return {m for m in members if m != rank and (m not in heads or heads[m].group != head.group)}


def _ends(waits: Waits, evidence: Evidence, edges: dict[Node, set[Node]]) -> None:
    """Find the ends of all chains of waits: groups of nodes that wait for no other node."""
    awaited = {node for targets in edges.values() for node in targets if isinstance(node, int)}
    for part in _components(edges):
        ranks = {node for node in part if isinstance(node, int)}
        if not ranks or any(edges.get(node, set()) - part for node in part if edges.get(node)):
            continue
        known = ranks & set(evidence.ranks)
        if len(ranks) == 1 and known <= awaited:
            waits.late |= known
            waits.stalled |= {rank for rank in known if rank in waits.heads}
        elif len(ranks) > 1:
            operations = {(waits.heads[r].group, waits.heads[r].sequence) for r in known if r in waits.heads}
            pairs = all(
                waits.heads[r].p2p and ranks.issuperset(waits.heads[r].peers) for r in known if r in waits.heads
            )
            if len(operations) > 1 and not pairs:
                waits.crossed = True
                waits.out_of_step |= _fewest(part, edges)
            _together(waits, known & set(waits.heads) if pairs else set())
            waits.inside |= known - waits.late
    # Ranks at a complete collective do not belong to two components: their node has no outgoing edge.
    waiting_at: dict[Node, set[int]] = defaultdict(set)
    for rank, head in waits.heads.items():
        if not head.p2p:
            waiting_at[head.group, head.sequence].add(rank)
    for node, targets in edges.items():
        if isinstance(node, tuple) and not targets:
            here = waiting_at[node]
            elsewhere = set(evidence.groups[node[0]].members) - here
            if not elsewhere:
                _together(waits, here)
            elif any(not may_have_broken(evidence.ranks.get(m), *node) for m in elsewhere):
                waits.late |= here
                waits.stalled |= here
    waits.stuck = waits.stuck or _stuck(waits, evidence, edges)
    waits.waiting -= waits.late


def _stuck(waits: Waits, evidence: Evidence, edges: dict[Node, set[Node]]) -> Operation | None:
    """Return the operation to name: that in the smallest group in which a rank waits for those that hold it up."""
    roots = waits.late or waits.out_of_step or waits.inside or waits.unknown
    waiting_ranks = sorted(set(waits.heads) - roots)
    for root in sorted(roots) if waiting_ranks else ():
        waiters = [waits.heads[r] for r in waiting_ranks if _waits_for(edges, r, root)]
        if waiters:
            return min(waiters, key=lambda op: (op.p2p, len(evidence.groups[op.group].members), op.sequence))
    standing = sorted(roots & set(waits.heads)) or sorted(waits.heads)
    return waits.heads[standing[0]] if standing else None


def _fewest(part: set[Node], edges: dict[Node, set[Node]]) -> set[int]:
    """Return the smallest set of ranks that an operation of a cycle waits for: it is out of step, or all others are."""
    ranks = {node for node in part if isinstance(node, int)}
    awaited = [edges[node] & ranks for node in part if isinstance(node, tuple)]
    least = min((len(each) for each in awaited), default=0)
    fewest = {frozenset(each) for each in awaited if len(each) == least}
    few = len(fewest) == 1 and 2 * least < len(ranks)
    return {rank for each in fewest for rank in each if isinstance(rank, int)} if few else set()


def _together(waits: Waits, here: set[int]) -> None:
    """Add ranks that have all queued one operation: a rank with a GPU that has not started it holds up the others."""
    running = {rank for rank in here if waits.heads[rank].started}
    behind = here - running if running else set()
    waits.late |= behind
    waits.stalled |= behind
    waits.inside |= here - behind


def _waits_for(edges: dict[Node, set[Node]], rank: int, root: int) -> bool:
    return any(step == root or (isinstance(step, tuple) and root in edges[step]) for step in edges.get(rank, ()))


def _components(edges: dict[Node, set[Node]]) -> list[set[Node]]:
    """Return the strongly connected components (Tarjan 1972, without recursion)."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    stack: list[Node] = []
    on: set[Node] = set()
    parts: list[set[Node]] = []
    for start in list(edges):
        if start in index:
            continue
        work = [(start, iter(edges.get(start, ())))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on.add(start)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on.add(target)
                    work.append((target, iter(edges.get(target, ()))))
                    break
                if target in on:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part: set[Node] = set()
                    while node not in part:
                        part.add(stack.pop())
                    on -= part
                    parts.append(part)
    return parts
