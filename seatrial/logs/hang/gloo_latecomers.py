"""Ranks that queued a collective of gloo after the other ranks had timed out.

Such a rank ends with an error as the others do, and its recorder calls what broke retired, as it calls what is done.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from .dump_times import NS, time_limit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .model import Decision, Evidence, Operation, Rank


def overdue(made: Decision, evidence: Evidence) -> bool:
    """Name the ranks that reached a collective after the others had timed out; False if none did.

    Later actions of the ranks are a consequence. A rank is late only where all had queued together what it queued
    before: a rank that waited elsewhere for another one is late because of it. gloo records no sends and receives: no
    rank is named then.
    """
    queued = _queued(evidence) if evidence.broken else {}
    for by_rank in sorted(queued.values(), key=lambda each: min(operation.created for operation in each.values())):
        first = min(by_rank.values(), key=lambda operation: operation.created)
        after = {rank: each.created - first.created for rank, each in by_rank.items()}
        late = {rank for rank, passed in after.items() if passed > time_limit(first)}
        if not late:
            continue
        made.group, made.operation = evidence.groups[first.group].name, first.name.partition(":")[2]
        made.sequence, seconds = first.sequence, max(after.values()) / NS
        text = f"{made.operation} {made.sequence} of {made.group} was queued {seconds:.1f} s after the first rank had,"
        made.because.append(("Flight Recorder", 0, f"{text} which had timed out"))
        before = [_before(evidence.ranks[rank], by_rank[rank]) for rank in late]
        if 2 * len(late) <= len(by_rank) and all(each and _all_at_once(evidence, queued, each) for each in before):
            made.kind, made.proven, made.late, made.seconds = "late", True, late, seconds
            made.waiting |= set(evidence.ranks) - late
        return True
    return False


def _queued(evidence: Evidence) -> dict[tuple[str, int], dict[int, Operation]]:
    queued: dict[tuple[str, int], dict[int, Operation]] = defaultdict(dict)
    for rank, made in evidence.ranks.items():
        for key, operation in made.queued_at.items():
            if operation.created:
                queued[key][rank] = operation
    return queued


def _before(made: Rank, operation: Operation) -> Operation | None:
    """Return the operations that a rank queued before one; None if unknown."""
    earlier = [each for each in made.queued_at.values() if each.created < operation.created]
    return max(earlier, key=lambda each: each.created) if earlier and not made.sends else None


def _all_at_once(
    evidence: Evidence, queued: Mapping[tuple[str, int], Mapping[int, Operation]], operation: Operation
) -> bool:
    """Return whether all ranks of a group queued an operation within its time-out."""
    by_rank = queued[operation.group, operation.sequence]
    members = evidence.groups[operation.group].members or tuple(evidence.world)
    times = [by_rank[rank].created for rank in members if rank in by_rank]
    return len(times) == len(members) and max(times) - min(times) <= time_limit(operation)
