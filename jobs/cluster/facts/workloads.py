"""Users' manifests: the pods that each would create, and their Services.

The input is a file of YAML or JSON with one object or many, or a response of the API server. It is untrusted: bounded,
read without tags, and of any shape. Labels and host names that a controller adds to its pods are known for the kinds
below.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from ..redact import safe
from ..unstructured import Unstructured, as_list, as_map, as_texts, name_of

MAX_BYTES = 8 << 20
"""Limit for all objects together; a single one is at most 1.5 MiB (etcd, --max-request-bytes)."""
_MOST_OBJECTS, _MOST_GROUPS, _MOST_PARTS, _MOST_KEYS, _MOST_PODS = 2_000, 64, 256, 10_000, 1_000_000
_INDEX = "batch.kubernetes.io/job-completion-index"
_JOB_NAMES = ("batch.kubernetes.io/job-name", "job-name")


class ManifestError(ValueError):
    """The text is not a manifest; one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Pods of one template: all of a Job, or one role of another kind."""

    name: str = ""  # of the role or the replicated job
    pods: int = 1
    template: Unstructured
    added: Mapping[str, str] = field(default_factory=dict)  # labels that its controller adds; '#' is the pod's index

    def labels(self, index: int) -> dict[str, str]:
        """Return the labels of one of its pods."""
        own = as_map(as_map(self.template.get("metadata")).get("labels"))
        return {str(key): str(value) for key, value in own.items()} | {
            key: value.replace("#", str(index)) for key, value in self.added.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """An object that creates pods."""

    kind: str
    name: str = ""  # empty: the API server generates one
    namespace: str = ""
    raw: Unstructured
    groups: tuple[Group, ...] = ()
    service: str = ""  # the headless Service that names its pods, which the user must create
    first: tuple[str, ...] = ()  # host.subdomain of the possible rank 0; empty if unknown
    names: tuple[str, ...] = ()  # the prefix of its pods' host names
    whole: bool = True  # False: a runtime adds parts to the pods that the manifest does not show
    trains: bool = False  # by its kind, its pods belong to one training job

    def __str__(self) -> str:
        return f"{self.kind}/{safe(self.name, 100) or '(a name that the API server makes)'}"


@dataclass(frozen=True, slots=True)
class Manifests:
    """The content of a manifest: workloads, Services, and other objects by kind and name."""

    workloads: tuple[Workload, ...]
    services: tuple[Unstructured, ...]
    others: tuple[str, ...]


def read_manifests(text: str) -> Manifests:
    """Parse YAML of any number of documents, or JSON; Lists are expanded. Raises ManifestError."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise ManifestError(f"more than {MAX_BYTES >> 20} MiB: this is not a manifest")
    return sort_out(_objects(text))


def sort_out(objects: Iterator[object] | Sequence[object]) -> Manifests:
    """Separate workloads, Services, and other objects. Raises ManifestError."""
    workloads, services, others = [], [], []
    for number, item in enumerate(_opened(objects)):
        if number >= _MOST_OBJECTS:
            raise ManifestError(f"more than {_MOST_OBJECTS} objects")
        raw = as_map(item)
        kind = raw.get("kind")
        if not isinstance(kind, str) or not kind:
            raise ManifestError(f"object {number + 1} has no kind: this is not a Kubernetes manifest")
        version = raw.get("apiVersion", f"{GROUPS.get(kind, '')}/")
        own = isinstance(version, str) and version.rpartition("/")[0] == GROUPS.get(kind)
        if own and kind == "Service":
            services.append(raw)
        elif own:
            try:
                workloads.append(_READERS[kind](raw))
            except ManifestError as error:
                raise ManifestError(f"{kind}/{safe(name_of(raw), 100)}: {error}") from error
        else:
            others.append(f"{safe(kind, 60)}/{safe(name_of(raw), 100)}")
    return Manifests(tuple(workloads), tuple(services), tuple(others))


