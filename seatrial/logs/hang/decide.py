"""The kind of a hang, its late and waiting ranks: facts in, one decision out."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict

from .completed_operations import from_records, from_times
from .contradictions import add_contradictions
from .counts import advanced, counted_equal, from_counts, looks, of_the_dumps, still
from .dump_times import beginning_lost, of_another_run, waited, went_on
from .gloo_latecomers import overdue
from .last_enqueued import queued_less
from .minority import weigh, weigh_report
from .model import Decision, Evidence, Group, Lagging, Process, Timeout, by_gloo
from .waits import Waits, analyse
from .watchdog import in_world
from .watchdog_mismatches import called_otherwise

PASSING = 2.0
"""Seconds; a dump of a time-out is minutes younger than what hangs (init_process_group: 10 minutes; 30 with gloo)."""


def decide(evidence: Evidence) -> Decision:
    """Return the one decision over all evidence; the strongest comes first: dead, recorder, reports, counts."""
    samples = looks(evidence.samples)
    copies, evidence.samples = len(evidence.samples) - len(samples), samples
    evidence.lagging = in_world(evidence, evidence.lagging)
    if evidence.ranks:
        evidence.world |= set(evidence.broken)
    dumped = bool(evidence.ranks)
    old, cut = of_another_run(evidence), beginning_lost(evidence)
    for rank in old | cut:
        del evidence.ranks[rank]
    made = Decision(unknown=set(evidence.world) - set(evidence.ranks) if dumped else set())
    if copies:
        made.contradictions.append(
            f"{copies} of the answers of RAS show no second moment: copies of another one, or written at once with it."
            " Ask again, some seconds later"
        )
    if evidence.joined:
        made.contradictions.append(
            f"the dumps named {evidence.joined} are taken for one job's: their ranks complete one another, and a dump"
            f" names neither host nor job. If they are of two, give each its own folder"
        )
    if old:
        made.contradictions.append(
            f"the dumps of ranks {sorted(old)[:8]} are of an earlier run: the others queued, later than its time-out"
            f" allows, operations that these ranks have completed. They are not counted"
        )
    if cut:
        made.contradictions.append(
            f"the recorders of ranks {sorted(cut)[:8]} hold pending operations only, and earlier ones are lost: their"
            f" position is not known. A larger TORCH_FR_BUFFER_SIZE keeps it"
        )
    if samples:
        made.reported = sorted(samples[-1].errors, key=lambda text: "Remote" in text)
    _places(made, evidence)
    recorded = overdue(made, evidence) or _from_recorder(made, evidence)
    _from_ras_dead(made, evidence)
    _from_errors(made, evidence)
    if made.kind == "undecided":
        for rule in (
            _absent,
            _timed_out_in_another,
            _from_desync,
            called_otherwise,
            queued_less,
            *([from_counts] if of_the_dumps(evidence) else []),
            _from_watchdog,
            _from_blocked_watchdogs,
        ):
            if rule(made, evidence):
                break
    if evidence.performed:
        from_times(made, evidence)
    if not recorded and made.kind == "undecided" and evidence.performed:
        from_records(made, evidence)
    add_contradictions(made, evidence)
    spoke = {event.rank for event in evidence.timeouts} & evidence.failed  # their watchdogs report that they wait
    made.unknown = (made.unknown - spoke | made.suspects) - made.late - made.dead
    made.waiting -= made.late | made.dead | made.unknown
    return made


def _places(made: Decision, evidence: Evidence) -> None:
    """Where a rank runs, by RAS; a dead process without a rank is found again by host and process."""
    size = len(evidence.world) if evidence.ranks else 0  # of dumps; RAS of more ranks is another job's
    every = [each for sample in evidence.samples if not size or sample.size <= size for each in sample.processes]
    ranks: dict[tuple[str, int | None], int] = {(p.host, p.pid): p.rank for p in every if p.rank is not None and p.pid}
    for process in every:
        if process.rank is None:
            process.rank = ranks.get((process.host, process.pid))
        if process.rank is not None and process.host:
            made.places[process.rank] = process
    for done in evidence.performed.values():
        if done.host and done.size >= len(evidence.world):
            made.places.setdefault(done.rank, Process(done.rank, done.host))


def _from_recorder(made: Decision, evidence: Evidence) -> bool:
    if not evidence.ranks:
        return False
    analysis = analyse(evidence)
    made.unknown |= analysis.unknown
    made.waiting |= analysis.waiting
    if analysis.stuck is not None:
        made.group = evidence.groups[analysis.stuck.group].name
        made.operation = analysis.stuck.name.partition(":")[2] or analysis.stuck.name
        made.sequence = analysis.stuck.sequence
    if analysis.mismatch:
        made.kind, made.late, made.proven = "mismatch", analysis.differing, True
        made.because.append(("Flight Recorder", 0, analysis.mismatch))
        made.called = analysis.mismatch
    elif analysis.late:
        made.kind = "stalled" if analysis.stalled == analysis.late else "late"
        made.late, made.proven = analysis.late, True
        weigh(made, analysis, evidence)
    elif analysis.crossed:
        made.kind, made.proven, made.late = "order", True, analysis.out_of_step
        made.waiting -= analysis.out_of_step
        first = analysis.heads.get(min(analysis.out_of_step)) if analysis.out_of_step else None
        if first is not None:
            made.called = f"{first.name} {first.sequence} of {evidence.groups[first.group].name}"
    elif len(analysis.inside) > 1 and not analysis.unknown:
        made.uncounted = not evidence.world <= evidence.listed
        made.kind, made.proven = ("undecided", False) if made.uncounted else ("inside", True)
        heads = [analysis.heads[rank] for rank in analysis.inside if rank in analysis.heads]
        sizes = Counter(head.sizes for head in heads)
        if len(sizes) > 1 and len({(head.group, head.sequence) for head in heads}) == 1:
            made.uneven = " and ".join(f"{size} ({count})" for size, count in sizes.most_common(3))
    ended = evidence.gave_up or evidence.closed
    if ended and made.proven and any(by_gloo(head) for head in analysis.heads.values()):
        made.because.append(ended)
    elif not analysis.mismatch and not evidence.timeouts and not evidence.broken:
        _doubt(made, analysis, evidence)
    for rank in sorted(made.late)[:4]:
        head = analysis.heads.get(rank)
        where = (
            f"is at {head.name} {head.sequence} of {evidence.groups[head.group].name}, and waits for no rank"
            if head
            else "has no pending operation, while others wait for it"
        )
        made.because.append(("Flight Recorder", 0, f"rank {rank} {where}"))
    return bool(analysis.heads)


_OF_A_TIMEOUT = (
    "the dumps do not show when they were taken, and are treated as those of a time-out, which NCCL's recorder writes"
    " by itself: if a user requested them from a running job, only a second dump of all ranks, some minutes later,"
    " shows a"
    " hang"
)


def _doubt(made: Decision, analysis: Waits, evidence: Evidence) -> None:
    """Take back what dumps of a job that runs show, too: written apart, or while waits were as short as they may be.

    Only a time-out, or a second look, distinguishes a hang from a short wait.
    """
    made.moved = evidence.moved or (went_on(evidence) if evidence.standing is None else "")
    if made.moved or (evidence.ranks and of_the_dumps(evidence) and advanced(evidence)):
        made.kind, made.proven, made.late, made.waiting = "undecided", False, set(), set()
        made.suspects = set()
        return
    if evidence.standing is not None or evidence.lagging or (of_the_dumps(evidence) and still(evidence)):
        return
    waits = waited(evidence.ranks, analysis.heads)
    if waits is None:
        if not analysis.heads or any(head.created for head in analysis.heads.values()):
            return
        made.undated = "their entries have no time, which every recorder writes: they were altered"
    elif not waits.dated and waits.by_itself:
        made.contradictions.append(_OF_A_TIMEOUT)
        return
    elif not waits.dated:
        made.undated = (
            "they do not say it, and the files are much younger than a time-out, as copies are (cp -p keeps a time)"
        )
    elif waits.ended and waits.longest >= PASSING:
        return
    made.kind, made.proven = "undecided", False
    made.passing = None if waits is None or made.undated else waits.longest
    if waits is not None and not made.undated and waits.longest < PASSING:
        made.late, made.suspects = set(), set()


def _from_ras_dead(made: Decision, evidence: Evidence) -> None:
    """A process that does not answer in the last sample is dead; an earlier INCOMPLETE that answers later is not."""
    if not evidence.samples:
        return
    last = evidence.samples[-1]
    gone = [process for process in last.processes if process.dead or process.silent]
    if not gone:
        return
    if evidence.ranks and last.size and last.size != len(evidence.world):
        made.contradictions.append(
            f"NCCL RAS reports a communicator of {last.size} ranks, the dumps of a job of {len(evidence.world)}: its"
            " ranks are not theirs"
        )
        if made.kind != "undecided":
            return
        gone = [dataclasses.replace(process, rank=None) for process in gone]
    made.dead = {process.rank for process in gone if process.rank is not None}
    ranked = {(process.host, process.pid) for process in gone if process.rank is not None}
    each = {(p.host, p.pid): p for p in gone}
    made.nameless = [
        p for process_name, p in each.items() if process_name not in ranked and (p.pid is not None or len(each) == 1)
    ]
    if made.kind == "undecided" or made.late <= made.dead:
        made.kind, made.proven, made.late = "dead", True, set()
        if last.size and made.dead and not made.waiting:
            listed = {process.rank for process in last.processes if process.rank is not None}
            everyone = listed if last.comms else set(range(min(last.size, 1_000_000)))  # JSON lists them
            made.waiting = everyone - made.dead
    for process in list({(p.pid, p.host, p.rank): p for p in gone}.values())[:4]:
        state = "is dead" if process.dead else "does not answer"
        process_name = f"rank {process.rank}" if process.rank is not None else "a process"
        what = (
            f"process {process.pid}, GPU {process.gpu} of {process.host}" if process.pid else "RAS does not know which"
        )
        made.because.append((last.file, 0, f"RAS: {process_name} ({what}) {state}"))


def _from_errors(made: Decision, evidence: Evidence) -> None:
    """Clear ranks with an operation that broke because of another rank; a single rank without a dump is gone.

    A rank that ends closes its connections; those that it was connected to fail, and others wait for these in turn.
    """
    cleared = set(evidence.broken)
    made.suspects -= cleared
    if made.kind == "mismatch" and made.late:
        made.waiting |= cleared
    explained = cleared or evidence.closed
    if made.kind not in ("undecided", "late", "stalled") or not evidence.ranks or not explained or made.seconds:
        return
    made.waiting |= cleared
    if made.late - cleared or (made.suspects and made.proven):
        made.late -= cleared
        return
    made.kind, made.late, made.proven = "undecided", set(), False
    lost = [error for error in evidence.broken.values() if error.gone]
    shown = [(error.file, error.line, error.text) for error in lost[:3]] or (
        [evidence.closed] if evidence.closed else []
    )
    silent = made.unknown - {rank for rank, error in evidence.broken.items() if not error.gone}
    if shown and len(silent) == 1:
        made.kind, made.dead, made.proven = "dead", silent, True
        made.waiting |= set(evidence.ranks) if not lost else set()  # it is unknown which of them broke
        if evidence.unlike:
            made.because.append(evidence.unlike)
            made.contradictions.append(
                "gloo says that a process was sent more data than it expected, and that ends it: look for sizes or"
                " types that differ between ranks of a group before its node"
            )
    elif lost and made.uncounted and evidence.world <= {error.rank for error in lost}:
        made.kind, made.nameless, made.proven = "dead", [Process(None)], True  # of a rank higher than all that reported
    made.because += shown


_PAIRED = frozenset(("SEND", "RECV", "COALESCED"))


def _from_desync(made: Decision, evidence: Evidence) -> bool:
    """The ranks furthest behind in the desync report; its numbers count from 1, SeqNum from 0 before torch 2.4."""
    if not evidence.lagging:
        return False

    def progress(item: Lagging) -> float:
        return -1.0 if item.sequence is None else item.sequence - 0.5 if item.joined else item.sequence - 1.0

    reports = [item for item in evidence.lagging if item.ranks] or evidence.lagging
    behind = min(progress(item) for item in reports)
    worst = [item for item in reports if progress(item) == behind]
    ranks = {rank for item in worst for rank in item.ranks}
    made.because += [(item.file, item.line, item.text) for item in worst[:3]]
    if evidence.ranks and not worst[0].joined and worst[0].operation != "monitored_barrier":
        ranks -= made.waiting  # their dumps show them there
    if (
        worst[0].joined and worst[0].operation in _PAIRED
    ):  # the report lists the present ranks, not those that it waits for
        made.waiting |= ranks
        return False
    if not ranks or (worst[0].joined and _called_otherwise(made, evidence, worst[0])):
        return made.proven
    same = [item for item in reports if item.group == worst[0].group]
    called = in_world(evidence, evidence.called)
    if worst[0].joined and all(progress(item) == behind for item in same):  # no rank is ahead of them
        made.waiting |= ranks
        went_on = any(
            item.group == worst[0].group and (item.sequence or 0) > (worst[0].sequence or 0) for item in called
        )
        if worst[0].group[1] not in ("", "default_pg") or len(ranks) < 2 or went_on:
            return False
        made.kind = "inside"
    elif worst[0].joined and 2 * len(ranks) > len({rank for item in same for rank in item.ranks}):
        made.waiting |= ranks  # a few are through, and nothing else is known about them
        return False
    else:
        made.kind, made.late = ("stalled" if worst[0].joined else "late"), ranks
    made.proven = True
    made.waiting |= ({event.rank for event in evidence.timeouts} | set(evidence.broken)) - made.late
    if made.kind == "late":
        weigh_report(made, {r for item in called if _same_place(item, worst[0]) for r in item.ranks} - made.late)
    timeout = evidence.timeouts[0] if evidence.timeouts else None
    made.operation = worst[0].operation or (timeout.operation if timeout else None)
    made.sequence = timeout.sequence if timeout else None if worst[0].sequence is None else worst[0].sequence - 1
    made.group = (timeout.group if timeout else None) or None
    return True


def _absent(made: Decision, evidence: Evidence) -> bool:
    """Name the ranks without a pending operation in their dump that never queued their group's timed-out operation."""
    absent: dict[Timeout, set[int]] = {}
    for event in evidence.timeouts:
        group = _group_of(event, evidence)
        if group is None or event.operation in _PAIRED or event.rank not in evidence.failed:
            continue
        idle = {m for m in group.members if m in evidence.ranks and not evidence.ranks[m].pending}
        missing = {m for m in idle if evidence.ranks[m].enqueued.get(group.key, -1) < event.sequence}
        if missing:
            absent[event] = missing
    late = set().union(*absent.values())
    waiting = {event.rank for event in evidence.timeouts if event.rank in evidence.failed} - late
    if not late or len(waiting) < len(late):
        return False
    event = min(absent, key=lambda event: (event.group in ("", "default_pg"), event.sequence))
    made.kind, made.late, made.proven = "late", late, True
    made.waiting |= waiting
    made.group, made.operation, made.sequence = event.group or None, event.operation, event.sequence
    made.because += [(event.file, event.line, event.text) for event in list(absent)[:3]]
    return True


