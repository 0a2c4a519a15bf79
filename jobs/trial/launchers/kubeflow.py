"""Common parts of the jobs of Kubeflow's older operators (kubeflow.org: MPIJob, PyTorchJob): run policy and labels."""

from __future__ import annotations

from ...cluster.unstructured import Unstructured, as_map
from .. import pod
from ..job_spec import JobSpec
from .kind import Kind

REPLICA = "training.kubeflow.org/replica-index"
JOB = "training.kubeflow.org/job-name"
CONDITIONS = {"Succeeded": "Complete", "Failed": "Failed", "Suspended": "Suspended"}


class KubeflowJob(Kind):
    """A job with suspend, deadline and retries in spec.runPolicy."""

    group = "kubeflow.org"

    def resume(self) -> Unstructured:
        """Return the merge patch; suspend is in the run policy."""
        return {"spec": {"runPolicy": {"suspend": False}}}

    def templates(self, raw: Unstructured) -> list[Unstructured]:
        """Return one for each kind of replica."""
        spec = as_map(raw.get("spec"))
        kinds = (as_map(each) for key, each in spec.items() if key.endswith("ReplicaSpecs"))
        return [as_map(as_map(each).get("template")) for kind in kinds for each in kind.values()]

    def selector(self, name: str) -> str:
        """Return the label that the operator sets on all its pods."""
        return f"{JOB}={name}"


def run_policy(spec: JobSpec, *, clean: str, backoff: int) -> Unstructured:
    """Return the run policy; ``clean`` selects the pods that the operator deletes at the end (cleanPodPolicy)."""
    return ({"activeDeadlineSeconds": spec.active_s} if spec.active_s else {}) | {
        "cleanPodPolicy": clean,
        "ttlSecondsAfterFinished": spec.kept_s,
        "backoffLimit": backoff,
        "suspend": True,
    }


def template(spec: JobSpec, shape: pod.PodShape) -> Unstructured:
    """Return a replica's pod template without a restart policy: the operator warns if both have one."""
    made = pod.template(spec, shape)
    del made["spec"]["restartPolicy"]
    return made
