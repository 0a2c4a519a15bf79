"""The watcher: follows a trial's objects and decides when to stop waiting, and why.

Every wait has a deadline, and ends early when its condition can no longer become true: the diagnosis shows whether
waiting may help, and for how long. An outage of the API server is waited out within bounds. The last state is always
reported.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..cluster.client.errors import ApiError, Unauthorized
from ..cluster.client.informer import Informer
from ..cluster.client.kube import Kube, path
from ..cluster.facts.events import Event
from ..cluster.facts.scheduling import SCALING
from ..cluster.unstructured import Unstructured, as_map, name_of, phase_of, uid_of
from ..diagnosis.grace_periods import DELETED_S
from ..diagnosis.history import History
from ..diagnosis.job import GONE
from ..diagnosis.not_started import is_young
from ..diagnosis.state import FailureAnalysis, JobState, Replica, interrupted
from ..diagnosis.verdict import diagnose
from ..listing import first_of
from ..trial.launchers import KINDS, Kind
from . import waiting
from .containers import has_ended, has_started, is_final, is_shaken, others_running
from .evidence import EvidenceReader, MultiplexedReader
from .explanations import Explanations, simulated, unreachable
from .logs import Follower
from .queueing import Queueing
from .waiting import Limits, WatchOutcome

Diagnosis = tuple[JobState, tuple[Replica, ...], FailureAnalysis | None]
_TICK_S = 0.5
# A control plane under upgrade is back within two minutes; after a longer outage, the outcome is unknown.
OUTAGE_S = 120.0
# A native sidecar has ended by then (the pods' grace period is 10 s); any other one never ends.
_LINGER_S = 30.0
# Seconds by which a log may lag behind its finished container before it is given up.
_BEHIND_S = 15.0  # a lost watch is restarted within seconds
_DRAIN_S = 15.0
COMPLETED = "PodCompleted"
"""The Ready condition's reason of a pod with only ended containers, in any phase."""
# One refused request may be an error of a proxy, or of a restarted API server; refusals for longer are permanent.
_EXPIRED_S = 10.0


