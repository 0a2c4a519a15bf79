"""Every failure says in which layer to look first; what shows in NCCL is usually made below it."""

from __future__ import annotations

import pytest

from checks.faults import FAULTS, LOOK, explain


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_every_fault_says_where_to_look_first(fault: str) -> None:
    """A layer by number and name."""
    assert explain(fault)["look"].startswith("layer ")


def test_the_exceptions_are_faults() -> None:
    """A word that names no fault would point nobody anywhere."""
    assert set(LOOK) <= set(FAULTS)


@pytest.mark.parametrize(
    ("fault", "first"),
    [("nccl.socket-fallback", "9"), ("topology.affinity", "10"), ("dns.unresolved", "7"), ("storage.slow", "15")],
)
def test_the_symptoms_of_the_users_map_lead_where_it_says(fault: str, first: str) -> None:
    """Socket: RDMA first; TopologyAffinityError: topology; no rendezvous: DNS; stalls at checkpoints: storage."""
    assert explain(fault)["look"].split()[1] == first
