"""A profile that does not describe the cluster is reported as such; missing parts remain cluster faults."""

import inspect
from dataclasses import replace
from types import SimpleNamespace

import pytest

from checks import test_images, test_queue, test_storage
from checks.framework.evidence import CannotTell, Evidence
from checks.profiles.loader import load_profile
from checks.profiles.schema import StoragePath
from checks.rules.fit import counted, known_here, misfit, undefined, unstarted
from checks.rules.nodes import offer
from checks.rules.pool import pool_of
from jobs.cluster.facts.inventory import Inventory, PodUse
from jobs.diagnosis.state import FailureAnalysis, Replica
from jobs.trial.parts import Queue

HCA, VF = "rdma/hca_shared_devices_a", "nvidia.com/hostdev"


def carded(node, *resources):
    return replace(node, allocatable={**node.allocatable, **dict.fromkeys(resources, 8)})


def test_another_product_is_named_with_the_key(node, inventory):
    """h200-roce on H100: the message has gpu.product and the label's value."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    profile = load_profile("h200-roce")
    difference = misfit(pool_of(inventory([node("a", labels=labels)]), profile), profile)
    assert "gpu.product" in difference
    assert "NVIDIA-H100-80GB-HBM3" in difference


@pytest.mark.parametrize(
    ("offered", "fits"),
    [([(HCA,), (HCA,)], True), ([(VF,), (VF,)], False), ([(VF,), ()], True), ([(), ()], True), ([(VF,), (HCA,)], True)],
    ids=["as asked", "other cards everywhere", "none on one node", "no plugin at all", "right on one node"],
)
def test_only_other_cards_on_every_node_are_another_fabric(node, inventory, h100, offered, fits):
    """Near misses: a missing device plugin or one wrong node does not make the profile wrong."""
    nodes = [carded(node(name), *nics) for name, nics in zip("ab", offered, strict=True)]
    difference = misfit(pool_of(inventory(nodes), h100), h100)
    assert (difference == "") is fits
    assert fits or ("pod.resources" in difference and VF in difference)


NIC = "networking.gke.io.networks/"


@pytest.mark.parametrize(
    ("nics", "google", "fits"),
    [([NIC + "gpu-nic3"], True, True), ([], True, True), ([NIC + "vpc-1"], True, False), ([], False, False)],
    ids=["one of the networks is there", "all are missing", "others everywhere", "no node is Google's"],
)
def test_networks_of_google_are_missed_on_its_nodes_only(node, inventory, nics, google, fits):
    """gke-tcpxo: GKE's network counts distinguish a different cluster from missing networks."""
    labels = {"cloud.google.com/gke-nodepool": "a3"} if google else {}
    profile = load_profile("gke-tcpxo")
    difference = misfit(
        pool_of(inventory([carded(node(name, labels=labels), *nics) for name in "ab"]), profile), profile
    )
    assert (difference == "") is fits
    assert fits or "pod.annotations" in difference


@pytest.mark.parametrize(
    ("counts", "name", "fits"),
    [
        ((8, 8), "dra-only", False),
        ((8, 0), "dra-only", True),
        ((None, None), "dra-only", True),
        ((8, 8), "gb200", True),
    ],
    ids=["counted everywhere", "on one node only", "nowhere", "a claim beside counted GPUs"],
)
def test_gpus_that_every_node_counts_are_not_claimed(node, inventory, counts, name, fits):
    """A missing DeviceClass is a cluster fault unless a device plugin serves the GPUs of all nodes."""
    labels = {"nvidia.com/gpu.present": "true"}
    profile = load_profile("dra-only" if name == "dra-only" else "gb200-mnnvl")
    nodes = [node(each, count, count, labels=labels) for each, count in zip("ab", counts, strict=True)]
    assert (counted(pool_of(inventory(nodes), profile), profile) == "") is fits


@pytest.mark.parametrize(
    ("label", "ok", "fault"),
    [("8", None, "nodes.other-kind"), ("4", False, "gpu.oversubscribed"), ("", None, "gpu.oversubscribed")],
    ids=["a larger machine", "each offered twice", "nothing tells"],
)
def test_more_gpus_than_the_profile_names_may_be_the_profile(node, h100, label, ok, fault):
    """per_node 4 on machines of 8: only the count of feature discovery distinguishes this from sharing."""
    four = replace(h100, gpu=replace(h100.gpu, per_node=4))
    finding = offer(node("a", labels={"nvidia.com/gpu.count": label} if label else {}), four)
    assert (finding.ok, finding.fault) == (ok, fault)
    assert "gpu.per_node" in finding.expected


def test_fewer_gpus_than_the_profile_names_are_the_clusters_fault(node, h100):
    """Four of eight GPUs are missing on every node, and the labels agree: no-go."""
    finding = offer(node("a", 4, 4, labels={"nvidia.com/gpu.count": "4"}), h100)
    assert (finding.ok, finding.fault) == (False, "gpu.missing")


@pytest.mark.parametrize("check", ["storage", "queue", "images"])
def test_nothing_that_only_the_profile_wants_is_missed_where_it_does_not_fit(check, node, inventory, h100, spec):
    """A claim, queue or registry of another cluster's profile raises no fault here."""
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
    check_of = {"storage": test_storage.test_claims_are_bound, "queue": test_queue.test_launcher_and_queue_are_there}
    function = check_of.get(check, test_images.test_images_are_named_as_asked)
    with pytest.raises(CannotTell, match=r"pod\.resources") as error:
        function(**{name: given[name] for name in inspect.signature(function).parameters})
    assert error.value.fault == "nodes.other-kind"


