"""What a rank's probe prints: the fields of each stage, for those who read them and for the check where they come in.

A field may be missing or null, which is unknown: read it with ``get``. Fields that are not named here are nobody's.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

LARGEST = 2**64
"""Counters of ports have 64 bits; nothing that a probe tells is larger."""

TEXT, FLAG, NUMBER, WHOLE, COUNT = "text", "true or false", "a number", "a whole number", "a count"
LABEL = "a number or text"
FIGURE = "a figure"  # as a log had it: damaged ones may have any size
LOG_PART = "the log reader's part"

Whole = Annotated[int, WHOLE]  # -1 is without limit
Count = Annotated[int, COUNT]
Label = Annotated[str | float, LABEL]
LogPart = Annotated[dict[str, Any], LOG_PART]  # read back by jobs.pod.nccl_reader


class Start(TypedDict, total=False):
    """The pod and its limits, in bytes and seconds since the epoch."""

    python: str
    hostname: str
    pod_ip: str
    node: str
    kernel: str
    cap_eff: str
    error: str
    time: float
    memlock_bytes: Whole
    shm_bytes: Whole
    memory_max: Whole
    cpu_max: float
    uid: Count
    env: dict[str, str]


class Smi(TypedDict, total=False):
    """What became of nvidia-smi, or the tool that the vendor has."""

    found: bool
    listed: bool
    exit: float
    error: str
    name: str


class Gpu(TypedDict, total=False):
    """A GPU, as nvidia-smi -q -x tells."""

    index: Count
    uuid: str
    name: str
    bus_id: str
    vbios: str
    inforom: str
    recovery_action: str
    mig: str
    fabric_state: str
    fabric_status: str
    pcie: str
    ecc_uncorrected_volatile: Count
    ecc_uncorrected_aggregate: Count
    mig_devices: Count
    nvlinks_active: Count
    retired_pending: bool
    remap_pending: bool
    remap_failure: bool
    persistence: bool
    throttle: list[str]
    clock_limits: list[str]
    temperature_c: float
    memory_mib: float
    fabric_health: dict[str, str]


class Xid(TypedDict, total=False):
    """An Xid that the kernel logged."""

    bus_id: str
    xid: Count
    count: Count


class Runtime(TypedDict, total=False):
    """The GPUs of the pod."""

    driver: str
    cuda: str
    kind: str
    toolkit: str
    error: str
    requested: Count
    extra_gpus: Count
    assigned: list[str]
    devices: list[str]
    mig_devices: list[str]
    nvidia_smi: Smi
    gpus: list[Gpu]
    xid: list[Xid]


class Gid(TypedDict, total=False):
    """An entry of a port's GID table."""

    index: Count
    gid: str
    type: str


class RdmaPort(TypedDict, total=False):
    """A port of an RDMA device."""

    name: str
    state: str
    phys_state: str
    link_layer: str
    netdev: str
    fw: str
    board: str
    lid: Count
    sm_lid: Count
    mtu: Count
    counters: Count
    rate_gbps: float
    port: Label
    gid: bool
    usable: bool
    gids: list[Gid]
    pkeys: list[str]
    errors: dict[str, Count]


class Rdma(TypedDict, total=False):
    """The RDMA devices of the pod."""

    devices: list[RdmaPort]
    uverbs: list[str]
    source: str
    error: str


class TopologyGpu(TypedDict, total=False):
    """A GPU and its NUMA node."""

    index: Count
    bus_id: str
    numa: float


class Nic(TypedDict, total=False):
    """An RDMA device and its NUMA node."""

    name: str
    bus_id: str
    numa: float


class GpuPath(TypedDict, total=False):
    """How far a GPU and an RDMA device are from each other, in nvidia-smi's words."""

    gpu: Count
    nic: str
    path: str


class AcsBridge(TypedDict, total=False):
    """A PCI bridge, and whether it redirects what its devices send each other."""

    bus_id: str
    enabled: bool
    control: Count


class Topology(TypedDict, total=False):
    """How GPUs and RDMA devices are connected."""

    signature: str
    source: str
    error: str
    matrix: str
    gpus: list[TopologyGpu]
    nics: list[Nic]
    paths: list[GpuPath]
    rows: list[str]
    acs: list[AcsBridge]


class Resolver(TypedDict, total=False):
    """The pod's resolv.conf."""

    nameservers: list[str]
    search: list[str]
    ndots: float


class DnsPeer(TypedDict, total=False):
    """What the name of another rank resolved to."""

    name: str
    error: str
    first_error: str
    index: Count
    attempts: Count
    addresses: list[str]
    pod_ip_matches: bool
    seconds_to_first_answer: float


class Dns(TypedDict, total=False):
    """Names of the other ranks."""

    error: str
    resolver: Resolver
    peers: list[DnsPeer]


class PortPeer(TypedDict, total=False):
    """Whether another rank could be reached, and reached this one."""

    index: Count
    address: str
    name: str
    outbound_error: str
    pod_ip: str
    outbound: bool
    inbound: bool
    clock_skew_s: float
    outbound_seconds: float


class Rendezvous(TypedDict, total=False):
    """The stage "port": connections between the ranks at the rendezvous port."""

    port: Count
    listening: bool
    error: str
    peers: list[PortPeer]


