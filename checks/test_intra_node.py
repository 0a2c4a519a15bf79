"""Layers 11 and 12 inside one node: each node's GPUs alone, all nodes at once, before the joint collectives."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from checks.framework.evidence import Evidence
from checks.profiles.loader import Profile
from checks.profiles.trial import DEFAULT, NODE
from checks.rules.bandwidth import COLLECTIVE, correct, floor_findings, notes, sources, table_of
from checks.rules.collectives import alone_findings
from checks.rules.intra_node import path_findings
from checks.rules.ranks import facts, place
from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec
from seatrial.logs.job_document import JobDocument

Jobs = Mapping[int, JobDocument | None]


@pytest.mark.acceptance
@pytest.mark.check(
    "nccl.completed-node",
    "Collectives inside every node complete",
    by_node=True,
    requires=["rendezvous.port"],
    unless_failed=["runtime.gpus"],
    faults=["nccl.hang", "nccl.crash", "nccl.program"],
)
def test_every_node_ends_alone(trial: TrialResult, spec: TrialSpec, node_jobs: Jobs, evidence: Evidence) -> None:
    """An all_reduce over the GPUs of one node ends, on every node at the same time, and prints its whole table.

    A failure is a GPU, an NVLink or the node's software, and the node is named. A collective over both nodes would not
    localise it.
    """
    skip_without_peers(spec, evidence)
    evidence.expect(place(trial, rank) for rank in range(spec.nodes))
    evidence.judge(alone_findings(trial, spec, node_jobs))


@pytest.mark.acceptance
@pytest.mark.check(
    "nccl.intra-node",
    "Intra-node traffic uses the platform's GPU interconnect",
    by_node=True,
    requires=["nccl.completed-node"],
    unless_failed=["runtime.fabric", "runtime.nvlinks"],
    faults=["nccl.intra-node-path", "nccl.no-evidence", "nccl.log-truncated"],
)
def test_gpus_of_a_node_reach_each_other(
    trial: TrialResult, spec: TrialSpec, profile: Profile, node_jobs: Jobs, evidence: Evidence
) -> None:
    """Every channel between GPUs of one node takes the path that the profile names: NVLink, or shared memory on PCIe.

    NCCL falls back to host memory silently if peer access is not possible: NVLinks down, no fabric manager, IOMMU or
    ACS enabled, NCCL_P2P_DISABLE set in an image.
    """
    skip_without_peers(spec, evidence)
    asked = profile.runtime.intra_node
    if asked is None:
        evidence.skip("no profile names the path between the GPUs of a node (runtime.intra_node)")
    evidence.judge(path_findings(trial, spec, node_jobs, asked))


@pytest.mark.acceptance
@pytest.mark.check(
    "nccl.correctness-node",
    "Intra-node sums are correct",
    by_node=True,
    requires=["nccl.completed-node"],
    faults=["nccl.wrong-results"],
)
def test_the_sums_are_right_inside_every_node(
    trial: TrialResult, spec: TrialSpec, node_jobs: Jobs, evidence: Evidence
) -> None:
    """Every row of every node's own table was checked and holds no wrong element.

    A GPU or an NVLink of this node corrupts data: the node is named, and must be taken out of service.
    """
    skip_without_peers(spec, evidence)
    evidence.judge(correct(place(trial, rank), table_of(node_jobs.get(rank))) for rank in range(spec.nodes))


@pytest.mark.acceptance
@pytest.mark.check(
    "nccl.bandwidth-node",
    "Intra-node bus bandwidth meets its floor",
    by_node=True,
    requires=["nccl.completed-node"],
    unless_failed=["nccl.intra-node", "runtime.clocks", "runtime.nvlinks", "runtime.fabric"],
    faults=["nccl.low-bandwidth-node"],
)
def test_every_node_reaches_its_floor(
    trial: TrialResult, spec: TrialSpec, profile: Profile, node_jobs: Jobs, evidence: Evidence
) -> None:
    """The named rows of each node's own all_reduce reach the profile's floors for one node.

    Judged before the network: a node with slow NVLinks cannot saturate it, and would look like a bad fabric.
    """
    skip_without_peers(spec, evidence)
    floors = profile.floor(COLLECTIVE, DEFAULT, 1)
    for rank in range(spec.nodes):
        node, job = place(trial, rank), node_jobs.get(rank)
        table = table_of(job)
        if job is None or table is None:
            evidence.add(node, ok=None, observed="no table to judge")
            continue
        evidence.note(*(f"{node}: {text}" for text in notes(NODE, job, table, profile, facts(trial, rank, NODE))))
        evidence.put(floor_findings(table, floors, node))
    if not floors:
        evidence.skip(
            f"profile {profile.name or '(none)'} has no floor for {COLLECTIVE} on one node: shown, not judged"
        )
    evidence.note(*sources(floors, profile))
    evidence.verdict()


def skip_without_peers(spec: TrialSpec, evidence: Evidence) -> None:
    """Skip the check if a node has only one GPU."""
    if any(chosen.command for chosen in spec.collectives):
        evidence.skip("--command: your program runs over all nodes, and nothing runs on a single node")
    if not any(chosen.scope == "node" for chosen in spec.collectives):
        evidence.skip(f"the trial has {spec.gpus_per_node} GPU a node: there is no intra-node traffic to measure")
