"""The diagnosis beyond the recordings: texts and reasons of Kubernetes' own sources, several failing pods."""

import pytest

from jobs.diagnosis.verdict import diagnose
from seatrial.faults.advice import FAULTS
from tests.jobs.objects import RUNS, ended, event, failed, job, node, pod, waits
from tests.table import table

LAB = "the embedded cluster could not set up this pod on this machine: "


@table(
    "code, reason, message, fault, blame",
    [
        (1, "Error", "", "job.failed", "ERR_PROGRAM"),
        (126, "Error", "", "job.failed", "ERR_PROGRAM"),
        (127, "Error", "", "job.failed", "ERR_PROGRAM"),
        (134, "Error", "", "job.failed", "ERR_PROGRAM"),
        (135, "Error", "", "job.failed", "ERR_PROGRAM"),
        (137, "Error", "", "job.failed", "ERR_INFRA"),
        (137, "OOMKilled", "", "container.oom", "ERR_INFRA"),
        (1, "OOMKilled", "", "container.oom", "ERR_INFRA"),
        (139, "Error", "", "job.failed", "ERR_PROGRAM"),
        (143, "Error", "", "job.failed", "ERR_PROGRAM"),
        (
            128,
            "StartError",
            'exec: "python3": executable file not found in $PATH: unknown',
            "image.no-python",
            "ERR_PROGRAM",
        ),
        (
            127,
            "ContainerCannotRun",
            'OCI runtime create failed: exec: "/usr/bin/python3": stat /usr/bin/python3: no such file or directory',
            "image.no-python",
            "ERR_PROGRAM",
        ),
        (
            128,
            "StartError",
            "executable file `python3` not found in $PATH: No such file or directory: OCI runtime attempted to invoke a command "
            "that was not found",
            "image.no-python",
            "ERR_PROGRAM",
        ),
        (
            128,
            "StartError",
            "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
            "container.start",
            "ERR_INFRA",
        ),
        (
            128,
            "StartError",
            "failed to inject CDI devices: unresolvable CDI devices nvidia.com/gpu=0",
            "container.start",
            "ERR_INFRA",
        ),
        (128, "StartError", "exec /usr/bin/python3: exec format error", "container.start", "ERR_PROGRAM"),
        (
            128,
            "StartError",
            "container init was OOM-killed (memory limit too low?): unknown",
            "container.oom",
            "ERR_INFRA",
        ),
        (128, "StartError", 'error mounting "/dev/infiniband": not a directory', "container.start", "ERR_INFRA"),
        (128, "StartError", f"{LAB}mounts: [Errno 13] Permission denied: '/usr/sbin/sshd'", "lab.machine", None),
        (128, "StartError", f"{LAB}limits: nvidia-container-cli", "lab.machine", None),
        (
            137,
            "ContainerStatusUnknown",
            "The container could not be located when the pod was terminated",
            "job.failed",
            "ERR_INFRA",
        ),
    ],
)
def test_how_a_container_ended_says_whose_fault_it_is(code, reason, message, fault, blame):
    """Exit codes and start errors of runc, crun and the NVIDIA hooks."""
    pods = [pod(0, "Failed", main=ended(code, reason, message)), pod(1, main=RUNS, node="n1")]
    state, replicas, analysis = diagnose(job(conditions=failed()), pods, [])
    assert state == "Error"
    assert (analysis.fault, analysis.err_class) == (fault, blame)
    assert replicas[0].exit_code == code
    assert replicas[0].fault == fault
    assert replicas[1].fault is None


