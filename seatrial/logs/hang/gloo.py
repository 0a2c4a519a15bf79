"""Give dumps of recorders that mark no failure, gloo's, the meaning that NCCL's have, before any rule reads them.

Such a recorder calls broken operations retired, as it calls completed ones; older versions mark neither. It lists no
members of groups and records no sends and receives, and it dumps on request only.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from .dump_times import NS, needs_all, time_limit
from .model import At, Decision, Group

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from .model import Evidence, Operation, Rank

Calls = dict[tuple[str, int], dict[int, "Operation"]]
"""Group and number to the operation that each rank queued there."""


def settled(evidence: Evidence) -> Evidence:
    """Return the evidence with the members of all groups, and with the pending operations of all ranks."""
    evidence = _with_members(evidence)
    if all(made.last is None or made.last.marked for made in evidence.ranks.values()):
        return evidence
    ranks = dict(evidence.ranks)
    for rank in ranks:
        ranks[rank] = _closed(evidence, ranks, rank)
    ranks = _reopened(replace(evidence, ranks=ranks))
    unmarked = any(not operation.marked for made in ranks.values() for operation in made.pending)
    if unmarked and not any(made.completed for made in ranks.values()):  # a version that does not mark what is retired
        ranks = _by_presence(ranks, evidence.groups)
    return replace(evidence, ranks=ranks)


def _with_members(evidence: Evidence) -> Evidence:
    """Return the evidence with members for the groups that no dump lists: the ranks that recorded an operation there.

    The default group has all ranks, and of those every number up to the highest that is known. Where no rank has
    completed an operation in a group, those that wait nowhere may be members that have not come yet.
    """
    bare = [group for group in evidence.groups.values() if not group.members]
    if not bare:
        return evidence
    world = evidence.world | set(range(max(evidence.world, default=-1) + 1))
    idle = {rank for rank, made in evidence.ranks.items() if not made.pending}
    groups = dict(evidence.groups)
    for group in bare:
        recorded = {rank for rank, made in evidence.ranks.items() if group.key in made.enqueued}
        everyone = group.name == "default_pg" or group.key == "0"
        fresh = not any(group.key in made.finished for made in evidence.ranks.values())
        members = tuple(sorted(world if everyone else recorded | idle if fresh else recorded))
        groups[group.key] = Group(group.key, group.name, members)
    return replace(evidence, world=world, groups=groups)


def _closed(evidence: Evidence, ranks: Mapping[int, Rank], rank: int) -> Rank:
    """Return the rank without its unmarked pending operations, if it and all other ranks completed them."""
    made = ranks[rank]
    newest = max((operation.created for operation in made.finished.values()), default=0)
    left = []
    for operation in made.pending:
        others = [ranks.get(m) for m in evidence.groups[operation.group].members if m != rank]
        through = bool(others) and all(completed(each, operation.group, operation.sequence) for each in others)
        if operation.marked or not through or operation.created >= newest:
            left.append(operation)
    return made if len(left) == len(made.pending) else replace(made, pending=tuple(left))


def _reopened(evidence: Evidence) -> dict[int, Rank]:
    """Return the ranks, those with a broken operation in it again.

    Such are those that report it, and those that cannot be through with it, since a member never queued it. It is the
    last one that they queued, unless a rank went on from there, or they wait in a send or a receive.
    """
    highest: dict[str, int] = {}
    for made in evidence.ranks.values():
        for group, sequence in made.enqueued.items():
            highest[group] = max(sequence, highest.get(group, -1))
    broken, behind, ranks = evidence.broken, dict[tuple[str, int], float](), dict(evidence.ranks)
    for rank, made in evidence.ranks.items():
        last = made.last
        if made.pending or made.sends or last is None or last.marked or highest.get(last.group, -1) > last.sequence:
            continue
        if rank not in broken:
            if (last.group, last.sequence) not in behind:
                behind[last.group, last.sequence] = _unentered(evidence, last)
            if behind[last.group, last.sequence] * NS <= last.created:
                continue
        finished = {group: operation for group, operation in made.finished.items() if operation != last}
        ranks[rank] = replace(made, pending=(last,), finished=finished)
    return ranks


def _unentered(evidence: Evidence, operation: Operation) -> float:
    """Return the time at which a member had not queued a collective that needs all, by its dump; 0 if all had."""
    if not needs_all(operation):
        return 0
    members = (evidence.ranks.get(member) for member in evidence.groups[operation.group].members)
    absent = [made for made in members if made and made.enqueued.get(operation.group, -1) < operation.sequence]
    return max((math.inf if made.written is None else made.written for made in absent), default=0)


def _by_presence(ranks: dict[int, Rank], groups: Mapping[str, Group]) -> dict[int, Rank]:
    """Return ranks without states, each at an operation that a member has not queued, else at its last one."""
    least = {
        key: min((ranks[m].enqueued.get(key, -1) for m in group.members if m in ranks), default=-1)
        for key, group in groups.items()
    }
    heads: dict[int, Operation] = {}
    for rank, made in ranks.items():
        ahead = [each for each in made.pending if not each.p2p and each.sequence > least.get(each.group, -1)]
        if ahead:
            heads[rank] = ahead[0]
    some = bool(heads)
    for rank, made in ranks.items():
        if rank not in heads and made.pending:
            last = made.pending[-1]
            if not some or set(groups[last.group].members) - set(ranks):
                heads[rank] = last
    return {rank: replace(made, pending=(heads[rank],) if rank in heads else ()) for rank, made in ranks.items()}


def completed(made: Rank | None, group: str, sequence: int) -> bool:
    """Return whether a rank has completed a collective, by its dump."""
    if made is None:
        return False
    first = made.first_pending.get(group)
    return first > sequence if first is not None else made.completed.get(group, -1) >= sequence


def may_have_broken(made: Rank | None, group: str, sequence: int) -> bool:
    """Return whether a rank's completed operation may have ended in an error, or the rank has no dump."""
    last = made.last if made else None
    return last is None or (not last.marked and (last.group, last.sequence) == (group, sequence))