def _group_of(event: Timeout, evidence: Evidence) -> Group | None:
    """Return the group that a watchdog's line is about, where a dump lists it with the rank that reports."""
    for group in evidence.groups.values():
        if event.rank in group.members and (group.name, group.key.partition("/")[0]) == (event.group, event.number):
            return group
    return None


def _timed_out_in_another(made: Decision, evidence: Evidence) -> bool:
    """Compare what timed out with what the snapshot shows others through with under the same number.

    The two use the same count (torch 2.4) where the snapshot has the rank at the number that it queued last.
    """
    called = in_world(evidence, evidence.called)
    for event in evidence.timeouts:
        if not any(event.rank in item.ranks and item.sequence == event.enqueued for item in called):
            continue
        there = [item for item in called if item.sequence == event.sequence and item.reporter[0] == event.rank]
        callers = {rank for item in there for rank in item.ranks}
        names = {item.operation for item in there}
        if len(callers) < 2 or {event.operation} & names or _PAIRED & {event.operation, *names}:
            continue
        made.kind, made.proven, made.late = "mismatch", True, {event.rank}
        made.group, made.operation, made.sequence = event.group or None, event.operation, event.sequence
        ranks = f"{len(callers)} ranks called {' and '.join(sorted(names))}"
        made.called = f"as number {event.sequence}: 1 rank called {event.operation}, {ranks}"
        made.because.append((event.file, event.line, event.text))
        return True
    return False