@pytest.mark.parametrize(
    ("reason", "message", "fault", "grace_at_most"),
    [
        ("InvalidImageName", 'Failed to apply default image tag "A:b:c": couldn\'t parse image name', "image.pull", 0),
        ("ErrImageNeverPull", "Container image is not present with pull policy of Never", "image.pull", 0),
        ("ImagePullBackOff", "... manifest unknown: not found", "image.pull", 20),
        ("ErrImagePull", "dial tcp 10.0.0.1:443: i/o timeout", "image.pull", 60),
        ("CreateContainerConfigError", "container has runAsNonRoot and image will run as root", "container.config", 30),
        ("CreateContainerConfigError", "couldn't find key token in Secret ns/s", "container.config", 30),
        ("CreateContainerError", "failed to generate container: no command specified", "image.no-python", 30),
        ("RunContainerError", "failed to start: nvidia-container-cli: detection error", "container.start", 30),
    ],
)
def test_a_container_that_cannot_start_is_not_waited_for(reason, message, fault, grace_at_most):
    """Waiting is pointless after a short grace period; it is longer if a registry may recover."""
    pods = [pod(0, "Pending", main=waits(reason, message)), pod(1, main=RUNS)]
    _, replicas, analysis = diagnose(job(active=2), pods, [])
    assert analysis.fault == fault
    assert analysis.hopeless and analysis.grace_s <= grace_at_most
    assert replicas[0].readiness_issue.reason == reason


@table(
    "message, fault, subject",
    [
        (
            'pods "t-1-x" is forbidden: exceeded quota: team-a, requested: requests.nvidia.com/gpu=8, used: 8, limited: 8',
            "quota.exceeded",
            "resourcequota/team-a",
        ),
        (
            'pods "t-1-x" is forbidden: failed quota: team-a: must specify limits.cpu for: trial; limits.memory for: trial',
            "quota.exceeded",
            "resourcequota/team-a",
        ),
        (
            'pods "t-1-x" is forbidden: maximum cpu usage per Container is 4, but limit is 8',
            "limitrange.denied",
            "limitrange",
        ),
        (
            'pods "t-1-x" is forbidden: [minimum memory usage per Pod is 1Gi, but request is 512Mi]',
            "limitrange.denied",
            "limitrange",
        ),
        (
            'Pod "t-1-x" is invalid: spec.containers[0].resources.requests: Invalid value: "32Gi": must be less than or equal to memory limit of 1Gi',
            "limitrange.denied",
            "limitrange",
        ),
        (
            'pods "t-1-x" is forbidden: violates PodSecurity "baseline:v1.30": host namespaces (hostNetwork=true)',
            "pod-security.denied",
            "podsecurity/baseline:v1.30",
        ),
        (
            'admission webhook "validate.kyverno.svc-fail" denied the request: resource Pod was blocked',
            "admission.denied",
            "webhook/validate.kyverno.svc-fail",
        ),
        (
            'Internal error occurred: failed calling webhook "w.example.com": failed to call webhook: Post "https://x": dial tcp: connection refused',
            "admission.webhook-down",
            "webhook/w.example.com",
        ),
        (
            "pods \"t-1-x\" is forbidden: ValidatingAdmissionPolicy 'no-latest' with binding 'b' denied request: no",
            "admission.denied",
            "policy/no-latest",
        ),
        (
            'pods "t-1-x" is forbidden: error looking up service account ns/robot: serviceaccount "robot" not found',
            "serviceaccount.missing",
            "serviceaccount/robot",
        ),
        (
            'pods "t-1-x" is forbidden: no PriorityClass with name low was found',
            "priorityclass.missing",
            "priorityclass/low",
        ),
        (
            'pods "t-" is forbidden: pod rejected: RuntimeClass "nvidia" not found',
            "runtimeclass.missing",
            "runtimeclass/nvidia",
        ),
        (
            'pods "t-1-x" is forbidden: User "system:serviceaccount:kube-system:job-controller" cannot create resource "pods" in API group "" in the '
            'namespace "ns"',
            "rights.missing",
            "create pods in ns",
        ),
        ("Internal error occurred: etcdserver: request timed out", "job.start-timeout", "pod"),
    ],
)
def test_what_refuses_the_pods_is_named(message, fault, subject):
    """FailedCreate events carry the admission chain's text; the rank without a pod gets the issue."""
    events = [
        event("Job", "t", "SuccessfulCreate", "Created pod: t-0-abcde", warning=False, at="2026-01-01T00:00:05Z"),
        event("Job", "t", "FailedCreate", f"Error creating: {message}", count=3, firstTimestamp="2026-01-01T00:00:13Z"),
    ]
    state, replicas, analysis = diagnose(job(active=1), [pod(0, main=RUNS)], events)
    assert state == "Running"
    assert (analysis.fault, analysis.subject) == (fault, subject)
    assert replicas[1].fault == fault and replicas[1].pod == ""
    assert analysis.hopeless == (fault != "job.start-timeout")


