"""How long do we wait for a trial, and why do we stop?

Every wait has a deadline, and ends early when what it waits for can no longer come: the diagnosis says whether waiting
may help, and for how long. An outage of the API server is waited out within bounds. The last state is always told.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from .diagnosis import diagnose
from .errors import ApiError, ClusterError
from .events import read_events
from .kube import path
from .logs import Follower
from .manifests import CONTAINER
from .mirror import Mirror
from .raw import as_list, as_map
from .state import ERR_INFRA, FailureAnalysis, JobState, Replica

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .kube import Kube

_TICK_S = 0.5
_EVENTS_EVERY_S = 2.0
_NODES_EVERY_S = 20.0
# A control plane that is being upgraded is back within two minutes; longer, and nobody can tell what happened.
OUTAGE_S = 120.0
# A native sidecar has ended by then (the pods' grace period is 10 s); any other one never does.
_LINGER_S = 30.0
# How long a log may lag behind its finished container before it is given up.
_BEHIND_S = 15.0  # a watch that was lost is made anew within seconds
_DRAIN_S = 15.0
# More pods than this, and one list of all events is cheaper than asking for each.
_FEW = 8
_MOST_NODES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Until when, in seconds from the start."""

    start_s: float
    job_s: float


@dataclass(slots=True)
class Outcome:
    """What the vigil saw last."""

    state: JobState = JobState.PENDING
    replicas: tuple[Replica, ...] = ()
    analysis: FailureAnalysis | None = None
    pods: list[dict[str, Any]] = field(default_factory=list)
    aborted: bool = False
    lingering: str = ""


