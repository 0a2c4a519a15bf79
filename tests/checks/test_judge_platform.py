"""What is said of the GPU stack, of pools and partitions, drift, images, metrics and the bill of materials."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from checks import test_bom as bom_checks
from checks import test_images as image_checks
from checks import test_observability as metric_checks
from checks import test_stack as stack_checks
from checks.framework.evidence import CannotTell, CheckFailed
from checks.profiles.loader import Profile
from checks.profiles.schema.images import Images
from checks.profiles.schema.observability import Observability
from checks.profiles.schema.stack import Stack
from checks.rules import bom as bom_rules
from checks.rules import images, pool, secrets, uniform
from checks.rules import stack as gpu_stack
from checks.rules.capacity import rooms
from checks.rules.nodes import node_findings, offers
from jobs.cluster.client.errors import api_error
from jobs.cluster.facts.inventory import PodUse
from jobs.cluster.facts.stack import (
    Listing,
    devices_by_node,
    image_version,
    listing,
    operand,
    policies,
    toolkit_version,
)
from jobs.diagnosis.state import PodFacts
from jobs.trial.parts import Claim

PLUGIN = "nvidia-device-plugin-daemonset"


def pod(name, node="a", *, ready=True, trouble="", images=(), app=""):
    return PodUse(
        namespace="gpu-operator",
        name=name,
        node=node,
        requests={},
        owner=f"DaemonSet/{name}",
        phase="Running",
        ready=ready,
        trouble=trouble,
        images=tuple(images),
        app=app,
    )


def labelled(node, name, **labels):
    return node(name, labels={key.replace("__", "/").replace("_", "."): value for key, value in labels.items()})


# ------------------------------------------------------------------------------------------------ pools and partitions


def test_nodes_of_another_pool_are_named_and_not_judged(inventory, node, h100, bad):
    """Two pools are two profiles: neither the labels' nor the product's outsiders are compared."""
    profile = replace(h100, pool={"pool": "training"})
    mine = node("a", labels={"pool": "training"})
    cluster = inventory(
        [
            mine,
            node("b", 4, 4, labels={"pool": "inference"}),
            node("c", 4, 4, labels={"pool": "training", "nvidia.com/gpu.product": "NVIDIA-L40S"}),
        ]
    )
    found = pool.pool_of(cluster, profile)
    assert [n.name for n in found.nodes] == ["a"]
    assert "outside of the profile's pool (pool is inference, not training)" in found.outside["b"]
    assert "another product (NVIDIA-L40S)" in found.outside["c"]
    assert len(found.notes()) == 2
    assert bad(node_findings(cluster, found, profile)) == [("cluster", "nodes.too-few")]


@pytest.mark.parametrize(
    ("labels", "capacity", "inside"),
    [
        ({"nvidia.com/gpu.workload.config": "vm-passthrough"}, None, False),
        ({"nvidia.com/gpu.workload.config": "container"}, None, True),
        ({"nvidia.com/gpu.deploy.operands": "false"}, None, False),
        ({"nvidia.com/gpu.deploy.operands": "false"}, 8, True),
        ({}, 0, True),
    ],
)
def test_nodes_whose_gpus_are_not_for_pods_are_named_and_not_judged(inventory, node, h100, labels, capacity, inside):
    """KubeVirt's nodes beside training's, or nodes left to somebody else; one that offers GPUs is judged whatever it says."""
    cluster = inventory([node("a"), node("b", capacity, capacity, labels={"nvidia.com/gpu.present": "true", **labels})])
    found = pool.pool_of(cluster, h100)
    assert ("b" in [n.name for n in found.nodes], "b" in found.outside) == (inside, not inside)


def test_the_trial_is_kept_off_another_products_nodes(inventory, node, h100):
    """Where two products stand side by side, the label of the one on trial confines it; alone, nothing is added."""
    mine = node("a", labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})
    other = node("b", labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"})
    both = pool.pool_of(inventory([mine, other]), h100)
    assert pool.confinement(both) == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert pool.confinement(pool.pool_of(inventory([mine]), h100)) == {}


def test_a_profile_of_other_machines_is_not_held_against_these(inventory, node, h100):
    """Nothing is judged by numbers of another product; the run is inconclusive (nodes.other-kind)."""
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
    """MIG under both strategies, AMD's partitions, time-slicing with and without a name of its own; near-misses are whole."""
    parted = pool.parted(replace(node("a", labels=labels), capacity=capacity))
    assert why in parted
    assert (pool.sharing_fault(parted) if parted else "") == fault