class _Loader(yaml.SafeLoader):
    """The safe loader; nested merges (<<) must not grow without bound, and Kubernetes has no dates."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        if len(node.value) > _MOST_KEYS:
            raise yaml.constructor.ConstructorError(None, None, "a mapping of too many keys", node.start_mark)
        super().flatten_mapping(node)
        if len(node.value) > _MOST_KEYS:
            raise yaml.constructor.ConstructorError(None, None, "a merge of too many keys", node.start_mark)


_Loader.yaml_implicit_resolvers = {
    first: [each for each in resolvers if each[0] != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _objects(text: str) -> list[object]:
    try:
        if text.lstrip()[:1] == "{":
            with contextlib.suppress(json.JSONDecodeError):  # YAML may begin so, too
                return [json.loads(text)]
        loaded = list(yaml.load_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        said = " ".join(str(getattr(error, "problem", None) or error).split())
        raise ManifestError(f"{where}broken YAML: {safe(said, 200)}") from error
    except RecursionError as error:
        raise ManifestError("nested too deeply") from error
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:  # of scalars and keys, in PyYAML
        raise ManifestError(f"broken: {safe(error, 200)}") from error
    return [each for each in loaded if each is not None]


def _opened(objects: Iterator[object] | Sequence[object]) -> Iterator[object]:
    """Yield the objects, and those of Lists in place of the List; a List in a List is invalid."""
    for item in objects:
        raw = as_map(item)
        inner = raw.get("items")
        if isinstance(inner, list) and str(raw.get("kind") or "List").endswith("List"):
            yield from inner
        else:
            yield item


# -- kinds -------------------------------------------------------------------------------------------------------------


def _number(value: object, default: int = 1) -> int:
    """Return a count of pods, or the default where none is given. Raises ManifestError for any other value."""
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ManifestError(f"{safe(repr(value), 60)} is not a number of pods")
    return min(value, _MOST_PODS)


def _at(raw: Unstructured, *keys: str) -> Unstructured:
    for key in keys:
        raw = as_map(raw.get(key))
    return raw


def _made(raw: Unstructured, groups: list[Group], **more: Any) -> Workload:
    """Return the workload of an object. Raises ManifestError for more containers or pods than any real one has."""
    for group in groups:
        spec = as_map(group.template.get("spec"))
        for key in ("containers", "initContainers", "volumes"):
            if len(as_list(spec.get(key))) > _MOST_PARTS:
                raise ManifestError(f"more than {_MOST_PARTS} {key}")
    if len(groups) > _MOST_GROUPS:
        raise ManifestError(f"more than {_MOST_GROUPS} groups of pods")
    meta = as_map(raw.get("metadata"))
    namespace = meta.get("namespace")
    return Workload(
        kind=str(raw.get("kind")),
        name=name_of(raw),
        namespace=namespace if isinstance(namespace, str) else "",
        raw=raw,
        groups=tuple(groups),
        **more,
    )


def _subdomain(template: Unstructured) -> str:
    return _text(_at(template, "spec").get("subdomain"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _pod(raw: Unstructured) -> Workload:
    return _made(raw, [Group(template=raw)])


def _job(raw: Unstructured) -> Workload:
    """Read a batch/v1 Job; an Indexed Job names its pods JOB-INDEX."""
    spec, name = _at(raw, "spec"), name_of(raw)
    template = _at(spec, "template")
    pods = _number(spec.get("parallelism"))
    pods = min(pods, _number(spec.get("completions"), pods))
    indexed = spec.get("completionMode") == "Indexed"
    added = dict.fromkeys(_JOB_NAMES, name) if name else {}
    group = Group(pods=pods, template=template, added=added | ({_INDEX: "#"} if indexed else {}))
    service = _subdomain(template)
    first = (f"{name}-0.{service}",) if indexed and name and service else ()
    return _made(raw, [group], service=service, first=first, names=(f"{name}-",) if name else ())


def _cron_job(raw: Unstructured) -> Workload:
    job = _at(raw, "spec", "jobTemplate")
    made = _job({**job, "kind": "CronJob", "metadata": {**as_map(raw.get("metadata")), "name": ""}})
    return _made(raw, list(made.groups), service=made.service)


def _job_set(raw: Unstructured) -> Workload:
    """Read a jobset.x-k8s.io JobSet: pods JOBSET-REPLICATEDJOB-JOB-INDEX, in a Service that it creates itself."""
    name, groups, first = name_of(raw), [], []
    network = _at(raw, "spec", "network")
    domain = _text(network.get("subdomain")) or name
    for each in as_list(_at(raw, "spec").get("replicatedJobs")):
        role, spec = _text(each.get("name")), _at(each, "template", "spec")
        added = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": role, _INDEX: "#"}
        pods = _number(each.get("replicas")) * _number(spec.get("parallelism"))
        groups.append(Group(name=role, pods=pods, template=_at(spec, "template"), added=added))
        first.append(f"{name}-{role}-0-0.{domain}")
    named = name and network.get("enableDNSHostnames") is not False
    return _made(raw, groups, first=tuple(first[:_MOST_GROUPS]) if named else (), names=(f"{name}-",) if named else ())


def _stateful_set(raw: Unstructured) -> Workload:
    name, spec = name_of(raw), _at(raw, "spec")
    service = _text(spec.get("serviceName"))
    added = {"statefulset.kubernetes.io/pod-name": f"{name}-#", "apps.kubernetes.io/pod-index": "#"}
    group = Group(pods=_number(spec.get("replicas")), template=_at(spec, "template"), added=added)
    first = (f"{name}-0.{service}",) if name and service else ()
    return _made(raw, [group], service=service, first=first, names=(f"{name}-",) if name else ())


def _deployment(raw: Unstructured) -> Workload:
    spec = _at(raw, "spec")
    return _made(raw, [Group(pods=_number(spec.get("replicas")), template=_at(spec, "template"))])


def _kubeflow(raw: Unstructured, key: str, first: str = "") -> Workload:
    """Read a kubeflow.org job: a template for each role, in Services that the operator creates."""
    name, groups = name_of(raw), []
    for role, each in list(_at(raw, "spec", key).items())[: _MOST_GROUPS + 1]:
        replica = as_map(each)
        added = {
            "training.kubeflow.org/job-name": name,
            "training.kubeflow.org/replica-type": str(role).lower(),
            "training.kubeflow.org/job-role": str(role).lower(),
            "training.kubeflow.org/replica-index": "#",
        }
        groups.append(
            Group(
                name=safe(role, 40),
                pods=_number(replica.get("replicas")),
                template=_at(replica, "template"),
                added=added,
            )
        )
    return _made(raw, groups, trains=True, first=(first.format(name=name),) if first and name else ())


def _train_job(raw: Unstructured) -> Workload:
    """Read a trainer.kubeflow.org TrainJob: its overrides of its runtime's pods."""
    name, trainer = name_of(raw), _at(raw, "spec", "trainer")
    container: Unstructured = {"name": "node"} | {
        key: trainer[key] for key in ("image", "command", "args", "env") if key in trainer
    }
    if "resourcesPerNode" in trainer:
        container["resources"] = trainer["resourcesPerNode"]
    meta: Unstructured = {}
    spec: Unstructured = {}
    for patch in _patches(raw):
        for key, value in as_map(patch.get("metadata")).items():
            meta[key] = {**as_map(meta.get(key)), **as_map(value)}
        inner = as_map(patch.get("spec"))
        for each in as_list(inner.get("containers")):
            if each.get("name") == "node":
                container |= {key: value for key, value in each.items() if key not in container}
        spec |= {key: value for key, value in inner.items() if key != "containers"}
    template = {"metadata": meta, "spec": {**spec, "containers": [container]}}
    pods = _number(trainer.get("numNodes"))
    first = (f"{name}-node-0-0.{name}",) if name else ()
    return _made(raw, [Group(name="node", pods=pods, template=template)], whole=False, trains=True, first=first)


