"""Symptoms of a container's state: which fault it is, whose, and whether it can still come right.

Reasons and texts are the kubelet's and the container runtime's own (kubernetes pkg/kubelet/images/types.go,
pkg/kubelet/kuberuntime; containerd, CRI-O, runc, crun). An unknown reason is passed on with its own words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..cluster.facts.events import Event
from ..cluster.redact import safe
from ..cluster.unstructured import Unstructured, as_map
from .grace_periods import CONTAINER_S, CRASH_LOOP_S, FINAL_PULL_S, OTHER_PULL_S
from .state import ERR_INFRA, ERR_PROGRAM, INTERRUPTED, UNDISTURBED, Issue


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Events of a pod, its node and its job, as far as they are seen.

    `ending_since`: from when on its Job's controller may have deleted it, since the Job was failing. `taken`: whether
    it was on its way out before it ended, None where no look tells. `probe_ended`: its probe had ended before.
    """

    events: Sequence[Event] = ()
    node: Unstructured | None = None
    nodes: Sequence[Unstructured] = ()
    own_nodes: frozenset[str] = frozenset()
    job_ending: bool = False
    ending_since: str = ""
    deleted_by_controller: bool = False
    taken: bool | None = None
    probe_ended: bool = False
    queued: bool = False  # a queue's scheduler is silent about a gang that waits


# Which of several symptoms of one job is the cause: a dead node explains dead containers, an interruption explains
# missing pods, a container killed for memory explains peers that lost their connection.
LOST, DISRUPTED, REFUSED, KILLED, NOT_STARTED, EXITED, OVERDUE = range(7)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSymptom:
    """One thing wrong with one pod, in the order of causes (`rank`, then `when`)."""

    fault: str
    issue: Issue
    suggestion: str
    subject: str = ""
    rank: int = NOT_STARTED
    err_class: str | None = ERR_INFRA
    expected: str = "the container runs"
    when: str = ""
    hopeless: bool = True
    grace_s: float = 0.0
    disrupted: bool = False
    inferred: bool = False  # concluded from what is missing: what comes a moment later may say it itself
    pod: str = ""
    node: str = ""

    def at(self, *, pod: str, node: str) -> PodSymptom:
        """Say whose symptom it is."""
        return replace(self, pod=pod, node=node, subject=self.subject or pod)


# Registry answers that another attempt will not change.
_FINAL_PULL = re.compile(
    r"(?i)not found|manifest unknown|name unknown|pull access denied|unauthorized|authentication required|forbidden"
    r"|denied|invalid reference|couldn't parse image|no match for platform|does not exist|not valid"
)
_PULL_ADVICE = (
    (
        r"(?i)unauthorized|authentication required|access denied|denied|forbidden|\b40[13]\b",
        "The registry wants credentials: create a pull secret in the namespace and name it (pull_secrets).",
    ),
    (r"(?i)no match for platform", "The image has no build for this node's CPU architecture."),
    (
        r"(?i)toomanyrequests|rate limit|\b429\b",
        "The registry limits the rate: use a mirror (--registry) or credentials.",
    ),
    (
        r"(?i)not found|manifest unknown|name unknown|does not exist|couldn't parse|invalid reference",
        "The name, tag or digest does not exist there: correct --image.",
    ),
    (
        r"(?i)no such host|timeout|timed out|refused|unreachable|reset|deadline|tls|x509|EOF",
        "The node does not reach the registry: use a mirror (--registry PREFIX), or repair its route, DNS or CA.",
    ),
    (r"(?i)no space left", "The node's disk for images is full."),
)
_PULL_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)

