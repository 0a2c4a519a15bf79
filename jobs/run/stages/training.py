"""The stage of training steps."""

from __future__ import annotations

from typing import TypedDict

from .hardware import GpuFacts, Xid
from .kinds import Count


class TrainingProduct(TypedDict, total=False):
    """A product of matrices on one rank, again and again."""

    kind: str
    digest: str
    why: str
    seed: Count
    side: Count
    made: Count
    differs: Count


class TrainingMode(TypedDict, total=False):
    """The steps with the other ranks, in one way of sharing; milliseconds, the first and the last losses.

    ``seconds``: of all its steps, those that warm up and those of each rank alone included.
    """

    mode: str
    why: str  # there are none
    steps: Count
    bad_step: Count
    seconds: float
    step_ms: list[float]
    losses: list[float]


class TrainingRank(TypedDict, total=False):
    """What one rank measured; milliseconds.

    ``compute_ms``, ``losses`` and ``bad_step`` are of the same steps without any other rank.
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
    """A GPU while the steps ran: medians, the least clock and use, the greatest heat."""

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
    """The training steps of one pod's ranks; ``gpus`` is read after them, with all that slowed one in between."""

    command: list[str]
    gpus: list[GpuFacts]
    xid: list[Xid]
    rdma_counters: dict[str, Count]
