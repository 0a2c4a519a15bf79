"""Rules over Flight Recorder dumps: the ranks that others wait for, and whether the dumps prove that the wait lasts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from .counts import advanced, of_the_dumps, still
from .dump_times import waited, went_on
from .model import At, Decision, Doubt, Process
from .waits import analyse

if TYPE_CHECKING:
    from .model import Evidence, Reason
    from .waits import Waits

PASSING = 2.0
"""Seconds. A dump of a time-out is minutes younger than the operation (init_process_group: 10 minutes; 30 with gloo).
"""
NO_PAIRS = ". gloo records no send and no receive: one of them may wait there for another rank"
_OF_A_TIMEOUT = (
    "the dumps do not show when they were taken, and are treated as those of a time-out, which NCCL's recorder writes"
    " automatically: if a user requested them from a running job, only a second dump of all ranks, some minutes later,"
    " shows a hang"
)


def recorded(evidence: Evidence) -> Decision | None:
    """Return the result of the dumps; its kind is empty if they prove nothing."""
    if not evidence.ranks:
        return None
    analysis = analyse(evidence)
    found = Decision(unknown=analysis.unknown, waiting=analysis.waiting)
    if analysis.stuck is not None:
        operation = analysis.stuck.name.partition(":")[2] or analysis.stuck.name
        at = At(evidence.groups[analysis.stuck.group].name, operation, analysis.stuck.sequence)
        found = replace(found, at=at)
    if analysis.mismatch:
        text = analysis.mismatch
        because = (("Flight Recorder", 0, text),)
        found += Decision("mismatch", proven=True, late=analysis.differing, called=text, because=because)
    elif analysis.late:
        kind = "stalled" if analysis.stalled == analysis.late else "late"
        found = _weighed(found + Decision(kind=kind, proven=True, late=analysis.late), analysis, evidence)
    elif analysis.crossed:
        first = analysis.heads.get(min(analysis.out_of_step)) if analysis.out_of_step else None
        called = f"{first.name} {first.sequence} of {evidence.groups[first.group].name}" if first else ""
        found += Decision(kind="order", proven=True, late=analysis.out_of_step, called=called)
        found = replace(found, waiting=found.waiting - analysis.out_of_step)
    elif len(analysis.inside) > 1 and not analysis.unknown:
        if not evidence.world <= evidence.listed:
            found = replace(found, uncounted=True)
        else:
            found += Decision(kind="inside", proven=True)
        heads = [analysis.heads[rank] for rank in analysis.inside if rank in analysis.heads]
        sizes = Counter(head.sizes for head in heads)
        if len(sizes) > 1 and len({(head.group, head.sequence) for head in heads}) == 1:
            called = " and ".join(f"{size} ({count})" for size, count in sizes.most_common(3))
            found = replace(found, called=called)
    ended = _rankless(evidence, "broken") or _rankless(evidence, "left")
    if ended and found.proven and not all(head.marked for head in analysis.heads.values()):
        found += Decision(because=(ended,))
    elif not analysis.mismatch and not evidence.timeouts and not evidence.broken:
        found = _doubted(found, analysis, evidence)
    return found + Decision(because=tuple(_position(rank, analysis, evidence) for rank in sorted(found.late)[:4]))


def _position(rank: int, analysis: Waits, evidence: Evidence) -> Reason:
    head = analysis.heads.get(rank)
    where = (
        f"is at {head.name} {head.sequence} of {evidence.groups[head.group].name}, and waits for no rank"
        if head
        else "has no pending operation, while others wait for it"
    )
    return "Flight Recorder", 0, f"rank {rank} {where}"


def _weighed(made: Decision, waits: Waits, evidence: Evidence) -> Decision:
    """Return the decision without the late ranks that the dumps do not prove.

    A few ranks that called one operation more than the others look as if all others were late: these are suspects.
    """
    idle = waits.late - set(waits.heads)
    if waits.stalled or not idle or len(waits.late | waits.unknown) < 2:
        return made
    waiting = len(waits.waiting) or len(waits.unknown)
    if waiting < len(waits.late) + bool(waits.unknown):
        return made.suspecting(waits.waiting)
    if any(by.sends for by in evidence.ranks.values()):
        made = replace(made, unsure=NO_PAIRS)
        return made.suspecting(set()) if len(waits.late) > 1 else made
    return made


def _doubted(found: Decision, analysis: Waits, evidence: Evidence) -> Decision:
    """Withdraw results that dumps of a running job also show: written at different times, or after short waits.

    Only a time-out, or a second set of dumps, distinguishes a hang from a short wait.
    """
    moved = went_on(evidence) if evidence.went_on is None else evidence.went_on
    if moved or (of_the_dumps(evidence) and advanced(evidence)):
        doubt = Doubt("moved", moved) if moved else None
        return replace(found, kind="", proven=False, late=set(), waiting=set(), suspects=set(), doubt=doubt)
    if evidence.went_on is not None or evidence.lagging or (of_the_dumps(evidence) and still(evidence)):
        return found
    waits = waited(evidence.ranks, analysis.heads)
    if waits is None:
        if not analysis.heads or any(head.created for head in analysis.heads.values()):
            return found
        doubt = Doubt("undated", "their entries have no time, which every recorder writes: they were altered")
    elif not waits.dated and waits.by_itself:
        return found + Decision(contradictions=(_OF_A_TIMEOUT,))
    elif not waits.dated:
        text = (
            "they do not record it, and the files are much younger than a time-out, as copies are (cp -p keeps a time)"
        )
        doubt = Doubt("undated", text)
    elif waits.ended and waits.longest >= PASSING:
        return found
    else:
        doubt = Doubt("passing", f"{waits.longest:.1f}")
        if waits.longest < PASSING:
            found = replace(found, late=set(), suspects=set())
    return replace(found, kind="", proven=False, doubt=doubt)


def left_by_a_rank(made: Decision, evidence: Evidence) -> Decision:
    """Clear ranks with an operation that failed because of another rank; a single rank without a dump is dead.

    A rank that exits closes its connections. Its peers fail, and others wait for these in turn.
    """
    broken, closed = evidence.broken, _rankless(evidence, "left")
    cleared = set(broken)
    made = replace(made, suspects=made.suspects - cleared)
    if made.kind == "mismatch" and made.late:
        made = replace(made, waiting=made.waiting | cleared)
    explained = cleared or closed
    if made.kind not in ("", "late", "stalled") or not evidence.ranks or not explained or made.seconds:
        return made
    made = replace(made, waiting=made.waiting | cleared)
    if made.late - cleared or (made.suspects and made.proven):
        return replace(made, late=made.late - cleared)
    made = replace(made, kind="", late=set(), proven=False)
    lost = [error for error in broken.values() if error.state == "left"]
    shown = [error.where for error in lost[:3]] or ([closed] if closed else [])
    silent = made.unknown - {rank for rank, error in broken.items() if error.state == "broken"}
    if shown and len(silent) == 1 and silent.isdisjoint(evidence.unread):
        waiting = set() if lost else set(evidence.ranks)  # the failed ones are unknown
        made += Decision(kind="dead", proven=True, dead=silent, waiting=waiting)
        for report in evidence.said("unlike")[:1]:
            text = (
                "gloo reports that a process received more data than it expected and ended: look for sizes or"
                " types that differ between ranks of a group before its node"
            )
            made += Decision(because=(report.where,), contradictions=(text,))
    elif lost and made.uncounted and evidence.world <= {error.rank for error in lost}:
        # of a rank with a higher number than all that reported
        made = replace(made + Decision(kind="dead", proven=True), nameless=(Process(None),))
    return made + Decision(because=tuple(shown))


def _rankless(evidence: Evidence, state: Literal["broken", "left"]) -> Reason | None:
    """Return the first error of a state without a rank: the program caught and printed it."""
    return next((report.where for report in evidence.said(state) if not report.ranks), None)
