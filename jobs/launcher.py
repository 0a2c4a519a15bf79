"""How is a trial job run, from nothing to its evidence, and what became of it?

    JobError            what we were asked to do with a job cannot be done; one line
    └── NotOurs         the job exists but was not created by seatrial: it is left alone

A refusal by the cluster is a result, not an exception: what refused, and what to do, stands in the analysis. All is
entered in the ledger before it is created; what was given up is deleted at once, so that it holds no GPUs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import manifests
from .cleanup import Ledger, remove
from .creation import Creation, JobError
from .diagnosis import diagnose
from .errors import ApiError, Forbidden, Invalid, NotFound
from .evidence import RankEvidence, Reader
from .kube import path
from .logs import tail
from .manifests import CONTAINER, LABEL_MANAGED, LABEL_RUN, MANAGED_BY
from .raw import as_list, as_map
from .redact import safe
from .refusals import read_refusal
from .state import ERR_INFRA, FailureAnalysis, Issue, JobState, Replica
from .vigil import Limits, Outcome, Vigil

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from .kube import Kube
    from .logs import Follower
    from .trial import TrialSpec

__all__ = [
    "Admission",
    "FailureAnalysis",
    "Issue",
    "JobError",
    "JobState",
    "Launcher",
    "NotOurs",
    "Replica",
    "TrialResult",
]


class NotOurs(JobError):  # noqa: N818  (named for what it says)
    """The job was not created by seatrial."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether the API server would admit one pod of the trial; `allowed` is None where it could not tell."""

    allowed: bool | None
    fault: str = ""
    subject: str = ""
    reason: str = ""
    message: str = ""
    suggestion: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """What became of one trial."""

    job: str
    state: JobState
    replicas: tuple[Replica, ...] = ()
    analysis: FailureAnalysis | None = None
    evidence: dict[int, RankEvidence] = field(default_factory=dict)
    logs: dict[str, Path] = field(default_factory=dict)
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()


