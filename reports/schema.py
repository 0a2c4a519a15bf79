"""The record as JSON (report.json): its types, and the validation and completion of records that are read.

docs/record.schema.json publishes the same. A record that was read has every key of these types, with an empty value if
the file lacks it; a type with ``total=False`` keeps only the given keys. Other keys are unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, NotRequired, TypedDict, cast

from jobs.cluster.json_types import filled
from jobs.pod.sweep.rows import Elements, FindingRow, LevelRow, RoundRow, TestRow


class RecordError(ValueError):
    """The file is not a readable record; one line."""


class Outcome(StrEnum):
    """The outcome of one check."""

    PASSED = "passed"
    SKIPPED = "skipped"  # does not apply here; the reason explains why
    BLOCKED = "blocked"  # a check it requires did not pass
    ERROR = "error"  # inconclusive
    FAILED = "failed"  # attributed to the cluster


class Verdict(StrEnum):
    """The verdict of a run about the cluster."""

    GO = "go"
    NO_GO = "no-go"
    INCONCLUSIVE = "inconclusive"


class RecordedFinding(TypedDict):
    """One observation about one subject; ``ok`` is null if it could not be determined."""

    subject: str
    ok: bool | None
    observed: str
    expected: str
    unit: str
    fault: str
    action: str


class RecordedAction(TypedDict):
    """The action for a node, also in words: the heaviest action of its parts, which are the node and its GPUs."""

    node: str
    action: str
    said: str
    parts: dict[str, str]


class RecordedCheck(TypedDict):
    """The outcome of one check and everything that supports it."""

    id: str
    title: str
    outcome: Outcome
    stage: str
    reason: str
    seconds: float
    requires: list[str]
    blocked_by: list[str]
    fault: str
    findings: list[RecordedFinding]
    notes: list[str]
    doc: str
    waived: bool
    proven_by: list[str]


class RecordedSide(TypedDict):
    """One measurement of a row; bus bandwidth in GB/s (1e9 bytes per second), and the number of wrong values."""

    busbw_gbps: float | None
    wrong: int | None


class RecordedRow(TypedDict):
    """A row of a benchmark's table."""

    size_bytes: int
    out_of_place: RecordedSide | None
    in_place: RecordedSide | None


class RecordedReference(TypedDict):
    """The reference of a table, as text, and the measured share of it."""

    ratio: float | None
    sentence: str


class RecordedTable(TypedDict):
    """A benchmark's table; runs before 0.1.0 have no reference."""

    collective: str | None
    rows: list[RecordedRow]
    nearest: NotRequired[RecordedReference]


class RecordedHost(TypedDict):
    """A host as NCCL names it, and the network devices of each of its ranks."""

    name: str | None
    rails: dict[str, list[str]]
    gdr: object  # true, false, "mixed" or null


class RecordedPair(TypedDict):
    """Channels from one host to another by transport."""

    src: str
    dst: str
    transports: dict[str, float]


class RecordedJob(TypedDict):
    """The parts of a job document that readers of a record use (seatrial/logs/job_document.py)."""

    nodes: int | None
    ranks: int | None
    sentence: str
    inter_node_transport: str
    nccl_versions: list[str]
    hosts: list[RecordedHost]
    pairs: list[RecordedPair]
    tables: list[RecordedTable]


class RecordedFloor(TypedDict):
    """The reference of a collective: GB/s at a message size, and its source."""

    size_bytes: int
    busbw_gbps: float
    source: str


class Cluster(TypedDict, total=False):
    """The judged API server, the digest of its certificate authority, and the world of a simulation."""

    server: str
    ca: str
    namespace: str
    context: str
    scenario: str
    platform: str
    network: object
    lost: list[str]
    api_faults: str


class TrialFailure(TypedDict):
    """The fault that ended a trial, and its class: infrastructure or program."""

    fault: str
    failure: str


class RecordedSpan(TypedDict):
    """One phase of a pod: seconds since the first pod of the trial was created, and its duration."""

    node: str
    phase: str
    start_s: float
    seconds: float


class RecordedPod(TypedDict):
    """The requests of each pod of the trial except cpu and memory; networks are annotations, a queue is KIND:NAME."""

    gpu_resource: str
    gpus: int
    resources: dict[str, int]
    networks: list[str]
    capabilities: list[str]
    queue: str


class RecordedTrial(TypedDict, total=False):
    """The trial: job, image, number of nodes, the node of each pod with evidence and of each host.

    ``dns_seconds``: until the ranks of a node resolved all peers. ``interrupted``: the interruptions of earlier
    attempts. ``attach``: the command that judges a detached trial, for ``kept_s`` after its end.
    """

    job: str
    image: str
    nodes: int
    pod: RecordedPod
    pods: dict[str, str]
    hosts: dict[str, str]
    dns_seconds: dict[str, float]
    interrupted: list[str]
    timeline: list[RecordedSpan]
    failure: TrialFailure
    attach: str
    kept_s: float


