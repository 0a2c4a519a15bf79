"""Nodes of the pool: other products, managed nodes, and GPU partitions."""

from dataclasses import replace

import pytest

from checks.rules import pool
from checks.rules.capacity import rooms
from checks.rules.nodes import node_findings, offers


def test_nodes_of_another_pool_are_named_and_not_judged(inventory, node, h100, bad):
    """Two pools need two profiles, so nodes outside by label or product are not compared."""
    profile = replace(h100, pool={"pool": "training"})
    mine = node("a", labels={"pool": "training"})
    cluster = inventory(
        [
            mine,
            node("b", 4, 4, labels={"pool": "inference"}),
            node("c", 4, 4, labels={"pool": "training", "nvidia.com/gpu.product": "NVIDIA-L40S"}),
        ]
    )
    judged_pool = pool.pool_of(cluster, profile)
    assert [n.name for n in judged_pool.nodes] == ["a"]
    assert "outside of the profile's pool (pool is inference, not training)" in judged_pool.outside["b"]
    assert "another product (NVIDIA-L40S)" in judged_pool.outside["c"]
    assert len(judged_pool.notes()) == 2
    assert bad(node_findings(cluster, judged_pool, profile)) == [("cluster", "nodes.too-few")]


@pytest.mark.parametrize(
    ("labels", "capacity", "judged"),
    [
        ({"nvidia.com/gpu.workload.config": "vm-passthrough"}, None, False),
        ({"nvidia.com/gpu.workload.config": "container"}, None, True),
        ({"nvidia.com/gpu.deploy.operands": "false"}, None, False),
        ({"nvidia.com/gpu.deploy.operands": "false"}, 8, True),
        ({}, 0, True),
    ],
)
def test_nodes_whose_gpus_are_not_for_pods_are_named_and_not_judged(inventory, node, h100, labels, capacity, judged):
    """KubeVirt nodes and nodes reserved for others; a node that offers GPUs is judged whatever its labels."""
    cluster = inventory([node("a"), node("b", capacity, capacity, labels={"nvidia.com/gpu.present": "true", **labels})])
    judged_pool = pool.pool_of(cluster, h100)
    assert ("b" in [n.name for n in judged_pool.nodes], "b" in judged_pool.outside) == (judged, not judged)


