"""Layer 12, NCCL bandwidth: the named rows of the collectives reach the platform's floors, in every repeat."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from checks.framework.evidence import Evidence
from checks.profiles.loader import Profile
from checks.profiles.trial import ALLTOALL, COMMAND, DEFAULT, OPERATIONS, RING, SENDRECV
from checks.rules import perftest, rdma
from checks.rules.bandwidth import (
    blind_findings,
    floor_findings,
    floors_of,
    impossible_findings,
    notes,
    sources,
    spread_findings,
    table_of,
    unjudged,
)
from checks.rules.ranks import facts
from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec
from seatrial.faults.catalogue import formed
from seatrial.logs.job_document import JobDocument

Jobs = Mapping[str, JobDocument | None]

FAULTS = ["nccl.low-bandwidth", "nccl.impossible-bandwidth"]


@pytest.mark.acceptance
@pytest.mark.check(
    "nccl.bandwidth-ring",
    "Ring all_reduce bandwidth meets its floor",
    requires=["nccl.completed", "nccl.transport"],
    unless_failed=[
        "nccl.gdr",
        "nccl.rails",
        "nccl.fabric",
        "nccl.intra-node",
        "nccl.bandwidth-node",
        "runtime.clocks",
        "runtime.nvlinks",
        "topology.affinity",
        "topology.same",
        "topology.acs",
        "network.secondary",
        "rdma.bandwidth",
    ],
    faults=FAULTS,
)
def test_the_network_reaches_its_floor(
    trial: TrialResult, nccl_jobs: Jobs, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """With NCCL_ALGO=Ring the named rows reach the profile's floors, out of place and in place.

    Under Ring the bus bandwidth is the network's traffic, so this judges the network. Low with every rail and GPUDirect
    in use means congestion, oversubscribed uplinks, a port at a lower rate, or a PCIe link that trained down.
    """
    evidence.note(*rdma.nic_notes(trial, profile))
    judge(RING, trial, nccl_jobs, spec, profile, evidence)


@pytest.mark.acceptance
@pytest.mark.check(
    "nccl.bandwidth-default",
    "Default all_reduce bandwidth meets its floor",
    requires=["nccl.bandwidth-ring"],
    faults=FAULTS,
)
def test_users_get_the_bandwidth(
    trial: TrialResult, nccl_jobs: Jobs, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """With NCCL's own choice of algorithm, as users run it, the named rows reach the profile's floors.

    On two nodes that is usually Tree or NVLSTree, which may exceed one node's link rate. Low here with a good
    Ring points inside the node: NVLS not available, a wrong topology file, a tuner plugin.
    """
    evidence.note(*rdma.nic_notes(trial, profile))
    judge(COMMAND if runs_command(spec) else DEFAULT, trial, nccl_jobs, spec, profile, evidence)


@pytest.mark.acceptance
@pytest.mark.check(
    "nccl.bandwidth-sendrecv",
    "send/recv bandwidth between nodes meets its floor",
    requires=["nccl.completed", "nccl.transport"],
    unless_failed=["nccl.bandwidth-ring", "nccl.bandwidth-default"],
    faults=["nccl.low-bandwidth-sendrecv", "nccl.impossible-bandwidth"],
)
def test_sendrecv_reaches_its_floor(
    trial: TrialResult, nccl_jobs: Jobs, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """With every rank sending to the next, as in pipeline parallelism, the named rows reach the profile's floors.

    One pair of GPUs at a time uses the NICs between two nodes, so this shows a single bad NIC or cable that a sum
    over all of them hides.
    """
    judge(SENDRECV, trial, nccl_jobs, spec, profile, evidence)


@pytest.mark.acceptance
@pytest.mark.check(
    "nccl.bandwidth-alltoall",
    "all_to_all bandwidth meets its floor",
    requires=["nccl.completed", "nccl.transport"],
    unless_failed=["nccl.bandwidth-ring", "nccl.bandwidth-default"],
    faults=["nccl.low-bandwidth-alltoall", "nccl.impossible-bandwidth"],
)
def test_all_to_all_reaches_its_floor(
    trial: TrialResult, nccl_jobs: Jobs, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """With every rank sending to all, as in expert parallelism, the named rows reach the profile's floors.

    It crosses rails, which a ring does not: low here with a good ring means spine switches that are oversubscribed or
    route several flows over one link.
    """
    judge(ALLTOALL, trial, nccl_jobs, spec, profile, evidence)


@pytest.mark.acceptance
@pytest.mark.check(
    "nccl.stability",
    "Repeated bandwidth measurements agree",
    requires=["nccl.completed", "nccl.transport"],
    unless_failed=["nccl.bandwidth-ring", "nccl.bandwidth-default", "nccl.bandwidth-node"],
    faults=["nccl.unstable"],
)
def test_repeats_agree(nccl_jobs: Jobs, spec: TrialSpec, profile: Profile, evidence: Evidence) -> None:
    """The repeats of every row of 1 GiB and more are within the profile's spread.

    A good median with a large spread means a shared fabric, a link that retrains, or a GPU that is throttled at times.
    Training then runs at the pace of the slowest repeat.
    """
    limit = profile.bench.spread_max
    skip_for_a_command(RING, spec, evidence)
    if limit is None:
        evidence.skip("no profile has a maximum spread of repeats (bench.spread_max)")
    if profile.bench.repeats < 2:
        evidence.skip(f"profile {profile.name} requires one sweep only (bench.repeats)")
    for name in (RING, DEFAULT):
        table = table_of(nccl_jobs.get(name))
        if table is not None:
            evidence.put(spread_findings(table, f"{OPERATIONS[name]} {name}", limit))
    evidence.note(
        f"profile {profile.name}: bench.spread_max {limit:.0%}; SuperBench calls a node defective 5 % below "
        "its baseline (microsoft.github.io/superbenchmark, data diagnosis), and repeats may deviate that far to "
        "either side"
    )
    evidence.verdict()


def judge(
    name: str, trial: TrialResult, nccl_jobs: Jobs, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """Judge one table against the floors of its collective and algorithm."""
    skip_for_a_command(name, spec, evidence)
    op, algorithm = (
        OPERATIONS[name],
        RING if name == RING or (name == COMMAND and asks_for_ring(nccl_jobs.get(name))) else DEFAULT,
    )
    floors = floors_of(profile, RING if algorithm == RING else name, spec.nodes)
    if not floors and name in (SENDRECV, ALLTOALL) and profile.known:
        evidence.skip(f"profile {profile.name} has no floor for {op} on {spec.nodes} nodes")
    job = nccl_jobs.get(name)
    table = table_of(job, op)
    if job is None or table is None:
        evidence.unknown("no table to judge")
    for text in notes(name, job, table, profile, facts(trial, 0, name)):
        evidence.note(text)
    if name == COMMAND and (size := (job["ranks"], job["nodes"])) != (spec.nodes * spec.gpus_per_node, spec.nodes):
        evidence.unknown(f"floors are for all GPUs, and the program had {size[0]} ranks on {size[1]} nodes")
    if not floors and profile.unjudged:
        evidence.put(impossible_findings(name, job, table, profile, spec))
        if evidence.findings:
            evidence.verdict()
        busbw, why = unjudged(table, op, algorithm, profile, spec.nodes)
        if why:
            evidence.unknown(why)
        evidence.skip(f"{profile.unjudged}; measured, not judged: {busbw:.1f} GB/s", waived=True)
    if not floors:
        said = f"profile {profile.name} has" if profile.known else "no profile (pass --profile NAME): there is"
        evidence.unknown(f"{said} no floor for {op}, {algorithm}, {spec.nodes} nodes")
    evidence.put(floor_findings(table, floors))
    advise_by_writes(op, trial, spec, profile, evidence)
    evidence.put(impossible_findings(name, job, table, profile, spec))
    evidence.judge(blind_findings(table, floors, profile), sources(floors, profile))


def advise_by_writes(op: str, trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence) -> None:
    """Add the catalogue's advice for a slow collective whose RDMA writes are fast."""
    fault = next((f.fault for f in evidence.findings if f.ok is False), "")
    if not fault or not (said := perftest.sentence(op, trial, spec, profile)):
        return
    evidence.note(said)
    if (known := formed(fault, said)) and known.variant:
        evidence.advise(fault, confirm=known.variant.confirm, remedy=known.variant.remedy)


def runs_command(spec: TrialSpec) -> bool:
    """Return whether the trial runs the user's own program."""
    return any(chosen.command for chosen in spec.collectives)


def asks_for_ring(job: JobDocument | None) -> bool:
    """Return whether a log shows that NCCL was configured to use rings."""
    return job is not None and str(job["env"].get("NCCL_ALGO", "")).lower() == RING


def skip_for_a_command(name: str, spec: TrialSpec, evidence: Evidence) -> None:
    """Skip a check of the trial's own collectives if the user's program runs instead."""
    if runs_command(spec) and name != COMMAND:
        evidence.skip("--command: your program runs instead of this collective (nccl.bandwidth-default judges it)")