def test_parted_nodes_fail_only_where_whole_ones_are_few(inventory, node, h100, spec, bad):
    """A node of notebooks beside two whole ones is noted, and takes no pod of the trial."""
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
    """-SHARED and -MIG-1g.10gb are put behind the product's name by feature discovery."""
    names = {"NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED", "NVIDIA-H100-80GB-HBM3-SHARED", "NVIDIA-H100-80GB-HBM3"}
    assert {pool.product(node("a", labels={"nvidia.com/gpu.product": n})) for n in names} == {"NVIDIA-H100-80GB-HBM3"}


# ------------------------------------------------------------------------------------------------------ drift and skew


def test_drift_names_the_odd_one(node, bad):
    """The node that differs from most is at fault, with what and against how many (nodes.drift)."""
    nodes = [node("a"), node("b"), replace(node("c"), kernel="6.8.0-52")]
    (wrong,) = [f for f in uniform.unlike_nodes(nodes) if not f.ok]
    assert (wrong.subject, wrong.fault) == ("c", "nodes.drift")
    assert (wrong.observed, wrong.expected) == ("kernel 6.8.0-52", "kernel 6.8 as on 2 of 3 nodes")
    assert bad(uniform.unlike_nodes(nodes, ["kernel"])) == []
    assert (
        bad(uniform.unlike_nodes([node("a"), node("b", labels={"nvidia.com/cuda.driver-version.full": "580"})])) == []
    )


@pytest.mark.parametrize(
    ("other", "drifts"),
    [
        ({"kubelet": "v1.36.4-gke.1201000"}, False),
        ({"kubelet": "v1.35.9"}, True),
        ({"os": "Ubuntu 24.04.1 LTS"}, False),
        ({"os": "Ubuntu 22.04.5 LTS"}, True),
        ({"runtime": "containerd://1.7.28"}, True),
        ({"kernel": "6.8.0-1030-aws"}, True),
    ],
)
def test_patch_releases_of_kubelet_and_system_are_no_drift(node, bad, other, drifts):
    """A managed pool always has two of them during a roll-out; kernel and runtime are held to the last figure."""
    nodes = [replace(node(name), os="Ubuntu 24.04.3 LTS") for name in "ab"]
    found = bad(uniform.unlike_nodes([*nodes, replace(nodes[0], name="c", **other)]))
    assert found == ([("c", "nodes.drift")] if drifts else [])


def test_a_tie_accuses_nobody(node, bad):
    """Two against two, or one against one: the difference is the finding, with every value; a third node decides."""
    old = replace(node("b"), kernel="6.8.0-52", os="Ubuntu 22.04")
    for nodes in ([node("a"), old], [old, node("a")], [node("a"), old, replace(old, name="c"), node("d")]):
        assert bad(uniform.unlike_nodes(nodes)) == [("kernel", "nodes.drift")]
        told = next(f for f in uniform.unlike_nodes(nodes) if f.subject == "kernel")
        assert "6.8 on a" in told.observed
        assert "6.8.0-52 on b" in told.observed
    assert bad(uniform.unlike_nodes([node("a"), old, replace(old, name="c")])) == [("a", "nodes.drift")]
    thirds = [replace(node(name), kernel=name) for name in "abc"]
    assert bad(uniform.unlike_nodes(thirds)) == [("kernel", "nodes.drift")]
    assert bad(uniform.unlike_nodes(thirds, ["kernel"])) == []


