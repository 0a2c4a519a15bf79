"""Profile section `launch`: the kind of object that launches training, its queue, its priority."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobs.trial.spec import LAUNCHERS

from ..yaml_schema import nearest, require

QUEUES = ("kueue", "volcano")


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """What admits training before its pods may start."""

    kind: str = ""  # kueue or volcano; nothing: pods go straight to the scheduler
    name: str = ""  # the LocalQueue, or Volcano's Queue (its own default: "default")
    priority_class: str = ""  # Kueue's WorkloadPriorityClass, or the PodGroup's PriorityClass

    def __post_init__(self) -> None:
        known = self.kind in ("", *QUEUES)
        require(known, "kind", f"must be kueue or volcano, not {self.kind!r}{nearest(self.kind, QUEUES)}")
        require(self.kind != "kueue" or bool(self.name), "name", "is missing: which LocalQueue?")
        require(bool(self.kind) or not self.name, "kind", "is missing: kueue or volcano?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mpi:
    """What an MPIJob needs besides an image with Open MPI and sshd."""

    sshd: tuple[str, ...] = ("/usr/sbin/sshd", "-De")
    ssh_path: str = ""  # where the keys are mounted; nothing: /root/.ssh, or /home/mpiuser/.ssh with run_as_user
    mpirun: tuple[str, ...] = ("mpirun", "--allow-run-as-root")
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How training is launched here; the trial is launched the same way."""

    launcher: str = "indexed"
    queue: Queue = field(default_factory=Queue)
    mpi: Mpi = field(default_factory=Mpi)
    runtime: str = "torch-distributed"  # the ClusterTrainingRuntime of a TrainJob
    gang_test: bool = False  # also try a job that cannot fit: it must start no pod
    nodes_on_demand: bool = False  # an autoscaler brings the nodes when pods ask for them

    def __post_init__(self) -> None:
        known = self.launcher in LAUNCHERS
        require(known, "launcher", f"must not be {self.launcher!r}{nearest(self.launcher, LAUNCHERS)}")
