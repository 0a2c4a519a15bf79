"""The MPI Operator's MPIJob: workers run sshd; mpirun in the launcher starts one probe in each of them.

The evidence of all ranks arrives in the launcher's output, each piece with mpirun's tag. A process started by sshd has
sshd's environment, not the container's: mpirun exports the launcher's variables by name (-x). Source:
kubeflow/mpi-operator v0.6, pkg/controller/mpi_job_controller.go (names, labels, Service, keys),
pkg/apis/kubeflow/v2beta1/types.go.
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
# A launcher that starts before the names of its workers are published ends at once, before any rank has run. For a
# user's own program this is not certain, so it is not restarted.
BACKOFF = 3


# These counts of nodes are wrong for a program that mpirun starts several times on each.
_OF_ONE_A_NODE = frozenset({"WORLD_SIZE", "NNODES", "NPROC_PER_NODE"})


class MpiJob(KubeflowJob):
    """kubeflow.org/v2beta1 MPIJob."""

    name = "mpijob"
    version, resource, kind = "v2beta1", "mpijobs", "MPIJob"
    operator = "mpi-operator"
    uses_service = False  # the operator creates a Service of the job's name, and refuses a foreign one
    multiplexed = True

    def job(self, spec: JobSpec) -> Unstructured:
        """Build it: one worker per node, and a launcher without devices."""
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
        """Return the job without fields unknown before v0.5; there the launcher starts at once, and not as a rank."""
        unknown = [key for key in ("launcherCreationPolicy", "runLauncherAsWorker") if f'"spec.{key}"' in refusal]
        if not unknown:
            return None
        return dict(job) | {"spec": {key: value for key, value in job["spec"].items() if key not in unknown}}

    def as_job(self, raw: Unstructured) -> Unstructured:
        """Convert an MPIJob; Succeeded becomes Complete, and the launcher counts as one more pod, after the workers."""
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
        """Return a worker's index, which is its rank; MOST_REPLICAS for the launcher."""
        return number(pod, REPLICA) if _role(pod) == "worker" else MOST_REPLICAS

    def command_missing(self, pod: Unstructured) -> str:
        """Return the fault by the pod's role: workers run sshd, the launcher mpirun."""
        return {"worker": "mpi.sshd-missing", "launcher": "mpi.mpirun-missing"}.get(_role(pod), "")

    def shown_by(self, pod: Unstructured) -> bool:
        """Return whether the pod has a role of the MPI Operator; the Training Operator has the same job label."""
        return _role(pod) in ("launcher", "worker")

    def prints_evidence(self, pod: Unstructured) -> bool:
        """Return whether the pod is the launcher, because its output has the evidence."""
        return _role(pod) == "launcher"

    def children(self, name: str) -> tuple[tuple[str, str], ...]:
        """Return the launcher, which is a separate Job."""
        return (("Job", f"{name}-launcher"),)

    def refused(self, event: Event) -> str:
        """Return the reason why a worker cannot be created, which the operator reports in its own event."""
        said = event.message
        if event.reason == "MPIJobFailed" and said.startswith("worker pod created failed: "):
            return said.removeprefix("worker pod created failed: ")
        return super().refused(event)


def ssh_path(spec: JobSpec) -> str:
    """Return the mount path of the keys: in the home of sshd's user (mpi-operator's base images)."""
    return spec.mpi.ssh_path or ("/root/.ssh" if spec.run_as_user is None else "/home/mpiuser/.ssh")


def handed_over(spec: JobSpec) -> list[str]:
    """Return the variables that mpirun exports to the ranks: an ssh session has none of the container's."""
    fixed = [name for name in pod.fixed_environment(spec) if spec.slots == 1 or name not in _OF_ONE_A_NODE]
    return ["PATH", "LD_LIBRARY_PATH", *fixed, *spec.handed_over]


def mpirun(spec: JobSpec) -> list[str]:
    """Return mpirun's command line; ranks are unbound (a probe's children need all cores) and tag their output."""
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
    """Return a small pod without devices, on any node, which only runs mpirun."""
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
