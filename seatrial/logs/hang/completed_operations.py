"""NCCL Inspector's records of completed operations: the ranks that came last to each."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from .model import Decision

if TYPE_CHECKING:
    from .model import Evidence

_SHORT = 0.5
"""Fraction of an operation's median time: a rank inside for less came last, and the others waited for it."""
_LONG_US = 1000.0
"""Shorter operations are dominated by latency and by the launch time of each kernel."""
_OFTEN = 3  # as many as samples of RAS
_ROOTLESS = frozenset(("allreduce", "allgather", "reducescatter", "alltoall"))


def _last_to_come(evidence: Evidence) -> tuple[set[int], str, int, float, float] | None:
    """Return the ranks that came last to each of the operations that all ranks recorded, a minority.

    Also return the operation, its number of records, and the median microseconds of these ranks and of all. A late rank
    runs its kernel for a short time, because it does not wait. A root finishes early regardless.
    """
    sizes: dict[str, int] = {}
    for (comm, _), done in evidence.performed.items():
        sizes[comm] = max(done.size, sizes.get(comm, 0))
    world = len(evidence.world) or max(sizes.values(), default=0)
    for (comm, operation), by_sequence in sorted(evidence.times.items()):
        whole = [times for times in by_sequence.values() if len(times) == sizes.get(comm) == world]
        long = [times for times in whole if median(times.values()) >= _LONG_US]
        if world < 3 or len(long) < _OFTEN or operation.lower() not in _ROOTLESS:
            continue
        early = [{rank for rank, time in times.items() if time < _SHORT * median(times.values())} for times in long]
        always = set.intersection(*early)
        if always and 2 * len(always) < world:
            own = median(times[rank] for times in long for rank in always)
            return always, operation, len(long), own, median(median(times.values()) for times in long)
    return None


def came_last(made: Decision, evidence: Evidence) -> Decision:
    """Name the ranks that the others wait for while the job continues; a proven hang is unchanged."""
    last = _last_to_come(evidence)
    if last is None or evidence.timeouts:
        return made
    ranks, operation, number, own, all_of_them = last
    shown = ", ".join(map(str, sorted(ranks)[:8]))
    if made.proven:
        if not made.late | made.dead or ranks & (made.late | made.dead):
            return made
        text = (
            f"Inspector's records show ranks {shown} coming last, and they do not hold up the job now: the other"
            f" evidence shows the hang, since Inspector records only completed operations"
        )
        return made + Decision(contradictions=(text,))
    contradictions: tuple[str, ...] = ()
    if made.kind == "slow" and made.late != ranks:
        contradictions = (
            f"RAS shows ranks {sorted(made.late)[:8]} behind and Inspector ranks {shown}: Inspector is right about the"
            f" late ranks: it measures on the GPU, and RAS counts the host's launches",
        )
    text = (
        f"ranks {shown} ran {operation} for {own / 1000:.1f} ms and the median rank for {all_of_them / 1000:.1f} ms, in"
        f" all {number} that every rank recorded: they came last, and the others waited for them"
    )
    because, at = (("Inspector", 0, text),), made.at._replace(operation=operation)
    return made + Decision(kind="slow", late=ranks, at=at, because=because, contradictions=contradictions)
