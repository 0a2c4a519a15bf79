"""The schema of a profile: its sections as strict records; no logic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.cluster.unstructured import Unstructured
from jobs.trial.job_spec import LAUNCHERS
from jobs.trial.names import SpecError
from jobs.trial.parts import (
    DCGM_S,
    OPERATIONS,
    PERFTEST_MOST_S,
    S3,
    ClaimSpec,
    Credential,
    Endpoint,
    Mpi,
    Queue,
    StorageSpec,
)

from .yaml_schema import Size, require, require_known, require_positive, require_source


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSection:
    """The limit for the API server's response time, measured at the trial's start."""

    latency_max_s: float | None = None  # for the median response; none: it is shown but not judged

    def __post_init__(self) -> None:
        require_positive(self, "latency_max_s")


MI, EIGHT_GI = Size(2**20), Size(2**33)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSection:
    """The message sizes of the collectives; the floors below refer to rows of this table."""

    min: Size = MI
    max: Size = EIGHT_GI
    factor: int = 2
    iters: int = 20
    warmup: int = 5
    repeats: int = 3  # repeats of the sweep: three distinguish a slow fabric from an unstable one
    spread_max: float | None = None  # maximum spread of the repeats of one row: (largest - smallest) / median

    def __post_init__(self) -> None:
        require(0 < self.min <= self.max, "min", "must be above 0 and at most max")
        require(self.factor >= 2, "factor", "must be at least 2")
        require(self.iters >= 1, "iters", "must be at least 1")
        require(self.warmup >= 0, "warmup", "must not be negative")
        require(1 <= self.repeats <= 100, "repeats", "must be between 1 and 100")
        require(self.spread_max is None or 0 < self.spread_max < 1, "spread_max", "must be a share between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The least bus bandwidth of one row; out-of-place and in-place results must both reach it."""

    collective: str
    algorithm: str  # 'ring', or 'default' for NCCL's own choice
    nodes: int
    size: Size
    busbw_gbps: float  # GB/s, 1e9 bytes per second, as nccl-tests prints it
    topology: str
    source: str

    def __post_init__(self) -> None:
        require_known("collective", "collective", self.collective, OPERATIONS)
        require(self.algorithm in ("ring", "default"), "algorithm", f"must be ring or default, not {self.algorithm!r}")
        require(self.nodes >= 1, "nodes", "must be at least 1")
        require_positive(self, "busbw_gbps", "size")
        for name in ("source", "topology"):
            require(bool(getattr(self, name).strip()), name, "must name the source of the number")


PER_RANK = Size(2**28)
ADAM_BYTES = 14
"""Bytes saved for each parameter by mixed-precision Adam: 2 of bf16 weights, 4 of the fp32 copy, 4 and 4 of the moments
(Rajbhandari et al., ZeRO, arXiv:1910.02054, section 3.1, without the gradients, which are not saved)."""
SHORTEST_S = 60
_FACTORS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSection:
    """The place and size of training's saved state, for ``accept --checkpoint``.

    If empty, the first shared and writable path of `storage` is used, and only completion is judged.
    """

    path: str = ""  # name of a storage path with write: true; it must outlive the job
    local: str = ""  # name of the storage path, or scratch, to which a checkpoint is saved first
    bytes: Size = PER_RANK  # of each rank
    mb_s: float | None = None  # MB/s (1e6 bytes) of all ranks together while training is paused
    pause_max_s: float | None = None  # longest pause of training for a checkpoint of `model`
    model: str = ""  # number of parameters, such as 70B
    bytes_per_parameter: int = ADAM_BYTES
    interval_s: int = 1800  # interval between two checkpoints
    gather: bool = False  # rank 0 gathers the whole state, unsharded
    private: bool = False  # other users must not be able to read or replace it
    source: str = ""  # the source of these numbers

    def __post_init__(self) -> None:
        require_positive(self, "mb_s", "pause_max_s", "bytes_per_parameter")
        require(2**20 <= self.bytes <= 2**33, "bytes", "must be between 1Mi and 8Gi")
        require(not self.model or parameters(self.model) > 0, "model", "must be a number of parameters, such as 70B")
        require(self.interval_s >= SHORTEST_S, "interval_s", f"must be at least {SHORTEST_S}")
        require(self.pause_max_s is None or bool(self.model), "pause_max_s", "needs model, for the size of a pause")
        require_source(self.source, self.mb_s, self.pause_max_s)


