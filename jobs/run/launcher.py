"""The launcher: creates users' jobs, and runs trials from creation to evidence.

    JobError            the request for a job cannot be carried out; one line
    └── NotOurs         the job exists but was not created by seatrial: it is left alone

A refusal by the cluster is a result, not an exception: the analysis names the refusing component and the remedy. Each
object is entered in the ledger before it is created; an abandoned object is deleted at once, so that it holds no GPUs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..cluster.client.errors import ApiError, ClusterError, Forbidden, Invalid, NotFound
from ..cluster.client.kube import Kube
from ..cluster.redact import safe
from ..cluster.unstructured import uid_of
from ..diagnosis.refusals import is_policys, read_refusal
from ..diagnosis.state import ERR_INFRA, ERR_PROGRAM, FailureAnalysis, JobState
from ..trial import manifests
from ..trial.job_spec import JobSpec, own_job
from ..trial.launch_stack import missing_fault, serving
from ..trial.launchers import Kind
from ..trial.spec import TrialSpec
from .aftermath import after, by_namespace, deleted_by, interruption, namespace_gone, not_again
from .cleanup import Ledger, delete
from .conclusion import conclude, with_service_gone
from .creation import Creation, JobError, held_by_lost
from .guard import no_room
from .handle import JobHandle, Refused
from .job_lookup import JobLookup
from .queueing import Queueing
from .recorder import RecordedKube, Recorder
from .result import TrialResult
from .sweep_watcher import SweepWatcher
from .waiting import Limits
from .watcher import Watcher


def refused(name: str, error: ApiError, seconds: float, kind: Kind) -> TrialResult:
    """Return the result of a refused creation, with the refused object and the refusing component."""
    read = read_refusal(error.message)
    what = safe(error.refused, 300) or f"{kind.kind} {name}"
    by = f", refused by {read.subject}" if "/" in read.subject else ""
    analysis = FailureAnalysis(
        fault=read.fault,
        subject=read.subject if read.subject != "pod" else what.lower().replace(" ", "/"),
        observed=f"{what} could not be created{by}: {error}",
        expected=f"the API server accepts the {what.split()[0]}",
        suggestion=read.suggestion,
        confirm=read.confirm,
        remedy=read.remedy,
        # An invalid object is our mistake, or the profile's, and not a policy of the cluster.
        err_class=ERR_INFRA if isinstance(error, Forbidden) or is_policys(error.message) else ERR_PROGRAM,
    )
    return TrialResult(
        job=name, state=JobState.ERROR, analysis=analysis, seconds=seconds, launcher=kind.name, refused=True
    )


def not_served(kube: Kube, name: str, kind: Kind, error: NotFound) -> TrialResult:
    """Return the result for a kind that the API server does not serve; raise `error` if it serves the kind."""
    served = serving(kube, kind.group, kind.resource)
    fault = "" if served.not_seen else missing_fault(kind, served)
    if not fault:
        raise error
    elsewhere = f", but in {', '.join(served.versions)}" if served.versions else ""
    analysis = FailureAnalysis(
        fault=fault,
        subject=f"{kind.resource}.{kind.group}",
        observed=f"{kind.kind} is not served in {kind.group}/{kind.version}{elsewhere}",
        expected=f"{kind.group}/{kind.version} serves {kind.resource}",
        suggestion=f"Install {kind.operator}, or choose another launcher (--launcher indexed needs no operator).",
        err_class=ERR_INFRA,
    )
    return TrialResult(job=name, state=JobState.ERROR, analysis=analysis, launcher=kind.name, refused=True)


_ATTEMPTS = 2


class Launcher:
    """A launcher of jobs in one cluster, and of trials in one namespace of it."""

    def __init__(
        self,
        kube: Kube,
        progress: Callable[[str], None] = lambda _: None,
        ledger: Ledger | None = None,
        logs: Path | None = None,
        *,
        sees_nodes: bool = True,
        recorders: list[Recorder] | None = None,
        room: Callable[[TrialSpec, TrialResult], str] | None = None,
    ) -> None:
        """Prepare; with `sees_nodes` False nodes are not requested, because a tenant's Role does not allow it.

        `recorders`: the list to which each attempt's recording is added; None records nothing. `room` explains after an
        interruption why there is no room for another attempt; '' if there is.
        """
        self._sees_nodes, self._recorders, self._room = sees_nodes, recorders, room
        self._kube = kube
        self._progress = progress
        self._ledger = ledger if ledger is not None else Ledger()
        self._logs = logs

    def create_job(
        self,
        *,
        command: str | Sequence[str],
        image: str = "",
        gpu_count: int | None = None,
        num_nodes: int = 1,
        name: str = "",
        env_vars: Mapping[str, str] | None = None,
        namespace: str = "",
        image_pull_secret: str = "",
        node_selector: Mapping[str, str] | None = None,
        launcher: str = "",
        queue: str = "",
        mounts: Mapping[str, str] | None = None,
        rdma: Mapping[str, int] | None = None,
        profile: Mapping[str, Any] | None = None,
        guard: bool = True,
        **shape: Any,
    ) -> JobHandle:
        """Create a job of `num_nodes` pods with `gpu_count` GPUs each, and return its handle.

        `command`: text for /bin/bash -c, or a list of words; `queue`: kueue:NAME, volcano or volcano:NAME; `mounts`: a
        PersistentVolumeClaim to its mount path; `rdma`: a device resource to its number in each pod; `profile`:
        defaults (checks.profiles.trial.job_defaults); without one a pod gets one GPU, and the launcher is `indexed`;
        `guard`: refuse a job that does not fit the nodes; `shape`: any other field of a JobSpec (cpu, memory,
        tolerations, time_limit_s, ...). The job needs no watcher. Raises SpecError, Refused, JobError, ClusterError.
        """
        spec = own_job(
            namespace=namespace or self._kube.namespace,
            command=command,
            image=image,
            gpu_count=gpu_count,
            num_nodes=num_nodes,
            name=name,
            env_vars=env_vars,
            image_pull_secret=image_pull_secret,
            node_selector=node_selector,
            launcher=launcher,
            queue=queue,
            mounts=mounts,
            rdma=rdma,
            profile=profile,
            **shape,
        )
        return self.start(spec, guard=guard)

    def start(self, spec: JobSpec, *, guard: bool = True) -> JobHandle:
        """Create the job of a spec; after an error or an interrupt partial objects are deleted."""
        if guard and self._sees_nodes and (short := no_room(self._kube, spec)) is not None:
            raise Refused(short)
        ledger = Ledger()
        launcher = Launcher(self._kube, self._progress, ledger)
        try:
            creation, refusal = launcher._created(spec, manifests.job_of(spec))
        except BaseException:
            ledger.unwind()
            raise
        if refusal is not None and refusal.analysis is not None:
            ledger.unwind()
            raise Refused(refusal.analysis)
        creation.detach()
        return JobHandle(self._kube, spec.job_name, spec.namespace, uid=creation.uid, sees_nodes=self._sees_nodes)

    def job(self, name: str, namespace: str = "") -> JobHandle:
        """Return the handle of any existing job; only ours can be canceled by it.

        Raises JobError, with the remaining facts, if it is missing.
        """
        jobs = JobLookup(self._kube, namespace)
        raw = jobs.find(name)[1]
        if raw is None:
            raise JobError(jobs.absent(name))
        return JobHandle(self._kube, name, namespace, uid=uid_of(raw), sees_nodes=self._sees_nodes)

    def run(self, spec: TrialSpec, files: Mapping[str, str] | None = None, *, begun: str = "") -> TrialResult:
        """Create the trial, wait for its end, return its evidence; the ledger deletes it unless it was given up.

        `begun`: the data of this run for `attach` (jobs/run/begun.py).

        A trial interrupted by a drain, a preemption, or an eviction from its queue is retried once, with the full start
        time. Failures that only follow from the interruption are reported as such.
        """
        files = _shipped() if files is None else files
        began = time.monotonic()
        result = self._recorded(spec, manifests.build(spec, files, begun))
        for attempt in range(2, _ATTEMPTS + 1 if spec.sweep is None else 0):  # a sweep is resumed on request
            cause = interruption(result)
            if cause is None:
                break
            if namespace_gone(self._kube, spec.namespace):
                break  # the attempt's result reports it
            if why := self._room(spec, result) if self._room and cause.disrupted else "":
                self._progress(f"{spec.job_name} was interrupted and is not retried: {why}")
                result = not_again(result, f"{cause.observed}; {why}")
                break
            what = "was interrupted" if cause.disrupted else "met a kubelet that still counted other pods' devices"
            self._progress(f"{spec.job_name} {what} ({cause.observed[:200]}): retrying once")
            following = replace(spec, attempt=attempt)
            try:
                second = self._recorded(following, manifests.build(following, files, begun))
            except ClusterError as error:
                if not cause.disrupted:
                    raise
                result = not_again(result, f"{cause.observed}; the retry failed: {error}")
                break
            if second.refused and second.analysis is not None and cause.disrupted:
                # All of it was admitted minutes ago: changes since then follow from the interruption, or are external,
                # too.
                refusal = second.analysis.observed
                result = not_again(result, f"{cause.observed}; the retry failed: {refusal}")
                break
            result = after(result, second, attempt)
        return replace(result, seconds=time.monotonic() - began)

    def _recorded(self, spec: TrialSpec, objects: manifests.Manifests) -> TrialResult:
        """Run one attempt, recorded if requested."""
        if self._recorders is None:
            return self._once(spec, objects)
        recorder = Recorder(spec.job_name, spec.namespace)
        self._recorders.append(recorder)
        kube = RecordedKube(self._kube, recorder)
        launcher = Launcher(kube, self._progress, self._ledger, self._logs, sees_nodes=self._sees_nodes)
        result = launcher._once(spec, objects)
        recorder.conclude(result)
        return result

    def detach(self, spec: TrialSpec, begun: str, files: Mapping[str, str] | None = None) -> TrialResult | None:
        """Create the trial and leave it to the cluster, for `job attach`; return a result if it was refused."""
        objects = manifests.build(spec, _shipped() if files is None else files, begun)
        creation, result = self._created(spec, objects)
        if result is None:
            creation.detach()
        return result

    def attach(self, spec: TrialSpec) -> TrialResult:
        """Wait for a running or finished trial, and read its evidence; from then on this ledger owns it."""
        began = time.monotonic()
        kind, raw = JobLookup(self._kube, spec.namespace).own(spec.job_name)
        result = self._watched(spec, kind, began, ())
        uid, place = str(raw["metadata"].get("uid") or ""), (kind.resource, kind.group, spec.namespace, spec.job_name)
        stuck = partial(held_by_lost, self._kube, spec.namespace, spec.run_id, result.lost)
        undo = partial(delete, self._kube, *place, uid=uid, version=kind.version, stuck=stuck)
        what = f"{kind.resource.removesuffix('s')}/{spec.job_name} in {spec.namespace}"
        self._ledger.enter(what, undo, holds_gpus=True)
        return result

    def _once(self, spec: TrialSpec, objects: manifests.Manifests) -> TrialResult:
        """Create, wait and read, once; an abandoned or interrupted trial is deleted before this returns."""
        began = time.monotonic()
        creation, refusal = self._created(spec, objects)
        if refusal is not None:
            return refusal
        result = self._watched(spec, objects.kind, began, creation.warned)
        creation.lost = result.lost
        if result.given_up or (result.analysis is not None and result.analysis.disrupted):
            creation.give_up()
        return deleted_by(self._kube, spec.namespace, result, sees_pods=self._sees_nodes)

    def _created(self, spec: JobSpec, objects: manifests.Manifests) -> tuple[Creation, TrialResult | None]:
        """Create the objects; return a result if the cluster refused one of them."""
        kind = objects.kind
        began = time.monotonic()
        creation = Creation(self._kube, self._ledger, spec.run_id, self._progress, spec.lease_s)
        what = "job" if kind.name == "indexed" else kind.kind
        gpus = f"{spec.gpus_per_node} GPU{'' if spec.gpus_per_node == 1 else 's'}" if spec.gpus_per_node else "no GPU"
        shape = f"{spec.nodes} pod{'' if spec.nodes == 1 else 's'} with {gpus}"
        self._progress(f"creating {what} {spec.job_name} in {spec.namespace}: {shape}")
        try:
            creation.create(objects)
        except ApiError as error:
            if isinstance(error, Forbidden | Invalid) or is_policys(error.message):
                return creation, refused(spec.job_name, error, time.monotonic() - began, kind)
            if not isinstance(error, NotFound) or not kind.operator:
                raise
            return creation, not_served(self._kube, spec.job_name, kind, error)
        return creation, None

    def _watched(self, spec: TrialSpec, kind: Kind, began: float, warned: tuple[str, ...]) -> TrialResult:
        """Wait for the end of the created trial, and read its evidence."""
        limits = Limits(start_s=spec.deadlines.start_s, job_s=spec.deadlines.job_s, queue_s=spec.deadlines.queue_s)
        selector = ",".join(f"{key}={value}" for key, value in sorted(spec.node_selector.items()))
        queueing = Queueing(self._kube, spec.queue, spec.namespace, spec.job_name) if spec.queue else None
        watcher = (SweepWatcher if spec.sweep else Watcher)(
            self._kube,
            job=spec.job_name,
            namespace=spec.namespace,
            run=spec.run_id,
            limits=limits,
            selector=selector,
            logs=self._logs,
            progress=self._progress,
            kind=kind,
            queueing=queueing,
            ranks=spec.nodes,
            sees_nodes=self._sees_nodes,
            again=spec.attempt > 1,
        )
        outcome = watcher.keep()
        if left_out := kind.left_out(spec):
            warned += (f"a {kind.kind} leaves this to its runtime, not to the profile: {'; '.join(left_out)}",)
        result = conclude(spec.job_name, spec.run_id, watcher, outcome, began, warned, kind)
        self._progress(f"{result.job} {result.state} after {result.seconds:.0f} s")
        result = by_namespace(self._kube, spec.namespace, with_service_gone(self._kube, spec, result))
        return replace(result, given_up=outcome.aborted or bool(outcome.lingering))


def _shipped() -> Mapping[str, str]:
    """Read the probe's files from disk."""
    from ..trial.payload import files  # noqa: PLC0415  (few launchers need them)

    return files()