class Interface(TypedDict, total=False):
    """A network interface of the pod."""

    name: str
    mtu: Count
    up: bool
    addresses: list[str]
    speed_mbit: float


class PortTry(TypedDict, total=False):
    """A port of another rank that was tried."""

    port: Count
    ok: bool
    error: str


class NetworkPeer(TypedDict, total=False):
    """What the pod network carries to another rank."""

    index: Count
    address: str
    error: str
    mtu_error: str
    first_mtu: Count
    path_mtu: Count
    learned_mtu: Count
    bytes: Count
    throughput_gbit_s: float
    peak_gbit_s: float
    df_ok: bool
    cpu_wait: float
    ports: list[PortTry]


class Network(TypedDict, total=False):
    """The pod network."""

    error: str
    seconds: float
    port_range: list[Count]
    interfaces: list[Interface]
    peers: list[NetworkPeer]


class TriedPath(TypedDict, total=False):
    """What can be done at a path."""

    name: str
    path: str
    kind: str
    fs: str
    device: str
    error: str
    errno: str
    exists: bool
    writable: bool
    rename_ok: bool
    read_back_ok: bool
    shared: bool
    write: bool
    readonly: bool
    peer_file_ok: bool
    peer_rename_ok: bool
    entries: Count
    files_tried: Count
    files_bad: Count
    files_bad_named: list[str]
    write_bytes: Count
    free_bytes: Count
    total_bytes: Count
    write_mb_s: float
    fsync_s: float
    read_mb_s: float
    peer_seconds: float


class Burst(TypedDict, total=False):
    """All ranks writing at once."""

    path: str
    error: str
    errno: str
    bytes: Count
    writers: Count
    seconds: float
    mb_s: float
    slowest_rank_s: float


class Bucket(TypedDict, total=False):
    """Whether an S3 bucket can be reached."""

    uri: str
    endpoint: str
    region: str
    error: str
    reachable: bool
    can_sign: bool
    status: Count
    seconds: float
    missing: list[str]


class Credential(TypedDict, total=False):
    """Whether a variable that comes from a Secret's key is set; never its value."""

    env: str
    secret: str
    key: str
    present: bool


class Storage(TypedDict, total=False):
    """Paths, the burst, buckets, and credentials."""

    error: str
    paths: list[TriedPath]
    credentials: list[Credential]
    burst: Burst
    s3: list[Bucket]


class ProgramFacts(TypedDict, total=False):
    """What a collective's program left beside its table."""

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
    """A product of matrices on one rank, again and again."""

    kind: str
    digest: str
    why: str
    seed: Count
    side: Count
    made: Count
    differs: Count


class TrainingMode(TypedDict, total=False):
    """The steps with the other ranks, in one way of sharing; milliseconds, the first and the last losses."""

    mode: str
    why: str  # there are none
    steps: Count
    bad_step: Count
    step_ms: list[float]
    losses: list[float]


class TrainingRank(TypedDict, total=False):
    """What one rank measured; milliseconds. ``compute_ms``: of the same steps without any other rank."""

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


class TrainingRun(TypedDict, total=False):
    """The training steps of one pod's ranks; ``gpus`` is read after them, with all that slowed one in between."""

    skipped: str
    stopped: str
    error: str
    output_tail: str
    timed_out: bool
    exit: float
    seconds: float
    command: list[str]
    ranks: list[TrainingRank]
    samples: list[TrainingSample]
    gpus: list[Gpu]
    xid: list[Xid]
    rdma_counters: dict[str, Count]


class CheckpointPlace(TypedDict, total=False):
    """A path that takes a checkpoint: ``path`` must outlive the job, ``local`` is where it is saved first."""

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
    """One rank's part of saving a step: ``at`` by its node's clock."""

    step: Count
    bytes: Count
    at: float
    pause_s: float
    write_s: float


class CheckpointRank(TypedDict, total=False):
    """What one rank told."""

    rank: Count
    torch: str
    saves: list[CheckpointSave]


class CheckpointState(TypedDict, total=False):
    """writing, local, flushing, durable or verified, and since when."""

    step: Count
    state: str
    at: float


class CheckpointFlush(TypedDict, total=False):
    """The files of one node on their way to the path that outlives the job."""

    seconds: float
    mb_s: float
    bytes: Count


class CheckpointVerified(TypedDict, total=False):
    """The next node's files, read back here; ``elsewhere`` is false where there is one node."""

    peer: Count
    files: Count
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
    """The step from which the job went on, and the newer ones that it passed over; ``wrong`` counts values."""

    step: Count
    wrong: Count
    seconds: float
    error: str
    passed_over: list[CheckpointState]


class CheckpointRun(TypedDict, total=False):
    """A checkpoint of all ranks, from writing to verified, a crash in the next one, and the way back."""

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


class End(TypedDict, total=False):
    """The probe's last stage; ``stopped`` says what ended it before its time."""

    seconds: float
    stopped: str


COLLECTIVE = "collective."
STAGES = {
    "start": Start,
    "runtime": Runtime,
    "rdma": Rdma,
    "topology": Topology,
    "dns": Dns,
    "port": Rendezvous,
    "network": Network,
    "storage": Storage,
    "training": TrainingRun,
    "checkpoint": CheckpointRun,
    COLLECTIVE: CollectiveRun,
    "end": End,
}
"""Stages by name; those of collectives begin with the same word."""
