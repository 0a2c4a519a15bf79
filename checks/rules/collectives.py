"""The result of each collective of the trial: one job document per collective, merged from the pods' evidence.

Each pod analyses the logs of its own ranks; merged, these are the analysis of the whole log (seatrial.logs).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from jobs.pod.stages.capture import causes
from jobs.run.stages import COLLECTIVE
from reports.record import Finding
from seatrial import logs as nccl
from seatrial.logs.bandwidth.reference import refer_table
from seatrial.logs.job_document import Expected
from seatrial.logs.rows import sides

from ..framework.evidence import Evidence
from ..profiles.trial import COMMAND, DEFAULT, GLOO, NODE, OPERATIONS, RING
from .findings import first_match
from .ranks import hosts, missing_stage, place, ran, stages

if TYPE_CHECKING:
    from jobs.run.result import TrialResult
    from jobs.run.stages.programs import CollectiveRun
    from jobs.trial.spec import TrialSpec
    from seatrial.logs.job_document import FoundFault, JobDocument

    from ..profiles.loader import Profile

NO_PROGRAM = re.compile(r"neither torchrun|with torch is in this image|cannot start")
"""The probe's report that the image cannot run the collective."""
LONGEST = 240
"""Maximum number of characters of a quoted log line."""


def conclude_collectives(trial: TrialResult, profile: Profile) -> dict[str, JobDocument | None]:
    """Return the job document of each collective over all nodes by name; None where no rank sent an analysis."""
    names: dict[str, None] = dict.fromkeys((GLOO,) if profile.gpu.none else (RING, DEFAULT))
    for evidence in trial.evidence.values():
        names.update(dict.fromkeys(s.removeprefix(COLLECTIVE) for s in evidence.stages if s.startswith(COLLECTIVE)))
    names = {COMMAND: None} if COMMAND in names else names
    return {
        name: _conclude(trial, sorted(trial.evidence), name, expectation(profile)) for name in names if name != NODE
    }


def conclude_nodes(trial: TrialResult, profile: Profile) -> dict[int, JobDocument | None]:
    """Return the job document of each node alone, by rank; None if its analysis is missing."""
    return {rank: _conclude(trial, [rank], NODE, expectation(profile)) for rank in sorted(trial.evidence)}


def _conclude(trial: TrialResult, ranks: list[int], name: str, expected: Expected) -> JobDocument | None:
    evidence = [ran(trial, rank, name) for rank in ranks]
    partials = [nccl.Partial.from_dict(data["nccl"]) for data in evidence if data and data.get("nccl")]
    if not partials:
        return None
    jobs = nccl.conclude(nccl.merge(partials), expected, one_job=True)
    job = max(jobs, key=lambda job: job["ranks"] or 0, default=None)
    if job is not None:
        for table in job["tables"]:
            refer_table(job, table)
    return job


def expectation(profile: Profile) -> Expected:
    """Return the profile's requirements that apply to any log of this platform."""
    fabric, gpus = profile.fabric, profile.gpu.per_node
    return Expected(
        fabric=fabric.kind,
        rails=fabric.rails,
        gdr=fabric.gdr,
        gpus_per_node=gpus,
        device_gbit_s=fabric.device_rate,
        intra_node=profile.runtime.intra_node,
        products=profile.gpu.product,
    )


def analysed(jobs: Mapping[str, JobDocument | None]) -> dict[str, JobDocument]:
    """Return the collectives with an analysis; nccl.completed reports those that did not run."""
    return {name: job for name, job in jobs.items() if job is not None}


def by_node(trial: TrialResult, text: str) -> str:
    """Replace the pods' host names, which NCCL prints, with their nodes' names."""
    for host, node in sorted(hosts(trial).items(), key=lambda pair: -len(pair[0])):
        text = re.sub(rf"(?<![\w-]){re.escape(host)}(?![\w-])", node.replace("\\", ""), text)
    return text


def subject_of(name: str) -> str:
    """Name one run of a collective: 'all_reduce ring', 'sendrecv'."""
    op = OPERATIONS.get(name, "all_reduce")
    if name == COMMAND:
        return "the program"
    return op if name == op else f"{op} {name}"


def over_all_nodes(spec: TrialSpec) -> dict[str, str]:
    """Return the collectives over all nodes: name -> subject of its findings."""
    return {chosen.name: subject_of(chosen.name) for chosen in spec.collectives if chosen.scope == "job"}


def completed_findings(
    trial: TrialResult, spec: TrialSpec, jobs: Mapping[str, JobDocument | None]
) -> Iterator[Finding]:
    """Judge whether each collective over all nodes completed on every rank: one finding for each."""
    for name, subject in over_all_nodes(spec).items():
        data = {rank: ran(trial, rank, name) for rank in range(spec.nodes)}
        own, job = name == COMMAND, jobs.get(name)
        yield _ended(trial, subject, data, job) if own else _completed(trial, subject, name, data, job)


def alone_findings(trial: TrialResult, spec: TrialSpec, jobs: Mapping[int, JobDocument | None]) -> Iterator[Finding]:
    """Judge whether every node completed the run with its own GPUs: one finding for each node."""
    for rank in range(spec.nodes):
        data = {rank: ran(trial, rank, NODE)}
        yield _completed(trial, place(trial, rank), NODE, data, jobs.get(rank))