TENANT = Inventory((), (), {"nodes": "not readable by a tenant", "pods": "not readable by a tenant"})
NETS = {("default", "rdma-0"): None, ("default", "rdma-1"): None}
PREEMPTION = " preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
NO_RDMA = f"0/2 nodes are available: 2 Insufficient {HCA}.{PREEMPTION}"
MOUNT = '2 of 2 pods have not started; MountVolume.SetUp failed for volume "lib" : hostPath type check failed'


def stuck(text, *nodes, **changes):
    """Make a trial whose pods do not start; ``nodes`` are those that received a pod."""
    said = {"fault": "job.unschedulable", "subject": "seatrial-abc", "expected": "", "suggestion": ""}
    failed = FailureAnalysis(observed=text, err_class="ERR_INFRA", **said, **changes)
    replicas = [Replica(index=i, pod=f"seatrial-abc-{i}", node=node) for i, node in enumerate([*nodes, ""][:2])]
    return SimpleNamespace(analysis=failed, replicas=tuple(replicas))


@pytest.fixture
def asking(spec):
    """Make a trial that requests everything that a profile can request of nodes."""
    lib = {"name": "lib", "hostPath": {"path": "/opt/lib"}}
    return replace(spec, resources={HCA: 1}, node_selector={"pool": "gpu"}, volumes=(lib,))


def test_networks_that_no_one_can_see_nodes_for_may_be_another_clusters(h100, inventory, node):
    """If all networks are missing, profile or cluster may be wrong; with one network present, or visible nodes, it is
    the cluster."""
    reason = undefined(NETS, TENANT, h100)
    assert "pod.annotations" in reason
    assert "default/rdma-0" in reason
    assert "profile describes other machines, or" in reason
    assert undefined(NETS | {("default", "rdma-1"): {}}, TENANT, h100) == ""
    assert undefined(NETS, inventory([node("a")]), h100) == ""


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (NO_RDMA, "pod.resources"),
        (f"0/2 nodes are available: 2 Insufficient nvidia.com/gpu, 2 Insufficient {HCA}.", "pod.resources"),
        (f"0/5 nodes are available: 3 Insufficient nvidia.com/gpu, 5 Insufficient {HCA}.", "pod.resources"),
        (f"0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient {HCA}.", "pod.resources"),
        ("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.", "pod.node_selector"),
        (
            "0/3 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, "
            "2 node(s) didn't match Pod's node affinity/selector.",
            "pod.node_selector",
        ),
        ("0/2 nodes are available: 2 device class gpu.nvidia.com does not exist.", "pod.claims"),
        (MOUNT, "pod.volumes"),
    ],
)
def test_what_no_node_has_may_be_the_profiles_error(h100, asking, inventory, node, text, key):
    """A tenant gets both possibilities, with the key; with visible nodes the cause is certain."""
    reason = unstarted(stuck(text), asking, TENANT, h100)
    assert f"({key})" in reason
    assert "profile describes other machines, or" in reason
    assert unstarted(stuck("", events=(text,)), asking, TENANT, h100) == reason
    assert unstarted(stuck(text), asking, inventory([node("a")]), h100) == ""
    assert unstarted(stuck(text, disrupted=True), asking, TENANT, h100) == ""


@pytest.mark.parametrize(
    "text",
    [
        f"0/2 nodes are available: 1 Insufficient {HCA}, 1 node(s) didn't match pod anti-affinity rules.",
        f"0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient {HCA}.",
        f"0/5 nodes are available: 2 node(s) had untolerated taint(s), 3 Insufficient nvidia.com/gpu, 3 Insufficient {HCA}.",
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
        "0/2 nodes are available: 2 Insufficient cpu.",
        "0/2 nodes are available: 2 node(s) had untolerated taint(s).",
        "0/2 nodes are available: 2 Insufficient example.com/licence.",
        MOUNT.replace("2 of 2", "1 of 2"),
        MOUNT.replace('"lib"', '"other"'),
        "",
    ],
)
def test_what_any_job_asks_for_or_some_node_has_is_the_clusters(h100, asking, text):
    """A node that lacks a resource of its peers, and GPUs, CPUs and taints, are not profile errors."""
    assert unstarted(stuck(text), asking, TENANT, h100) == ""


def test_a_pod_that_was_placed_has_found_what_the_profile_names(h100, asking):
    """The first pod received a node's devices, so the other node lacks them. Paths are checked later."""
    assert unstarted(stuck(NO_RDMA, "gpu-node-0"), asking, TENANT, h100) == ""
    assert "pod.volumes" in unstarted(stuck(MOUNT, "gpu-node-0", "gpu-node-1"), asking, TENANT, h100)
    assert unstarted(SimpleNamespace(analysis=None, replicas=()), asking, TENANT, h100) == ""


def test_what_a_tenant_sees_of_the_cluster_answers_for_the_profile(h100, asking):
    """A quota, a pod or a definition shows that the resource exists, so a missing one is no-go."""
    used = [PodUse("team", "train-0", at, {HCA: 1}, "", "Running") for at in ("gpu-node-7", "")]
    holding, waiting = (replace(TENANT, pods=(pod,)) for pod in used)
    for cluster, granted, networks, fits in (
        (TENANT, (), {}, False),
        (TENANT, (VF,), NETS, False),
        (waiting, (), {}, False),
        (TENANT, (HCA,), {}, True),
        (holding, (), {}, True),
        (TENANT, (), NETS | {("default", "rdma-0"): {}}, True),
    ):
        here = known_here(cluster, granted, networks, asking)
        assert (unstarted(stuck(NO_RDMA), asking, cluster, h100, here) == "") is fits
    text = "0/2 nodes are available: 2 device class gpu.nvidia.com does not exist."
    assert unstarted(stuck(text), asking, TENANT, h100, {"gpu.nvidia.com.deviceclass.resource.k8s.io/devices"}) == ""
