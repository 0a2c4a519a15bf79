"""Situations of trials on real clusters: each has its verdict, its fault and its subject, without leftovers."""

from __future__ import annotations

import json
import signal

import pytest
import yaml

from tests.waiting import KUBECTL_LIMIT, until

needs_pods = pytest.mark.usefixtures("pods")


def judged(bench, outcome, verdict, *faults):
    """Assert the verdict, exactly these faults, no leftovers, no refused request."""
    assert (outcome.verdict, outcome.faults) == (verdict, set(faults)), outcome.text
    assert bench.left() == []
    assert bench.refused() == []


def interrupted(bench, how):
    """Start a trial whose collective does not end, disturb it, let the next attempt be healthy; return the outcome."""
    bench.cluster.behave(hang=True)
    run = bench.start()
    pods = bench.running()
    bench.cluster.behave()
    how(pods)
    return run.end()


def test_cordoned_nodes(bench):
    for node in bench.cluster.nodes[1:]:
        bench.cluster.kubectl("cordon", node)
    judged(bench, bench.run(), "no-go", "nodes.cordoned")


@needs_pods
def test_a_cordoned_spare_node_is_nothing(bench):
    bench.cluster.kubectl("cordon", bench.cluster.nodes[-1])
    judged(bench, bench.run(), "go")


def test_tainted_nodes(bench):
    for node in bench.cluster.nodes[1:]:
        bench.cluster.kubectl("taint", "node", node, "maintenance=yes:NoSchedule")
    judged(bench, bench.run(), "no-go", "nodes.tainted")


def test_a_quota_without_room(bench):
    quota = {
        "kind": "ResourceQuota",
        "apiVersion": "v1",
        "metadata": {"name": "team"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "8"}},
    }
    bench.kubectl("apply", "-f", "-", given=yaml.safe_dump(quota))
    judged(bench, bench.run(), "no-go", "quota.exceeded")


def test_a_limit_range(bench):
    limits = [{"type": "Container", "max": {"memory": "64Mi"}}]
    kind = {"kind": "LimitRange", "apiVersion": "v1", "metadata": {"name": "small"}, "spec": {"limits": limits}}
    bench.kubectl("apply", "-f", "-", given=yaml.safe_dump(kind))
    judged(bench, bench.run(), "no-go", "limitrange.denied")


def test_pod_security_restricted(bench):
    bench.cluster.kubectl("label", "namespace", bench.namespace, "pod-security.kubernetes.io/enforce=restricted")
    judged(bench, bench.run(), "no-go", "pod-security.denied")