def _patches(raw: Unstructured) -> Iterator[Unstructured]:
    """Yield the pod templates with which a TrainJob changes its runtime's, of Trainer 2.2 and of earlier versions."""
    for patch in as_list(_at(raw, "spec").get("runtimePatches"))[:_MOST_GROUPS]:
        jobs = _at(patch, "trainingRuntimeSpec", "template", "spec").get("replicatedJobs")
        for job in as_list(jobs)[:_MOST_GROUPS]:
            if job.get("name") == "node":
                yield _at(job, "template", "spec", "template")
    for override in as_list(_at(raw, "spec").get("podTemplateOverrides"))[:_MOST_GROUPS]:
        targets = [each.get("name") for each in as_list(override.get("targetJobs"))[:_MOST_GROUPS]]
        if "node" in targets:
            yield {"metadata": as_map(override.get("metadata")), "spec": as_map(override.get("spec"))}


def _ray(raw: Unstructured, *keys: str) -> Workload:
    """Read a ray.io object: a head, and workers of several kinds."""
    spec = _at(raw, "spec", *keys)
    groups = [Group(name="head", template=_at(spec, "headGroupSpec", "template"))]
    for each in as_list(spec.get("workerGroupSpecs")):
        pods = _number(each.get("replicas"), _number(each.get("minReplicas"))) * _number(each.get("numOfHosts"))
        groups.append(Group(name=_text(each.get("groupName")) or "worker", pods=pods, template=_at(each, "template")))
    return _made(raw, groups)


