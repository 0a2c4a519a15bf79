"""Capacity rules: the GPU nodes that could run a pod of the trial now, obstacles on the rest, and fitting shapes.

jobs/trial/rooms.py finds the obstacles. Request shapes count GPUs only: a pod that also requests much CPU or memory may
fit less often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from jobs.cluster.facts.inventory import Inventory, Node
from jobs.listing import first_of
from jobs.run.result import TrialResult
from jobs.trial.rooms import IN_USE, SLURM, Room, room_on, selected
from jobs.trial.spec import TrialSpec
from reports.record import Finding

from ..framework.evidence import Blocked
from .findings import failed, passed
from .pool import MOST_AVOIDED, Pool, avoided, confinement, sharing_fault
from .topology import STRICT, Zones, refused

SHOWN = 3


def rooms(
    cluster: Inventory, nodes: Iterable[Node], spec: TrialSpec, parts: Mapping[str, str] | None = None
) -> list[Room]:
    """Judge each node on which the trial may be scheduled; nodes excluded by its selector are left out.

    ``parts``: node -> why its GPUs are not whole ones; such a node has no room for a trial.
    """
    known = parts or {}
    named = [n for n in nodes if not spec.node_names or n.name in spec.node_names]
    return [
        Room(node=n.name, free=0, observed=known[n.name], fault=sharing_fault(known[n.name]))
        if known.get(n.name)
        else room_on(cluster, n, spec)
        for n in named
        if selected(n, spec.node_selector)
    ]


def confined(pool: Pool, spec: TrialSpec) -> TrialSpec:
    """Return the trial, restricted by a label to the pool's product if the pool also has nodes of another one."""
    return replace(spec, node_selector={**confinement(pool), **spec.node_selector})


def placed(cluster: Inventory, pool: Pool, spec: TrialSpec, unfit: Collection[str]) -> TrialSpec:
    """Return the trial, restricted to the pool's nodes that no check has found unfit.

    Raises Blocked if the remaining nodes are too few, or too many nodes would have to be named.
    """
    spec = confined(pool.without(unfit), spec)
    if not unfit:
        return replace(spec, avoided=avoided(pool))
    left = pool.without(unfit)
    if spec.gpu_resource or not spec.claims:
        fit = [room.node for room in rooms(cluster, left.nodes, spec, left.parts) if not room.fault]
    else:  # claimed GPUs: only the scheduler knows the free ones
        fit = [node.name for node in left.whole if not spec.node_names or node.name in spec.node_names]
    if len(fit) < spec.nodes:
        without = first_of(unfit, SHOWN)
        raise Blocked(f"the trial needs {spec.nodes} nodes, and {len(fit)} are left without {without}")
    if spec.node_names:
        return replace(spec, node_names=tuple(fit))
    off = (*avoided(left), *unfit)
    if len(off) > MOST_AVOIDED:
        raise Blocked(f"{len(off)} nodes are not fit for the trial: too many to exclude by name")
    return replace(spec, avoided=off)


def no_room(before: Iterable[Room], now: Inventory, pool: Pool, spec: TrialSpec, trial: TrialResult) -> str:
    """Explain on which nodes an interrupted trial no longer has room; '' if there is room.

    ``before``: the rooms that it had; ``now``, ``pool``: the current nodes. If there is a queue, it waits for GPUs in
    use. Nodes that are not visible are ignored.
    """
    if "nodes" in now.not_seen:
        return ""
    waits = IN_USE if spec.queue else ()
    free = {room.node: room for room in rooms(now, pool.nodes, spec, pool.parts)}
    usable = {node.name for node in pool.nodes if node.ready} - {*spec.avoided}
    fit = {name for name, room in free.items() if name in usable and (not room.fault or room.fault in waits)}
    if len(fit) >= spec.nodes:
        return ""
    ran = {replica.node: replica.pod for replica in trial.replicas if replica.node}
    taken = {node for node, pod in ran.items() if trial.analysis and pod == trial.analysis.subject}
    there = {node.name: node for node in now.nodes}
    went = sorted({*ran, *(room.node for room in before if not room.fault)} - fit, key=lambda name: name not in taken)
    said = [f"{name} {_why_gone(there.get(name), free.get(name), drained=name in taken)}" for name in went]
    left = f"{len(fit)} of {spec.nodes} nodes are left for another attempt"
    return f"{first_of(said, SHOWN)}: {left}" if said else left


def _why_gone(node: Node | None, room: Room | None, *, drained: bool) -> str:
    """Describe the change of a node that had room for a pod; a node that lost its pod earlier was drained."""
    if node is None:
        return "is gone"
    if node.unschedulable:
        return "was drained and is cordoned" if drained else "is cordoned"
    if not node.ready:
        return f"is not Ready ({node.ready_reason})"
    return f"has no room ({room.observed})" if room and room.fault else "is no longer in the pool"


def shortage(node_rooms: Sequence[Room], pool: Pool, spec: TrialSpec) -> Iterator[Finding]:
    """Yield a finding about the cluster if fewer nodes match the trial's selector than it spans."""
    if pool.nodes and len(node_rooms) < spec.nodes:
        chosen = ",".join(f"{k}={v}" for k, v in spec.node_selector.items()) or "the trial"
        what = "GPU nodes" if spec.gpus_per_node else "nodes"
        observed = f"{len(node_rooms)} of {len(pool.nodes)} {what} match {chosen}"
        yield failed("cluster", observed, f"at least {spec.nodes}", "nodes.too-few")


