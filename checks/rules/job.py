"""Rules of the trial job: every pod started and reported; the launcher's failure analysis as findings.

Rule: a fault of the cluster (ERR_INFRA) fails the check, and so does a missing object that the profile names. A fault
of the program or of a third party (ERR_PROGRAM, a disruption) is an error, since it proves nothing about the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator

from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec
from reports.record import Finding

from .findings import passed, unknown
from .ranks import every_stage, place

EXPECTED = "started and reported"
UNFIT = (
    "queue.present",
    "admission.pod",
    "nodes.gpu",
    "cpu.nodes",
    "gpu.allocatable",
    "gpu.free",
    "stack.upgrade",
    "rdma.allocatable",
    "rdma.networks",
    "images.named",
    "images.secrets",
    "topology.policy",
)
"""Checks of the API: no job is started if one of them failed."""
START_FAULTS = (
    "job.unschedulable",
    "job.start-timeout",
    "job.disrupted",
    "job.deadline",
    "job.failed",
    "job.no-evidence",
    "job.one-after-another",
    "job.log-unreachable",
    "node.simulated",
    "lab.machine",
    "job.no-scheduler",
    "image.pull",
    "image.no-python",
    "container.config",
    "container.oom",
    "container.start",
    "quota.exceeded",
    "quota.in-use",
    "limitrange.denied",
    "admission.denied",
    "admission.webhook-down",
    "serviceaccount.missing",
    "pod-security.denied",
    "rights.missing",
    "node.lost",
    "volume.mount",
    "runtimeclass.missing",
    "topology.affinity",
    "launcher.missing",
    "launcher.runtime-missing",
    "launcher.runtime-unknown",
    "mpi.wrong-version",
    "operator.down",
    "mpi.sshd-missing",
    "mpi.mpirun-missing",
    "mpi.ssh-failed",
    "api.unreachable",
    "api.unauthorized",
)
"""Faults of a start that the launcher's analysis can report, for a trial or a sweep."""
NAMED = ("container.config", "volume.mount")
"""Objects that the profile names and the namespace lacks: the cluster does not have what the profile requires, as with
``storage.claim-missing`` of the preflight, although the profile's author may have to act."""


def start_findings(trial: TrialResult, spec: TrialSpec) -> Iterator[Finding]:
    """Judge the start of the trial: its failure if there is one, else each rank."""
    failed = trial.analysis
    if failed is not None:
        lacking = failed.err_class == "ERR_INFRA" or (failed.err_class == "ERR_PROGRAM" and failed.fault in NAMED)
        yield Finding(
            subject=failed.subject or trial.job,
            ok=False if lacking and not failed.disrupted else None,
            observed=failed.observed or f"the job ended as {trial.state}",
            expected=failed.expected or EXPECTED,
            fault=failed.fault,
        )
        return
    for rank in range(spec.nodes):
        yield _rank(trial, rank)
    yield from _apart(trial, spec)
    placed = {r.index: r.node for r in trial.replicas if r.node and r.index < spec.nodes}
    nodes = set(placed.values())
    if spec.nodes > 1 and 0 < len(nodes) < len(placed):
        yield unknown(trial.job, f"{spec.nodes} pods on {len(nodes)} nodes", "each pod on a separate node")


def _apart(trial: TrialResult, spec: TrialSpec) -> Iterator[Finding]:
    """Name two ranks if one started after the other had ended: a Job counts both, but they never ran together."""
    spans: dict[int, list[tuple[str, str]]] = {}
    for pod in trial.pods:
        spans.setdefault(pod.index, []).append((pod.began, pod.ended))
    known = {rank: each[0] for rank, each in spans.items() if rank < spec.nodes and len(each) == 1 and all(each[0])}
    if not known:
        return
    first, last = min(known, key=lambda rank: known[rank][1]), max(known, key=lambda rank: known[rank][0])
    ended, began = known[first][1], known[last][0]
    if first != last and (began > ended or (began == ended and not _met(trial, first))):
        observed = (
            f"rank {last} on {place(trial, last)} began at {began}, rank {first} on {place(trial, first)} had "
            f"ended at {ended}: there was room for one at a time"
        )
        yield unknown(trial.job, observed, "all ranks run at the same time", fault="job.one-after-another")


def _met(trial: TrialResult, rank: int) -> bool:
    """Return whether a rank connected to another: container times are whole seconds, too coarse for a short trial."""
    return any(peer["outbound"] or peer["inbound"] for peer in every_stage(trial, rank)["port"]["peers"])


def _rank(trial: TrialResult, rank: int) -> Finding:
    evidence = trial.evidence.get(rank)
    subject = place(trial, rank)
    if evidence is None or not evidence.stages:
        why = f": {evidence.problem}" if evidence and evidence.problem else ""
        observed = f"rank {rank} sent no evidence (the job is {trial.state}){why}"
        return unknown(subject, observed, EXPECTED, fault="job.no-evidence")
    if evidence.problem:  # more lines than a probe prints, or other lines: their origin is unknown
        return unknown(subject, evidence.problem, EXPECTED, fault="job.no-evidence")
    observed = f"rank {rank} reported {len(evidence.stages)} stages"
    if evidence.missing:
        observed += f", {len(evidence.missing)} lines missing"
    return passed(subject, observed, EXPECTED)