def may_have_failed(evidence: Evidence, rank: int) -> bool:
    """Return whether a rank's last operation may have ended in an error.

    A member of that group has no dump, and no other one went on there.
    """
    last = evidence.ranks[rank].last
    if last is None or last.marked:
        return False
    members = set(evidence.groups[last.group].members)
    on = any(evidence.ranks[m].enqueued.get(last.group, -1) > last.sequence for m in members & set(evidence.ranks))
    return not on and (len(members) < 2 or not members <= set(evidence.ranks))


def called_apart(evidence: Evidence, standing: AbstractSet[str]) -> Calls:
    """Return where ranks called different operations, the first one first; ``standing``: the groups in which they wait.

    Ranks that gave up there are at it, or further on. Where none reports that it broke, it is the last that they
    queued.
    """
    calls: Calls = defaultdict(dict)
    broken = bool(evidence.broken)
    for rank, made in evidence.ranks.items():
        for key, operation in made.queued_at.items():
            if key[0] in standing if broken else made.last == operation and not made.sends:
                calls[key][rank] = operation
    apart = [key for key, called in calls.items() if len({operation.name for operation in called.values()}) > 1]
    first = sorted(apart, key=lambda key: min(operation.created for operation in calls[key].values()))
    return {key: calls[key] for key in first}


def overdue(evidence: Evidence) -> Decision | None:
    """Name the ranks that queued a collective after the others had timed out.

    Such a rank ends with an error as the others do; later actions of the ranks are a consequence. A rank is late only
    where all had queued together what it queued before: a rank that waited elsewhere for another one is late because
    of it. Where sends and receives were not recorded, no rank is named.
    """
    queued: Calls = defaultdict(dict)
    for rank, made in evidence.ranks.items() if evidence.broken else ():
        for key, operation in made.queued_at.items():
            if operation.created:
                queued[key][rank] = operation
    for by_rank in sorted(queued.values(), key=lambda each: min(operation.created for operation in each.values())):
        first = min(by_rank.values(), key=lambda operation: operation.created)
        after = {rank: each.created - first.created for rank, each in by_rank.items()}
        late = {rank for rank, passed in after.items() if passed > time_limit(first)}
        if not late:
            continue
        at = At(evidence.groups[first.group].name, first.name.partition(":")[2], first.sequence)
        seconds = max(after.values()) / NS
        text = f"{at.operation} {at.sequence} of {at.group} was queued {seconds:.1f} s after the first rank had,"
        found = Decision(at=at, because=(("Flight Recorder", 0, f"{text} which had timed out"),))
        before = [_before(evidence.ranks[rank], by_rank[rank]) for rank in late]
        if 2 * len(late) <= len(by_rank) and all(each and _all_at_once(evidence, queued, each) for each in before):
            waiting = set(evidence.ranks) - late
            found += Decision(kind="late", proven=True, late=late, seconds=seconds, waiting=waiting)
        return found
    return None


def _before(made: Rank, operation: Operation) -> Operation | None:
    """Return the operation that a rank queued before one; None if unknown."""
    earlier = [each for each in made.queued_at.values() if each.created < operation.created]
    return max(earlier, key=lambda each: each.created) if earlier and not made.sends else None


def _all_at_once(evidence: Evidence, queued: Calls, operation: Operation) -> bool:
    """Return whether all ranks queued an operation within its time-out: of a smaller group the members are unknown."""
    times = [each.created for each in queued[operation.group, operation.sequence].values()]
    return len(times) == len(evidence.world) and max(times) - min(times) <= time_limit(operation)
