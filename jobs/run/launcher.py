"""The launcher: runs a trial job from nothing to its evidence, and reports what became of it.

    JobError            what we were asked to do with a job cannot be done; one line
    └── NotOurs         the job exists but was not created by seatrial: it is left alone

A refusal by the cluster is a result, not an exception: what refused, and what to do, stands in the analysis. All is
entered in the ledger before it is created; what was given up is deleted at once, so that it holds no GPUs.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..cluster.client.errors import ApiError, ClusterError, Forbidden, Invalid, NotFound
from ..cluster.client.kube import path
from ..cluster.facts.events import read_events
from ..cluster.redact import safe
from ..cluster.renewal import held, renewed
from ..cluster.unstructured import as_list, as_map
from ..diagnosis.patience import DELETED_S
from ..diagnosis.pod import later
from ..diagnosis.podfacts import pod_facts
from ..diagnosis.refusals import is_policys, read_refusal
from ..diagnosis.state import ERR_INFRA, ERR_PROGRAM, FailureAnalysis, Issue, JobState, PodFacts, Replica
from ..diagnosis.verdict import diagnose
from ..trial import manifests
from ..trial.api_discovery import missing_fault, serving
from ..trial.launchers import KINDS
from ..trial.parts import Queue
from ..trial.pod import LABEL_MANAGED, LABEL_RUN, MANAGED_BY
from .cleanup import Ledger, remove
from .creation import Creation, JobError
from .evidence import EvidenceReader, MultiplexedReader, RankEvidence
from .logs import tail
from .mpirun import explained
from .queueing import QueueFacts, Queueing
from .recorder import RecordedKube, Recorder
from .result import TrialResult
from .sweep_watcher import SweepWatcher
from .waiting import Limits, WatchOutcome
from .watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ..cluster.client.kube import Kube
    from ..trial.launchers import Kind
    from ..trial.spec import TrialSpec
    from .logs import Follower

__all__ = [
    "FailureAnalysis",
    "Issue",
    "JobError",
    "JobState",
    "Launcher",
    "NotOurs",
    "PodFacts",
    "QueueFacts",
    "Replica",
    "TrialResult",
]

# What an interruption leaves behind for the next attempt: the node is still cordoned, its GPUs are another's now.
_AFTERMATH = frozenset(
    {"job.unschedulable", "job.start-timeout", "gang.unschedulable", "gang.partial", "queue.waiting", "job.disrupted"}
)
_ATTEMPTS = 2
_MOST_EVENTS = 200


class NotOurs(JobError):  # noqa: N818  (named for what it says)
    """The job was not created by seatrial."""


class Launcher:
    """Runs trial jobs in one namespace of one cluster."""

    def __init__(
        self,
        kube: Kube,
        progress: Callable[[str], None] = lambda _: None,
        ledger: Ledger | None = None,
        logs: Path | None = None,
        *,
        sees_nodes: bool = True,
        recorders: list[Recorder] | None = None,
    ) -> None:
        """Prepare; with `sees_nodes` False nodes are not asked for, which a tenant's Role does not allow.

        `recorders`: where to put a recording of each attempt; None records nothing.
        """
        self._sees_nodes, self._recorders = sees_nodes, recorders
        self._kube = kube
        self._progress = progress
        self._ledger = ledger if ledger is not None else Ledger()
        self._logs = logs

    def run(self, spec: TrialSpec, files: Mapping[str, str] | None = None) -> TrialResult:
        """Create the trial, wait for its end, return its evidence; deletion is the ledger's unless it was given up.

        What others interrupted (a drain, a preemption, a queue that took it out again) is tried once more, with all of
        the time to start: what is judged had the time that it is judged by. What only follows from the interruption is
        told as that.
        """
        if files is None:
            from ..pod import files as shipped  # noqa: PLC0415  (reads them from disk)

            files = shipped()
        began = time.monotonic()
        result = self._recorded(spec, manifests.build(spec, files))
        for attempt in range(2, _ATTEMPTS + 1 if spec.sweep is None else 0):  # a sweep goes on where it ended, if asked
            cause = result.analysis
            again = cause is not None and (cause.disrupted or _raced(cause)) and result.state is not JobState.CANCELED
            if cause is None or not again:
                break
            what = "was interrupted" if cause.disrupted else "met a kubelet that still counted others' pods"
            self._progress(f"{spec.job_name} {what} ({cause.observed[:200]}): trying it once more")
            following = replace(spec, attempt=attempt)
            try:
                second = self._recorded(following, manifests.build(following, files))
            except ClusterError as error:
                if not cause.disrupted:
                    raise
                words = safe(f"{cause.observed}; it could not be tried again: {error}", 1500)
                result = replace(result, analysis=replace(cause, observed=words))
                break
            result = _after(result, second, attempt)
        return replace(result, seconds=time.monotonic() - began)

    def _recorded(self, spec: TrialSpec, objects: manifests.Manifests) -> TrialResult:
        """One attempt, recorded where that is asked for."""
        if self._recorders is None:
            return self._once(spec, objects)
        recorder = Recorder(spec.job_name, spec.namespace)
        self._recorders.append(recorder)
        kube = RecordedKube(self._kube, recorder)
        launcher = Launcher(kube, self._progress, self._ledger, self._logs, sees_nodes=self._sees_nodes)
        result = launcher._once(spec, objects)
        recorder.conclude(result)
        return result

    def _once(self, spec: TrialSpec, objects: manifests.Manifests) -> TrialResult:
        """Create, wait and read, one time; what was given up or interrupted is deleted before this returns."""
        kind = objects.kind
        began = time.monotonic()
        creation = Creation(self._kube, self._ledger, spec.run_id, self._progress, spec.deadlines.lease_s)
        what = "job" if kind.name == "indexed" else kind.kind
        shape = f"{spec.nodes} x {spec.gpus_per_node} GPUs"
        self._progress(f"creating {what} {spec.job_name} in {spec.namespace}: {shape}")
        try:
            warned = creation.create(objects)
        except (Forbidden, Invalid) as error:
            return _refused(spec.job_name, error, time.monotonic() - began, kind)
        except NotFound as error:
            if not kind.operator:
                raise
            return self._not_served(spec.job_name, kind, error)
        limits = Limits(start_s=spec.deadlines.start_s, job_s=spec.deadlines.job_s, queue_s=spec.deadlines.queue_s)
        selector = ",".join(f"{key}={value}" for key, value in sorted(spec.node_selector.items()))
        queueing = Queueing(self._kube, spec.queue, spec.namespace, spec.job_name) if spec.queue else None
        watcher = self._watcher(
            spec.job_name,
            spec.namespace,
            spec.run_id,
            limits,
            selector,
            kind,
            queueing,
            spec.nodes,
            made=SweepWatcher if spec.sweep else Watcher,
        )
        outcome = watcher.keep()
        if left_out := kind.left_out(spec):
            warned += (f"a {kind.kind} leaves this to its runtime, not to the profile: {'; '.join(left_out)}",)
        result = self._result(spec.job_name, spec.run_id, watcher, outcome, began, warned, kind)
        if _apart(result):
            services = dict.fromkeys(peer.partition(".")[2] or peer for peer in spec.peers)
            result = next(filter(None, (self._without(name, spec.namespace, result) for name in services)), result)
        interrupted = result.analysis is not None and result.analysis.disrupted
        if outcome.aborted or outcome.lingering or interrupted:
            creation.give_up()
        return result

    def _without(self, name: str, namespace: str, result: TrialResult) -> TrialResult | None:
        """Ask whether a Service of ranks that did not find each other is gone, or not the one with which they began.

        That is the cause then; an operator makes its own anew. None where it is not, or nobody can tell.
        """
        try:
            found = self._kube.get(path("services", name, namespace=namespace))
        except NotFound:
            then = "deleted by others"
        except ClusterError:
            return None
        else:
            made = str(as_map(found.get("metadata")).get("creationTimestamp") or "")
            began = min(filter(None, (pod.began for pod in result.pods)), default="")
            if not (began and later(began, int(DELETED_S)) < made):
                return None
            then = f"deleted by others and made anew at {made}"
        analysis = FailureAnalysis(
            fault="job.disrupted",
            subject=f"service/{name}",
            observed=f"the headless Service {name}, which gives the ranks their names, was {then} while the "
            "trial ran; then ranks did not find each other",
            expected="nobody deletes the trial's objects",
            suggestion="Interrupted from outside, which says nothing about the cluster: run it again.",
            disrupted=True,
        )
        return replace(result, analysis=analysis)

    def attach(self, name: str, namespace: str = "") -> TrialResult:
        """Wait for a job that runs already (one of ours) and read its evidence; nothing is entered in the ledger."""
        began = time.monotonic()
        namespace = namespace or self._kube.namespace
        kind, raw = self._ours(name, namespace)
        job = kind.as_job(raw)
        tags = as_map(raw["metadata"].get("labels"))
        run = str(tags.get(LABEL_RUN))
        allowed = as_map(job.get("spec")).get("activeDeadlineSeconds")
        seconds = float(allowed) if isinstance(allowed, int) else 3600.0
        limits = Limits(start_s=seconds, job_s=seconds)
        name_of_queue = tags.get("kueue.x-k8s.io/queue-name")
        queue = Queue(kind="kueue", name=str(name_of_queue)) if name_of_queue else None
        queueing = Queueing(self._kube, queue, namespace, name) if queue else None
        ranks = kind.pods_wanted(raw) - (1 if kind.multiplexed else 0)
        watcher = self._watcher(name, namespace, run, limits, "", kind, queueing, ranks)
        place = path(kind.resource, name, namespace=namespace, group=kind.group, version=kind.version)
        with renewed(self._kube, place, held(raw)):
            return self._result(name, run, watcher, watcher.keep(), began, (), kind)

    def cancel(self, name: str, namespace: str = "") -> None:
        """Delete one of our jobs with its pods, and wait until all are gone."""
        namespace = namespace or self._kube.namespace
        kind, raw = self._ours(name, namespace)
        uid = str(raw["metadata"].get("uid") or "")
        remove(self._kube, kind.resource, kind.group, namespace, name, uid=uid, version=kind.version)

    # -- by name, in the words of NVIDIA TAO's SDK -----------------------------------------------------------------

    def get_job_status(self, name: str) -> JobState:
        """Name the state of any job in our namespace."""
        return self.look(name)[0]

    def get_job_replicas(self, name: str) -> tuple[Replica, ...]:
        """Describe each replica and why it is not ready."""
        return self.look(name)[1]

    def get_failure_analysis(self, name: str) -> FailureAnalysis | None:
        """Say what is wrong with the job, if anything."""
        return self.look(name)[2]

    def get_job_logs(self, name: str, lines: int = 200) -> dict[str, list[str]]:
        """The last lines of every pod's main container, redacted."""
        namespace = self._kube.namespace
        kind, _ = self._find(name, namespace)
        pods, _ = self._kube.list(path("pods", namespace=namespace), labelSelector=kind.selector(name))
        found = {}
        for pod in pods:
            containers = as_list(as_map(pod.get("spec")).get("containers"))
            if containers:
                pod_name = str(pod["metadata"]["name"])
                found[pod_name] = tail(self._kube, namespace, pod_name, str(containers[0].get("name")), lines)
        return found

    # -- steps --------------------------------------------------------------------------------------------------

    def _watcher(
        self,
        name: str,
        namespace: str,
        run: str,
        limits: Limits,
        selector: str,
        kind: Kind,
        queueing: Queueing | None,
        ranks: int,
        made: type[Watcher] = Watcher,
    ) -> Watcher:
        return made(
            self._kube,
            job=name,
            namespace=namespace,
            run=run,
            limits=limits,
            selector=selector,
            logs=self._logs,
            progress=self._progress,
            kind=kind,
            queueing=queueing,
            ranks=ranks,
            sees_nodes=self._sees_nodes,
        )

    def _find(self, name: str, namespace: str) -> tuple[Kind, dict[str, Any] | None]:
        """The object of this name, of whatever kind launches trials; an Indexed Job where there is none."""
        for kind in KINDS.values():
            try:
                url_path = path(kind.resource, name, namespace=namespace, group=kind.group, version=kind.version)
                found: dict[str, Any] = self._kube.get(url_path)
            except NotFound:
                continue
            except Forbidden:
                if not kind.operator:
                    raise
                continue  # a kind that this account has nothing to do with, or that is not there at all
            return kind, found
        return KINDS["indexed"], None

    def _ours(self, name: str, namespace: str) -> tuple[Kind, dict[str, Any]]:
        kind, job = self._find(name, namespace)
        if job is None:
            raise JobError(f"there is no job {safe(name, 100)} in namespace {namespace}")
        if as_map(as_map(job.get("metadata")).get("labels")).get(LABEL_MANAGED) != MANAGED_BY:
            raise NotOurs(f"job {safe(name, 100)} in {namespace} was not created by seatrial: it is left alone")
        return kind, job

    def _not_served(self, name: str, kind: Kind, error: NotFound) -> TrialResult:
        """The API server does not know what was to be created: the kind, or its namespace."""
        found = serving(self._kube, kind.group, kind.resource)
        fault = "" if found.not_seen else missing_fault(kind, found)
        if not fault:
            raise error
        others = f", but in {', '.join(found.versions)}" if found.versions else ""
        analysis = FailureAnalysis(
            fault=fault,
            subject=f"{kind.resource}.{kind.group}",
            observed=f"{kind.kind} is not served in {kind.group}/{kind.version}{others}",
            expected=f"{kind.group}/{kind.version} serves {kind.resource}",
            suggestion=f"Install {kind.operator}, or choose another launcher (--launcher indexed needs no operator).",
            err_class=ERR_INFRA,
        )
        return TrialResult(job=name, state=JobState.ERROR, analysis=analysis, launcher=kind.name)

    def look(self, name: str) -> tuple[JobState, tuple[Replica, ...], FailureAnalysis | None]:
        """Return the state of any job in our namespace, its replicas, and what is wrong with it, if anything."""
        namespace = self._kube.namespace
        kind, job = self._find(name, namespace)
        pods, _ = self._kube.list(path("pods", namespace=namespace), labelSelector=kind.selector(name))
        events = self._optional(path("events", namespace=namespace))
        nodes = self._optional(path("nodes")) if job is not None and self._sees_nodes else []
        return diagnose(job, pods, events, nodes, name=name, kind=kind)

    def _optional(self, url_path: str) -> list[Any]:
        try:
            return self._kube.list(url_path)[0]
        except ApiError:
            return []

    def _result(
        self,
        name: str,
        run: str,
        watcher: Watcher,
        outcome: WatchOutcome,
        began: float,
        warned: tuple[str, ...],
        kind: Kind,
    ) -> TrialResult:
        evidence: dict[int, RankEvidence] = {}
        for replica in outcome.replicas:
            follower = watcher.followers.get(replica.pod)
            if not replica.pod:
                continue
            if follower is not None and isinstance(follower.reader, MultiplexedReader):
                evidence |= _of_all(follower.reader, outcome, kind)
            elif not kind.multiplexed:
                told = _evidence(run, replica, follower, outcome.pods, kind.container)
                evidence[replica.index if told.rank is None else told.rank] = told
        known = {replica.pod for replica in outcome.replicas}
        for pod, follower in watcher.followers.items():  # what a pod told that is gone meanwhile
            if pod not in known and isinstance(follower.reader, EvidenceReader):
                told = follower.reader.result()
                if told.rank is not None:
                    evidence.setdefault(told.rank, told)
        if isinstance(watcher, SweepWatcher):  # the coordinator speaks for all
            evidence = {0: watcher.told()}
        logs = {pod: f.file for pod, f in watcher.followers.items() if f.file is not None and f.file.exists()}
        seconds = time.monotonic() - began
        warned += (outcome.lingering,) if outcome.lingering else ()
        warned += tuple(f.unkept for f in watcher.followers.values() if f.unkept)[:1]  # by our own disk
        if outcome.state is JobState.ERROR:  # the log would say why: what keeps it from us is worth a word
            unread = (f for f in watcher.followers.values() if f.problem and not f.heard)
            warned += tuple(f"the log of {f.pod} could not be read: {f.problem}" for f in unread)[:1]
        self._progress(f"{name} {outcome.state} after {seconds:.0f} s")
        said = [line for follower in watcher.followers.values() for line in follower.last]
        return TrialResult(
            job=name,
            state=outcome.state,
            replicas=outcome.replicas,
            analysis=explained(outcome.analysis, said) if kind.multiplexed else outcome.analysis,
            evidence=evidence,
            logs=logs,
            seconds=seconds,
            warnings=warned,
            launcher=kind.name,
            pods=pod_facts(outcome.pods, watcher.events, kind.index),
            events=tuple(str(event) for event in read_events(watcher.events)[-_MOST_EVENTS:]),
            queue=watcher.queueing.facts() if watcher.queueing else None,
        )