def test_an_early_refusal_is_forgotten_once_all_pods_exist():
    """The controller retried successfully: an old event is not a fault."""
    events = [event("Job", "t", "FailedCreate", "Error creating: exceeded quota: q, ...", at="2026-01-01T00:00:01Z")]
    _, replicas, analysis = diagnose(job(active=2), [pod(0, main=RUNS), pod(1, main=RUNS)], events)
    assert analysis is None
    assert not any(r.fault for r in replicas)


def test_the_kubelets_own_refusals_are_the_clusters_fault():
    """UnexpectedAdmissionError, OutOf...: the scheduler had assigned the devices."""
    for reason, message in (
        (
            "UnexpectedAdmissionError",
            "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 8, Available: 6",
        ),
        ("OutOfnvidia.com/gpu", "Node didn't have enough resource: nvidia.com/gpu, requested: 8, used: 8, capacity: 8"),
    ):
        _, replicas, analysis = diagnose(
            job(conditions=failed()), [pod(0, "Failed", reason=reason, message=message)], []
        )
        assert (analysis.fault, analysis.err_class) == ("container.start", "ERR_INFRA")
        assert replicas[0].readiness_issue.reason == reason


def test_devices_that_cannot_be_aligned_have_a_fault_of_their_own():
    """TopologyAffinityError: the pod was bound, but the kubelet's topology policy refused it."""
    refused = pod(
        0, "Failed", reason="TopologyAffinityError", message="Resources cannot be allocated with Topology locality"
    )
    _, _, analysis = diagnose(job(conditions=failed()), [refused], [])
    assert (analysis.fault, analysis.err_class) == ("topology.affinity", "ERR_INFRA")
    assert "NUMA node" in FAULTS[analysis.fault].remedy


def test_eviction_for_the_pods_own_limit_is_the_programs_fault():
    """The kubelet reports Evicted for both: node pressure, and a pod that exceeded its own limit."""
    own = 'Usage of EmptyDir volume "shm" exceeds the limit "1Gi". '
    _, _, analysis = diagnose(job(conditions=failed()), [pod(0, "Failed", reason="Evicted", message=own)], [])
    assert (analysis.fault, analysis.err_class, analysis.disrupted) == ("job.failed", "ERR_PROGRAM", False)
    pressure = "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 9Gi."
    _, _, analysis = diagnose(job(conditions=failed()), [pod(0, "Failed", reason="Evicted", message=pressure)], [])
    assert analysis.disrupted


def test_deadline_of_a_running_job_and_of_one_that_never_started():
    """DeadlineExceeded deletes the pods: if they never ran, the obstacle to their start is the cause."""
    late = failed("DeadlineExceeded", "Job was active longer than specified deadline")
    created = event("Job", "t", "SuccessfulCreate", "Created pod: t-0-abcde", warning=False, at="2026-01-01T00:00:01Z")
    removed = event("Job", "t", "SuccessfulDelete", "Deleted pod: t-0-abcde", warning=False, at="2026-01-01T00:01:00Z")
    ran = event("Pod", "t-0-abcde", "Started", "Container started", warning=False)
    _, _, analysis = diagnose(job(1, late), [], [created, removed, ran])
    assert (analysis.fault, analysis.err_class) == ("job.deadline", "ERR_PROGRAM")
    stuck = event(
        "Pod", "t-0-abcde", "FailedScheduling", "0/2 nodes are available: 2 Insufficient rdma/hca. preemption: no"
    )
    _, _, analysis = diagnose(job(1, late), [], [created, removed, stuck])
    assert (analysis.fault, analysis.err_class) == ("job.unschedulable", "ERR_INFRA")
    pulled = event("Pod", "t-0-abcde", "Failed", 'Failed to pull image "a/b:1": not found')
    _, _, analysis = diagnose(job(1, late), [], [created, removed, pulled])
    assert (analysis.fault, analysis.subject) == ("image.pull", "a/b:1")


