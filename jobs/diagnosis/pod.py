"""The symptom of one pod, excluding consequences of its peers' failures.

A pod shows it in several places (conditions, status.reason, container states, events), and some may be missing. They
are read in order of reliability. A pod that ended because its Job was failing has no symptom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from seatrial.faults.catalogue import read_text

from ..cluster.facts.events import Event, latest
from ..cluster.redact import safe
from ..cluster.unstructured import Unstructured, as_list, as_map, by_type, statuses_of
from .grace_periods import DELETED_S, NODE_LOST_S
from .history import asked_at, sidecar_names, was_taken
from .not_started import never_started, pending, preparing, unschedulable, waiting_container
from .state import ERR_INFRA, ERR_PROGRAM, Issue
from .symptoms import KILLED, LOST, NOT_FOUND, PodSymptom, Surroundings, disruption, overdue, start_error, terminated

# The reason of the condition Ready once all containers have ended (kubernetes pkg/kubelet/status,
# GeneratePodReadyCondition).
_ENDED = ("PodCompleted", "PodFailed")
_DISRUPTED = frozenset({"Preempting", "Preempted", "NodeShutdown", "Terminated", "Shutdown", "Evicted"})


def examine(pod: Unstructured, around: Surroundings) -> PodSymptom | None:
    """Find the pod's symptom; None if the pod is healthy or only follows its Job's end."""
    meta, spec, status = (as_map(pod.get(key)) for key in ("metadata", "spec", "status"))
    phase = status.get("phase")
    issue = _interrupted(status, around) or _rejected(status)
    if issue is not None and phase == "Failed":
        issue = replace(issue, grace_s=DELETED_S)  # its Job reports it shortly
    if phase == "Succeeded":
        # A program that exits with 0 on SIGTERM makes its interrupted pod a success, so podFailurePolicy does not
        # apply.
        issue = None if around.probe_ended else issue or _evicted(around.events) or _cut_short(pod, around)
    elif issue is None and was_taken(pod, around.taken):
        issue = (
            (_node_lost(status, around) if phase == "Running" else None)
            or _deleted(meta, around)
            # A deadline may have ended its wait.
            or (pending(pod, spec, status, around) if phase in ("Pending", None) else None)
        )
    elif issue is None:
        issue = (
            (_ended(spec, status, around) if phase == "Failed" else None)
            or _ending(spec, status, around)
            or _node_lost(status, around)
            or (waiting_container(spec, status, around) if phase == "Running" else None)
            or (pending(pod, spec, status, around) if phase in ("Pending", None) else None)
        )
    return issue.at(pod=str(meta.get("name") or ""), node=str(spec.get("nodeName") or "")) if issue else None


def _evicted(events: Sequence[Event]) -> PodSymptom | None:
    """Judge a pod that succeeded when its kubelet evicted it: only its events show it."""
    event = latest(events, "Evicted", "Preempted", "Preempting")
    if event is None:
        return None
    if event.reason == "Evicted" and _exceeds_own_limit(event.message):
        return _own_limit({"message": event.message})
    return disruption(Issue(event.reason, event.message), event.when)


def _cut_short(pod: Unstructured, around: Surroundings) -> PodSymptom | None:
    """Judge a pod that succeeded after its deletion was requested."""
    return _deleted(as_map(pod.get("metadata")), around) if was_taken(pod, around.taken) else None


def unready(pod: Unstructured, events: Sequence[Event]) -> Issue | None:
    """Explain why a running pod is not ready (a failing probe), or why scheduling is suspended.

    A pod with ended containers is not ready either, before its phase shows it; that is not an issue.
    """
    status = as_map(pod.get("status"))
    conditions = by_type(status)
    gated = conditions.get("PodScheduled") or {}
    if gated.get("reason") == "SchedulingGated":
        return Issue("SchedulingGated", safe(gated.get("message") or ""))
    ready = conditions.get("Ready") or {}
    if status.get("phase") != "Running" or ready.get("status") == "True" or not ready:
        return None
    containers = statuses_of(status)
    if ready.get("reason") in _ENDED or (
        containers and all(each.get("ready") or _is_done(each) for each in containers)
    ):
        return None
    probe = latest(events, "Unhealthy")
    texts = [safe(ready.get("message") or ""), probe.message if probe else ""]
    return Issue(safe(ready.get("reason") or "NotReady", 100), "; ".join(word for word in texts if word))


def _is_done(container: Unstructured) -> bool:
    """Return whether a container has exited with 0."""
    return as_map(as_map(container.get("state")).get("terminated")).get("exitCode") == 0


def lost(node: Unstructured | None, status: Unstructured, events: Sequence[Event]) -> bool:
    """Return whether the pod's node stopped reporting: by the node's conditions if visible, else by the pod's events.

    The node's taints and its events are no proof: both outlive the failure (taints by seconds, events by an hour).
    """
    if node:
        ready = by_type(as_map(node.get("status"))).get("Ready") or {}
        return ready.get("status") in ("False", "Unknown")
    if (by_type(status).get("Ready") or {}).get("status") == "True":
        return False
    return latest(events, "NodeNotReady") is not None


def _interrupted(status: Unstructured, around: Surroundings) -> PodSymptom | None:
    target = by_type(status).get("DisruptionTarget") or {}
    if target.get("status") != "True":
        return None
    reason = safe(target.get("reason") or "DisruptionTarget", 100)
    text = (
        status.get("message") if reason == "TerminationByKubelet" and status.get("message") else target.get("message")
    )
    issue, when = Issue(reason, safe(text or "")), str(target.get("lastTransitionTime") or "")
    if reason == "DeletionByTaintManager" and lost(around.node, status, around.events):
        return _node(issue, when)
    if status.get("reason") == "Evicted" and _exceeds_own_limit(str(status.get("message") or "")):
        return _own_limit(status)
    return disruption(issue, when)


def _rejected(status: Unstructured) -> PodSymptom | None:
    reason, message = safe(status.get("reason") or "", 100), safe(status.get("message") or "")
    issue = Issue(reason, message)
    if reason == "NodeLost":
        return _node(issue, "")
    if reason == "DeadlineExceeded":
        return overdue(issue)
    if reason == "Evicted" and _exceeds_own_limit(message):
        return _own_limit(status)
    return disruption(issue) if reason in _DISRUPTED else _not_admitted(issue)


def _not_admitted(issue: Issue) -> PodSymptom | None:
    """Judge a pod that was bound to a node and rejected by its kubelet."""
    said = read_text("admission", str(issue)) if issue.reason else None
    if said is None or said.why is None:
        return None
    return replace(start_error(issue), fault=said.why, err_class=ERR_INFRA).advised(said)


def _exceeds_own_limit(message: str) -> bool:
    """Find failures of the pod itself that the kubelet reports as an eviction (pkg/kubelet/eviction/helpers.go)."""
    return read_text("eviction", message) is not None


def _own_limit(status: Unstructured) -> PodSymptom:
    return PodSymptom(
        fault="job.failed",
        issue=Issue("Evicted", safe(status.get("message") or "")),
        err_class=ERR_PROGRAM,
        expected="the pod stays within its own limits",
    ).advised(read_text("eviction", str(status.get("message") or "")))


def _ending(spec: Unstructured, status: Unstructured, around: Surroundings) -> PodSymptom | None:
    """Judge a pod with a container that failed for good; the pod's status follows a second later."""
    if spec.get("restartPolicy") != "Never" or status.get("phase") not in ("Pending", "Running"):
        return None
    sidecars = sidecar_names(spec)
    entries = {
        key: [entry for entry in as_list(status.get(key)) if str(entry.get("name")) not in sidecars]
        for key in ("initContainerStatuses", "containerStatuses")
    }
    if not any(terminated(entry) for each in entries.values() for entry in each):
        return None
    symptom = _ended(spec, {**status, **entries}, around)
    return replace(symptom, hopeless=False) if symptom else None


