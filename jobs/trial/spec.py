"""The spec of one trial: a job with pods that run the probe, and the probe's stages."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..cluster.redact import safe
from ..listing import nearest
from .job_spec import JobSpec
from .names import SpecError, whole
from .parts import (
    S3,
    BenchSizes,
    CheckpointSpec,
    Collective,
    DcgmSpec,
    Deadlines,
    Endpoint,
    NetworkSpec,
    PerftestSpec,
    Sweep,
    TrainingSpec,
)

PREFIX = "seatrial-"
PROGRAMS = ("auto", "torch", "nccl-tests")
# NCCL's log settings for every rank, so that its transport can be judged (the NCCL user guide's environment variables).
_NCCL_EVIDENCE = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,NET,GRAPH,TUNING"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec(JobSpec):
    """One trial: a job, its pods' tests, and the time limit of each part."""

    collectives: tuple[Collective, ...] = (
        Collective(name="ring", env={"NCCL_ALGO": "Ring"}),
        Collective(name="default"),
    )
    bench: BenchSizes = field(default_factory=BenchSizes)
    deadlines: Deadlines = field(default_factory=Deadlines)
    attempt: int = 1
    s3: tuple[S3, ...] = ()
    burst_bytes: int = 0  # written by every rank at once, like a checkpoint
    network: NetworkSpec | None = None
    endpoints: tuple[Endpoint, ...] = ()
    program: str = "auto"  # auto | torch | nccl-tests: the program of the collectives
    sweep: Sweep | None = None
    training: TrainingSpec | None = None
    checkpoint: CheckpointSpec | None = None
    dcgm: DcgmSpec | None = None
    perftest: PerftestSpec | None = None

    @property
    def job_name(self) -> str:
        """The common name of the Job, the Service and the ConfigMap; unique for each attempt.

        A DNS cache may still resolve names of an earlier attempt to its pods' addresses.
        """
        return PREFIX + self.run_id + (f"-{self.attempt}" if self.attempt > 1 else "")

    @property
    def app(self) -> str:
        """The label of objects that `cleanup` deletes."""
        return "seatrial"

    @property
    def component(self) -> str:
        """The label of a rank, and the name of its container."""
        return "trial"

    @property
    def active_s(self) -> int:
        """Time to start and to probe, plus time in Volcano's queue.

        Volcano's pods exist while they wait; a job in Kueue is suspended meanwhile, which does not count.
        """
        waits = self.queue is not None and self.queue.kind == "volcano"
        return int(self.deadlines.job_s + (self.deadlines.queue_s if waits else 0))

    @property
    def kept_s(self) -> int:
        """The time to live, within which `job attach` can read the trial."""
        return int(self.deadlines.ttl_s)

    @property
    def lease_s(self) -> float:
        """The lease duration; a trial without a watcher is a leftover."""
        return self.deadlines.lease_s

    @property
    def outlives_pods(self) -> bool:
        """Whether the job is a sweep, which continues with the remaining pods."""
        return self.sweep is not None

    @property
    def slots(self) -> int:
        """One probe, which starts the processes of its node."""
        return 1

    @property
    def defaults(self) -> dict[str, str]:
        """NCCL's log level and subsystems."""
        return _NCCL_EVIDENCE

    @property
    def fixed(self) -> dict[str, str]:
        """The run, which each line of evidence contains."""
        return {"SEATRIAL_RUN": self.run_id}

    @property
    def fields(self) -> dict[str, str]:
        """The pod's facts for the probe."""
        return {
            "SEATRIAL_NODE_NAME": "spec.nodeName",
            "SEATRIAL_POD_NAME": "metadata.name",
            "SEATRIAL_POD_IP": "status.podIP",
        }

    @property
    def handed_over(self) -> tuple[str, ...]:
        """The variables of the buckets' credentials, which the probe examines."""
        return tuple(dict.fromkeys(name for item in self.s3 for name in item.names))

    @property
    def gpu_kind(self) -> str:
        """The vendor of the tools that the probe calls."""
        if self.gpu_resource.startswith("amd.com/") or any("amd.com" in item.device_class for item in self.claims):
            return "amd"
        return "nvidia" if self.gpus_per_node else "none"

    def __post_init__(self) -> None:
        """Reject settings that the probe could not execute."""
        whole("attempt", self.attempt, 1, 9)
        whole("burst bytes", self.burst_bytes, 0, 1 << 44)
        JobSpec.__post_init__(self)
        if self.program not in PROGRAMS:
            raise SpecError(f"unknown program {safe(self.program, 60)!r}{nearest(self.program, PROGRAMS)}")
        if self.sweep is not None and self.launcher != "indexed":
            raise SpecError(
                f"a sweep is an Indexed Job of one pod for each node; --launcher {self.launcher} cannot start it "
                "(docs/fleet.md)"
            )
        names = [item.name for item in self.collectives]
        if len(set(names)) != len(names):
            raise SpecError("two collectives have the same name")