def test_machines_of_another_kind_are_compared_with_their_own(node, bad):
    """GB200 beside H100, or two instance types, where no profile names one pool; an unlabelled node is no kind of its own."""
    x86 = {"kubernetes.io/arch": "amd64", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    arm = {"kubernetes.io/arch": "arm64", "nvidia.com/gpu.product": "NVIDIA-GB200"}
    nodes = [
        node("a", labels=x86),
        node("b", labels=x86),
        *(replace(node(n, labels=arm), kernel="6.8.0-nvidia-64k") for n in "cd"),
    ]
    assert bad(uniform.unlike_nodes(nodes)) == []
    silent = replace(node("e", labels={"kubernetes.io/arch": "amd64"}), kernel="6.8.0-52")
    assert bad(uniform.unlike_nodes([*nodes, silent])) == [("e", "nodes.drift")]
    types = [
        replace(node(n, labels={"node.kubernetes.io/instance-type": t}), kernel=t)
        for n, t in zip("abcd", ("p4d", "p4d", "g5", "g5"), strict=True)
    ]
    assert bad(uniform.unlike_nodes(types)) == []


@pytest.mark.parametrize(
    ("kubelet", "ok"), [("v1.36.9", True), ("v1.33.0", True), ("v1.32.9", False), ("v1.37.0", False), ("", None)]
)
def test_kubelets_are_held_to_kubernetes_own_rule(node, kubelet, ok):
    """Not newer than the server, at most three minors older (nodes.kubelet-skew); an unknown one is not judged."""
    (finding,) = uniform.kubelet_skew([replace(node("a"), kubelet=kubelet)], "v1.36.2")
    assert finding.ok is ok
    assert finding.fault == ("nodes.kubelet-skew" if ok is False else "")


# ----------------------------------------------------------------------------------------------------------- the stack


@pytest.mark.parametrize(
    ("name", "app", "kind"),
    [
        ("nvidia-device-plugin-daemonset-x1", "", "device-plugin"),
        ("nvidia-gpu-device-plugin-medium-a", "", "device-plugin"),
        ("gpu-dp-1", "nvidia-device-plugin", "device-plugin"),
        ("amdgpu-device-plugin-daemonset-q", "", "device-plugin"),
        ("nvidia-driver-daemonset-ubuntu24", "", "driver"),
        ("nvidia-container-toolkit-daemonset-k", "", "toolkit"),
        ("nvidia-dcgm-exporter-9", "", "dcgm-exporter"),
        ("gpu-operator-6f", "", "operator"),
        ("kube-multus-ds-2", "", "multus"),
        ("nvdp-nvidia-device-plugin-4kq2x", "nvidia-device-plugin", "device-plugin"),
        ("nvdp-nvidia-device-plugin-gpu-feature-discovery-9", "nvidia-device-plugin", "feature-discovery"),
        ("nvidia-device-plugin-mps-control-daemon-7", "nvidia-device-plugin", ""),
        ("nvidia-device-plugin-validator-2", "", ""),
        ("nvidia-device-plugin-node-feature-discovery-worker-5", "node-feature-discovery", ""),
        ("default-node-labeller-q", "", "feature-discovery"),
        ("nvidia-gpu-driver-ubuntu22.04-788484b9bb-6zhd9", "", "driver"),
        ("nvidia-driver-daemonset-416.94.202411-0-x", "", "driver"),
        ("nvidia-driver-installer-c", "", "driver"),
        ("nvidia-driver-manager-1", "", ""),
        ("my-training-0", "", ""),
        ("coredns-1", "kube-dns", ""),
    ],
)
def test_parts_of_the_stack_are_known_by_name_or_label(name, app, kind):
    """GPU operator, GKE, OpenShift, Helm charts, AMD; a training pod is none, nor what stands beside the plugin."""
    assert operand(pod(name, app=app)) == kind


@pytest.mark.parametrize(
    ("name", "image", "kind"),
    [
        ("default-device-plugin-h7rhq", "docker.io/rocm/k8s-device-plugin:latest", "device-plugin"),
        ("default-x-1", "rocm/k8s-device-plugin:labeller-latest", ""),
        ("device-plugin-x", "ghcr.io/run-ai/fake-gpu-operator/device-plugin:0.0.62", "device-plugin"),
        ("site-gpus-1", "nvcr.io/nvidia/k8s-device-plugin@sha256:1", "device-plugin"),
        ("default-metrics-exporter-q", "rocm/device-metrics-exporter:v1.4.0", "dcgm-exporter"),
        ("train-0", "nvcr.io/nvidia/pytorch:25.08-py3", ""),
    ],
)
def test_a_part_with_a_name_of_the_users_own_is_known_by_its_image(name, image, kind):
    """AMD's operator calls its DaemonSets after the DeviceConfig; Helm releases may have any name."""
    assert operand(pod(name, images=[image])) == kind


def test_the_plugin_must_be_ready_on_every_node(node, bad):
    """One ready pod is not enough; a pod that is missing, and one that crashes, are told apart by their words."""
    nodes = [node("a"), node("b"), node("c", allocatable=0)]
    pods = [pod(f"{PLUGIN}-1", "a"), pod(f"{PLUGIN}-2", "b", ready=False, trouble="CrashLoopBackOff: back-off 5m0s")]
    found = list(gpu_stack.stack_findings(nodes, pods))
    assert bad(found) == [("b", "stack.device-plugin-down"), ("c", "stack.device-plugin-down")]
    assert "gpu-operator/nvidia-device-plugin-daemonset-2 is not ready (CrashLoopBackOff" in found[1].observed
    assert "no pod on this node" in found[2].observed


def test_the_first_broken_part_is_the_cause(node, bad):
    """A toolkit that is down takes the plugin with it: one fault (stack.operand-down)."""
    pods = [
        pod(f"{part}-{n}", n, ready=n == "a") for n in "ab" for part in (PLUGIN, "nvidia-container-toolkit-daemonset")
    ]
    assert bad(gpu_stack.stack_findings([node("a"), node("b")], pods)) == [("b", "stack.operand-down")]


@pytest.mark.parametrize(
    ("label", "allocatable", "ok"),
    [
        ("", 8, True),
        ("", 7, False),
        ("", 0, False),
        ("true", 8, False),
        ("pre-installed", 0, True),
        ("false", 8, True),
        ("paused-for-driver-upgrade", 0, None),
    ],
)
def test_a_part_without_a_pod_is_missing_where_one_belongs(node, label, allocatable, ok):
    """Hosts with their own driver beside others, two node images, GKE's installer on one pool: told by the operator's
    label, else by whether the node offers all its GPUs."""
    labels = {"nvidia.com/gpu.deploy.driver": label} if label else {}
    nodes = [node("a"), node("b", allocatable=allocatable, labels=labels)]
    pods = [pod("nvidia-driver-daemonset-1", "a"), *(pod(f"{PLUGIN}-{n}", n) for n in "ab")]
    first, second = gpu_stack.stack_findings(nodes, pods)
    assert (first.ok, second.ok) == (True, ok)
    assert second.fault == ("stack.operand-down" if ok is False else "")
    assert ok is not True or second.observed == "ready: device-plugin; of the host's own: driver"


def test_a_restarted_pod_beside_a_ready_one_is_fine(node, bad):
    """During a roll-out the old pod ends while the new one is ready."""
    pods = [pod(f"{PLUGIN}-old", "a", ready=False), pod(f"{PLUGIN}-new", "a")]
    assert bad(gpu_stack.stack_findings([node("a")], pods)) == []


def test_a_cluster_without_a_known_plugin_is_judged_by_what_it_offers(inventory, node, h100, evidence):
    """Skipped with the reason, unless the profile asks for one."""
    cluster = inventory([node("a")])
    mine = pool.pool_of(cluster, h100)
    with pytest.raises(pytest.skip.Exception, match="no pod of a known device plugin"):
        stack_checks.test_stack_is_ready_on_every_gpu_node(cluster, mine, h100, evidence)
    asked = replace(h100, stack=Stack(device_plugin=True))
    with pytest.raises(CheckFailed):
        stack_checks.test_stack_is_ready_on_every_gpu_node(cluster, mine, asked, evidence)
    assert "stack.device-plugin-down" in [f.fault for f in evidence.findings]


def policy(state, name="p", **conditions):
    said = [{"type": kind, "status": "True", "reason": "R", "message": text} for kind, text in conditions.items()]
    return {
        "metadata": {"name": name},
        "status": {"state": state, "conditions": said},
        "spec": {"toolkit": {"version": "v1.19.0-ubuntu20.04"}, "driver": {"version": "580.1", "enabled": False}},
    }


@pytest.mark.parametrize(
    ("items", "found"),
    [
        ([policy("ready")], []),
        ([policy("ready"), policy("ignored", "old")], []),
        ([policy("notReady", Error="driver missing")], [("clusterpolicy/p", False)]),
        ([policy("ignored")], [("clusterpolicy/p", False)]),
        ([policy("")], [("clusterpolicy/p", None)]),
    ],
)
def test_the_operator_must_say_that_it_is_done(items, found):
    """ready is the only good word; one that it ignores beside a ready one is none (stack.clusterpolicy)."""
    said = list(gpu_stack.policy_findings(policies(Listing(tuple(items)))))
    assert [(f.subject, f.ok) for f in said if f.ok is not True] == found
    assert {f.fault for f in said if f.ok is not True} <= {"stack.clusterpolicy"}


def test_a_platform_without_the_operator_is_skipped_unless_it_was_promised(evidence, h100):
    """Not installed is a fact; hidden is an error that names the ways out (stack.no-operator)."""
    check = stack_checks.test_cluster_policy_is_ready
    with pytest.raises(pytest.skip.Exception, match="not installed"):
        check(lambda _: Listing(served=False), h100, evidence)
    with pytest.raises(CannotTell, match="seatrial rbac --cluster"):
        check(lambda _: Listing(hidden="forbidden"), h100, evidence)
    with pytest.raises(CheckFailed):
        check(lambda _: Listing(served=False), replace(h100, stack=Stack(operator=True)), evidence)
    assert [f.fault for f in evidence.findings] == ["stack.no-operator"]


@pytest.mark.parametrize(
    ("state", "ok"),
    [("", True), ("upgrade-done", True), ("drain-required", None), ("upgrade-failed", False), ("new-word", None)],
)
def test_a_driver_upgrade_is_no_fault_of_the_cluster(node, state, ok):
    """Under way: try again. Failed: the node needs help (stack.driver-upgrade)."""
    (finding,) = gpu_stack.upgrade_findings([node("a", labels={gpu_stack.UPGRADE: state})])
    assert finding.ok is ok
    assert finding.fault == ("" if ok else "stack.driver-upgrade")


def test_labels_that_disagree_are_named(node, bad):
    """Feature discovery's count against the kubelet's (gpu.labels-disagree); no label, no comparison."""
    nodes = (
        node("a", labels={"nvidia.com/gpu.count": "8"}),
        node("b", labels={"nvidia.com/gpu.count": "7"}),
        node("c"),
    )
    found = list(gpu_stack.label_findings(pool.Pool(nodes), "nvidia.com/gpu"))
    assert bad(found) == [("b", "gpu.labels-disagree")]
    assert [f.subject for f in found] == ["a", "b"]


def slice_of(node, devices, generation=1, kind="gpu", name="pool"):
    listed = [{"name": f"gpu-{n}", "attributes": {"type": {"string": kind}}} for n in range(devices)]
    return {
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": node,
            "pool": {"name": f"{name}-{node}", "generation": generation},
            "devices": listed,
        }
    }


