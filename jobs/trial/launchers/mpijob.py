"""The MPI Operator's MPIJob: workers run sshd; mpirun in the launcher starts one probe in each of them.

The evidence of all ranks arrives on the launcher's output, each piece with mpirun's tag. What sshd starts has sshd's
environment, not the container's: mpirun hands over the launcher's by name (-x). Source: kubeflow/mpi-operator v0.6,
pkg/controller/mpi_job_controller.go (names, labels, Service, keys), pkg/apis/kubeflow/v2beta1/types.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...cluster.unstructured import Unstructured, as_map, labels_of
from .. import pod
from ..parts import MPI_LAUNCHER
from .kind import MOST_REPLICAS, number, retold, whole
from .kubeflow import CONDITIONS, REPLICA, KubeflowJob, run_policy, template
from .queues import pod_annotations, scheduler

if TYPE_CHECKING:
    from ...cluster.facts.events import Event
    from ..spec import TrialSpec

ROLE = "training.kubeflow.org/job-role"
# A launcher that starts before the names of its workers are published ends at once; nothing has run anywhere then.
BACKOFF = 3


class MpiJob(KubeflowJob):
    """kubeflow.org/v2beta1 MPIJob."""

    name = "mpijob"
    version, resource, kind = "v2beta1", "mpijobs", "MPIJob"
    operator = "mpi-operator"
    uses_service = False  # the operator makes a Service of the job's name, and refuses one that is not its own
    multiplexed = True

    def job(self, spec: TrialSpec) -> Unstructured:
        """One worker per node with one slot, and a launcher without devices."""
        return {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": self.meta(spec),
            "spec": {
                "slotsPerWorker": 1,
                "runLauncherAsWorker": False,
                "launcherCreationPolicy": "WaitForWorkersReady",
                "mpiImplementation": "OpenMPI",
                "sshAuthMountPath": ssh_path(spec),
                "runPolicy": run_policy(spec, clean="Running", backoff=BACKOFF),  # sshd never ends by itself
                "mpiReplicaSpecs": {
                    "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": _launcher(spec)},
                    "Worker": {"replicas": spec.nodes, "restartPolicy": "Never", "template": _worker(spec)},
                },
            },
        }

    def for_other_version(self, job: Unstructured, refusal: str) -> Unstructured | None:
        """Leave out what releases before v0.5 do not know; they start the launcher at once, without itself a rank."""
        unknown = [key for key in ("launcherCreationPolicy", "runLauncherAsWorker") if f'"spec.{key}"' in refusal]
        if not unknown:
            return None
        return dict(job) | {"spec": {key: value for key, value in job["spec"].items() if key not in unknown}}

    def as_job(self, raw: Unstructured) -> Unstructured:
        """Succeeded is Complete; the launcher counts as one more pod, behind the workers."""
        spec = as_map(raw.get("spec"))
        suspended = as_map(spec.get("runPolicy")).get("suspend")
        return retold(
            raw,
            CONDITIONS,
            pods=_workers(raw) + 1,
            suspended=suspended,
            backoff=whole(as_map(spec.get("runPolicy")).get("backoffLimit"), 0),
        )

    def index(self, pod: Unstructured) -> int:
        """A worker's index is its rank; the launcher comes behind all workers."""
        return number(pod, REPLICA) if _role(pod) == "worker" else MOST_REPLICAS

    def command_missing(self, pod: Unstructured) -> str:
        """Whatever the profile calls it: workers run sshd, the launcher mpirun."""
        return {"worker": "mpi.sshd-missing", "launcher": "mpi.mpirun-missing"}.get(_role(pod), "")

    def tells(self, pod: Unstructured) -> bool:
        """Only the launcher's output carries evidence."""
        return _role(pod) == "launcher"

    def children(self, name: str) -> tuple[tuple[str, str], ...]:
        """The launcher is a Job of its own."""
        return (("Job", f"{name}-launcher"),)

    def refused(self, event: Event) -> str:
        """The operator says in an event of its own that a worker cannot be created."""
        said = event.message
        if event.reason == "MPIJobFailed" and said.startswith("worker pod created failed: "):
            return said.removeprefix("worker pod created failed: ")
        return super().refused(event)


def ssh_path(spec: TrialSpec) -> str:
    """Where the operator mounts the keys: the home of the user that sshd runs as (mpi-operator's base images)."""
    return spec.mpi.ssh_path or ("/root/.ssh" if spec.run_as_user is None else "/home/mpiuser/.ssh")


def handed_over(spec: TrialSpec) -> list[str]:
    """The variables that mpirun takes from the launcher to the ranks: an ssh session has none of the container's."""
    names = ["PATH", "LD_LIBRARY_PATH", *pod.fixed_environment(spec)]
    return [*names, *dict.fromkeys(name for item in spec.s3 for name in item.env)]


def mpirun(spec: TrialSpec) -> list[str]:
    """One probe per worker, unbound (torchrun's own processes need all cores), each line with its rank's tag."""
    placed = ["-np", str(spec.nodes), "--map-by", "slot", "--bind-to", "none", "--tag-output"]
    exported = [word for name in handed_over(spec) for word in ("-x", name)]
    return [*spec.mpi.mpirun, *placed, *spec.mpi.args, *exported, *pod.PROBE]


def _worker(spec: TrialSpec) -> Unstructured:
    shape = pod.PodShape(
        command=spec.mpi.sshd,
        rank="",
        subdomain=False,
        root_services=True,
        annotations=pod_annotations(spec),
        scheduler=scheduler(spec),
    )
    return template(spec, shape)


def _launcher(spec: TrialSpec) -> Unstructured:
    """A small pod without devices, anywhere: it only runs mpirun."""
    container: Unstructured = {
        "name": pod.CONTAINER,
        "image": spec.image,
        "command": mpirun(spec),
        "env": [{"name": key, "value": value} for key, value in pod.fixed_environment(spec).items()],
        "resources": {"requests": dict(MPI_LAUNCHER), "limits": dict(MPI_LAUNCHER)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if spec.env_secrets:
        container["envFrom"] = [{"secretRef": {"name": name}} for name in spec.env_secrets]
    if spec.pull_policy:
        container["imagePullPolicy"] = spec.pull_policy
    launcher: Unstructured = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": pod.GRACE_S,
        "securityContext": pod.pod_security(spec),
        "containers": [container],
    }
    optional = {
        "tolerations": [dict(item) for item in spec.tolerations],
        "nodeSelector": dict(spec.node_selector),
        "imagePullSecrets": [{"name": name} for name in spec.pull_secrets],
        "priorityClassName": spec.priority_class,
        "serviceAccountName": spec.service_account,
    }
    launcher |= {key: value for key, value in optional.items() if value}
    return {"metadata": {"labels": pod.labels(spec) | {pod.COMPONENT: "launcher"}}, "spec": launcher}


def _workers(raw: Unstructured) -> int:
    replicas = as_map(as_map(raw.get("spec")).get("mpiReplicaSpecs"))
    return whole(as_map(replicas.get("Worker")).get("replicas"), 1)


def _role(pod: Unstructured) -> str:
    return str(labels_of(pod).get(ROLE) or "")