def _completed(
    trial: TrialResult, subject: str, name: str, data: Mapping[int, CollectiveRun | None], job: JobDocument | None
) -> Finding:
    ran = {rank: d for rank, d in data.items() if d is not None and "skipped" not in d}
    late = ", ".join(place(trial, rank) for rank, d in ran.items() if d.get("timed_out"))
    whole = any(t["complete"] and t["rows"] for t in (job["tables"] if job else []))
    library, seconds, bad = "gloo" if name == GLOO else "NCCL", _seconds(ran), _bad_exit(trial, ran)
    time = f"after {seconds} s on {late}"
    skipped = next((f"not attempted: {d['skipped']}" for d in data.values() if d and "skipped" in d), "")
    missing = next((rank for rank, d in data.items() if d is None), -1)
    lost = f"{place(trial, missing)}: {missing_stage(trial, missing, COLLECTIVE + name)}"
    finding = first_match(
        subject,
        "every rank ends and the table is complete",
        (late and not _begun(job), None, f"the program had not reached {library} {time}", "nccl.program"),
        (late, False, f"no end {time}", "nccl.hang"),
        (job and job["hang"], False, "the log shows a hang", "nccl.hang"),
        (job and job["crash"], False, f"{library} ended with an error", "nccl.crash"),
        (skipped, None, skipped, "nccl.program" if NO_PROGRAM.search(skipped) else ""),
        (missing >= 0, None, lost),
        (bad and not whole, None, bad, "nccl.program"),
        (bad and not _explained(job), None, f"the table is complete, but {bad}", "nccl.program"),
        (not whole, None, "it ended with exit code 0, but its output holds no complete table"),
        (True, True, f"ended on {len(ran)} nodes in {seconds} s"),
    )
    if finding.ok is False and (root := _root(job)):
        said = _because(trial, root)
        observed = f"{finding.observed} ({said})" if said else finding.observed
        return replace(finding, fault=root["fault"], observed=observed)
    return finding


def _ended(
    trial: TrialResult, subject: str, data: Mapping[int, CollectiveRun | None], job: JobDocument | None
) -> Finding:
    """Judge the user's own program: its completion proves nothing about a fabric that its log does not show."""
    done = {rank: d for rank, d in data.items() if d is not None and "skipped" not in d}
    late = ", ".join(place(trial, rank) for rank, d in done.items() if d.get("timed_out"))
    skipped = next((f"not attempted: {d['skipped']}" for d in data.values() if d and "skipped" in d), "")
    missing = next((f"{place(trial, rank)} sent no evidence of it" for rank, d in data.items() if d is None), "")
    shown_not, seconds, bad, root = unshown(trial, job), _seconds(done), _bad_exit(trial, done), _root(job)
    fault, why = (root["fault"], root["cause"]) if root else ("nccl.own-program", "the program's own failure")
    ending = ("hang" if job["hang"] else "crash" if job["crash"] else "") if job and root and not shown_not else ""
    return first_match(
        subject,
        "every rank ends with exit code 0, and NCCL logs its transport",
        (ending, False, f"NCCL's log shows a {ending} ({_because(trial, root)})", fault),
        (skipped or missing, None, skipped or missing),
        (late, None, f"still running after {seconds} s on {late} (profile, deadlines.collective_s)"),
        (bad, None, f"{bad} ({by_node(trial, why) or fault})", fault),
        (shown_not, None, f"exit code 0, but {shown_not}", "nccl.nothing-shown"),
        (True, True, f"ended on {len(done)} nodes in {seconds} s"),
    )


def _because(trial: TrialResult, root: FoundFault | None) -> str:
    return by_node(trial, f"{root['subject']}: {logged(root) or root['cause']}".strip(": ")) if root else ""


def _printed(trial: TrialResult, rank: int) -> bool:
    """Return whether lines of NCCL are in the program's output, which the probe captures, not in its ranks' files."""
    analysis = (ran(trial, rank, COMMAND) or {}).get("nccl")
    sources = nccl.Partial.from_dict(analysis).sources if analysis else []
    return any(source.nccl_lines for source in sources if not source.name.endswith(".log"))


_LAST_LINES = 5


