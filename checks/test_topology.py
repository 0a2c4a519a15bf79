"""Layer 10, topology: kubelets can align what pods request, and GPUs have their NICs next to them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checks.framework.evidence import Evidence
from checks.profiles.loader import Profile
from checks.rules.pool import Pool
from checks.rules.ranks import place
from checks.rules.topology import (
    AskKubelets,
    acs_findings,
    affinity_findings,
    asked_for,
    demand_findings,
    likeness_findings,
    policy_findings,
    read_zones,
)
from jobs.cluster.facts.stack import Listing
from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec


@pytest.mark.preflight
@pytest.mark.check(
    "topology.policy",
    "The topology policy admits the trial's pods",
    by_node=True,
    requires=["nodes.gpu"],
    faults=["topology.inadmissible", "topology.policy-differs"],
    needs=["nodes", "topologies"],
)
def test_no_topology_policy_refuses_the_pods(
    listed: Callable[[str], Listing],
    pool: Pool,
    spec: TrialSpec,
    profile: Profile,
    kubelets: AskKubelets,
    evidence: Evidence,
) -> None:
    """A pod's devices can be aligned on every node's NUMA zones under the kubelet's policy.

    Six or eight GPUs on two NUMA nodes of four can never be admitted under single-numa-node. The scheduler ignores the
    policy: it binds the pod, the kubelet rejects it (TopologyAffinityError), and a Job's pods fail one after the other.
    Where the profile names a policy or a scope, every kubelet must have it.
    """
    topologies, demand = listed("noderesourcetopologies"), profile.topology
    zones, nodes = read_zones(topologies.items), [node.name for node in pool.nodes]
    if demand.policy or demand.scope:
        evidence.expect(nodes)
        zones, why = asked_for(nodes, zones, demand, kubelets, topologies.hidden)
        evidence.put(demand_findings(nodes, zones, profile, why))
    elif topologies.hidden:
        evidence.skip(f"the policies are not seen: {topologies.hidden}")
    if not evidence.findings and not any(zones[name].policy for name in nodes if name in zones):
        evidence.skip("the policies are not seen: no NodeResourceTopology object reports one of these nodes")
    shaped = [name for name in nodes if name in zones and (zones[name].offers or not evidence.findings)]
    evidence.put(policy_findings(shaped, zones, spec))
    if unseen := [name for name in nodes if name not in zones]:
        evidence.note(f"no NodeResourceTopology object for {', '.join(unseen[:8])}")
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "topology.affinity",
    "Every GPU has a nearby NIC",
    by_node=True,
    requires=["runtime.gpus"],
    unless_failed=["rdma.devices"],
    faults=["topology.gpu-nic-far"],
)
def test_every_gpu_has_a_card_beside_it(
    trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """Each GPU's distance to its nearest NIC is within the profile's limit (PIX, PXB, PHB, ...).

    GPUDirect RDMA is used up to PXB, and is slow through the CPU. A NIC in the wrong slot, or a virtual function of
    another NIC, slows one rail, and with it the whole job.
    """
    if profile.topology.gpu_nic_max is None:
        evidence.skip("no profile has a maximum distance between GPU and NIC")
    evidence.judge(affinity_findings(trial, spec, profile), [f"the limit: {profile.topology.source}"])


@pytest.mark.acceptance
@pytest.mark.check(
    "topology.same",
    "All nodes share one GPU and NIC topology",
    by_node=True,
    requires=["runtime.gpus"],
    unless_failed=["topology.affinity", "rdma.devices"],
    faults=["topology.differs"],
)
def test_all_nodes_are_built_alike(trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence) -> None:
    """Each GPU has the same NUMA node and the same links to other GPUs and to the NICs on all nodes.

    Fabrics are cabled by rail: the n-th NIC of every node is connected to the same leaf switch. If NICs are swapped,
    NCCL pairs GPUs over different rails, and traffic crosses the spine unnecessarily.
    """
    if not profile.fabric.verbs:
        evidence.skip("the profile names no fabric with NICs visible in a pod")
    findings = list(likeness_findings(trial, spec))
    if all(f.ok is None for f in findings):
        evidence.skip("neither nvidia-smi topo -m nor sysfs shows the topology in these pods")
    evidence.expect(place(trial, rank) for rank in range(spec.nodes))
    evidence.judge(findings)


@pytest.mark.acceptance
@pytest.mark.check(
    "topology.acs",
    "PCIe ACS is off between GPUs and NICs",
    by_node=True,
    requires=["runtime.gpus"],
    faults=["topology.acs"],
)
def test_bridges_do_not_redirect(trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence) -> None:
    """Access Control Services do not send the traffic between a GPU and its NIC up to the CPU and back.

    Only privileged pods can read this register; otherwise the check is skipped, and the fault's command shows it on the
    node.
    """
    if not profile.topology.acs_off:
        evidence.skip("no profile requires ACS to be off (virtual machines need it on)")
    findings = list(acs_findings(trial, spec))
    if not findings:
        evidence.skip("the PCI configuration can be read by privileged pods only: ACS is not seen")
    evidence.judge(findings)
