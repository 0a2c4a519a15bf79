"""The last attempt of a restarted job, as torchrun restarts it with --max-restarts.

Its processes are new, of the same ranks on the same GPUs, and begin after the last line of the earlier ones. Or it has
all of NCCL's lines in the log, and the failure precedes it. Communicators are distinguished by their ids.
"""

from __future__ import annotations

import copy

from ..job_document import EvidenceLine
from ..reader.events.signals import TROUBLE
from ..reader.state.process import Proc, Source
from .jobs import Job

_FAILS = ("symptom ", "last-error")  # prefixes of further events against a job


def last_attempt(job: Job) -> Job | None:
    """Return the last attempt as a separate job, without the earlier lines; None if there was only one.

    Streams that show no attempt are kept whole, since their attempt is unknown.
    """
    attempts = _attempts(job.procs)
    last = attempts[0] if len(attempts) == 1 else _last(job, attempts)
    starts = _starts(job, last)
    if any(_both(source, starts.get(index, 0)) for index, source in job.sources.items()):
        return None  # lines before the attempt and in it: their owner cannot be determined
    before = [table for index, line in starts.items() for table in job.sources[index].tables if table["line"] < line]
    if not starts or any(not table["complete"] for table in before):
        return None  # an incomplete benchmark is not an attempt at the next one
    apart = [note for proc in job.procs if not proc.comms for note in proc.notes.values()]
    if any(note.line < starts.get(note.source, 0) <= note.last for note in apart):
        return None  # an incomplete benchmark, as above
    earlier = [proc for proc in job.procs if proc.comms and proc not in last]
    if any(note.last >= starts.get(note.source, 0) for proc in earlier for note in proc.notes.values()):
        return None
    sources = {index: _since(source, starts.get(index, 0)) for index, source in job.sources.items()}
    procs = [proc for proc in job.procs if proc in last or (not proc.comms and _writes_since(proc, starts))]
    same = len(procs) == len(job.procs) and all(
        len(source.events) == len(job.sources[index].events) for index, source in sources.items()
    )
    return None if same else Job(sources, procs, job.limited)


def comes_earlier(evidence: list[EvidenceLine], last: Job) -> bool:
    """Return whether the first evidence line precedes the attempt, in a stream that shows the attempt's start."""
    begins = {
        source.name: min((first for key, (first, _) in source.spans.items() if key in last.comms), default=0)
        for source in last.sources.values()
    }
    return all(each["line"] < begins.get(each["file"] or "", 0) for each in evidence[:1])


def _attempts(procs: list[Proc]) -> list[set[Proc]]:
    """Return the groups of processes that share communicators."""
    group_of: dict[str, list[Proc]] = {}  # groups by communicator
    for proc in procs:
        keys = [key for key, _ in proc.comms if key.startswith("0x")]
        known = {id(group_of[key]): group_of[key] for key in keys if key in group_of}
        group = max(known.values(), key=len, default=[])  # the smaller groups are moved, so that no item moves often
        for other in known.values():
            if other is not group:
                group += other
                group_of.update({key: group for each in other for key, _ in each.comms if key in group_of})
        group.append(proc)
        group_of.update(dict.fromkeys(keys, group))
    groups = {id(group): group for group in group_of.values()}.values()
    return [set(group) for group in groups] or [{proc for proc in procs if proc.comms}]


def _last(job: Job, attempts: list[set[Proc]]) -> set[Proc]:
    """Return the processes of the attempt that began after all others, of the same ranks and GPUs; else none."""
    shown = {index: source.spans for index, source in job.sources.items() if source.spans}
    places = []
    for members in attempts:
        keys = {key for proc in members for key, _ in proc.comms}
        lines = {index: [spans[key] for key in keys & spans.keys()] for index, spans in shown.items()}
        places.append({index: (min(each)[0], max(line for _, line in each)) for index, each in lines.items() if each})
    order = sorted(range(len(attempts)), key=lambda at: max(first for first, _ in places[at].values() or [(0, 0)]))
    last = order[-1]
    for other in order[:-1]:
        both = places[last].keys() & places[other].keys()
        behind = bool(both) and all(places[other][index][1] < places[last][index][0] for index in both)
        if not behind or not _same_ranks(attempts[other], attempts[last]):
            return set()
    return attempts[last]


def _same_ranks(one: set[Proc], other: set[Proc]) -> bool:
    """Return whether two attempts share a place: a rank with the same host and GPU in both."""
    places = [
        {(proc.host, dev, rank) for proc in each for dev in proc.devs for _, rank in proc.comms}
        for each in (one, other)
    ]
    return not places[0].isdisjoint(places[1])


def _starts(job: Job, last: set[Proc]) -> dict[int, int]:
    """Return the first line of the attempt in each stream that shows it."""
    keys = {key for proc in last for key, _ in proc.comms}
    starts = {}
    for index, source in job.sources.items():
        lines = [first for key, (first, _) in source.spans.items() if key in keys]
        if lines:
            starts[index] = min(lines)
    return starts


def _since(source: Source, start: int) -> Source:
    """Return a stream without evidence against a job before a line."""
    since = copy.copy(source)
    since.events = {name: note for name, note in source.events.items() if note.last >= start or not _fails(name)}
    since.watch = source.watch if "watchdog" in since.events else {}
    since.tables = [table for table in source.tables if table["line"] >= start]
    return since


def _fails(event: str) -> bool:
    return event in TROUBLE or event.startswith(_FAILS)


def _both(source: Source, start: int) -> bool:
    return any(note.line < start <= note.last for name, note in source.events.items() if _fails(name))


def _writes_since(proc: Proc, starts: dict[int, int]) -> bool:
    """Return whether a process without a communicator may belong to an attempt that begins at these lines."""
    return not proc.notes or any(note.last >= starts.get(note.source, 0) for note in proc.notes.values())