def test_pressure_on_a_node_explains_a_sigkill():
    """Exit 137 without OOMKilled, while the node reports that its memory ran out."""
    events = [event("Node", "n0", "SystemOOM", "System OOM encountered, victim process: python3, pid: 7")]
    _, _, analysis = diagnose(job(conditions=failed()), [pod(0, "Failed", main=ended(137))], events)
    assert analysis.fault == "container.oom"
    assert any("victim process" in item["message"] for item in analysis.job_failure_by_node_event)


def memory(limits):
    """Return a pod that was OOM-killed, with these limits."""
    broken = pod(0, "Failed", main=ended(137, "OOMKilled"))
    broken["spec"]["containers"][0]["resources"]["limits"] = limits
    return broken


@pytest.mark.parametrize(
    ("limits", "kind", "blame", "advice"),
    [
        ({"memory": "64Gi"}, "", "ERR_PROGRAM", "smaller batch"),
        ({"memory": "64Gi"}, "OOMKilling", "ERR_PROGRAM", "shards"),  # the kernel reports any such kill this way
        ({"memory": "64Gi"}, "SystemOOM", "ERR_INFRA", "the other pods"),
        ({"nvidia.com/gpu": "8"}, "", "ERR_INFRA", "the other pods"),  # no memory limit to exceed
        ({}, "", "ERR_INFRA", "the other pods"),
    ],
)
def test_who_ran_out_of_memory_says_whose_failure_it_is(limits, kind, blame, advice):
    """An exceeded limit of the pod is the job's failure, exhausted node memory the cluster's."""
    said = "System OOM encountered, victim process: python3, pid: 7"
    events = [event("Node", "n0", kind, said)] if kind else []
    _, _, analysis = diagnose(job(conditions=failed()), [memory(limits)], events)
    assert (analysis.fault, analysis.err_class) == ("container.oom", blame)
    assert advice in (analysis.remedy or FAULTS[analysis.fault].remedy)
    assert (said in analysis.observed) == (kind == "SystemOOM")


def test_a_limit_too_small_to_start_with_is_the_jobs():
    said = "container init was OOM-killed (memory limit too low?): unknown"
    broken = memory({"memory": "6Mi"}) | {"status": pod(0, "Failed", main=ended(128, "StartError", said))["status"]}
    _, _, analysis = diagnose(job(conditions=failed()), [broken], [])
    assert (analysis.fault, analysis.err_class) == ("container.oom", "ERR_PROGRAM")


NET = "nvidia.com/net-rdma=0000:af:00.0"


@table(
    "devices, advice",
    [
        (NET, "RDMA or SR-IOV device plugin"),
        (f"{NET}, nvidia.com/net-pci=0000:af:02.1", "RDMA or SR-IOV device plugin"),
        ("cornelis.com/hfi=hfi1_0", "RDMA or SR-IOV device plugin"),
        ("dra.net/claim=eth1", "RDMA or SR-IOV device plugin"),
        ("management.nvidia.com/gpu=GPU-e78e68c0", "container toolkit"),
        ("k8s.gpu.nvidia.com/device=gpu-1", "container toolkit"),
        (f"nvidia.com/gpu=0, {NET}", "container toolkit"),  # the node has no CDI device at all
        (f"{NET}, nvidia.com/gpu=0", "container toolkit"),
        ("spidernet.io/test=demo1", "the plugin that created it"),
    ],
)
def test_an_unresolvable_cdi_device_is_whose_kind_it_names(devices, advice):
    """The runtime's message names vendor, class and device: a stale network device does not concern the GPU's hook."""
    said = f"failed to create containerd container: CDI device injection failed: unresolvable CDI devices {devices}"
    _, _, analysis = diagnose(job(active=1), [pod(0, "Pending", main=waits("CreateContainerError", said))], [])
    assert (analysis.fault, analysis.err_class) == ("container.start", "ERR_INFRA")
    assert advice in analysis.remedy


