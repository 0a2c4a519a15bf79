"""A profile that does not describe the cluster is said to be that; what is missing stays the cluster's fault."""

import inspect
from dataclasses import replace
from types import SimpleNamespace

import pytest

from checks import test_images, test_queue, test_storage
from checks.framework.evidence import CannotTell, Evidence
from checks.profiles.loader import load_profile
from checks.profiles.schema.storage import StoragePath
from checks.rules.fit import misfit
from checks.rules.nodes import offer
from checks.rules.pool import pool_of
from jobs.trial.parts import Queue

HCA, VF = "rdma/hca_shared_devices_a", "nvidia.com/hostdev"


def carded(node, *resources):
    return replace(node, allocatable={**node.allocatable, **dict.fromkeys(resources, 8)})


def test_another_product_is_named_with_the_key(node, inventory):
    """h200-roce on H100: gpu.product, and what the label says."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    profile = load_profile("h200-roce")
    found = misfit(pool_of(inventory([node("a", labels=labels)]), profile), profile, profile.pod.resources)
    assert "gpu.product" in found
    assert "NVIDIA-H100-80GB-HBM3" in found


@pytest.mark.parametrize(
    ("offered", "fits"),
    [([(HCA,), (HCA,)], True), ([(VF,), (VF,)], False), ([(VF,), ()], True), ([(), ()], True), ([(VF,), (HCA,)], True)],
    ids=["as asked", "other cards everywhere", "none on one node", "no plugin at all", "right on one node"],
)
def test_only_other_cards_on_every_node_are_another_fabric(node, inventory, h100, offered, fits):
    """A device plugin that is missing, or one node that is wrong, is no wrong profile."""
    nodes = [carded(node(name), *cards) for name, cards in zip("ab", offered, strict=True)]
    found = misfit(pool_of(inventory(nodes), h100), h100, [HCA])
    assert (found == "") is fits
    assert fits or ("pod.resources" in found and VF in found)


@pytest.mark.parametrize(
    ("label", "ok", "fault"),
    [("8", None, "nodes.other-kind"), ("4", False, "gpu.oversubscribed"), ("", None, "gpu.oversubscribed")],
    ids=["a larger machine", "each offered twice", "nothing tells"],
)
def test_more_gpus_than_the_profile_names_may_be_the_profile(node, h100, label, ok, fault):
    """per_node 4 on machines of 8: only what feature discovery counts tells it from sharing."""
    four = replace(h100, gpu=replace(h100.gpu, per_node=4))
    found = offer(node("a", labels={"nvidia.com/gpu.count": label} if label else {}), four)
    assert (found.ok, found.fault) == (ok, fault)
    assert "gpu.per_node" in found.expected


def test_fewer_gpus_than_the_profile_names_are_the_clusters_fault(node, h100):
    """Four of eight are gone on every node, and the labels agree: still no-go."""
    found = offer(node("a", 4, 4, labels={"nvidia.com/gpu.count": "4"}), h100)
    assert (found.ok, found.fault) == (False, "gpu.missing")


@pytest.mark.parametrize("check", ["storage", "queue", "images"])
def test_nothing_that_only_the_profile_wants_is_missed_where_it_does_not_fit(check, node, inventory, h100, spec):
    """A claim, a queue or a registry of another cluster's profile accuses nobody here."""
    pool = pool_of(inventory([carded(node("a"), VF), carded(node("b"), VF)]), h100)
    path = StoragePath(claim="datasets", name="data", path="/data")
    storage = replace(h100.storage, classes=("fast",), paths=(path,))
    profile = replace(h100, storage=storage, images=replace(h100.images, registries=("mirror.example/ai",)))
    kueue = replace(spec, queue=Queue(kind="kueue", name="team"), resources={HCA: 8})
    given = {"pool": pool, "profile": profile, "spec": kueue, "volumes": ({}, {}), "cluster": inventory([])}
    given |= {
        "launch_stack": SimpleNamespace(not_seen={}),
        "admission": SimpleNamespace(pod={}),
        "evidence": Evidence(),
    }
    wanted = {"storage": test_storage.test_claims_are_bound, "queue": test_queue.test_launcher_and_queue_are_there}
    function = wanted.get(check, test_images.test_images_are_named_as_asked)
    with pytest.raises(CannotTell, match=r"pod\.resources") as told:
        function(**{name: given[name] for name in inspect.signature(function).parameters})
    assert told.value.fault == "nodes.other-kind"