def unshown(trial: TrialResult, job: JobDocument | None) -> str:
    """Explain why a program's log shows no collective between the trial's pods; '' if it may show one.

    NCCL prints the host names of its ranks, which are those of the pods: a log with other host names is from another
    run. With hostNetwork they are the machines' names, as in the log of any earlier run. Then, and if lines have no
    host name, only the lines that ranks wrote to NCCL_DEBUG_FILE are known to be from this run.
    """
    if job is None or not job["nccl_lines"]:
        table = "a table" if job and job["tables"] else "no table"
        return f"it printed {table} and no line of NCCL: the network it used is not shown"
    own = {
        str((stages(trial, rank).get("start") or {}).get("hostname") or "").partition(".")[0] for rank in trial.evidence
    }
    named_hosts = {name for host in job["hosts"] if (name := (host["name"] or "").partition(".")[0])}
    other_hosts = named_hosts - own
    if other_hosts and "" not in own:
        named = ", ".join(sorted(other_hosts)[:4]) + (", ..." if len(other_hosts) > 4 else "")
        return f"it printed a log of other hosts than the trial's pods ({named}): it is of another run"
    of_this_run = named_hosts and all(name.startswith(trial.job) for name in own)
    if not of_this_run and (ranks := [rank for rank in sorted(trial.evidence) if _printed(trial, rank)]):
        hosts_are = "the machines' (hostNetwork), not the pods'" if named_hosts else "missing"
        return (
            f"{place(trial, ranks[0])} printed lines of NCCL instead of writing them to NCCL_DEBUG_FILE, and their host"
            f" names are {hosts_are}: they may be of another run"
        )
    if job["inter_node_transport"] == "none":
        return "its log is of one node: nothing crossed nodes"
    return ""


def last_words(trial: TrialResult, spec: TrialSpec) -> Iterator[str]:
    """Yield the last lines of the user's own program on the first node where it failed."""
    for rank in range(spec.nodes):
        data = ran(trial, rank, COMMAND) or {}
        if data.get("exit") or data.get("timed_out"):
            lines = [line for line in str(data.get("output_tail") or "").splitlines() if line.strip()]
            yield from (f"{place(trial, rank)}: {line.strip()[:LONGEST]}" for line in lines[-_LAST_LINES:])
            return


def _begun(job: JobDocument | None) -> bool:
    """Return whether the program reached NCCL: a slow import of torch on eight ranks is not a hang."""
    return job is not None and bool(job["nccl_version"] or job["ranks"] or job["tables"])


def _explained(job: JobDocument | None) -> bool:
    """Return whether the table explains a nonzero exit code: nccl-tests exits with 1 after incorrect results.

    It also does so if NCCL_TESTS_MIN_BW is not reached. Other checks report both.
    """
    if job is None:
        return False
    measured = [side for t in job["tables"] for row in t["rows"] for side in sides(row)]
    wrong = any(side["wrong"] for side in measured) or any(t["out_of_bounds"] for t in job["tables"])
    return wrong or any(f["fault"] == "nccl.low-bandwidth" for f in job["faults"])


def _seconds(ran: Mapping[int, CollectiveRun]) -> str:
    return f"{max((float(d.get('seconds') or 0) for d in ran.values()), default=0.0):.1f}"


def _bad_exit(trial: TrialResult, ran: Mapping[int, CollectiveRun]) -> str:
    """Name the rank whose program failed, and not a rank that was stopped because of it."""
    for rank, d in ran.items():
        if why := d.get("error") or (f"exit code {d['exit']}" if d.get("exit") else ""):
            tail = str(d.get("output_tail") or "")
            if said := causes(tail):
                return f"{place(trial, rank)}: {why}; it said: {said[0][:LONGEST]}"
            last = next((line for line in reversed(tail.splitlines()) if line.strip()), "")
            return f"{place(trial, rank)}: {why}" + (f"; last line: {last.strip()[:200]}" if last else "")
    if stopped := [rank for rank, d in ran.items() if d.get("stopped")]:
        return f"{place(trial, stopped[0])}: stopped ({ran[stopped[0]]['stopped']})"
    unreported = [rank for rank, d in ran.items() if d.get("exit") is None]
    return f"{place(trial, unreported[0])}: its exit code is unknown" if unreported else ""


def _root(job: JobDocument | None) -> FoundFault | None:
    """Return the analyzer's first fatal fault: the cause why the collective ended, if the log shows it."""
    return next((f for f in (job["faults"] if job else []) if f["severity"] == "fatal"), None)


def logged(entry: FoundFault) -> str:
    """Return the line of NCCL's log behind the analyzer's finding, without its prefix."""
    lines = [each["text"] for each in entry["evidence"]]
    line = next((line for line in lines if "NCCL WARN" in line), lines[0] if lines else "")
    message = re.sub(r"^.*?\bNCCL (?:WARN|INFO|ERROR) ", "", line).strip()
    return f"'{message[:LONGEST]}{'...' if len(message) > LONGEST else ''}'" if message else ""


def next_steps(jobs: Mapping[str, JobDocument | None], faults: Iterable[str]) -> Iterator[str]:
    """List confirmation and remedy of these faults' causes, each once.

    A fault without a specific cause is left out: the catalogue's entry has the same text.
    """
    asked = set(faults)
    said: dict[str, None] = {}
    for job in analysed(jobs).values():
        for entry in job["faults"]:
            if entry["fault"] in asked and entry["why"] not in (None, entry["fault"]):
                said[f"{entry['why']}: to confirm: {entry['confirm']}; remedy: {entry['remedy']}"] = None
    yield from said


def put_with_steps(evidence: Evidence, findings: Iterable[Finding], jobs: Mapping[str, JobDocument | None]) -> None:
    """Add each finding, and below the check the log analyzer's confirmation and remedy of their faults."""
    evidence.put(findings)
    evidence.note(*next_steps(jobs, [f.fault for f in evidence.findings if f.ok is not True]))
