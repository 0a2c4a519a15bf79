"""Layers 4 and 5, nodes and GPUs: enough GPU nodes are Ready, offer all their GPUs, and are free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from checks.judgement.capacity import rooms
from checks.judgement.judging import put
from checks.judgement.nodes import NO_PROFILE, node_findings, offer

if TYPE_CHECKING:
    from checks.evidence import Evidence
    from checks.profile import Profile
    from jobs.inventory import Inventory
    from jobs.trial import TrialSpec


@pytest.mark.preflight
@pytest.mark.check(
    "nodes.gpu", "There are enough GPU nodes, and all are Ready", requires=["api.version"],
    faults=["nodes.none", "nodes.no-gpu", "nodes.too-few", "nodes.not-ready"],
)  # fmt: skip
def test_gpu_nodes_are_ready(cluster: Inventory, profile: Profile, evidence: Evidence) -> None:
    """The cluster has at least as many GPU nodes as the trial spans, and every one of them is Ready.

    An empty cluster is not a healthy one. A node that is not Ready takes no pod: look at its kubelet, its container
    runtime and its disk.
    """
    if "nodes" in cluster.not_seen:
        evidence.unknown(f"the nodes are not seen: {cluster.not_seen['nodes']}")
    evidence.expect(node.name for node in cluster.gpu_nodes(profile.gpu.resource))
    put(evidence, node_findings(cluster, profile))
    evidence.verdict()


@pytest.mark.preflight
@pytest.mark.check(
    "gpu.allocatable", "Every GPU node offers all its GPUs", requires=["nodes.gpu"],
    faults=["gpu.missing", "gpu.none-allocatable", "gpu.oversubscribed"],
)  # fmt: skip
def test_every_gpu_node_offers_all_its_gpus(cluster: Inventory, profile: Profile, evidence: Evidence) -> None:
    """Every GPU node offers (allocatable) as many GPUs as the profile says such a node has.

    A node that offers fewer has lost one to the driver or the device plugin; one that offers none has no working device
    plugin. Neither will ever run a job that asks for whole nodes. The number is the profile's, not the cluster's own.
    """
    nodes = cluster.gpu_nodes(profile.gpu.resource)
    evidence.expect(node.name for node in nodes)
    put(evidence, (offer(node, profile) for node in nodes))
    if not profile.known and all(f.ok for f in evidence.findings):
        evidence.unknown(NO_PROFILE)
    evidence.verdict()


@pytest.mark.preflight
@pytest.mark.check(
    "gpu.free", "Enough GPUs are free for the trial", requires=["nodes.gpu"], unless_failed=["gpu.allocatable"],
    faults=["gpu.taken", "nodes.tainted", "nodes.cordoned", "nodes.too-few"],
)  # fmt: skip
def test_enough_gpus_are_free(cluster: Inventory, spec: TrialSpec, evidence: Evidence) -> None:
    """As many nodes as the trial spans have all its GPUs free and would take its pod now.

    Asked before anything is created: a job of which only a part fits holds that part and waits for ever. The finding
    names who holds the GPUs, which taint keeps the pod away, or which node is cordoned.
    """
    if "pods" in cluster.not_seen:
        evidence.unknown(f"who holds the GPUs is not seen: {cluster.not_seen['pods']}")
    nodes = cluster.gpu_nodes(spec.gpu_resource)
    found = rooms(cluster, nodes, spec)
    if nodes and len(found) < spec.nodes:
        chosen = ",".join(f"{k}={v}" for k, v in spec.node_selector.items()) or "the trial"
        evidence.add("cluster", ok=False, observed=f"{len(found)} of {len(nodes)} GPU nodes match {chosen}",
                     expected=f"at least {spec.nodes}", fault="nodes.too-few")
    enough = sum(not room.fault for room in found) >= spec.nodes
    for room in found:
        evidence.compare(room.node, observed=room.observed, fault=room.fault, ok=enough or not room.fault,
                         expected=f"{spec.gpus_per_node} free" + (" on this or another node" if enough else ""))
    evidence.note(f"the trial takes {spec.nodes} nodes with {spec.gpus_per_node} {spec.gpu_resource} each")
    evidence.verdict()
