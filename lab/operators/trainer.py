"""Kubeflow Trainer: a TrainJob becomes a JobSet from its runtime, with the job's own settings merged over it.

Names, variables, conditions and messages are those of kubeflow/trainer v2.0 (pkg/controller/trainjob_controller.go,
pkg/runtime/framework/plugins/{torch,jobset}). Only the torch policy is simulated; initializers and MPI are not. A job
changes its runtime by runtimePatches (v2.2); the podTemplateOverrides of earlier releases are supported as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..apiserver.schema.errors import ApiError, Cause, invalid
from ..apiserver.schema.values import clone
from .conditions import find, holds, put
from .jobset import KEY as SETS
from .parts import OwnerController

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..apiserver.schema.kinds import Kind
    from ..apiserver.store import Store
    from ..controlplane import Controller

Object = dict[str, Any]
KEY, GROUP = "trainjobs.trainer.kubeflow.org", "trainer.kubeflow.org"
RUNTIMES = {
    "ClusterTrainingRuntime": "clustertrainingruntimes.trainer.kubeflow.org",
    "TrainingRuntime": "trainingruntimes.trainer.kubeflow.org",
}
ANCESTOR, NODE, PORT = "trainer.kubeflow.org/trainjob-ancestor-step", "node", 29500
RESERVED = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
IMAGE = "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime"


def objects(world: Mapping[str, Any], given: Mapping[str, Any]) -> list[Object]:
    """Return the runtime for torch; it is installed separately from the operator, and not with `runtimes: false`."""
    del world
    if not given.get("runtimes", True):
        return []
    pod = {"containers": [{"name": NODE, "image": IMAGE}]}
    job = {"metadata": {"labels": {ANCESTOR: "trainer"}}, "spec": {"template": {"spec": pod}}}
    return [
        {
            "apiVersion": f"{GROUP}/v1alpha1",
            "kind": "ClusterTrainingRuntime",
            "metadata": {"name": "torch-distributed", "labels": {f"{GROUP}/framework": "torch"}},
            "spec": {
                "mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}},
                "template": {"spec": {"replicatedJobs": [{"name": NODE, "template": job}]}},
            },
        }
    ]


def start(store: Store, world: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Controller, ...]:
    """Return the controller, and register its webhook."""
    del world, given
    store.webhooks.append(Webhook(store))
    return (TrainJobController(store),)


def runtime_of(store: Store, job: Object) -> Object | None:
    """Return the runtime that a job names."""
    ref = job["spec"]["runtimeRef"]
    key = RUNTIMES.get(ref.get("kind", "ClusterTrainingRuntime"), "")
    space = None if ref.get("kind", "").startswith("Cluster") or "kind" not in ref else job["metadata"]["namespace"]
    return store.get(key, space, ref["name"]) if key else None


class Webhook:
    """The webhook: a TrainJob needs an existing runtime, and must not set torchrun's variables."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __call__(self, kind: Kind, new: Object, old: Object | None) -> None:
        """Reject a job that cannot run."""
        if kind.key != KEY or old is not None:
            return
        ref = new["spec"]["runtimeRef"]
        if runtime_of(self._store, new) is None:
            what, name = ref.get("kind", "ClusterTrainingRuntime"), ref["name"]
            text = (
                f'Invalid value: {{"name":"{name}"}}: {what}.{GROUP} "{name}" not found: specified '
                f"{what[0].lower()}{what[1:]} must be created before the TrainJob is created"
            )
            cause = Cause("spec.runtimeRef", "FieldValueInvalid", text)
            raise invalid("TrainJob", GROUP, new["metadata"]["name"], [cause])
        given = [each["name"] for each in (new["spec"].get("trainer") or {}).get("env") or []]
        wrong = sorted(set(given) & set(RESERVED))
        if wrong:
            text = f"must not have reserved envs, invalid envs configured: [{' '.join(wrong)}]"
            cause = Cause("spec.trainer.env", "FieldValueInvalid", f"Invalid value: {given}: {text}")
            raise invalid("TrainJob", GROUP, new["metadata"]["name"], [cause])