def parameters(text: str) -> int:
    """Parse a model size: 70B, 1.5T, 350M; 0 if it is invalid."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([KMBT]?)", text.strip(), re.IGNORECASE)
    return round(float(match[1]) * _FACTORS[match[2].upper()]) if match else 0


VERBS = {"ib": "InfiniBand", "roce": "Ethernet", "gib": "Ethernet", "efa": None}
"""Fabrics whose NICs are RDMA devices, and the link layer that sysfs shows for them; EFA has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricSection:
    """The network between nodes: the transport and rails that NCCL must use."""

    kind: str | None = None  # in the terms of the log analyzer: ib, roce, efa, ...
    rails: int | None = None  # number of network devices that NCCL must use on each node
    rail_gbit_s: float | None = None
    node_gbit_s: float | None = None  # rate of the whole node, if rails are grouped (EFA); default rails x rail_gbit_s
    gdr: bool | None = None
    devices: int | None = None  # RDMA devices of a pod, if their number differs from the rails (EFA groups them)
    device_gbit_s: float | None = None  # rate of one such device; default rail_gbit_s if devices and rails are the same
    perftest_s: int = 2  # duration of each RDMA write between neighbours if the image has perftest; 0: not run

    KINDS = ("ib", "roce", "efa", "cxi", "gib", "tcpx", "fastrak", "fastsocket", "ucx", "mnnvl", "socket")

    def __post_init__(self) -> None:
        if self.kind is not None:
            require_known("kind", "fabric", self.kind, self.KINDS)
        require_positive(self, "rails", "rail_gbit_s", "node_gbit_s", "devices", "device_gbit_s")
        require(
            0 <= self.perftest_s <= PERFTEST_MOST_S,
            "perftest_s",
            f"must be 1 to {PERFTEST_MOST_S} seconds, or 0 for none",
        )

    @property
    def verbs(self) -> bool:
        """Whether NCCL reaches this fabric through RDMA devices (verbs), which a pod can then see."""
        return self.kind in VERBS

    @property
    def device_count(self) -> int | None:
        """Number of RDMA devices that a pod must have."""
        return self.devices if self.devices is not None else self.rails

    @property
    def device_rate(self) -> float | None:
        """Rate that each RDMA device must have, in Gb/s."""
        if self.device_gbit_s is not None or self.devices not in (None, self.rails):
            return self.device_gbit_s
        return self.rail_gbit_s

    @property
    def node_gbps(self) -> float | None:
        """Maximum send rate of a node, in GB/s (1e9 bytes per second)."""
        if self.node_gbit_s is not None:
            return self.node_gbit_s / 8
        if self.rails is None or self.rail_gbit_s is None:
            return None
        return self.rails * self.rail_gbit_s / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSection:
    """The accelerators of a node, as the scheduler counts them."""

    resource: str = "nvidia.com/gpu"
    per_node: int | None = None  # 0: a trial on CPUs only, without GPUs and their fabric
    kind: str = "nvidia"
    product: tuple[str, ...] = ()  # allowed values of GPU feature discovery's label, with * for any text
    machines: tuple[str, ...] = ()  # allowed values of node.kubernetes.io/instance-type; only `profile detect` reads it

    def __post_init__(self) -> None:
        require(self.kind in ("nvidia", "amd"), "kind", f"must be nvidia or amd, not {self.kind!r}")
        require(self.per_node is None or self.per_node >= 0, "per_node", "must not be negative")
        other = {"nvidia": "amd.com/", "amd": "nvidia.com/"}[self.kind]
        require(not self.resource.startswith(other), "resource", f"is {self.resource}, but the kind is {self.kind}")

    @property
    def none(self) -> bool:
        """Whether the trial runs on CPUs only."""
        return self.per_node == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSection:
    """Requirements on the node as seen in a pod. ``managed``: the provider owns driver and toolkit (not judged)."""

    managed: bool = False
    driver_min: str | None = None
    toolkit_min: str | None = None  # minimum version of the NVIDIA container toolkit
    memlock_min: Size | None = None  # in bytes; 'unlimited' is -1
    intra_node: str | None = None  # how the GPUs of a node reach each other: p2p (NVLink, xGMI), shm (PCIe machines)
    nvlinks: int | None = None  # active links of each GPU
    persistence: bool | None = None  # whether the driver must stay loaded between jobs
    dcgm: int = 1  # level of DCGM's diagnostics if the image has dcgmi; 0: not run

    def __post_init__(self) -> None:
        require(self.intra_node in (None, "p2p", "shm"), "intra_node", f"must be p2p or shm, not {self.intra_node!r}")
        require(self.nvlinks is None or self.nvlinks >= 0, "nvlinks", "must not be negative")
        require(0 <= self.dcgm <= max(DCGM_S), "dcgm", f"must be a level from 1 to {max(DCGM_S)}, or 0 for none")
        minimum = (self.toolkit_min or "0").split(".")
        require(all(p.isdigit() for p in minimum), "toolkit_min", "must look like 1.19.0")
        parts = (self.driver_min or "0").split(".")
        require(all(p.isdigit() for p in parts), "driver_min", "must look like 580 or 580.65.06")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagesSection:
    """The images of the trial's pods, including sidecars and containers that webhooks add."""

    digest: bool = False  # every image must be pinned by digest: a tag can be moved
    registries: tuple[str, ...] = ()  # prefixes such as registry.example.com/mirror; none: any registry is allowed
    models: tuple[str, ...] = ()  # images of models and services, recorded with whether a digest pins them
    pull_max_s: float | None = None
    check_secrets: bool = False  # look up the pull secrets by name, as --check-secrets does

    def __post_init__(self) -> None:
        require_positive(self, "pull_max_s")
        require(all(self.registries), "registries", "must not hold an empty name")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSection:
    """The launcher of training here; the trial uses the same."""

    launcher: str = "indexed"
    queue: Queue | None = None  # none: pods are created without a queue
    mpi: Mpi = field(default_factory=Mpi)
    runtime: str = "torch-distributed"  # the ClusterTrainingRuntime of a TrainJob
    gang_test: bool = False  # also submit a job that cannot fit: it must start no pod
    nodes_on_demand: bool = False  # an autoscaler creates the nodes when pods request them

    def __post_init__(self) -> None:
        require_known("launcher", "launcher", self.launcher, LAUNCHERS)