def test_published_devices_are_counted_in_the_newest_generation():
    """Slices of an older generation are being replaced; partitions are no GPUs; both shapes of attributes are read."""
    old_form = {
        "spec": {"nodeName": "b", "driver": "d", "pool": {"name": "x"}, "devices": [{"basic": {"attributes": {}}}]}
    }
    found = Listing(
        (slice_of("a", 8, 1), slice_of("a", 4, 2), slice_of("a", 4, 2), slice_of("a", 7, 1, "mig", "m"), old_form)
    )
    assert devices_by_node(found, kind="gpu") == {"a": 8, "b": 1}
    assert devices_by_node(found, "gpu.nvidia.com", "mig") == {"a": 7}


def test_dra_needs_the_class_and_every_nodes_slices(node, h100, spec, evidence):
    """A class that is missing is one fault (dra.class-missing); then each node without its devices (dra.slices-missing)."""
    claimed = replace(spec, claims=(Claim(name="gpus", device_class="gpu.nvidia.com", count=8),))
    mine = pool.Pool((node("a"), node("b")))
    known = {"deviceclasses": Listing(), "resourceslices": Listing((slice_of("a", 8),))}
    with pytest.raises(CheckFailed):
        stack_checks.test_dra_knows_every_gpu(mine, h100, claimed, known.__getitem__, evidence)
    assert [(f.subject, f.fault) for f in evidence.findings] == [("deviceclass/gpu.nvidia.com", "dra.class-missing")]
    evidence.__init__()
    cel = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
    known["deviceclasses"] = Listing(
        ({"metadata": {"name": "gpu.nvidia.com"}, "spec": {"selectors": [{"cel": {"expression": cel}}]}},)
    )
    known["resourceslices"] = Listing((slice_of("a", 8), slice_of("b", 8, kind="mig")))
    with pytest.raises(CheckFailed):
        stack_checks.test_dra_knows_every_gpu(mine, h100, claimed, known.__getitem__, evidence)
    assert [(f.subject, f.fault) for f in evidence.findings if not f.ok] == [("b", "dra.slices-missing")]
    with pytest.raises(pytest.skip.Exception, match="claims no devices"):
        stack_checks.test_dra_knows_every_gpu(mine, h100, spec, known.__getitem__, evidence)


