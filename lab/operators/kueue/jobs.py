"""The kinds of job that Kueue supports: the field that suspends them, their pod sets, and their start and end.

One `Integration` per kind, as Kueue has one package per kind (pkg/controller/jobs); names of pod sets are Kueue's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...apiserver.schema.errors import ApiError
from ...apiserver.schema.values import clone
from .. import trainer
from ..conditions import find, holds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ...apiserver.store import Store

Object = dict[str, Any]
QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"
PODSET = "kueue.x-k8s.io/podset"
MANAGER = "kueue.x-k8s.io/manager"
"""The manager name of Kueue's patch of a TrainJob (kubeflow/trainer, RuntimePatch.Manager)."""


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one template; `template` is the job's own, and may be changed in place."""

    name: str
    count: int
    template: Object


@dataclass(frozen=True, slots=True)
class Integration:
    """One kind of job."""

    key: str
    suspend: tuple[str, ...]  # the path of the field
    pod_sets: Callable[[Store, Object], list[PodSet]]
    finished: tuple[str, ...]  # the conditions that end it: success first
    ready: Callable[[Object], bool]
    active: Callable[[Object], bool]  # whether its pods still run

    def is_suspended(self, job: Object) -> bool:
        """Return whether the job must have no pods."""
        value: Any = job
        for step in self.suspend:
            value = (value or {}).get(step)
        return bool(value)

    def set_suspended(self, job: Object, value: bool) -> None:
        """Suspend or resume a job, in place."""
        place = job
        for step in self.suspend[:-1]:
            place = place.setdefault(step, {})
        place[self.suspend[-1]] = value

    def inject(self, store: Store, job: Object, infos: Mapping[str, Object]) -> None:
        """Set the node selectors of the assigned flavors, in place."""
        for pod_set in self.pod_sets(store, job):
            info, spec = infos.get(pod_set.name), pod_set.template["spec"]
            if info is None:
                continue
            for part in ("labels", "annotations"):
                pod_set.template.setdefault("metadata", {}).setdefault(part, {}).update(info[part])
            if info["nodeSelector"]:
                spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **info["nodeSelector"]}
            if info["tolerations"]:
                spec["tolerations"] = [*(spec.get("tolerations") or []), *info["tolerations"]]

    def restore(self, store: Store, job: Object, templates: Mapping[str, Object]) -> None:
        """Restore the original pod templates, in place."""
        for pod_set in self.pod_sets(store, job):
            if pod_set.name in templates:
                pod_set.template.clear()
                pod_set.template.update(clone(templates[pod_set.name]))

    def end(self, job: Object) -> Object | None:
        """Return the condition that ended the job."""
        return next((find(job, kind) for kind in self.finished if holds(job, kind)), None)


def queue_of(job: Object) -> str:
    """Return the LocalQueue that a job names."""
    return str((job["metadata"].get("labels") or {}).get(QUEUE, ""))


def _replicas(job: Object, field: str, order: tuple[str, ...]) -> Iterator[PodSet]:
    specs = job["spec"].get(field) or {}
    for kind in order:
        if kind in specs:
            yield PodSet(kind.lower(), int(specs[kind].get("replicas", 1)), specs[kind]["template"])


def _job_pods(_: Store, job: Object) -> list[PodSet]:
    spec = job["spec"]
    count = int(spec.get("parallelism", 1))
    if spec.get("completions") is not None:
        count = min(count, int(spec["completions"]))
    return [PodSet("main", count, spec["template"])]


def _job_ready(job: Object) -> bool:
    status = job.get("status") or {}
    return bool(status.get("ready", 0) + status.get("succeeded", 0) >= job["spec"].get("parallelism", 1))


def _jobset_pods(_: Store, job: Object) -> list[PodSet]:
    pod_sets = []
    for each in job["spec"].get("replicatedJobs") or []:
        spec = each["template"]["spec"]
        count = min(int(spec.get("parallelism", 1)), int(spec.get("completions") or spec.get("parallelism", 1)))
        pod_sets.append(PodSet(each["name"], int(each.get("replicas", 1)) * count, spec["template"]))
    return pod_sets


