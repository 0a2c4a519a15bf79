"""Transport, fabric, GPUDirect, rails and ranks of the traffic between nodes, judged from job documents.

Rule: the whole job is judged, for each channel and in both directions. One rank on sockets is easily missed among
fifteen good banners; a log without transport lines is an error, never a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace

from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec
from reports.record import Finding
from seatrial.logs.diagnosis.rails import rails_missing, rails_used
from seatrial.logs.job_document import FoundFault, Host, JobDocument

from ..profiles.loader import Profile
from ..profiles.trial import COMMAND
from .collectives import analysed, by_node, logged, subject_of, unshown
from .findings import compared, failed, passed, proven, unknown

NO_PROFILE = "no profile: the requirements of this cluster's fabric are unknown (pass --profile NAME)"
TRANSPORT = ("nccl.socket-fallback", "nccl.mixed-transport")
GDR = ("nccl.gdr-off", "nccl.gdr-mixed")
JUDGED = frozenset(
    {
        *TRANSPORT,
        *GDR,
        "nccl.wrong-fabric",
        "nccl.rail-missing",
        "nccl.ranks-missing",
        "nccl.hang",
        "nccl.crash",
        "nccl.program",
        "nccl.wrong-results",
        "nccl.low-bandwidth",
        "nccl.impossible-bandwidth",
        "nccl.no-evidence",
        "nccl.log-truncated",
    }
)
"""Faults with a dedicated check; nccl.other judges all other faults of the analyzer."""


def _fault_findings(
    trial: TrialResult,
    jobs: Mapping[str, JobDocument | None],
    faults: Container[str],
    finding: Callable[[JobDocument, FoundFault], tuple[str, str]],
    otherwise: Callable[[str, JobDocument], Iterable[Finding]],
) -> Iterator[Finding]:
    """Report these faults of the jobs, once for several collectives; ``otherwise``: findings for a job without one.

    ``finding`` returns observation and expectation.
    """
    seen_faults: set[tuple[str, str]] = set()
    for name, job in analysed(jobs).items():
        bad = [f for f in job["faults"] if f["fault"] in faults]
        for entry in bad:
            if (entry["fault"], entry["subject"]) not in seen_faults:
                seen_faults.add((entry["fault"], entry["subject"]))
                observed, expected = finding(job, entry)
                yield failed(by_node(trial, entry["subject"]), by_node(trial, observed), expected, entry["fault"])
        if not bad:
            yield from otherwise(name, job)


def transport_findings(
    trial: TrialResult, jobs: Mapping[str, JobDocument | None], profile: Profile
) -> Iterator[Finding]:
    """Judge the transport of every host pair, the analyzer's faults first, so that one cause is one finding.

    Without a profile the trial requested no RDMA device: sockets on all ranks are then not a fault.
    """
    if COMMAND in analysed(jobs) and (why := unshown(trial, jobs[COMMAND])):
        yield unknown(subject_of(COMMAND), why, "channels between nodes", fault="nccl.nothing-shown")
        return
    for finding in _fault_findings(
        trial,
        jobs,
        TRANSPORT,
        lambda job, entry: (_carried(job) + _because(entry), "no socket between nodes"),
        lambda name, job: _pairs(trial, name, job),
    ):
        unjudged = not profile.known and finding.fault == TRANSPORT[0]
        yield replace(finding, ok=None, expected=NO_PROFILE) if unjudged else finding


def _because(entry: FoundFault) -> str:
    """Return the cause as text and, if another fault explains this one, its id."""
    cause, why = entry["cause"], entry["why"]
    return (f"; {cause}" if cause else "") + (f" ({why})" if why else "")


def _carried(job: JobDocument) -> str:
    counts: dict[str, int] = {}
    for pair in job["pairs"]:
        for transport, channels in pair["transports"].items():
            counts[transport] = counts.get(transport, 0) + channels
    if not counts:
        return job["inter_node_transport"]
    return ", ".join(f"{transport} on {channels} channels" for transport, channels in sorted(counts.items()))


def _pairs(trial: TrialResult, name: str, job: JobDocument) -> Iterator[Finding]:
    """Describe each pair's transport, and parts of the job without channel lines: a banner alone does not prove use."""
    pairs = job["pairs"]
    ended = job["hang"] or job["crash"]  # then nccl.completed names the cause, and missing lines are a consequence
    fault = "" if ended else "nccl.log-truncated" if job["truncated"] else "nccl.no-evidence"
    for pair in pairs:
        counts = ", ".join(f"{t} x {n}" for t, n in sorted(pair["transports"].items()))
        # For a channel over NVLink only its sender prints a line (transport/p2p.cc); for a network both ends do.
        whole = pair["direction"] == "both" or set(pair["transports"]) == {"mnnvl"}
        subject = by_node(trial, f"{pair['src']} -> {pair['dst']}") + f" ({name})"
        shown = counts if whole else f"{counts}, logged by one of the two ends ({pair['direction']})"
        yield proven(subject, whole, shown, "no socket, logged by both ends", fault=fault)
    # 'connected': the ranks with a channel line of any kind. A log that ends before these lines does not show the
    # transport.
    connected = sum(len(host["connected"]) for host in job["hosts"])
    if not pairs:
        yield unknown(subject_of(name), _unseen(job, fault), "channels between nodes", fault=fault)
    elif connected < (job["ranks"] or 0):
        observed = f"{connected} of {job['ranks']} ranks show their channels in the log"
        yield unknown(subject_of(name), observed, "all ranks", fault=fault)
    elif cut := _cut(job):
        yield unknown(subject_of(name), cut, "the complete log of every rank", fault="nccl.log-truncated")


