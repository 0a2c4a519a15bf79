"""kubectl's read commands: tables, selectors, formats, descriptions, discovery."""

from __future__ import annotations

import json

import pytest


@pytest.fixture(scope="module", autouse=True)
def job(kubectl):
    """Create a Job of two pods that has completed."""
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "labels": {"app": "t"}},
        "spec": {
            "completions": 2,
            "parallelism": 2,
            "completionMode": "Indexed",
            "template": {
                "metadata": {"labels": {"app": "t"}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {
                            "name": "c",
                            "image": "a",
                            "command": ["sh", "-c", "for i in 1 2 3; do echo $JOB_COMPLETION_INDEX line $i; done"],
                        }
                    ],
                },
            },
        },
    }
    kubectl("apply", "-f", "-", text=json.dumps(manifest))
    kubectl.awaited("condition=complete", "job/train")


def test_tables_have_the_columns_of_a_real_server(kubectl):
    """The server makes the columns; kubectl only aligns them."""
    assert kubectl("get", "nodes").split()[:5] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    wide = kubectl("get", "nodes", "-o", "wide")
    assert "INTERNAL-IP" in wide
    assert "containerd://" in wide
    assert kubectl("get", "jobs").split()[:5] == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert "2/2" in kubectl("get", "job", "train")
    assert kubectl("get", "pods", "-A").splitlines()[0].split() == [
        "NAMESPACE",
        "NAME",
        "READY",
        "STATUS",
        "RESTARTS",
        "AGE",
    ]
    assert "NOMINATED NODE" in kubectl("get", "pods", "-o", "wide")
    assert "app=t" in kubectl("get", "pods", "--show-labels")
    assert "No resources found" in kubectl.run("get", "pvc").err


def test_selectors_choose_on_the_server(kubectl):
    """Label and field selectors are evaluated."""
    assert len(kubectl("get", "pods", "-l", "app=t", "-o", "name").split()) == 2
    assert kubectl("get", "pods", "-l", "app notin (t)", "-o", "name") == ""
    assert len(kubectl("get", "pods", "--field-selector", "status.phase=Succeeded", "-o", "name").split()) == 2
    assert kubectl("get", "pods", "--field-selector", "status.phase=Running", "-o", "name") == ""
    assert "field label not supported" in kubectl.refused("get", "pods", "--field-selector", "a.b=c")
    assert kubectl("get", "nodes", "--field-selector", "metadata.name=gpu-node-1", "-o", "name") == "node/gpu-node-1\n"


def test_every_output_format_works(kubectl):
    """The formats are json, yaml, jsonpath, go-template and custom columns, also sorted or in pages of one item."""
    assert kubectl.run("get", "job", "train", "-o", "json").json["spec"]["completions"] == 2
    assert "kind: Job" in kubectl("get", "job", "train", "-o", "yaml")
    assert kubectl("get", "job", "train", "-o", "jsonpath={.status.succeeded}") == "2"
    assert (
        kubectl(
            "get",
            "nodes",
            "-o",
            "jsonpath={range .items[*]}{.metadata.name}:{.status.allocatable.nvidia\\.com/gpu} {end}",
        )
        == "gpu-node-0:8 gpu-node-1:8 "
    )
    assert kubectl("get", "job", "train", "-o", "go-template={{.spec.parallelism}}") == "2"
    assert kubectl("get", "job", "train", "-o", "custom-columns=N:.metadata.name").split() == ["N", "train"]
    assert "pod/" in kubectl("get", "pods", "-A", "--sort-by=.metadata.name", "--chunk-size=1", "-o", "name")
    assert '"kind":"PodList"' in kubectl("get", "--raw", "/api/v1/pods?limit=1")


def test_a_watch_shows_changes_until_its_time_is_up(kubectl):
    """-w shows changes; with a time-out it ends without an error."""
    watching = kubectl.background("get", "configmaps", "-w", "-v=6")
    assert any("watch=true" in line for line in watching.stderr)  # it logs its requests: the watch has begun
    kubectl("create", "configmap", "watched", "--from-literal=a=b")
    assert any("watched" in line for line in watching.stdout)
    watching.kill()
    watching.communicate()
    assert "watched" in kubectl("get", "configmaps", "-w", "--request-timeout=1s")