def test_killed_for_memory_is_the_cause_and_a_lost_connection_the_consequence():
    """The peers of a killed rank end earlier or later with their own errors."""
    pods = [
        pod(0, "Failed", main=ended(1, at="2026-01-01T00:00:20Z")),
        pod(1, "Failed", node="n1", main=ended(137, "OOMKilled", at="2026-01-01T00:00:21Z")),
    ]
    _, _, analysis = diagnose(job(conditions=failed()), pods, [])
    assert analysis.fault == "container.oom" and "n1" in analysis.observed


def test_of_several_errors_the_first_is_the_cause():
    """All ranks end with an error: the earliest is reported, with the number of others."""
    pods = [
        pod(0, "Failed", main=ended(1, at="2026-01-01T00:00:31Z")),
        pod(1, "Failed", main=ended(1, at="2026-01-01T00:00:30Z")),
    ]
    _, _, analysis = diagnose(job(conditions=failed()), pods, [])
    assert analysis.subject == "t-1-abcde" and "and 1 more" in analysis.observed


def test_a_failing_init_container_is_seen_and_a_stopped_sidecar_is_not():
    """The failed init container is the cause; a sidecar terminated by SIGTERM afterwards is not."""
    first = {"name": "fetch"} | ended(3, at="2026-01-01T00:00:30Z")
    _, replicas, analysis = diagnose(
        job(1, failed()), [pod(0, "Failed", init=[first], main=waits("PodInitializing"))], []
    )
    assert "container fetch ended with exit code 3" in analysis.observed
    assert replicas[0].exit_code == 3
    side = {"name": "log-shipper"} | ended(143, at="2026-01-01T00:00:29Z")
    _, _, analysis = diagnose(job(1, failed()), [pod(0, "Failed", sidecars=[side], main=ended(1))], [])
    assert "container trial ended with exit code 1" in analysis.observed
    _, _, analysis = diagnose(job(1), [pod(0, "Succeeded", sidecars=[side], main=ended(0, "Completed"))], [])
    assert analysis is None


@pytest.mark.parametrize(
    ("reason", "message", "fault"),
    [
        ("FailedMount", 'MountVolume.SetUp failed for volume "v" : configmap "missing" not found', "volume.mount"),
        ("FailedAttachVolume", "Multi-Attach error for volume pvc-1", "volume.mount"),
        ("FailedCreatePodSandBox", "plugin type=multus failed (add): no available IPs", "container.start"),
        ("FailedCreatePodSandBox", f"Failed to create pod sandbox: {LAB}sandbox: [Errno 28]", "lab.machine"),
        (
            "NetworkNotReady",
            "network is not ready: container runtime network not ready: NetworkReady=false",
            "container.start",
        ),
    ],
)
def test_what_keeps_a_scheduled_pod_in_containercreating(reason, message, fault):
    """Only events explain ContainerCreating; later progress makes them obsolete."""
    pods = [pod(0, "Pending", main=waits("ContainerCreating"))]
    events = [event("Pod", "t-0-abcde", reason, message, count=4)]
    _, replicas, analysis = diagnose(job(1), pods, events)
    assert analysis.fault == fault and analysis.hopeless and analysis.grace_s >= 10
    assert replicas[0].readiness_issue.reason == reason
    later = event("Pod", "t-0-abcde", "Pulling", "Pulling image", warning=False, at="2026-01-01T00:00:25Z")
    assert diagnose(job(1), pods, [*events, later])[2] is None


