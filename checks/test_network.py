"""Layer 8, pod network: pods reach each other on every port, with full-MTU packets, at speed."""

from __future__ import annotations

import pytest

from checks.framework.evidence import Evidence
from checks.profiles.loader import Profile
from checks.rules.network import (
    directions,
    endpoint_findings,
    mtu_findings,
    port_findings,
    rate_findings,
    secondary_findings,
)
from checks.rules.rendezvous import arrow
from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec


@pytest.mark.acceptance
@pytest.mark.check(
    "network.ports",
    "NCCL's ports are reachable between the pods",
    requires=["rendezvous.port"],
    faults=["network.ports-blocked"],
)
def test_pods_reach_each_other_on_every_port(trial: TrialResult, spec: TrialSpec, evidence: Evidence) -> None:
    """A handful of the ports that the kernel picks for listeners are open between every two pods, both ways.

    NCCL opens connections on such ports after the rendezvous on MASTER_PORT. If a NetworkPolicy, a security group or a
    firewall allows only MASTER_PORT, the rendezvous succeeds and the first collective hangs.
    """
    evidence.expect(arrow(trial, a, b) for a, b in directions(spec))
    evidence.judge(port_findings(trial, spec))


@pytest.mark.acceptance
@pytest.mark.check(
    "network.mtu",
    "Full-MTU packets pass between the pods",
    requires=["network.ports"],
    by_pair=["network.ports"],
    faults=["network.mtu-blackhole", "network.mtu-mismatch"],
)
def test_whole_packets_get_through(trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence) -> None:
    """Packets of the interfaces' MTU arrive unfragmented, or the network reports that they are too large.

    If a path drops them silently, connections open and hang with the first large message: an overlay with a header that
    was not subtracted, jumbo frames on one side of a switch only, a firewall that drops ICMP.
    """
    evidence.expect(arrow(trial, a, b) for a, b in directions(spec))
    evidence.put(mtu_findings(trial, spec, profile))
    if profile.network.mtu is None:
        evidence.note("no profile names the MTU of the pod network: only MTU black holes and differences are faults")
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "network.endpoints",
    "Required endpoints are reachable, forbidden ones are not",
    by_node=True,
    requires=["job.started"],
    unless_failed=["rendezvous.dns"],
    faults=["network.endpoint-unreachable", "network.endpoint-open"],
)
def test_pods_reach_what_they_must_and_no_more(trial: TrialResult, spec: TrialSpec, evidence: Evidence) -> None:
    """Every reachable endpoint of the profile answers every pod; no forbidden one does.

    Otherwise a mirror or a tracking server that egress rules or a missing proxy block is noticed hours later. In an
    air gap a pod that reaches the internet is a security hole.
    """
    if not spec.endpoints:
        evidence.skip("the profile names no host that pods must, or must not, reach (network.endpoints)")
    evidence.judge(endpoint_findings(trial, spec))


@pytest.mark.acceptance
@pytest.mark.check(
    "network.secondary",
    "Secondary interfaces of the pods carry jumbo frames",
    by_node=True,
    requires=["job.started"],
    unless_failed=["rdma.networks", "rdma.devices"],
    faults=["network.secondary-mtu"],
)
def test_attached_interfaces_carry_jumbo_frames(
    trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """Every interface that Multus (or a similar plugin) attached to a pod has at least the profile's MTU.

    RoCE takes the largest InfiniBand MTU that fits into the interface's: with 1500 bytes that is 1024 instead of 4096,
    so four times the packets. The definition, the virtual function and the switch must all support the larger frames.
    """
    if profile.network.secondary_mtu is None:
        evidence.skip("no profile names an MTU for secondary interfaces")
    evidence.judge(secondary_findings(trial, spec, profile))


@pytest.mark.acceptance
@pytest.mark.check(
    "network.throughput",
    "TCP throughput between pods is plausible",
    requires=["network.mtu"],
    by_pair=["network.mtu"],
    faults=["network.slow"],
)
def test_tcp_is_not_absurdly_slow(trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence) -> None:
    """TCP between every two pods reaches the profile's floor for a moment, both ways.

    Not a benchmark: it detects a link at a tenth of its speed, a shaper or a broken offload. Checkpoints, data sets and
    NCCL's own bootstrap use this network.
    """
    if profile.network.tcp_gbit_s is None:
        evidence.skip("no profile names a floor for TCP between pods")
    evidence.expect(arrow(trial, a, b) for a, b in directions(spec))
    evidence.judge(rate_findings(trial, spec, profile), [f"the floor: {profile.network.source}"])
