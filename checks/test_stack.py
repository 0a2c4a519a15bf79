"""Layer 5, the GPU stack: the software that provides GPUs to pods is ready on every GPU node."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checks.framework.evidence import Evidence
from checks.profiles.loader import Profile
from checks.rules.findings import SHOWN
from checks.rules.fit import counted, doubt, fits
from checks.rules.pool import Pool, resource_of
from checks.rules.stack import (
    class_findings,
    policy_findings,
    slice_findings,
    stack_findings,
    upgrade_findings,
    waiting,
)
from checks.rules.visibility import require_listed, require_seen
from jobs.cluster.facts.inventory import Inventory
from jobs.cluster.facts.stack import Listing, operand, policies
from jobs.trial.spec import TrialSpec


@pytest.mark.preflight
@pytest.mark.check(
    "stack.pods",
    "GPU stack pods are Ready on every node",
    by_node=True,
    requires=["nodes.gpu"],
    faults=["stack.device-plugin-down", "stack.operand-down"],
    needs=["nodes", "pods"],
)
def test_stack_is_ready_on_every_gpu_node(cluster: Inventory, pool: Pool, profile: Profile, evidence: Evidence) -> None:
    """Driver, container toolkit, device plugin and feature discovery have a ready pod on each GPU node that needs one.

    A component may run on some nodes only; a node without it cannot train. A component that runs as pods on some nodes
    of the pool must run on all, except nodes with their own: by the operator's labels, or because they offer all their
    GPUs without it. A platform without such pods (a driver in the image) is judged by its allocatable GPUs.
    """
    require_seen(evidence, cluster, "pods")
    plugin = {operand(pod) for pod in cluster.pods} & {"device-plugin", "dra-driver"}
    if not plugin and profile.stack.device_plugin:
        evidence.add(
            "device plugin",
            ok=False,
            observed="no pod of a known device plugin in the cluster",
            expected="one on every GPU node (profile)",
            fault="stack.device-plugin-down",
        )
    elif not plugin:
        evidence.skip("no pod of a known device plugin was found; gpu.allocatable judges the nodes' allocatable GPUs")
    evidence.expect(node.name for node in pool.nodes)
    evidence.judge(stack_findings(pool.nodes, cluster.pods, resource_of(profile)))


@pytest.mark.preflight
@pytest.mark.check(
    "stack.upgrade",
    "No driver upgrade is in progress",
    by_node=True,
    requires=["nodes.gpu"],
    faults=["stack.driver-upgrade"],
    needs=["nodes"],
)
def test_no_driver_upgrade_is_under_way(pool: Pool, evidence: Evidence) -> None:
    """The GPU operator is not replacing the driver of any GPU node.

    An upgrade cordons the node, evicts its GPU pods and restarts the driver: a trial during it proves nothing. Wait
    until all nodes show upgrade-done and run it again. A node with upgrade-failed needs repair. A queued node
    (upgrade-required) is unchanged: it is named, and judged like any other.
    """
    evidence.expect(node.name for node in pool.nodes)
    if queued := waiting(pool.nodes):
        more = f" and {len(queued) - SHOWN} more" if len(queued) > SHOWN else ""
        evidence.note(f"queued for a driver upgrade, which may begin at any time: {', '.join(queued[:SHOWN])}{more}")
    evidence.judge(upgrade_findings(pool.nodes))


@pytest.mark.preflight
@pytest.mark.check(
    "stack.clusterpolicy",
    "The GPU operator is ready",
    requires=["api.version"],
    unless_failed=["nodes.gpu", "stack.pods", "stack.upgrade"],
    faults=["stack.clusterpolicy", "stack.no-operator"],
    needs=["clusterpolicies", "nodes"],
)
def test_cluster_policy_is_ready(
    listed: Callable[[str], Listing], gpu_pool: Pool, profile: Profile, evidence: Evidence
) -> None:
    """The ClusterPolicy of the NVIDIA GPU operator is in the state ready.

    While it is not, the operator is still installing a component, or fails to: its message names it. Platforms without
    the operator have no ClusterPolicy; the profile may require one (stack.operator).
    """
    policies_found = require_listed(evidence, listed("clusterpolicies"), "ClusterPolicies")
    if not policies_found.items and profile.stack.operator:
        evidence.add(
            "clusterpolicies.nvidia.com",
            ok=False,
            observed="none" if policies_found.served else "not installed",
            expected="the GPU operator (profile)",
            fault="stack.no-operator",
        )
    elif not policies_found.items:
        evidence.skip(
            "the NVIDIA GPU operator has no ClusterPolicy here"
            if policies_found.served
            else "the NVIDIA GPU operator is not installed here"
        )
    evidence.judge(policy_findings(policies(policies_found), waiting(gpu_pool.nodes)))


@pytest.mark.preflight
@pytest.mark.check(
    "stack.dra",
    "DRA publishes the GPUs of every node",
    by_node=True,
    requires=["nodes.gpu"],
    unless_failed=["stack.pods"],
    faults=["dra.class-missing", "dra.slices-missing", "nodes.other-kind"],
    needs=["nodes", "deviceclasses", "resourceslices"],
)
def test_dra_knows_every_gpu(
    pool: Pool, profile: Profile, spec: TrialSpec, listed: Callable[[str], Listing], evidence: Evidence
) -> None:
    """The DeviceClasses of the trial's claims exist, and every GPU node publishes the devices of a pod's claim.

    Where GPUs are claimed (DRA) no node counts them as allocatable. With a missing class, or a driver that publishes
    nothing, claims stay pending: check the DRA driver's pod on that node.
    """
    if not spec.claims:
        evidence.skip("the trial claims no devices")
    fits(evidence, pool, profile)
    classes = require_listed(evidence, listed("deviceclasses"), "DeviceClasses")
    findings = list(class_findings((claim.device_class for claim in spec.claims), classes))
    if not all(finding.ok for finding in findings):
        doubt(evidence, counted(pool, profile))
    evidence.put(findings)
    if all(finding.ok for finding in evidence.findings):
        slices = require_listed(evidence, listed("resourceslices"), "ResourceSlices")
        evidence.put(slice_findings(pool.nodes, spec.claims, classes, slices))
    evidence.verdict()
