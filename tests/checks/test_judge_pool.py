"""Which nodes the trial must stay off: those whose GPUs are parts, and those of another product."""

from checks.judgement.pool import MOST_AVOIDED, Pool, avoided, pool_of


def test_the_trial_stays_off_nodes_that_are_not_judged(inventory, node, h100):
    """A shared node looks free to the scheduler: eight of its 32 offers may be two GPUs."""
    shared = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"}
    found = pool_of(inventory([node("a"), node("b"), node("c", labels=shared)]), h100)
    assert list(found.parts) == ["c"]
    assert avoided(found) == ("c",)


def test_other_products_are_avoided_by_name_and_other_pools_by_label(node):
    """What the selector keeps the pods off needs no name."""
    outside = {"old": "of another product (NVIDIA-A100)", "far": "outside of the profile's pool (pool=x)"}
    assert avoided(Pool((node("a"),), {}, outside)) == ("old",)


def test_of_very_many_none_is_named(node):
    """A pod's affinity is no list of a whole cluster; and where no node is whole nothing may be avoided."""
    many = {f"n{i}": "its GPUs are shared" for i in range(MOST_AVOIDED + 1)}
    assert avoided(Pool((node("a"),), many)) == ()
    assert avoided(Pool((node("a"),), {"a": "its GPUs are shared"})) == ()
