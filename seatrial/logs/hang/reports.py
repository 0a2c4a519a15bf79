"""Rules over reports of torch: time-outs of its watchdogs, desync reports, and last queued operations.

Every process group numbers its operations separately. ``queued`` reports (torch 2.3 and later) are of the default
group, and the missing rank writes one, too. A rank that waits in another group is behind in the default one, but not at
fault, and its own watchdog reports it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from .counts import counted_equal
from .model import At, Decision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .model import Evidence, Group, Ranks, Report

_PAIRED = frozenset(("SEND", "RECV", "COALESCED"))  # numbered by pair, or several in one
# Their sizes are equal on every rank; in other collectives a root, or uneven splits, has different ones
# (torch.distributed).
_EVEN = frozenset(
    ("ALLREDUCE", "BROADCAST", "REDUCE", "ALLGATHER", "_ALLGATHER_BASE", "REDUCE_SCATTER", "_REDUCE_SCATTER_BASE")
)


def absent(made: Decision, evidence: Evidence) -> Decision | None:  # noqa: ARG001 -- as every rule
    """Name the ranks without a pending operation in their dump that never queued their group's timed-out operation."""
    missing: dict[Report, set[int]] = {}
    reported = evidence.failed
    timeouts = [event for event in evidence.timeouts if event.rank in reported]
    for event in timeouts:
        group = _group_of(event, evidence)
        if group is None or event.operation in _PAIRED:
            continue
        idle = {m for m in group.members if m in evidence.ranks and not evidence.ranks[m].pending}
        behind = {m for m in idle if evidence.ranks[m].enqueued.get(group.key, -1) < event.sequence}
        if behind:
            missing[event] = behind
    late = set().union(*missing.values())
    waiting = {event.rank for event in timeouts} - late
    if not late or len(waiting) < len(late):
        return None
    event = min(missing, key=lambda event: (event.group in ("", "default_pg"), event.sequence))
    because = tuple(event.where for event in list(missing)[:3])
    return Decision("late", proven=True, late=late, waiting=waiting, at=_at(event), because=because)


def _group_of(event: Report, evidence: Evidence) -> Group | None:
    """Return the group of a watchdog's line, if a dump lists it with the rank that reports."""
    for group in evidence.groups.values():
        if event.rank in group.members and (group.name, group.key.partition("/")[0]) == (event.group, event.number):
            return group
    return None


def timed_out_in_another(made: Decision, evidence: Evidence) -> Decision | None:  # noqa: ARG001 -- as every rule
    """Compare the timed-out operation with those that others completed, by the snapshot, under the same number.

    The two use the same count (torch 2.4) if the snapshot has the rank at the number that it queued last.
    """
    called = evidence.said("called")
    for event in evidence.timeouts:
        if not any(event.rank in item.ranks and item.sequence == event.enqueued for item in called):
            continue
        there = [item for item in called if item.sequence == event.sequence and item.reporter[0] == event.rank]
        callers = {rank for item in there for rank in item.ranks}
        names = {item.operation for item in there}
        if len(callers) < 2 or {event.operation} & names or _PAIRED & {event.operation, *names}:
            continue
        ranks = f"{len(callers)} ranks called {' and '.join(sorted(names))}"
        text = f"as number {event.sequence}: 1 rank called {event.operation}, {ranks}"
        late = {event.rank}
        return Decision("mismatch", proven=True, late=late, at=_at(event), called=text, because=(event.where,))
    return None


