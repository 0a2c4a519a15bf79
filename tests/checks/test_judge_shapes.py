"""Valid and currently placeable requests, and the fragmentation of a pool."""

from checks.rules.capacity import domain_of, shape_findings, shapes_of
from checks.rules.topology import Zones
from jobs.trial.rooms import Room

GPU = "nvidia.com/gpu"


def room(name, free, fault=""):
    return Room(node=name, free=free, observed="", fault=fault)


def said(rooms, zones=None, full=8):
    return {f.subject: f.observed for f in shape_findings(rooms, zones or {}, GPU, full)}


def numa(name, *counts, policy="single-numa-node"):
    return Zones(name, policy, tuple({GPU: count} for count in counts))


def test_shapes_are_the_sizes_that_topology_gives():
    assert list(shapes_of(8, 4)) == [1, 2, 4, 8]
    assert shapes_of(8, 8) == {1: "one GPU", 4: "half a NUMA node", 8: "a whole node"}
    assert list(shapes_of(8, None)) == [1, 8]
    assert list(shapes_of(1, 1)) == [1]


def test_zones_without_gpus_are_no_domains():
    zones = {"a": numa("a", 4, 4, 0, 0), "b": numa("b", 4, 4)}
    assert domain_of(zones, GPU) == 4
    assert domain_of({"a": numa("a", 0)}, GPU) is None
    assert domain_of({}, GPU) is None


def test_free_gpus_in_pieces_start_no_job_of_whole_nodes():
    """Two nodes with four free GPUs each have eight free GPUs, but no whole node is free."""
    observed = said([room("a", 4, "gpu.taken"), room("b", 4, "gpu.taken"), room("c", 8)])
    assert "fits 1 times now" in observed[f"8 {GPU}, a whole node"]
    assert "16 GPUs are free on 3 of 3 nodes" in observed["pool"]
    assert "takes 8 (1 x 8): 50 % of the free GPUs are fragmented" in observed["pool"]


def test_a_pool_that_is_whole_is_not_called_fragmented():
    assert (
        "0 % of the free GPUs are fragmented" in said([room("a", 8), room("b", 8), room("c", 0, "gpu.taken")])["pool"]
    )


def test_cordoned_and_tainted_nodes_have_nothing_free():
    observed = said([room("a", 8, "nodes.cordoned"), room("b", 8, "nodes.tainted"), room("c", 0, "gpu.taken")])
    assert observed["pool"] == "0 GPUs are free on 1 of 3 nodes"


def test_a_strict_policy_refuses_what_no_numa_node_has():
    """Eight GPUs on two NUMA nodes of four are never admitted; for aligned requests the number is an upper bound."""
    observed = said([room("a", 8), room("b", 8)], {"a": numa("a", 4, 4), "b": numa("b", 4, 4)})
    assert observed[f"8 {GPU}, a whole node"] == "valid on 0 of 2 nodes, fits 0 times now"
    assert observed[f"4 {GPU}, a NUMA node"] == "valid on 2 of 2 nodes, fits at most 4 times now"
    assert "of pods with a NUMA node each, takes 16 (4 x 4): 0 %" in observed["pool"]
    easy = said([room("a", 8)], {"a": numa("a", 4, 4, policy="best-effort")})
    assert easy[f"8 {GPU}, a whole node"] == "valid on 1 of 1 nodes, fits 1 times now"