MOST_ENDPOINTS = 32
"""Limit: every pod tries all endpoints at once, and each is a line of evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointsSection:
    """Endpoints that pods must reach (a registry mirror), or must not reach (the internet, in an air gap).

    Each is HOST:PORT, or a URL with http or https.
    """

    reachable: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("reachable", "forbidden"):
            for text in getattr(self, name):
                try:
                    Endpoint(text)
                except SpecError as error:
                    require(False, name, str(error))
        both = {*self.reachable} & {*self.forbidden}
        require(not both, "forbidden", f"{', '.join(sorted(both))} must be reachable, too: which of the two?")
        require(len(self.all) <= MOST_ENDPOINTS, "reachable", f"may be {MOST_ENDPOINTS} in all")

    @property
    def all(self) -> tuple[Endpoint, ...]:
        """Tests that the pods run."""
        return (*(Endpoint(text) for text in self.reachable), *(Endpoint(text, True) for text in self.forbidden))


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSection:
    """Packet sizes and rates between pods. If empty, only contradictions are faults."""

    mtu: int | None = None  # bytes; the least packet size that must pass between pods unfragmented
    secondary_mtu: int | None = None  # bytes; for the interfaces that Multus or a similar plugin attaches
    tcp_gbit_s: float | None = None  # of one TCP connection between two pods, at its best moment
    endpoints: EndpointsSection = field(default_factory=EndpointsSection)
    source: str = ""  # the source of these numbers

    def __post_init__(self) -> None:
        for name in ("mtu", "secondary_mtu"):
            value = getattr(self, name)
            # RFC 8200: no link may carry less than 1280 bytes; 65535 is the largest IP packet.
            require(value is None or 1280 <= value <= 65535, name, "must be between 1280 and 65535 bytes")
        require_positive(self, "tcp_gbit_s")
        require_source(self.source, self.mtu, self.secondary_mtu, self.tcp_gbit_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservabilitySection:
    """The GPU metrics that the platform must collect to diagnose a slow job."""

    dcgm_exporter: bool = False  # an exporter of GPU metrics is ready on every GPU node
    service_monitor: bool = False  # a ServiceMonitor of Prometheus Operator selects the exporter


SIXTEEN_GI = Size(2**34)
GPU_TAINTS: tuple[Unstructured, ...] = (
    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
)
"""The taints that reserve nodes for GPU work: by the resource's own name (GKE, OKE, and the admission plugin
ExtendedResourceToleration of Kubernetes), and as Azure documents it ("Use GPUs on AKS": sku=gpu:NoSchedule)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSection:
    """The pod that training uses on this cluster; the trial runs in the same one."""

    # The raw-torchrun example of the TAO Kubernetes page (NVIDIA TAO skill bank, tao-run-on-kubernetes) names this tag.
    image: str = "nvcr.io/nvidia/pytorch:25.08-py3"
    pull_policy: str = ""
    pull_secrets: tuple[str, ...] = ()
    cpu: str = "8"
    memory: str = "32Gi"
    # The same page mounts 16 GiB: NCCL's SHM transport hangs or fails on the 64 MiB default of container runtimes.
    shm: Size = SIXTEEN_GI
    resources: dict[str, int] = field(default_factory=dict)
    hugepages: dict[str, str] = field(default_factory=dict)  # by page size: {2Mi: 5120Mi}
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[Unstructured, ...] = GPU_TAINTS
    annotations: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    runtime_class: str | None = None
    scheduler_name: str | None = None
    priority_class: str | None = None
    service_account: str | None = None
    run_as_user: int | None = None
    host_network: bool = False
    sidecars: tuple[Unstructured, ...] = ()
    volumes: tuple[Unstructured, ...] = ()  # in addition to the probe's own, such as a fabric's libraries on the host
    mounts: tuple[Unstructured, ...] = ()
    limits: dict[str, str] = field(default_factory=dict)  # of cpu and memory, if a quota requires them
    env: dict[str, str] = field(default_factory=dict)
    claims: tuple[ClaimSpec, ...] = ()  # devices by dynamic resource allocation, in addition to or instead of resources
    env_secrets: tuple[str, ...] = ()  # Secrets whose keys become variables; named here, never read
    seccomp: str = "RuntimeDefault"  # or Unconfined, as for most training pods; empty: the node's default
    master_port: int = 29500  # torchrun's default, and TAO's


