"""The deadlines of a trial, and the message of a wait that ended without success.

"Timeout" alone is not a message: each one reports the duration, the condition, the last state and the last event.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ..cluster.client.errors import ClusterError
from ..cluster.facts.events import read_events
from ..cluster.unstructured import Unstructured
from ..diagnosis.state import ERR_INFRA, FailureAnalysis, JobState, Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The deadlines in seconds; the pods' time begins when the queue has admitted the job."""

    start_s: float
    job_s: float
    queue_s: float = 1800.0


@dataclass(slots=True)
class WatchOutcome:
    """The last state that the watcher saw."""

    state: JobState = JobState.PENDING
    replicas: tuple[Replica, ...] = ()
    analysis: FailureAnalysis | None = None
    pods: list[Unstructured] = field(default_factory=list)
    aborted: bool = False
    lingering: str = ""


def silence(server: str, job: str, error: ClusterError, silent: float, waited: float) -> FailureAnalysis:
    """Report that the API server has not answered for longer than a control plane's upgrade takes."""
    return FailureAnalysis(
        fault="api.unreachable",
        subject=server,
        observed=f"no answer for {silent:.0f} s while job {job} ran, {waited:.0f} s after its start: {error}",
        expected="the API server answers",
        suggestion="Look at the control plane, then run it again.",
    )


def locked_out(server: str, job: str, error: ClusterError, waited: float) -> FailureAnalysis:
    """Report that our credentials expired while the job ran."""
    return FailureAnalysis(
        fault="api.unauthorized",
        subject=server,
        observed=f"the credentials were no longer accepted, {waited:.0f} s after job {job} began: {error}",
        expected="credentials that outlive the trial",
        suggestion="A token that expires (kubectl create token, an SSO login) must last longer than the trial.",
    )


def never_let_in(job: str, limits: Limits, outcome: WatchOutcome, waited: float, last: str) -> FailureAnalysis:
    """Report that the queue's deadline has passed, with its last message, if any."""
    text = f"job {job} was not admitted by its queue within {waited:.0f} s; {last}"
    cause = outcome.analysis
    if cause is not None:
        return replace(cause, observed=f"{text}; {cause.observed}", hopeless=True)
    return FailureAnalysis(
        fault="queue.waiting",
        subject=f"job/{job}",
        observed=text,
        expected=f"the queue admits the job within {limits.queue_s:.0f} s",
        suggestion="Wait for room there, or raise deadlines.queue_s in the profile.",
    )


def too_late(
    job: str, limits: Limits, outcome: WatchOutcome, waited: float, started: int, last: str, *, queued: bool
) -> FailureAnalysis:
    """Report that some pods have not started in their time."""
    pods = len(outcome.replicas)
    late = next((r for r in outcome.replicas if r.phase == "Pending"), None)
    text = f"{pods - started} of {pods} pods have not started after {waited:.0f} s; {last}"
    cause = outcome.analysis
    if cause is not None:
        return replace(cause, observed=f"job {job}: {text}", hopeless=True)
    return FailureAnalysis(
        fault="job.start-timeout",
        subject=late.pod if late and late.pod else f"job/{job}",
        observed=f"job {job}: {text}",
        expected=f"all pods started within {limits.start_s:.0f} s",
        suggestion="It is suspended: its queue has not admitted it. Wait for room there, or raise start_s."
        if queued
        else "The last event names the reason: a large image, an address or a volume."
        if any(replica.pod for replica in outcome.replicas)
        else "No pod of this job was created, and no event shows the cause. Does the controller of such jobs run "
        "(kube-controller-manager, or the operator of this kind), and does it lead (kubectl get leases -A)?",
        err_class=None if queued else ERR_INFRA,  # a full queue shows nothing about the cluster
    )


def overdue(job: str, limits: Limits, outcome: WatchOutcome, waited: float, last: str) -> FailureAnalysis:
    """Report that the job exceeds its own deadline."""
    return FailureAnalysis(
        fault="job.deadline",
        subject=f"job/{job}",
        observed=f"job {job} is still {outcome.state} after {waited:.0f} s; {last}",
        expected=f"the job ends within {limits.job_s:.0f} s",
        suggestion="The probe ends well before this: the last lines of the logs show the reason.",
    )


def last_state(job: str, outcome: WatchOutcome, items: Iterable[Any]) -> str:
    """Describe the last state and the last event."""
    issues = [f"{r.pod or f'rank {r.index}'}: {r.readiness_issue}" for r in outcome.replicas if r.readiness_issue]
    phases = [f"{r.pod or f'rank {r.index}'} {r.phase}" for r in outcome.replicas]
    names = {job, *(r.pod for r in outcome.replicas if r.pod)}
    events = [event for event in read_events(items) if event.name in names]
    events = [event for event in events if event.warning] or events
    last = f"; last event: {events[-1]}" if events else ""
    return "last state: " + ("; ".join((issues or phases)[:3]) or "no pods") + last
