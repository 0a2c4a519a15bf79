"""The Training Operator's PyTorchJob: one master and one worker, in its own environment convention.

Its Service names only the master; the worker's name is published by a Service of ours, so that a trial can span only
two nodes here. Source: kubeflow/training-operator v1, pkg/controller.v1/pytorch and common.
"""

from __future__ import annotations

from ...cluster.unstructured import Unstructured, as_map, labels_of
from .. import pod
from ..job_spec import JobSpec
from .kind import MOST_REPLICAS, number, retold, whole
from .kubeflow import CONDITIONS, REPLICA, KubeflowJob, run_policy, template
from .queues import pod_annotations, scheduler

TYPE = "training.kubeflow.org/replica-type"


class PyTorchJob(KubeflowJob):
    """kubeflow.org/v1 PyTorchJob."""

    name = "pytorchjob"
    version, resource, kind = "v1", "pytorchjobs", "PyTorchJob"
    operator = "training-operator"
    container = "pytorch"  # the operator finds the container by this name, and sets its environment

    def job(self, spec: JobSpec) -> Unstructured:
        """Build it: rank 0 is the master, rank 1 the worker."""
        # The master may end slightly before the worker has reported everything: no pod is deleted at the end.
        policy = run_policy(spec, clean="None", backoff=0)
        return {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": self.meta(spec),
            "spec": {
                "runPolicy": policy,
                "nprocPerNode": str(spec.processes),
                "pytorchReplicaSpecs": {
                    kind: {"replicas": 1, "restartPolicy": "Never", "template": _template(spec, rank)}
                    for rank, kind in enumerate(("Master", "Worker"))
                },
            },
        }

    def as_job(self, raw: Unstructured) -> Unstructured:
        """Convert a PyTorchJob; Succeeded becomes Complete."""
        spec = as_map(raw.get("spec"))
        kinds = as_map(spec.get("pytorchReplicaSpecs")).values()
        pods = sum(whole(as_map(each).get("replicas"), 1) for each in kinds) or 1
        return retold(raw, CONDITIONS, pods=pods, suspended=as_map(spec.get("runPolicy")).get("suspend"))

    def shown_by(self, pod: Unstructured) -> bool:
        """Return whether the pod has a replica type; the MPI Operator uses the same label of the job."""
        return TYPE in labels_of(pod)

    def index(self, pod: Unstructured) -> int:
        """Return the rank: the master is 0, workers count from 1."""
        kind = labels_of(pod).get(TYPE)
        if kind == "master":
            return 0
        replica = number(pod, REPLICA)
        return replica + 1 if replica < MOST_REPLICAS else replica


def _template(spec: JobSpec, rank: int) -> Unstructured:
    shape = pod.PodShape(
        container=PyTorchJob.container,
        rank=str(rank),
        # The master's name is that of the operator's Service for it.
        hostname="" if rank == 0 else f"{spec.job_name}-{rank}",
        subdomain=rank != 0,
        port_name="pytorchjob-port",  # the operator finds MASTER_PORT by this name
        annotations=pod_annotations(spec),
        scheduler=scheduler(spec),
    )
    return template(spec, shape)