def _raced(cause: FailureAnalysis) -> bool:
    """Tell whether a kubelet had no room for what the scheduler had just bound: another pod was about to end there.

    Controllers make a new pod then (kubernetes/kubernetes#106884); a Job without retries needs another Job.
    """
    return cause.fault == "container.start" and re.search(r"\bOutOf[a-z]", cause.observed) is not None


def _after(first: TrialResult, second: TrialResult, attempt: int) -> TrialResult:
    """What a further attempt says: its own, unless it only met what the interruption left behind.

    A node that is missing now is a consequence only where the attempt before had one for every rank.
    """
    cause, told = first.analysis, second.analysis
    if cause is not None and told is not None and told.fault in _AFTERMATH and (told.disrupted or _had_nodes(first)):
        words = f"{cause.observed}; tried again: {told.observed}"
        told = replace(cause, observed=safe(words, 1500))
    return replace(second, analysis=told, attempts=attempt)


def _had_nodes(result: TrialResult) -> bool:
    """Tell whether every rank had found a node, as its pod says, or what is left of its events."""
    placed = {replica.pod for replica in result.replicas if replica.node}
    placed |= {found[1] for event in result.events if (found := re.match(r"Scheduled pod/([^\s:]+)", event))}
    return len(placed) >= max(len(result.replicas), 1)


