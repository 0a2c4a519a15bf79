"""Write the decision about a hang into a job's document: next to its log's result, or into its own document."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..diagnosis.faults import found_fault
from ..diagnosis.ranking import rank
from ..document import conclude as conclude_logs
from ..job_document import MOST_CAUSES
from ..reader.scan import read
from .collect import structured
from .decide import judge
from .join import join, place_sentences, processes
from .model import Evidence
from .prepare import prepare
from .sentences import blocked_watchdogs, capital, ranks_in_words, sentence, unnamed
from .split_jobs import said_in, without

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from ..job_document import EvidenceLine
    from ..reader.state.partial import Partial
    from .join import Process as Spoken
    from .join import Tail
    from .model import Decision

Document = Any  # a job document and the keys of a hang
_RECORDED = "set TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1, and keep every rank's dump in one folder"

_UNCAUGHT = re.compile(r"\[rank(\d{1,7})\]: (?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): .*")
_BY_GLOO = (
    "gloo writes no dump by itself: let every rank write torch._C._distributed_c10d._dump_fr_trace() from a thread to a"
    " file that ends in its rank, before it ends, and keep its standard error in the same folder"
)


def conclude(
    collected: list[Evidence], jobs: list[Document], partial: Partial | None = None, read_tail: Tail | None = None
) -> list[Document]:
    """Return the jobs with the evidence of their hang; each evidence is of one job.

    A hang makes ``no-go``; evidence without a hang gives ``inconclusive``, never ``go``. ``partial``: the parsed logs.
    ``read_tail`` returns the last lines of a log, to join a rank with its process and its last line.
    """
    if collected == [Evidence()]:
        return jobs
    several = len(collected) > 1
    hangs: list[Document] = []
    for evidence in collected:
        own = [job for job in jobs if not several or set(job["files"]) & evidence.logs]
        jobs = [job for job in jobs if job not in own]
        hangs += _conclude(evidence, own, partial, read_tail)
    return hangs + jobs


def _conclude(
    evidence: Evidence, jobs: list[Document], partial: Partial | None, read_tail: Tail | None
) -> list[Document]:
    for job in jobs:
        if evidence.not_seen:
            job["not_seen"] = evidence.not_seen
        if evidence.not_seen and not structured(evidence) and job["verdict"] != "go":
            job["advice"] = "; ".join(filter(None, (job["advice"], _RECORDED)))
    if not (structured(evidence) or evidence.said("timed out", "absent", "inside", "queued", "blocked")):
        return jobs
    files = {name for job in jobs for name in job["files"]}
    logged = processes(partial, files, one_job=bool(evidence.pods)) if partial is not None else {}
    if not structured(evidence):  # the log's own text: it describes a hang that the log already shows in more detail
        return _by_logs(evidence, jobs, logged, read_tail)
    if len(jobs) > 1:
        silent = [job for job in jobs if _is_silent(job, _speaking(evidence))]
        evidence = replace(evidence, files=[*evidence.files, *(name for job in silent for name in job["files"])])
        jobs = [job for job in jobs if job not in silent]
    foreign: list[Document] = []
    if len(jobs) > 1 or (jobs and _larger(jobs[0], evidence)):  # the job of the evidence is unknown
        theirs = {name for job in jobs for name in job["files"]}
        foreign = _by_logs(said_in(evidence, theirs), jobs, logged, read_tail)
        evidence, jobs, logged = without(evidence, theirs), [], {}
    evidence = prepare(evidence)
    made = judge(evidence, logged)
    own = jobs[0] if jobs else _empty()
    _write(own, made, evidence, join(made, evidence, own, logged, read_tail))
    return [own, *foreign]


def _larger(job: Document, evidence: Evidence) -> bool:
    """Return whether a log has more ranks than the dumps' default group: it is another job's."""
    worlds = [group.members for group in evidence.groups.values() if group.name == "default_pg" and evidence.ranks]
    return any(members and (job["ranks"] or 0) > max(members) + 1 for members in worlds)


def _is_silent(job: Document, speaking: AbstractSet[str] = frozenset()) -> bool:
    """Return whether a log has no lines of NCCL: torch's standard error is in the evidence.

    ``speaking``: the files with torch's reports; other failures in them are consequences.
    """
    reports = job["diagnosis"] in ("crash", "hang") and not speaking.isdisjoint(job["files"])
    return bool((job["diagnosis"] == "no-evidence" or reports) and not job["nccl_lines"])


def _speaking(evidence: Evidence) -> set[str]:
    """Return the files with torch's reports."""
    states = evidence.said("timed out", "absent", "inside", "blocked")
    return {report.where[0] for report in (*states, *evidence.broken.values())}


