"""Node rules: readiness and the number of GPUs that a node offers, judged from one snapshot."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.cluster.facts.inventory import Inventory, Node
from reports.record import Finding

from ..profiles.loader import Profile
from .findings import failed, unknown
from .pool import LEFT_OUT, Pool, resource_of, sharing_fault

NO_PROFILE = "no profile: the expected number of GPUs per node is not known (pass --profile NAME)"

MOST_GPUS = 16
"""In one machine (NVIDIA HGX-2, AWS p2.16xlarge): whoever offers more offers each more than once."""


def node_findings(
    cluster: Inventory, pool: Pool, profile: Profile, selector: str = "", named: tuple[str, ...] = ()
) -> Iterator[Finding]:
    """Judge the number of GPU nodes of the profile's pool, then the readiness of each.

    ``selector``, ``named``: the nodes that the user chose (--nodes, --on). What they do not fit accuses no cluster.
    """
    nodes = pool.nodes
    chosen = f" (--nodes {selector})" if selector else ""
    expected = f"at least {profile.nodes} GPU nodes"
    outside = {name: why for name, why in pool.outside.items() if why != LEFT_OUT}
    narrowed = None if selector or len(outside) < len(pool.outside) else False  # others may well be there
    known = {node.name for node in cluster.nodes}
    for name in [name for name in dict.fromkeys(named) if name not in known]:
        among = f" among those that --nodes {selector} chooses" if selector else ""
        observed = f"there is no node of this name{among}"
        yield _other_kind(observed, "the name of a node, as --on has it", subject=name)
    if selector and not cluster.nodes:
        yield _other_kind(f"no node matches --nodes {selector}", expected)
        return
    if outside and not nodes:
        reasons = "; ".join(f"{name} is {why}" for name, why in list(outside.items())[:3])
        observed = f"no GPU node is of this profile's kind: {reasons}"
        yield _other_kind(observed, f"{expected} as {profile.name} describes them")
        return
    if pool.instead:
        observed = f"no {resource_of(profile)}, but {pool.instead}"
        yield _other_kind(observed, f"{expected}; for other accelerators, the profile that names them")
        return
    if not cluster.nodes:
        yield failed("cluster", "no node", expected, "nodes.none")
    elif not nodes:
        observed = f"{len(cluster.nodes)} nodes{chosen}, none with {profile.gpu.resource}"
        yield Finding(subject="cluster", ok=narrowed, observed=observed, expected=expected, fault="nodes.no-gpu")
    elif len(nodes) < profile.nodes:
        observed = f"{len(nodes)} of {len(cluster.nodes)} nodes{chosen} with {profile.gpu.resource}"
        yield Finding(subject="cluster", ok=narrowed, observed=observed, expected=expected, fault="nodes.too-few")
    for node in nodes:
        yield _readiness(node)


def _other_kind(observed: str, expected: str, subject: str = "cluster") -> Finding:
    return unknown(subject, observed, expected, fault="nodes.other-kind")


def _readiness(node: Node) -> Finding:
    state = "Ready" if node.ready else f"not Ready ({node.ready_reason})"
    observed = ", ".join([state, *map(str, node.pressures)])
    fault = "" if node.ready else "nodes.not-ready"
    if node.ready and node.pressures:
        fault = "nodes.pressure"
    return Finding(subject=node.name, ok=not fault, observed=observed, expected="Ready, without pressure", fault=fault)


def offers(pool: Pool, profile: Profile, nodes_needed: int) -> Iterator[Finding]:
    """Compare what each node offers with the profile; nodes with parts of GPUs count only where whole ones are few."""
    for node in pool.whole:
        yield offer(node, profile)
    if len(pool.whole) >= nodes_needed:
        return
    for name, why in pool.parts.items():
        yield failed(name, why, "whole GPUs, each offered once", sharing_fault(why))


def offer(node: Node, profile: Profile) -> Finding:
    """Compare what a node offers with the profile, or, without one, with the node's own capacity."""
    resource = profile.gpu.resource
    offered, capacity = node.allocatable.get(resource, 0), node.capacity.get(resource, 0)
    expected = profile.gpu.per_node or capacity
    observed = f"{offered} allocatable" + (f" of {capacity} in capacity" if capacity != offered else "")
    fault = ""
    if offered == 0:
        fault = "gpu.none-allocatable"
        if resource not in node.capacity:
            observed = f"no {resource} at all: no device plugin has registered with its kubelet"
        elif capacity == 0:
            observed = "0 allocatable, 0 in capacity: a device plugin was there once and is not any more"
    elif offered < expected:
        fault = "gpu.missing"
    elif offered > expected:
        # Feature discovery counts the machine's GPUs, however often each is offered: this machine simply has more.
        count = node.labels.get(f"{resource.partition('/')[0]}/gpu.count", "")
        physical = count == str(capacity)
        observed += f"; feature discovery counts {count}" if count else "; no label tells how many the machine has"
        fault = "nodes.other-kind" if physical else "gpu.oversubscribed"
        ok = None if physical or not (count or offered > MOST_GPUS) else False
        return Finding(
            subject=node.name,
            ok=ok,
            observed=observed,
            fault=fault,
            expected=f"{expected}, as the profile {profile.name} says (gpu.per_node)",
        )
    return Finding(
        subject=node.name,
        ok=not fault,
        observed=observed,
        expected=f"{expected} allocatable" if expected else "GPUs",
        fault=fault,
    )