class RecordedCoverage(TypedDict):
    """The tried part of the pool; ``pool`` is null if it is not visible."""

    said: str
    asked: str
    tried: list[str]
    untried: list[str]
    pool: list[str] | None


class RecordedAccusation(FindingRow, total=False):
    """The devices and NICs of a node's rails, and the share of the rest (``rest``)."""

    devices: list[str]
    cards: list[str]
    rest: float | None
    fault: str


class RecordedRules(TypedDict, total=False):
    """The thresholds of a sweep: shares of a level, and floors in GB/s."""

    clears: float
    accuses: float
    pair_floor: float
    node_floor: float


class ResumedSweep(TypedDict, total=False):
    """The run whose rounds a sweep continued; times as in RFC 3339."""

    run_id: str
    started: str
    ended: str


class RecordedSweep(TypedDict, total=False):
    """The parts of a sweep's section that are read (jobs/pod/sweep/section.py); the section is stored unchanged."""

    proven: list[str]
    findings: list[RecordedAccusation]
    notes: list[str]
    flaky: list[list[str]]
    suspects: dict[str, str]
    not_tested: dict[str, str]
    untested: str
    apart: list[FindingRow]
    rules: RecordedRules
    levels: list[LevelRow]
    rounds: list[RoundRow]
    tests: list[TestRow]
    sizes: dict[str, int]
    elements: Elements
    gpus_per_node: int
    image: str
    training: bool
    undiagnosed: list[str]
    boots: dict[str, str]
    resumed: ResumedSweep


def elements(sweep: RecordedSweep) -> Elements:
    """Return the nodes, uplinks and pairs of a sweep; empty lists if it has none."""
    none: Elements = {"nodes": [], "uplinks": [], "pairs": []}
    return sweep.get("elements", none)


class TrainedRank(TypedDict, total=False):
    """A GPU of the training: milliseconds of its own compute per step, memory, clock, power, temperature, use."""

    node: str
    gpu: int
    compute_ms: float | None
    memory_mib: float | None
    sm_mhz: float | None
    power_w: float | None
    temperature_c: float | None
    utilisation: float | None


class RecordedTraining(TypedDict, total=False):
    """Measurements of training steps: TFLOP/s (1e12) of each GPU and their floor, milliseconds of steps, shares."""

    tflops: float
    step_ms: float
    compute_ms: float
    exposed_share: float
    comm_ms: float
    steps: int
    spread: float
    series_ms: list[float]
    floor_tflops: float | None
    floor_source: str
    ranks: list[TrainedRank]


class RecordedState(TypedDict, total=False):
    """A state of a node's part of a step; ``seconds`` counts from the node's first state of that step."""

    step: int
    state: str
    seconds: float


class CheckpointedNode(TypedDict, total=False):
    """The states of a node's checkpoints, in the order in which they were reached."""

    node: str
    states: list[RecordedState]


class RecordedCheckpoint(TypedDict, total=False):
    """Measurements of a checkpoint of all ranks: bytes, seconds, MB/s (1e6); absent if not every rank saved."""

    ranks: int
    bytes: int
    pause_s: float
    flush_s: float
    mb_s: float
    slowest_mb_s: float
    nodes: list[CheckpointedNode]


class Record(TypedDict):
    """The whole record."""

    schema: int
    run_id: str
    started: str
    seconds: float
    simulated: bool
    scope: Literal["full", "partial"]
    selection: str
    verdict: Verdict
    exit_code: int
    failure_class: str | None
    seatrial: str
    profile: str | None
    profile_digest: str
    cluster: Cluster
    required: list[str]
    interrupted: str
    checks: list[RecordedCheck]
    faults: dict[str, dict[str, str]]
    actions: dict[str, RecordedAction]
    collectives: dict[str, RecordedJob | None]
    inside: dict[str, RecordedJob | None]
    floors: dict[str, list[RecordedFloor]]
    trial: RecordedTrial
    coverage: RecordedCoverage
    sweep: RecordedSweep | None
    training: RecordedTraining | None
    checkpoint: RecordedCheckpoint | None
    tenant: bool
    cpu_only: bool
    not_seen: list[str]
    bom: dict[str, object]
    cleaned: list[str]
    leftovers: list[str]


def completed(document: Mapping[str, Any]) -> Record:
    """Return a record with every key of its types. Raises RecordError (one line) if it does not match them."""
    made, problem = filled(Record, document)
    if problem:
        raise RecordError(problem)
    return cast("Record", made)
