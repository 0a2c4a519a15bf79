"""kubectl's write commands: apply, create, patch, label, scale, rollout, wait, delete, and nodes."""

from __future__ import annotations

from tests.waiting import HANG_S, KUBECTL_LIMIT

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: applied}
spec:
  suspend: true
  template: {spec: {restartPolicy: Never, terminationGracePeriodSeconds: 0, containers: [{name: c, image: a:1, command: [sleep, "1000"]}]}}
"""
CRON = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 0 1 1 *"
  jobTemplate:
    spec:
      completions: 2
      completionMode: Indexed
      backoffLimitPerIndex: 1
      podFailurePolicy: {rules: [{action: FailIndex, onExitCodes: {operator: In, values: [42]}}]}
      template:
        spec:
          terminationGracePeriodSeconds: 0
          restartPolicy: Never
          affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {matchLabels: {b: c}}}]}}
          volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 1Gi}}, {name: cm, configMap: {name: x, optional: true}}]
          containers:
          - name: c
            image: a:1
            command: [sleep, "1000"]
            env: [{name: A, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
            readinessProbe: {exec: {command: [ls]}, periodSeconds: 3}
            securityContext: {capabilities: {add: [IPC_LOCK]}}
            volumeMounts: [{name: shm, mountPath: /dev/shm}]
            resources: {limits: {nvidia.com/gpu: 1}}
"""


def test_apply_creates_recognises_changes_and_explains_mistakes(kubectl):
    """kubectl applies client-side and server-side, and prints validation messages."""
    assert kubectl("apply", "-f", "-", text=JOB) == "job.batch/applied created\n"
    assert kubectl("apply", "-f", "-", text=JOB) == "job.batch/applied unchanged\n"
    assert (
        kubectl("apply", "-f", "-", text=JOB.replace("suspend: true", "suspend: false"))
        == "job.batch/applied configured\n"
    )
    assert "serverside-applied" in kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=JOB)
    assert "conflict" in kubectl.refused(
        "apply",
        "--server-side",
        "--field-manager=other",
        "-f",
        "-",
        text=JOB.replace("suspend: true", "suspend: false"),
    )
    kubectl.awaited("condition=Suspended", "job/applied")
    assert "created (server dry run)" in kubectl(
        "apply", "--dry-run=server", "-f", "-", text=JOB.replace("applied", "dry")
    )
    refused = kubectl.refused("apply", "-f", "-", text=JOB.replace("applied", "bad").replace("Never", "Always"))
    assert (
        'The Job "bad" is invalid: spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
        in refused
    )
    refused = kubectl.refused("apply", "-f", "-", text=JOB.replace("containers", "containerz"))
    assert 'unknown field "spec.template.spec.containerz"' in refused
    assert "field is immutable" in kubectl.refused("apply", "-f", "-", text=JOB.replace("a:1", "a:2"))
    assert "batch" in kubectl("delete", "-f", "-", text=JOB)


def test_create_uses_protobuf_for_whole_pod_templates(kubectl):
    """create job, and a job from a CronJob: the template is complete."""
    kubectl("create", "job", "typed", "--image=a:1", "--", "sleep", "5")
    assert (
        kubectl("get", "job", "typed", "-o", "jsonpath={.spec.template.spec.containers[0].command}") == '["sleep","5"]'
    )
    kubectl("apply", "-f", "-", text=CRON)
    kubectl("create", "job", "once", "--from=cronjob/nightly")
    expected = kubectl.run("get", "cronjob", "nightly", "-o", "json").json["spec"]["jobTemplate"]["spec"]
    created = kubectl.run("get", "job", "once", "-o", "json").json["spec"]
    assert created["template"]["spec"] == expected["template"]["spec"]
    assert created["podFailurePolicy"] == expected["podFailurePolicy"]
    kubectl("delete", "cronjob/nightly", "job/typed", "--wait=false")


def test_other_creates(kubectl):
    """The kinds for which kubectl has a sub-command."""
    for arguments in (
        "configmap c --from-literal=a=b",
        "secret generic s --from-literal=a=b",
        "serviceaccount sa",
        "role r --verb=get --resource=pods",
        "rolebinding rb --role=r --user=u",
        "quota q --hard=pods=50",
        "poddisruptionbudget p --selector=a=never --min-available=1",
        "service clusterip cs --tcp=80",
        "ingress i --rule=a.b/c*=svc:80",
        "deployment empty --image=a --replicas=0",
    ):
        assert "created" in kubectl("create", *arguments.split())
    assert "exposed" in kubectl("expose", "deployment", "empty", "--port=80")
    assert "autoscaled" in kubectl("autoscale", "deployment", "empty", "--min=1", "--max=3")
    assert kubectl("create", "token", "sa").count(".") == 2