class Lists:
    """A server that serves some versions of a kind."""

    namespace = "team"

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def list(self, path):
        self.asked.append(path)
        answer = next((value for key, value in self.answers.items() if f"/{key}/" in path), 404)
        if isinstance(answer, int):
            raise api_error(f"GET {path}", answer, {"message": "no"})
        return answer, "1"

    def get(self, path):
        return self.list(path)[0]


def test_an_older_version_of_a_kind_is_found_and_hidden_is_not_absent():
    """resource.k8s.io is v1beta1 on 1.32; 403 says nothing about the cluster, 404 does."""
    found = listing(
        Lists(v1beta1=[{"metadata": {}}, "torn"]), "resourceslices", "resource.k8s.io", "v1", "v1beta2", "v1beta1"
    )
    assert (len(found.items), found.served, found.hidden) == (1, True, "")
    assert listing(Lists(), "x", "y", "v1") == Listing(served=False)
    assert listing(Lists(v1=403), "x", "y", "v1").hidden


def test_the_toolkits_version_is_read_where_the_operator_shows_it():
    """From the ClusterPolicy, else from the image of its DaemonSet; a host package is seen by neither."""
    image = pod("nvidia-container-toolkit-daemonset-1", images=["nvcr.io/nvidia/k8s/container-toolkit:v1.18.1-ubi9"])
    assert toolkit_version(policies(Listing((policy("ready"),))), []) == "v1.19.0"
    assert toolkit_version([], [image]) == "v1.18.1"
    assert toolkit_version([], [pod("x")]) == ""
    assert image_version("registry:5000/a/b@sha256:00") == ""


