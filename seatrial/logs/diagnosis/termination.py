"""The end of a job: a hang, or a crash with its first cause.

One defect is one fault: consequences of the first cause (a lost peer) are not reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...faults.catalogue import fault_catalogue, having, worded
from ...faults.variants import Detail
from ..job.jobs import place
from ..reader.events.signals import IN_GROUP, SOME_GROUP
from ..reader.events.symptoms import SYMPTOMS
from .causes import peer_of, refine
from .fallbacks import disabled_unused
from .faults import lowered
from .interfaces import link_local_interfaces, virtual_interfaces, virtual_sockets
from .judge import Judgement
from .quotes import crash_cause, crash_lines, is_xid, later_run
from .subjects import subject_of

if TYPE_CHECKING:
    from ..job_document import EvidenceLine
    from ..reader.state.process import Note

_DIED = ("uncaught", "exception", "traceback")  # messages of a program that cannot continue
_CAUSES = {item.fault for item in SYMPTOMS if item.role == "cause"}


def judge_ending(judgement: Judgement) -> None:
    """Report a hang, or a crash with its first cause."""
    judgement.ended_badly = judgement.hang or judgement.crash
    judgement.causes = _causes_seen(judgement)
    cause = next(iter(judgement.causes), None)
    if cause is not None and _stopped_the_job(judgement, *cause):
        judgement.ended_badly = True
        name, note = cause
        detail = _explained(judgement, name, note)
        shown = judgement.line(note)
        if _NAMES_NOTHING in note.text:  # the failure is in the last error after it
            shown += judgement.line(judgement.event("last-error cuda"))
        judgement.add(name, _subject(judgement, name), shown, **detail._asdict())
        if judgement.hang:
            judgement.add(
                "nccl.hang",
                "the job",
                _hang_evidence(judgement),
                cause="it followed the fault above: %s" % lowered(judgement.faults[0]["title"]),
            )
        return
    if cause is not None and cause[0] in having("recovers") and judgement.earliest(cause[0])[1]:
        judgement.add("nccl.ib-recovered", _subject(judgement, cause[0]), judgement.line(cause[1]))
    if (judgement.hang or judgement.crash) and not _came_up(judgement) and virtual_interfaces(judgement):
        text = "the bootstrap uses %s" % ", ".join(virtual_interfaces(judgement)[:4])
        judgement.add("nccl.bootstrap-unroutable", "the job", _hang_evidence(judgement), cause=text)
        return
    waited = judgement.event("watchdog")
    if judgement.hang or (waited and judgement.crash):
        watch = {rank: numbers for source in judgement.job.sources.values() for rank, numbers in source.watch.items()}
        limit = judgement.event("time-limit")
        ended = worded("nccl.hang", limit.text) if limit is not None and not any(watch.values()) else None
        ended_detail = ended or Detail()
        why = _hang_cause(watch) or ended_detail.cause
        judgement.add("nccl.hang", "the job", _hang_evidence(judgement), cause=why, variant=ended_detail.variant)
        return
    if judgement.crash:
        for event, fault in (("launch-failed", "nccl.launch-failed"), ("oom-kill", "nccl.oom-killed")):
            said = judgement.event(event)
            if said is not None:
                judgement.add(fault, "the job", judgement.line(said))
                return
        lines = [line for note in crash_lines(judgement) for line in judgement.line(note)]
        if (kernels := judgement.event("xid")) and is_xid(kernels):
            lines += judgement.line(kernels)
        judgement.add("nccl.crash", _crash_subject(judgement), lines, cause=crash_cause(judgement))


def _explained(judgement: Judgement, name: str, note: Note) -> Detail:
    """Return the text of the cause that ended the job, by its line and the network that NCCL chose."""
    why, text, variant = refine(judgement, name, note)
    if name in having("stage", "connect") and why in (None, "nccl.bootstrap-unroutable"):
        if why is None and virtual_interfaces(judgement):
            why, text = "nccl.bootstrap-unroutable", None
        elif among := virtual_sockets(judgement, peer_of(note.text)):
            why, text = "nccl.bootstrap-unroutable", among
    if name == "nccl.bootstrap-interface" and (own := link_local_interfaces(judgement)):
        why = "nccl.bootstrap-link-local"
        text = "NCCL took %s for the bootstrap, which has only a link-local address" % ", ".join(own[:4])
    if name.startswith("nccl.ib-") and (unused := disabled_unused(judgement)):
        text = unused if text is None else "%s; %s" % (text, unused)
    if later := later_run(judgement, note):
        text = (text or fault_catalogue()[why or name].meaning) + later
    return Detail(why, text, variant)


def _came_up(judgement: Judgement) -> bool:
    """Return whether any communicator was set up."""
    return any(judgement.job.completed.values())


def _stopped_the_job(judgement: Judgement, cause: str, note: Note) -> bool:
    """Return whether a cause ended the job: it failed, waited, or never came up.

    RDMA errors may have been recovered, and MPI continues without an unusable UCX.
    """
    if judgement.crash or judgement.hang or (cause in having("deadly") and not _overcome(judgement, cause, note)):
        return True
    ended = judgement.finished or (cause in having("blame", "warning") and not any(map(judgement.event, _DIED)))
    return not ended if cause.startswith(("nccl.ib-", "nccl.ucx-")) else not ended and not _came_up(judgement)


def _overcome(judgement: Judgement, cause: str, note: Note) -> bool:
    """Return whether the job completed despite it, or NCCL came up despite the fault in a foreign line."""
    if judgement.survived(cause):
        return True
    if cause in judgement.job.noted or cause == "nccl.gpu-xid" or not (_came_up(judgement) or judgement.finished):
        return False
    return judgement.comes_earlier(note) or (cause in having("stage", "start") and not any(map(judgement.event, _DIED)))


def _subject(judgement: Judgement, name: str) -> str:
    return subject_of(judgement, judgement.job.noted.get(name, []))


_LAUNCHER = "ssh: "  # the launcher tries once
_WORKER_GONE = "connection error code 2"  # Ray does not know the reason
_NAMES_NOTHING = (
    "Call to CUDA function failed"  # text of ncclUnhandledCudaError (ncclGetErrorString), before the failed call
)


def _causes_seen(judgement: Judgement) -> list[tuple[str, Note]]:
    """Return the causes in the log: for each process its first warning that is a cause, the earliest line first.

    Warnings after the first error trace of a process are consequences, unless nothing preceded it.
    """
    causes: list[tuple[bool, int, int, str, Note]] = []
    kernel, above = having("blame", "kernel"), having("blame", "peer")
    later = having("blame", "last") | having("blame", "warning")
    for name in judgement.job.noted.keys() & _CAUSES:
        for proc in judgement.job.noted[name]:
            trace, note = proc.notes.get("trace"), proc.notes[name]
            if not note.is_cause:
                continue
            late = trace is not None and place(note) > place(trace)
            causes.append((late or name in later, note.source, note.line, name, note))
    said = {"nccl.cuda-failure"}.intersection(name for *_, name, _ in causes)  # the program only repeats NCCL's message
    bare = all(name in above | later for *_, name, _ in causes)  # an application's own message may precede it
    for source in judgement.job.sources.values():
        for event, note in source.events.items():
            name = event[8:]
            if event.startswith("symptom ") and note.is_cause and name in (_CAUSES if bare else kernel):
                warned = name in later and _LAUNCHER not in note.text
                second = warned or name in said or _NAMES_NOTHING in note.text or _WORKER_GONE in note.text
                causes.append((second, note.source, note.line, name, note))
    if _came_up(judgement) or any(
        IN_GROUP not in key for source in judgement.job.sources.values() for key in source.watch
    ):
        causes = [cause for cause in causes if cause[3] not in having("stage", "store")]
    if judgement.event("watchdog") or _unknown_end(judgement):
        causes = [cause for cause in causes if cause[3] != "nccl.store-gone"]
    if any(
        name in kernel | having("blame", "own") for *_, name, _ in causes
    ):  # the end of a rank or a NIC as seen from elsewhere
        causes = [(late or name in above, at, line, name, note) for late, at, line, name, note in causes]
    return [(name, note) for *_, name, note in sorted(causes, key=lambda item: item[:4])]


def _unknown_end(judgement: Judgement) -> bool:
    """Return whether a rank ended with an exception that no rule matches, before the store was missed."""
    died, gone = judgement.event("uncaught"), judgement.event("symptom nccl.store-gone")
    if died is None or gone is None or place(gone) < place(died):
        return False
    known = [note for event, note in judgement.job.events.items() if event.startswith(("symptom ", "last-error"))]
    return all(place(note) > place(died) for note in known)


def _hang_evidence(judgement: Judgement) -> list[EvidenceLine]:
    lines = []
    for name in ("watchdog", "time-limit", "test-timeout", "dead-peer"):
        lines.extend(judgement.line(judgement.event(name)))
    return lines


def _watch_summary(watch: dict[str, list[int]]) -> str | None:
    """Describe which ranks gave up on which operation.

    Every process group counts its own operations: numbers are compared within one group.
    """
    groups = {
        (rank, number): group
        for key, numbers in watch.items()
        for rank, within, group in [key.partition(IN_GROUP)]
        if within
        for number in numbers
    }
    watch = {key: numbers for key, numbers in watch.items() if IN_GROUP not in key}
    if not watch:
        return None
    first: dict[str, set[int]] = {}
    ranks = set()
    for key, operations in watch.items():
        rank, _, group = key.partition(" ")
        ranks.add(int(rank))
        first.setdefault(groups.get((rank, min(operations)), group), set()).add(min(operations))
    few = sorted(ranks)
    shown = ", ".join(map(str, few[:12])) + (", ..." if len(few) > 12 else "")
    behind_ranks = ("rank %s" if len(few) == 1 else "ranks %s") % shown
    numbers = sorted({number for firsts in first.values() for number in firsts})
    if len(numbers) == 1:
        return "%s waited in operation %d" % (behind_ranks, numbers[0])
    texts = ", ".join(str(item) for item in numbers[:8])
    if any(len(firsts) > 1 for group, firsts in first.items() if group != SOME_GROUP):
        return "%s waited in different operations (%s)" % (behind_ranks, texts)
    return "%s waited in operations of several communicators (%s)" % (behind_ranks, texts)


def _hang_cause(watch: dict[str, list[int]]) -> str | None:
    text = _watch_summary(watch)
    if text is None:
        return None
    if "different operations" in text:
        said = ": those at the lower number did not finish an operation that the others completed (GPU, connections)"
        return text + said + ", or the ranks of the program took different branches"
    if "several communicators" in text:
        return text + ": the log shows neither the first that stopped nor the missing rank"
    return text + ": a rank that is not among them is missing, or the network stalled"


def _crash_subject(judgement: Judgement) -> str:
    note, procs = judgement.earliest("warn")
    if note is None:
        note, procs = judgement.earliest("trace")
    first = [
        proc
        for proc in procs
        if note is not None and (proc.notes.get("warn") is note or proc.notes.get("trace") is note)
    ]
    return subject_of(judgement, first) if first else "the job"