def test_patch_label_and_annotate(kubectl):
    """All three kinds of patch are applied; an existing label is changed only with --overwrite."""
    kubectl("create", "configmap", "p", "--from-literal=k=v")
    assert "patched" in kubectl("patch", "configmap", "p", "-p", '{"data":{"k":"w"}}')
    assert "patched" in kubectl("patch", "configmap", "p", "--type=merge", "-p", '{"data":{"l":"m"}}')
    assert "patched" in kubectl("patch", "configmap", "p", "--type=json", "-p", '[{"op":"remove","path":"/data/k"}]')
    assert kubectl.run("get", "configmap", "p", "-o", "json").json["data"] == {"l": "m"}
    assert "labeled" in kubectl("label", "configmap", "p", "a=b")
    assert "already has a value" in kubectl.refused("label", "configmap", "p", "a=c")
    assert "labeled" in kubectl("label", "configmap", "p", "a=c", "--overwrite")
    assert "unlabeled" in kubectl("label", "configmap", "p", "a-")
    assert "annotated" in kubectl("annotate", "configmap", "p", "n=o")


def test_a_deployment_is_scaled_rolled_out_and_back(kubectl):
    """kubectl scale, set image, rollout status, history, undo and restart work."""
    kubectl("create", "deployment", "web", "--image=a:1", "--replicas=3")
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/web", KUBECTL_LIMIT)
    assert "scaled" in kubectl("scale", "deployment/web", "--replicas=2")
    kubectl.eventually("2/2 +2 +2", "get", "deployment", "web")
    kubectl("set", "image", "deployment/web", "a=a:2")
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/web", KUBECTL_LIMIT)
    assert "a:2" in kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.containers[0].image}")
    assert "2         <none>" in kubectl("rollout", "history", "deployment/web")
    assert "rolled back" in kubectl("rollout", "undo", "deployment/web")
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/web", KUBECTL_LIMIT)
    shown = kubectl("describe", "deployment", "web")
    assert "Available      True    MinimumReplicasAvailable" in shown
    assert "ScalingReplicaSet" in shown
    kubectl("delete", "deployment", "web")
    kubectl.eventually("^$", "get", "replicasets", "-l", "app=web", "-o", "name")


def test_wait_for_conditions_values_and_deletion(kubectl):
    """kubectl's message after a time-out is checked, too."""
    kubectl("run", "w", "--image=a", "--restart=Never", "--", "sleep", "1000")
    assert "condition met" in kubectl.awaited("condition=Ready", "pod/w")
    assert "condition met" in kubectl.awaited("jsonpath={.status.phase}=Running", "pod/w")
    assert "timed out waiting" in kubectl.refused("wait", "--for=condition=Nope", "pod/w", "--timeout=1s")
    waiting = kubectl.background("wait", "--for=delete", "pod/w", KUBECTL_LIMIT, "-v=6")
    assert any("watch=true" in line for line in waiting.stderr)  # it logs its requests: the watch has begun
    assert "force deleted" in kubectl("delete", "pod", "w", "--grace-period=0", "--force")
    waiting.communicate(timeout=HANG_S)
    assert waiting.returncode == 0


def test_deletion_follows_its_policy(kubectl):
    """Orphans remain, foreground waits for the pods, a selector deletes many."""
    kubectl("create", "job", "o", "--image=a", "--", "sleep", "100")
    kubectl.eventually("Running", "get", "pods", "-l", "job-name=o")
    kubectl("delete", "job", "o", "--cascade=orphan")
    assert "pod/" in kubectl("get", "pods", "-l", "job-name=o", "-o", "name")
    kubectl("delete", "pods", "-l", "job-name=o", "--grace-period=0", "--force")
    assert kubectl("get", "pods", "-l", "job-name=o", "-o", "name") == ""
    kubectl("create", "job", "f", "--image=a", "--", "sh", "-c", "trap 'exit 0' TERM; sleep 100 & wait")
    kubectl.eventually("Running", "get", "pods", "-l", "job-name=f")
    kubectl("delete", "job", "f", "--cascade=foreground")
    assert kubectl("get", "pods", "-l", "job-name=f", "-o", "name") == ""


def test_nodes_are_cordoned_drained_and_tainted(kubectl):
    """drain evicts through the eviction API and skips DaemonSets."""
    kubectl("cordon", "gpu-node-0")
    try:
        assert "Ready,SchedulingDisabled" in kubectl("get", "node", "gpu-node-0")
        kubectl("run", "d", "--image=a", "--restart=Never", "--", "sh", "-c", "trap 'exit 0' TERM; sleep 1000 & wait")
        kubectl.awaited("condition=Ready", "pod/d")
        assert kubectl("get", "pod", "d", "-o", "jsonpath={.spec.nodeName}") == "gpu-node-1"
        shown = kubectl("drain", "gpu-node-1", "--ignore-daemonsets", "--force", "--pod-selector=run=d", KUBECTL_LIMIT)
        assert "evicted" in shown
        kubectl("taint", "node", "gpu-node-1", "k=v:NoSchedule")
        assert "k=v:NoSchedule" in kubectl("describe", "node", "gpu-node-1")
        assert "untainted" in kubectl("taint", "node", "gpu-node-1", "k-")
    finally:
        kubectl("uncordon", "gpu-node-0")
        kubectl("uncordon", "gpu-node-1")
