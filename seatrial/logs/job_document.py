"""The job document: all findings about one job. The types of conclude()'s result; every key is always present.

None represents facts that the log does not show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NotRequired, TypedDict

from .kinds import Kind, Label

Verdict = Literal["go", "no-go", "inconclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A profile's demands on the logs of its platform; None if it has none."""

    fabric: str | None = None
    rails: int | None = None  # number of network devices that a host uses
    gdr: bool | None = None
    gpus_per_node: int | None = None
    device_gbit_s: float | None = None  # rate of each network device
    intra_node: str | None = None  # p2p or shm
    products: tuple[str, ...] = ()  # models of GPUs, with * for any text: the demands do not apply to others


_FIGURE = Kind("a figure", lambda value: isinstance(value, int | float) and abs(value) < 1e300)
Figure = Annotated[float, _FIGURE]
WholeFigure = Annotated[int, _FIGURE]
"""Numbers as in the log: damaged ones may have any magnitude."""

NOTHING = Expected()
MOST_CAUSES = 5


class EvidenceLine(TypedDict):
    """A line of a log, cleaned of secrets and control characters."""

    file: str | None
    line: int
    text: str


class FoundFault(TypedDict):
    """A fault of the catalogue, found in a job. ``why`` names the fault that explains it and supplies its texts.

    ``failure`` is its class (seatrial.faults.catalogue: infrastructure, program, unknown); ``action`` is what it asks
    to do with its node, a word of seatrial.faults.actions.
    """

    fault: str
    severity: str
    title: str
    subject: str
    why: str | None
    evidence: list[EvidenceLine]
    cause: str
    confirm: str
    remedy: str
    failure: str
    action: NotRequired[str]


class Cause(TypedDict):
    """A cause that remains after the whole log; ``confirm`` is the command that distinguishes it from the next one."""

    fault: str
    cause: str
    confirm: str


class Side(TypedDict):
    """One measurement of a row, out of place or in place: microseconds, GB/s (1e9 bytes per second), wrong values."""

    time_us: Figure | None
    algbw_gbps: Figure | None
    busbw_gbps: Figure | None
    wrong: WholeFigure | None
    error: NotRequired[Figure]
    """The largest difference from the right result, if it is not 0; printed by nccl-tests before 2.13."""


class Row(TypedDict):
    """A row of a benchmark's table."""

    size_bytes: WholeFigure
    count: WholeFigure | None
    type: str | None
    redop: str | None
    root: WholeFigure | None
    out_of_place: Side | None
    in_place: Side | None


class ReadTable(TypedDict):
    """A benchmark's table as the reader keeps it (seatrial.logs.reader.tables.opened, ``new_table``)."""

    collective: str | None
    rows: list[Row]
    out_of_bounds: WholeFigure | None
    out_of_bounds_ok: bool | None
    avg_busbw: Figure | None
    avg_ok: bool | None
    avg_line: NotRequired[WholeFigure]
    complete: bool
    config: dict[str, Label]
    version: str | None
    line: WholeFigure
    columns: list[str]
    unreadable: WholeFigure
    odd: list[str]
    wrong_line: list[Label | None] | None


class Sweep(TypedDict):
    """The message sizes of a table, in bytes."""

    min_bytes: int
    max_bytes: int
    rows: int


class WireUse(TypedDict):
    """A table's peak as a rate of the links: of a host in GB/s, of a rail and a GPU in Gb/s; null if unknown."""

    algorithm: str
    node_gbps: float | None
    rail_gbit_s: float | None
    gpu_gbit_s: float | None
    of_wire: float | None
    above_wire: bool


class FloorRow(TypedDict):
    """A row next to the profile's floor for it, in GB/s; a ``ratio`` below 1 is too low."""

    size_bytes: int
    busbw_gbps: float
    floor_gbps: float
    ratio: float
    topology: str
    source: str


class PublishedRow(TypedDict):
    """A row and a published one of the same size, in GB/s; ``of_wire``: share of the published rails' bandwidth."""

    size_bytes: int
    busbw_gbps: float
    published_gbps: float
    ratio: float
    of_wire: float | None
    topology: str
    source: str


ReferenceKind = Literal["floor", "published", "elsewhere", "wires", "links", "none"]


class Reference(TypedDict):
    """The reference of a table's bandwidth: the nearest known number for its hardware, in GB/s.

    ``kind``: a floor of the profile; a published row of this hardware; one of its GPUs in another layout, fabric or
    collective; the rate of the NICs, or of the links between GPUs; none. ``expected_gbps`` is the resulting expectation
    for this table, ``ratio`` the measured share of it; ``rows`` are published rows, the nearest first.
    """

    kind: ReferenceKind
    size_bytes: int | None
    busbw_gbps: float | None
    expected_gbps: float | None
    ratio: float | None
    source: str
    rows: list[PublishedRow]
    sentence: str


class Table(TypedDict):
    """A benchmark's table, bandwidths in GB/s. seatrial.logs.bandwidth adds the references of the numbers."""

    collective: str | None
    algorithm: str | None
    rows: list[Row]
    out_of_bounds: int | None
    avg_busbw: float | None
    complete: bool
    peak_busbw_gbps: float | None
    largest_busbw_gbps: float | None
    sweep: Sweep | None
    unreadable_rows: int
    library_version: str | None
    checked: bool
    wire: NotRequired[WireUse | None]
    reference: NotRequired[list[FloorRow]]
    published: NotRequired[PublishedRow | None]
    """The nearest row, if it is of exactly this hardware."""
    nearest: NotRequired[Reference]


