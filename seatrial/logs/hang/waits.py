"""The graph of waits: from Flight Recorder dumps to the ranks that block other ranks and wait for none.

A rank is at its first pending operation. It waits for each member of that operation's group that has neither
completed it nor is at it. Groups nest, so a chain of waits is followed to its end: a rank there is late, whether it
queued nothing or queued work that its GPU does not finish. A member without a dump may be that end, too.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from .dump_times import NS, needs_all
from .flight_recorder import EQUAL_SIZES, EQUAL_SIZES_BY_GLOO, gloo
from .model import Evidence, Group, Operation, Rank

MAX_EDGES = 3_000_000


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
    """Of ranks with another order, the smallest set that others wait for: a minority, and none if two are equally
    small."""
    stuck: Operation | None = None
    heads: dict[int, Operation] = field(default_factory=dict)
    mismatch: str = ""
    """The operation of the majority, and those that others called in its place."""


def analyse(evidence: Evidence) -> Waits:
    """Return the ends of all chains of waits."""
    _members(evidence)
    _close(evidence)
    _reopen(evidence)
    heads = (
        _gloo_heads(evidence)
        if gloo(evidence.ranks.values())
        else {rank: made.pending[0] for rank, made in evidence.ranks.items() if made.pending}
    )
    waits = Waits(heads=heads, unknown=evidence.world - set(evidence.ranks), waiting=set(heads))
    at: dict[tuple[str, int], set[int]] = defaultdict(set)
    for rank, head in heads.items():
        if not head.p2p:
            at[head.group, head.sequence].add(rank)
    if _mismatch(waits, at, evidence):
        return waits
    edges = _edges(evidence, heads, at)
    _ends(waits, evidence, edges)
    waits.late -= {rank for rank in waits.late - set(heads) if _may_have_failed(evidence, rank)}
    return waits


def _close(evidence: Evidence) -> None:
    """Take from the pending ones what gloo's recorder did not mark: its rank went on, and so did all others."""
    ranks = evidence.ranks
    for rank, made in ranks.items():
        newest = max((operation.created for operation in made.finished.values()), default=0)
        left = []
        for operation in made.pending:
            members = set(evidence.groups[operation.group].members) - {rank}
            through = members and all(_completed(ranks.get(m), operation.group, operation.sequence) for m in members)
            if not (through and operation.created < newest and operation.name.startswith("gloo:")):
                left.append(operation)
        if len(left) < len(made.pending):
            made.pending, made.first_pending = left, {}
            for operation in left:
                if not operation.p2p:
                    made.first_pending.setdefault(operation.group, operation.sequence)


def _reopen(evidence: Evidence) -> None:
    """Put ranks with a broken operation back into it: gloo's recorder calls it retired.

    Such are those that say so, and those that cannot be through with it, since a member never queued it. It is the last
    one that they queued, unless a rank went on from there, or they wait in a send or a receive.
    """
    highest: dict[str, int] = {}
    for made in evidence.ranks.values():
        for group, sequence in made.enqueued.items():
            highest[group] = max(sequence, highest.get(group, -1))
    behind: dict[tuple[str, int], float] = {}
    for rank, made in evidence.ranks.items():
        last = made.last
        if made.pending or made.sends or last is None or not last.name.startswith("gloo:"):
            continue
        group = last.group
        if highest.get(group, -1) > last.sequence:
            continue
        if rank not in evidence.broken:
            if (group, last.sequence) not in behind:
                behind[group, last.sequence] = _unentered(evidence, last)
            if behind[group, last.sequence] * NS <= last.created:
                continue
        made.pending, made.first_pending = [last], {group: last.sequence}
        if made.finished.get(group) == last:
            del made.finished[group]


def _unentered(evidence: Evidence, operation: Operation) -> float:
    """Return the time at which a member had not queued a collective that needs all, by its dump; 0 if all had."""
    if not needs_all(operation):
        return 0
    members = (evidence.ranks.get(member) for member in evidence.groups[operation.group].members)
    absent = [made for made in members if made and made.enqueued.get(operation.group, -1) < operation.sequence]
    return max((math.inf if made.written is None else made.written for made in absent), default=0)


def _may_have_broken(made: Rank | None, group: str, sequence: int) -> bool:
    """Return whether a rank's completed operations may have ended in an error.

    gloo's recorder calls that retired, too.
    """
    last = made.last if made else None
    return last is None or (last.name.startswith("gloo:") and (last.group, last.sequence) == (group, sequence))


def _may_have_failed(evidence: Evidence, rank: int) -> bool:
    """Return whether a rank's last operation may have ended in an error, which gloo's recorder calls retired, too.

    A member of that group has no dump, and no other one went on there.
    """
    last = evidence.ranks[rank].last
    if last is None or not last.name.startswith("gloo:"):
        return False
    members = set(evidence.groups[last.group].members)
    on = any(evidence.ranks[m].enqueued.get(last.group, -1) > last.sequence for m in members & set(evidence.ranks))
    return not on and (len(members) < 2 or not members <= set(evidence.ranks))


