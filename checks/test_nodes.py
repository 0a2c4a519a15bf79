"""Layers 4 and 5, nodes and GPUs: enough GPU nodes are Ready and uniform, offer all their GPUs, and are free."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checks.framework.evidence import Evidence
from checks.framework.session import Session
from checks.profiles.loader import Profile
from checks.rules.api import git_version
from checks.rules.capacity import releases, room_findings, rooms, shape_findings, shortage
from checks.rules.nodes import (
    NO_PROFILE,
    kubelet_skew,
    node_findings,
    offers,
    other_events,
    refusals,
    report_findings,
    unlike_nodes,
)
from checks.rules.pool import Pool, resource_of
from checks.rules.stack import claimed_instead, handed_out, label_findings, operands, slice_findings
from checks.rules.topology import read_zones
from checks.rules.visibility import require_listed, require_seen, skip_on_demand
from jobs.cluster.client.kube import Kube
from jobs.cluster.facts.conditions import Report
from jobs.cluster.facts.inventory import Inventory
from jobs.cluster.facts.stack import Listing
from jobs.trial.spec import TrialSpec


@pytest.mark.preflight
@pytest.mark.check(
    "nodes.gpu",
    "Enough GPU nodes exist and are Ready",
    by_node=True,
    requires=["api.version"],
    faults=["nodes.none", "nodes.no-gpu", "nodes.too-few", "nodes.not-ready", "nodes.pressure", "nodes.other-kind"],
    needs=["nodes"],
)
def test_gpu_nodes_are_ready(
    cluster: Inventory, pool: Pool, profile: Profile, spec: TrialSpec, seatrial: Session, evidence: Evidence
) -> None:
    """The cluster has at least as many GPU nodes as the trial spans, and every one of them is Ready.

    An empty cluster is not healthy. A node that is not Ready runs no pod: check its kubelet, its container runtime and
    its disk. Nodes outside the profile's pool are listed, but not judged.
    """
    require_seen(evidence, cluster, "nodes")
    skip_on_demand(evidence, len(pool.nodes), spec, profile.launch)
    evidence.expect(node.name for node in pool.nodes)
    evidence.note(*pool.notes())
    evidence.judge(node_findings(cluster, pool, profile, seatrial.options.nodes, spec.node_names))


@pytest.mark.preflight
@pytest.mark.check(
    "nodes.conditions",
    "No node condition reports a problem",
    by_node=True,
    requires=["nodes.gpu"],
    faults=["nodes.unhealthy"],
    needs=["nodes", "node-events"],
)
def test_no_agent_reports_a_problem_of_a_node(
    pool: Pool, warned_nodes: tuple[list[Report], str], evidence: Evidence
) -> None:
    """No condition of an agent, and no Warning event about GPUs or links, reports a problem of a node.

    node-problem-detector, NVSentinel, gpud and the clouds' agents detect problems that a short trial may miss: an
    earlier Xid, a flapping link. A condition about GPUs or links fails the node; any other condition, and an event, is
    inconclusive.
    """
    events, hidden = warned_nodes
    evidence.expect(node.name for node in pool.nodes)
    evidence.put(report_findings(pool.nodes, events))
    evidence.note(*other_events(pool.nodes, events))
    if hidden:
        evidence.note(f"events of the nodes are not seen: {hidden}")
    evidence.verdict()


@pytest.mark.preflight
@pytest.mark.check(
    "nodes.uniform",
    "All nodes run the same software versions",
    by_node=True,
    requires=["nodes.gpu"],
    faults=["nodes.drift"],
    needs=["nodes"],
)
def test_nodes_of_a_pool_are_alike(pool: Pool, profile: Profile, evidence: Evidence) -> None:
    """Kernel, system, container runtime, kubelet and driver are the same on all nodes of the pool.

    A job depends on its worst node: a node with a different driver or kernel fails alone, or slows down the job.
    Usually a roll-out did not reach it. The profile lists intended differences (stack.may_differ).
    """
    evidence.expect(node.name for node in pool.nodes)
    evidence.judge(unlike_nodes(pool.nodes, profile.stack.may_differ))


@pytest.mark.preflight
@pytest.mark.check(
    "nodes.skew",
    "Kubelet versions are within the supported skew",
    by_node=True,
    requires=["nodes.gpu"],
    unless_failed=["nodes.uniform"],
    faults=["nodes.kubelet-skew"],
    needs=["nodes"],
)
def test_kubelets_are_within_the_supported_skew(kube: Kube, pool: Pool, evidence: Evidence) -> None:
    """No kubelet is newer than the API server, and none is more than three minor versions older.

    That is Kubernetes' own rule; beyond it fields of a pod are dropped silently. The nodes were upgraded
    before the control plane, or not at all.
    """
    evidence.expect(node.name for node in pool.nodes)
    evidence.judge(kubelet_skew(pool.nodes, git_version(kube.version())))


@pytest.mark.preflight
@pytest.mark.check(
    "gpu.allocatable",
    "Every node's GPUs are allocatable",
    by_node=True,
    requires=["nodes.gpu"],
    unless_failed=["stack.pods", "stack.dra"],
    faults=[
        "gpu.missing",
        "gpu.none-allocatable",
        "gpu.oversubscribed",
        "gpu.partitioned",
        "dra.slices-missing",
        "nodes.other-kind",
    ],
    needs=["nodes"],
    proven_by=["nccl.ranks"],  # not runtime.gpus, which is skipped where the provider owns the driver
)
def test_every_gpu_node_offers_all_its_gpus(
    pool: Pool,
    profile: Profile,
    spec: TrialSpec,
    listed: Callable[[str], Listing],
    evidence: Evidence,
    cluster: Inventory,
) -> None:
    """Every GPU node offers (allocatable) the profile's number of GPUs.

    A node that offers fewer has lost one to the driver or the device plugin; one that offers none has no working device
    plugin. Neither can run a job that requests whole nodes. The number is the profile's, not the cluster's own.
    """
    if not pool.whole:
        skip_on_demand(evidence, 0, spec, profile.launch)
    evidence.expect(node.name for node in pool.whole)
    # With dynamic resource allocation, by claims or by a mapped resource name, no node counts GPUs as allocatable.
    claims = handed_out(pool, profile, spec, listed)
    claimed = bool(claims) or not spec.gpu_resource
    if claimed:
        slices = require_listed(evidence, listed("resourceslices"), "ResourceSlices")
        evidence.put(slice_findings(pool.whole, claims, listed("deviceclasses"), slices))
    else:
        plugins = operands(cluster.pods).get("device-plugin", {})
        evidence.put(claimed_instead(pool, profile, listed) or offers(pool, profile, spec.nodes, plugins))
    evidence.note(*(f"not judged: {name}, {why}" for name, why in pool.parts.items()))
    stated = profile.gpu.per_node is not None or profile.pod.claims
    if not stated and all(f.ok for f in evidence.findings):
        evidence.unknown(
            f"profile {profile.name} does not say how many GPUs a node has (gpu.per_node): one that is "
            "missing everywhere is not seen"
            if profile.known
            else NO_PROFILE
        )
    evidence.verdict()


@pytest.mark.preflight
@pytest.mark.check(
    "gpu.admitted",
    "Kubelets admit pods that request allocatable GPUs",
    by_node=True,
    requires=["nodes.gpu"],
    unless_failed=["gpu.allocatable"],
    faults=["nodes.devices-refused"],
    needs=["nodes", "pods"],
    last=True,
)
def test_kubelets_admit_pods_with_devices(
    cluster: Inventory, pool: Pool, spec: TrialSpec, profile: Profile, seatrial: Session, evidence: Evidence
) -> None:
    """Each kubelet that rejected a pod with GPUs or RDMA devices has admitted such a pod since.

    The scheduler counts a node's allocatable devices; only the kubelet's plugin allocates them. A rejected pod is
    Failed, holds no devices, and is missing in a list of running pods. Only the last day counts; a later running pod,
    or one of this trial with evidence, shows that the fault is fixed. No check depends on this one.
    """
    require_seen(evidence, cluster, "pods", "refused pods are not visible")
    skip_on_demand(evidence, len(pool.nodes), spec, profile.launch)
    evidence.expect(node.name for node in pool.nodes)
    tried = seatrial.run.coverage.tried
    evidence.judge(refusals(cluster, pool.nodes, [*filter(None, [spec.gpu_resource]), *spec.resources], tried))


@pytest.mark.preflight
@pytest.mark.check(
    "gpu.labels",
    "GPU node labels match the hardware",
    by_node=True,
    requires=["nodes.gpu"],
    unless_failed=["gpu.allocatable"],
    faults=["gpu.labels-disagree"],
    needs=["nodes"],
)
def test_labels_agree_with_the_gpus(pool: Pool, profile: Profile, evidence: Evidence) -> None:
    """GPU feature discovery and the kubelet count the same number of GPUs on a node.

    Schedulers and queues choose nodes by these labels. They differ after a GPU was lost or a node was re-imaged without
    a new discovery: its pod on that node hangs, or its labels were copied from another node.
    """
    findings = list(label_findings(pool, resource_of(profile)))
    if not findings:
        evidence.skip("no node of the pool has the GPU count label of GPU feature discovery")
    evidence.judge(findings)


@pytest.mark.preflight
@pytest.mark.check(
    "gpu.free",
    "Enough GPUs are free for the trial",
    by_node=True,
    requires=["nodes.gpu", "stack.upgrade"],
    unless_failed=["gpu.allocatable"],
    faults=["gpu.taken", "gpu.held-by-slurm", "gpu.missing", "nodes.tainted", "nodes.cordoned", "nodes.too-few"],
    needs=["nodes", "pods"],
)
def test_enough_gpus_are_free(
    cluster: Inventory,
    pool: Pool,
    profile: Profile,
    spec: TrialSpec,
    listed: Callable[[str], Listing],
    evidence: Evidence,
) -> None:
    """Enough nodes for the trial have all its GPUs free and accept its pod now.

    This is checked before any object is created: a job that fits only in part holds that part and waits for ever. The
    finding names the users of the GPUs, the taint that repels the pod, or the cordoned node. GPUs in use by other
    workloads are not a fault: the check is then inconclusive.
    """
    if not spec.gpu_resource or handed_out(pool, profile, spec, listed):
        evidence.skip("the trial's GPUs are claimed (DRA): only the scheduler knows the free ones")
    require_seen(evidence, cluster, "pods", "the holders of the GPUs cannot be read")
    skip_on_demand(evidence, len(pool.nodes), spec, profile.launch)
    free = rooms(cluster, pool.nodes, spec, pool.parts)
    if evidence.withheld and len(free) < spec.nodes:
        evidence.leave_open("cluster", f"{len(free)} of {spec.nodes} nodes that the trial takes can be examined")
    else:
        evidence.put(shortage(free, pool, spec))
    evidence.put(room_findings(free, spec))
    evidence.note(*releases(cluster, free, spec))
    evidence.note(
        f"the trial takes {spec.nodes} nodes with {spec.gpus_per_node} {spec.gpu_resource}, "
        f"cpu {spec.cpu} and memory {spec.memory} each"
    )
    evidence.verdict()


@pytest.mark.preflight
@pytest.mark.check(
    "gpu.shapes",
    "Valid and schedulable GPU requests are recorded",
    by_node=True,
    requires=["nodes.gpu"],
    unless_failed=["gpu.allocatable"],
    needs=["nodes", "pods", "topologies"],
)
def test_request_shapes_are_on_record(
    cluster: Inventory,
    pool: Pool,
    profile: Profile,
    spec: TrialSpec,
    listed: Callable[[str], Listing],
    evidence: Evidence,
) -> None:
    """Report the requests that kubelets admit, from one GPU to a whole node, and how often each fits now.

    Nothing is judged. Fragmented free GPUs start no job of whole nodes: their share shows whether a job waits for
    capacity or for defragmentation.
    """
    if not spec.gpu_resource or handed_out(pool, profile, spec, listed):
        evidence.skip("the trial's GPUs are claimed (DRA): only the scheduler knows the free ones")
    require_seen(evidence, cluster, "pods", "the holders of the GPUs cannot be read")
    free = rooms(cluster, pool.nodes, spec, pool.parts)
    full = profile.gpu.per_node or max((n.allocatable.get(spec.gpu_resource, 0) for n in pool.whole), default=0)
    if not free or not full:
        evidence.skip("no node of the pool offers whole GPUs")
    named = listed("noderesourcetopologies")
    zones = read_zones(named.items)
    names = {room.node for room in free}
    zones = {name: each for name, each in zones.items() if name in names}
    if not zones:
        evidence.note(f"NUMA nodes are unknown: {named.hidden or 'no NodeResourceTopology object'}")
    evidence.judge(shape_findings(free, zones, spec.gpu_resource, full))
