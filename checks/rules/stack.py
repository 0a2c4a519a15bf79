"""Rules of the GPU stack: the software that provides GPUs to pods runs on every GPU node and is consistent.

Rule: "one is Running" is not enough. Each node is judged by its own pods, in the order in which they wait for each
other: the first that is not ready is the cause, the others are its consequences. A part without a pod on a node is
missing only if it is expected there: some hosts have their own drivers and plugins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from jobs.cluster.facts.inventory import Node, PodUse
from jobs.cluster.facts.stack import (
    DeviceClass,
    Listing,
    Policy,
    device_classes,
    devices_by_node,
    mapped_class,
    names,
    operand,
)
from jobs.trial.parts import ClaimSpec
from jobs.trial.spec import TrialSpec
from reports.record import Finding

from ..profiles.cluster_defaults import claimable
from ..profiles.loader import Profile
from .findings import SHOWN, compared, passed, unknown
from .nodes import away
from .pool import Pool

CHAIN = ("driver", "toolkit", "device-plugin", "dra-driver", "feature-discovery", "validator")
"""Startup order, where each waits for those before: the operator's init containers hold the plugin until driver and
toolkit are ready (https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/troubleshooting.html)."""
DEPLOY = {
    "driver": "driver",
    "toolkit": "container-toolkit",
    "device-plugin": "device-plugin",
    "feature-discovery": "gpu-feature-discovery",
    "validator": "operator-validator",
}
"""Part -> suffix of the node label nvidia.com/gpu.deploy.<suffix> with which the GPU operator places it: true if its
pod is deployed, false or pre-installed if the host has its own, paused-for-... while it is replaced
(NVIDIA/gpu-operator, controllers/state_manager.go; NVIDIA/k8s-driver-manager)."""
UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
"""The label of the operator's upgrade controller: empty or upgrade-done at rest, upgrade-failed after it gave up
(https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-driver-upgrades.html)."""
AT_REST = ("", "upgrade-done")
QUEUED = "upgrade-required"
"""The node's driver is not the requested one, and the upgrade has not started: its first step is to cordon the node
(NVIDIA/k8s-operator-libs, pkg/upgrade/consts.go)."""
DRIVER_STATE = "state-driver"
"""Prefix of the driver DaemonSets in the operator's list of states that are not ready. They are not ready while any of
their pods has an older revision (NVIDIA/gpu-operator, controllers/object_controls.go)."""


def operands(pods: Iterable[PodUse]) -> dict[str, dict[str, list[PodUse]]]:
    """Group the pods of the stack: part -> node -> pods."""
    by_operand: dict[str, dict[str, list[PodUse]]] = {}
    for pod in pods:
        if (kind := operand(pod)) and pod.node:
            by_operand.setdefault(kind, {}).setdefault(pod.node, []).append(pod)
    return by_operand


def stack_findings(
    nodes: Sequence[Node], pods: Iterable[PodUse], resource: str = "nvidia.com/gpu"
) -> Iterator[Finding]:
    """Judge for each node every part that runs on some node of the pool; other parts are not expected."""
    by_operand = operands(pods)
    pool = {node.name for node in nodes}
    parts = [part for part in CHAIN if pool & set(by_operand.get(part, {}))]
    for node in nodes:
        yield _on(node, [(part, by_operand[part].get(node.name, [])) for part in parts], resource)


def _on(node: Node, parts: Sequence[tuple[str, list[PodUse]]], resource: str) -> Finding:
    own = []
    for part, pods in parts:
        if any(pod.ready for pod in pods):
            continue
        placed = node.labels.get(f"nvidia.com/gpu.deploy.{DEPLOY.get(part, part)}", "")
        if not pods and _brings_its_own(node, placed, resource):
            own.append(part)
            continue
        ok = None if placed.startswith("paused-") else False
        note = away(node) if part == "device-plugin" else placed if ok is None else ""
        fault = "stack.device-plugin-down" if part in ("device-plugin", "dra-driver") else "stack.operand-down"
        if pods:
            pod = pods[0]
            why = pod.trouble or pod.phase or "no reason given"
            observed = f"{part}: {pod.namespace}/{pod.name} is not ready ({why})"
        else:
            observed = f"{part}: no pod on this node, unlike on other nodes"
        return Finding(
            subject=node.name,
            ok=ok,
            observed=f"{observed}; {note}" if note else observed,
            expected=f"a ready pod of {part}",
            fault="" if ok is None and "mig" not in placed else fault,  # a driver upgrade has its own check
        )
    ready = ", ".join(part for part, _ in parts if part not in own) or "no part that runs as a pod"
    observed = f"ready: {ready}" + (f"; from the host: {', '.join(own)}" if own else "")
    return passed(node.name, observed, "every part ready")


def _brings_its_own(node: Node, placed: str, resource: str) -> bool:
    """Return why a part without a pod is not missing: the operator's setting, or the node offers all GPUs without it.

    A kubelet withdraws the GPUs (allocatable) at once when their plugin is gone, so offered GPUs have a plugin.
    """
    if placed:
        return placed != "true" and not placed.startswith("paused-")
    has = node.capacity.get(resource, 0)
    return 0 < has <= node.allocatable.get(resource, 0)


def policy_findings(policies: Sequence[Policy], queued: Sequence[str] = ()) -> Iterator[Finding]:
    """Judge the state of the operator's ClusterPolicies; an ignored one does not count if another is ready.

    ``queued``: nodes that wait for a driver upgrade. If there are some, and only drivers are not ready, that is the
    reason.
    """
    ready = any(policy.state == "ready" for policy in policies)
    for policy in policies:
        if policy.state == "ignored" and ready:
            continue
        ok = policy.state == "ready" if policy.state else None
        if ok is False and queued:
            states = set(re.findall(r"\bstate-[\w-]+", policy.message))
            ok = None if not states else states == {DRIVER_STATE}
        observed = policy.state or "no state yet: the operator has not processed it"
        if not ok and policy.message:
            observed += f" ({policy.message})"
        if ok and queued and policy.state != "ready":
            observed += f"; {len(queued)} nodes wait for a driver upgrade: {', '.join(queued[:SHOWN])}"
        fault = "" if ok else "stack.clusterpolicy"
        yield Finding(subject=f"clusterpolicy/{policy.name}", ok=ok, observed=observed, expected="ready", fault=fault)


def upgrade_findings(nodes: Iterable[Node]) -> Iterator[Finding]:
    """Judge whether the operator is replacing the driver of a node: then the run should be repeated later."""
    for node in nodes:
        state = node.labels.get(UPGRADE, "")
        ok = True if state in (*AT_REST, QUEUED) else False if state == "upgrade-failed" else None
        fault, expected = "" if ok else "stack.driver-upgrade", "no driver upgrade in progress"
        observed = f"{state}: the upgrade is queued and has not started" if state == QUEUED else state or "no upgrade"
        yield Finding(subject=node.name, ok=ok, observed=observed, expected=expected, fault=fault)


def waiting(nodes: Iterable[Node]) -> list[str]:
    """Return the nodes with a pending driver upgrade."""
    return [node.name for node in nodes if node.labels.get(UPGRADE) == QUEUED]


def label_findings(pool: Pool, resource: str) -> Iterator[Finding]:
    """Compare feature discovery's count with the kubelet's; nodes without the label are not compared."""
    for node in pool.whole:
        count = node.labels.get(f"{resource.partition('/')[0]}/gpu.count", "")
        capacity = node.capacity.get(resource, 0)
        if not count.isdigit() or not capacity:
            continue
        ok = int(count) == capacity
        observed = f"feature discovery counts {count}, the kubelet has {capacity} {resource}"
        yield compared(node.name, ok, observed, "the same number", "gpu.labels-disagree")


def class_findings(class_names: Iterable[str], classes: Listing) -> Iterator[Finding]:
    """Judge whether every DeviceClass in the trial's claims exists."""
    known = names(classes)
    for name in dict.fromkeys(class_names):
        there = name in known
        observed = "there" if there else f"not there ({', '.join(known[:5]) or 'the cluster has none'})"
        yield compared(f"deviceclass/{name}", there, observed, "there", "dra.class-missing")


