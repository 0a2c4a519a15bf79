"""The stages of the programs that ranks run together: collectives, training steps, a checkpoint."""

from __future__ import annotations

from typing import TypedDict

from .hardware import GpuFacts, Xid
from .kinds import Count, LogPart


class ProgramFacts(TypedDict):
    """The facts of a collective's program that its table has no column for."""

    op: str | None
    cycles: Count | None
    largest: Count | None
    first_us: dict[str, float]


class CollectiveRun(TypedDict):
    """One collective on one rank."""

    name: str | None
    op: str | None
    scope: str | None
    program: str | None
    stopped: str | None
    output_tail: str | None
    error: str | None
    skipped: str | None
    repeats: Count | None
    world_size: Count | None
    output_bytes: Count | None
    log_bytes: Count | None
    exit: float | None
    seconds: float | None
    command: list[str]
    logs: list[str]
    timed_out: bool | None
    env: dict[str, str]
    nccl_conf: dict[str, str]
    rdma_counters: dict[str, Count] | None
    facts: ProgramFacts | None
    nccl: LogPart


class TrainingProduct(TypedDict):
    """A repeated product of matrices on one rank."""

    kind: str | None
    digest: str | None
    why: str | None
    seed: Count | None
    side: Count | None
    made: Count | None
    differs: Count | None


class TrainingMode(TypedDict):
    """The steps with the other ranks, in one way of sharing; milliseconds, the first and the last losses.

    ``seconds``: the time of all its steps, including warm-up and each rank's own steps.
    """

    mode: str | None
    why: str | None  # if there are no steps
    steps: Count | None
    bad_step: Count | None
    seconds: float | None
    step_ms: list[float]
    losses: list[float]


class TrainingRank(TypedDict):
    """The measurements of one rank; milliseconds.

    ``compute_ms``, ``losses`` and ``bad_step`` are those of the same steps without any other rank.
    """

    rank: Count | None
    local: Count | None
    world: Count | None
    seed: Count | None
    multiprocessors: Count | None
    device: str | None
    name: str | None
    torch: str | None
    library: str | None
    bus_id: str | None
    flops: float | None
    comm_ms: float | None
    memory_mib: float | None
    compute_ms: list[float]
    losses: list[float]
    bad_step: Count | None
    window: list[float]
    shape: dict[str, Count]
    products: list[TrainingProduct]
    modes: list[TrainingMode]


class TrainingSample(TypedDict):
    """A GPU during the steps: medians, the lowest clock and use, the highest temperature."""

    index: Count | None
    uuid: str | None
    samples: Count | None
    sm_mhz: float | None
    sm_mhz_least: float | None
    power_w: float | None
    temperature_c: float | None
    utilisation: float | None
    utilisation_least: float | None


class TrainingSteps(TypedDict):
    """The training steps of some ranks, of a trial or of a node alone in a sweep."""

    skipped: str | None
    stopped: str | None
    error: str | None
    output_tail: str | None
    timed_out: bool | None
    exit: float | None
    seconds: float | None
    ranks: list[TrainingRank]
    samples: list[TrainingSample]


class TrainingRun(TrainingSteps):
    """The training steps of one pod's ranks; ``gpus`` is read after them, with all throttle reasons in between."""

    command: list[str]
    gpus: list[GpuFacts]
    xid: list[Xid]
    rdma_counters: dict[str, Count]


class CheckpointPlace(TypedDict):
    """A path for a checkpoint: ``path`` outlives the job, ``local`` is node-local and written first."""

    role: str | None
    path: str | None
    kind: str | None
    fs: str | None
    device: str | None
    readonly: bool | None
    mounted: bool | None
    sticky: bool | None
    shared: bool | None
    mode: Count | None


class CheckpointSave(TypedDict):
    """One rank's part of saving a step; ``at`` by its node's clock."""

    step: Count | None
    bytes: Count | None
    at: float | None
    pause_s: float | None
    write_s: float | None


class CheckpointRank(TypedDict):
    """The report of one rank."""

    rank: Count | None
    torch: str | None
    saves: list[CheckpointSave]


class CheckpointState(TypedDict):
    """The state of a step (writing, local, flushing, durable or verified), and since when."""

    step: Count | None
    state: str | None
    at: float | None


class CheckpointFlush(TypedDict):
    """The copy of one node's files to the path that outlives the job."""

    seconds: float | None
    mb_s: float | None
    bytes: Count | None


class CheckpointVerified(TypedDict):
    """The next node's files, read back on this one; ``elsewhere`` is false if there is only one node."""

    peer: Count | None
    files: Count | None
    bytes: Count | None
    elsewhere: bool | None
    seen: bool | None
    ok: bool | None
    error: str | None
    bad: list[str]
    seconds: float | None
    mb_s: float | None


class CheckpointCrash(TypedDict):
    """The step in which a rank was killed; ``torn``: it has no index."""

    step: Count | None
    rank: Count | None
    exit: float | None
    torn: bool | None


class CheckpointResume(TypedDict):
    """The step from which the job resumed, and the newer ones that it skipped; ``wrong`` counts values."""

    step: Count | None
    wrong: Count | None
    seconds: float | None
    error: str | None
    passed_over: list[CheckpointState]


class CheckpointRun(TypedDict):
    """A checkpoint of all ranks, from writing to verified, with a crash in the next one and the resume."""

    skipped: str | None
    error: str | None
    where: str | None
    bytes: Count | None
    memory_free: Count | None
    places: list[CheckpointPlace]
    ranks: list[CheckpointRank]
    states: list[CheckpointState]
    flush: CheckpointFlush
    verified: CheckpointVerified | None
    crash: CheckpointCrash
    resume: CheckpointResume | None
    cleaned: list[str]
