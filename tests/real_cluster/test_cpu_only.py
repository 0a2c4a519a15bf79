"""A trial on CPUs alone (`cpu-gloo`) with real kubelets: go with the CPU mark, and red for faults."""

from __future__ import annotations

import signal

import pytest

from tests.real_cluster.trials import PROFILE
from tests.waiting import KUBECTL_LIMIT

pytestmark = pytest.mark.usefixtures("pods")


@pytest.fixture
def cpus(bench):
    bench.profile = {**PROFILE, "extends": "cpu-gloo"}
    return bench


def judged(bench, outcome, verdict, *faults):
    """Assert the verdict with its mark, exactly these faults, no leftovers, no refused request."""
    assert (outcome.verdict, outcome.faults) == (verdict, set(faults)), outcome.text
    assert f"VERDICT: {verdict} (CPU ONLY: no GPU and no fabric was tested)" in outcome.text
    assert bench.left() == []
    assert bench.refused() == []


def test_the_way_to_training_is_go_without_gpus(cpus):
    outcome = cpus.run()
    judged(cpus, outcome, "go")
    ended = {check["id"]: check["outcome"] for check in outcome.record["checks"]}
    assert ended["cpu.all-reduce"] == ended["rendezvous.port"] == ended["network.mtu"] == "passed"
    assert {ended[name] for name in ("gpu.free", "nccl.completed", "rdma.devices")} == {"skipped"}


def test_the_trial_asks_for_no_gpu(cpus):
    run = cpus.start()
    asked = [pod["spec"]["containers"][0]["resources"] for pod in cpus.running()]
    judged(cpus, run.end(), "go")
    assert [set(each["requests"]) | set(each.get("limits", {})) for each in asked] == [{"cpu", "memory"}] * 2


def test_cordoned_nodes(cpus):
    for node in cpus.cluster.nodes[1:]:
        cpus.cluster.kubectl("cordon", node)
    judged(cpus, cpus.run(), "no-go", "nodes.cordoned")


def test_a_node_that_is_not_ready(cpus):
    node = cpus.cluster.nodes[0]
    cpus.cluster.stop_program(f"{node}-kubelet", signal.SIGKILL)
    try:
        cpus.cluster.kubectl("wait", "--for=condition=Ready=Unknown", f"node/{node}", KUBECTL_LIMIT)
        judged(cpus, cpus.run("preflight"), "no-go", "nodes.not-ready")
    finally:
        cpus.cluster.start_kubelet(node)
        cpus.cluster.kubectl("wait", "--for=condition=Ready", f"node/{node}", KUBECTL_LIMIT)


def test_a_cluster_without_dns(cpus):
    deployment = ("-n", "kube-system", "deployment/coredns")
    cpus.cluster.kubectl("scale", *deployment, "--replicas=0")
    try:
        judged(cpus, cpus.run(), "no-go", "dns.unresolved")
    finally:
        cpus.cluster.kubectl("scale", *deployment, "--replicas=1")
        cpus.cluster.kubectl("rollout", "status", *deployment, KUBECTL_LIMIT)