_READERS: Mapping[str, Callable[[Unstructured], Workload]] = {
    "Pod": _pod,
    "Job": _job,
    "CronJob": _cron_job,
    "JobSet": _job_set,
    "StatefulSet": _stateful_set,
    "Deployment": _deployment,
    "MPIJob": lambda raw: _kubeflow(raw, "mpiReplicaSpecs"),
    "PyTorchJob": lambda raw: _kubeflow(raw, "pytorchReplicaSpecs", "{name}-master-0"),
    "TrainJob": _train_job,
    "RayJob": lambda raw: _ray(raw, "rayClusterSpec"),
    "RayCluster": _ray,
}
KINDS = tuple(_READERS)
GROUPS = {
    "Service": "",
    "Pod": "",
    "Job": "batch",
    "CronJob": "batch",
    "JobSet": "jobset.x-k8s.io",
    "StatefulSet": "apps",
    "Deployment": "apps",
    "MPIJob": "kubeflow.org",
    "PyTorchJob": "kubeflow.org",
    "TrainJob": "trainer.kubeflow.org",
    "RayJob": "ray.io",
    "RayCluster": "ray.io",
}
"""Other API groups have kinds of these names, too: Volcano a Job, Knative a Service."""


# -- containers --------------------------------------------------------------------------------------------------------


def words_of(container: Unstructured) -> list[str]:
    """Return a container's command, as far as the manifest shows it."""
    return [*as_texts(container.get("command")), *as_texts(container.get("args"))]


def variables_of(container: Unstructured) -> dict[str, str | None]:
    """Return a container's variables; None for a value from another source (a Secret, a field)."""
    found: dict[str, str | None] = {}
    for each in as_list(container.get("env"))[:_MOST_KEYS]:
        if name := _text(each.get("name")):
            value = each.get("value")
            found[name] = (value if isinstance(value, str) else "") if "valueFrom" not in each else None
    return found


def selects(selector: object, labels: Mapping[str, str]) -> bool:
    """Return whether a Service's selector matches a pod with these labels; an empty one matches none."""
    wanted = as_map(selector)
    return bool(wanted) and all(labels.get(str(key)) == value for key, value in wanted.items())
