"""The first and last stage of a pod's probe, and the stages of its node's hardware: GPUs, RDMA devices, their paths."""

from __future__ import annotations

from typing import TypedDict

from .kinds import Count, Label


class StartStage(TypedDict, total=False):
    """The pod and its limits, in bytes and seconds since the epoch."""

    python: str
    probe: str  # the digest of the sources that ran
    hostname: str
    pod_ip: str
    node: str
    kernel: str
    cap_eff: str
    error: str
    time: float
    memlock_bytes: int  # -1 is without limit
    shm_bytes: int
    memory_max: int  # -1 is without limit
    cpu_max: float
    uid: Count
    env: dict[str, str]


class EndStage(TypedDict, total=False):
    """The probe's last stage; ``stopped`` is the reason of an early end."""

    seconds: float
    stopped: str


class Smi(TypedDict, total=False):
    """The result of nvidia-smi, or of the vendor's tool."""

    found: bool
    listed: bool
    exit: float
    error: str
    name: str


class GpuFacts(TypedDict, total=False):
    """A GPU, as nvidia-smi -q -x reports it."""

    index: Count
    uuid: str
    name: str
    bus_id: str
    vbios: str
    inforom: str
    gsp: str
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


class RuntimeStage(TypedDict, total=False):
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
    gpus: list[GpuFacts]
    xid: list[Xid]


class DcgmSaid(TypedDict, total=False):
    """A warning of DCGM, with its own number."""

    text: str
    id: Count
    severity: Count
    category: Count


class DcgmResult(TypedDict, total=False):
    """The result of one test of DCGM's diagnostics, and the GPUs to which it applies."""

    category: str
    test: str
    status: str
    who: list[str]
    said: list[DcgmSaid]


class DcgmStage(TypedDict, total=False):
    """DCGM's diagnostics, if the image has them."""

    level: Count
    found: bool
    missing: list[str]
    exit: float
    version: str
    error: str
    results: list[DcgmResult]


class RdmaWrite(TypedDict, total=False):
    """One RDMA write from a NIC of this rank to a peer's: its average in Gb/s, or whether messages passed."""

    peer: Count
    nic: str
    peer_nic: str
    memory: str
    gbit_s: float
    passed: bool
    far: bool
    error: str


class LeftOut(TypedDict, total=False):
    """A peer for which not all NICs were tested, and the reason."""

    peer: Count
    why: str


class PerftestStage(TypedDict, total=False):
    """RDMA writes to the neighbouring ranks, if the image has the program."""

    tool: str
    found: bool
    gpu_memory: bool
    nics: list[str]
    writes: list[RdmaWrite]
    left_out: list[LeftOut]
    error: str


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


class RdmaStage(TypedDict, total=False):
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
    """The distance of a GPU and an RDMA device, in nvidia-smi's terms."""

    gpu: Count
    nic: str
    path: str


class AcsBridge(TypedDict, total=False):
    """A PCI bridge, and whether it redirects traffic between its devices."""

    bus_id: str
    enabled: bool
    control: Count


class TopologyStage(TypedDict, total=False):
    """The connections of GPUs and RDMA devices."""

    signature: str
    source: str
    error: str
    matrix: str
    gpus: list[TopologyGpu]
    nics: list[Nic]
    paths: list[GpuPath]
    rows: list[str]
    acs: list[AcsBridge]
