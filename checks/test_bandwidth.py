"""Layer 12, NCCL bandwidth: the named rows of the all_reduce reach the floors of this platform."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from checks.judgement import cards
from checks.judgement.bandwidth import COLLECTIVE, floor_findings, impossible_findings, notes, table_of
from checks.judgement.judging import note, put
from checks.trial_spec import DEFAULT, RING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from checks.evidence import Evidence
    from checks.profile import Profile
    from jobs.launcher import TrialResult
    from jobs.trial import TrialSpec

    Jobs = Mapping[str, dict[str, Any] | None]

FAULTS = ["nccl.low-bandwidth", "nccl.impossible-bandwidth"]


@pytest.mark.acceptance
@pytest.mark.check(
    "nccl.bandwidth-ring", "The network reaches its floor (Ring)", requires=["nccl.completed", "nccl.transport"],
    unless_failed=["nccl.gdr", "nccl.rails", "nccl.fabric"], faults=FAULTS,
)  # fmt: skip
def test_the_network_reaches_its_floor(
    trial: TrialResult, nccl_jobs: Jobs, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """With NCCL_ALGO=Ring the named rows reach the profile's floors, out of place and in place.

    Ring puts the bus bandwidth on the wires, so this judges the network. Low with every rail and GPUDirect in use means
    congestion, oversubscribed uplinks, a port at a lower rate, or a PCIe link that trained down.
    """
    note(evidence, cards.notes(trial, profile))
    judge(RING, nccl_jobs, spec, profile, evidence)


@pytest.mark.acceptance
@pytest.mark.check(
    "nccl.bandwidth-default", "Users get the bandwidth of this platform (NCCL's own choice)",
    requires=["nccl.bandwidth-ring"], faults=FAULTS,
)  # fmt: skip
def test_users_get_the_bandwidth(
    trial: TrialResult, nccl_jobs: Jobs, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """With the algorithm that NCCL chooses itself the named rows reach the profile's floors: what users get.

    On two nodes that is usually Tree or NVLSTree, which may exceed what one node's wires carry. Low here with a good
    Ring points inside the node: NVLS not available, a wrong topology file, a tuner plugin.
    """
    note(evidence, cards.notes(trial, profile))
    judge(DEFAULT, nccl_jobs, spec, profile, evidence)


def judge(algorithm: str, nccl_jobs: Jobs, spec: TrialSpec, profile: Profile, evidence: Evidence) -> None:
    """Judge one table against the floors of its algorithm."""
    floors = profile.floor(COLLECTIVE, algorithm, spec.nodes)
    job = nccl_jobs.get(algorithm) or {}
    table = table_of(job)
    if table is None:
        evidence.unknown("there is no table to judge")
    for text in notes(algorithm, job, table, profile):
        evidence.note(text)
    if not floors:
        said = f"profile {profile.name} has" if profile.known else "no profile (pass --profile NAME): there is"
        evidence.unknown(f"{said} no floor for {COLLECTIVE}, {algorithm}, {spec.nodes} nodes")
    put(evidence, floor_findings(table, floors))
    put(evidence, impossible_findings(algorithm, job, table, profile, spec))
    for floor in floors:
        evidence.note(f"floor {floor.busbw_gbps:g} GB/s: {floor.topology}; {' '.join(floor.source.split())}")
    evidence.verdict()