def jobset_spec(store: Store, job: Object) -> Object:
    """Return the JobSet's spec: the runtime's, changed by the job; raises ApiError if there is no runtime."""
    runtime = runtime_of(store, job)
    if runtime is None:
        raise ApiError(404, "NotFound", f"unsupported runtime: {job['spec']['runtimeRef']['name']}")
    spec: Object = clone(runtime["spec"]["template"].get("spec") or {})
    policy, trainer = runtime["spec"].get("mlPolicy") or {}, job["spec"].get("trainer") or {}
    nodes = int(trainer.get("numNodes") or policy.get("numNodes") or 1)
    for replicated in spec.get("replicatedJobs") or []:
        template = replicated["template"]
        pod = template.setdefault("spec", {}).setdefault("template", {}).setdefault("spec", {})
        if (template.get("metadata", {}).get("labels") or {}).get(ANCESTOR) == "trainer":
            template["spec"]["parallelism"] = template["spec"]["completions"] = nodes
            main = next((c for c in pod.get("containers") or [] if c["name"] == NODE), None)
            if main is not None:
                _train(main, trainer)
                if policy.get("torch") is not None:
                    _torch(main, job, policy["torch"], trainer, nodes)
    for name, change in _changes(job):
        for replicated in spec.get("replicatedJobs") or []:
            if replicated["name"] == name:
                _override(replicated["template"]["spec"]["template"], change)
    spec["suspend"] = bool(job["spec"].get("suspend"))
    return spec


def takes_patches(store: Store) -> bool:
    """Return whether the served definition is that of v2.2 or later."""
    kind = store.kinds.by_key[KEY]
    return "runtimePatches" in (kind.schema or {})["properties"]["spec"]["properties"]


def _changes(job: Object) -> Iterator[tuple[str, Object]]:
    """Yield (replicated job, changes of its pod template) in the order of the lists."""
    for override in job["spec"].get("podTemplateOverrides") or []:
        yield from ((target["name"], override) for target in override["targetJobs"])
    for patch in job["spec"].get("runtimePatches") or []:
        jobset = ((patch.get("trainingRuntimeSpec") or {}).get("template") or {}).get("spec") or {}
        for each in jobset.get("replicatedJobs") or []:
            yield each["name"], ((each.get("template") or {}).get("spec") or {}).get("template") or {}


def _train(container: Object, trainer: Object) -> None:
    for part in ("image", "command", "args"):
        if trainer.get(part):
            container[part] = trainer[part]
    if trainer.get("resourcesPerNode"):
        container["resources"] = clone(trainer["resourcesPerNode"])
    upsert(container.setdefault("env", []), trainer.get("env") or [])


