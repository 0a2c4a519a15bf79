"""A trial on CPUs alone (`cpu-gloo`): go with the CPU mark on a cluster without GPUs, and red for its faults."""

from __future__ import annotations

import json

import pytest
import yaml

from checks.framework.selection import OF_GPUS
from cli.listing import all_checks
from tests.program import seatrial

FAMILIES = {
    "admission",
    "api",
    "bom",
    "checkpoint",
    "cpu",
    "images",
    "job",
    "namespace",
    "network",
    "nodes",
    "queue",
    "rendezvous",
    "rights",
    "storage",
}
"""Families with results on CPUs; a new family must be in one of the two sets."""
NOT_TESTED = "not tested: the trial of profile cpu-gloo runs on CPUs alone (gpu.per_node: 0)"
FLAVOR = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor", "metadata": {"name": "any"}}


def queue(name="trial", cpus=4):
    """Return a LocalQueue and its ClusterQueue with this many CPUs."""
    shares = [{"name": "cpu", "nominalQuota": cpus}, {"name": "memory", "nominalQuota": "4Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "any", "resources": shares}]}
    api = {"apiVersion": "kueue.x-k8s.io/v1beta1"}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    local = {"metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": "exercise"}}
    cluster = {**api, "kind": "ClusterQueue", "metadata": {"name": "exercise"}, "spec": spec}
    return {"operators": ["kueue"], "objects": [FLAVOR, cluster, {**api, "kind": "LocalQueue", **local}]}


def closed(first, last):
    """Return a NetworkPolicy that permits TCP ports below the first and above the second of these, and UDP."""
    bounds = ((1, first - 1), (last + 1, 65535))
    open_ports = [{"protocol": "TCP", "port": low, "endPort": high} for low, high in bounds if low <= high]
    rule = {"from": [{"podSelector": {}}], "ports": [*open_ports, {"protocol": "UDP", "port": 1, "endPort": 65535}]}
    policy = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [rule]}
    meta = {"name": "restrict", "namespace": "default"}
    made = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": policy}
    return {"objects": [made]}


def node(**spec):
    """Return the second worker with changes."""
    return {"node": {"kind-worker2": spec}}


DEAD = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "container runtime is down"}
CORDONED = {"spec": {"unschedulable": True}}
TAINTED = {"spec": {"taints": [{"key": "maintenance", "value": "yes", "effect": "NoSchedule"}]}}


@pytest.fixture
def run(tmp_path):
    """Run a command on two CPU workers with a change; return exit code, output and record."""

    def judge(world, *options, command="accept", profile="cpu-gloo"):
        text = {"name": "w", "title": "t", "breaks": "-", "extends": "cpu-only", "faults": [], "outcome": "go"}
        (tmp_path / "w.yaml").write_text(yaml.safe_dump({**text, "world": world}))
        out = tmp_path / "out"
        cluster = ("--cluster", f"sim:{tmp_path / 'w.yaml'}", "--profile", profile)
        done = seatrial(command, *cluster, "--out", str(out), *options)
        assert (out / "report.json").exists(), done.stdout + done.stderr
        return done.returncode, " ".join(done.stdout.split()), json.loads((out / "report.json").read_text())

    return judge


def outcomes(record):
    return {check["id"]: check["outcome"] for check in record["checks"]}


def test_the_way_to_training_is_go_and_says_that_no_gpu_was_tested(run, tmp_path):
    code, printed, record = run({})
    ended = outcomes(record)
    assert (code, record["verdict"], record["cpu_only"]) == (0, "go", True), printed
    assert "VERDICT: go (CPU ONLY: no GPU and no fabric was tested) (SIMULATED)" in printed
    for name in ("cpu.nodes", "cpu.all-reduce", "cpu.sums", "rendezvous.dns", "rendezvous.port", "network.mtu"):
        assert ended[name] == "passed", name
    of_gpus = {c["id"]: (c["outcome"], c["reason"]) for c in record["checks"] if all_checks()[c["id"]].of_gpus}
    assert set(of_gpus.values()) == {("skipped", NOT_TESTED)}
    assert {"nodes.gpu", "gpu.free", "rdma.devices", "nccl.transport", "nccl.bandwidth-ring"} <= of_gpus.keys()
    proven = printed.partition("Proven")[2].partition("Not requested")[0]
    assert "all_reduce by gloo ended on 2 nodes" in proven
    assert not [word for word in ("NCCL", "GPU ", "fabric", "Ring", "GB/s") if word in proven]
    for form in ("report.html", "report.md", "junit.xml"):
        assert "CPU ONLY" in (tmp_path / "out" / form).read_text(), form


def test_preflight_is_marked_too(run):
    code, printed, record = run({}, command="preflight")
    assert (code, outcomes(record)["cpu.nodes"]) == (0, "passed"), printed
    assert "go (CPU ONLY" in printed
    assert "not enough for a gate" in printed


def test_the_exercise_with_a_queue_and_a_job_that_is_too_large(run):
    code, printed, record = run(queue(), "--queue", "kueue:trial", "--gang")
    ended = outcomes(record)
    gang = next(check for check in record["checks"] if check["id"] == "queue.gang")
    assert (code, record["verdict"]) == (0, "go"), printed
    assert gang["findings"][0]["subject"] == "job of 5 pods"  # one more than 4 GiB of quota allow, of 1 GiB each
    assert [ended[name] for name in ("queue.present", "queue.admitted", "queue.gang")] == ["passed"] * 3


