"""Profile section `launch`: the kind of object that launches training, its queue, its priority."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobs.listing import nearest
from jobs.trial.parts import Mpi, Queue
from jobs.trial.spec import LAUNCHERS

from ..yaml_schema import require


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSection:
    """How training is launched here; the trial is launched the same way."""

    launcher: str = "indexed"
    queue: Queue | None = None  # none: pods go straight to the scheduler
    mpi: Mpi = field(default_factory=Mpi)
    runtime: str = "torch-distributed"  # the ClusterTrainingRuntime of a TrainJob
    gang_test: bool = False  # also try a job that cannot fit: it must start no pod
    nodes_on_demand: bool = False  # an autoscaler brings the nodes when pods ask for them

    def __post_init__(self) -> None:
        known = self.launcher in LAUNCHERS
        require(known, "launcher", f"must not be {self.launcher!r}{nearest(self.launcher, LAUNCHERS)}")