CONFIG, MOUNT = "CreateContainerConfigError", "FailedMount"
UP = 'MountVolume.SetUp failed for volume "v" : '


@pytest.mark.parametrize(
    ("reason", "message", "blame"),
    [
        (CONFIG, 'secret "hf-tokn" not found', "ERR_PROGRAM"),
        (CONFIG, 'configmap "train-env" not found', "ERR_PROGRAM"),
        (CONFIG, "couldn't find key token in Secret ns/hf-token", "ERR_PROGRAM"),
        (CONFIG, 'secret "t-token" not found', "ERR_PROGRAM"),  # a name of the user's own that begins like the job's
        (CONFIG, "failed to sync secret cache: timed out waiting for the condition", "ERR_INFRA"),
        (CONFIG, 'configmap "t" not found', "ERR_INFRA"),  # the launcher made it with the job
        (MOUNT, UP + 'secret "ssh-keys" not found', "ERR_PROGRAM"),
        (MOUNT, UP + 'configmap "topology" not found', "ERR_PROGRAM"),
        (MOUNT, UP + "configmap references non-existent config key: topo.xml", "ERR_PROGRAM"),
        (MOUNT, UP + 'secret "t-ssh" not found', "ERR_INFRA"),  # the MPI operator makes it
        (MOUNT, UP + 'configmap "kube-root-ca.crt" not found', "ERR_INFRA"),  # the controller manager does
        (MOUNT, UP + "mount failed: exit status 32", "ERR_INFRA"),
        (MOUNT, 'AttachVolume.Attach failed for volume "pvc-1" : rpc error: code = NotFound desc = x', "ERR_INFRA"),
        ("", 'persistentvolumeclaim "scrach" not found. preemption: 0/2 nodes are available', "ERR_PROGRAM"),
        ("", 'persistentvolumeclaim "data-t-0-abcde" not found', "ERR_INFRA"),  # its StatefulSet's controller makes it
        ("", "pod has unbound immediate PersistentVolumeClaims. preemption: 0/2 nodes are available", "ERR_INFRA"),
        ("", 'persistentvolumeclaim "scratch" is being deleted', "ERR_INFRA"),
        ("", 'persistentvolumeclaim "scratch" bound to non-existent persistentvolume "pv-1"', "ERR_INFRA"),
    ],
)
def test_a_name_that_does_not_exist_is_its_authors_and_an_object_that_does_not_work_the_clusters(
    reason, message, blame
):
    """The error class is the same for a trial and a user's job; objects that controllers create are the cluster's."""
    asks = {"reason": "Unschedulable", "message": f"0/2 nodes are available: {message}"}
    pods = [pod(0, "Pending", main=waits(reason, message) if reason == CONFIG else waits("ContainerCreating"))]
    if not reason:
        pods[0]["status"]["containerStatuses"] = []
        pods[0]["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", **asks}]
    events = [event("Pod", "t-0-abcde", MOUNT, message)] if reason == MOUNT else []
    for outside in (False, True):
        _, _, analysis = diagnose(job(1), pods, events, outside=outside)
        assert analysis.fault == ("container.config" if reason == CONFIG else "volume.mount")
        assert analysis.err_class == blame, outside


@pytest.mark.parametrize(
    ("refusal", "blame"),
    [
        ("failed to authorize: unauthorized: authentication required", "ERR_PROGRAM"),
        ("pull access denied", "ERR_PROGRAM"),
        ("dial tcp 10.0.0.1:443: i/o timeout", "ERR_INFRA"),
    ],
)
def test_a_missing_pull_secret_is_the_authors_where_the_registry_refuses(refusal, blame):
    """A registry that does not answer would not with the secret either."""
    said = "Unable to retrieve some image pull secrets (regcrd); attempting to pull the image may not succeed."
    events = [event("Pod", "t-0-abcde", "FailedToRetrieveImagePullSecret", said)]
    pods = [pod(0, "Pending", main=waits("ErrImagePull", f'Failed to pull image "a/b:1": {refusal}'))]
    for outside in (False, True):
        _, _, analysis = diagnose(job(1), pods, events, outside=outside)
        assert (analysis.fault, analysis.err_class) == ("image.pull", blame)
        assert "regcrd" in analysis.suggestion
    _, _, alone = diagnose(job(1), pods, [])
    assert alone.err_class == "ERR_INFRA"  # without the event nothing names the secret