# What pods run by which an operator starts the ranks, by the fault of an image without it.
NOT_IN_IMAGE = {
    "mpi.sshd-missing": "An MPIJob's workers run sshd, which this image does not have, as NVIDIA's PyTorch images do "
    "not: launch without (--launcher indexed or pytorchjob), or use an image with openssh-server and Open MPI "
    "(--image).",
    "mpi.mpirun-missing": "An MPIJob's launcher runs mpirun, which this image does not have: use one with Open MPI "
    "(--image).",
}
# Texts of a container that could not be started: (pattern, fault, whose, advice).
_START = (
    (
        r"the embedded cluster could not set up",
        "lab.machine",
        None,
        "No fault of a cluster: the pods are processes of this machine, which refused what the message names.",
    ),
    (
        r"(?i)nvidia-container-cli|nvidia-container-runtime|nvml error|driver not loaded|libnvidia-ml"
        r"|unresolvable CDI devices (?:\S+, ?)*?\S*(?:gpu|mig)\S*=",
        "container.start",
        ERR_INFRA,
        "The GPU runtime hook failed: is the driver loaded on this node, and the container toolkit (or CDI) set up?",
    ),
    (  # by kind: net-rdma of Mellanox' shared plugin, net-pci of the SR-IOV plugin, dra.net of DRANET
        r"(?i)unresolvable CDI devices (?:\S+, ?)*?(?:\S+/(?:net|rdma|hca|hfi|efa|vf|sriov)|dra\.net)[^\s,=]*=",
        "container.start",
        ERR_INFRA,
        "The node's runtime does not know the network device that its device plugin has given out: the plugin's CDI "
        "specification (/var/run/cdi) is missing or older than the node's devices. Restart the RDMA or SR-IOV device "
        "plugin's pod on that node, so that it is written anew; the GPUs are not at fault.",
    ),
    (
        r"(?i)unresolvable CDI|CDI device",
        "container.start",
        ERR_INFRA,
        "The runtime does not know a device that a plugin or driver has given out: restart the one that made it on "
        "that node, so that its CDI specification (/var/run/cdi) is written anew.",
    ),
    (
        r"(?i)OOM-?killed|memory limit too low",
        "container.oom",
        ERR_PROGRAM,
        "The memory limit is too small even to start the container: raise memory.",
    ),
    (
        r"(?i)exec: \\?\"[^\"]*\bsshd\\?\".*(?:not found|no such file)",
        "mpi.sshd-missing",
        ERR_PROGRAM,
        NOT_IN_IMAGE["mpi.sshd-missing"],
    ),
    (
        r"(?i)exec: \\?\"[^\"]*\bmpirun\\?\".*(?:not found|no such file)",
        "mpi.mpirun-missing",
        ERR_PROGRAM,
        NOT_IN_IMAGE["mpi.mpirun-missing"],
    ),
    (
        r"(?i)executable file .*not found|stat \S+: no such file or directory|exec: \\?\".*no such file or directory"
        r"|exec: no such file or directory|no command specified",
        "image.no-python",
        ERR_PROGRAM,
        "The image does not have the command that it is asked to run: use an image with python3 and PyTorch (--image).",
    ),
    (
        r"(?i)exec format error",
        "container.start",
        ERR_PROGRAM,
        "The image is built for another CPU architecture than this node's.",
    ),
    (r"(?i)exec: .*permission denied", "container.start", ERR_PROGRAM, "The command in the image may not be executed."),
    (
        r"(?i)no runtime for|unknown runtime|invalid runtime|runtime handler",
        "container.start",
        ERR_INFRA,
        "The RuntimeClass names a handler that this node's container runtime does not have configured.",
    ),
)

# Exit statuses with a meaning of their own (128 + signal; bash(1) for 126 and 127).
_EXITS = {
    126: (ERR_PROGRAM, "The command was found but could not be executed (permissions, or another architecture)."),
    127: (ERR_PROGRAM, "A shell did not find the program: it is not in the image or not on its PATH."),
    132: (ERR_PROGRAM, "Illegal instruction: the program is built for another CPU."),
    134: (ERR_PROGRAM, "The program aborted itself (SIGABRT): see the last lines of its log."),
    135: (ERR_PROGRAM, "Bus error: very often /dev/shm is too small for what was put there."),
    136: (ERR_PROGRAM, "Arithmetic exception in the program (SIGFPE)."),
    137: (ERR_INFRA, "Killed by SIGKILL without a word from the program: usually the node ran out of memory."),
    139: (ERR_PROGRAM, "The program crashed (segmentation fault, SIGSEGV): see the last lines of its log."),
    143: (ERR_PROGRAM, "The program was asked to end (SIGTERM) and ended."),
    255: (ERR_PROGRAM, "The program ended with an error: see the last lines of its log."),
}


# Reasons of a container that its kubelet (ContainerStatusUnknown) or containerd (Unknown) found gone.
NOT_FOUND = frozenset({"ContainerStatusUnknown", "Unknown"})