def in_desync_report(made: Decision, evidence: Evidence) -> Decision | None:
    """Name the ranks furthest behind in a desync report, which counts from 1; SeqNum is from 0 before torch 2.4."""
    reports = [item for item in evidence.lagging if item.ranks] or evidence.lagging
    if not reports:
        return None
    behind = min(_progress(item) for item in reports)
    worst = [item for item in reports if _progress(item) == behind]
    first, joined = worst[0], worst[0].state == "inside"
    ranks = {rank for item in worst for rank in item.ranks}
    found = Decision(because=tuple(item.where for item in worst[:3]))
    if evidence.ranks and not joined and first.operation != "monitored_barrier":
        ranks -= made.waiting  # their dumps show them there
    if joined and first.operation in _PAIRED:  # the report lists the present ranks, not the missing ones
        return found + Decision(waiting=ranks)
    otherwise = _called_in_snapshot(evidence, first) if joined and ranks else None
    if not ranks or otherwise:
        return found + (otherwise or Decision())
    same = [item for item in reports if item.place[:2] == first.place[:2]]
    called = evidence.said("called")
    kind = "late"
    if joined and all(_progress(item) == behind for item in same):  # no rank is ahead of them
        further = any(item.place[:2] == first.place[:2] and item.sequence > first.sequence for item in called)
        if first.group not in ("", "default_pg") or len(ranks) < 2 or further:
            return found + Decision(waiting=ranks)
        kind, found = "inside", found + Decision(waiting=ranks)
    elif joined and 2 * len(ranks) > len({rank for item in same for rank in item.ranks}):
        return found + Decision(waiting=ranks)  # a few have completed it, and nothing else is known about them
    elif joined:
        kind = "stalled"
    late = set() if kind == "inside" else ranks
    timeout = next(iter(evidence.timeouts), None)
    at = At(
        (timeout.group if timeout else None) or None,
        first.operation or (timeout.operation if timeout else None),
        timeout.sequence if timeout else None if first.sequence < 0 else first.sequence - 1,
    )
    waiting = ({event.rank for event in evidence.timeouts} | set(evidence.broken)) - late
    found += Decision(kind, proven=True, late=late, waiting=waiting, at=at)
    there = {rank for item in called if item.place == first.place and first.sequence >= 0 for rank in item.ranks}
    return _weighed(found, there - late) if kind == "late" else found


def _progress(item: Report) -> float:
    return -1.0 if item.sequence < 0 else item.sequence - (0.5 if item.state == "inside" else 1.0)


def _called_in_snapshot(evidence: Evidence, stuck: Report) -> Decision | None:
    """Compare the snapshot's entries under the number of the ranks' last operation.

    A rank may have completed another operation.
    """
    calls: dict[str, set[int]] = defaultdict(set)
    for item in evidence.said("called"):
        if item.place == stuck.place:
            calls[item.operation] |= set(item.ranks)
    if len(calls) < 2 or not all(calls.values()) or _PAIRED & set(calls):
        return None
    found = _mismatch(stuck, calls)
    return replace(found, at=found.at._replace(sequence=evidence.timeouts[0].sequence)) if evidence.timeouts else found


def _mismatch(there: Report, calls: Mapping[str, Ranks]) -> Decision:
    """Return that ranks called different operations in one place: the minority is late."""
    common = max(calls, key=lambda name: (len(calls[name]), name))
    differing = set().union(*(ranks for name, ranks in calls.items() if name != common)) - calls[common]
    late = differing if len(differing) < len(calls[common]) else set()
    waiting = set().union(*calls.values()) - late
    shown = [f"{len(ranks)} rank{'s' if len(ranks) > 1 else ''} called {name}" for name, ranks in sorted(calls.items())]
    called = f"as number {there.sequence}: {', '.join(shown)}"
    at = At(there.group or None, common.partition(" ")[0], there.sequence)
    return Decision("mismatch", proven=True, late=late, waiting=waiting, at=at, called=called)


def called_otherwise(made: Decision, evidence: Evidence) -> Decision | None:  # noqa: ARG001 -- as every rule
    """Name a mismatch that the watchdogs of several ranks show, and the ranks of the smaller side.

    If a line names no group (torch before 2.2), ranks are compared only if nothing shows several groups: all have their
    world rank in it, and all wait under one number.
    """
    same: dict[tuple[str, str, int], dict[str, dict[int, Report]]] = defaultdict(lambda: defaultdict(dict))
    for event in evidence.timeouts:
        if event.operation not in _PAIRED:
            sizes = f" ({event.sizes})" if event.sizes and event.operation in _EVEN else ""
            same[event.place][event.operation + sizes].setdefault(event.rank, event)
    for (group, number, _), calls in sorted(same.items(), key=lambda item: item[0][2]):
        spoke = [rank for ranks in calls.values() for rank in ranks]
        if len(calls) < 2 or len(spoke) != len(set(spoke)) or not (number or group or _one_group(evidence)):
            continue
        if group not in ("", "default_pg") and not number:
            continue  # several groups have the same name
        first = [next(iter(ranks.values())) for ranks in calls.values()]
        found = _mismatch(first[0], {name: ranks.keys() for name, ranks in calls.items()})
        waiting = found.waiting if found.late else set()  # of two equal sides, either may be at fault
        return replace(found, waiting=waiting, because=tuple(event.where for event in first[:4]))
    return None