# --------------------------------------------------------------------------------------------------- images and secrets


@pytest.mark.parametrize(
    ("image", "registries", "ok"),
    [
        ("nvcr.io/nvidia/pytorch:1", ["nvcr.io"], True),
        ("nvcr.io/nvidia/pytorch:1", ["nvcr.io/nvidia"], True),
        ("nvcr.io/nvidia/pytorch:1", ["nvcr.io/nv"], False),
        ("busybox", ["docker.io"], True),
        ("busybox", ["docker.io/library"], True),
        ("fluent/fluent-bit:4", ["docker.io/library"], False),
        ("mirror:5000/x@sha256:0", ["mirror:5000/"], True),
        ("nvcr.io.evil.example/x:1", ["nvcr.io"], False),
    ],
)
def test_a_registry_is_allowed_by_whole_path_parts(image, registries, ok):
    """Docker Hub's short names are written out; a prefix never covers half a name."""
    assert images.allowed(image, registries) is ok


def test_images_are_judged_as_the_profile_asks(bad):
    """Registry before digest, one fault an image; sidecars and init containers are among them."""
    admitted = {
        "spec": {
            "initContainers": [{"name": "mesh", "image": "mesh:1"}],
            "containers": [{"name": "trial", "image": "nvcr.io/x@sha256:1"}],
        }
    }
    found = images.images_of(admitted)
    assert set(found) == {"mesh", "trial"}
    assert bad(images.image_findings(found, Images(digest=True))) == [("mesh: mesh:1", "images.not-by-digest")]
    assert bad(images.image_findings(found, Images(digest=True, registries=("nvcr.io",)))) == [
        ("mesh: mesh:1", "images.registry")
    ]


def ran(**seconds):
    facts = tuple(
        PodFacts(
            index=n,
            name=f"p{n}",
            node=node,
            images={"trial": ("nvcr.io/x:1", "nvcr.io/x@sha256:9")},
            pull_seconds={"nvcr.io/x:1": took},
        )
        for n, (node, took) in enumerate(seconds.items())
    )
    return SimpleNamespace(pods=facts)


