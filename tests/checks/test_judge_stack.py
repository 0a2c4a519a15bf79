"""The GPU stack: operands, operator policies, driver upgrades, dynamic resource allocation."""

from dataclasses import replace

import pytest

from checks import test_stack as stack_checks
from checks.framework.evidence import CannotTell, CheckFailed
from checks.profiles.schema import StackSection
from checks.rules import pool
from checks.rules import stack as gpu_stack
from jobs.cluster.facts.stack import (
    Listing,
    Policy,
    devices_by_node,
    image_version,
    listing,
    operand,
    policies,
    toolkit_version,
)
from jobs.trial.parts import ClaimSpec
from tests.checks.operands import PLUGIN, Lists, pod, policy
from tests.table import table


@table(
    "name, app, kind",
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
    """Pods of GPU operator, GKE, OpenShift, Helm charts and AMD match; training pods and adjacent components do not."""
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
    """AMD's operator names its DaemonSets after the DeviceConfig; Helm releases have any name."""
    assert operand(pod(name, images=[image])) == kind


def test_the_plugin_must_be_ready_on_every_node(node, bad):
    """One ready pod is not enough; a missing pod and a crashing one have different messages."""
    nodes = [node("a"), node("b"), node("c", allocatable=0)]
    pods = [pod(f"{PLUGIN}-1", "a"), pod(f"{PLUGIN}-2", "b", ready=False, trouble="CrashLoopBackOff: back-off 5m0s")]
    findings = list(gpu_stack.stack_findings(nodes, pods))
    assert bad(findings) == [("b", "stack.device-plugin-down"), ("c", "stack.device-plugin-down")]
    assert "gpu-operator/nvidia-device-plugin-daemonset-2 is not ready (CrashLoopBackOff" in findings[1].observed
    assert "no pod on this node" in findings[2].observed


def test_the_first_broken_part_is_the_cause(node, bad):
    """A failed toolkit also stops the plugin: one fault (stack.operand-down)."""
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
    """Hosts with a preinstalled driver next to others, two node images, GKE's installer on one pool: the operator's
    label decides, else whether the node offers all its GPUs."""
    labels = {"nvidia.com/gpu.deploy.driver": label} if label else {}
    nodes = [node("a"), node("b", allocatable=allocatable, labels=labels)]
    pods = [pod("nvidia-driver-daemonset-1", "a"), *(pod(f"{PLUGIN}-{n}", n) for n in "ab")]
    first, second = gpu_stack.stack_findings(nodes, pods)
    assert (first.ok, second.ok) == (True, ok)
    assert second.fault == ("stack.operand-down" if ok is False else "")
    assert ok is not True or second.observed == "ready: device-plugin; from the host: driver"


@pytest.mark.parametrize(
    ("labels", "ok", "fault", "said"),
    [
        ({"deploy": "paused-for-mig-change", "state": "pending"}, None, "stack.device-plugin-down", "state=pending"),
        ({"deploy": "paused-for-mig-change", "state": "failed"}, None, "stack.device-plugin-down", "state=failed"),
        ({"deploy": "true", "state": "pending"}, False, "stack.device-plugin-down", "state=pending"),
        ({"deploy": "true", "state": "success"}, False, "stack.device-plugin-down", "unlike on other nodes"),
        ({"deploy": "paused-for-driver-upgrade"}, None, "", "paused-for-driver-upgrade"),
    ],
)
def test_a_plugin_that_mig_manager_has_taken_away_names_its_state(node, labels, ok, fault, said):
    """A separate fault has a remedy that refers to MIG manager (NVIDIA/gpu-operator#2833)."""
    names = {"deploy": "nvidia.com/gpu.deploy.device-plugin", "state": "nvidia.com/mig.config.state"}
    nodes = [node("a"), node("b", allocatable=0, labels={names[key]: value for key, value in labels.items()})]
    _, finding = gpu_stack.stack_findings(nodes, [pod(f"{PLUGIN}-1", "a")])
    assert (finding.ok, finding.fault) == (ok, fault)
    assert finding.observed.endswith(said)


def test_a_restarted_pod_with_a_ready_one_is_fine(node, bad):
    """During a rollout the old pod terminates while the new one is ready."""
    pods = [pod(f"{PLUGIN}-old", "a", ready=False), pod(f"{PLUGIN}-new", "a")]
    assert bad(gpu_stack.stack_findings([node("a")], pods)) == []


def test_a_cluster_without_a_known_plugin_is_judged_by_what_it_offers(inventory, node, h100, evidence):
    """The check is skipped with the reason, unless the profile requires a plugin."""
    cluster = inventory([node("a")])
    mine = pool.pool_of(cluster, h100)
    with pytest.raises(pytest.skip.Exception, match="no pod of a known device plugin"):
        stack_checks.test_stack_is_ready_on_every_gpu_node(cluster, mine, h100, evidence)
    asked = replace(h100, stack=StackSection(device_plugin=True))
    with pytest.raises(CheckFailed):
        stack_checks.test_stack_is_ready_on_every_gpu_node(cluster, mine, asked, evidence)
    assert "stack.device-plugin-down" in [f.fault for f in evidence.findings]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([policy("ready")], []),
        ([policy("ready"), policy("ignored", "old")], []),
        ([policy("notReady", Error="driver missing")], [("clusterpolicy/p", False)]),
        ([policy("ignored")], [("clusterpolicy/p", False)]),
        ([policy("")], [("clusterpolicy/p", None)]),
    ],
)
def test_the_operator_must_say_that_it_is_done(items, expected):
    """Only the state "ready" passes; an ignored policy next to a ready one does not count (stack.clusterpolicy)."""
    said = list(gpu_stack.policy_findings(policies(Listing(tuple(items)))))
    assert [(f.subject, f.ok) for f in said if f.ok is not True] == expected
    assert {f.fault for f in said if f.ok is not True} <= {"stack.clusterpolicy"}