def test_a_node_that_is_not_ready_is_the_cause_while_the_pod_still_seems_to_run():
    """The pod's status is stale after its node is lost, so the node's condition decides."""
    _, replicas, analysis = diagnose(
        job(), [pod(0, main=RUNS), pod(1, main=RUNS, node="n1")], [], [node("n0"), node("n1", ready="Unknown")]
    )
    assert analysis.fault == "node.lost" and analysis.subject == "n1" and analysis.err_class == "ERR_INFRA"
    assert replicas[1].fault == "node.lost" and replicas[0].fault is None


def test_pods_and_events_of_others_are_left_out():
    """Another job's failing pod, and events of an earlier job with the same name, do not count."""
    foreign = pod(0, "Failed", main=ended(1))
    foreign["metadata"]["ownerReferences"][0]["uid"] = "another"
    old = event("Job", "t", "FailedCreate", "Error creating: exceeded quota: q,")
    old["involvedObject"]["uid"] = "earlier"
    state, replicas, analysis = diagnose(job(1, active=1), [foreign], [old])
    assert state == "Pending" and analysis is None and replicas[0].pod == ""


NOT_READY = {"type": "Ready", "status": "False"}
SIDECAR = {"name": "side", **RUNS}
DONE = {"ready": False, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}


@pytest.mark.parametrize(
    ("reason", "main", "sidecars"),
    [
        ("PodCompleted", DONE, ()),
        ("PodCompleted", None, ()),
        ("PodFailed", None, ()),
        ("ContainersNotReady", DONE, (SIDECAR,)),
    ],
)
def test_a_pod_that_has_ended_is_not_reported_as_unready(reason, main, sidecars):
    """A completed pod's phase remains Running for a moment; the end of its containers is not an issue."""
    ended = pod(0, main=main, sidecars=sidecars, conditions=[NOT_READY | {"reason": reason}])
    _, replicas, analysis = diagnose(job(1, active=1), [ended], [])
    assert (analysis, replicas[0].phase, replicas[0].readiness_issue) == (None, "Running", None)


@pytest.mark.parametrize(
    ("main", "sidecars"),
    [({**RUNS, "ready": False}, ()), (DONE, ({"name": "side", **RUNS, "ready": False},)), (None, ())],
)
def test_a_pod_that_runs_and_is_not_ready_says_why(main, sidecars):
    """A probe of the program or of a sidecar fails, or the containers' state is unknown."""
    condition = NOT_READY | {"reason": "ContainersNotReady", "message": "containers with unready status: [x]"}
    _, replicas, _ = diagnose(job(1, active=1), [pod(0, main=main, sidecars=sidecars, conditions=[condition])], [])
    assert replicas[0].readiness_issue.reason == "ContainersNotReady"


@pytest.mark.parametrize(
    ("limited", "fault", "blame"), [("16", "quota.in-use", None), ("15", "quota.exceeded", "ERR_INFRA")]
)
def test_a_quota_that_others_use_up_is_waited_for_and_not_at_fault(limited, fault, blame):
    """Another trial was first: a quota with room for both pods frees up when that trial ends."""
    amounts = f"requested: requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=16, limited: requests.nvidia.com/gpu={limited}"
    text = f'Error creating: pods "t-0-x" is forbidden: exceeded quota: team, {amounts}'
    _, _, analysis = diagnose(job(), [], [event("Job", "t", "FailedCreate", text)])
    assert (analysis.fault, analysis.subject, analysis.err_class) == (fault, "resourcequota/team", blame)
    assert analysis.hopeless is (blame is not None)
