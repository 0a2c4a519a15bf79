"""Nodes that the trial must avoid: those with GPU partitions, and those of another product."""

from dataclasses import replace

import pytest

from checks.rules.nodes import node_findings
from checks.rules.pool import MOST_AVOIDED, Pool, avoided, parted, pool_of


def test_the_trial_stays_off_nodes_that_are_not_judged(inventory, node, h100):
    """The scheduler sees a shared node as free: eight of its 32 replicas may be two GPUs."""
    shared = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"}
    judged_pool = pool_of(inventory([node("a"), node("b"), node("c", labels=shared)]), h100)
    assert list(judged_pool.parts) == ["c"]
    assert avoided(judged_pool) == ("c",)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"labels": {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "2"}},
            "time-slicing",
        ),
        ({"labels": {"nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/gpu.replicas": "4"}}, "mps"),
        ({"capacity": {"nvidia.com/gpu.shared": 16}}, "16 nvidia.com/gpu.shared"),
        ({"labels": {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "1"}}, ""),
        ({"labels": {"nvidia.com/gpu.sharing-strategy": "none", "nvidia.com/gpu.replicas": "8"}}, ""),
        ({"labels": {"nvidia.com/gpu.replicas": "8"}}, ""),
    ],
)
def test_replicas_of_a_shared_gpu_are_no_whole_gpus(node, changes, why):
    """Shown by label or by the renamed resource; one replica is the whole GPU, and a count without a strategy is
    ignored."""
    capacity = {"nvidia.com/gpu": 8, **changes.pop("capacity", {})}
    reason = parted(replace(node("a", **changes), capacity=capacity))
    assert why in reason if why else reason == ""


def test_other_products_are_avoided_by_name_and_other_pools_by_label(node):
    """Nodes that the selector excludes need not be named."""
    outside = {"old": "of another product (NVIDIA-A100)", "far": "outside of the profile's pool (pool=x)"}
    assert avoided(Pool((node("a"),), {}, outside)) == ("old",)


def test_of_very_many_none_is_named(node):
    """An affinity cannot list a large cluster; without whole nodes nothing may be avoided."""
    many = {f"n{i}": "its GPUs are shared" for i in range(MOST_AVOIDED + 1)}
    assert avoided(Pool((node("a"),), many)) == ()
    assert avoided(Pool((node("a"),), {"a": "its GPUs are shared"})) == ()


def test_nodes_that_on_leaves_out_are_not_judged(inventory, node, h100, bad):
    """--on a,b: faults of other nodes are listed as not judged; too few named nodes are not a cluster fault."""
    sick = [node("c", allocatable=7), node("d", ready=False)]
    cluster = inventory([node("a"), node("b"), *sick])
    judged_pool = pool_of(cluster, h100, ("a", "b"))
    assert [each.name for each in judged_pool.nodes] == ["a", "b"]
    assert judged_pool.notes() == ("not judged: c, not named by --on", "not judged: d, not named by --on")
    assert bad(node_findings(cluster, judged_pool, h100, "", ("a", "b"))) == []
    assert bad(node_findings(cluster, pool_of(cluster, h100, ("a", "d")), h100, "", ("a", "d"))) == [
        ("d", "nodes.not-ready")
    ]
    (few, _) = node_findings(cluster, pool_of(cluster, h100, ("a",)), h100, "", ("a",))
    assert (few.subject, few.ok, few.fault) == ("cluster", None, "nodes.too-few")
    (alone, _) = node_findings(inventory([node("a")]), pool_of(inventory([node("a")]), h100, ("a",)), h100, "", ("a",))
    assert alone.ok is False