def _cut(job: JobDocument) -> str:
    """Explain how NCCL's log was truncated although the collective completed; '' if it was not.

    The missing part may contain a socket, and a rail missing in half a log is not missing in the node. A truncated
    table is reported by nccl.completed instead.
    """
    if not job["truncated"] or not all(t["complete"] for t in job["tables"]):
        return ""
    causes = [f["cause"] for f in job["faults"] if f["fault"] == "nccl.log-truncated"]
    return f"the log is incomplete: {causes[0]}" if causes and causes[0] else "the log is incomplete"


def _unseen(job: JobDocument, fault: str) -> str:
    """Describe missing parts of the log, by the analyzer's text if any, and the setting for the next run."""
    kind = job["inter_node_transport"]
    if kind == "none":
        return "no traffic between nodes: the log has one node only"
    if job["crash"]:
        return "NCCL ended before it logged its channels (nccl.completed reports the cause)"
    cause = next((f["cause"] for f in job["faults"] if f["fault"] == fault and f["cause"]), "")
    banner = f" (a network was selected: {kind})" if kind != "unknown" else ""
    said = [f"the log does not show the transport{banner}", cause, job["advice"] or ""]
    return "; ".join(filter(None, said))


def fabric_findings(trial: TrialResult, jobs: Mapping[str, JobDocument | None], kind: str) -> Iterator[Finding]:
    """Compare the transport with the fabric that the profile requires."""
    expected = f"{kind} (profile, fabric.kind)"

    def right(name: str, job: JobDocument) -> Iterator[Finding]:
        carried = job["inter_node_transport"]
        yield proven(subject_of(name), carried == kind, carried, expected)

    return _fault_findings(trial, jobs, ("nccl.wrong-fabric",), lambda _, entry: (entry["cause"], expected), right)


def gdr_findings(trial: TrialResult, jobs: Mapping[str, JobDocument | None]) -> Iterator[Finding]:
    """Judge GPUDirect RDMA of every host pair; without a line about it the result is undetermined."""

    def bad(_: JobDocument, entry: FoundFault) -> tuple[str, str]:
        state = "not used" if entry["fault"] == "nccl.gdr-off" else "used on some channels only"
        return f"GPUDirect RDMA {state}{_because(entry)}", "GPUDirect RDMA on every channel (profile, fabric.gdr)"

    def shown(name: str, job: JobDocument) -> Iterator[Finding]:
        gdr = job["gdr"]
        observed = "GPUDirect RDMA on every channel" if gdr else "the log does not show GPUDirect"
        yield proven(subject_of(name), bool(gdr), observed, "GPUDirect RDMA", fault="nccl.no-evidence")

    return _fault_findings(trial, jobs, GDR, bad, shown)


def rail_findings(trial: TrialResult, jobs: Mapping[str, JobDocument | None], expected: int) -> Iterator[Finding]:
    """Count the rails that each host used in any collective, by channel lines: a banner lists all found devices."""
    hosts: dict[str, list[Host]] = {}
    filters: set[str] = set()
    for job in analysed(jobs).values():
        values = job["env"].get("NCCL_IB_HCA", [])
        filters.update([values] if isinstance(values, str) else values)
        for host in job["hosts"]:
            if host["name"]:  # channels of lines without a host are counted under named hosts
                hosts.setdefault(host["name"], []).append(host)
    if not hosts:
        yield unknown("job", "the log shows no devices", fault="nccl.no-evidence")
    nvlink = all(job["inter_node_transport"] == "mnnvl" for job in analysed(jobs).values())
    without, fault = (
        ("NVLink between nodes is used", "") if nvlink else ("no channel shows a device", "nccl.no-evidence")
    )
    for name, same in sorted(hosts.items()):
        devices = rails_used(same)
        missing = rails_missing(devices, expected, filters)
        shown = f"{len(devices)} rails used: {', '.join(sorted(devices))}" if devices else without
        yield Finding(
            subject=by_node(trial, name),
            ok=not missing if devices else None,
            observed=missing if devices and missing else shown,
            expected=f"{expected} rails (profile, fabric.rails)",
            fault="" if not missing else "nccl.rail-missing" if devices else fault,
        )


def rank_findings(jobs: Mapping[str, JobDocument | None], spec: TrialSpec) -> Iterator[Finding]:
    """Compare NCCL's ranks and nodes with the trial's."""
    ranks = spec.nodes * spec.gpus_per_node
    for name, job in analysed(jobs).items():
        size = (job["ranks"], job["nodes"])
        ok = None if None in size else size == (ranks, spec.nodes)
        if name == COMMAND and not ok:  # the user's program decides its number of ranks; other GPUs were not tried
            ok = None
        observed = f"{size[0]} ranks on {size[1]} nodes"
        yield compared(subject_of(name), ok, observed, f"{ranks} ranks on {spec.nodes} nodes", "nccl.ranks-missing")


def other_findings(trial: TrialResult, jobs: Mapping[str, JobDocument | None]) -> Iterator[Finding]:
    """Report every further fatal or degrading fault of the analyzer; without one, each log is clean."""
    documents = analysed(jobs).values()
    further = {f["fault"] for job in documents for f in job["faults"] if f["severity"] != "info"} - JUDGED
    return _fault_findings(
        trial,
        jobs,
        further,
        lambda _, entry: (logged(entry) or entry["cause"], "no such line in NCCL's log"),
        lambda name, _: [passed(subject_of(name), "no other fault in the log")],
    )