class Pair(TypedDict):
    """The transports of data from one host to another: channels by transport, as one end or both printed them."""

    src: str
    dst: str
    direction: str
    transports: dict[str, int]
    devices: list[str]
    gdr: bool | Literal["mixed"] | None
    pxn: bool


class Host(TypedDict):
    """A host of the job; ``connected`` are the ranks with channels in the log, ``rails`` the devices by rank."""

    name: str | None
    ranks: list[int]
    connected: list[int]
    version: str | list[str] | None
    network: str | list[str] | None
    gdr: bool | Literal["mixed"] | None
    rails: dict[str, list[str]]
    rails_offered: int | None


class HostRails(TypedDict):
    """The numbers of network devices that a host uses and offers."""

    used: int
    offered: int | None


class Rails(TypedDict):
    """The network devices that carry channels."""

    per_host: dict[str, HostRails]


class IntraNode(TypedDict):
    """Channels inside hosts by kind, and whether NVLink SHARP is used."""

    p2p: int
    shm: int
    mnnvl: int
    net: int
    nvls: bool | None


class Bootstrap(TypedDict):
    """The addresses of each bootstrap interface."""

    interfaces: dict[str, list[str]]


class Init(TypedDict):
    """The progress of the initialisation, in ranks."""

    nranks: int | None
    started: int
    completed: int
    communicators: int


class Stuck(TypedDict):
    """The operation in which ranks wait, as far as it is named; the sequence counts as torch's SeqNum does."""

    group: str | None
    operation: str | None
    sequence: int | None


class Carried(TypedDict):
    """The transport of a host's data to and from other hosts."""

    transports: dict[str, int]
    gdr: bool | Literal["mixed"] | None
    hosts: int


class Place(TypedDict):
    """The known facts about a late, dead or silent rank."""

    host: str | None
    gpu: str | None
    pid: int | None
    pod: NotRequired[str]
    namespace: NotRequired[str]
    node: NotRequired[str]
    pod_state: NotRequired[str]
    node_state: NotRequired[str]
    network: NotRequired[Carried | None]
    last_words: NotRequired[str]


class Around(TypedDict):
    """An event during the job, and its part in the failure: failure, likely, possible or nearby."""

    at: str
    kind: str
    text: str
    pod: str
    node: str
    role: str
    why: str


class Lacking(TypedDict):
    """The missing parts of the workload's pod template, with the remedy."""

    fault: str
    subject: str
    observed: str
    expected: str
    remedy: str


class Standing(TypedDict):
    """The status of a cluster's job: its state, its ranks in lines, and other facts from the cluster."""

    job: str
    namespace: str
    state: str
    ranks: list[str]


class JobDocument(TypedDict):
    """One job: its verdict, its transport, its faults, and its benchmark tables."""

    files: list[str]
    nccl_lines: int
    verdict: Verdict
    diagnosis: str
    sentence: str
    inter_node_transport: str
    gdr: bool | None
    socket_fallback: bool | None
    mixed: bool
    ranks: int | None
    nodes: int | None
    gpus: dict[str, int]
    platforms: list[str]
    nccl_version: str | None
    nccl_versions: list[str]
    avg_busbw: float | None
    avg_busbw_all: dict[str, float]
    hang: bool
    crash: bool
    faults: list[FoundFault]
    causes: list[Cause]
    tables: list[Table]
    pairs: list[Pair]
    hosts: list[Host]
    rails: Rails
    intra_node: IntraNode
    sharp: bool | None
    wires_gbps: float | None
    """GB/s of all NICs of the host with the most, as NCCL's topology lists them (subsystem GRAPH)."""
    bootstrap: Bootstrap
    init: Init
    truncated: bool
    evidence_shown: bool
    advice: str | None
    env: dict[str, str | list[str]]
    compacted: bool
    failure_class: NotRequired[str | None]
    late_ranks: NotRequired[list[int]]
    waiting_ranks: NotRequired[list[int]]
    dead_ranks: NotRequired[list[int]]
    unknown_ranks: NotRequired[list[int]]
    stuck: NotRequired[Stuck]
    contradictions: NotRequired[list[str]]
    places: NotRequired[dict[str, Place]]
    unread: NotRequired[list[str]]
    not_seen: NotRequired[list[str]]
    not_judged: NotRequired[list[str]]
    """With a profile: its floors, rails, fabric and checks of sums without a counterpart in the log."""
    around: NotRequired[list[Around]]
    manifest: NotRequired[list[Lacking]]
    standing: NotRequired[Standing]


NETWORK_NAMES = {
    "ib": "InfiniBand",
    "roce": "RoCE",
    "efa": "EFA",
    "cxi": "Slingshot (cxi)",
    "gib": "gIB (RoCE)",
    "ucx": "UCX",
    "tcpx": "GPUDirect-TCPX",
    "fastrak": "GPUDirect-TCPXO (FasTrak)",
    "fastsocket": "FastSocket (TCP)",
    "socket": "plain TCP sockets",
    "mnnvl": "multi-node NVLink",
    "verbs-ofi": "verbs through libfabric",
    "other": "a plugin this tool does not know",
}
"""The names of the values of ``inter_node_transport``."""
