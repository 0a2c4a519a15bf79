"""Name the evidence of a hang that contradicts the decision, and the side that is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .counts import advanced, from_counts, of_the_dumps, still
from .model import Decision

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Evidence


def contradictions(made: Decision, evidence: Evidence) -> Iterator[str]:
    """Return the contradicting evidence, with the correct side and the reason."""
    ok = bool(evidence.samples) and evidence.samples[-1].ok and of_the_dumps(evidence)
    if not of_the_dumps(evidence) and not any("its ranks are not theirs" in text for text in made.contradictions):
        yield (
            f"NCCL RAS reports a job of {evidence.samples[-1].size} ranks, the dumps of one of {len(evidence.world)}:"
            " its ranks are not theirs, and its counts are not used for this job"
        )
    if evidence.timeouts and of_the_dumps(evidence) and advanced(evidence):
        yield (
            "the counts of NCCL RAS advance between its samples while the watchdog says that the job hangs: both are"
            " right, at different times. RAS was asked while the job continued, and does not show the state of the hang"
        )
    elif ok and (evidence.timeouts or made.kind in ("late", "stalled", "inside", "mismatch")):
        source = "the watchdog" if evidence.timeouts else "the Flight Recorder"
        yield (
            f"NCCL RAS says OK while {source} says that the job hangs: {source} is right. RAS compares how many "
            "operations were launched, and those are equal where all ranks are inside one (NVIDIA/nccl#1730)"
        )
    if evidence.ranks and made.kind in ("alive", "slow"):
        yield (
            "the counts of NCCL RAS advance between its samples, regardless of the dumps: RAS is right about the"
            " time of its samples, the dumps about the time when they were written"
        )
    if alive := made.dead & {rank for rank, dump in evidence.ranks.items() if dump.pending}:
        yield (
            f"NCCL RAS reports ranks {sorted(alive)[:8]} as dead, but their dumps show them waiting: RAS shows the"
            " current state, the dumps an earlier one"
        )
    lagging = {rank for item in evidence.lagging for rank in item.ranks}
    if evidence.ranks and made.late and lagging and not made.late & lagging:
        yield (
            f"the desync report names ranks {sorted(lagging)[:8]} and the dumps do not: the dumps are right, because "
            "the report compares the numbers of one group only: it sees no other operation under the same number, no "
            "send or receive, and no chain of waits over several groups"
        )
    if evidence.ranks and made.kind == "late" and of_the_dumps(evidence) and still(evidence):
        counted = from_counts(Decision(), evidence)
        if counted and counted.kind and counted.late and not counted.late & made.late:
            yield (
                f"NCCL RAS finds ranks {sorted(counted.late)[:8]} behind and the dumps do not: the dumps are right"
                " about the hang that they were written for, because they contain each rank's calls in every group"
            )
    timed_out = {event.rank for event in evidence.timeouts}
    if made.kind == "late" and evidence.ranks and made.late & timed_out:
        yield "late ranks also report time-outs: they wait in another group for ranks that they hold up themselves"