def _by_logs(
    evidence: Evidence, jobs: list[Document], logged: Mapping[int, Spoken], read_tail: Tail | None
) -> list[Document]:
    """Add torch's messages to the job that hangs; of several jobs, each by the messages of its own logs."""
    hanging = [job for job in jobs if job["diagnosis"] == "hang"]
    speaking = _speaking(evidence)
    silent = _by_folder([job for job in jobs if _is_silent(job, speaking)], evidence.named)
    groups = [[job] for job in hanging] or silent
    for group in groups:
        job, files = group[0], {name for each in group for name in each["files"]}
        own = prepare(said_in(evidence, files) if len(groups) > 1 else evidence)
        made = judge(own, logged)
        if job["diagnosis"] == "hang" and not made.proven:  # only the waiting ranks are known, as in the log
            _name(job, made)
        if made.proven and not (made.kind == "watchdog" and _explained(job)):
            _write(job, made, own, join(made, own, job, logged, read_tail))
            theirs = jobs if len(groups) == 1 else group
            jobs = [each for each in jobs if each is job or each not in theirs or not _is_silent(each, speaking)]
        elif not _explained(job) and (more := blocked_watchdogs(own)):
            job["sentence"] = f"{job['sentence']} {more}."
    return jobs


def _explained(job: Document) -> bool:
    """Return whether the log shows the end of the job: a blocked watchdog follows from it."""
    return any(each["severity"] == "fatal" and each["fault"] != "nccl.hang" for each in job["faults"])


def _by_folder(jobs: list[Document], named: set[str]) -> list[list[Document]]:
    """Group the jobs by the folder that was named, in their order; each group is one job's."""
    by_hang: dict[str, list[Document]] = {}
    for job in jobs:
        parents = [folder for folder in sorted(named) if job["files"] and job["files"][0].startswith(f"{folder}/")]
        by_hang.setdefault(parents[-1] if parents else "", []).append(job)
    return list(by_hang.values())


def _empty() -> Document:
    (made,) = conclude_logs(read([("", iter([b"\n"]))]))
    return {**made, "files": [], "advice": None}


def _name(job: Document, made: Decision) -> None:
    job["late_ranks"] = sorted(made.late)
    job["waiting_ranks"] = sorted(made.waiting)
    job["dead_ranks"] = sorted(made.dead)
    job["unknown_ranks"] = sorted(made.unknown)


def _write(job: Document, made: Decision, evidence: Evidence, places: dict[str, dict[str, Any]]) -> None:
    said = unnamed(made) if made.unnamed and made.kind == "late" else sentence(made)
    own = _own_words(job, made.late | made.dead)
    for source, words in own.items():
        places.setdefault(source, {"host": None, "gpu": None, "pid": None})["last_words"] = words
    other = job["verdict"] == "no-go" and job["diagnosis"] not in ("hang", "crash")
    job["files"] = [*job["files"], *evidence.files]
    _name(job, made)
    job["stuck"] = made.at._asdict()
    job["contradictions"] = list(made.contradictions)
    job["places"] = places
    dumped = max(evidence.world, default=-1) + 1
    world = dumped or max((sample.size for sample in evidence.samples), default=0)
    job["ranks"] = job["ranks"] or (None if made.uncounted else world or None)
    if evidence.version and not job["nccl_version"]:
        job["nccl_version"], job["nccl_versions"] = evidence.version, [evidence.version]
    job["unread"] = evidence.notes
    if evidence.not_seen:
        job["not_seen"] = evidence.not_seen
    job["faults"] = [item for item in job["faults"] if item["fault"] != "nccl.no-evidence"]
    reported = [f"NCCL RAS reports errors: {'; '.join(made.reported[:4])}"] if made.reported and made.proven else []
    extra = [
        *place_sentences(places, job["faults"]),
        *reported,
        *filter(None, [blocked_watchdogs(evidence)]),
        *made.contradictions,
        *(f"not read: {note}" for note in evidence.notes[:3]),
    ]
    text = ". ".join([said, *(capital(item) for item in extra)]) + "."
    if made.proven:
        _add_fault(job, made, places, own_first=bool(own))
        job["verdict"], job["hang"] = "no-go", True
        if not other:
            job["diagnosis"] = f"hang-{made.kind}"
        job["sentence"] = text + (f" The log: {job['sentence']}" if other else "")
    elif job["diagnosis"] == "hang" and made.waiting:
        job["sentence"] = f"{text} The log: {job['sentence']}"
    elif job["verdict"] == "no-go" or (made.kind in ("alive", "slow") and evidence.pods and job["verdict"] == "go"):
        job["sentence"] = (
            f"{job['sentence']} {text}"  # a running job's log was judged; that it continues does not change its result
        )
    else:
        job["verdict"] = "inconclusive"
        job["diagnosis"] = made.kind if made.kind in ("alive", "slow") else "hang-undecided"
        job["sentence"] = text
    job["advice"] = _advice(made, evidence, job)