class Watcher:
    """The watcher of one job until it ends or cannot continue, which also follows the logs of its pods."""

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
        kind: Kind = KINDS["indexed"],
        queueing: Queueing | None = None,
        ranks: int = 1,
        sees_nodes: bool = True,
        again: bool = False,
    ) -> None:
        """Prepare to watch; `again`: the previous attempt was interrupted."""
        self._again = again
        self._explanations = Explanations(kube, namespace, selector, sees_nodes=sees_nodes)
        self._kind, self.queueing, self._ranks = kind, queueing, ranks
        self._kube, self._job, self._namespace, self._run = kube, job, namespace, run
        self._limits, self._logs, self._progress = limits, logs, progress
        self._changed = threading.Condition()
        place = path(kind.resource, namespace=namespace, group=kind.group, version=kind.version)
        self._jobs = Informer(kube, place, self._changed, fieldSelector=f"metadata.name={job}")
        self._pods = Informer(kube, path("pods", namespace=namespace), self._changed, labelSelector=kind.selector(job))
        self.followers: dict[str, Follower] = {}
        self._hopeless_since: tuple[str, float] | None = None
        self._ended_since: float | None = None
        self._began = time.monotonic()
        self._let_in = self._began if queueing is None else None  # when the queue admitted it
        self._history = History()
        self._diagnosed: tuple[object, ...] = ()  # the input of the last diagnosis
        self._diagnosis: Diagnosis | None = None
        self._last_job: Unstructured | None = None
        self._last_said = ""
        self._late = ""  # text about ranks that have not started while others run

    @property
    def events(self) -> list[Event]:
        """The events of the job and its pods read so far."""
        return self._explanations.events

    def keep(self) -> WatchOutcome:
        """Wait; return the last state. Raises ClusterError only if the job could never be read."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._end_followers)
            stack.enter_context(self._jobs)
            stack.enter_context(self._pods)
            outcome = WatchOutcome()
            while True:
                self._look(outcome)
                if self._over(outcome):
                    break
                with self._changed:
                    self._changed.wait(_TICK_S)
            self._catch_up(outcome)
            self._look(outcome, final=True)
            last = {replica.pod for replica in outcome.replicas} - {name_of(pod) for pod in outcome.pods}
            outcome.pods = [*outcome.pods, *(pod for pod in self._pods.departed() if name_of(pod) in last)]
            if not outcome.aborted:
                # After a cancellation the rest of its logs is not needed.
                self._drain(_DRAIN_S if outcome.state is not JobState.CANCELED else 2.0, outcome.replicas)
            if outcome.analysis is None and outcome.state is JobState.COMPLETE:
                outcome.analysis = simulated(outcome.pods, self.followers, self._kind.container) or unreachable(
                    outcome.pods, self.followers
                )
            return outcome

    def _catch_up(self, outcome: WatchOutcome) -> None:
        """Wait until the pods' watch and the events have caught up with an ended Job: they explain its end.

        Job and pods have separate watches, and either may lag behind the other on a slow API server. Pods that are
        still missing then are judged by their absence.
        """
        end = time.monotonic() + _BEHIND_S
        while not outcome.aborted and time.monotonic() < end and self._behind(outcome):
            with self._changed:
                self._changed.wait(_TICK_S)
            self._look(outcome)

    def _behind(self, outcome: WatchOutcome) -> bool:
        """Return whether the Job has ended without its pods showing it yet."""
        if outcome.state is JobState.ERROR:
            return outcome.analysis is None or outcome.analysis.inferred
        telling = [pod for pod in [*outcome.pods, *self._pods.departed()] if self._kind.prints_evidence(pod)]
        return outcome.state is JobState.COMPLETE and not (
            telling and all(has_ended(pod, self._kind.container) for pod in telling)
        )

    def _taken_away(self, pods: list[Unstructured]) -> FailureAnalysis | None:
        """Detect a deleted pod: it may succeed, since the probe exits on SIGTERM, and its Job then succeeds, too."""
        here = {str(pod["metadata"]["name"]) for pod in pods}
        gone = sorted(set(self.followers) - here)
        ends = [self.followers[name].reader.end for name in gone]
        if self._kind.multiplexed or all(end is not None and not end["stopped"] for end in ends):
            return None  # nothing is gone, or it had reported everything before
        return interrupted(gone[0], f"pod {gone[0]}: deleted by others while the trial ran", grace_s=DELETED_S)

    # -- observing ---------------------------------------------------------------------------------------------------

    def _look(self, outcome: WatchOutcome, *, final: bool = False) -> None:
        jobs, pods = self._jobs.objects(), self._pods.objects()
        if not (self._jobs.synced and self._pods.synced):
            return
        known = uid_of(self._last_job) if self._last_job else ""
        # A different object of the same name is foreign: ours is deleted.
        job = next((each for each in jobs if not known or uid_of(each) == known), None) or self._departed()
        self._last_job = job
        outcome.pods = pods
        self._follow(pods)
        started = any(has_started(pod, self._kind.container) for pod in pods)
        self._history.enter(self._kind.as_job(job) if job else None, pods, self._pods.departed())
        self._history.ran = self._history.ran or started
        self._history.finished = frozenset(name for name, f in self.followers.items() if _ended_itself(f))
        if self.queueing is not None and (self._let_in is None or not outcome.state.final):
            self.queueing.look(job, started=started)
            if self._let_in is None and not self.queueing.waiting:
                self._let_in = time.monotonic()
                self._progress(f"{self._job} was admitted by its queue after {self.queueing.admitted_s or 0:.0f} s")
        shaken = any(is_shaken(pod, self._kind.container) for pod in pods)
        if final or shaken or not self._all_running(job, pods):
            children = [name for _, name in self._kind.children(self._job) if name != self._job]
            names = [self._job, *children, *(str(pod["metadata"]["name"]) for pod in pods)]
            self._explanations.read_events(names, now=final)
        state, replicas, analysis = self._diagnose(job, pods)
        if (shaken or analysis is not None) and self._explanations.read_nodes(now=final):
            state, replicas, analysis = self._diagnose(job, pods)
        if outcome.aborted:
            return
        if analysis is None and state in {JobState.RUNNING, JobState.COMPLETE}:
            # Job and pods vanished together, and events show the Job Complete: its TTL expired while the watch was
            # broken.
            vanished = state is JobState.COMPLETE and not jobs
            taken = None if vanished else self._taken_away(pods)
            analysis = taken or simulated(pods, self.followers, self._kind.container)
        outcome.state, outcome.replicas, outcome.analysis = state, replicas, analysis
        self._say(outcome)

    def _diagnose(self, job: Unstructured | None, pods: list[Unstructured]) -> Diagnosis:
        """Diagnose the current state; most polls see no change, and return the previous diagnosis."""
        events, nodes = self.events, self._explanations.nodes
        queue = self.queueing.symptom() if self.queueing else None
        multiplexed = self.followers.items() if self._kind.multiplexed else ()
        given_up = frozenset(name for name, follower in multiplexed if is_final(list(follower.last)))
        young = [is_young(pod) for pod in pods]
        known = (job, pods, events, nodes, queue, given_up, young, self._history.snapshot())
        if self._diagnosis is None or known != self._diagnosed:
            self._diagnosed = known
            self._diagnosis = diagnose(
                job,
                pods,
                events,
                nodes,
                name=self._job,
                kind=self._kind,
                queue=queue,
                gang=self.queueing is not None,
                history=self._history,
                given_up=given_up,
            )
        return self._diagnosis

    def _all_running(self, job: Unstructured | None, pods: list[Unstructured]) -> bool:
        running = [pod for pod in pods if phase_of(pod) in ("Running", "Succeeded")]
        return job is not None and len(running) >= self._kind.desired_pods(job)

    def _departed(self) -> Unstructured | None:
        """Return the job as last seen, marked as deleted, even if no event reports that; None if it was never seen."""
        if self._last_job is None:
            return None
        meta = as_map(self._last_job.get("metadata"))
        return self._last_job | {"metadata": meta | {"deletionTimestamp": meta.get("deletionTimestamp") or GONE}}

    def _follow(self, pods: list[Unstructured]) -> None:
        for pod in pods:
            name = str(pod["metadata"]["name"])
            if not self._kind.prints_evidence(pod) or not has_started(pod, self._kind.container):
                continue
            if name in self.followers:
                if not has_ended(pod, self._kind.container):
                    self.followers[name].start()
                continue
            together = self._kind.multiplexed
            follower = Follower(
                self._kube,
                name,
                namespace=self._namespace,
                container=self._kind.container,
                reader=MultiplexedReader(self._run, self._ranks) if together else EvidenceReader(self._run),
                finished=partial(self._finished, name),
                file=self._logs / f"{name}.log" if self._logs else None,
                on_stage=self._heard,
                waits=self._progress,
            )
            self.followers[name] = follower
            follower.start()

    def _heard(self, stage: str) -> None:
        """Print the current stage of rank 0."""
        self._progress(f"rank 0: {stage}{self._late}")

    def _finished(self, name: str) -> bool:
        """Return whether the container has ended for good, as far as the informer knows."""
        pod = next((item for item in self._pods.objects() if item["metadata"]["name"] == name), None)
        if pod is None:
            return True
        if phase_of(pod) in ("Succeeded", "Failed"):
            return True
        return has_ended(pod, self._kind.container)

    # -- deciding ----------------------------------------------------------------------------------------------------

    def _over(self, outcome: WatchOutcome) -> bool:
        waited = time.monotonic() - self._began
        if self._outage(outcome, waited):
            return True
        if not (self._jobs.synced and self._pods.synced):
            return False
        if outcome.state.final or self._given_up(outcome, waited) or self._lingers(outcome):
            return True
        return self._expired(outcome, waited)

    def _expired(self, outcome: WatchOutcome, waited: float) -> bool:
        """Return whether a deadline has passed: the queue's, then the pods', then the job's."""
        last = partial(waiting.last_state, self._job, outcome, self.events)
        if self._let_in is None:
            if waited > self._limits.queue_s:
                self._abort(outcome, waiting.never_let_in(self._job, self._limits, outcome, waited, last()))
            return waited > self._limits.queue_s
        waited = time.monotonic() - self._let_in
        started = sum(1 for pod in outcome.pods if has_started(pod, self._kind.container))
        if waited > self._limits.start_s and started < max(len(outcome.replicas), 1):
            queued = as_map(self._kind.as_job(self._last_job or {}).get("spec")).get("suspend") is True
            analysis = waiting.too_late(self._job, self._limits, outcome, waited, started, last(), queued=queued)
            self._abort(outcome, analysis)
            return True
        if waited > self._limits.job_s + _DRAIN_S:
            self._abort(outcome, waiting.overdue(self._job, self._limits, outcome, waited, last()))
            return True
        return False

    def _given_up(self, outcome: WatchOutcome, waited: float) -> bool:
        """Stop when the same hopeless cause has exceeded its grace period."""
        cause = outcome.analysis
        if cause is None or not (cause.hopeless or self._left_behind(cause)):
            self._hopeless_since = None
            return False
        # Compare only the fault: of several pods with one problem, repeated events name different ones in turn.
        if self._hopeless_since is None or self._hopeless_since[0] != cause.fault:
            self._hopeless_since = (cause.fault, time.monotonic())
        if time.monotonic() - self._hopeless_since[1] < cause.grace_s:
            return False
        # The trial was interrupted: waiting is useless.
        why = "" if cause.disrupted else f" (given up after {waited:.0f} s: waiting cannot help)"
        self._abort(outcome, replace(cause, observed=cause.observed + why))
        return True

    def _left_behind(self, cause: FailureAnalysis) -> bool:
        """Return whether a rank finds no node after an interruption removed one: only an autoscaler adds another."""
        scaling = any(event.reason in SCALING for event in self.events)
        return self._again and cause.fault == "job.unschedulable" and not scaling

    def _lingers(self, outcome: WatchOutcome) -> bool:
        """Stop when all trial containers have ended and only sidecars keep the pods: injected ones never end."""
        pods = self._kind.desired_pods(self._last_job or {})
        if sum(1 for pod in outcome.pods if has_ended(pod, self._kind.container)) < pods:
            self._ended_since = None
            return False
        self._ended_since = self._ended_since or time.monotonic()
        living = [
            f"{pod['metadata']['name']}: {name}"
            for pod in outcome.pods
            for name in others_running(pod, self._kind.container)
        ]
        if not living or time.monotonic() - self._ended_since < _LINGER_S:
            return False
        outcome.lingering = (
            f"the trial has ended but other containers keep its pods running ({', '.join(living[:4])}): a Job in this "
            "namespace never completes; exempt its pods from the injection, or make these native sidecars"
        )
        return True

    def _outage(self, outcome: WatchOutcome, waited: float) -> bool:
        """Wait a while for an unavailable API server; raise if the job could never be read."""
        for informer in (self._jobs, self._pods):
            error, silent = informer.error, informer.silent_s()
            if error is None:
                continue
            # A restarted API server refuses everything for about a second, until it has read its roles again.
            if not informer.synced and silent > (_EXPIRED_S if isinstance(error, ApiError) else OUTAGE_S):
                raise error
            if isinstance(error, Unauthorized) and silent > _EXPIRED_S:
                outcome.state = JobState.UNKNOWN
                self._abort(outcome, waiting.locked_out(self._kube.server, self._job, error, waited))
                return True
            if silent > OUTAGE_S:
                outcome.state = JobState.UNKNOWN
                self._abort(outcome, waiting.silence(self._kube.server, self._job, error, silent, waited))
                return True
        return False

    def _abort(self, outcome: WatchOutcome, analysis: FailureAnalysis) -> None:
        outcome.analysis = analysis
        outcome.aborted = not outcome.state.final

    # -- ending ------------------------------------------------------------------------------------------------------

    def _drain(self, seconds: float, replicas: Sequence[Replica]) -> None:
        """Wait for the end of the logs; a lost node's kubelet has none to send."""
        end = time.monotonic() + seconds
        lost = {replica.pod for replica in replicas if replica.fault == "node.lost"}
        for follower in (each for pod, each in self.followers.items() if pod not in lost):
            follower.join(max(0.0, end - time.monotonic()))

    def _end_followers(self) -> None:
        for follower in self.followers.values():
            follower.stop()

    def _say(self, outcome: WatchOutcome) -> None:
        by_phase: dict[str, list[str]] = {}
        ended = {r.index for r in outcome.replicas if r.readiness_issue and r.readiness_issue.reason == COMPLETED}
        for replica in outcome.replicas:
            phase = "ended" if replica.index in ended or replica.phase == "Succeeded" else replica.phase.lower()
            by_phase.setdefault(phase, []).append(replica.node or ("no node yet" if replica.pod else "no pod yet"))
        text = ", ".join(
            f"{len(on)} {phase} ({first_of(sorted(set(on)), 4)})" for phase, on in sorted(by_phase.items())
        )
        text = text or "no pods yet"
        late = [replica for replica in outcome.replicas if replica.phase == "Pending" and "running" in by_phase]
        issues = (r.readiness_issue for r in (*late, *outcome.replicas) if r.index not in ended)
        issue = next(filter(None, issues), None)
        why = f" ({_cut(str(issue))})" if issue else ""
        ranks = first_of((str(replica.index) for replica in late), 4)
        self._late = f"; it waits for rank {ranks}, which is Pending{why}" if late else ""
        text = f"{self._job} {outcome.state}: {text}{why}"
        if text != self._last_said:
            self._last_said = text
            self._progress(text)


def _cut(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _ended_itself(follower: Follower) -> bool:
    """Return whether the probe ended by itself; a stopped one reports it (`stopped`)."""
    end = None if isinstance(follower.reader, MultiplexedReader) else follower.reader.end
    return end is not None and not end["stopped"]
