"""The kind of a hang, its late and waiting ranks: an ordered list of rules over the evidence."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from .completed_operations import came_last
from .contradictions import contradictions
from .counts import advanced, counted_equal, from_counts, of_the_dumps, still
from .dump_times import waited, went_on
from .gloo import overdue
from .join import waits_in_creation
from .last_enqueued import queued_less
from .minority import weigh, weigh_report
from .model import At, Decision, Doubt, Process
from .prepare import places, prepare
from .ras_text import MAX_RANKS
from .silence import silent_ranks
from .waits import analyse
from .watchdog_mismatches import called_otherwise, calls_in_words

if TYPE_CHECKING:
    from .join import Process as Spoken
    from .model import Evidence, Group, Reason, Report
    from .waits import Waits

PASSING = 2.0
"""Seconds; a dump of a time-out is minutes younger than what hangs (init_process_group: 10 minutes; 30 with gloo)."""


def decide(evidence: Evidence) -> Decision:
    """Return the decision over evidence as it was read, without the processes of a log."""
    return judge(prepare(evidence), {})


def judge(evidence: Evidence, logged: Mapping[int, Spoken]) -> Decision:
    """Return the one decision over prepared evidence; ``logged``: the processes of ranks in the job's log.

    The strongest evidence comes first: dumps, dead processes, errors, reports, counts.
    """
    errors = sorted(evidence.samples[-1].errors, key=lambda text: "Remote" in text) if evidence.samples else ()
    made = Decision(
        unknown=evidence.world - set(evidence.ranks),
        contradictions=tuple(evidence.contradictions),
        places=places(evidence),
        reported=tuple(errors),
    )
    made += overdue(evidence) or recorded(evidence) or Decision()
    for revise in (unresponsive, left_by_a_rank):
        made = revise(made, evidence)
    for rule in RULES:
        if made.kind:
            break
        made += rule(made, evidence) or Decision()
    made = came_last(replace(made, kind=made.kind or "undecided"), evidence)
    made += Decision(contradictions=tuple(contradictions(made, evidence)))
    spoke = {event.rank for event in evidence.timeouts} & evidence.failed  # their watchdogs report that they wait
    unknown = (made.unknown - spoke | made.suspects) - made.late - made.dead
    made = replace(made, unknown=unknown, waiting=made.waiting - made.late - made.dead - unknown)
    return silent_ranks(waits_in_creation(made, logged), evidence, logged)


def recorded(evidence: Evidence) -> Decision | None:
    """Return what the dumps show; its kind is empty where they prove nothing."""
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
        found = weigh(found + Decision(kind=kind, proven=True, late=analysis.late), analysis, evidence)
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


def _rankless(evidence: Evidence, state: Literal["broken", "left"]) -> Reason | None:
    """Return the first error of a state that does not show its rank: the program caught and wrote it."""
    return next((report.where for report in evidence.said(state) if not report.ranks), None)


_OF_A_TIMEOUT = (
    "the dumps do not show when they were taken, and are treated as those of a time-out, which NCCL's recorder writes"
    " by itself: if a user requested them from a running job, only a second dump of all ranks, some minutes later,"
    " shows a"
    " hang"
)


def _doubted(found: Decision, analysis: Waits, evidence: Evidence) -> Decision:
    """Take back what dumps of a job that runs show, too: written apart, or while waits were as short as they may be.

    Only a time-out, or a second look, distinguishes a hang from a short wait.
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
        text = "they do not say it, and the files are much younger than a time-out, as copies are (cp -p keeps a time)"
        doubt = Doubt("undated", text)
    elif waits.ended and waits.longest >= PASSING:
        return found
    else:
        doubt = Doubt("passing", f"{waits.longest:.1f}")
        if waits.longest < PASSING:
            found = replace(found, late=set(), suspects=set())
    return replace(found, kind="", proven=False, doubt=doubt)


