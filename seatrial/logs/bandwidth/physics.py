"""The physical limit of a collective: the link rate of a node, so that an impossible number is a finding.

Units are GB/s (1e9 bytes per second). The relation between bus bandwidth and the link rate is derived in nccl-tests'
doc/PERFORMANCE.md: on a ring every edge carries the bus bandwidth, so the busiest link between two nodes does too.
"""

from __future__ import annotations

GIB = 1 << 30
TOLERANCE = 1.02
"""Skewed timers of ranks and a rail's rounded rate may put a correct number slightly above the limit."""


LINKS_GBPS = {
    "V100": 150.0,
    "A100": 300.0,
    "A800": 200.0,
    "H100": 450.0,
    "H200": 450.0,
    "H20": 450.0,
    "H800": 200.0,
    "B200": 900.0,
    "B300": 900.0,
    "MI300X": 448.0,
    "MI325X": 448.0,
    "MI350X": 537.6,
    "MI355X": 537.6,
}
"""The maximum rate from one GPU to the others of its node, in GB/s one way, by a word of the product name.

NVIDIA's data sheets give the sum of both directions (NVLink 2: 300, 3: 600, 4: 900, 5: 1,800; A800 and H800: 400);
AMD's of MI300X and MI325X 7 links of 128, of MI350X and MI355X 7 of 153.6.
"""


def links_gbps(products: tuple[str, ...]) -> float | None:
    """Return the rate of a GPU's links to its neighbours; None if the product is unknown, or several differ."""
    rates = {rate for product in products for name, rate in LINKS_GBPS.items() if name in product.upper()}
    return rates.pop() if len(rates) == 1 else None


def intra_node_limit_gbps(links: float, *, gpus: int) -> float:
    """Return the upper limit of a collective in one node.

    In-switch reduction (NVLS) halves the data that a GPU has to send.

    Each GPU then sends its data once, and bus bandwidth counts ``2 * (gpus - 1) / gpus`` of it.
    """
    return max(1.0, 2 * (gpus - 1) / gpus) * links


def ring_limit_gbps(node_gbps: float) -> float:
    """Return the highest bus bandwidth of a Ring over several nodes: the node's NICs carry all of it."""
    return node_gbps


def tree_limit_gbps(node_gbps: float, *, nodes: int, gpus_per_node: int) -> float:
    """Return the upper limit without in-network reduction (SHARP).

    A node must send ``2 * data * (nodes - 1) / nodes`` bytes, and bus bandwidth counts
    ``2 * data * (ranks - 1) / ranks`` of them: the ratio is ``(ranks - 1) / (gpus_per_node * (nodes - 1))``.
    """
    ranks = nodes * gpus_per_node
    return node_gbps * (ranks - 1) / (gpus_per_node * (nodes - 1))


def limit_gbps(algorithm: str, node_gbps: float, *, nodes: int, gpus_per_node: int) -> float:
    """Return the limit for 'ring', or for NCCL's choice."""
    if algorithm == "ring":
        return ring_limit_gbps(node_gbps)
    return tree_limit_gbps(node_gbps, nodes=nodes, gpus_per_node=gpus_per_node)


def wire_limit_gbps(collective: str, algorithm: str, node_gbps: float, *, nodes: int, gpus_per_node: int) -> float:
    """Return the highest bus bandwidth of any collective over the NICs of ``nodes`` nodes.

    Bus bandwidth as nccl-tests' doc/PERFORMANCE.md defines it. On a ring every edge carries it, so all_gather,
    reduce_scatter, broadcast and reduce have the limit of all_reduce. In an all_to_all each rank sends an equal part to
    every other: with R ranks, G of them on each of N nodes, a node sends ``G * (N - 1) / N`` of the algorithm
    bandwidth, and bus bandwidth is ``(R - 1) / R`` of that. In sendrecv one GPU of a node sends to the next node; it
    may use every NIC through its neighbours (PXN), but no more.
    """
    if collective in ("all_to_all", "alltoall"):
        ranks = nodes * gpus_per_node
        return node_gbps * (ranks - 1) / (gpus_per_node * gpus_per_node * (nodes - 1))
    if collective == "all_reduce":
        return limit_gbps(algorithm, node_gbps, nodes=nodes, gpus_per_node=gpus_per_node)
    return ring_limit_gbps(node_gbps)