def _one_group(evidence: Evidence) -> bool:
    """Return whether nothing shows several groups: one number, and ranks as in the world."""
    own = all(event.reporter == (event.rank, event.rank) and not event.group for event in evidence.timeouts)
    return own and len({event.sequence for event in evidence.timeouts}) == 1


def queued_less(made: Decision, evidence: Evidence) -> Decision | None:  # noqa: ARG001 -- as every rule
    """Name the ranks that did not queue the timed-out operation of the default group; none if they are the majority."""
    ended = [event for event in evidence.timeouts if event.number == "0" or event.group == "default_pg"]
    queued = evidence.queued
    if not ended or not queued:
        return None
    event = min(ended, key=lambda each: each.sequence)
    waited = evidence.waiting | set(evidence.broken)
    # All have reached the completed operation: a lower number counts sends and receives, or is of another job.
    least = event.completed if event.completed is not None and event.completed < event.sequence else -1
    behind = {rank for rank, item in queued.items() if least <= item.sequence < event.sequence} - waited
    ahead = ({rank for rank, item in queued.items() if item.sequence >= event.sequence} | waited) - behind
    silent = set(range(max(behind | ahead, default=-1) + 1)) - behind - ahead
    elsewhere = len(ended) < len(evidence.timeouts)
    if not behind or (silent and elsewhere):  # some may wait for a silent rank in another group
        return None
    at, shown = At("default_pg", event.operation, event.sequence), [queued[rank].where for rank in sorted(behind)[:3]]
    found = Decision("late", proven=True, late=behind, waiting=ahead, at=at, because=(event.where, *shown))
    return _weighed(found, ahead)


def timed_out(made: Decision, evidence: Evidence) -> Decision | None:  # noqa: ARG001 -- as every rule
    """Prove a hang by a time-out; a rank is late only if it queued less, and none is if RAS's counts are equal."""
    timeouts = evidence.timeouts
    if not timeouts:
        return None
    first = min(timeouts, key=lambda item: item.sequence)
    same = [each for each in timeouts if each.place[:2] == first.place[:2]]
    if not first.number and first.group not in ("", "default_pg"):
        same = [first]  # several groups have the same name
    needed = Counter(event.sequence for event in same).most_common(1)[0][0]
    behind = {event.rank for event in same if event.enqueued is not None and event.enqueued < needed}
    behind -= {event.rank for event in set(timeouts).difference(same)}  # they wait for a rank elsewhere, too
    waiting = {event.rank for event in timeouts}
    found = Decision(waiting=waiting, at=_at(first), because=tuple(event.where for event in timeouts[:3]))
    if first.operation in _PAIRED:  # each pair has a separate numbering
        return found
    if behind:
        return found + Decision("late", proven=True, late=behind, at=_at(first)._replace(sequence=needed))
    return found + Decision("inside", proven=True) if counted_equal(evidence) else found


def blocked(made: Decision, evidence: Evidence) -> Decision | None:  # noqa: ARG001 -- as every rule
    """Name the ranks with a blocked watchdog if no operation timed out: nothing else is known about them."""
    reports = evidence.said("blocked")
    if not reports or evidence.timeouts:
        return None
    suspects = {rank for item in reports for rank in item.ranks}
    seconds, because = max(item.seconds for item in reports), tuple(item.where for item in reports[:3])
    return Decision("watchdog", proven=True, suspects=suspects, seconds=seconds, because=because)


def _at(event: Report) -> At:
    return At(event.group or None, event.operation, event.sequence)


def _weighed(made: Decision, ahead: set[int]) -> Decision:
    """Return the decision with suspects instead of late ranks if fewer ranks are ahead: these may be wrong."""
    return made.suspecting(ahead) if ahead and len(ahead) < len(made.late) else made