def unresponsive(made: Decision, evidence: Evidence) -> Decision:
    """A process that does not answer in the last sample is dead; an earlier INCOMPLETE that answers later is not."""
    last = evidence.samples[-1] if evidence.samples else None
    gone = [process for process in last.processes if process.dead or process.silent] if last else []
    if last is None or not gone:
        return made
    if evidence.ranks and last.size and last.size != len(evidence.world):
        text = (
            f"NCCL RAS reports a communicator of {last.size} ranks, the dumps of a job of {len(evidence.world)}: its"
            " ranks are not theirs"
        )
        made += Decision(contradictions=(text,))
        if made.kind:
            return made
        gone = [replace(process, rank=None) for process in gone]
    dead = {process.rank for process in gone if process.rank is not None}
    ranked = {(process.host, process.pid) for process in gone if process.rank is not None}
    each = {(p.host, p.pid): p for p in gone}
    nameless = tuple(p for key, p in each.items() if key not in ranked and (p.pid is not None or len(each) == 1))
    reasons = [
        (last.file, 0, _gone_in_words(process)) for process in {(p.pid, p.host, p.rank): p for p in gone}.values()
    ]
    found = Decision(dead=dead, nameless=nameless, because=tuple(reasons[:4]))
    if not made.kind or made.late <= dead:
        listed = {process.rank for process in last.processes if process.rank is not None}
        everyone = listed if last.comms else set(range(min(last.size, MAX_RANKS)))  # JSON lists them
        waiting = everyone - dead if last.size and dead and not made.waiting else set()
        found += Decision(kind="dead", proven=True, waiting=waiting)
    return made + found


def _gone_in_words(process: Process) -> str:
    state = "is dead" if process.dead else "does not answer"
    name = f"rank {process.rank}" if process.rank is not None else "a process"
    what = f"process {process.pid}, GPU {process.gpu} of {process.host}" if process.pid else "RAS does not know which"
    return f"RAS: {name} ({what}) {state}"


def left_by_a_rank(made: Decision, evidence: Evidence) -> Decision:
    """Clear ranks with an operation that broke because of another rank; a single rank without a dump is gone.

    A rank that ends closes its connections; those that it was connected to fail, and others wait for these in turn.
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
    if shown and len(silent) == 1:
        waiting = set() if lost else set(evidence.ranks)  # it is unknown which of them broke
        made += Decision(kind="dead", proven=True, dead=silent, waiting=waiting)
        for report in evidence.said("unlike")[:1]:
            text = (
                "gloo says that a process was sent more data than it expected, and that ends it: look for sizes or"
                " types that differ between ranks of a group before its node"
            )
            made += Decision(because=(report.where,), contradictions=(text,))
    elif lost and made.uncounted and evidence.world <= {error.rank for error in lost}:
        # of a rank higher than all that reported
        made = replace(made + Decision(kind="dead", proven=True), nameless=(Process(None),))
    return made + Decision(because=tuple(shown))


_PAIRED = frozenset(("SEND", "RECV", "COALESCED"))


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


def _at(event: Report) -> At:
    return At(event.group or None, event.operation, event.sequence)


def _group_of(event: Report, evidence: Evidence) -> Group | None:
    """Return the group that a watchdog's line is about, where a dump lists it with the rank that reports."""
    for group in evidence.groups.values():
        if event.rank in group.members and (group.name, group.key.partition("/")[0]) == (event.group, event.number):
            return group
    return None


