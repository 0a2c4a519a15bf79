"""Check that dumps are of one run and one moment: if one rank completed a collective, all others have entered it.

A dump records when its operations were queued. It also records when it was taken if NCCL's recorder stamped an
operation meanwhile. A file's time may be that of a copy.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .model import Evidence, Operation, Rank

_NEED_ALL = frozenset(
    (
        "all_reduce",
        "all_reduce_barrier",
        "barrier",
        "all_gather",
        "_all_gather_base",
        "all_gather_into_tensor",
        "reduce_scatter",
        "_reduce_scatter_base",
        "reduce_scatter_tensor",
    )
)
"""Collectives that complete on no rank before all have entered; roots complete earlier, as does an all_to_all without
data for a peer."""
NS = 1_000_000_000
_TIMEOUT_MS = 600_000  # default of init_process_group for NCCL, if the dump has none
_WRITTEN_WITHIN = 120.0
"""Seconds after a time-out in which its dumps are written. torch waits for them for 15 s by default, and for as long as
its watchdog may be blocked (TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC; TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC)."""


def needs_all(operation: Operation) -> bool:
    """Return whether an operation completes on no rank before all have entered."""
    return operation.name.rpartition(":")[2] in _NEED_ALL


def of_another_run(evidence: Evidence) -> set[int]:
    """Return the ranks with a dump of an earlier run of the job.

    If two ranks completed a collective, both queued it within its time-out, or the watchdog had ended it. A rank whose
    last operation is older, by its time-out, than the first one that another rank recorded holds up no rank there.
    """
    done: dict[tuple[str, int], dict[int, Operation]] = defaultdict(dict)
    for rank, made in evidence.ranks.items():
        for group, operation in made.finished.items():
            if operation.created and needs_all(operation):
                done[group, operation.sequence][rank] = operation
    old: set[int] = set()
    for behind in done.values():
        last = max(behind, key=lambda rank: behind[rank].created)
        old |= {
            rank
            for rank, operation in behind.items()
            if behind[last].created - operation.created > time_limit(operation)
            and not _together(evidence.ranks[rank], evidence.ranks[last])
        }
    spans = {rank: made.span for rank, made in evidence.ranks.items() if made.span is not None}
    begun = max((first for first, _ in spans.values()), default=0)
    for rank, (_, last) in spans.items():
        made = evidence.ranks[rank]
        operations: list[Operation | None] = [*made.pending] or [made.last]
        limit = max(time_limit(operation) for operation in operations)
        if last + limit < begun:
            old.add(rank)
    return old


def _together(one: Rank, other: Rank) -> bool:
    """Return whether two ranks queued some collective within its time-out: then they are of one run."""
    return any(
        abs(one.queued_at[key].created - other.queued_at[key].created) <= time_limit(one.queued_at[key])
        for key in one.queued_at.keys() & other.queued_at.keys()
    )


def beginning_lost(evidence: Evidence) -> set[int]:
    """Return the ranks with a pending operation that newer ones overwrote, if dumps also contain completed ones."""
    lost = {rank for rank, made in evidence.ranks.items() if made.lost}
    if all(made.active or not made.recorded for made in evidence.ranks.values()):
        return lost  # only active operations were dumped
    return lost | {rank for rank, made in evidence.ranks.items() if made.cut and made.lost is None}


def time_limit(operation: Operation | None) -> int:
    """Return the nanoseconds after which the watchdog ends an operation."""
    return ((operation.timeout_ms if operation else 0) or _TIMEOUT_MS) * NS // 1000


def went_on(evidence: Evidence) -> str:
    """Describe a rank that completed a collective which another one had not entered in its own dump; empty if none.

    Such dumps were written one after the other while the job ran: a rank may have entered it after its own dump. If the
    recorder marks no failure, the first rank must also have queued another collective behind it there.
    """
    furthest: dict[str, tuple[int, int, str]] = {}
    for rank, made in evidence.ranks.items():
        for group, operation in made.finished.items():
            through = operation.marked or made.enqueued.get(group, -1) > operation.sequence
            if needs_all(operation) and through:
                furthest[group] = max(furthest.get(group, (-1, -1, "")), (operation.sequence, rank, operation.name))
    for group, (sequence, ahead, name) in sorted(furthest.items()):
        for rank in evidence.groups[group].members:
            made_by = evidence.ranks.get(rank)
            last = made_by.enqueued.get(group, -1) if made_by is not None else -1
            if made_by is None or not (0 <= last < sequence or made_by.first_pending.get(group) == last == sequence):
                continue
            state = "entered" if last < sequence else "finished, nor queued another behind it"
            return (
                f"rank {ahead} has completed {name.rpartition(':')[2]} {sequence} of {evidence.groups[group].name},"
                f" which rank {rank} had not {state} in its own dump"
            )
    return ""


@dataclass(frozen=True, slots=True)
class Waited:
    """The time that the ranks of one set of dumps had waited when these were taken."""

    longest: float
    """Seconds."""
    ended: bool
    """A rank had waited for its operation's time-out."""
    dated: bool = True
    """The dumps show it, or times of their files that fit a time-out; a copy has the time of the copy."""
    by_itself: bool = True
    """A time-out writes such dumps; others are written on request."""


def waited(ranks: Mapping[int, Rank], heads: Mapping[int, Operation]) -> Waited | None:
    """Return how long the ranks waited in their operations when their dumps were taken; None if unknown.

    Anything that a rank's dump recorded later than its open operation is a lower bound; it is sufficient if it is
    beyond the time-out. An operation that NCCL's watchdog ended is sufficient, too. No file is older than its content,
    so its time excludes a time-out if it is too early. A much younger file is a copy, or a dump that was requested from
    a running job.
    """
    own: list[tuple[float, float]] = []
    by_file: list[tuple[float, float]] = []
    for rank, head in heads.items():
        made, limit = ranks[rank], time_limit(head) / NS
        if not head.created:
            continue
        beyond = max(made.latest - head.created / NS, limit if head.ended else 0.0)
        if made.taken is not None or (beyond >= limit and head.marked):
            own.append((max(beyond, (made.taken or 0) - head.created / NS), limit))
        if made.written is not None and head.created <= made.written * NS:
            by_file.append((made.written - head.created / NS, limit))
    if not own and len(by_file) < len(heads):
        return None
    waits = own or by_file
    if not waits:
        return None
    ended = any(time >= limit for time, limit in waits)
    fits = bool(own) or any(limit <= time <= limit + _WRITTEN_WITHIN for time, limit in waits)
    by_itself = all(head.marked for head in heads.values())
    return Waited(max(time for time, _ in waits), ended, fits or not ended, by_itself)


def same_process(one: Rank, other: Rank) -> bool:
    """Return whether two dumps are of the same process: they have the queue time of an operation in common."""
    return bool(one.marks & other.marks)
