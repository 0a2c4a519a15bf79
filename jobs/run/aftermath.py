"""The aftermath of an interruption: whether to retry a trial, and which failures of the retry follow from it."""

from __future__ import annotations

import re
from dataclasses import replace

from seatrial.faults.catalogue import catalogue

from ..cluster.client.errors import ClusterError
from ..cluster.client.kube import Kube, path
from ..cluster.facts.events import about, read_events
from ..cluster.facts.inventory import read_pod
from ..cluster.facts.namespace import namespace_state
from ..cluster.redact import safe
from ..cluster.unstructured import uid_of
from ..diagnosis.state import FailureAnalysis, JobState, interrupted
from .result import TrialResult


def interruption(result: TrialResult) -> FailureAnalysis | None:
    """Return the external interruption of a trial that justifies another attempt; None without one."""
    cause = result.analysis
    again = cause is not None and (cause.disrupted or _raced(cause)) and result.state is not JobState.CANCELED
    return cause if again else None


def _raced(cause: FailureAnalysis) -> bool:
    """Return whether a kubelet had no room for a pod that the scheduler had just bound.

    Another pod on that node was terminating.

    Controllers then create a new pod (kubernetes/kubernetes#106884); a Job without retries needs another Job.
    """
    return cause.fault == "container.start" and re.search(r"\bOutOf[a-z]", cause.observed) is not None


def namespace_gone(kube: Kube, namespace: str) -> str:
    """Report that the namespace is being deleted, or was; '' if it exists or its state is unknown."""
    try:
        state = namespace_state(kube, namespace)
    except ClusterError:
        return ""
    doing = {"namespace.terminating": "is being deleted", "namespace.missing": "was deleted"}.get(state.fault)
    return f"namespace {namespace} {doing}" if doing else ""


def by_namespace(kube: Kube, namespace: str, result: TrialResult) -> TrialResult:
    """Return the result of a trial that lost its namespace as an interruption, whatever its result.

    The namespace existed when the trial was created. A result reported before its deletion remains valid.
    """
    cause, gone = result.analysis, any(replica.phase in ("Gone", "Terminating") for replica in result.replicas)
    said = namespace_gone(kube, namespace) if cause is not None or gone or not result.replicas else ""
    if not said:
        return result
    if cause is None:
        return replace(result, warnings=(*result.warnings, f"{said}, and with it the trial's pods"))
    text = safe(f"{said}: {cause.observed}", 1500)
    return replace(result, analysis=interrupted(cause.subject, text, expected="the trial's namespace is not deleted"))


def not_again(first: TrialResult, why: str) -> TrialResult:
    """Return the interrupted attempt as the last one, with the reason."""
    cause = first.analysis
    return first if cause is None else replace(first, analysis=replace(cause, observed=safe(why, 1500)))


# Reasons, or sources, of events about a removed pod: of the scheduler, the kubelet, the taint manager, autoscalers, the
# descheduler (kubernetes, kubernetes/autoscaler, kubernetes-sigs/karpenter and descheduler).
_TAKING = re.compile(r"(?i)evict|preempt|drain|disrupt|deschedul|scaledown")
# kubernetes pkg/scheduler/framework/preemption: "Preempted by pod UID on node NAME".
_BY_POD = re.compile(r"\bby pod ([0-9a-f]{8}-[0-9a-f-]{27})\b")


def deleted_by(kube: Kube, namespace: str, result: TrialResult, *, sees_pods: bool) -> TrialResult:
    """Return the result with the cause of the pod's deletion, from events that arrive later."""
    cause = result.analysis
    replica = next((each for each in result.replicas if cause and each.pod and each.pod == cause.subject), None)
    if cause is None or not cause.disrupted or replica is None:
        return result
    try:
        items, _ = kube.list(path("events", namespace=namespace), fieldSelector=f"involvedObject.name={replica.pod}")
    except ClusterError:
        return result
    events = about(read_events(items), "Pod", replica.pod)
    taking = [event for event in events if _TAKING.search(f"{event.reason} {event.source}")]
    reasons = [f"{event.source or event.reason}: {event.message}" for event in taking[-1:]]
    if not reasons and ": Deleted: " in cause.observed:
        reasons = ["no event names the user; the API server's audit log may"]
    text = "; ".join([cause.observed, *reasons])
    for by in _BY_POD.finditer("".join(reasons)):  # includes the pod's condition, and adds the component
        named = reasons[0].replace(by[1], _named(kube, by[1], replica.node if sees_pods else "", namespace))
        before, found, _ = cause.observed.partition(f"pod {replica.pod}")  # in a namespace that is being deleted
        text = f"{before if found else ''}pod {replica.pod}{f' on {replica.node}' if replica.node else ''}: {named}"
    text = safe(text, 1500)
    return replace(result, analysis=replace(cause, observed=text))


def _named(kube: Kube, uid: str, node: str, namespace: str) -> str:
    """Name the pod of this uid and its owner, searching the node, or without a node the namespace."""
    where = path("pods") if node else path("pods", namespace=namespace)
    try:
        pods, _ = kube.list(where, fieldSelector=f"spec.nodeName={node}" if node else "")
    except ClusterError:
        return uid
    return next((str(read_pod(pod)) for pod in pods if uid_of(pod) == uid), uid)


def after(first: TrialResult, second: TrialResult, attempt: int) -> TrialResult:
    """Return the result of a further attempt, or the first cause if it failed only because of the interruption.

    A node that is now missing is a consequence only if every rank had a node in the previous attempt.
    """
    cause, later = first.analysis, second.analysis
    if (
        cause is not None
        and later is not None
        and catalogue().is_so(later.fault, "aftermath")
        and (later.disrupted or _had_nodes(first))
    ):
        text = f"{cause.observed}; retry: {later.observed}"
        later = replace(cause, observed=safe(text, 1500))
    interrupted_by = (*first.interrupted, cause.observed) if cause is not None else first.interrupted
    return replace(second, analysis=later, attempts=attempt, interrupted=interrupted_by)


def _had_nodes(result: TrialResult) -> bool:
    """Return whether every rank was bound to a node, by its pod or its remaining events."""
    placed = {replica.pod for replica in result.replicas if replica.node}
    placed |= {match[1] for event in result.events if (match := re.match(r"Scheduled pod/([^\s:]+)", event))}
    return len(placed) >= max(len(result.replicas), 1)