def _ended(spec: Unstructured, status: Unstructured, around: Surroundings) -> PodSymptom | None:
    """Choose among the containers of a failed pod: OOM-killed first, then main before sidecar, then the earliest."""
    sidecars = sidecar_names(spec)
    terminations = []
    for entry in statuses_of(status):
        symptom = terminated(entry)
        if symptom is not None:
            symptom = _restarted(_node_oom(symptom, entry, spec, around), status, around)
            terminations.append((symptom.rank, str(entry.get("name")) in sidecars, symptom.when, symptom))
    if terminations:
        return replace(min(terminations, key=lambda item: item[:3])[3], grace_s=DELETED_S)
    issue = Issue(safe(status.get("reason") or "PodFailed", 100), safe(status.get("message") or ""))
    if around.deleted_by_controller:
        return None
    return replace(start_error(issue), fault="job.failed", err_class=None, grace_s=DELETED_S)


def _node_oom(symptom: PodSymptom, entry: Unstructured, spec: Unstructured, around: Surroundings) -> PodSymptom:
    """Distinguish a node that ran out of memory from a container that exceeded its own limit.

    The kubelet reports SystemOOM for a kill without a container limit (pkg/kubelet/oom, "/"). A container without a
    memory limit cannot exceed one. SIGKILL with such a report is an OOM kill.
    """
    killing = latest(around.events, "SystemOOM")
    node_full = read_text("oom", "SystemOOM: ")
    if symptom.fault == "container.oom":
        named = (*as_list(spec.get("initContainers")), *as_list(spec.get("containers")))
        own = next((each for each in named if each.get("name") == entry.get("name")), {})
        limited = "memory" in as_map(as_map(own.get("resources")).get("limits"))
        if killing is None and limited:
            return symptom
        said = killing.message if killing else "it has no memory limit: the node ran out"
        issue = Issue(symptom.issue.reason, f"{symptom.issue.message}; {said}")
        return replace(symptom, issue=issue, err_class=ERR_INFRA).advised(node_full)
    code = as_map(as_map(entry.get("state")).get("terminated")).get("exitCode")
    killing = killing or latest(around.events, "OOMKilling")
    if code != 137 or killing is None or symptom.fault != "job.failed":
        return symptom
    issue = Issue("OOMKilled", f"{symptom.issue.message}; {killing.message}")
    return replace(symptom, fault="container.oom", rank=KILLED, issue=issue).advised(node_full)


