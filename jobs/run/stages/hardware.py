"""The first and last stage of a pod's probe, and the stages of its node's hardware: GPUs, RDMA devices, their paths."""

from __future__ import annotations

from typing import TypedDict

from .kinds import Count, Label


class StartStage(TypedDict):
    """The pod and its limits, in bytes and seconds since the epoch."""

    python: str | None
    probe: str | None  # the digest of the sources that ran
    hostname: str | None
    pod_ip: str | None
    node: str | None
    kernel: str | None
    cap_eff: str | None
    error: str | None
    time: float | None
    memlock_bytes: int | None  # -1 is without limit
    shm_bytes: int | None
    memory_max: int | None  # -1 is without limit
    cpu_max: float | None
    uid: Count | None
    env: dict[str, str] | None


class EndStage(TypedDict):
    """The probe's last stage; ``stopped`` is the reason of an early end."""

    seconds: float | None
    stopped: str | None


class Smi(TypedDict):
    """The result of nvidia-smi, or of the vendor's tool."""

    found: bool | None
    listed: bool | None
    exit: float | None
    error: str | None
    name: str | None


class GpuFacts(TypedDict):
    """A GPU, as nvidia-smi -q -x reports it."""

    index: Count | None
    uuid: str | None
    name: str | None
    bus_id: str | None
    vbios: str | None
    inforom: str | None
    gsp: str | None
    recovery_action: str | None
    mig: str | None
    fabric_state: str | None
    fabric_status: str | None
    pcie: str | None
    ecc_uncorrected_volatile: Count | None
    ecc_uncorrected_aggregate: Count | None
    mig_devices: Count | None
    nvlinks_active: Count | None
    retired_pending: bool | None
    remap_pending: bool | None
    remap_failure: bool | None
    persistence: bool | None
    throttle: list[str] | None
    clock_limits: list[str] | None
    temperature_c: float | None
    memory_mib: float | None
    fabric_health: dict[str, str] | None


class Xid(TypedDict):
    """An Xid that the kernel logged."""

    bus_id: str | None
    xid: Count | None
    count: Count | None


class RuntimeStage(TypedDict):
    """The GPUs of the pod."""

    driver: str | None
    cuda: str | None
    kind: str | None
    toolkit: str | None
    error: str | None
    requested: Count | None
    extra_gpus: Count | None
    assigned: list[str] | None
    devices: list[str]
    mig_devices: list[str]
    nvidia_smi: Smi
    gpus: list[GpuFacts] | None
    xid: list[Xid]


class DcgmSaid(TypedDict):
    """A warning of DCGM, with its own number."""

    text: str | None
    id: Count | None
    severity: Count | None
    category: Count | None


class DcgmResult(TypedDict):
    """The result of one test of DCGM's diagnostics, and the GPUs to which it applies."""

    category: str | None
    test: str | None
    status: str | None
    who: list[str]
    said: list[DcgmSaid]


class DcgmStage(TypedDict):
    """DCGM's diagnostics, if the image has them."""

    level: Count | None
    found: bool | None
    missing: list[str]
    exit: float | None
    version: str | None
    error: str | None
    results: list[DcgmResult]


class RdmaWrite(TypedDict):
    """One RDMA write from a NIC of this rank to a peer's: its average in Gb/s, or whether messages passed."""

    peer: Count | None
    nic: str | None
    peer_nic: str | None
    memory: str | None
    gbit_s: float | None
    passed: bool | None
    far: bool | None
    error: str | None


class LeftOut(TypedDict):
    """A peer for which not all NICs were tested, and the reason."""

    peer: Count | None
    why: str | None


class PerftestStage(TypedDict):
    """RDMA writes to the neighbouring ranks, if the image has the program."""

    tool: str | None
    found: bool | None
    gpu_memory: bool | None
    nics: list[str]
    writes: list[RdmaWrite]
    left_out: list[LeftOut]
    error: str | None


class Gid(TypedDict):
    """An entry of a port's GID table."""

    index: Count | None
    gid: str | None
    type: str | None


class RdmaPort(TypedDict):
    """A port of an RDMA device."""

    name: str | None
    state: str | None
    phys_state: str | None
    link_layer: str | None
    netdev: str | None
    fw: str | None
    board: str | None
    lid: Count | None
    sm_lid: Count | None
    mtu: Count | None
    counters: Count | None
    rate_gbps: float | None
    port: Label | None
    gid: bool | None
    usable: bool | None
    gids: list[Gid] | None
    pkeys: list[str] | None
    errors: dict[str, Count]


class RdmaStage(TypedDict):
    """The RDMA devices of the pod."""

    devices: list[RdmaPort] | None
    uverbs: list[str] | None
    source: str | None
    error: str | None


class TopologyGpu(TypedDict):
    """A GPU and its NUMA node."""

    index: Count | None
    bus_id: str | None
    numa: float | None


class Nic(TypedDict):
    """An RDMA device and its NUMA node."""

    name: str | None
    bus_id: str | None
    numa: float | None


class GpuPath(TypedDict):
    """The distance of a GPU and an RDMA device, in nvidia-smi's terms."""

    gpu: Count | None
    nic: str | None
    path: str | None


class AcsBridge(TypedDict):
    """A PCI bridge, and whether it redirects traffic between its devices."""

    bus_id: str | None
    enabled: bool | None
    control: Count | None


class TopologyStage(TypedDict):
    """The connections of GPUs and RDMA devices."""

    signature: str | None
    source: str | None
    error: str | None
    matrix: str | None
    gpus: list[TopologyGpu]
    nics: list[Nic]
    paths: list[GpuPath]
    rows: list[str]
    acs: list[AcsBridge] | None