def _members(evidence: Evidence) -> None:
    """Give the groups without members in any dump the ranks that recorded an operation there.

    gloo lists none; the default group has all ranks, and of those every number up to the highest that is known. Where
    no rank has completed an operation in a group, those that wait nowhere may be members that have not come yet.
    """
    bare = [group for group in evidence.groups.values() if not group.members]
    if not bare:
        return
    evidence.world |= set(range(max(evidence.world, default=-1) + 1))
    idle = {rank for rank, made in evidence.ranks.items() if not made.pending}
    for group in bare:
        recorded = {rank for rank, made in evidence.ranks.items() if group.key in made.enqueued}
        everyone = group.name == "default_pg" or group.key == "0"
        fresh = not any(group.key in made.finished for made in evidence.ranks.values())
        members = tuple(sorted(evidence.world if everyone else recorded | idle if fresh else recorded))
        evidence.groups[group.key] = Group(group.key, group.name, members)


def _gloo_heads(evidence: Evidence) -> dict[int, Operation]:
    """Return the position of each rank without states.

    At an operation that a member has not queued, else at its last.
    """
    ranks = evidence.ranks
    least: dict[str, int] = {}
    for key, group in evidence.groups.items():
        least[key] = min((ranks[m].enqueued.get(key, -1) for m in group.members if m in ranks), default=-1)
    heads: dict[int, Operation] = {}
    for rank, made in ranks.items():
        for operation in made.pending:
            if not operation.p2p and operation.sequence > least.get(operation.group, -1):
                heads[rank] = operation
                break
        made.first_pending = {heads[rank].group: heads[rank].sequence} if rank in heads else {}
    if not heads:
        heads = {rank: made.pending[-1] for rank, made in ranks.items() if made.pending}
    for rank, made in ranks.items():
        last = made.pending[-1] if made.pending else None
        unheard = set(evidence.groups[last.group].members) - set(ranks) if last else set()
        if rank not in heads and last is not None and unheard:
            heads[rank] = last
            made.first_pending = {last.group: last.sequence}
    return heads


def _mismatch(waits: Waits, at: dict[tuple[str, int], set[int]], evidence: Evidence) -> bool:
    """Look for ranks that called different operations, or sizes, under one number of one group.

    A rank that called another operation may be through with it: the others may have given it what it waited for.
    """
    through: dict[tuple[str, int], dict[int, Operation]] = defaultdict(dict)
    for rank, made in evidence.ranks.items():
        for group, done in made.finished.items():
            through[group, done.sequence][rank] = done
    apart = _broke_apart(waits, evidence, through)
    for group, sequence in apart + sorted(at):
        standing = at.get((group, sequence), set())
        called = {**through.get((group, sequence), {}), **{rank: waits.heads[rank] for rank in standing}}
        ranks = set(called)
        names = Counter(operation.name for operation in called.values())
        name = next(iter(names))
        uniform = len(names) == 1 and (name.rpartition(":")[2] in EQUAL_SIZES or name in EQUAL_SIZES_BY_GLOO)
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


def _broke_apart(
    waits: Waits, evidence: Evidence, through: dict[tuple[str, int], dict[int, Operation]]
) -> list[tuple[str, int]]:
    """Return where ranks called different operations by gloo, the first one first, and add these to ``through``.

    Its recorder calls what broke retired, as what is done: ranks that gave up there are at it, or further on. Where
    none says that it broke, it is the last that they queued.
    """
    queued: dict[tuple[str, int], dict[int, Operation]] = defaultdict(dict)
    standing = {head.group for head in waits.heads.values()}
    for rank, made in evidence.ranks.items():
        for key, operation in made.queued_at.items():
            if key[0] in standing if evidence.broken else made.last == operation and not made.sends:
                queued[key][rank] = operation
    apart = [key for key, called in queued.items() if len({operation.name for operation in called.values()}) > 1]
    through.update({key: queued[key] for key in apart})
    return sorted(apart, key=lambda key: min(operation.created for operation in queued[key].values()))


Node = int | tuple[str, int]


def _edges(
    evidence: Evidence, heads: dict[int, Operation], at: dict[tuple[str, int], set[int]]
) -> dict[Node, set[Node]]:
    """Return the waits; the ranks at one operation share one node for it, so that the sum stays small."""
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
        blocking = {m for m in members if m not in here and not _completed(evidence.ranks.get(m), group, sequence)}
        total += len(blocking)
        edges[node] |= blocking
    for rank, head in heads.items():
        if head.p2p:
            edges[rank] |= _partners(evidence, heads, rank, head)
    return edges


def _completed(made: Rank | None, group: str, sequence: int) -> bool:
    if made is None:
        return False
    first = made.first_pending.get(group)
    if first is not None:
        return first > sequence
    return made.completed.get(group, -1) >= sequence


def _partners(evidence: Evidence, heads: dict[int, Operation], rank: int, head: Operation) -> set[int]:
    """Return the peers that a send or a receive waits for; without a named peer, the ranks elsewhere."""
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
    # Those at a complete collective form no part of two: their node has no outgoing edge.
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
            elif any(not _may_have_broken(evidence.ranks.get(m), *node) for m in elsewhere):
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
    """Return the fewest ranks that an operation of a circle waits for: they are out of step, or all the others are."""
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
