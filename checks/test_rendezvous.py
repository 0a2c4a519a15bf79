"""Layer 7, rendezvous: every rank resolves every peer to the right pod and opens its MASTER_PORT, both ways."""

from __future__ import annotations

import pytest

from checks.framework.evidence import Evidence
from checks.rules.rendezvous import MAX_SKEW_S, arrow, convention_notes, dns_findings, largest_skew_s, port_findings
from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec


@pytest.mark.acceptance
@pytest.mark.check(
    "rendezvous.dns",
    "Every peer's name resolves on every rank",
    requires=["job.started"],
    faults=["dns.unresolved", "dns.wrong-address", "network.unreachable"],
)
def test_every_rank_resolves_every_peer(trial: TrialResult, spec: TrialSpec, evidence: Evidence) -> None:
    """Each rank gets the right address for the name of every rank (<job>-<i>.<service>) within the deadline.

    Training finds its peers by these names (MASTER_ADDR). Just after a start they do not exist yet; the probe waits for
    them, and the time to the first answer is shown. A name that never resolves means a broken cluster DNS, a Service
    without endpoints, or a policy that blocks port 53. If the server does not answer because the nodes cannot reach
    each other, a rank that knows the peer's address shows it.
    """
    ranks = range(spec.nodes)
    evidence.expect(arrow(trial, a, b) for a in ranks for b in ranks)
    evidence.judge(dns_findings(trial, spec))


@pytest.mark.acceptance
@pytest.mark.check(
    "rendezvous.port",
    "The rendezvous port is reachable both ways",
    requires=["rendezvous.dns"],
    faults=["port.blocked", "port.in-use"],
)
def test_every_rank_opens_the_port_of_every_peer(trial: TrialResult, spec: TrialSpec, evidence: Evidence) -> None:
    """TCP to MASTER_PORT works between every two pods in both directions, and the expected rank answers.

    torchrun does this first, and hangs silently if a NetworkPolicy, a security group or a firewall blocks it. One
    direction is not enough: NCCL connects back.
    """
    ranks = range(spec.nodes)
    evidence.expect(arrow(trial, a, b) for a in ranks for b in ranks if a != b)
    evidence.put(port_findings(trial, spec))
    evidence.note(*convention_notes(trial, spec))
    skew = largest_skew_s(trial, spec)
    if skew > MAX_SKEW_S:
        evidence.note(f"the clocks of two ranks differ by {skew:.1f} s: timestamps of their logs cannot be compared")
    evidence.verdict()