FACTS = ("kernel", "os", "runtime", "kubelet", "driver")


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSection:
    """The software of the GPU nodes, as the API shows it."""

    operator: bool = False  # a GPU operator is required, with a ClusterPolicy that is ready
    device_plugin: bool = False  # device plugin pods are required; some platforms run the plugin outside of pods
    may_differ: tuple[str, ...] = ()  # facts that may differ between nodes of the pool

    baseline: Mapping[str, str] = field(
        default_factory=dict
    )  # components that cannot be read here: listed as not verified

    def __post_init__(self) -> None:
        for name in self.may_differ:
            require_known("may_differ", "fact", name, FACTS)


SIXTY_FOUR_MI = Size(2**26)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoragePath(StorageSpec):
    """A path for the trial, with its requirements; ``bytes`` is at most a twentieth of the free space."""

    bytes: Size = SIXTY_FOUR_MI
    free_min: Size | None = None
    write_mb_s: float | None = None  # MB/s (1e6 bytes) that one node must reach, fsync included
    read_mb_s: float | None = None
    files_s: float | None = None  # small files per second that one node must create, and the next one read
    locks: bool | None = None  # whether training needs file locks that exclude other nodes; none: unknown, not judged
    not_empty: bool = False  # for a data set: the path must not be empty

    def __post_init__(self) -> None:
        require_positive(self, "write_mb_s", "read_mb_s", "files_s", "free_min")
        require(self.write or self.write_mb_s is None, "write_mb_s", "needs write: true")
        for key in ("files_s", "locks"):
            between = self.write and self.shared
            require(between or not getattr(self, key), key, "needs shared: true and write: true")
        require(self.bytes >= 0, "bytes", "must not be negative")
        StorageSpec.__post_init__(self)  # super() fails in a dataclass with slots, which is a new class


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSection:
    """The paths of training's data and results (layer 15). If empty, no storage is mounted or tested."""

    paths: tuple[StoragePath, ...] = ()
    s3: tuple[S3, ...] = ()
    classes: tuple[str, ...] = ()  # StorageClasses that must exist
    scratch: str = ""  # where node-local scratch (an emptyDir) is mounted
    burst: Size = Size(0)  # noqa: RUF009 -- a number; what every rank writes at once, as a checkpoint does
    burst_mb_s: float | None = None  # MB/s (1e6 bytes) of all ranks of a node together
    env_secrets: tuple[str, ...] = field(default=())  # Secrets whose keys become variables; never read
    credentials: tuple[Credential, ...] = ()  # keys of Secrets that training needs; only their presence is judged
    source: str = ""  # the source of these numbers

    def __post_init__(self) -> None:
        require(self.burst >= 0, "burst", "must not be negative")
        require_positive(self, "burst_mb_s")
        require(not self.burst or any(p.write for p in self.paths), "burst", "needs a path with write: true")
        rates = (rate for p in self.paths for rate in (p.write_mb_s, p.read_mb_s, p.files_s))
        require_source(self.source, self.burst_mb_s, *rates)

    @property
    def asked(self) -> bool:
        """Whether the trial's pods test any storage."""
        return bool(self.paths or self.s3 or self.scratch or self.credentials)


LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""From near to far, in the terms of `nvidia-smi topo -m`."""
POLICIES, SCOPES = ("none", "best-effort", "restricted", "single-numa-node"), ("container", "pod")
"""Policies of the kubelet's Topology Manager (kubernetes.io, "Control Topology Management Policies on a node")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySection:
    """The distance between a GPU and its nearest NIC, and settings that must be off."""

    gpu_nic_max: str | None = None  # the maximum distance from a GPU to its nearest NIC
    acs_off: bool | None = None  # true: Access Control Services must not redirect peer-to-peer traffic
    source: str = ""
    policy: str | None = None  # topologyManagerPolicy that every kubelet must have
    scope: str | None = None  # topologyManagerScope that every kubelet must have
    leaf_label: str | None = None  # the node label that names a node's leaf switch, if it is not one of the known ones

    def __post_init__(self) -> None:
        if self.gpu_nic_max is not None:
            require_known("gpu_nic_max", "way", self.gpu_nic_max, LEVELS)
        for key, known in (("policy", POLICIES), ("scope", SCOPES)):
            if getattr(self, key) is not None:
                require_known(key, key, getattr(self, key), known)
        require_source(self.source, self.gpu_nic_max, self.acs_off)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSection:
    """Requirements on the steps of ``accept --training``. If empty, GPUs are only compared with each other."""

    tflops: float | None = None  # TFLOP/s (1e12) of each GPU in a step with all ranks, by the formula of the report
    batch: int | None = None  # sequences per step and GPU with which the floor was measured
    exposed_max: float | None = None  # maximum share of a step for communication that does not overlap with compute
    source: str = ""  # the source of these numbers

    def __post_init__(self) -> None:
        require_positive(self, "tflops", "batch")
        require(self.exposed_max is None or 0 < self.exposed_max < 1, "exposed_max", "must be a share between 0 and 1")
        require_source(self.source, self.tflops, self.exposed_max)