def room_findings(node_rooms: Sequence[Room], spec: TrialSpec) -> Iterator[Finding]:
    """Yield a finding for each node: its obstacles matter only if too few other nodes are free.

    GPUs that other workloads use are not a fault. If those nodes would be enough, the trial waits for them only;
    otherwise the other nodes are at fault.
    """
    enough = sum(not room.fault for room in node_rooms) >= spec.nodes
    waits = sum(not room.fault or room.fault in IN_USE for room in node_rooms) >= spec.nodes
    for room in node_rooms:
        good, in_use = enough or not room.fault, room.fault in IN_USE
        yield Finding(
            subject=room.node,
            ok=True if good else None if waits or in_use else False,
            observed=room.observed,
            expected=_room_for(spec, room, enough),
            fault="" if good or (waits and not in_use) else room.fault,
        )


def _room_for(spec: TrialSpec, room: Room, enough: bool) -> str:
    """Describe the requirement on each of the trial's nodes: free, and open to its pod."""
    opened = {"nodes.tainted": "no taint that the pod does not tolerate, ", "nodes.cordoned": "not cordoned, "}
    asked = f"{spec.gpus_per_node} {spec.gpu_resource} free" if spec.gpus_per_node else "open to the trial's pod"
    elsewhere = " on this or another node" if enough else ""
    return f"{opened.get(room.fault, '')}{asked}{elsewhere}"


def releases(cluster: Inventory, node_rooms: Iterable[Room], spec: TrialSpec) -> list[str]:
    """Explain for each Slurm NodeSet on the GPUs how to scale it down by the number of missing nodes.

    The operator drains a Slurm node before it deletes its pod: running Slurm jobs end first
    (https://slinky.schedmd.com/slurm-operator/, concepts, NodeSet controller, scale-in).
    """
    node_rooms = list(node_rooms)
    short = max(0, spec.nodes - sum(not room.fault for room in node_rooms))
    held: Counter[tuple[str, str]] = Counter()
    for room in node_rooms:
        if short and room.fault == "gpu.held-by-slurm":
            holder = cluster.holders(room.node, spec.gpu_resource)[0]
            held[holder.namespace, holder.owner.removeprefix(SLURM)] += 1
    sizes = Counter((pod.namespace, pod.owner) for pod in cluster.pods) if held else {}
    texts = []
    for (namespace, name), nodes in held.items():
        pods = sizes[namespace, SLURM + name]
        left = max(0, pods - min(short, nodes))
        texts.append(
            f"kubectl -n {namespace} scale nodesets.slinky.slurm.net/{name} --replicas={left} frees {pods - left} of "
            f"its {pods} nodes (Slurm drains them first); --replicas={pods} gives them back"
        )
    return texts


CLOSED = ("nodes.cordoned", "nodes.tainted", "gpu.partitioned", "gpu.oversubscribed")
"""Obstacles that keep every pod of the trial off a node; a node without enough free GPUs may still have some."""


def shapes_of(full: int, domain: int | None) -> dict[int, str]:
    """Return useful request sizes: GPUs of a pod -> name; a size with several names has the largest one.

    ``domain``: GPUs of a NUMA node, None if unknown.
    """
    shapes = {1: "one GPU"}
    if domain:
        shapes |= {domain // 2: "half a NUMA node"} if domain > 1 else {}
        shapes[domain] = "a NUMA node"
    shapes[full] = "a whole node"
    return {size: shapes[size] for size in sorted(shapes) if 0 < size <= full}


def domain_of(zones: Mapping[str, Zones], resource: str) -> int | None:
    """Return the most frequent number of GPUs of a NUMA node; None if no object reports it."""
    sizes = Counter(offer.get(resource, 0) for each in zones.values() for offer in each.offers)
    del sizes[0]
    return max(sizes, key=lambda size: (sizes[size], size)) if sizes else None


def shape_findings(rooms: Sequence[Room], zones: Mapping[str, Zones], resource: str, full: int) -> Iterator[Finding]:
    """List for each shape its valid nodes and how often it fits now, then the fragmentation of the pool.

    ``rooms``: the pool's nodes with their free GPUs; ``full``: GPUs of a whole node.
    """
    opened = [room for room in rooms if room.fault not in CLOSED]
    largest: tuple[int, str, int] | None = None  # the largest valid shape: GPUs, name, how often it fits
    for size, what in shapes_of(full, domain_of(zones, resource)).items():
        strict = [r for r in opened if r.node in zones and zones[r.node].policy in STRICT]
        valid = [r for r in opened if r.node not in zones or not refused(zones[r.node], {resource: size})]
        times = sum(room.free // size for room in valid)
        largest = (size, what, times) if valid else largest
        # The NUMA nodes of free GPUs are unknown: where pods are aligned, fewer may fit.
        most = "at most " if strict and 1 < size < full and times else ""
        observed = f"valid on {len(valid)} of {len(rooms)} nodes, fits {most}{times} times now"
        yield passed(f"{size} {resource}, {what}", observed, "on record")
    yield _fragmentation(len(rooms), opened, largest)


def _fragmentation(nodes: int, opened: Sequence[Room], largest: tuple[int, str, int] | None) -> Finding:
    free = sum(room.free for room in opened)
    observed = f"{free} GPUs are free on {len(opened)} of {nodes} nodes"
    if free and largest:
        size, what, times = largest
        pieces = 100 * (free - size * times) / free
        observed += f"; the largest job that could start now, of pods with {what} each, takes {size * times}"
        observed += f" ({times} x {size}): {pieces:.0f} % of the free GPUs are fragmented"
    return passed("pool", observed, "on record")