def handed_out(
    pool: Pool, profile: Profile, spec: TrialSpec, listed: Callable[[str], Listing]
) -> tuple[ClaimSpec, ...]:
    """Return the GPU claims of a trial's pod: its own, or those that Kubernetes creates for its resource.

    DeviceClasses are read only if no node of the pool counts the resource. If they are not visible, there is no claim.
    """
    resource = spec.gpu_resource
    if not resource:
        return tuple(spec.claims)
    if not pool.whole or any(resource in node.capacity for node in pool.whole):
        return ()
    device_class = mapped_class(listed("deviceclasses"), resource)
    count = profile.gpu.per_node or spec.gpus_per_node
    return (ClaimSpec(name="gpus", device_class=device_class, count=count),) if device_class else ()


def claimed_instead(pool: Pool, profile: Profile, listed: Callable[[str], Listing]) -> list[Finding]:
    """Report for each node that it publishes its GPUs for claims, if no node counts them as the profile's resource.

    Such a cluster is not faulty, but of another kind than the profile. Empty if this does not apply.
    """
    resource = profile.gpu.resource
    if not pool.whole or any(node.capacity.get(resource, 0) for node in pool.whole):
        return []
    name, counts = claimable(pool.whole, resource, listed)
    expected = (
        f"GPUs counted as {resource} (gpu.resource); for claimed ones a profile says gpu.resource '' "
        f"and names {name} in pod.claims, as dra-only does"
    )
    shown = {
        n.name: f"0 {resource}, and {counts.get(n.name, 0)} devices of {name} in ResourceSlices" for n in pool.whole
    }
    return [unknown(*each, expected, fault="nodes.other-kind") for each in shown.items() if name]


def slice_findings(
    nodes: Iterable[Node], claims: Sequence[ClaimSpec], classes: Listing, slices: Listing
) -> Iterator[Finding]:
    """Judge whether every node publishes as many devices of each class as a pod of the trial claims."""
    known = device_classes(classes)
    asked = [(claim, known.get(claim.device_class) or DeviceClass(claim.device_class)) for claim in claims]
    counts = {
        claim.name: devices_by_node(slices, device_class.driver, device_class.kind) for claim, device_class in asked
    }
    for node in nodes:
        for claim in claims:
            count = counts[claim.name].get(node.name, 0)
            ok = count >= claim.count
            observed = f"{count} devices of {claim.device_class} in ResourceSlices"
            expected = f"{claim.count}, as a pod of the trial claims"
            yield compared(node.name, ok, observed, expected, "dra.slices-missing")
