"""The symptom of a pod that has not started: unscheduled, not set up, or a waiting container."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import replace

from seatrial.faults.catalogue import INFRASTRUCTURE, read_text

from ..cluster.facts.events import Event, latest
from ..cluster.facts.scheduling import SCALING, read_unschedulable
from ..cluster.redact import safe
from ..cluster.unstructured import Unstructured, as_list, as_map, by_type, statuses_of
from .grace_periods import FINAL_PULL_S, JOINING_S, MOUNT_S, SANDBOX_S, SCHEDULER_S, YOUNG_S
from .state import ERR_INFRA, ERR_PROGRAM, Issue
from .symptoms import NOT_STARTED, PodSymptom, Surroundings, pull, start_error, waiting

_MOUNT = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_SCHEDULERS = ("FailedScheduling", "Scheduled", "Unschedulable", "NominatedNode")


def pending(pod: Unstructured, spec: Unstructured, status: Unstructured, around: Surroundings) -> PodSymptom | None:
    """Return why a Pending pod does not start: the scheduler, an init container, a volume; None without a reason."""
    scheduled = by_type(status).get("PodScheduled") or {}
    failed = latest(around.events, "FailedScheduling")
    if scheduled.get("status") == "False" and scheduled.get("reason") != "SchedulingGated":
        message = scheduled.get("message") or (failed.message if failed else "")
        return unschedulable(Issue(safe(scheduled.get("reason") or "Unschedulable", 100), safe(message)), pod, around)
    if not spec.get("nodeName") and not scheduled and failed:
        return unschedulable(Issue("Unschedulable", failed.message), pod, around)
    attended = spec.get("nodeName") or scheduled or around.queued or latest(around.events, *_SCHEDULERS)
    if not attended and not is_young(pod):
        return _unattended(spec)
    return waiting_container(spec, status, around) or preparing(around.events)


def is_young(pod: Unstructured) -> bool:
    """Return whether the pod was just created, by this machine's clock; missing reports then mean nothing."""
    try:
        made = datetime.datetime.fromisoformat(str(as_map(pod.get("metadata")).get("creationTimestamp")))
    except ValueError:
        return True
    return (datetime.datetime.now(datetime.UTC) - made).total_seconds() < YOUNG_S


def _unattended(spec: Unstructured) -> PodSymptom:
    """Judge a pod without any report of a scheduler: a scheduler reports a node or an error for every pod."""
    name = safe(spec.get("schedulerName") or "default-scheduler", 100)
    return PodSymptom(
        fault="job.no-scheduler",
        issue=Issue("NoScheduler", f"no scheduler has reported on it (schedulerName {name})"),
        subject=f"scheduler/{name}",
        expected="a scheduler binds the pod, or reports why not",
        rank=NOT_STARTED,
        grace_s=SCHEDULER_S,
    )


def unschedulable(issue: Issue, pod: Unstructured, around: Surroundings) -> PodSymptom:
    """Judge the scheduler's answer: the wait is longer if a node may still be added."""
    read = read_unschedulable(issue.message, pod, around.nodes, around.own_nodes)
    scaling = latest(around.events, *SCALING) is not None
    busy = "; in use by other workloads" if read.in_use else ""
    said = read_text("volumes" if read.volume else "scheduler", issue.message + busy)
    symptom = PodSymptom(
        fault="volume.mount" if read.volume else "job.unschedulable",
        issue=issue,
        expected="the pod is bound to a node",
        err_class=None if read.in_use else ERR_INFRA,  # a busy cluster is not at fault
        rank=NOT_STARTED,
        hopeless=read.hopeless and not scaling,
        grace_s=JOINING_S,
    ).advised(said)
    seen = f"seen: {read.hint}" if read.hint else ""
    return replace(symptom, suggestion="; ".join(filter(None, (symptom.suggestion, seen))))


def waiting_container(spec: Unstructured, status: Unstructured, around: Surroundings) -> PodSymptom | None:
    """Return the symptom of the first container that waits for more than its turn, init containers first."""
    declared = (*as_list(spec.get("initContainers")), *as_list(spec.get("containers")))
    images = {str(entry.get("name")): str(entry.get("image") or "") for entry in declared}
    for entry in statuses_of(status):
        symptom = waiting(entry, images.get(str(entry.get("name"))) or str(entry.get("image") or ""))
        if symptom is None:
            continue
        secret = latest(around.events, "FailedToRetrieveImagePullSecret")
        if symptom.fault == "image.pull" and secret is not None:
            advised = symptom.advised(read_text("registry", secret.message))
            if symptom.failure == INFRASTRUCTURE and symptom.grace_s != FINAL_PULL_S:
                advised = replace(
                    advised, failure=symptom.failure
                )  # no answer of the registry: a secret changes nothing
            else:
                advised = replace(advised, err_class=ERR_PROGRAM)
            return replace(advised, suggestion="; ".join(filter(None, (advised.suggestion, symptom.suggestion))))
        return symptom
    return None


def preparing(events: Sequence[Event]) -> PodSymptom | None:
    """Judge a scheduled pod without containers by its last problem: a volume, the sandbox, the network."""
    last = latest(
        events, *_MOUNT, "FailedCreatePodSandBox", "NetworkNotReady", "Pulling", "Pulled", "Created", "Started"
    )
    if last is None or not last.warning:
        return None
    issue = Issue(last.reason, last.message)
    if last.reason in _MOUNT:
        return PodSymptom(
            fault="volume.mount", issue=issue, expected="the pod's volumes are mounted", when=last.when, grace_s=MOUNT_S
        ).advised(read_text("volumes", last.message))
    symptom = replace(start_error(issue), when=last.when, grace_s=SANDBOX_S)
    return symptom if symptom.fault == "lab.machine" else replace(symptom, fault="container.start")


def never_started(failed: Sequence[Event]) -> PodSymptom:
    """Judge the kubelet's Failed events of a container that never ran."""
    for event in reversed(failed):
        if "pull image" in event.message:
            return pull(Issue("ErrImagePull", event.message), _quoted(event.message))
    message = failed[-1].message.removeprefix("Error: ")
    if read_text("kubelet", message) is not None:
        state = {"waiting": {"reason": "CreateContainerConfigError", "message": message}}
        return waiting({"state": state}, "") or start_error(Issue("Failed", message))
    return start_error(Issue("Failed", message))


def _quoted(message: str) -> str:
    match = re.search(r'image "([^"]+)"', message)
    return match[1] if match else ""