def _own_words(job: Document, ranks: AbstractSet[int]) -> dict[str, str]:
    """Return these ranks' uncaught exceptions, if the log's evidence has them; disconnected peers are excluded."""
    lines = [line["text"] for fault in job["faults"] for line in fault["evidence"]]
    said = [match for text in lines if "/gloo/transport/" not in text and (match := _UNCAUGHT.match(text))]
    return {match[1]: match[0] for match in reversed(said) if int(match[1]) in ranks}


def _add_fault(job: Document, made: Decision, places: dict[str, dict[str, Any]], *, own_first: bool) -> None:
    shown: list[EvidenceLine] = [{"file": file, "line": line, "text": text} for file, line, text in made.because]
    named = made.dead or made.late or made.suspects
    processes = ", ".join(f"process {p.pid} on {p.host}" if p.pid else "a process" for p in made.nameless[:4])
    fault = found_fault(f"nccl.hang-{made.kind}", ranks_in_words(named) if named else processes or "the job", shown)
    if made.nameless and not places:
        places = {"": {"pid": made.nameless[0].pid}}
    fault["confirm"] = _confirm(fault["confirm"], places)
    replaced = {"nccl.hang", fault["fault"]}  # by one line of the log, which names no rank
    as_faults = [each for each in job["faults"] if each["severity"] == "fatal" or made.kind in ("inside", "stalled")]
    other_faults = {name for each in as_faults for name in (each["fault"], each["why"])} - {
        "nccl.no-evidence",
        *replaced,
    }
    other_faults -= {"nccl.collective-mismatch"} if made.kind == "mismatch" else set()  # torchfrtrace's line says less
    rest = [cause for cause in job["causes"] if cause["fault"] in other_faults]  # a slow fabric makes no process late
    causes = [{**cause, "confirm": _confirm(cause["confirm"], places)} for cause in rank([fault], {})]
    job["causes"] = [*rest, *causes][:MOST_CAUSES] if own_first else [*causes, *rest][:MOST_CAUSES]
    job["faults"] = [fault, *(item for item in job["faults"] if item["fault"] not in replaced)]


def _confirm(text: str, places: dict[str, dict[str, Any]]) -> str:
    """Return the command with the first rank's process, pod and node."""
    place = next(iter(places.values()), {})
    if place.get("pid"):
        text = text.replace("--pid PID", f"--pid {place['pid']}")
    if place.get("node"):
        text = text.replace("node NODE", f"node {place['node']}")
    if place.get("pod"):
        pod = f"-n {place['namespace']} {place['pod']}" if place.get("namespace") else place["pod"]
        text = text.replace("py-spy dump", f"kubectl exec {pod} -- py-spy dump").replace(" POD ", f" {pod} ")
    return text


def _advice(made: Decision, evidence: Evidence, job: Document) -> str | None:
    """Return missing settings and inputs that would have explained more of this hang."""
    if any(made_by.last and not made_by.last.marked for made_by in evidence.ranks.values()):
        return None if made.proven and not made.unknown - made.suspects else _BY_GLOO
    advice = []
    if not evidence.ranks or made.unknown - made.suspects:
        advice.append(_RECORDED)
    queued = [operation for made_by in evidence.ranks.values() for operation in made_by.pending]
    if made.kind == "inside" and queued and not any(o.started for o in queued):
        advice.append(
            "set TORCH_NCCL_ENABLE_TIMING=1: a dump then shows the GPU that has not started a queued operation"
        )
    if made.doubt and made.doubt.kind == "undated":
        advice.append("set TORCH_NCCL_ENABLE_TIMING=1: a dump then shows when it was taken")
    if not job["nccl_lines"]:
        advice.append(
            "set NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,ENV,NET, and keep the log of every rank"
        )
    if job["env"].get("NCCL_RAS_ENABLE") == "0":
        advice.append("unset NCCL_RAS_ENABLE: it is 0, and RAS reports missing ranks immediately")
    elif len(evidence.samples) < 3 and not made.proven:
        advice.append("take three samples of ncclras some seconds apart")
    return "; ".join(advice) or job.get("advice")
