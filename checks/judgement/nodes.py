"""Is a node fit to be counted on? Readiness and the number of GPUs it offers, judged from one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.record import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobs.inventory import Inventory, Node

    from ..profile import Profile

NO_PROFILE = "no profile: the expected number of GPUs per node is not known (pass --profile NAME)"


def node_findings(cluster: Inventory, profile: Profile) -> Iterator[Finding]:
    """Judge the number of GPU nodes, then the readiness of each."""
    nodes = cluster.gpu_nodes(profile.gpu.resource)
    expected = f"at least {profile.nodes} GPU nodes"
    if not cluster.nodes:
        yield Finding(subject="cluster", ok=False, observed="no node", expected=expected, fault="nodes.none")
    elif not nodes:
        observed = f"{len(cluster.nodes)} nodes, none with {profile.gpu.resource}"
        yield Finding(subject="cluster", ok=False, observed=observed, expected=expected, fault="nodes.no-gpu")
    elif len(nodes) < profile.nodes:
        observed = f"{len(nodes)} of {len(cluster.nodes)} nodes with {profile.gpu.resource}"
        yield Finding(subject="cluster", ok=False, observed=observed, expected=expected, fault="nodes.too-few")
    for node in nodes:
        yield _readiness(node)


def _readiness(node: Node) -> Finding:
    state = "Ready" if node.ready else f"not Ready ({node.ready_reason})"
    observed = ", ".join([state, *map(str, node.pressures)])
    ok = node.ready and not node.pressures
    return Finding(subject=node.name, ok=ok, observed=observed, expected="Ready", fault="" if ok else "nodes.not-ready")


def offer(node: Node, profile: Profile) -> Finding:
    """Compare what a node offers with the profile, or, without one, with the node's own capacity."""
    resource = profile.gpu.resource
    offered, capacity = node.allocatable.get(resource, 0), node.capacity.get(resource, 0)
    expected = profile.gpu.per_node or capacity
    observed = f"{offered} allocatable" + (f" of {capacity} in capacity" if capacity != offered else "")
    fault = ""
    if offered == 0:
        fault = "gpu.none-allocatable"
    elif offered < expected:
        fault = "gpu.missing"
    elif offered > expected:
        fault = "gpu.oversubscribed"
    return Finding(
        subject=node.name, ok=not fault, observed=observed, expected=f"{expected} allocatable" if expected else "GPUs",
        fault=fault,
    )  # fmt: skip