class Vigil:
    """Watches one job until it ends or cannot any more; follows the logs of its pods meanwhile."""

    def __init__(
        self,
        kube: Kube,
        *,
        job: str,
        namespace: str,
        run: str,
        limits: Limits,
        selector: str = "",
        logs: Path | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._kube, self._job, self._namespace, self._run = kube, job, namespace, run
        self._limits, self._selector, self._logs, self._progress = limits, selector, logs, progress
        self._changed = threading.Condition()
        self._jobs = Mirror(kube, path("jobs", namespace=namespace, group="batch"), self._changed,
                            fieldSelector=f"metadata.name={job}")  # fmt: skip
        self._pods = Mirror(kube, path("pods", namespace=namespace), self._changed,
                            labelSelector=f"batch.kubernetes.io/job-name={job}")  # fmt: skip
        self.followers: dict[str, Follower] = {}
        self._events: list[Any] = []
        self._nodes: list[Any] = []
        self._asked_events = self._asked_nodes = -1e9
        self._hopeless_since: tuple[str, float] | None = None
        self._ended_since: float | None = None
        self._began = time.monotonic()
        self._last_job: dict[str, Any] | None = None
        self._told = ""

    def keep(self) -> Outcome:
        """Wait; return what was seen last. Raises ClusterError only where the job could never be read."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._end_followers)
            stack.enter_context(self._jobs)
            stack.enter_context(self._pods)
            outcome = Outcome()
            while True:
                self._look(outcome)
                if self._over(outcome):
                    break
                with self._changed:
                    self._changed.wait(_TICK_S)
            self._catch_up(outcome)
            self._look(outcome, final=True)
            if not outcome.aborted:
                # Whoever cancels a job is not interested in the rest of its logs.
                self._drain(_DRAIN_S if outcome.state is not JobState.CANCELED else 2.0)
            return outcome

    def _catch_up(self, outcome: Outcome) -> None:
        """Let the pods' watch reach a Job that is Complete: its log would else not be followed, its evidence lost.

        Job and pods are two watches, and either may lag behind the other when the API server has a bad day.
        """
        end = time.monotonic() + _BEHIND_S
        while outcome.state is JobState.COMPLETE and not outcome.aborted and time.monotonic() < end:
            if outcome.pods and all(_has_started(pod) for pod in outcome.pods):
                return
            with self._changed:
                self._changed.wait(_TICK_S)
            self._look(outcome)

    # -- looking -----------------------------------------------------------------------------------------------------

    def _look(self, outcome: Outcome, *, final: bool = False) -> None:
        jobs, pods = self._jobs.objects(), self._pods.objects()
        if not (self._jobs.synced and self._pods.synced):
            return
        job = jobs[0] if jobs else self._departed()
        self._last_job = job
        outcome.pods = pods
        self._follow(pods)
        if final or not _all_running(job, pods):
            self._read_events(pods, now=final)
        state, replicas, analysis = diagnose(job, pods, self._events, self._nodes, name=self._job)
        if analysis is not None and self._read_nodes(now=final):
            state, replicas, analysis = diagnose(job, pods, self._events, self._nodes, name=self._job)
        if outcome.aborted:
            return
        outcome.state, outcome.replicas, outcome.analysis = state, replicas, analysis
        self._say(outcome)

    def _departed(self) -> dict[str, Any] | None:
        """The job as last seen, if it was seen: somebody has deleted it, also where no event says so."""
        if self._last_job is None:
            return None
        meta = as_map(self._last_job.get("metadata"))
        return self._last_job | {"metadata": meta | {"deletionTimestamp": meta.get("deletionTimestamp") or "gone"}}

    def _follow(self, pods: list[dict[str, Any]]) -> None:
        for pod in pods:
            name = str(pod["metadata"]["name"])
            if name in self.followers or not _has_started(pod):
                continue
            follower = Follower(
                self._kube,
                name,
                namespace=self._namespace,
                container=CONTAINER,
                run=self._run,
                finished=partial(self._finished, name),
                file=self._logs / f"{name}.log" if self._logs else None,
                told=partial(self._heard, _rank(pod)),
            )
            self.followers[name] = follower
            follower.start()

    def _heard(self, rank: int, stage: str) -> None:
        if rank == 0:
            self._progress(f"rank 0: {stage} done")

    def _finished(self, name: str) -> bool:
        """Tell whether the container has ended for good, as far as the mirror knows."""
        pod = next((item for item in self._pods.objects() if item["metadata"]["name"] == name), None)
        if pod is None:
            return True
        if as_map(pod.get("status")).get("phase") in {"Succeeded", "Failed"}:
            return True
        return _has_ended(pod)

    def _read_events(self, pods: list[dict[str, Any]], *, now: bool) -> None:
        if not now and time.monotonic() - self._asked_events < _EVENTS_EVERY_S:
            return
        self._asked_events = time.monotonic()
        names = [self._job, *(str(pod["metadata"]["name"]) for pod in pods)]
        selectors = [f"involvedObject.name={name}" for name in names] if len(names) <= _FEW else [""]
        found: list[Any] = []
        # Events only explain: without them (no right, an outage) the objects still tell what is wrong.
        with contextlib.suppress(ClusterError):
            for selector in selectors:
                url_path = path("events", namespace=self._namespace)
                found += self._kube.list(url_path, fieldSelector=selector, deadline_s=10.0)[0]
            kept = {_uid(item): item for item in [*self._events, *found] if isinstance(item, dict)}
            self._events = list(kept.values())

    def _read_nodes(self, *, now: bool) -> bool:
        if not now and time.monotonic() - self._asked_nodes < _NODES_EVERY_S:
            return False
        if self._asked_nodes == float("inf"):
            return False
        self._asked_nodes = time.monotonic()
        try:
            for page, _ in self._kube.pages(path("nodes"), labelSelector=self._selector, deadline_s=20.0):
                self._nodes = [_small(node) for node in page if isinstance(node, dict)][:_MOST_NODES]
                break
        except ApiError:
            self._asked_nodes = float("inf")  # a tenant does not see nodes; that does not change meanwhile
            return False
        except ClusterError:
            return False
        return True

    # -- deciding ----------------------------------------------------------------------------------------------------

    def _over(self, outcome: Outcome) -> bool:
        waited = time.monotonic() - self._began
        if self._outage(outcome, waited):
            return True
        if not (self._jobs.synced and self._pods.synced):
            return False
        if outcome.state.final or self._given_up(outcome, waited) or self._lingers(outcome):
            return True
        started = sum(1 for pod in outcome.pods if _has_started(pod))
        if waited > self._limits.start_s and started < max(len(outcome.replicas), 1):
            self._abort(outcome, self._too_late(outcome, waited, started))
            return True
        if waited > self._limits.job_s + _DRAIN_S:
            self._abort(outcome, self._overdue(outcome, waited))
            return True
        return False

    def _given_up(self, outcome: Outcome, waited: float) -> bool:
        """Stop when the same hopeless cause has lasted longer than it may."""
        cause = outcome.analysis
        if cause is None or not cause.hopeless:
            self._hopeless_since = None
            return False
        key = f"{cause.fault} {cause.subject}"
        if self._hopeless_since is None or self._hopeless_since[0] != key:
            self._hopeless_since = (key, time.monotonic())
        if time.monotonic() - self._hopeless_since[1] < cause.grace_s:
            return False
        told = replace(cause, observed=f"{cause.observed} (given up after {waited:.0f} s: waiting cannot help)")
        self._abort(outcome, told)
        return True

    def _lingers(self, outcome: Outcome) -> bool:
        """Stop when every trial container has ended and only others keep the pods: an injected sidecar never ends."""
        wanted = as_map((self._last_job or {}).get("spec")).get("parallelism") or 1
        if sum(1 for pod in outcome.pods if _has_ended(pod)) < wanted:
            self._ended_since = None
            return False
        self._ended_since = self._ended_since or time.monotonic()
        others = [f"{pod['metadata']['name']}: {name}" for pod in outcome.pods for name in _still_running(pod)]
        if not others or time.monotonic() - self._ended_since < _LINGER_S:
            return False
        outcome.lingering = (
            f"the trial has ended but other containers keep its pods running ({', '.join(others[:4])}): a Job in this "
            "namespace never completes; exempt its pods from the injection, or make these native sidecars"
        )
        return True

    def _outage(self, outcome: Outcome, waited: float) -> bool:
        """Wait a while for an API server that is gone; raise where the job could never be read at all."""
        for mirror in (self._jobs, self._pods):
            error, silent = mirror.error, mirror.silent_s()
            if error is None:
                continue
            if not mirror.synced and (isinstance(error, ApiError) or silent > OUTAGE_S):
                raise error
            if silent > OUTAGE_S:
                outcome.state = JobState.UNKNOWN
                self._abort(outcome, self._silence(error, silent, waited))
                return True
        return False

    def _silence(self, error: ClusterError, silent: float, waited: float) -> FailureAnalysis:
        return FailureAnalysis(
            fault="api.unreachable",
            subject=self._kube.server,
            observed=f"no answer for {silent:.0f} s while job {self._job} ran, {waited:.0f} s after its start: {error}",
            expected="the API server answers",
            suggestion="Look at the control plane, then run it again.",
        )

    def _too_late(self, outcome: Outcome, waited: float, started: int) -> FailureAnalysis:
        wanted = len(outcome.replicas)
        late = next((r for r in outcome.replicas if r.phase == "Pending"), None)
        last = self._last(outcome)
        words = f"{wanted - started} of {wanted} pods have not started after {waited:.0f} s; {last}"
        cause = outcome.analysis
        if cause is not None:
            return replace(cause, observed=f"job {self._job}: {words}", hopeless=True)
        queued = as_map((self._last_job or {}).get("spec")).get("suspend") is True
        return FailureAnalysis(
            fault="job.start-timeout",
            subject=late.pod if late and late.pod else f"job/{self._job}",
            observed=f"job {self._job}: {words}",
            expected=f"all pods started within {self._limits.start_s:.0f} s",
            suggestion="It is suspended: its queue has not let it start. Wait for room there, or raise start_s."
            if queued
            else "The last event names what it waits for: a large image, an address or a volume.",
            err_class=None if queued else ERR_INFRA,  # a full queue says nothing about the cluster
        )

    def _overdue(self, outcome: Outcome, waited: float) -> FailureAnalysis:
        return FailureAnalysis(
            fault="job.deadline",
            subject=f"job/{self._job}",
            observed=f"job {self._job} is still {outcome.state} after {waited:.0f} s; {self._last(outcome)}",
            expected=f"the job ends within {self._limits.job_s:.0f} s",
            suggestion="The probe ends well before this: look at the last lines of the logs for what it waited for.",
        )

    def _last(self, outcome: Outcome) -> str:
        """The last state and the last event, for the message of a wait that ended in vain."""
        issues = [f"{r.pod or f'rank {r.index}'}: {r.readiness_issue}" for r in outcome.replicas if r.readiness_issue]
        phases = [f"{r.pod or f'rank {r.index}'} {r.phase}" for r in outcome.replicas]
        names = {self._job, *(r.pod for r in outcome.replicas if r.pod)}
        events = [event for event in read_events(self._events) if event.name in names]
        events = [event for event in events if event.warning] or events
        last = f"; last event: {events[-1]}" if events else ""
        return "last state: " + ("; ".join((issues or phases)[:3]) or "no pods") + last

    def _abort(self, outcome: Outcome, analysis: FailureAnalysis) -> None:
        outcome.analysis = analysis
        outcome.aborted = not outcome.state.final

    # -- ending ------------------------------------------------------------------------------------------------------

    def _drain(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for follower in self.followers.values():
            follower.join(max(0.0, end - time.monotonic()))

    def _end_followers(self) -> None:
        for follower in self.followers.values():
            follower.stop()

    def _say(self, outcome: Outcome) -> None:
        counts: dict[str, int] = {}
        for replica in outcome.replicas:
            counts[replica.phase] = counts.get(replica.phase, 0) + 1
        words = ", ".join(f"{count} {phase}" for phase, count in sorted(counts.items())) or "no pods yet"
        issue = next((r.readiness_issue for r in outcome.replicas if r.readiness_issue), None)
        words = f"{self._job} {outcome.state}: {words}" + (f" ({issue})"[:200] if issue else "")
        if words != self._told:
            self._told = words
            self._progress(words)


def _all_running(job: dict[str, Any] | None, pods: list[dict[str, Any]]) -> bool:
    wanted = as_map((job or {}).get("spec")).get("parallelism") or 1
    running = [pod for pod in pods if as_map(pod.get("status")).get("phase") in {"Running", "Succeeded"}]
    return job is not None and len(running) >= wanted


def _has_started(pod: dict[str, Any]) -> bool:
    """Tell whether the trial's container runs or has run: then there is a log."""
    for entry in _statuses(pod):
        if entry.get("name") == CONTAINER:
            state = as_map(entry.get("state"))
            return "running" in state or "terminated" in state or bool(as_map(entry.get("lastState")).get("terminated"))
    return False


def _has_ended(pod: dict[str, Any]) -> bool:
    """Tell whether the trial's container has run to its end."""
    states = [as_map(entry.get("state")) for entry in _statuses(pod) if entry.get("name") == CONTAINER]
    return any("terminated" in state for state in states)


def _still_running(pod: dict[str, Any]) -> list[str]:
    """The other containers of a pod that run."""
    return [
        str(entry.get("name"))
        for entry in _statuses(pod)
        if entry.get("name") != CONTAINER and "running" in as_map(entry.get("state"))
    ]


def _statuses(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return as_list(as_map(pod.get("status")).get("containerStatuses"))


def _rank(pod: dict[str, Any]) -> int:
    text = str(as_map(as_map(pod.get("metadata")).get("labels")).get("batch.kubernetes.io/job-completion-index") or "")
    return int(text) if text.isdigit() else -1


def _uid(item: dict[str, Any]) -> str:
    meta = as_map(item.get("metadata"))
    return str(meta.get("uid") or meta.get("name"))


def _small(node: dict[str, Any]) -> dict[str, Any]:
    """What the diagnosis reads of a node."""
    meta, spec, status = (as_map(node.get(key)) for key in ("metadata", "spec", "status"))
    return {
        "metadata": {"name": meta.get("name")},
        "spec": {"taints": as_list(spec.get("taints"))},
        "status": {key: status.get(key) for key in ("conditions", "capacity", "allocatable")},
    }
