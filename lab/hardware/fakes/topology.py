"""Rings, trees and channels: which ranks are connected, and through which NIC.

Rings and trees are as NCCL builds them on nodes of G GPUs where GPU g is next to NIC g (a rail). A ring enters a node
at one GPU and leaves it at a neighbour, and the next node is traversed in the opposite direction, so that every hop
between two nodes stays on one rail. A tree is a chain of GPUs in each node, and between nodes a double binary tree (S.
Gu et al., "Massively Scale Your Deep Learning Training with NCCL 2.4", NVIDIA 2019). Ranks are numbered node by node.
"""

from __future__ import annotations

from typing import NamedTuple


class Hop(NamedTuple):
    """One directed connection of a channel; `rail` is None inside a node, `proxy` the rank of the NIC that it uses."""

    channel: int
    source: int
    target: int
    rail: int | None
    proxy: int | None = None


class TreeNode(NamedTuple):
    """A rank's place in the tree of one channel: -1 without a neighbour."""

    up: int
    down: tuple[int, int, int]


class Plan(NamedTuple):
    """All connections of a communicator."""

    nodes: int
    local: int
    channels: int
    rings: list[list[int]]
    trees: list[dict[int, TreeNode]]

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.nodes * self.local


def lay(nodes: int, local: int, channels: int) -> Plan:
    """Build rings and trees of `channels` channels over `nodes` nodes of `local` ranks each."""
    rings = [_ring(nodes, local, channel) for channel in range(channels)]
    trees = [_tree(nodes, local, channel, second=channel >= (channels + 1) // 2) for channel in range(channels)]
    return Plan(nodes, local, channels, rings, trees)


def _ring(nodes: int, local: int, channel: int) -> list[int]:
    entry, order = channel % local, []
    for node in range(nodes):
        start, step = (entry, -1) if node % 2 == 0 else (entry + 1, 1)
        order += [node * local + (start + step * i) % local for i in range(local)]
    return order


def ring_hops(plan: Plan) -> list[Hop]:
    """Return all hops of all rings, in channel order."""
    hops = []
    for channel, ring in enumerate(plan.rings):
        for position, source in enumerate(ring):
            target = ring[(position + 1) % len(ring)]
            if source != target:
                hops.append(_hop(plan, channel, source, target))
    return hops


def tree_hops(plan: Plan) -> list[Hop]:
    """Return all hops of all trees, down and up."""
    hops = []
    for channel, tree in enumerate(plan.trees):
        for rank in sorted(tree):
            for child in tree[rank].down:
                if child >= 0:
                    hops += [_hop(plan, channel, rank, child), _hop(plan, channel, child, rank)]
    return hops


def nvls_hops(plan: Plan) -> list[Hop]:
    """Return the hops between nodes with reduction in each node's switch: every GPU sends one part on its rail."""
    hops = []
    for channel in range(plan.channels):
        second = channel >= (plan.channels + 1) // 2
        for node in range(plan.nodes):
            up, _ = _binary(node, plan.nodes, second)
            if up < 0:
                continue
            for gpu in range(plan.local):
                child, parent = node * plan.local + gpu, up * plan.local + gpu
                hops += [Hop(channel, child, parent, gpu), Hop(channel, parent, child, gpu)]
    return hops


def _hop(plan: Plan, channel: int, source: int, target: int) -> Hop:
    here, there = source // plan.local, target // plan.local
    if here == there:
        return Hop(channel, source, target, None)
    rail = target % plan.local
    # Rail-optimised: data leaves through the NIC on the receiving GPU's rail, through a neighbour on the same node if
    # necessary ("PXN").
    proxy = None if source % plan.local == rail else here * plan.local + rail
    return Hop(channel, source, target, rail, proxy)


def _tree(nodes: int, local: int, channel: int, *, second: bool) -> dict[int, TreeNode]:
    head, tree = channel % local, {}
    for node in range(nodes):
        chain = [node * local + (head + i) % local for i in range(local)]
        up, down = _binary(node, nodes, second)
        for position, rank in enumerate(chain):
            below = [chain[position + 1]] if position + 1 < local else []
            if position == 0:
                below += [child * local + head for child in down]
                above = up * local + head if up >= 0 else -1
            else:
                above = chain[position - 1]
            padded = [*below, -1, -1, -1][:3]
            tree[rank] = TreeNode(above, (padded[0], padded[1], padded[2]))
    return tree


def _binary(node: int, nodes: int, second: bool) -> tuple[int, list[int]]:
    """Return parent and children of `node` in the first or the second of two trees (mirrored, or shifted by one)."""
    if not second:
        return _first_tree(node, nodes)
    if nodes % 2 == 0:
        up, down = _first_tree(nodes - 1 - node, nodes)
        return (nodes - 1 - up if up >= 0 else -1), [nodes - 1 - child for child in down]
    up, down = _first_tree((node - 1) % nodes, nodes)
    return ((up + 1) % nodes if up >= 0 else -1), [(child + 1) % nodes for child in down]


def _first_tree(node: int, nodes: int) -> tuple[int, list[int]]:
    """Return the place of `node` in the in-order binary tree: its lowest set bit is its level."""
    if node == 0:
        bit = 1
        while bit < nodes:
            bit <<= 1
        return -1, [bit >> 1] if nodes > 1 else []
    bit = node & -node
    up = (node ^ bit) | (bit << 1)
    if up >= nodes:
        up = node ^ bit
    down = []
    low = bit >> 1
    if low:
        down.append(node - low)
        while low and node + low >= nodes:
            low >>= 1
        if low:
            down.append(node + low)
    return up, down