def test_a_slow_pull_is_judged_by_the_profile_only(h100, evidence):
    """Times are shown; with a limit the slow node fails (images.slow-pull), and one that had the image does not."""
    trial = ran(a=0.0, b=95.0)
    with pytest.raises(pytest.skip.Exception, match="no limit for pulls"):
        image_checks.test_images_reached_every_node(trial, h100, evidence)
    assert evidence.notes == ["a: nvcr.io/x:1 was there already", "b: nvcr.io/x:1 was pulled in 95.0 s"]
    with pytest.raises(CheckFailed):
        image_checks.test_images_reached_every_node(trial, replace(h100, images=Images(pull_max_s=60)), evidence)
    assert [(f.subject, f.fault) for f in evidence.findings if not f.ok] == [("b", "images.slow-pull")]


def test_a_pull_that_no_event_tells_of_is_not_judged(h100, evidence):
    """Events expire and are dropped: that none is seen does not mean that the image was there."""
    trial = ran(a=0.0, b=1.0)
    trial.pods[1].pull_seconds.clear()
    with pytest.raises(CannotTell, match="no event tells"):
        image_checks.test_images_reached_every_node(trial, replace(h100, images=Images(pull_max_s=60)), evidence)


def test_what_ran_must_come_from_an_allowed_registry(h100, evidence):
    """Read from the pods: what a webhook added after the dry run is seen, too."""
    with pytest.raises(CheckFailed):
        image_checks.test_images_reached_every_node(
            ran(a=1.0), replace(h100, images=Images(registries=("mirror",))), evidence
        )
    assert {f.fault for f in evidence.findings} == {"images.registry"}


@pytest.mark.parametrize(
    ("answer", "ok"),
    [({"type": "kubernetes.io/dockerconfigjson"}, True), ({"type": "Opaque"}, False), (404, False), (403, None)],
)
def test_a_pull_secret_is_looked_at_by_name_and_kind_only(answer, ok):
    """Missing or of another kind is a fault (images.pull-secret-missing); not seen is not judged; no content is shown."""
    (finding,) = secrets.secret_findings(Lists(secrets=answer), ["regcred"])
    assert (finding.subject, finding.ok) == ("secret/regcred", ok)
    assert finding.fault == ("images.pull-secret-missing" if ok is False else "")


def test_secrets_are_asked_for_only_where_that_is_wanted(h100, spec, evidence):
    """No right to secrets by default: without a word of the user the check is skipped and says how."""
    session = SimpleNamespace(options=SimpleNamespace(check_secrets=False), profile=h100)
    for named, why in ((spec, "names no pull secret"), (replace(spec, pull_secrets=("x",)), "--check-secrets")):
        with pytest.raises(pytest.skip.Exception, match=why):
            image_checks.test_pull_secrets_exist(Lists(), session, named, evidence)


# -------------------------------------------------------------------------------------------------------------- metrics


def test_metrics_are_asked_for_by_the_profile(inventory, node, h100, evidence):
    """Each node needs a ready exporter (observability.dcgm-missing)."""
    cluster = replace(inventory([node("a"), node("b")]), pods=(pod("nvidia-dcgm-exporter-1", "a"),))
    mine = pool.pool_of(cluster, h100)
    with pytest.raises(pytest.skip.Exception):
        metric_checks.test_gpu_metrics_are_exported(cluster, mine, h100, evidence)
    with pytest.raises(CheckFailed):
        metric_checks.test_gpu_metrics_are_exported(
            cluster, mine, replace(h100, observability=Observability(dcgm_exporter=True)), evidence
        )
    assert [(f.subject, f.fault) for f in evidence.findings if not f.ok] == [("b", "observability.dcgm-missing")]


@pytest.mark.parametrize(
    ("monitors", "ok"),
    [
        (Listing(served=False), False),
        (Listing(), False),
        (Listing(({"metadata": {"name": "coredns"}, "spec": {}},)), False),
        (
            Listing(
                ({"metadata": {"name": "gpu"}, "spec": {"selector": {"matchLabels": {"app": "nvidia-dcgm-exporter"}}}},)
            ),
            True,
        ),
        (Listing(({"metadata": {"name": "nvidia-dcgm-exporter"}},)), True),
    ],
)
def test_a_service_monitor_must_mean_the_exporter(monitors, ok, h100, evidence):
    """By its name or by what it selects (observability.servicemonitor-missing)."""
    wanted = replace(h100, observability=Observability(service_monitor=True))
    if ok:
        return metric_checks.test_gpu_metrics_are_scraped(lambda _: monitors, wanted, evidence)
    with pytest.raises(CheckFailed):
        metric_checks.test_gpu_metrics_are_scraped(lambda _: monitors, wanted, evidence)
    assert [f.fault for f in evidence.findings] == ["observability.servicemonitor-missing"]
    return None