def test_storage_is_tried_as_with_gpus(run, tmp_path):
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "results",
            "namespace": "default",
            "annotations": {"sim/volume": '{"quota_bytes": 33554432}'},
        },
        "spec": {
            "storageClassName": "shared",
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "shared"}}
    kind |= {"provisioner": "nfs.csi.k8s.io", "volumeBindingMode": "Immediate"}
    path = {"name": "results", "path": "/results", "claim": "results", "shared": True, "write": True, "bytes": "4M"}
    profile = tmp_path / "mine.yaml"
    profile.write_text(yaml.safe_dump({"extends": "cpu-gloo", "storage": {"paths": [path]}}))
    code, printed, record = run({"objects": [kind, claim]}, profile=str(profile))
    ended = outcomes(record)
    assert (code, ended["storage.paths"], ended["storage.shared"]) == (0, "passed", "passed"), printed


@pytest.mark.parametrize(
    ("world", "options", "fault", "check"),
    [
        pytest.param({"dns": {"mode": "nxdomain"}}, (), "dns.unresolved", "rendezvous.dns", marks=pytest.mark.slow),
        pytest.param(closed(29500, 29500), (), "port.blocked", "rendezvous.port", marks=pytest.mark.slow),
        pytest.param(closed(32768, 65535), (), "network.ports-blocked", "network.ports", marks=pytest.mark.slow),
        (queue("research"), ("--queue", "kueue:trial"), "queue.missing", "queue.present"),
        pytest.param(
            queue(cpus="400m"), ("--queue", "kueue:trial"), "queue.quota-short", "queue.present", marks=pytest.mark.slow
        ),
        pytest.param({}, ("--queue", "kueue:trial"), "launcher.missing", "queue.present", marks=pytest.mark.slow),
        pytest.param(node(status={"conditions": [DEAD]}), (), "nodes.not-ready", "cpu.nodes", marks=pytest.mark.slow),
        (node(**CORDONED), (), "nodes.cordoned", "cpu.nodes"),
        pytest.param(node(**TAINTED), (), "nodes.tainted", "cpu.nodes", marks=pytest.mark.slow),
        pytest.param({"cpu_nodes": 1}, (), "nodes.too-few", "cpu.nodes", marks=pytest.mark.slow),
        pytest.param({"cpu_nodes": 0}, (), "nodes.none", "cpu.nodes", marks=pytest.mark.slow),
        pytest.param({"collective": {"hang": True}}, (), "nccl.hang", "cpu.all-reduce", marks=pytest.mark.slow),
        ({"collective": {"wrong": 3}}, (), "nccl.wrong-results", "cpu.sums"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value else None,
)
def test_a_fault_is_red_without_gpus_too(run, world, options, fault, check):
    code, printed, record = run(world, *options)
    assert (code, outcomes(record)[check]) == (1, "failed"), printed
    assert list(record["faults"]) == [fault], printed
    assert "no-go (CPU ONLY" in printed


@pytest.mark.parametrize(
    "changed", [CORDONED, pytest.param(TAINTED, marks=pytest.mark.slow)], ids=["cordoned", "tainted"]
)
def test_a_node_that_is_kept_away_is_nothing_where_two_others_are_left(run, changed):
    code, printed, record = run({"cpu_nodes": 3, **node(**changed)})
    assert (code, record["faults"]) == (0, {}), printed


@pytest.mark.parametrize("asked", ["nccl.transport", "gpu.allocatable"])
def test_a_check_of_gpus_that_is_named_is_never_green(run, asked):
    code, printed, _ = run({}, "--check", asked)
    assert code == 10, printed
    assert f"Required but not judged: {asked}" in printed


def test_a_profile_that_requires_what_it_cannot_test_is_never_green(run, tmp_path):
    """A profile with GPU requirements and an override to zero GPUs keeps its requirements."""
    profile = tmp_path / "mine.yaml"
    pod = {"resources": None, "cpu": "250m", "memory": "1Gi", "shm": "64Mi", "capabilities": []}
    profile.write_text(yaml.safe_dump({"extends": "h100-ib", "gpu": {"per_node": 0}, "pod": pod}))
    code, printed, _ = run({}, profile=str(profile))
    assert code == 10, printed
    assert "Required but not judged: gpu.allocatable" in printed


@pytest.mark.parametrize(
    ("command", "options"), [("accept", ["--training"]), ("sweep", []), ("accept", ["--command", "torchrun bench.py"])]
)
def test_what_measures_gpus_is_refused_before_anything_starts(command, options):
    done = seatrial(command, "--cluster", "sim:cpu-only", "--profile", "cpu-gloo", *options)
    assert done.returncode == 4, done.stdout
    assert "profile cpu-gloo has none (gpu.per_node: 0)" in done.stdout + done.stderr


def test_checks_of_cpus_are_no_part_of_a_run_with_gpus():
    done = seatrial("accept", "--cluster", "sim:healthy", "--check", "cpu.nodes")
    assert done.returncode == 4, done.stdout
    assert "is one of seatrial preflight --profile cpu-gloo" in " ".join((done.stdout + done.stderr).split())


def test_every_family_is_of_gpus_or_not():
    families = {name.partition(".")[0] for name, check in all_checks().items() if not check.of_gpus}
    assert families == FAMILIES
    assert not FAMILIES & OF_GPUS


def test_the_printed_role_asks_for_nothing_of_gpus():
    def rules(*options):
        done = seatrial("rbac", "--cluster", "--namespace", "default", *options)
        return {r for d in yaml.safe_load_all(done.stdout) for rule in d.get("rules", ()) for r in rule["resources"]}

    assert rules("--profile", "h100-ib") - rules("--profile", "cpu-gloo") == {"noderesourcetopologies"}