def _torch(container: Object, job: Object, torch: Object, trainer: Object, nodes: int) -> None:
    """Return torchrun's variables; "auto" without a GPU in the resources is the number of CPUs."""
    name = job["metadata"]["name"]
    processes = trainer.get("numProcPerNode") or torch.get("numProcPerNode") or "auto"
    amounts = trainer.get("resourcesPerNode") or {}
    asked = amounts.get("limits") or amounts.get("requests") or {}
    if processes == "auto" and asked and not any("gpu" in key.lower() for key in asked):
        processes = asked.get("cpu", 1)
    values = {"PET_NNODES": str(nodes), "PET_NPROC_PER_NODE": str(processes)}
    upsert(
        container.setdefault("env", []),
        [
            *({"name": key, "value": value} for key, value in values.items()),
            {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": INDEX}}},
            {"name": "PET_MASTER_ADDR", "value": f"{name}-{NODE}-0-0.{name}"},
            {"name": "PET_MASTER_PORT", "value": str(PORT)},
        ],
    )
    if not any(port["containerPort"] == PORT for port in container.get("ports") or []):
        container.setdefault("ports", []).append({"containerPort": PORT})


def _override(template: Object, override: Object) -> None:
    """Merge a job's overrides into a pod template: maps and named lists are merged, other values replaced."""
    for part, value in (override.get("metadata") or {}).items():
        if part in ("labels", "annotations"):
            template.setdefault("metadata", {}).setdefault(part, {}).update(value)
    spec = template["spec"]
    for part, value in (override.get("spec") or {}).items():
        if part in ("containers", "initContainers"):
            for patch in value:
                held = next((c for c in spec.get(part) or [] if c["name"] == patch["name"]), None)
                if held is not None:
                    upsert(held.setdefault("env", []), patch.get("env") or [])
                    upsert(held.setdefault("volumeMounts", []), patch.get("volumeMounts") or [], "mountPath")
        elif part in ("volumes", "imagePullSecrets", "schedulingGates"):
            upsert(spec.setdefault(part, []), value)
        elif part == "tolerations":
            spec[part] = [*(spec.get(part) or []), *value]
        elif part == "nodeSelector":
            spec[part] = {**(spec.get(part) or {}), **value}
        else:
            spec[part] = clone(value)


def upsert(into: list[Object], items: list[Object], key: str = "name") -> None:
    """Replace the items of the same name, add the others, in place."""
    for item in items:
        held = next((i for i, each in enumerate(into) if each.get(key) == item.get(key)), None)
        if held is None:
            into.append(clone(item))
        else:
            into[held] = clone(item)


class TrainJobController(OwnerController):
    """The controller of TrainJobs."""

    key, component, owns = KEY, "trainer-trainjob-controller", (SETS,)

    def reconcile(self, obj: Object) -> float | None:
        """Reconcile one job."""
        name, now = obj["metadata"]["name"], self.store.now()
        if obj["spec"].get("managedBy", f"{GROUP}/trainjob-controller") != f"{GROUP}/trainjob-controller":
            return None
        held = self.store.get(SETS, obj["metadata"]["namespace"], name)
        if not holds(obj, "Complete", "Failed"):
            held = self._set(obj, held) or held
        if obj["spec"].get("suspend"):
            put(obj, "Suspended", True, "Suspended", "TrainJob is suspended", now)
        elif holds(obj, "Suspended"):
            put(obj, "Suspended", False, "Resumed", "TrainJob is resumed", now)
        if held is not None:
            for kind, ours in ("Completed", "Complete"), ("Failed", "Failed"):
                if holds(held, kind):
                    ended = find(held, kind) or {}
                    put(obj, ours, True, ended["reason"], ended["message"], now)
            counts = (held.get("status") or {}).get("replicatedJobsStatus") or []
            obj.setdefault("status", {})["jobsStatus"] = clone(counts)
        self.write(obj)
        return None

    def _set(self, obj: Object, held: Object | None) -> Object | None:
        """Create the JobSet; while it is suspended it follows the job."""
        try:
            spec = jobset_spec(self.store, obj)
        except ApiError as error:
            self.event(
                obj,
                "Warning",
                "TrainJobResourcesCreationFailed",
                f"TrainJob resources reconciliation failed: {error.message}",
            )
            return None
        if held is None:
            meta = {
                "name": obj["metadata"]["name"],
                "labels": dict(obj["spec"].get("labels") or {}),
                "annotations": dict(obj["spec"].get("annotations") or {}),
            }
            return self.ensure(obj, SETS, {"metadata": meta, "spec": spec})
        if held["spec"].get("suspend"):
            pods = {each["name"]: each["template"]["spec"]["template"] for each in spec.get("replicatedJobs") or []}

            def follow(each: Object) -> None:
                each["spec"]["suspend"] = spec["suspend"]
                for replicated in each["spec"]["replicatedJobs"]:
                    template, new = replicated["template"]["spec"]["template"], pods.get(replicated["name"])
                    if new is not None:
                        policy = template["spec"].get("restartPolicy")
                        template.clear()
                        template.update(clone(new))
                        template["spec"].setdefault("restartPolicy", policy)

            self.change(SETS, held, follow)
        elif spec["suspend"]:
            self.change(SETS, held, lambda each: each["spec"].update(suspend=True))
        return self.store.get(SETS, obj["metadata"]["namespace"], obj["metadata"]["name"])