def _apart(result: TrialResult) -> bool:
    """Tell whether a rank did not find a peer's name, or a collective failed, and nothing else explains it."""
    if result.analysis is not None and result.analysis.fault != "job.failed":
        return False
    for told in result.evidence.values():
        peers = as_list(as_map(told.stages.get("dns")).get("peers"))
        if any(not peer.get("addresses") for peer in peers):
            return True
        if any(name.startswith("collective.") and data.get("exit") != 0 for name, data in told.stages.items()):
            return True
    return False


def _of_all(streams_reader: MultiplexedReader, outcome: WatchOutcome, kind: Kind) -> dict[int, RankEvidence]:
    """The evidence of all ranks from one log, each completed by its own pod's termination message."""
    for pod in outcome.pods:
        rank, message = kind.index(pod), _last_words(pod, kind.container)
        if message and rank in streams_reader.ranks:
            streams_reader.of(rank).summarize(message)
    return streams_reader.results()


def _last_words(pod: dict[str, Any], container: str) -> str:
    for entry in as_list(as_map(pod.get("status")).get("containerStatuses")):
        if entry.get("name") == container:
            return str(as_map(as_map(entry.get("state")).get("terminated")).get("message") or "")
    return ""


def _evidence(
    run: str, replica: Replica, follower: Follower | None, pods: list[dict[str, Any]], container: str
) -> RankEvidence:
    """What the rank's log told, completed by its termination message (which survives a lost log)."""
    reader = (
        follower.reader if follower is not None and isinstance(follower.reader, EvidenceReader) else EvidenceReader(run)
    )
    for pod in pods:
        if as_map(pod.get("metadata")).get("name") == replica.pod and (message := _last_words(pod, container)):
            reader.summarize(message)
    told = reader.result()
    # Without a single line, what kept them from us is the best that can be said.
    return told if told.stages or follower is None else replace(told, problem=told.problem or follower.problem)


def _refused(name: str, error: ApiError, seconds: float, kind: Kind) -> TrialResult:
    """Say which object was refused, and by whom: a trial is a job and what belongs to it."""
    read = read_refusal(error.message)
    what = safe(error.refused, 300) or f"{kind.kind} {name}"
    by = f", refused by {read.subject}" if "/" in read.subject else ""
    analysis = FailureAnalysis(
        fault=read.fault,
        subject=read.subject if read.subject != "pod" else what.lower().replace(" ", "/"),
        observed=f"{what} could not be created{by}: {error}",
        expected=f"the API server accepts the {what.split()[0]}",
        suggestion=read.suggestion,
        # An object that is not valid in itself is ours, or the profile's; no gate of the cluster has spoken.
        err_class=ERR_INFRA if isinstance(error, Forbidden) or is_policys(error.message) else ERR_PROGRAM,
    )
    return TrialResult(job=name, state=JobState.ERROR, analysis=analysis, seconds=seconds, launcher=kind.name)