def timed_out_in_another(made: Decision, evidence: Evidence) -> Decision | None:  # noqa: ARG001 -- as every rule
    """Compare what timed out with what the snapshot shows others through with under the same number.

    The two use the same count (torch 2.4) where the snapshot has the rank at the number that it queued last.
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
    """The ranks furthest behind in the desync report; its numbers count from 1, SeqNum from 0 before torch 2.4."""
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
    if joined and first.operation in _PAIRED:  # the report lists the present ranks, not those that it waits for
        return found + Decision(waiting=ranks)
    otherwise = _called_otherwise(evidence, first) if joined and ranks else None
    if not ranks or otherwise:
        return found + (otherwise or Decision())
    same = [item for item in reports if (item.group, item.number) == (first.group, first.number)]
    called = evidence.said("called")
    kind = "late"
    if joined and all(_progress(item) == behind for item in same):  # no rank is ahead of them
        further = any(
            (item.group, item.number) == (first.group, first.number) and item.sequence > first.sequence
            for item in called
        )
        if first.group not in ("", "default_pg") or len(ranks) < 2 or further:
            return found + Decision(waiting=ranks)
        kind, found = "inside", found + Decision(waiting=ranks)
    elif joined and 2 * len(ranks) > len({rank for item in same for rank in item.ranks}):
        return found + Decision(waiting=ranks)  # a few are through, and nothing else is known about them
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
    return weigh_report(found, there - late) if kind == "late" else found


def _progress(item: Report) -> float:
    return -1.0 if item.sequence < 0 else item.sequence - (0.5 if item.state == "inside" else 1.0)


def _called_otherwise(evidence: Evidence, stuck: Report) -> Decision | None:
    """Compare what the snapshot shows under the number of the ranks' last operation.

    One may be through with another one.
    """
    calls: dict[str, set[int]] = defaultdict(set)
    for item in evidence.said("called"):
        if item.place == stuck.place:
            calls[item.operation] |= set(item.ranks)
    if len(calls) < 2 or not all(calls.values()) or _PAIRED & set(calls):
        return None
    common = max(calls, key=lambda name: (len(calls[name]), name))
    differing = set().union(*(ranks for name, ranks in calls.items() if name != common)) - calls[common]
    late = differing if len(differing) < len(calls[common]) else set()
    sequence = evidence.timeouts[0].sequence if evidence.timeouts else stuck.sequence
    return Decision(
        kind="mismatch",
        proven=True,
        late=late,
        waiting=set().union(*calls.values()) - late,
        at=At(stuck.group or None, common, sequence),
        called=calls_in_words(stuck.sequence, {name: len(ranks) for name, ranks in calls.items()}),
    )


def timed_out(made: Decision, evidence: Evidence) -> Decision | None:  # noqa: ARG001 -- as every rule
    """A time-out proves a hang; who is late it says only where another rank queued less, or RAS says that none is."""
    timeouts = evidence.timeouts
    if not timeouts:
        return None
    first = min(timeouts, key=lambda item: item.sequence)
    same = [each for each in timeouts if (each.group, each.number) == (first.group, first.number)]
    if not first.number and first.group not in ("", "default_pg"):
        same = [first]  # groups of one name are many
    needed = Counter(event.sequence for event in same).most_common(1)[0][0]
    behind = {event.rank for event in same if event.enqueued is not None and event.enqueued < needed}
    behind -= {event.rank for event in timeouts if event not in same}  # they wait for a rank elsewhere, too
    waiting = {event.rank for event in timeouts}
    found = Decision(waiting=waiting, at=_at(first), because=tuple(event.where for event in timeouts[:3]))
    if first.operation in _PAIRED:  # each pair has numbers of its own
        return found
    if behind:
        return found + Decision("late", proven=True, late=behind, at=_at(first)._replace(sequence=needed))
    return found + Decision("inside", proven=True) if counted_equal(evidence) else found


def blocked(made: Decision, evidence: Evidence) -> Decision | None:  # noqa: ARG001 -- as every rule
    """If no operation timed out, a blocked watchdog is the only evidence of its rank."""
    reports = evidence.said("blocked")
    if not reports or evidence.timeouts:
        return None
    suspects = {rank for item in reports for rank in item.ranks}
    seconds, because = max(item.seconds for item in reports), tuple(item.where for item in reports[:3])
    return Decision("watchdog", proven=True, suspects=suspects, seconds=seconds, because=because)


Rule = Callable[[Decision, "Evidence"], Decision | None]
"""Returns what it adds to a decision that is still open; None where it has nothing to say."""
RULES: tuple[Rule, ...] = (
    absent,
    timed_out_in_another,
    in_desync_report,
    called_otherwise,
    queued_less,
    from_counts,
    timed_out,
    blocked,
)
"""The strongest first; the first that decides a kind is the last that is asked."""