@pytest.mark.parametrize(
    ("labels", "taints", "mark"),
    [
        ({}, (("virtual-kubelet.io/provider", "azure", "NoSchedule"),), "virtual-kubelet.io/provider"),
        ({"type": "virtual-kubelet"}, (), "type=virtual-kubelet"),
        ({"liqo.io/type": "virtual-node"}, (), "liqo.io/type=virtual-node"),
        ({"type": "virtual-kubelet", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, (), ""),  # its GPUs were seen
        ({"type": "bare-metal"}, (("nvidia.com/gpu", "", "NoSchedule"),), ""),
    ],
)
def test_nodes_behind_which_another_service_runs_are_named_and_not_judged(
    inventory, node, h100, bad, labels, taints, mark
):
    """A virtual kubelet in a healthy cluster changes nothing; the trial avoids it, with or without a taint."""
    virtual = node("virtual", 1000, 1000, labels=labels, taints=taints, ready=False)
    cluster = inventory([node("a"), node("b"), virtual])
    judged_pool = pool.pool_of(cluster, h100)
    assert [n.name for n in judged_pool.nodes] == ["a", "b", *([] if mark else ["virtual"])]
    assert mark in "".join(judged_pool.notes())
    assert bad(node_findings(cluster, judged_pool, h100)) == ([] if mark else [("virtual", "nodes.not-ready")])
    assert pool.avoided(judged_pool) == (("virtual",) if mark else ())


def test_the_trial_is_kept_off_another_products_nodes(inventory, node, h100):
    """With two products, the trial is confined by the product's label; with one product nothing is added."""
    mine = node("a", labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})
    other = node("b", labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"})
    both = pool.pool_of(inventory([mine, other]), h100)
    assert pool.confinement(both) == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert pool.confinement(pool.pool_of(inventory([mine]), h100)) == {}


@pytest.mark.parametrize("second", [{"nvidia.com/gpu.product": "NVIDIA-H100-PCIe"}, {}])
def test_a_pool_of_several_names_is_confined_to_none_of_them(inventory, node, h100, second):
    """A label that only some nodes of the pool have would exclude the others."""
    mine = node("a", labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})
    other = node("c", labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"})
    judged_pool = pool.pool_of(inventory([mine, node("b", labels=second), other]), h100)
    assert (sorted(n.name for n in judged_pool.whole), list(judged_pool.outside)) == (["a", "b"], ["c"])
    assert pool.confinement(judged_pool) == {}


def test_the_resource_of_gpus_is_the_profiles_own(h100):
    named = replace(h100, gpu=replace(h100.gpu, resource="example.com/gpu"))
    claimed = replace(h100, gpu=replace(h100.gpu, resource=""))
    assert [pool.resource_of(each) for each in (named, claimed)] == ["example.com/gpu", "nvidia.com/gpu"]


def test_a_profile_of_other_machines_is_not_held_against_these(inventory, node, h100):
    """Numbers of another product judge nothing; the run is inconclusive (nodes.other-kind)."""
    cluster = inventory([node("a", labels={"nvidia.com/gpu.product": "NVIDIA-H200"})])
    (finding,) = node_findings(cluster, pool.pool_of(cluster, h100), h100)
    assert (finding.ok, finding.fault) == (None, "nodes.other-kind")


@pytest.mark.parametrize(
    ("labels", "capacity", "why", "fault"),
    [
        ({}, {"nvidia.com/gpu": 8}, "", ""),
        (
            {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
            {"nvidia.com/gpu": 8, "nvidia.com/mig-1g.10gb": 0},
            "",
            "",
        ),
        ({"nvidia.com/gpu.sharing-strategy": "none", "nvidia.com/gpu.replicas": "1"}, {"nvidia.com/gpu": 8}, "", ""),
        (
            {"nvidia.com/mig.strategy": "mixed"},
            {"nvidia.com/gpu": 0, "nvidia.com/mig-3g.40gb": 16},
            "MIG mixed",
            "gpu.partitioned",
        ),
        (
            {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"},
            {"nvidia.com/gpu": 56},
            "MIG single",
            "gpu.partitioned",
        ),
        ({}, {"amd.com/cpx_nps4": 64}, "partitioned", "gpu.partitioned"),
        (
            {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"},
            {"nvidia.com/gpu": 32},
            "4 times",
            "gpu.oversubscribed",
        ),
        ({}, {"nvidia.com/gpu": 0, "nvidia.com/gpu.shared": 32}, "shared", "gpu.oversubscribed"),
    ],
)
def test_parts_of_gpus_are_never_compared_as_whole_ones(node, labels, capacity, why, fault):
    """MIG under both strategies, AMD's partitions, time-slicing with and without a renamed resource; near misses are
    whole."""
    parted = pool.parted(replace(node("a", labels=labels), capacity=capacity))
    assert why in parted
    assert (pool.sharing_fault(parted) if parted else "") == fault


def test_parted_nodes_fail_only_where_whole_ones_are_few(inventory, node, h100, spec, bad):
    """A notebook node next to two whole ones is noted and gets no pod of the trial."""
    mig = replace(node("m"), capacity={"nvidia.com/mig-1g.10gb": 56}, allocatable={"nvidia.com/mig-1g.10gb": 56})
    some = pool.pool_of(
        inventory([node("a"), node("b"), replace(mig, labels={"nvidia.com/gpu.present": "true"})]), h100
    )
    assert set(some.parts) == {"m"}
    assert bad(offers(some, h100, 2)) == []
    few = replace(some, nodes=some.nodes[1:])
    assert bad(offers(few, h100, 2)) == [("m", "gpu.partitioned")]
    assert [r.fault for r in rooms(inventory(few.nodes), few.nodes, spec, few.parts)] == ["", "gpu.partitioned"]


def test_what_sharing_adds_to_a_product_is_no_product(node):
    """Feature discovery appends -SHARED and -MIG-1g.10gb to the product's name."""
    names = {"NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED", "NVIDIA-H100-80GB-HBM3-SHARED", "NVIDIA-H100-80GB-HBM3"}
    assert {pool.product(node("a", labels={"nvidia.com/gpu.product": n})) for n in names} == {"NVIDIA-H100-80GB-HBM3"}
