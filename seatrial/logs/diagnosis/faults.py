"""The log analyzer's part of the fault catalogue, and its diagnoses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...faults.actions import Action
from ...faults.catalogue import catalogue, failure_class
from ...faults.xid import action_of_fault

if TYPE_CHECKING:
    from ...faults.catalogue import Fault
    from ...faults.variants import Variant
    from ..job_document import EvidenceLine, FoundFault, JobDocument


def found_fault(
    fault: str,
    subject: str,
    evidence: list[EvidenceLine],
    *,
    why: str | None = None,
    cause: str | None = None,
    variant: Variant | None = None,
) -> FoundFault:
    """Return a fault of a job; ``why`` names the fault that explains it and supplies cause, confirmation and remedy.

    Those of a variant of the fault take precedence.
    """
    entry = catalogue()[fault]
    reason = catalogue()[why] if why else entry
    made: FoundFault = {
        "fault": fault,
        "severity": entry.severity,
        "title": entry.title,
        "subject": subject,
        "why": why,
        "evidence": evidence[:6],
        "cause": cause or reason.meaning,
        "confirm": (variant and variant.confirm) or reason.confirm,
        "remedy": (variant and variant.remedy) or reason.remedy,
        "failure": (variant and variant.failure) or reason.failure,
    }
    if reason.action:
        made["action"] = _action(reason, " ".join(line["text"] for line in evidence))
    return made


def _action(entry: Fault, text: str) -> str:
    """Return what a fault's lines ask to do with its node: by an Xid, else by the fault itself."""
    by_number = action_of_fault(entry.id, text)
    return entry.action_for(text) if by_number in (None, Action.UNKNOWN) else str(by_number)


def failure_class_of(job: JobDocument) -> str | None:
    """Return whether a job's failure is the program's or the infrastructure's; None if unknown.

    If another fault explains one, the explanation decides. A fault that ended the job comes before one that slowed it:
    sockets do not explain a rank that sleeps.
    """
    if job["verdict"] == "go":
        return None
    fatal = [fault for fault in job["faults"] if fault["severity"] == "fatal"]
    bad = fatal or [fault for fault in job["faults"] if fault["severity"] == "degraded"]
    return failure_class(fault["failure"] for fault in bad)


DIAGNOSES: tuple[str, ...] = (
    "healthy-rdma",  # several hosts, RDMA with GPUDirect (or its own fabric) on every channel that the log shows
    "healthy-nvlink-limited",  # two hosts, and more than their NICs carry: NVLink limits the algorithm that NCCL chose
    "healthy-nvlink-fabric",  # several hosts inside one NVLink domain
    "healthy-single-node",  # one host, and its ranks connected
    "single-rank",  # one rank, which sends nothing
    "table-only",  # numbers without evidence of the transport
    "tcp-plugin",  # a TCP plugin on purpose (FastSocket): works, no RDMA
    "socket",  # plain TCP between hosts
    "mixed-transport",
    "rdma-without-gpudirect",
    "gpudirect-mixed",
    "rail-missing",
    "wrong-fabric",
    "rdma-but-slow",
    "slow",  # low bandwidth, transport not shown
    "degraded",  # another degrading fault
    "wrong-results",
    "version-mismatch",
    "hang",
    "hang-late",  # a rank never entered the operation that others wait in
    "hang-stalled",  # a rank queued the operation, but its GPU does not start it
    "hang-inside",  # all ranks have entered the operation
    "hang-dead",  # a process is gone or does not answer
    "hang-mismatch",  # another operation or size with the same sequence number
    "hang-order",  # ranks wait for one another in different operations
    "hang-watchdog",  # a watchdog is blocked, and no operation timed out
    "hang-undecided",  # the evidence names no cause
    "alive",  # operations still advance
    "crash",
    "launch-failed",
    "truncated",
    "unexplained",  # a line mentions a failure that no rule matches, in a log that would be go without it
    "restarted",  # an earlier attempt failed, and the judged last one completed
    "odd-numbers",  # a benchmark's numbers cannot be true
    "below-published",  # healthy except for numbers below published ones of such hardware (nccl.below-published)
    "far-below-published",  # healthy except for numbers at a small fraction of published ones
    "not-judged",  # healthy except for a profile's demand that the log does not show
    "shown-in-part",  # RDMA on every channel that the log shows, but not every rank shows one
    "separate-runs",  # each process ran a separate job: nothing crossed hosts
    "selected-only",  # a network was chosen, but no channel shows its use
    "no-evidence",
)


def lowered(title: str) -> str:
    """Return a title for the middle of a sentence: names and abbreviations keep their capitals."""
    first = title.split(" ", 1)[0]
    return (
        title if first.removesuffix("'s") in _NAMES or first[1:] != first[1:].lower() else first[:1].lower() + title[1:]
    )


_NAMES = ("Gloo", "Google", "Kubernetes", "Kueue", "Ray", "Slurm", "Volcano")