class Launcher:
    """Runs trial jobs in one namespace of one cluster."""

    def __init__(
        self,
        kube: Kube,
        progress: Callable[[str], None] = lambda _: None,
        ledger: Ledger | None = None,
        logs: Path | None = None,
    ) -> None:
        self._kube = kube
        self._progress = progress
        self._ledger = ledger if ledger is not None else Ledger()
        self._logs = logs

    def run(self, spec: TrialSpec, files: Mapping[str, str] | None = None) -> TrialResult:
        """Create the trial, wait for its end, return its evidence; deletion is the ledger's unless it was given up."""
        if files is None:
            from .probes import files as shipped  # noqa: PLC0415  (reads them from disk)

            files = shipped()
        objects = manifests.build(spec, files)
        began = time.monotonic()
        creation = Creation(self._kube, self._ledger, spec.run_id, self._progress)
        self._progress(f"creating job {spec.job_name} in {spec.namespace}: {spec.nodes} x {spec.gpus_per_node} GPUs")
        try:
            warned = creation.create(objects)
        except (Forbidden, Invalid) as error:
            return _refused(spec.job_name, error, time.monotonic() - began)
        limits = Limits(start_s=spec.deadlines.start_s, job_s=spec.deadlines.job_s)
        selector = ",".join(f"{key}={value}" for key, value in sorted(spec.node_selector.items()))
        vigil = self._vigil(spec.job_name, spec.namespace, spec.run_id, limits, selector)
        outcome = vigil.keep()
        result = self._result(spec.job_name, spec.run_id, vigil, outcome, began, warned)
        if outcome.aborted or outcome.lingering:
            creation.give_up()
        return result

    def attach(self, name: str, namespace: str = "") -> TrialResult:
        """Wait for a job that runs already (one of ours) and read its evidence; nothing is entered in the ledger."""
        began = time.monotonic()
        namespace = namespace or self._kube.namespace
        job = self._ours(name, namespace)
        run = str(as_map(job["metadata"].get("labels")).get(LABEL_RUN))
        allowed = as_map(job.get("spec")).get("activeDeadlineSeconds")
        seconds = float(allowed) if isinstance(allowed, int) else 3600.0
        vigil = self._vigil(name, namespace, run, Limits(start_s=seconds, job_s=seconds), "")
        return self._result(name, run, vigil, vigil.keep(), began, ())

    def cancel(self, name: str, namespace: str = "") -> None:
        """Delete one of our jobs with its pods, and wait until all are gone."""
        namespace = namespace or self._kube.namespace
        job = self._ours(name, namespace)
        remove(self._kube, "jobs", "batch", namespace, name, uid=str(job["metadata"].get("uid") or ""))

    def dry_run_pod(self, spec: TrialSpec) -> Admission:
        """Ask the API server whether it would admit one pod of the trial, without creating any."""
        url_path = path("pods", namespace=spec.namespace)
        try:
            answer = self._kube.create(url_path, manifests.dry_pod(spec), dry_run=True)
        except (Forbidden, Invalid) as error:
            if "does not support dry run" in error.message:
                return Admission(
                    None, "", "webhook", error.reason, error.message, "Its answer is known only on creation."
                )
            read = read_refusal(error.message)
            # Without the right to create pods nothing was admitted or refused: the Job controller has it.
            allowed = None if read.fault in {"rights.missing", "job.start-timeout"} else False
            return Admission(allowed, read.fault, read.subject, error.reason, error.message, read.suggestion)
        except ApiError as error:
            return Admission(None, "", "", error.reason, error.message, "")
        return Admission(True, warnings=answer.warnings)

    # -- by name, in the words of NVIDIA TAO's SDK -----------------------------------------------------------------

    def get_job_status(self, name: str) -> JobState:
        """Name the state of any job in our namespace."""
        return self._snapshot(name)[0]

    def get_job_replicas(self, name: str) -> tuple[Replica, ...]:
        """Describe each replica and why it is not ready."""
        return self._snapshot(name)[1]

    def get_failure_analysis(self, name: str) -> FailureAnalysis | None:
        """Say what is wrong with the job, if anything."""
        return self._snapshot(name)[2]

    def get_job_logs(self, name: str, lines: int = 200) -> dict[str, list[str]]:
        """The last lines of every pod's main container, redacted."""
        namespace = self._kube.namespace
        pods, _ = self._kube.list(path("pods", namespace=namespace), labelSelector=f"job-name={name}")
        found = {}
        for pod in pods:
            containers = as_list(as_map(pod.get("spec")).get("containers"))
            if containers:
                pod_name = str(pod["metadata"]["name"])
                found[pod_name] = tail(self._kube, namespace, pod_name, str(containers[0].get("name")), lines)
        return found

    # -- steps --------------------------------------------------------------------------------------------------

    def _vigil(self, name: str, namespace: str, run: str, limits: Limits, selector: str) -> Vigil:
        return Vigil(
            self._kube,
            job=name,
            namespace=namespace,
            run=run,
            limits=limits,
            selector=selector,
            logs=self._logs,
            progress=self._progress,
        )

    def _ours(self, name: str, namespace: str) -> dict[str, Any]:
        try:
            job: dict[str, Any] = self._kube.get(path("jobs", name, namespace=namespace, group="batch"))
        except NotFound as error:
            raise JobError(f"there is no job {safe(name, 100)} in namespace {namespace}") from error
        if as_map(as_map(job.get("metadata")).get("labels")).get(LABEL_MANAGED) != MANAGED_BY:
            raise NotOurs(f"job {safe(name, 100)} in {namespace} was not created by seatrial: it is left alone")
        return job

    def _snapshot(self, name: str) -> tuple[JobState, tuple[Replica, ...], FailureAnalysis | None]:
        namespace = self._kube.namespace
        try:
            job = self._kube.get(path("jobs", name, namespace=namespace, group="batch"))
        except NotFound:
            job = None
        pods, _ = self._kube.list(path("pods", namespace=namespace), labelSelector=f"job-name={name}")
        events = self._optional(path("events", namespace=namespace))
        nodes = self._optional(path("nodes")) if job is not None else []
        return diagnose(job, pods, events, nodes, name=name)

    def _optional(self, url_path: str) -> list[Any]:
        try:
            return self._kube.list(url_path)[0]
        except ApiError:
            return []

    def _result(
        self, name: str, run: str, vigil: Vigil, outcome: Outcome, began: float, warned: tuple[str, ...]
    ) -> TrialResult:
        evidence: dict[int, RankEvidence] = {}
        for replica in outcome.replicas:
            if not replica.pod:
                continue
            told = _evidence(run, replica, vigil.followers.get(replica.pod), outcome.pods)
            evidence[replica.index if told.rank is None else told.rank] = told
        logs = {pod: f.file for pod, f in vigil.followers.items() if f.file is not None and f.file.exists()}
        seconds = time.monotonic() - began
        warned += (outcome.lingering,) if outcome.lingering else ()
        self._progress(f"{name} {outcome.state} after {seconds:.0f} s")
        return TrialResult(
            job=name,
            state=outcome.state,
            replicas=outcome.replicas,
            analysis=outcome.analysis,
            evidence=evidence,
            logs=logs,
            seconds=seconds,
            warnings=warned,
        )


def _evidence(run: str, replica: Replica, follower: Follower | None, pods: list[dict[str, Any]]) -> RankEvidence:
    """What the rank's log told, completed by its termination message (which survives a lost log)."""
    reader = follower.reader if follower else Reader(run)
    for pod in pods:
        if as_map(pod.get("metadata")).get("name") != replica.pod:
            continue
        for entry in as_list(as_map(pod.get("status")).get("containerStatuses")):
            ended = as_map(as_map(entry.get("state")).get("terminated"))
            if entry.get("name") == CONTAINER and ended.get("message"):
                reader.summarize(str(ended["message"]))
    return reader.result()


def _refused(name: str, error: ApiError, seconds: float) -> TrialResult:
    read = read_refusal(error.message)
    analysis = FailureAnalysis(
        fault=read.fault,
        subject=read.subject,
        observed=f"job {name} could not be created: {error}",
        expected="the API server accepts the job",
        suggestion=read.suggestion,
        err_class=ERR_INFRA,
    )
    return TrialResult(job=name, state=JobState.ERROR, analysis=analysis, seconds=seconds)