def webhook(bench, url):
    """Create a webhook for every pod of the namespace."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
        "scope": "Namespaced",
    }
    hook = {
        "name": "gate.example.com",
        "clientConfig": {"url": url},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 2,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": bench.namespace}},
    }
    kind = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": bench.namespace},
        "webhooks": [hook],
    }
    bench.cluster.kubectl("apply", "-f", "-", given=yaml.safe_dump(kind))


@pytest.fixture
def webhooks(bench, request):
    yield bench
    bench.cluster.kubectl("delete", "validatingwebhookconfiguration", bench.namespace, "--ignore-not-found")


def test_a_webhook_that_does_not_answer(webhooks):
    webhook(webhooks, "https://127.0.0.1:9/")
    judged(webhooks, webhooks.run(), "no-go", "admission.webhook-down")


def test_an_admission_policy_denies(bench):
    name = bench.namespace
    pods = {
        "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    }
    deny = [
        {"expression": "has(object.metadata.labels) && 'team' in object.metadata.labels", "message": "pods need a team"}
    ]
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {"matchConstraints": pods, "validations": deny},
    }
    scope = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": scope},
    }
    bench.cluster.kubectl("apply", "-f", "-", given=yaml.safe_dump_all([policy, binding]))
    try:
        judged(bench, bench.run(), "no-go", "admission.denied")
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            bench.cluster.kubectl("delete", kind, name, "--ignore-not-found")


@needs_pods
def test_an_image_that_is_missing(bench):
    judged(bench, bench.run("accept", "--image", "127.0.0.1:9/none:1"), "no-go", "image.pull")


@needs_pods
def test_a_deleted_pod_is_tried_again(bench):
    outcome = interrupted(
        bench, lambda pods: bench.kubectl("delete", "pod", pods[0]["metadata"]["name"], "--wait=false")
    )
    judged(bench, outcome, "go")


@needs_pods
def test_an_evicted_pod_is_tried_again(bench):
    def evict(pods):
        name = pods[0]["metadata"]["name"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": bench.namespace}}
        bench.cluster.kubectl(
            "create",
            "--raw",
            f"/api/v1/namespaces/{bench.namespace}/pods/{name}/eviction",
            "-f",
            "-",
            given=json.dumps(body),
        )

    judged(bench, interrupted(bench, evict), "go")


@needs_pods
def test_a_drain_with_nodes_to_spare_is_go(bench):
    outcome = interrupted(bench, lambda pods: drain(bench, pods[0]["spec"]["nodeName"]))
    judged(bench, outcome, "go")


@needs_pods
def test_a_drain_without_nodes_to_spare_is_inconclusive(bench):
    for node in bench.cluster.nodes[2:]:
        bench.cluster.kubectl("cordon", node)
    outcome = interrupted(bench, lambda pods: drain(bench, pods[0]["spec"]["nodeName"]))
    judged(bench, outcome, "inconclusive", "job.disrupted")
    assert "cordoned" in outcome.text


def drain(bench, node):
    bench.cluster.kubectl(
        "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", KUBECTL_LIMIT, check=False
    )


@needs_pods
def test_a_namespace_deleted_in_the_middle(bench):
    bench.cluster.behave(hang=True)  # to the end: until the namespace's controller deletes the pods
    run = bench.start()
    bench.running()
    bench.cluster.kubectl("delete", "namespace", bench.namespace, "--wait=false")
    outcome = run.end()
    assert (outcome.verdict, outcome.faults) == ("inconclusive", {"job.disrupted"}), outcome.text
    assert "rank 0, rank 1" not in outcome.text


@needs_pods
def test_a_job_scaled_to_zero_is_tried_again(bench):
    def scale(pods):
        job = pods[0]["metadata"]["labels"]["batch.kubernetes.io/job-name"]
        bench.kubectl("patch", "job", job, "--type=merge", "-p", '{"spec": {"parallelism": 0}}')

    outcome = interrupted(bench, scale)
    judged(bench, outcome, "go")
    assert "parallelism from 2 to 0" in outcome.text


@needs_pods
def test_the_api_server_restarts_in_the_middle(bench):
    run = bench.start()
    bench.running()
    bench.cluster.stop_program("kube-apiserver", signal.SIGKILL)
    bench.cluster.start_api_server()
    outcome = run.end()  # for a second after its start an API server refuses roles that its watch has not read yet
    assert (outcome.verdict, outcome.faults) == ("go", set()), outcome.text
    assert bench.left() == []


@needs_pods
def test_a_kubelet_restarts_in_the_middle(bench):
    run = bench.start()
    node = bench.running()[0]["spec"]["nodeName"]
    bench.cluster.stop_program(f"{node}-kubelet", signal.SIGKILL)
    bench.cluster.start_kubelet(node)
    judged(bench, run.end(), "go")


@needs_pods
def test_a_node_that_stops_in_the_middle(bench):
    bench.cluster.behave(hang=True)
    run = bench.start()
    node = bench.running()[0]["spec"]["nodeName"]
    bench.cluster.stop_program(f"{node}-kubelet", signal.SIGKILL)
    outcome = run.end()
    assert outcome.verdict == "no-go", outcome.text
    assert outcome.faults == {"node.lost"}, outcome.text
    assert node in json.dumps(outcome.record["checks"])


@needs_pods
@pytest.mark.parametrize("command", ["accept", "sweep"])
def test_gpus_that_turn_unhealthy_in_the_middle(bench, command):
    """Pods with unhealthy GPUs continue, and the trial completes on nodes that the next job does not fit."""
    run = bench.start(command)
    node = bench.running()[0]["spec"]["nodeName"]
    run.process.send_signal(signal.SIGSTOP)  # the trial continues; the judging process sees the node's current state
    bench.cluster.make_unhealthy(node, "gpu-1", "gpu-2")
    run.process.send_signal(signal.SIGCONT)
    outcome = run.end()
    judged(bench, outcome, "no-go", "gpu.missing")
    found = [each for check in outcome.record["checks"] for each in check["findings"] if each["fault"]]
    assert [(each["subject"], each["observed"]) for each in found] == [
        (node, "6 nvidia.com/gpu allocatable after the trial")
    ]


@needs_pods
def test_a_service_deleted_in_the_middle(bench):
    run = bench.start()
    until(lambda: bench.kubectl("get", "services", "-o", "name"), "the Service is there")
    bench.kubectl("delete", "services", "-l", "app.kubernetes.io/managed-by=seatrial")
    outcome = run.end()
    assert outcome.verdict != "no-go" or "dns.unresolved" in outcome.faults, outcome.text


@needs_pods
@pytest.mark.parametrize("requests", [1, 10, 20, 30, 40, 50, 60, 70, 80, 90])
def test_a_killed_runner_leaves_what_cleanup_removes(bench, requests):
    """The runner is killed once the API server has answered this many of its requests."""
    bench.cluster.behave(hang=True)
    run = bench.start()
    until(lambda: len(bench.asked()) >= requests or len(bench.pods("Running")) == 2, f"{requests} requests")
    run.process.kill()
    run.process.wait()
    bench.cluster.behave()
    cleaned = bench.command(["cleanup", "--kubeconfig", str(bench.kubeconfig), "--namespace", bench.namespace, "--all"])
    assert cleaned.returncode == 0, cleaned.stdout + cleaned.stderr
    until(lambda: not bench.left(), "nothing is left")
    assert bench.refused() == []


@needs_pods
def test_the_next_run_goes_on_after_a_kill(bench):
    bench.cluster.behave(hang=True)
    run = bench.start()
    bench.running()
    run.process.kill()
    run.process.wait()
    bench.cluster.behave()
    outcome = bench.run()
    assert outcome.verdict in {"go", "inconclusive"}, outcome.text


@needs_pods
def test_two_runs_at_once(bench):
    bench.cluster.behave(hang=True)
    first = bench.start()
    bench.running()
    bench.cluster.behave()
    second = bench.run()
    assert second.verdict in {"go", "inconclusive"}, second.text
    assert second.record["failure_class"] != "infrastructure"
    first.process.send_signal(signal.SIGINT)
    first.end()
    assert bench.left() == []


@needs_pods
def test_the_rights_of_a_tenant_are_enough(bench):
    bench.profile.pop("capabilities", None)
    outcome = bench.run("accept", "--tenant", rights=("--tenant",))
    assert outcome.verdict == "go", outcome.text
    assert bench.refused() == []


@needs_pods
def test_a_sweep_of_four_nodes(bench):
    outcome = bench.run("sweep")
    assert outcome.verdict == "go", outcome.text
    assert outcome.record["sweep"]["proven"]
    assert bench.left() == []
    assert bench.refused() == []


@needs_pods
def test_detached_and_attached(bench):
    outcome = bench.run("accept", "--detach")
    assert outcome.code == 10, outcome.text
    assert "ERROR" not in outcome.text
    assert "seatrial job attach" in outcome.text
    job = bench.kubectl("get", "jobs", "-o", "name").split("/")[-1].strip()
    whose = ["--kubeconfig", str(bench.kubeconfig), "-n", bench.namespace, "--profile", str(bench.profile_file())]
    attached = bench.command(["job", "attach", job, *whose, "--out", str(bench.folder / "attached")])
    assert attached.returncode == 0, attached.stdout + attached.stderr
    assert bench.left() == []


@needs_pods
@pytest.mark.parametrize(("policy", "verdict"), [("none", "go"), ("single-numa-node", "no-go")])
def test_a_kubelet_tells_its_topology_policy_to_who_may_ask(bench, policy, verdict):
    """Without NodeResourceTopology and permission it is unknown; with permission the kubelet reports it."""
    bench.profile["topology"] = {"policy": policy, "scope": "container", "gpu_nic_max": None}
    asked = ("preflight", "--check", "topology.policy")
    outcome = bench.run(*asked)
    judged(bench, outcome, "inconclusive")
    assert "this account has no permission for kubelets' API (get nodes/proxy)" in " ".join(outcome.text.split())
    name = f"seatrial:{bench.namespace}:kubelets"
    bench.cluster.kubectl("create", "clusterrole", name, "--verb=get", "--resource=nodes/proxy")
    account = f"--serviceaccount={bench.namespace}:seatrial"
    bench.cluster.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", account)
    try:
        judged(bench, bench.run(*asked), verdict, *(["topology.policy-differs"] if verdict == "no-go" else []))
    finally:
        bench.cluster.kubectl("delete", "clusterrole,clusterrolebinding", name)