def waiting(status: Unstructured, image: str) -> PodSymptom | None:
    """Judge a container that waits; None while it waits for nothing but its turn."""
    state = as_map(as_map(status.get("state")).get("waiting"))
    reason, message = safe(state.get("reason") or "", 100), safe(state.get("message") or "")
    issue = Issue(reason, message)
    if reason in _PULL_REASONS:
        return pull(issue, image)
    if reason == "CreateContainerConfigError":
        return PodSymptom(
            fault="container.config",
            issue=issue,
            grace_s=CONTAINER_S,
            expected="everything the container refers to exists",
            suggestion="Create the ConfigMap, Secret or key that the message names, or take it out of the pod.",
        )
    if reason in {"CreateContainerError", "RunContainerError", "CreatePodSandboxError", "PostStartHookError"}:
        return replace(start_error(issue), grace_s=CONTAINER_S)
    if reason == "CrashLoopBackOff":
        before = terminated({"state": status.get("lastState") or {}, "name": status.get("name")})
        if before is None:
            return PodSymptom(fault="job.failed", issue=issue, suggestion="See the log.", grace_s=CRASH_LOOP_S)
        text = f"{message}; it ended with {before.issue}" if message else str(before.issue)
        return replace(before, issue=Issue(reason, safe(text)), hopeless=False)
    return None


def pull(issue: Issue, image: str) -> PodSymptom:
    """Judge an image that cannot be pulled."""
    text = issue.message
    advice = next((helps for shape, helps in _PULL_ADVICE if re.search(shape, text)), "See the registry's answer.")
    now = issue.reason in {"InvalidImageName", "ErrImageNeverPull"}
    return PodSymptom(
        fault="image.pull",
        issue=issue,
        subject=safe(image, 300),
        suggestion=advice,
        expected="the image is pulled",
        grace_s=0.0 if now else FINAL_PULL_S if _FINAL_PULL.search(text) else OTHER_PULL_S,
    )


def start_error(issue: Issue) -> PodSymptom:
    """Judge a container that the runtime could not start."""
    for shape, fault, blame, advice in _START:
        if re.search(shape, issue.message):
            rank = KILLED if fault == "container.oom" else NOT_STARTED
            return PodSymptom(fault=fault, issue=issue, suggestion=advice, err_class=blame, rank=rank)
    return PodSymptom(
        fault="container.start",
        issue=issue,
        suggestion="The runtime's message names what it could not set up (a hook, a device, a mount).",
    )


def terminated(status: Unstructured) -> PodSymptom | None:
    """Judge a container that ended; None if it ended well."""
    state = as_map(as_map(status.get("state")).get("terminated"))
    if not state:
        return None
    reason, message = safe(state.get("reason") or "Error", 100), safe(state.get("message") or "")
    code = state.get("exitCode")
    when = str(state.get("finishedAt") or "")
    if reason == "OOMKilled":
        return PodSymptom(
            fault="container.oom",
            issue=Issue(reason, f"container {status.get('name')} was killed for memory, exit code {code}"),
            suggestion="Raise the memory limit, or need less: a smaller batch, fewer data loader workers, checkpoints "
            "saved and loaded in shards.",
            err_class=ERR_PROGRAM,
            expected="the container stays below its memory limit",
            rank=KILLED,
            when=when,
        )
    if code == 0 and reason != "StartError":
        return None
    if reason in {"StartError", "ContainerCannotRun"} or (code in (127, 128) and "OCI runtime" in message):
        return replace(start_error(Issue(reason, message)), when=when)
    if reason == "DeadlineExceeded":
        return overdue(Issue(reason, message), when)
    blame, advice = _EXITS.get(code if isinstance(code, int) else -1, (ERR_PROGRAM, "See the last lines of its log."))
    if reason in NOT_FOUND:
        blame, advice = ERR_INFRA, "The kubelet lost the container: the node or its container runtime was restarted."
    text = f"container {status.get('name')} ended with exit code {code}"
    # A termination message may be a whole document of the program's own; what is no error text stays in the log.
    if message and not message.startswith(("{", "[")):
        text += f": {message}"
    return PodSymptom(
        fault="job.failed",
        issue=Issue(reason, safe(text)),
        suggestion=advice,
        err_class=blame,
        expected="exit code 0",
        rank=EXITED,
        when=when,
    )


def overdue(issue: Issue, when: str = "") -> PodSymptom:
    """Judge a job or pod that met its own deadline."""
    return PodSymptom(
        fault="job.deadline",
        issue=issue,
        suggestion="The program was still running: look at the last lines of its log for what it waited for.",
        err_class=ERR_PROGRAM,
        expected="the job ends before its deadline",
        rank=OVERDUE,
        when=when,
    )


def disruption(issue: Issue, when: str = "") -> PodSymptom:
    """Judge an interruption by others: nobody's fault, to be tried again."""
    return PodSymptom(
        fault="job.disrupted",
        issue=issue,
        suggestion=INTERRUPTED,
        err_class=None,
        expected=UNDISTURBED,
        rank=DISRUPTED,
        disrupted=True,
        when=when,
    )
