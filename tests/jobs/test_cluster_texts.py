"""Texts of Kubernetes, its runtimes and queues as clusters print them: fault, failure class, and advice.

None is the example of a variant: they show that a pattern fits the whole kind and not only its example.
"""

from __future__ import annotations

import pytest

from seatrial.faults.catalogue import catalogue, read_text
from tests.table import table

ROWS = [
    (
        "registry",
        'Failed to pull image "ghcr.io/o/x:2": rpc error: code = NotFound desc = failed to pull and unpack image "ghcr.io/o/x:2": failed to resolve reference "ghcr.io/o/x:2": ghcr.io/o/x:2: not found',
        "image.pull",
        "program",
        "tag",
    ),
    (
        "registry",
        'Failed to pull image "x.azurecr.io/a:1": failed to authorize: failed to fetch anonymous token: unexpected status from GET request to https://x.azurecr.io/oauth2/token: 401 Unauthorized',
        "image.pull",
        "infrastructure",
        "imagePullSecrets",
    ),
    (
        "registry",
        'Failed to pull image "123.dkr.ecr.us-east-1.amazonaws.com/a:1": pulling from host 123.dkr.ecr.us-east-1.amazonaws.com failed with status code [manifests 1]: 403 Forbidden',
        "image.pull",
        "infrastructure",
        "imagePullSecrets",
    ),
    (
        "registry",
        'Failed to pull image "nvcr.io/a:1": rpc error: code = DeadlineExceeded desc = context deadline exceeded',
        "image.pull",
        "infrastructure",
        "443",
    ),
    (
        "registry",
        'Failed to pull image "h.corp/team/a:9": Get "https://h.corp/v2/": proxyconnect tcp: dial tcp: lookup proxy.corp on 10.0.0.10:53: no such host',
        "image.pull",
        "infrastructure",
        "DNS",
    ),
    (
        "registry",
        'Failed to pull image "h.corp/team/a:9": Get "https://h.corp/v2/": http: server gave HTTP response to HTTPS client',
        "image.pull",
        "infrastructure",
        "hosts.toml",
    ),
    (
        "registry",
        'Failed to pull image "h.corp/team/a:9": failed to extract layer sha256:1: write /var/lib/containerd/x: no space left on device',
        "image.pull",
        "infrastructure",
        "disk",
    ),
    (
        "registry",
        'Failed to pull image "h.corp/team/a:9": short-name resolution enforced but cannot prompt without a TTY',
        "image.pull",
        "program",
        "docker.io/library",
    ),
    (
        "registry",
        'Failed to inspect image "h.corp/team/a:9": rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial unix /run/containerd/containerd.sock: connect: connection refused"',
        "image.pull",
        "infrastructure",
        "restart the container runtime",
    ),
    (
        "registry",
        'ErrImageNeverPull: Container image "h.corp/team/a:9" is not present with pull policy of Never',
        "image.pull",
        "program",
        "IfNotPresent",
    ),
    (
        "runtime",
        "RunContainerError: failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running prestart hook #0: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy' nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file",
        "container.start",
        "infrastructure",
        "driver",
    ),
    (
        "runtime",
        'StartError: failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: exec: "bash": executable file not found in $PATH: unknown',
        "image.no-python",
        "program",
        "PyTorch",
    ),
    (
        "runtime",
        "RunContainerError: rpc error: code = DeadlineExceeded desc = context deadline exceeded",
        "container.start",
        "infrastructure",
        "restart containerd",
    ),
    (
        "runtime",
        'FailedCreatePodSandBox: Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "a": plugin type="multus" name="multus-cni-network" failed (add): [ns/p/]: error adding pod to CNI network "sriov-net": allocate device: no free VF',
        "container.start",
        "infrastructure",
        "CNI",
    ),
    (
        "runtime",
        'FailedCreatePodSandBox: Failed to create pod sandbox: rpc error: code = DeadlineExceeded desc = failed to get sandbox image "registry.k8s.io/pause:3.10": failed to pull image "registry.k8s.io/pause:3.10"',
        "container.start",
        "infrastructure",
        "mirror",
    ),
    (
        "runtime",
        'FailedCreatePodSandBox: Failed to create pod sandbox: cannot find a network-attachment-definition (ib0) : network-attachment-definitions.k8s.cni.cncf.io "ib0" not found',
        "container.start",
        "infrastructure",
        "NetworkAttachmentDefinition",
    ),
    (
        "runtime",
        "RunContainerError: failed to create containerd task: failed to create shim task: mkdir /run/containerd/ab: no space left on device",
        "container.start",
        "infrastructure",
        "crictl rmi --prune",
    ),
    (
        "volumes",
        'MountVolume.MountDevice failed for volume "pvc-1" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name nfs.csi.k8s.io not found in the list of registered CSI drivers',
        "volume.mount",
        "infrastructure",
        "install the CSI driver nfs.csi.k8s.io",
    ),
    (
        "volumes",
        'MountVolume.SetUp failed for volume "fs" : mount failed: exit status 32 Mounting command: mount Mounting arguments: -t nfs 10.0.0.5:/x /var/lib/kubelet Output: mount.nfs: Connection timed out',
        "volume.mount",
        "infrastructure",
        "server",
    ),
    (
        "volumes",
        "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[data]: timed out waiting for the condition",
        "volume.mount",
        "infrastructure",
        "VolumeAttachment",
    ),
    (
        "volumes",
        'MountVolume.SetUp failed for volume "shm" : configmap references non-existent config key: topo.xml',
        "volume.mount",
        "program",
        "add the key topo.xml",
    ),
    (
        "volumes",
        'AttachVolume.Attach failed for volume "pvc-1" : rpc error: code = Internal desc = Could not attach volume "vol-1" to node "i-1"',
        "volume.mount",
        "infrastructure",
        "VolumeAttachment",
    ),
    (
        "scheduler",
        "0/12 nodes are available: 4 node(s) had untolerated taint {sku: gpu}, 8 Insufficient nvidia.com/gpu. preemption: 0/12 nodes are available: 12 Preemption is not helpful for scheduling.",
        "job.unschedulable",
        "infrastructure",
        "capacity",
    ),
    (
        "scheduler",
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
        "job.unschedulable",
        "infrastructure",
        "uncordon",
    ),
    (
        "scheduler",
        "0/4 nodes are available: 4 Insufficient hugepages-1Gi. preemption: 0/4 nodes are available",
        "job.unschedulable",
        "infrastructure",
        "vm.nr_hugepages",
    ),
    (
        "scheduler",
        "0/2 nodes are available: 2 Insufficient vpc.amazonaws.com/efa. preemption: 0/2",
        "job.unschedulable",
        "infrastructure",
        "device plugin",
    ),
    (
        "scheduler",
        "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules.",
        "job.unschedulable",
        "infrastructure",
        "affinity",
    ),
    (
        "scheduler",
        "0/8 nodes are available: 8 cannot allocate all claims. still not schedulable, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
        "job.unschedulable",
        "infrastructure",
        "ResourceSlices",
    ),
    (
        "scheduler",
        "0/2 nodes are available: 2 Too many pods. preemption",
        "job.unschedulable",
        "infrastructure",
        "maxPods",
    ),
    (
        "api",
        'pods "x" is forbidden: violates PodSecurity "baseline:latest": non-default capabilities (container "t" must not include "IPC_LOCK")',
        "pod-security.denied",
        "infrastructure",
        "privileged",
    ),
    (
        "api",
        'pods "x" is forbidden: [maximum cpu usage per Pod is 8, but limit is 16, maximum memory usage per Pod is 64Gi]',
        "limitrange.denied",
        "infrastructure",
        "LimitRange",
    ),
    (
        "api",
        'admission webhook "validation.gatekeeper.sh" denied the request: [must-have-probes] container has no probe',
        "admission.denied",
        "infrastructure",
        "Exempt",
    ),
    (
        "api",
        'Internal error occurred: failed calling webhook "kueue.x-k8s.io": Post "https://kueue-webhook-service.kueue-system.svc:443/mutate": no endpoints available for service "kueue-webhook-service"',
        "admission.webhook-down",
        "infrastructure",
        "webhook",
    ),
    (
        "api",
        "Internal error occurred: etcdserver: request timed out",
        "job.start-timeout",
        "infrastructure",
        "control plane",
    ),
    (
        "api",
        'pods "x" is forbidden: User "system:serviceaccount:ns:d" cannot create resource "pods" in API group "" in the namespace "ns"',
        "rights.missing",
        "infrastructure",
        "Role",
    ),
    (
        "kueue",
        "Pending: couldn't assign flavors to pod set launcher: insufficient quota for nvidia.com/gpu in flavor h100, previously considered podsets requests (0) + current podset request (64) > maximum capacity (32)",
        "queue.quota-short",
        "infrastructure",
        "nominalQuota",
    ),
    ("kueue", "Pending: Workload didn't fit, insufficient unused quota", "queue.waiting", "infrastructure", "release"),
    ("exit", "Failed: exit code 137", "job.failed", "infrastructure", "memory"),
    ("exit", "Unknown: exit code 255", "job.failed", "infrastructure", "restarted"),
    (
        "admission",
        "OutOfmemory: Node didn't have enough resource: memory, requested: 1, used: 2, capacity: 2",
        "container.start",
        "infrastructure",
        "requests",
    ),
    (
        "admission",
        "UnexpectedAdmissionError: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu, which is unexpected",
        "container.start",
        "infrastructure",
        "bring the port up",
    ),
    (
        "admission",
        "UnexpectedAdmissionError: Allocate failed due to device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Unknown desc = error getting list of preferred allocation devices: error creating nvml.Device 5: nvml: GPU is lost, which is unexpected",
        "container.start",
        "infrastructure",
        "power it off and on",
    ),
    (
        "admission",
        "UnexpectedAdmissionError: Allocate failed due to device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Unimplemented desc = unknown method, which is unexpected",
        "container.start",
        "infrastructure",
        "restart the device plugin's pod",
    ),
]


@table("who, text, fault, failure, word", ROWS)
def test_a_text_has_the_advice_of_its_kind(who: str, text: str, fault: str, failure: str, word: str) -> None:
    said = read_text(who, text)
    assert said is not None
    assert said.variant is not None
    assert (said.why, said.variant.failure) == (fault, failure)
    assert word in (said.variant.remedy or catalogue()[fault].remedy)
    assert text not in {each.example for each in catalogue()[fault].variants}


@pytest.mark.parametrize(
    ("who", "text"),
    [
        ("api", 'pods "x" is forbidden: not on Fridays'),
        (
            "runtime",
            'CreateContainerError: failed to generate spec: path "/mnt" is mounted on "/" but it is not a shared mount',
        ),
        ("exit", "Error: exit code 1"),
        ("eviction", "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi."),
        ("mpirun", "mpirun noticed that process rank 1 exited on signal 11"),
        ("kueue", "Pending: The workload is pending in its queue"),
    ],
)
def test_a_text_of_no_kind_has_the_faults_own_advice(who: str, text: str) -> None:
    assert read_text(who, text) is None