def _jobset_ready(job: Object) -> bool:
    status = {each["name"]: each for each in (job.get("status") or {}).get("replicatedJobsStatus") or []}
    return all(
        status.get(each["name"], {}).get("ready", 0) + status.get(each["name"], {}).get("succeeded", 0)
        >= each.get("replicas", 1)
        for each in job["spec"].get("replicatedJobs") or []
    )


def _jobset_active(job: Object) -> bool:
    return any(each.get("active") for each in (job.get("status") or {}).get("replicatedJobsStatus") or [])


def _kubeflow_active(job: Object) -> bool:
    return any(each.get("active") for each in ((job.get("status") or {}).get("replicaStatuses") or {}).values())


def _running(job: Object) -> bool:
    return holds(job, "Running", "Succeeded")


@dataclass(frozen=True, slots=True)
class TrainIntegration(Integration):
    """A TrainJob has no pod templates: Kueue changes its pods by a patch, before v2.2 by overrides."""

    def inject(self, store: Store, job: Object, infos: Mapping[str, Object]) -> None:
        """Add the patch, or one override for each pod set, in place."""
        templates = {
            name: {
                "spec": {part: info[part] for part in ("nodeSelector", "tolerations") if info[part]},
                "metadata": {"labels": info["labels"], "annotations": info["annotations"]},
            }
            for name, info in infos.items()
        }
        if trainer.takes_patches(store):
            jobs = [{"name": name, "template": {"spec": {"template": each}}} for name, each in templates.items()]
            patch = {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
            job["spec"].setdefault("runtimePatches", []).append(patch)
        else:
            overrides = ({"targetJobs": [{"name": name}], **each} for name, each in templates.items())
            job["spec"].setdefault("podTemplateOverrides", []).extend(overrides)

    def restore(self, store: Store, job: Object, templates: Mapping[str, Object]) -> None:
        """Remove Kueue's changes, in place."""
        del store, templates
        job["spec"] = _unchanged(job["spec"])


def _unchanged(spec: Object) -> Object:
    """Return the spec of a TrainJob without Kueue's changes."""
    ours: dict[str, Callable[[Object], bool]] = {
        "podTemplateOverrides": lambda each: PODSET in ((each.get("metadata") or {}).get("labels") or {}),
        "runtimePatches": lambda each: each["manager"] == MANAGER,
    }
    kept = {
        key: [each for each in spec[key] or [] if not is_ours(each)] for key, is_ours in ours.items() if key in spec
    }
    return {**spec, **kept}


def _train_pods(store: Store, job: Object) -> list[PodSet]:
    """Return the pod sets of a TrainJob: those of the JobSet that its runtime creates."""
    try:
        return _jobset_pods(store, {"spec": trainer.jobset_spec(store, {**job, "spec": _unchanged(job["spec"])})})
    except ApiError:
        return []


def _train_ready(job: Object) -> bool:
    statuses = (job.get("status") or {}).get("jobsStatus") or []
    return bool(statuses) and all(each["ready"] + each["succeeded"] > 0 for each in statuses)


def _train_active(job: Object) -> bool:
    return any(each.get("active") for each in (job.get("status") or {}).get("jobsStatus") or [])


def _kubeflow(key: str, field: str, order: tuple[str, ...]) -> Integration:
    """A Kubeflow kind: a map of replica specs by role."""
    return Integration(
        key,
        ("spec", "runPolicy", "suspend"),
        lambda _, job: list(_replicas(job, field, order)),
        ("Succeeded", "Failed"),
        _running,
        _kubeflow_active,
    )


INTEGRATIONS = (
    Integration(
        "jobs.batch",
        ("spec", "suspend"),
        _job_pods,
        ("Complete", "Failed"),
        _job_ready,
        lambda job: bool((job.get("status") or {}).get("active")),
    ),
    Integration(
        "jobsets.jobset.x-k8s.io",
        ("spec", "suspend"),
        _jobset_pods,
        ("Completed", "Failed"),
        _jobset_ready,
        _jobset_active,
    ),
    TrainIntegration(
        "trainjobs.trainer.kubeflow.org",
        ("spec", "suspend"),
        _train_pods,
        ("Complete", "Failed"),
        _train_ready,
        _train_active,
    ),
    _kubeflow("mpijobs.kubeflow.org", "mpiReplicaSpecs", ("Launcher", "Worker")),
    _kubeflow("pytorchjobs.kubeflow.org", "pytorchReplicaSpecs", ("Master", "Worker")),
)