# ------------------------------------------------------------------------------------------------- bill of materials


def recorded(version="v1.36.2"):
    kube = SimpleNamespace(version=lambda: {"gitVersion": version})
    return SimpleNamespace(kube=kube, run=SimpleNamespace(bom={}), profile=Profile())


def test_storage_clients_and_firmware_are_recorded_as_they_are_seen(inventory, node):
    """CSI drivers by image without their sidecars, and what labels tell of BMC and firmware; a plain node tells nothing."""
    labels = {"feature.node.kubernetes.io/local-bmc-version": "2.1", "example.com/bios": "1.4", "zone": "bios"}
    pods = (
        pod(
            "efs-csi-node-x",
            images=["r/eks/aws-efs-csi-driver:v2.1.0", "r/sig-storage/csi-node-driver-registrar:v2.10"],
        ),
        pod("csi-rbd-x", images=["quay.io/cephcsi/cephcsi:v3.12.0", "r/livenessprobe:v2"]),
        pod("app-x", images=["r/physics:v1"]),
    )
    cluster = replace(inventory([node("a", labels=labels), node("b")]), pods=pods)
    found = bom_rules.from_api("v1.36.2", cluster.nodes, cluster, ())
    assert found["storage clients"] == {
        "r/eks/aws-efs-csi-driver:v2.1.0": "v2.1.0",
        "quay.io/cephcsi/cephcsi:v3.12.0": "v3.12.0",
    }
    assert found["firmware labels"] == {
        "example.com/bios": {"1.4": 1},
        "feature.node.kubernetes.io/local-bmc-version": {"2.1": 1},
    }
    bare = inventory([node("b")])
    assert not {"storage clients", "firmware labels"} & bom_rules.from_api("v1", bare.nodes, bare, ()).keys()


def test_what_nobody_can_see_is_repeated_as_not_verified():
    """A switch baseline is the profile's word; an image of a model is pinned by its digest or is not."""
    models = ("r/m:1", "r/n@sha256:" + "a" * 64)
    asked = replace(Profile(), stack=Stack(baseline={"switches": "Quantum-2 31.2014"}), images=Images(models=models))
    assert bom_rules.from_profile(Profile()) == {}
    found = bom_rules.from_profile(asked)
    assert found["not verified"] == {"switches": "Quantum-2 31.2014"}
    assert list(found["model images"].values()) == ["by a tag, which can be moved", "by digest"]


def test_the_platform_is_recorded_with_counts(inventory, node, h100, evidence):
    """Two reports can be laid side by side: every value with the number of nodes that have it."""
    cluster = replace(inventory([node("a"), node("b")]), pods=(pod(f"{PLUGIN}-1", images=["nvcr.io/p:v0.18.0"]),))
    session = recorded()
    listed = Listing((policy("ready"),))
    bom_checks.test_platform_is_on_record(session, cluster, pool.pool_of(cluster, h100), lambda _: listed, evidence)
    bom = session.run.bom
    assert bom["kubernetes"] == "v1.36.2"
    assert bom["nodes"]["kernel"] == {"6.8": 2}
    assert bom["software"]["device-plugin"] == {"nvcr.io/p:v0.18.0": "v0.18.0"}
    assert bom["container toolkit"] == "v1.19.0"


def test_a_tenant_records_what_it_sees_and_nothing_is_an_error(inventory, evidence):
    """The version alone is a record; not even that is none."""
    session = recorded()
    bom_checks.test_platform_is_on_record(
        session, inventory([]), pool.Pool(), lambda _: Listing(hidden="tenant"), evidence
    )
    assert session.run.bom == {"kubernetes": "v1.36.2"}
    evidence.__init__()
    with pytest.raises(CannotTell):
        bom_checks.test_platform_is_on_record(recorded(""), inventory([]), pool.Pool(), lambda _: Listing(), evidence)


def test_the_profile_says_what_may_differ_in_words_that_exist():
    """A misspelt fact would let everything differ, or nothing."""
    with pytest.raises(ValueError, match="did you mean kernel"):
        Stack(may_differ=("kernal",))
    assert Profile().stack.may_differ == ()