def _called_otherwise(made: Decision, evidence: Evidence, stuck: Lagging) -> bool:
    """Compare what the snapshot shows under the number of the ranks' last operation.

    One may be through with another one.
    """
    calls: dict[str, set[int]] = defaultdict(set)
    for item in in_world(evidence, evidence.called):
        if (item.group, item.sequence) == (stuck.group, stuck.sequence):
            calls[item.operation] |= set(item.ranks)
    if len(calls) < 2 or not all(calls.values()) or _PAIRED & set(calls):
        return False
    common = max(calls, key=lambda name: (len(calls[name]), name))
    differing = set().union(*(ranks for name, ranks in calls.items() if name != common)) - calls[common]
    made.kind, made.proven = "mismatch", True
    made.late = differing if len(differing) < len(calls[common]) else set()
    made.waiting |= set().union(*calls.values()) - made.late
    made.group, made.operation = stuck.group[1] or None, common
    made.sequence = evidence.timeouts[0].sequence if evidence.timeouts else stuck.sequence
    made.called = f"as number {stuck.sequence}: " + ", ".join(
        f"{len(ranks)} rank{'s' if len(ranks) > 1 else ''} called {name}" for name, ranks in sorted(calls.items())
    )
    return True


def _from_watchdog(made: Decision, evidence: Evidence) -> bool:
    """A time-out proves a hang; who is late it says only where another rank queued less, or RAS says that none is."""
    if not evidence.timeouts:
        return False
    first = min(evidence.timeouts, key=lambda item: item.sequence)
    made.group, made.operation, made.sequence = first.group or None, first.operation, first.sequence
    same = [each for each in evidence.timeouts if (each.group, each.number) == (first.group, first.number)]
    if not first.number and first.group not in ("", "default_pg"):
        same = [first]  # groups of one name are many
    needed = Counter(event.sequence for event in same).most_common(1)[0][0]
    made.waiting |= {event.rank for event in evidence.timeouts}
    made.because += [(event.file, event.line, event.text) for event in evidence.timeouts[:3]]
    behind = {event.rank for event in same if event.enqueued is not None and event.enqueued < needed}
    behind -= {event.rank for event in evidence.timeouts if event not in same}  # they wait for a rank elsewhere, too
    if first.operation in _PAIRED:
        behind = set()  # each pair has numbers of its own
    if behind:
        made.kind, made.late, made.sequence, made.proven = "late", behind, needed, True
    elif counted_equal(evidence) and first.operation not in _PAIRED:
        made.kind, made.proven = "inside", True
    return True


def _from_blocked_watchdogs(made: Decision, evidence: Evidence) -> bool:
    """If no operation timed out, a blocked watchdog is the only evidence of its rank."""
    if not evidence.blocked or evidence.timeouts:
        return False
    made.kind, made.proven = "watchdog", True
    made.suspects = {item.rank for item in evidence.blocked if item.rank is not None}
    made.seconds = max(item.seconds for item in evidence.blocked)
    made.because += [item.where for item in evidence.blocked[:3]]
    return True


def _same_place(item: Lagging, behind: Lagging) -> bool:
    """Return whether a snapshot shows ranks at the operation that other ranks did not join."""
    return item.group == behind.group and item.sequence is not None and item.sequence == behind.sequence
