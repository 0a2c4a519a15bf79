"""Rings and trees of the simulated NCCL."""

import pytest

from lab.hardware.fakes import topology
from tests.table import table

SIZES = [(nodes, local) for nodes in (1, 2, 3, 4, 5, 8) for local in (1, 2, 8)]


@table("nodes, local", SIZES)
def test_every_ring_visits_every_rank_once(nodes, local):
    """A ring is a permutation of the ranks, node by node."""
    plan = topology.lay(nodes, local, 2 * local)
    for ring in plan.rings:
        assert sorted(ring) == list(range(nodes * local))
        crossings = sum(a // local != b // local for a, b in zip(ring, ring[1:] + ring[:1], strict=True))
        assert crossings == (nodes if nodes > 1 else 0)


@table("nodes, local", SIZES)
def test_every_tree_has_one_root_and_agrees_with_itself(nodes, local):
    """A rank's child has that rank as its parent; all ranks belong to one root."""
    for tree in topology.lay(nodes, local, 2 * local).trees:
        assert sum(place.up < 0 for place in tree.values()) == 1
        for rank, place in tree.items():
            for child in place.down:
                assert child < 0 or tree[child].up == rank
            assert place.up < 0 or rank in tree[place.up].down


@pytest.mark.parametrize("hops", [topology.ring_hops, topology.tree_hops, topology.nvls_hops])
def test_two_nodes_use_every_rail_both_ways(hops):
    """On a rail-optimised pair of nodes every card sends and receives, and no hop changes its rail."""
    crossing = [hop for hop in hops(topology.lay(2, 8, 16)) if hop.rail is not None]
    for node in (0, 1):
        assert {hop.rail for hop in crossing if hop.source // 8 == node} == set(range(8))
    assert all(hop.source % 8 == hop.target % 8 == hop.rail and hop.proxy is None for hop in crossing)