def test_a_platform_without_the_operator_is_skipped_unless_it_was_promised(evidence, h100):
    """A missing operator is a skip; a hidden one is an error with alternatives (stack.no-operator)."""
    check = stack_checks.test_cluster_policy_is_ready
    with pytest.raises(pytest.skip.Exception, match="not installed"):
        check(lambda _: Listing(served=False), pool.Pool(), h100, evidence)
    with pytest.raises(CannotTell, match="seatrial rbac --cluster"):
        check(lambda _: Listing(hidden="forbidden"), pool.Pool(), h100, evidence)
    with pytest.raises(CheckFailed):
        check(lambda _: Listing(served=False), pool.Pool(), replace(h100, stack=StackSection(operator=True)), evidence)
    assert [f.fault for f in evidence.findings] == ["stack.no-operator"]


@pytest.mark.parametrize(
    ("state", "ok"),
    [
        ("", True),
        ("upgrade-done", True),
        ("upgrade-required", True),  # queued: the upgrade has not started there
        ("cordon-required", None),
        ("drain-required", None),
        ("upgrade-failed", False),
        ("new-word", None),
    ],
)
def test_a_driver_upgrade_is_no_fault_of_the_cluster(node, state, ok):
    """An upgrade in progress is retried later; after a failed one the node must be repaired (stack.driver-upgrade)."""
    (finding,) = gpu_stack.upgrade_findings([node("a", labels={gpu_stack.UPGRADE: state})])
    assert finding.ok is ok
    assert finding.fault == ("" if ok else "stack.driver-upgrade")


@pytest.mark.parametrize(
    ("message", "queued", "ok"),
    [
        ("OperandNotReady: states not ready: [state-driver]", ["a"], True),
        ("OperandNotReady: states not ready: [state-driver state-device-plugin]", ["a"], False),
        ("", ["a"], None),
        ("OperandNotReady: states not ready: [state-driver]", [], False),
    ],
)
def test_an_operator_that_only_waits_for_drivers_is_well(message, queued, ok):
    """While nodes are queued for a driver upgrade it reports notReady; for any other operand that is a fault."""
    policy = Policy(name="p", state="notReady", message=message, versions={})
    (finding,) = gpu_stack.policy_findings([policy], queued)
    assert (finding.ok, finding.fault) == (ok, "" if ok else "stack.clusterpolicy")
    assert ok is not True or "1 nodes wait for a driver upgrade: a" in finding.observed


def test_labels_that_disagree_are_named(node, bad):
    """Feature discovery's count is compared with the kubelet's (gpu.labels-disagree), if there is a label."""
    nodes = (
        node("a", labels={"nvidia.com/gpu.count": "8"}),
        node("b", labels={"nvidia.com/gpu.count": "7"}),
        node("c"),
    )
    findings = list(gpu_stack.label_findings(pool.Pool(nodes), "nvidia.com/gpu"))
    assert bad(findings) == [("b", "gpu.labels-disagree")]
    assert [f.subject for f in findings] == ["a", "b"]


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
    """Slices of an older generation are being replaced; partitions are not GPUs; both attribute formats are read."""
    old_form = {
        "spec": {"nodeName": "b", "driver": "d", "pool": {"name": "x"}, "devices": [{"basic": {"attributes": {}}}]}
    }
    slices = Listing(
        (slice_of("a", 8, 1), slice_of("a", 4, 2), slice_of("a", 4, 2), slice_of("a", 7, 1, "mig", "m"), old_form)
    )
    assert devices_by_node(slices, kind="gpu") == {"a": 8, "b": 1}
    assert devices_by_node(slices, "gpu.nvidia.com", "mig") == {"a": 7}


def test_dra_needs_the_class_and_every_nodes_slices(node, h100, spec, evidence):
    """A missing class is one fault (dra.class-missing); then each node without devices is reported
    (dra.slices-missing)."""
    claimed = replace(spec, claims=(ClaimSpec(name="gpus", device_class="gpu.nvidia.com", count=8),))
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


def test_an_older_version_of_a_kind_is_found_and_hidden_is_not_absent():
    """resource.k8s.io is v1beta1 on 1.32; 403 proves nothing about the cluster, 404 does."""
    listed = listing(
        Lists(v1beta1=[{"metadata": {}}, "torn"]), "resourceslices", "resource.k8s.io", "v1", "v1beta2", "v1beta1"
    )
    assert (len(listed.items), listed.served, listed.hidden) == (1, True, "")
    assert listing(Lists(), "x", "y", "v1") == Listing(served=False)
    assert listing(Lists(v1=403), "x", "y", "v1").hidden


def test_the_toolkits_version_is_read_where_the_operator_shows_it():
    """The version is read from the ClusterPolicy, else from the DaemonSet's image; neither shows a host package."""
    image = pod("nvidia-container-toolkit-daemonset-1", images=["nvcr.io/nvidia/k8s/container-toolkit:v1.18.1-ubi9"])
    assert toolkit_version(policies(Listing((policy("ready"),))), []) == "v1.19.0"
    assert toolkit_version([], [image]) == "v1.18.1"
    assert toolkit_version([], [pod("x")]) == ""
    assert image_version("registry:5000/a/b@sha256:00") == ""
