"""Request shapes: how many GPUs a pod may ask for here, which of these fit now, and how fragmented the pool is.

Only GPUs are counted: a pod that also asks for much CPU or memory may fit less often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from reports.record import Finding

from .capacity import Room
from .findings import passed
from .topology import STRICT, Zones, refused

CLOSED = ("nodes.cordoned", "nodes.tainted", "gpu.partitioned", "gpu.oversubscribed")
"""What keeps every pod of the trial off a node; a node without enough free GPUs still has some."""


def shapes_of(full: int, domain: int | None) -> dict[int, str]:
    """Return the requests worth asking for: GPUs of a pod -> what that is; one size under its largest name.

    ``domain``: GPUs of a NUMA node, None where nothing tells.
    """
    shapes = {1: "one GPU"}
    if domain:
        shapes |= {domain // 2: "half a NUMA node"} if domain > 1 else {}
        shapes[domain] = "a NUMA node"
    shapes[full] = "a whole node"
    return {size: shapes[size] for size in sorted(shapes) if 0 < size <= full}


def domain_of(zones: Mapping[str, Zones], resource: str) -> int | None:
    """Return how many GPUs most NUMA nodes have that have any; None where no object tells."""
    sizes = Counter(offer.get(resource, 0) for each in zones.values() for offer in each.offers)
    del sizes[0]
    return max(sizes, key=lambda size: (sizes[size], size)) if sizes else None


def shape_findings(rooms: Sequence[Room], zones: Mapping[str, Zones], resource: str, full: int) -> Iterator[Finding]:
    """Say of each shape on how many nodes it is valid and how often it fits now, then how fragmented the pool is.

    ``rooms``: the pool's nodes with their free GPUs; ``full``: GPUs of a whole node.
    """
    opened = [room for room in rooms if room.fault not in CLOSED]
    largest: tuple[int, str, int] | None = None  # the largest valid shape: GPUs, what it is, how often it fits
    for size, what in shapes_of(full, domain_of(zones, resource)).items():
        strict = [r for r in opened if r.node in zones and zones[r.node].policy in STRICT]
        valid = [r for r in opened if r.node not in zones or not refused(zones[r.node], {resource: size})]
        times = sum(room.free // size for room in valid)
        largest = (size, what, times) if valid else largest
        # Which GPUs of which NUMA node are free is not told: where pods are aligned, fewer may fit.
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
        observed += f" ({times} x {size}): {pieces:.0f} % of what is free lies in pieces"
    return passed("pool", observed, "on record")