def test_describe_shows_what_is_known_and_what_happened(kubectl):
    """Node, job and pod are described with their events."""
    node = kubectl("describe", "node", "gpu-node-0")
    for part in (
        "Roles:",
        "Conditions:",
        "Ready",
        "Capacity:",
        "nvidia.com/gpu:",
        "Non-terminated Pods:",
        "Allocated resources:",
        "Lease:",
    ):
        assert part in node
    shown = kubectl("describe", "job", "train")
    assert "Completed Indexes:  0,1" in shown
    assert "2 Succeeded" in shown
    assert "SuccessfulCreate" in shown
    pod = kubectl("get", "pods", "-l", "app=t", "-o", "name").split()[0]
    shown = kubectl("describe", pod)
    for part in (
        "Controlled By:  Job/train",
        "Exit Code:    0",
        "QoS Class:",
        "Successfully assigned",
        "Container started",
    ):
        assert part in shown
    assert "Labels:" in kubectl("describe", "namespace", "kube-system")


def test_events_are_listed_for_one_object_and_for_all(kubectl):
    """kubectl events, and get events."""
    assert "Job completed" in kubectl("events", "--for", "job/train")
    assert "Scheduled" in kubectl("get", "events", "--sort-by=.lastTimestamp")
    assert "Warning" not in kubectl(
        "get", "events", "--field-selector", "involvedObject.kind=Job,involvedObject.name=train"
    )


def test_logs_can_be_asked_for_in_all_ways(kubectl):
    """Logs of a job, by selector with prefixes, tails, times, and of a container's previous run."""
    assert "line 3" in kubectl("logs", "job/train", "--tail=1")
    prefixed = kubectl("logs", "-l", "app=t", "--prefix", "--tail=-1")
    assert len(prefixed.splitlines()) == 6
    assert all(line.startswith("[pod/train-") for line in prefixed.splitlines())
    assert len(kubectl("logs", "job/train", "--since=1h").splitlines()) == 3
    assert kubectl("logs", "job/train", "--timestamps", "--limit-bytes=4")[:2] == "20"
    pod = kubectl("get", "pods", "-l", "app=t", "-o", "name").split()[0]
    assert 'previous terminated container "c"' in kubectl.refused("logs", pod, "--previous")
    assert 'pods "nope" not found' in kubectl.refused("logs", "nope")


def test_discovery_and_explanations(kubectl):
    """api-resources, api-versions, explain, version, cluster-info."""
    shown = kubectl("api-resources")
    assert "configmaps                          cm           v1" in shown
    assert "jobs.batch" in kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name")
    assert {"v1", "apps/v1", "batch/v1"} <= set(kubectl("api-versions").split())
    shown = kubectl("explain", "job.spec.backoffLimit")
    assert "GROUP:      batch" in shown
    assert "FIELD: backoffLimit <integer>" in shown
    assert "nodeName" in kubectl("explain", "pod.spec", "--recursive")
    assert "doesn't have a resource type" in kubectl.refused("explain", "nosuch")
    assert kubectl.run("version", "-o", "json").json["serverVersion"]["gitVersion"].startswith("v1.36")
    assert "Kubernetes control plane" in kubectl("cluster-info")
    assert kubectl("get", "--raw", "/readyz") == "ok"


def test_rights_are_reported(kubectl, served):
    """auth can-i, --list, whoami; 403 with the server's message."""
    assert kubectl("auth", "can-i", "create", "jobs") == "yes\n"
    assert kubectl.run("auth", "can-i", "create", "jobs", "--as=carol").out == "no\n"
    assert "*.*" in kubectl("auth", "can-i", "--list")
    assert "kubernetes-admin" in kubectl("auth", "whoami")
    refused = kubectl.refused("get", "pods", "--kubeconfig", str(served / "nobody"))
    assert 'User "user-without-rights" cannot list resource "pods" in API group "" in the namespace' in refused


def test_metrics_are_absent_in_kubectls_own_words(kubectl):
    """There is no metrics server, as on a bare cluster."""
    assert "Metrics API not available" in kubectl.refused("top", "nodes")
    assert "Metrics API not available" in kubectl.refused("top", "pods")
