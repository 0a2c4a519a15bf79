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
    from ..job_spec import JobSpec

ROLE = "training.kubeflow.org/job-role"
# A launcher that starts before the names of its workers are published ends at once; nothing has run anywhere then. Of a
# user's own program this is unknown: it is not started twice.
BACKOFF = 3


# A count of nodes is wrong for a program that mpirun starts several times on each.
_OF_ONE_A_NODE = frozenset({"WORLD_SIZE", "NNODES", "NPROC_PER_NODE"})


class MpiJob(KubeflowJob):
    """kubeflow.org/v2beta1 MPIJob."""

    name = "mpijob"
    version, resource, kind = "v2beta1", "mpijobs", "MPIJob"
    operator = "mpi-operator"
    uses_service = False  # the operator makes a Service of the job's name, and refuses one that is not its own
    multiplexed = True

    def job(self, spec: JobSpec) -> Unstructured:
        """One worker per node, and a launcher without devices."""
        return {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": self.meta(spec),
            "spec": {
                "slotsPerWorker": spec.slots,
                "runLauncherAsWorker": False,
                "launcherCreationPolicy": "WaitForWorkersReady",
                "mpiImplementation": "OpenMPI",
                "sshAuthMountPath": ssh_path(spec),
                # Only running pods are deleted at the end: sshd never ends by itself.
                "runPolicy": run_policy(spec, clean="Running", backoff=0 if spec.command else BACKOFF),
                "mpiReplicaSpecs": {
                    "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": _launcher(spec)},
                    "Worker": {"replicas": spec.nodes, "restartPolicy": "Never", "template": _worker(spec)},
                },
            },
        }

    def for_other_version(self, job: Unstructured, refusal: str) -> Unstructured | None:
        """Leave out fields unknown before v0.5; such releases start the launcher at once, without itself a rank."""
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
        """Independent of the profile's name: workers run sshd, the launcher mpirun."""
        return {"worker": "mpi.sshd-missing", "launcher": "mpi.mpirun-missing"}.get(_role(pod), "")

    def shown_by(self, pod: Unstructured) -> bool:
        """By the role that it gives to each pod; the Training Operator's label of the job is the same."""
        return _role(pod) in ("launcher", "worker")

    def prints_evidence(self, pod: Unstructured) -> bool:
        """Only the launcher's output carries evidence."""
        return _role(pod) == "launcher"

    def children(self, name: str) -> tuple[tuple[str, str], ...]:
        """The launcher is a separate Job."""
        return (("Job", f"{name}-launcher"),)

    def refused(self, event: Event) -> str:
        """The operator says in its own event that a worker cannot be created."""
        said = event.message
        if event.reason == "MPIJobFailed" and said.startswith("worker pod created failed: "):
            return said.removeprefix("worker pod created failed: ")
        return super().refused(event)


def ssh_path(spec: JobSpec) -> str:
    """Where the operator mounts the keys: the home of the user that sshd runs as (mpi-operator's base images)."""
    return spec.mpi.ssh_path or ("/root/.ssh" if spec.run_as_user is None else "/home/mpiuser/.ssh")


def handed_over(spec: JobSpec) -> list[str]:
    """The variables that mpirun takes from the launcher to the ranks: an ssh session has none of the container's."""
    fixed = [name for name in pod.fixed_environment(spec) if spec.slots == 1 or name not in _OF_ONE_A_NODE]
    return ["PATH", "LD_LIBRARY_PATH", *fixed, *spec.handed_over]


def mpirun(spec: JobSpec) -> list[str]:
    """The ranks, unbound (the processes that a probe starts need all cores), each line with its rank's tag."""
    placed = ["-np", str(spec.nodes * spec.slots), "--map-by", "slot", "--bind-to", "none", "--tag-output"]
    exported = [word for name in handed_over(spec) for word in ("-x", name)]
    return [*spec.mpi.mpirun, *placed, *spec.mpi.args, *exported, *(spec.command or pod.PROBE)]


def _worker(spec: JobSpec) -> Unstructured:
    shape = pod.PodShape(
        command=spec.mpi.sshd,
        rank="",
        subdomain=False,
        root_services=True,
        annotations=pod_annotations(spec),
        scheduler=scheduler(spec),
    )
    return template(spec, shape)


def _launcher(spec: JobSpec) -> Unstructured:
    """A small pod without devices, anywhere: it only runs mpirun."""
    container: Unstructured = {
        "name": spec.component,
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
