"""Layers 11 and 12, NCCL: the all_reduce ends, over the profile's fabric, and its sums are correct."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from checks.framework.evidence import Evidence
from checks.profiles.loader import Profile
from checks.profiles.trial import COMMAND
from checks.rules import rdma, transport
from checks.rules.bandwidth import correctness_findings
from checks.rules.collectives import analysed, completed_findings, last_words, over_all_nodes, put_with_steps
from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec
from seatrial.logs.job_document import JobDocument

Jobs = Mapping[str, JobDocument | None]


@pytest.mark.acceptance
@pytest.mark.check(
    "nccl.completed",
    "Collectives over all nodes complete",
    requires=["rendezvous.port"],
    unless_failed=["runtime.gpus", "nccl.completed-node", "network.mtu", "rdma.devices", "rdma.counters"],
    faults=["nccl.hang", "nccl.crash", "nccl.program", "nccl.own-program", "nccl.nothing-shown"],
)
def test_the_all_reduce_ends(trial: TrialResult, spec: TrialSpec, nccl_jobs: Jobs, evidence: Evidence) -> None:
    """Each collective ends on every rank and prints its whole table: all_reduce by Ring and by default, send/recv.

    A hang is a link, a GPU or a missing rank; a crash names its first cause. A program that fails without an NCCL error
    proves nothing about the cluster: this is an error of the image, not a failure.
    """
    evidence.expect(over_all_nodes(spec).values())
    put_with_steps(evidence, completed_findings(trial, spec, nccl_jobs), nccl_jobs)
    evidence.note(*last_words(trial, spec))
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "nccl.transport",
    "No traffic between nodes uses sockets",
    requires=["rendezvous.port"],
    unless_failed=["runtime.gpus", "nccl.completed-node", "network.mtu", "rdma.devices", "rdma.counters"],
    faults=[
        "nccl.socket-fallback",
        "nccl.mixed-transport",
        "nccl.no-evidence",
        "nccl.log-truncated",
        "nccl.nothing-shown",
    ],
)
def test_no_data_goes_through_sockets(
    trial: TrialResult, nccl_jobs: Jobs, profile: Profile, evidence: Evidence
) -> None:
    """Every channel of every rank that crosses nodes uses RDMA, in both directions, as the log itself shows.

    NCCL falls back to TCP sockets without failing, at a hundredth of the bandwidth. One rank is enough to slow all of
    them down. A log that does not show the transport is an error: nothing observed is never a pass.
    """
    put_with_steps(evidence, transport.transport_findings(trial, nccl_jobs, profile), nccl_jobs)
    evidence.note(*rdma.nic_notes(trial, profile))
    if not evidence.findings:
        evidence.unknown("no collective left a log to judge")
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "nccl.ranks",
    "Every GPU takes part in the collectives",
    requires=["nccl.completed", "nccl.transport"],
    faults=["nccl.ranks-missing"],
)
def test_every_gpu_took_part(nccl_jobs: Jobs, spec: TrialSpec, evidence: Evidence) -> None:
    """NCCL's communicator had one rank for each GPU of each node of the trial.

    A GPU without a rank was not tested. Fewer ranks usually mean that the image sets its own world size.
    """
    put_with_steps(evidence, transport.rank_findings(nccl_jobs, spec), nccl_jobs)
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "nccl.fabric",
    "Traffic uses the fabric in the profile",
    requires=["nccl.completed", "nccl.transport"],
    faults=["nccl.wrong-fabric"],
)
def test_data_goes_over_the_right_fabric(
    trial: TrialResult, nccl_jobs: Jobs, profile: Profile, evidence: Evidence
) -> None:
    """The transport between nodes is the fabric that the profile names, not just any RDMA.

    RoCE over the storage network is RDMA too, and slower. Usually NCCL_IB_HCA selects no device or all devices.
    """
    if profile.fabric.kind is None:
        evidence.unknown(transport.NO_PROFILE)
    put_with_steps(evidence, transport.fabric_findings(trial, nccl_jobs, profile.fabric.kind), nccl_jobs)
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "nccl.gdr",
    "GPUDirect RDMA is used on every channel",
    requires=["nccl.completed", "nccl.transport"],
    unless_failed=["topology.affinity", "topology.acs"],
    faults=["nccl.gdr-off", "nccl.gdr-mixed", "nccl.no-evidence"],
)
def test_gpudirect_rdma_is_used(trial: TrialResult, nccl_jobs: Jobs, profile: Profile, evidence: Evidence) -> None:
    """The NICs read and write GPU memory directly on every channel between nodes.

    Without GPUDirect all data is copied through host memory, at a quarter of the rate. Usually
    nvidia-peermem or DMA-BUF is missing on a node, or ACS is on.
    """
    if profile.fabric.gdr is None:
        evidence.unknown(transport.NO_PROFILE)
    if not profile.fabric.gdr:
        evidence.skip(f"profile {profile.name} says that this fabric has no GPUDirect")
    put_with_steps(evidence, transport.gdr_findings(trial, nccl_jobs), nccl_jobs)
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "nccl.rails",
    "Every rail of every node carries data",
    requires=["nccl.completed", "nccl.transport"],
    unless_failed=["nccl.ranks"],
    faults=["nccl.rail-missing", "nccl.no-evidence"],
)
def test_every_rail_carries_data(
    trial: TrialResult, nccl_jobs: Jobs, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """Each node uses the profile's number of network devices, counted from the channels and not from the banner.

    Depending on the algorithm, a lost rail costs up to half of the bandwidth, or is invisible to a benchmark. Usually a
    port is down, or its device is not in the pod.
    """
    if profile.fabric.kind == "mnnvl" and profile.fabric.rails is None:
        evidence.skip(f"between the nodes of profile {profile.name} is NVLink and has no rails")
    if profile.fabric.rails is None:
        evidence.unknown(transport.NO_PROFILE)
    own = nccl_jobs.get(COMMAND)
    if own is not None and own["ranks"] != spec.nodes * spec.gpus_per_node:
        evidence.unknown(f"the program had {own['ranks']} ranks: their rails do not represent all GPUs")
    put_with_steps(evidence, transport.rail_findings(trial, nccl_jobs, profile.fabric.rails), nccl_jobs)
    evidence.note(*rdma.nic_notes(trial, profile))
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "nccl.other",
    "NCCL's log shows no further fault",
    requires=["nccl.completed", "nccl.transport"],
    unless_failed=["nccl.intra-node"],
)
def test_the_log_shows_no_other_fault(trial: TrialResult, nccl_jobs: Jobs, evidence: Evidence) -> None:
    """NCCL's log shows no further fatal or degrading fault, such as different versions, unused NVLink or retries.

    Each has its own entry in the catalogue (seatrial faults), with the lines of the log as evidence.
    """
    put_with_steps(evidence, transport.other_findings(trial, nccl_jobs), nccl_jobs)
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "nccl.correctness",
    "Sums over all nodes are correct",
    requires=["nccl.completed"],
    unless_failed=["nccl.correctness-node"],
    faults=["nccl.wrong-results"],
)
def test_the_sums_are_right(nccl_jobs: Jobs, evidence: Evidence) -> None:
    """Every row of every table was checked and holds no wrong element (#wrong is 0; N/A is not 0).

    Incorrect sums are silent data corruption by a GPU, a cable or a NIC. Training is not possible.
    """
    put_with_steps(evidence, correctness_findings(analysed(nccl_jobs)), nccl_jobs)
    evidence.verdict()
