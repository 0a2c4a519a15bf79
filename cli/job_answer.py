"""One answer for one job of the cluster: the cause that the cluster shows, then the cause that its logs show.

Logs do not show a rank that does not run, or a job that waits; but a program's last output shows more than its exit
code. So the cluster's cause comes first, except for an exit code that the logs explain.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jobs.diagnosis.state import ERR_INFRA, ERR_PROGRAM, JobState
from seatrial import logs as nccl
from seatrial.faults.catalogue import INFRASTRUCTURE, PROGRAM, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobs.diagnosis.state import FailureAnalysis, Seen
    from seatrial.logs.job_document import FoundFault, JobDocument

_CLASSES = {ERR_INFRA: INFRASTRUCTURE, ERR_PROGRAM: PROGRAM}
EXITED = "job.failed"


def tell(job: JobDocument, name: str, namespace: str, seen: Seen) -> None:
    """Add the cluster's view of the job to its document: its state, its ranks, and its one cause."""
    job["standing"] = {"job": name, "namespace": namespace, "state": str(seen.state), "ranks": list(seen.standing)}
    if seen.not_seen:
        job["not_seen"] = [*job.get("not_seen", ()), *seen.not_seen]
    proven = any(fault["severity"] != "info" for fault in job["faults"])
    analysis = seen.analysis
    headline = f"Job {name} in {namespace} is {seen.state}"
    of_nccl = proven or bool(job["nccl_lines"]) or any(replica.gpus for replica in seen.replicas)
    if analysis is None and not of_nccl:  # a job on CPUs need not set NCCL_DEBUG
        _forget_silence(job)
    if analysis is None:
        if not job["files"] or not job["nccl_lines"]:
            job["sentence"] = f"{headline}. {job['sentence']}"
        return
    if analysis.fault == EXITED and proven and seen.state is JobState.ERROR:  # the logs show why it ended
        job["sentence"] = f"{headline}: {job['sentence']}"
        return
    if not proven:
        _forget_silence(job)
    said = re.search(r"it does say: (.+)", job["sentence"])
    words = f" Its log shows: {said[1]}" if said and said[1].rstrip(".") not in analysis.observed else ""
    rest = f" Its logs: {job['sentence']}" if proven else words
    job["sentence"] = f"{headline}: {analysis.observed.rstrip('.')}.{rest}"
    at_fault = analysis.err_class is not None and (seen.state is JobState.ERROR or analysis.hopeless)
    job["verdict"] = "no-go" if at_fault or job["verdict"] == "no-go" else "inconclusive"
    job["faults"].insert(0, _found(analysis, fatal=at_fault))
    cause = {"fault": analysis.fault, "cause": f"{analysis.title}: {_cause(analysis)}", "confirm": analysis.confirm}
    job["causes"].insert(0, cause)  # type: ignore[arg-type]  # the keys are those of a Cause
    job["failure_class"] = _CLASSES.get(str(analysis.err_class))


def _forget_silence(job: JobDocument) -> None:
    """Drop the finding that the log shows no transport, with its advice, if the answer is about something else."""
    job["faults"] = [fault for fault in job["faults"] if fault["fault"] != "nccl.no-evidence"]
    job["advice"] = None
    job["causes"] = []


def _found(analysis: FailureAnalysis, *, fatal: bool) -> FoundFault:
    return {
        "fault": analysis.fault,
        "severity": "fatal" if fatal else "degraded",
        "title": analysis.title,
        "subject": analysis.subject,
        "why": None,
        "evidence": [],
        "cause": _cause(analysis),
        "confirm": analysis.confirm,
        "remedy": analysis.remedy,
        "failure": _CLASSES.get(str(analysis.err_class), UNKNOWN),
    }


def _cause(analysis: FailureAnalysis) -> str:
    more = analysis.suggestion if analysis.suggestion != analysis.remedy else ""
    return analysis.observed + (f" ({more})" if more else "")


_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")


def words_of(pod: str, lines: Sequence[str]) -> list[str]:
    """Return a program's first failure line, as the log analyzer finds it, and its traceback's last line."""
    words: list[str] = []
    partial = nccl.read([(pod, [("\n".join(lines) + "\n").encode("utf-8", "replace")])])
    for job in nccl.conclude(partial, one_job=True):
        lines_of = [line for fault in job["faults"] if fault["severity"] != "info" for line in fault["evidence"]]
        if lines_of:
            words.append(min(lines_of, key=lambda line: line["line"])["text"])
        elif said := re.search(r"it does say: (.+?)\.?$", job["sentence"]):
            words.append(said[1])
    if (end := _end_of_traceback(lines)) and not any(end.startswith(word[:80]) for word in words):
        words.append(end)
    return words


def _end_of_traceback(lines: Sequence[str]) -> str:
    """Return the line that ends the first traceback, or the last of those that are chained to it."""
    end, inside, head = "", False, ""
    for line in lines:
        text = line.removeprefix(head) if head else line
        if _TRACEBACK in line:
            if end and not inside:
                continue
            head, inside = line[: line.index(_TRACEBACK)], True
        elif inside and text.strip() and not text.startswith((" ", "\t")):
            if text.startswith(_CHAINED):
                continue
            end, inside = text.strip(), False
        elif end and text.startswith(_CHAINED):
            inside = True
    return end[:500]
