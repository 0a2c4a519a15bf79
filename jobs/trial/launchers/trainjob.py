"""Kubeflow Trainer's TrainJob: it names a runtime, and changes the runtime's pods within the limits of the API.

The pod is that of the runtime, as in training: settings that a TrainJob cannot change (capabilities, priority, runtime
class) are reported, not forced. Source: kubeflow/trainer pkg/apis/trainer/v1alpha1/trainjob_types.go (runtimePatches
since v2.2, which replaced the podTemplateOverrides of v2.0 and v2.1), manifests/base/runtimes/torch_distributed.yaml.
"""

from __future__ import annotations

from ...cluster.unstructured import Unstructured, as_map
from .. import pod
from ..job_spec import JobSpec
from .kind import Kind, retold, whole

NODE = "node"  # the replicated job and its container, in every runtime of Trainer
MANAGER = "seatrial/launcher"
_CONDITIONS = {"Complete": "Complete", "Failed": "Failed", "Suspended": "Suspended"}


class TrainJob(Kind):
    """trainer.kubeflow.org/v1alpha1 TrainJob; its pods are those of an Indexed Job within a JobSet."""

    name = "trainjob"
    group, version, resource, kind = "trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"
    operator = "kubeflow-trainer"
    container = NODE
    uses_service = False  # the JobSet creates one of the job's name

    def job(self, spec: JobSpec) -> Unstructured:
        """Build it: the runtime's pods with our image, command, environment, volumes and placement."""
        jobs = [{"name": NODE, "template": {"spec": {"template": _template(spec)}}}]
        patch = {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
        trainer = {
            "image": spec.image,
            "command": list(spec.command or pod.PROBE),
            "numNodes": spec.nodes,
            "numProcPerNode": spec.processes,
            "resourcesPerNode": pod.resources(spec),
            "env": pod.environment(spec),
        }
        return {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": self.meta(spec),
            "spec": {
                "suspend": True,
                "runtimeRef": {
                    "apiGroup": "trainer.kubeflow.org",
                    "kind": "ClusterTrainingRuntime",
                    "name": spec.runtime,
                },
                "trainer": trainer,
                "runtimePatches": [patch],
            },
        }

    def for_other_version(self, job: Unstructured, refusal: str) -> Unstructured | None:
        """Return the job with podTemplateOverrides, for a Trainer before v2.2, which lacks runtimePatches."""
        if '"spec.runtimePatches"' not in refusal or "runtimePatches" not in job["spec"]:
            return None
        rest = {key: value for key, value in as_map(job["spec"]).items() if key != "runtimePatches"}
        (patch,) = job["spec"]["runtimePatches"]
        (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        override = {"targetJobs": [{"name": node["name"]}], **node["template"]["spec"]["template"]}
        return dict(job) | {"spec": rest | {"podTemplateOverrides": [override]}}

    def left_out(self, spec: JobSpec) -> tuple[str, ...]:
        """Return the settings that only the runtime decides."""
        asked = {
            "capabilities": ", ".join(spec.capabilities),
            "runtime_class": spec.runtime_class,
            "scheduler_name": spec.scheduler_name,
            "priority_class": spec.priority_class,
            "host_network": spec.host_network,
            "sidecars": len(spec.sidecars),
            "run_as_user": spec.run_as_user,
            "env_secrets": ", ".join(spec.env_secrets),
        }
        return tuple(f"{key}: {value}" for key, value in asked.items() if value)

    def selector(self, name: str) -> str:
        """Return the label that the JobSet sets."""
        return f"jobset.sigs.k8s.io/jobset-name={name}"

    def shown_by(self, pod: Unstructured) -> bool:
        """Return False: its pods cannot be distinguished from those of any JobSet."""
        del pod
        return False

    def as_job(self, raw: Unstructured) -> Unstructured:
        """Convert a TrainJob; its conditions have the Job's own names."""
        spec = as_map(raw.get("spec"))
        pods = whole(as_map(spec.get("trainer")).get("numNodes"), 1)
        return retold(raw, _CONDITIONS, pods=pods, suspended=spec.get("suspend"))

    def children(self, name: str) -> tuple[tuple[str, str], ...]:
        """Return its JobSet, and the JobSet's Job."""
        return (("JobSet", name), ("Job", f"{name}-{NODE}-0"))


def _template(spec: JobSpec) -> Unstructured:
    """Return the changes of the runtime's pods."""
    pods: Unstructured = {
        "volumes": pod.volumes(spec),
        "containers": [{"name": NODE, "volumeMounts": pod.mounts(spec)}],
    }
    optional = {
        "serviceAccountName": spec.service_account,
        "nodeSelector": dict(spec.node_selector),
        "tolerations": [dict(item) for item in spec.tolerations],
        "imagePullSecrets": [{"name": name} for name in spec.pull_secrets],
        "affinity": pod.anti_affinity(spec) if spec.anti_affinity and spec.nodes > 1 else None,
    }
    pods |= {key: value for key, value in optional.items() if value}
    meta: Unstructured = {"labels": pod.labels(spec)}
    if spec.annotations:
        meta["annotations"] = dict(spec.annotations)
    return {"metadata": meta, "spec": pods}
