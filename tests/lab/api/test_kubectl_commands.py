"""The unmodified kubectl and Python client with this server: users' commands must work."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.waiting import HANG_S

MANIFEST = """
apiVersion: batch/v1
kind: Job
metadata: {name: applied}
spec:
  suspend: true
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: a}]}}
"""


@pytest.fixture
def kubectl(cluster, kubeconfig, space, tmp_path):
    """Run kubectl in the test's namespace; return its output."""
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not installed here")

    def run(*arguments: str, code: int = 0, text: str | None = None) -> str:
        command = [program, "--kubeconfig", kubeconfig, "--cache-dir", str(tmp_path / "cache"), "-n", space, *arguments]
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
            env={**os.environ, "HOME": str(tmp_path)},
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return run


def test_nodes_are_shown_as_a_table(kubectl):
    """The columns come from the server's Table."""
    shown = kubectl("get", "nodes", "-o", "wide")
    assert shown.splitlines()[0].split()[:5] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert "gpu-node-1   Ready    <none>" in shown


def test_a_manifest_is_applied_and_recognised_as_unchanged(kubectl):
    """apply reads the OpenAPI document, creates, and patches nothing the second time."""
    assert "job.batch/applied created" in kubectl("apply", "-f", "-", text=MANIFEST)
    assert "job.batch/applied unchanged" in kubectl("apply", "-f", "-", text=MANIFEST)
    assert "serverside-applied" in kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=MANIFEST)
    assert "Suspended" in kubectl("get", "jobs")
    assert "Parallelism:      1" in kubectl("describe", "job", "applied")
    assert "deleted" in kubectl("delete", "-f", "-", text=MANIFEST)


def test_typed_commands_use_protobuf(kubectl):
    """`create job`, `create token`, `auth can-i` send protobuf instead of JSON."""
    assert "created" in kubectl("create", "job", "typed", "--image=a:1", "--", "sleep", "5")
    shown = kubectl("get", "job", "typed", "-o", "jsonpath={.spec.template.spec.containers[0].command[1]}")
    assert shown == "5"
    assert "created" in kubectl("create", "quota", "q", "--hard=requests.nvidia.com/gpu=4")
    assert kubectl("create", "token", "default").count(".") == 2
    assert kubectl("auth", "can-i", "create", "jobs").strip() == "yes"
    assert kubectl("auth", "can-i", "create", "jobs", "--as=carol", code=1).strip() == "no"
    assert "*.*" in kubectl("auth", "can-i", "--list")


def test_objects_are_changed_in_all_the_usual_ways(kubectl):
    """kubectl's label, annotate, patch, scale, taint and cordon work."""
    kubectl("create", "configmap", "c", "--from-literal=k=v")
    assert "labeled" in kubectl("label", "configmap", "c", "a=b")
    assert "annotated" in kubectl("annotate", "configmap", "c", "a=b")
    assert "patched" in kubectl("patch", "configmap", "c", "-p", '{"data":{"k":"w"}}')
    kubectl("create", "deployment", "d", "--image=a:1", "--replicas=0")
    assert "scaled" in kubectl("scale", "deployment", "d", "--replicas=1")
    assert "cordoned" in kubectl("cordon", "gpu-node-0")
    assert "Ready,SchedulingDisabled" in kubectl("get", "node", "gpu-node-0")
    kubectl("uncordon", "gpu-node-0")
    kubectl("taint", "node", "gpu-node-0", "a=b:NoSchedule")
    assert "a=b:NoSchedule" in kubectl("describe", "node", "gpu-node-0")
    kubectl("taint", "node", "gpu-node-0", "a-")


def test_kubectl_explains_kinds_and_lists_resources(kubectl):
    """The data comes from the OpenAPI v3 documents and aggregated discovery."""
    assert "FIELD: backoffLimit <integer>" in kubectl("explain", "job.spec.backoffLimit")
    assert "jobs" in kubectl("api-resources", "--api-group=batch")


def test_a_log_is_followed(kubectl, cluster, space):
    """kubectl logs selects a container and streams its log."""
    spec = {"nodeName": "gpu-node-0", "containers": [{"name": "a", "image": "i"}]}
    cluster("POST", f"/api/v1/namespaces/{space}/pods", {"metadata": {"name": "p"}, "spec": spec})
    assert kubectl("logs", "-f", "p").splitlines() == ["a line 0", "a line 1", "a line 2"]


def test_without_rights_kubectl_says_who_may_not_what(kubectl, cluster):
    """The API server's sentence is printed."""
    refused = kubectl("get", "pods", "--as=carol", code=1)
    assert 'User "carol" cannot list resource "pods"' in refused


def test_the_python_client_lists_creates_and_watches(cluster, kubeconfig, space):
    """The suite uses the Python client."""
    from kubernetes import client, config, watch

    api = config.new_client_from_config(kubeconfig)
    core = client.CoreV1Api(api)
    assert {node.metadata.name for node in core.list_node().items} == {"gpu-node-0", "gpu-node-1"}
    core.create_namespaced_config_map(space, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    events = watch.Watch().stream(core.list_namespaced_config_map, space, timeout_seconds=1)
    assert "a" in {event["object"].metadata.name for event in events}
    with pytest.raises(client.ApiException) as caught:
        core.read_namespaced_pod("missing", space)
    assert caught.value.status == 404
    api.close()