def _restarted(symptom: PodSymptom, status: Unstructured, around: Surroundings) -> PodSymptom:
    """Attribute a container that its kubelet lost to the node, if the node was not Ready since the pod began.

    A restart of only the container runtime loses containers, too (255, Unknown); the node then was Ready all the time.
    """
    if symptom.issue.reason not in NOT_FOUND or not around.node:
        return symptom
    ready = by_type(as_map(around.node.get("status"))).get("Ready") or {}
    changed, began = str(ready.get("lastTransitionTime") or ""), str(status.get("startTime") or "")
    if not began or changed <= began:
        return symptom
    text = f"{symptom.issue.message}; its node was not ready meanwhile (Ready: {ready.get('status')} since {changed})"
    return _node(Issue(symptom.issue.reason, safe(text)), symptom.when)


def _deleted(meta: Unstructured, around: Surroundings) -> PodSymptom | None:
    """Judge a terminating pod: it was deleted externally, unless its Job's end explains it."""
    deletion = str(meta.get("deletionTimestamp") or "")
    if not deletion or around.job_ending or around.deleted_by_controller:
        return None
    asked = asked_at(deletion, meta.get("deletionGracePeriodSeconds"))
    if around.ending_since and asked > around.ending_since:
        return None
    event = latest(around.events, "Killing", "Preempted", "Evicted", "TaintManagerEviction")
    issue = Issue("Deleted", f"the pod was deleted by others ({event.message if event else deletion})")
    return replace(disruption(issue, asked), grace_s=DELETED_S)


def _node_lost(status: Unstructured, around: Surroundings) -> PodSymptom | None:
    if status.get("phase") not in ("Running", "Unknown") or not lost(around.node, status, around.events):
        return None
    ready = by_type(as_map(around.node.get("status"))).get("Ready") or {} if around.node else {}
    text = f"node is not ready: {safe(ready.get('reason') or '', 100)} {safe(ready.get('message') or '', 300)}".strip(
        ": "
    )
    return replace(_node(Issue("NodeNotReady", text), str(ready.get("lastTransitionTime") or "")), grace_s=NODE_LOST_S)


def _node(issue: Issue, when: str) -> PodSymptom:
    return PodSymptom(fault="node.lost", issue=issue, expected="the node stays Ready", rank=LOST, when=when)


def from_events(events: Sequence[Event]) -> PodSymptom | None:
    """Judge a deleted pod by its events; None if it was started and nothing else is known."""
    dead = latest(events, "NodeNotReady")
    evicted = latest(events, "TaintManagerEviction", "Evicted", "Preempted", "Preempting")
    if dead is not None:
        return _node(Issue(dead.reason, dead.message), dead.when)
    if evicted is not None:
        return disruption(Issue(evicted.reason, evicted.message), evicted.when)
    if latest(events, "Started"):
        return None
    failed = [event for event in events if event.reason == "Failed"]
    if failed:
        return never_started(failed)
    scheduling = latest(events, "FailedScheduling", "Scheduled")
    if scheduling and scheduling.reason == "FailedScheduling":
        return unschedulable(Issue("Unschedulable", scheduling.message), {}, Surroundings(events=events))
    return preparing(events)
