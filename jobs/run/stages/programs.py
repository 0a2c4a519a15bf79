"""The stages of the programs that ranks run together: collectives, training steps, a checkpoint."""

from __future__ import annotations

from typing import TypedDict

from .hardware import GpuFacts, Xid
from .kinds import Count, LogPart


class ProgramFacts(TypedDict, total=False):
    """The facts of a collective's program that its table has no column for."""

    op: str
    cycles: Count
    largest: Count
    first_us: dict[str, float]


class CollectiveRun(TypedDict, total=False):
    """One collective on one rank."""

    name: str
    op: str
    scope: str
    program: str
    stopped: str
    output_tail: str
    error: str
    skipped: str
    repeats: Count
    world_size: Count
    output_bytes: Count
    log_bytes: Count
    exit: float
    seconds: float
    command: list[str]
    logs: list[str]
    timed_out: bool
    env: dict[str, str]
    nccl_conf: dict[str, str]
    rdma_counters: dict[str, Count]
    facts: ProgramFacts
    nccl: LogPart


class TrainingProduct(TypedDict, total=False):
    """A repeated product of matrices on one rank."""

    kind: str
    digest: str
    why: str
    seed: Count
    side: Count
    made: Count
    differs: Count


class TrainingMode(TypedDict, total=False):
    """The steps with the other ranks, in one sharing mode; milliseconds, the first and the last losses.

    ``seconds``: the time of all its steps, including warm-up and each rank's own steps.
    """

    mode: str
    why: str  # if there are no steps
    steps: Count
    bad_step: Count
    seconds: float
    step_ms: list[float]
    losses: list[float]


class TrainingRank(TypedDict, total=False):
    """The measurements of one rank; milliseconds.

    ``compute_ms``, ``losses`` and ``bad_step`` are those of the same steps without any other rank.
    """

    rank: Count
    local: Count
    world: Count
    seed: Count
    multiprocessors: Count
    device: str
    name: str
    torch: str
    library: str
    bus_id: str
    flops: float
    comm_ms: float
    memory_mib: float
    compute_ms: list[float]
    losses: list[float]
    bad_step: Count
    window: list[float]
    shape: dict[str, Count]
    products: list[TrainingProduct]
    modes: list[TrainingMode]


class TrainingSample(TypedDict, total=False):
    """A GPU during the steps: medians, the lowest clock and use, the highest temperature."""

    index: Count
    uuid: str
    samples: Count
    sm_mhz: float
    sm_mhz_least: float
    power_w: float
    temperature_c: float
    utilisation: float
    utilisation_least: float


class TrainingSteps(TypedDict, total=False):
    """The training steps of some ranks, of a trial or of a node alone in a sweep."""

    skipped: str
    stopped: str
    error: str
    output_tail: str
    timed_out: bool
    exit: float
    seconds: float
    ranks: list[TrainingRank]
    samples: list[TrainingSample]


class TrainingRun(TrainingSteps, total=False):
    """The training steps of one pod's ranks; ``gpus`` is read after them, with all throttle reasons in between."""

    command: list[str]
    gpus: list[GpuFacts]
    xid: list[Xid]
    rdma_counters: dict[str, Count]


class CheckpointPlace(TypedDict, total=False):
    """A path for a checkpoint: ``path`` outlives the job, ``local`` is node-local and written first."""

    role: str
    path: str
    kind: str
    fs: str
    device: str
    readonly: bool
    mounted: bool
    sticky: bool
    shared: bool
    mode: Count


class CheckpointSave(TypedDict, total=False):
    """One rank's part of saving a step; ``at`` by its node's clock."""

    step: Count
    bytes: Count
    at: float
    pause_s: float
    write_s: float


class CheckpointRank(TypedDict, total=False):
    """The report of one rank."""

    rank: Count
    torch: str
    saves: list[CheckpointSave]


class CheckpointState(TypedDict, total=False):
    """The state of a step (writing, local, flushing, durable or verified), and since when."""

    step: Count
    state: str
    at: float


class CheckpointFlush(TypedDict, total=False):
    """The copy of one node's files to the path that outlives the job."""

    seconds: float
    mb_s: float
    bytes: Count


class CheckpointVerified(TypedDict, total=False):
    """The next node's files, read back on this one; ``elsewhere`` is false if there is only one node."""

    peer: Count
    files: Count
    bytes: Count
    elsewhere: bool
    seen: bool
    ok: bool
    error: str
    bad: list[str]
    seconds: float
    mb_s: float


class CheckpointCrash(TypedDict, total=False):
    """The step in which a rank was killed; ``torn``: it has no index."""

    step: Count
    rank: Count
    exit: float
    torn: bool


class CheckpointResume(TypedDict, total=False):
    """The step from which the job resumed, and the newer ones that it skipped; ``wrong`` counts values."""

    step: Count
    wrong: Count
    seconds: float
    error: str
    passed_over: list[CheckpointState]


class CheckpointRun(TypedDict, total=False):
    """A checkpoint of all ranks, from writing to verified, with a crash in the next one and the resume."""

    skipped: str
    error: str
    where: str
    bytes: Count
    memory_free: Count
    places: list[CheckpointPlace]
    ranks: list[CheckpointRank]
    states: list[CheckpointState]
    flush: CheckpointFlush
    verified: CheckpointVerified
    crash: CheckpointCrash
    resume: CheckpointResume
    cleaned: list[str]
