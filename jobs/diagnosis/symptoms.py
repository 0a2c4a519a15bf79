"""Symptoms of a container's state: fault, class, and whether it can still recover.

Reasons and texts are those of the kubelet and the container runtime (kubernetes pkg/kubelet/images/types.go,
pkg/kubelet/kuberuntime; containerd, CRI-O, runc, crun). An unknown reason is passed on unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from seatrial.faults.catalogue import INFRASTRUCTURE, PROGRAM, read_text
from seatrial.faults.variants import Detail, named

from ..cluster.facts.events import Event
from ..cluster.redact import safe
from ..cluster.unstructured import Unstructured, as_map
from .grace_periods import CONTAINER_S, CRASH_LOOP_S, FINAL_PULL_S, OTHER_PULL_S
from .state import ERR_INFRA, ERR_PROGRAM, INTERRUPTED, UNDISTURBED, Issue


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The visible events of a pod, its node and its job.

    `ending_since`: when its failing Job's controller began to delete pods. `taken`: whether it was terminating before
    it ended, None if unknown. `probe_ended`: its probe had ended before.
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
    queued: bool = False  # a queue's scheduler reports nothing about a waiting gang


# The order of causes among several symptoms of one job. A dead node explains dead containers, an interruption explains
# missing pods, an OOM-killed container explains peers that lost their connection.
LOST, DISRUPTED, REFUSED, KILLED, NOT_STARTED, EXITED, OVERDUE = range(7)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSymptom:
    """A problem of one pod, sorted by the order of causes (`rank`, then `when`)."""

    fault: str
    issue: Issue
    suggestion: str = ""
    confirm: str = ""
    remedy: str = ""
    subject: str = ""
    rank: int = NOT_STARTED
    err_class: str | None = ERR_INFRA
    expected: str = "the container runs"
    when: str = ""
    hopeless: bool = True
    grace_s: float = 0.0
    disrupted: bool = False
    inferred: bool = False  # inferred from a missing object: a later event may report it directly
    pod: str = ""
    node: str = ""
    failure: str = ""  # the failure class of the message, from the catalogue

    def at(self, *, pod: str, node: str) -> PodSymptom:
        """Set the subject of a symptom, also in the confirm command, which users run in a shell."""
        confirm = named(self.confirm, {"POD": pod if "/" not in pod else "", "NODE": node})
        return replace(self, pod=pod, node=node, subject=self.subject or pod, confirm=confirm)

    def advised(self, said: Detail | None) -> PodSymptom:
        """Add the catalogue's entry for the text: the cause, and the advice of its variant."""
        if said is None or said.variant is None:
            return self
        each = said.variant
        known = replace(self, confirm=each.confirm, remedy=each.remedy, failure=each.failure)
        return replace(known, suggestion=said.cause or "")


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

# Reasons of a container that its kubelet (ContainerStatusUnknown) or containerd (Unknown) lost.
NOT_FOUND = frozenset({"ContainerStatusUnknown", "Unknown"})


def waiting(status: Unstructured, image: str) -> PodSymptom | None:
    """Judge a waiting container; None if it only waits for its turn."""
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
            expected="all objects that the container refers to exist",
        ).advised(read_text("kubelet", message))
    if reason in {"CreateContainerError", "RunContainerError", "CreatePodSandboxError", "PostStartHookError"}:
        return replace(start_error(issue), grace_s=CONTAINER_S)
    if reason == "CrashLoopBackOff":
        before = terminated({"state": status.get("lastState") or {}, "name": status.get("name")})
        if before is None:
            return PodSymptom(fault="job.failed", issue=issue, grace_s=CRASH_LOOP_S)
        text = f"{message}; it ended with {before.issue}" if message else str(before.issue)
        return replace(before, issue=Issue(reason, safe(text)), hopeless=False)
    return None


def pull(issue: Issue, image: str) -> PodSymptom:
    """Judge an image that cannot be pulled: attributed to the cluster, because pulling the trial's image is tested."""
    said = read_text("registry", str(issue))
    now = issue.reason in {"InvalidImageName", "ErrImageNeverPull"}
    final = said is not None and said.variant is not None and said.variant.final
    return PodSymptom(
        fault="image.pull",
        issue=issue,
        subject=safe(image, 300),
        expected="the image is pulled",
        grace_s=0.0 if now else FINAL_PULL_S if final else OTHER_PULL_S,
    ).advised(said)


def start_error(issue: Issue) -> PodSymptom:
    """Judge a container that the runtime could not start."""
    said = read_text("runtime", str(issue))
    fault = (said and said.why) or "container.start"
    rank = KILLED if fault == "container.oom" else NOT_STARTED
    return PodSymptom(fault=fault, issue=issue, err_class=blame(said), rank=rank).advised(said)


def blame(said: Detail | None, otherwise: str | None = ERR_INFRA) -> str | None:
    """Return the failure's class, by the class of its message."""
    return _BLAME.get(said.variant.failure) if said and said.variant else otherwise


_BLAME = {INFRASTRUCTURE: ERR_INFRA, PROGRAM: ERR_PROGRAM}


def terminated(status: Unstructured) -> PodSymptom | None:
    """Judge an ended container; None if it exited with 0."""
    state = as_map(as_map(status.get("state")).get("terminated"))
    if not state:
        return None
    reason, message = safe(state.get("reason") or "Error", 100), safe(state.get("message") or "")
    code = state.get("exitCode")
    when = str(state.get("finishedAt") or "")
    if reason == "OOMKilled":
        return PodSymptom(
            fault="container.oom",
            issue=Issue(reason, f"container {status.get('name')} was OOM-killed, exit code {code}"),
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
    said = read_text("exit", f"{reason}: exit code {code}")
    text = f"container {status.get('name')} ended with exit code {code}"
    # A termination message may be an entire document of the program's; only errors are reported.
    if message and not message.startswith(("{", "[")):
        text += f": {message}"
    return PodSymptom(
        fault="job.failed",
        issue=Issue(reason, safe(text)),
        err_class=blame(said, ERR_PROGRAM),
        expected="exit code 0",
        rank=EXITED,
        when=when,
    ).advised(said)


def overdue(issue: Issue, when: str = "") -> PodSymptom:
    """Judge a job or pod that exceeded its own deadline."""
    return PodSymptom(
        fault="job.deadline",
        issue=issue,
        err_class=ERR_PROGRAM,
        expected="the job ends before its deadline",
        rank=OVERDUE,
        when=when,
    )


def disruption(issue: Issue, when: str = "") -> PodSymptom:
    """Judge an external interruption: not a fault, to be retried."""
    return PodSymptom(
        fault="job.disrupted",
        issue=issue,
        suggestion=INTERRUPTED,
        err_class=None,
        expected=UNDISTURBED,
        rank=DISRUPTED,
        disrupted=True,
        when=when,
    ).advised(read_text("pressure", issue.message))
