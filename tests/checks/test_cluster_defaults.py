"""Resource requests derived from the nodes when there is no profile."""

from dataclasses import replace

import pytest

from checks.framework.options import Options
from checks.framework.trial_spec import build_spec
from checks.profiles.cluster_defaults import pod_defaults
from checks.profiles.loader import Profile
from jobs.cluster.facts.stack import Listing

MARKED = {"nvidia.com/gpu.present": "true"}


def sized(made, cpu, memory):
    return replace(made, allocatable={**made.allocatable, "cpu": cpu, "memory": memory})


def published(**counts):
    slices = tuple(
        {
            "spec": {
                "driver": "gpu.nvidia.com",
                "nodeName": name,
                "pool": {"name": name, "generation": 1},
                "devices": [{"name": f"gpu-{i}"} for i in range(count)],
            }
        }
        for name, count in counts.items()
    )
    return Listing(slices)


def listing(name="gpu.nvidia.com", resource="", **counts):
    spec = {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]}
    spec |= {"extendedResourceName": resource} if resource else {}
    known = {
        "deviceclasses": Listing(({"metadata": {"name": name}, "spec": spec},)),
        "resourceslices": published(**counts),
    }
    return known.__getitem__


def test_a_small_node_is_asked_for_half_of_what_it_has(inventory, node):
    """The request is half of the smallest node; on large nodes it is the usual amount."""
    large, small = sized(node("a"), 191_500, 2 << 40), sized(node("b"), 3_920, 15 << 30)
    spec = build_spec(Profile(), Options(), run_id="r", namespace="n", cluster=inventory([large, small]))
    assert (spec.cpu, spec.memory, spec.shm_bytes) == ("1960m", "7680Mi", 15 << 29)
    spec = build_spec(Profile(), Options(), run_id="r", namespace="n", cluster=inventory([large]))
    assert (spec.cpu, spec.memory, spec.shm_bytes) == ("8", "32Gi", 16 << 30)
    spec = build_spec(Profile(), Options(), run_id="r", namespace="n", cluster=inventory([node("a")]))
    assert (spec.cpu, spec.memory) == ("8", "32Gi")  # a missing value sets no limit


def test_a_profile_means_what_it_says(inventory, node, h100):
    """A pod that the profile describes is never shrunk; the trial must show that training does not fit."""
    spec = build_spec(h100, Options(), run_id="r", namespace="n", cluster=inventory([sized(node("a"), 2000, 8 << 30)]))
    assert (spec.cpu, spec.memory, spec.gpus_per_node) == ("8", "32Gi", 8)


def test_claimed_gpus_are_claimed(inventory, node):
    """No node counts GPUs, but slices publish them: the claim is for the smallest number per node."""
    cluster = inventory([node(name, None, None, labels=MARKED) for name in "ab"])
    spec = build_spec(Profile(), Options(), run_id="r", namespace="n", cluster=cluster, listed=listing(a=8, b=4))
    assert (spec.gpu_resource, spec.gpus_per_node) == ("", 4)
    assert [(c.device_class, c.count) for c in spec.claims] == [("gpu.nvidia.com", 4)]
    assert spec.gpu_kind == "nvidia"


@pytest.mark.parametrize(
    "listed",
    [listing(), listing("other.example", a=8), lambda _: Listing(hidden="no"), lambda _: Listing(served=False)],
    ids=["no slices", "another class", "hidden", "not served"],
)
def test_nothing_is_claimed_where_nothing_is_published(inventory, node, listed):
    """Near miss: a failed device plugin also leaves nodes without GPUs; the trial still requests the resource."""
    cluster = inventory([node("a", None, None, labels=MARKED)])
    spec = build_spec(Profile(), Options(), run_id="r", namespace="n", cluster=cluster, listed=listed)
    assert (spec.gpu_resource, spec.claims) == ("nvidia.com/gpu", ())


def test_gpus_behind_the_resources_name_are_asked_for_by_it(inventory, node):
    """A DeviceClass maps to nvidia.com/gpu: pods request it as before, for the published number."""
    cluster = inventory([node("a", None, None, labels=MARKED)])
    defaults = pod_defaults(Profile(), cluster, listing(resource="nvidia.com/gpu", a=8))
    assert defaults == {"gpus_per_node": 8}


def test_counted_gpus_ask_nothing_of_dra(inventory, node):
    """Nodes that count GPUs need no list of classes or slices."""

    def asked(resource):
        raise AssertionError(resource)

    assert pod_defaults(Profile(), inventory([node("a", 4)]), asked)["gpus_per_node"] == 4
