"""The advice fits the line, by failure class and a word of the remedy; the lines are as clusters print them."""

from __future__ import annotations

import pytest

from reports import explain_forms
from seatrial.logs import failure_class_of
from tests.logs.test_nccl_causes import judged
from tests.table import table

I, P = "infrastructure", "program"  # noqa: E741 -- columns
ROWS = [
    (
        'Failed to pull image "nvcr.io/nvidia/pytorch:26.01": failed to authorize: failed to fetch oauth token: unexpected status: 401 Unauthorized',
        I,
        "imagePullSecrets",
    ),
    (
        'Failed to pull image "reg.corp/a/b:7": rpc error: code = NotFound desc = failed to resolve reference "reg.corp/a/b:7": not found',
        P,
        "correct the tag",
    ),
    (
        'Failed to pull image "ghcr.io/a/b:1": failed to authorize: unauthorized: authentication required',
        I,
        "imagePullSecrets",
    ),
    (
        'Warning  Failed  3s  kubelet  Failed to pull image "h.corp/x:1": Get "https://h.corp/v2/": dial tcp 10.1.1.1:443: i/o timeout',
        I,
        "HTTPS_PROXY",
    ),
    (
        'Warning  Failed  3s  kubelet  Failed to pull image "h.corp/x:1": tls: failed to verify certificate: x509: certificate has expired',
        I,
        "CA into",
    ),
    (
        'Warning  FailedMount  3s  kubelet  MountVolume.SetUp failed for volume "creds" : secret "s3-creds" not found',
        P,
        "create the Secret",
    ),
    (
        "Warning  FailedMount  3s  kubelet  Unable to attach or mount volumes: unmounted volumes=[data], timed out waiting for the condition",
        I,
        "VolumeAttachment",
    ),
    (
        'Warning  FailedAttachVolume  9s  attachdetach-controller  Multi-Attach error for volume "pvc-9" Volume is already exclusively attached to one node',
        I,
        "ReadWriteMany",
    ),
    ('Warning  Failed  2s  kubelet  Error: secret "wandb" not found', P, "create the Secret"),
    ("Error: couldn't find key HF_TOKEN in Secret team-a/hf", P, "add the key HF_TOKEN to the Secret hf "),
    ('Warning  Failed  2s  kubelet  Error: configmap "train-env" not found', P, "create the ConfigMap train-env"),
    (
        "Warning  FailedScheduling  1s  default-scheduler  0/16 nodes are available: 16 Insufficient nvidia.com/gpu. preemption: 0/16 nodes are available",
        I,
        "allocatable",
    ),
    (
        "Warning  FailedScheduling  1s  default-scheduler  0/4 nodes are available: 4 node(s) had untolerated taint {nvidia.com/gpu: }.",
        I,
        "taint",
    ),
    (
        'pods "w-0" is forbidden: exceeded quota: gpu, requested: requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=16, limited: requests.nvidia.com/gpu=16',
        I,
        "quota",
    ),
    ("srun: error: Munge decode failed: Expired credential", I, "munge.key"),
    ("slurm_load_partitions error: Unable to contact slurm controller (connect failure)", I, "slurmctld"),
    (
        "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
        P,
        "--account",
    ),
    ("srun: error: Unable to create step for job 9: Requested node configuration is not available", P, "--gres"),
    ("Host key verification failed.", I, "ssh-keygen -R"),
    ("root@worker-3: Permission denied (publickey,password).", I, "authorized_keys"),
    ("ssh: connect to host worker-3.job port 22: Connection refused", None, "start sshd"),
    ("bash: line 1: orted: command not found", P, "install the program"),
    ("There are not enough slots available in the system to satisfy the 16 slots", P, "host file"),
    ("nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown", I, "modprobe nvidia"),
    (
        "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file or directory: unknown",
        I,
        "modprobe nvidia",
    ),
    (
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        I,
        "nvidia-ctk runtime configure",
    ),
    (
        "Error: UnexpectedAdmissionError Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu, which is unexpected",
        I,
        "replace it",
    ),
    ("Failed to initialize NVML: Unknown Error", I, "start the pod again"),
    ("Failed to initialize NVML: Driver/library version mismatch", I, "reboot"),
    ("modprobe: FATAL: Module nvidia not found in directory /lib/modules/5.15.0-1-generic", I, "dkms"),
    ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.", I, "power it off"),
    ("NVRM: Xid (PCI:0000:3b:00): 94, pid=1, Contained: SM (0x1).", I, "reset the GPU at the next"),
    ("The node was low on resource: memory. Threshold quantity: 100Mi, available: 1Mi.", I, "request equal"),
    ("The node had condition: [DiskPressure].", None, "ephemeral-storage"),
    ("Pod was active on the node longer than the specified deadline", P, "activeDeadlineSeconds"),
    ("Container trainer failed liveness probe, will be restarted", P, "liveness"),
    ("exec /opt/train.sh: exec format error", P, "--platform"),
    (
        'Error: failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "torchrun": executable file not found in $PATH: unknown',
        P,
        "full path",
    ),
    (
        'Warning  FailedCreatePodSandBox  1s  kubelet  Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "a": plugin type="multus" failed',
        I,
        "CNI",
    ),
    (
        "slurmstepd: error: pyxis:     enroot-mount: failed to mount: /lustre/x at /tmp/x: Permission denied",
        None,
        "root_squash",
    ),
    ("slurmstepd: error: pyxis: failed to import docker image", None, "enroot"),
    (
        'Error from server (Forbidden): pods "w-0" is forbidden: User "system:serviceaccount:t:l" cannot create resource "pods/exec"',
        I,
        "pods/exec",
    ),
    ("(autoscaler +4s) Error: No available node types can fulfill resource request {'GPU': 64.0}.", P, "worker group"),
]


@table("line, failure, word", ROWS)
def test_a_line_has_its_own_remedy_and_failure_class(line, failure, word):
    job = judged(line + "\n")
    assert failure_class_of(job) == failure
    assert job["faults"][0]["failure"] == (failure or "unknown")
    assert word in job["faults"][0]["remedy"]
    for form in (explain_forms.to_text, explain_forms.to_markdown):
        assert word.split()[0] in form([job]).replace("\\", "")


@pytest.mark.parametrize(
    "said",
    [
        "failed to authorize: unauthorized: authentication required",
        "failed to fetch oauth token: unexpected status: 401 Unauthorized",
        "unexpected status from GET request to https://nvcr.io/proxy_auth: 401 Unauthorized",
    ],
)
def test_the_word_by_which_a_registry_refuses_is_shown(said):
    """The word follows a name that otherwise marks a secret."""
    job = judged(f'Failed to pull image "nvcr.io/a/b:1": {said}\n')
    assert said in job["faults"][0]["evidence"][0]["text"]
    assert "imagePullSecrets" in job["faults"][0]["remedy"]
