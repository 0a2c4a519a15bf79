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
    """The time limit of the API server's answers, measured at the trial's start."""

    latency_max_s: float | None = None  # of the median answer; none: it is shown and not judged

    def __post_init__(self) -> None:
        require_positive(self, "latency_max_s")


MI, EIGHT_GI = Size(2**20), Size(2**33)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSection:
    """The sweep of the collectives; the floors below name rows of it."""

    min: Size = MI
    max: Size = EIGHT_GI
    factor: int = 2
    iters: int = 20
    warmup: int = 5
    repeats: int = 3  # repeats of the sweep: three distinguish a slow fabric from an unstable one
    spread_max: float | None = None  # how far apart repeats of one row may lie: (largest - smallest) / median

    def __post_init__(self) -> None:
        require(0 < self.min <= self.max, "min", "must be above 0 and at most max")
        require(self.factor >= 2, "factor", "must be at least 2")
        require(self.iters >= 1, "iters", "must be at least 1")
        require(self.warmup >= 0, "warmup", "must not be negative")
        require(1 <= self.repeats <= 100, "repeats", "must be between 1 and 100")
        require(self.spread_max is None or 0 < self.spread_max < 1, "spread_max", "must be a share between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The least bus bandwidth of one named row; out of place and in place must both reach it."""

    collective: str
    algorithm: str  # 'ring', or 'default' for whatever NCCL chose
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
            require(bool(getattr(self, name).strip()), name, "must say where the number comes from")


PER_RANK = Size(2**28)
ADAM_BYTES = 14
"""Bytes saved for a parameter by mixed-precision Adam: 2 of bf16 weights, 4 of the fp32 copy, 4 and 4 of the moments
(Rajbhandari et al., ZeRO, arXiv:1910.02054, section 3.1, without the gradients, which are not saved)."""
SHORTEST_S = 60
_FACTORS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSection:
    """The place and size of training's saved state, for ``accept --checkpoint``.

    Empty: the first shared path of `storage` that is written takes it, and nothing is judged but that it works.
    """

    path: str = ""  # name of a storage path with write: true, which must outlive the job
    local: str = ""  # name of the storage path, or scratch, to which it is saved first
    bytes: Size = PER_RANK  # of each rank
    mb_s: float | None = None  # MB/s (1e6 bytes) of all ranks together while training is paused
    pause_max_s: float | None = None  # how long a checkpoint of `model` may stop training
    model: str = ""  # parameters, such as 70B
    bytes_per_parameter: int = ADAM_BYTES
    interval_s: int = 1800  # between two checkpoints
    gather: bool = False  # rank 0 gathers the whole state, unsharded
    private: bool = False  # other teams must not be able to read or replace it
    source: str = ""  # the source of these numbers

    def __post_init__(self) -> None:
        require_positive(self, "mb_s", "pause_max_s", "bytes_per_parameter")
        require(2**20 <= self.bytes <= 2**33, "bytes", "must be between 1Mi and 8Gi")
        require(not self.model or parameters(self.model) > 0, "model", "must be a number of parameters, such as 70B")
        require(self.interval_s >= SHORTEST_S, "interval_s", f"must be at least {SHORTEST_S}")
        require(self.pause_max_s is None or bool(self.model), "pause_max_s", "needs model, for the size of a pause")
        require_source(self.source, self.mb_s, self.pause_max_s)


def parameters(text: str) -> int:
    """Read a size of a model: 70B, 1.5T, 350M; 0 if it is invalid."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([KMBT]?)", text.strip(), re.IGNORECASE)
    return round(float(match[1]) * _FACTORS[match[2].upper()]) if match else 0


VERBS = {"ib": "InfiniBand", "roce": "Ethernet", "gib": "Ethernet", "efa": None}
"""Fabrics with RDMA devices as NICs, and the link layer that sysfs shows of them; EFA has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricSection:
    """The network between nodes: the transport and rails that NCCL must use."""

    kind: str | None = None  # in the words of the log analyzer: ib, roce, efa, ...
    rails: int | None = None  # network devices that NCCL must be seen to use on each node
    rail_gbit_s: float | None = None
    node_gbit_s: float | None = None  # where rails are grouped (EFA): the whole node; default rails x rail_gbit_s
    gdr: bool | None = None
    devices: int | None = None  # RDMA devices of a pod, where that is another number than its rails (EFA groups them)
    device_gbit_s: float | None = None  # of one such device; default rail_gbit_s where devices and rails are the same
    perftest_s: int = 2  # of each RDMA write between neighbours where the image has perftest; 0: none

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
        """How many RDMA devices a pod must have."""
        return self.devices if self.devices is not None else self.rails

    @property
    def device_rate(self) -> float | None:
        """Which rate each of them must have, in Gb/s."""
        if self.device_gbit_s is not None or self.devices not in (None, self.rails):
            return self.device_gbit_s
        return self.rail_gbit_s

    @property
    def node_gbps(self) -> float | None:
        """A node's maximum send rate, in GB/s (1e9 bytes per second)."""
        if self.node_gbit_s is not None:
            return self.node_gbit_s / 8
        if self.rails is None or self.rail_gbit_s is None:
            return None
        return self.rails * self.rail_gbit_s / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSection:
    """The accelerators of a node, as the scheduler counts them."""

    resource: str = "nvidia.com/gpu"
    per_node: int | None = None  # 0: a trial on CPUs alone, which does not describe GPUs and their fabric
    kind: str = "nvidia"
    product: tuple[str, ...] = ()  # what the label of GPU feature discovery may say, with * for any text
    machines: tuple[str, ...] = ()  # what node.kubernetes.io/instance-type may say; `profile detect` alone reads it

    def __post_init__(self) -> None:
        require(self.kind in ("nvidia", "amd"), "kind", f"must be nvidia or amd, not {self.kind!r}")
        require(self.per_node is None or self.per_node >= 0, "per_node", "must not be negative")
        other = {"nvidia": "amd.com/", "amd": "nvidia.com/"}[self.kind]
        require(not self.resource.startswith(other), "resource", f"is {self.resource}, but the kind is {self.kind}")

    @property
    def none(self) -> bool:
        """Whether the trial is one of CPUs alone."""
        return self.per_node == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSection:
    """Requirements on the node as seen in a pod. ``managed``: driver and toolkit are the provider's, and not judged."""

    managed: bool = False
    driver_min: str | None = None
    toolkit_min: str | None = None  # of the NVIDIA container toolkit
    memlock_min: Size | None = None  # 'unlimited' is -1
    intra_node: str | None = None  # how the GPUs of a node reach each other: p2p (NVLink, xGMI), shm (PCIe machines)
    nvlinks: int | None = None  # active links of each GPU
    persistence: bool | None = None  # must the driver stay loaded between jobs?
    dcgm: int = 1  # the level of DCGM's diagnostics where the image has dcgmi; 0: none

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
    """The images of the trial's pods, including sidecars and additions of webhooks."""

    digest: bool = False  # every image must be named by its digest: a tag can be moved
    registries: tuple[str, ...] = ()  # prefixes such as registry.example.com/mirror; none: any registry may serve
    models: tuple[str, ...] = ()  # images of models and services; on record with whether a digest pins them
    pull_max_s: float | None = None
    check_secrets: bool = False  # get the pull secrets by name, as --check-secrets does

    def __post_init__(self) -> None:
        require_positive(self, "pull_max_s")
        require(all(self.registries), "registries", "must not hold an empty name")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSection:
    """The launcher of training here; the trial uses the same."""

    launcher: str = "indexed"
    queue: Queue | None = None  # none: pods go straight to the scheduler
    mpi: Mpi = field(default_factory=Mpi)
    runtime: str = "torch-distributed"  # the ClusterTrainingRuntime of a TrainJob
    gang_test: bool = False  # also try a job that cannot fit: it must start no pod
    nodes_on_demand: bool = False  # an autoscaler brings the nodes when pods request them

    def __post_init__(self) -> None:
        require_known("launcher", "launcher", self.launcher, LAUNCHERS)


MOST_ENDPOINTS = 32
"""Tried at once by every pod, and each is a line of evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointsSection:
    """Hosts that pods must reach (a registry's mirror, a tracking server), and must not (the internet, in an air gap).

    Each is HOST:PORT, or a URL of http or https.
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
        """The tests of the pods."""
        return (*(Endpoint(text) for text in self.reachable), *(Endpoint(text, True) for text in self.forbidden))


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSection:
    """Packet sizes and rates between pods. Empty: nothing is known, so that only contradictions are faults."""

    mtu: int | None = None  # bytes; the least that must get through between pods without being cut
    secondary_mtu: int | None = None  # bytes; of the interfaces that Multus and its like attach
    tcp_gbit_s: float | None = None  # one TCP connection between two pods, at its best
    endpoints: EndpointsSection = field(default_factory=EndpointsSection)
    source: str = ""  # where these numbers come from

    def __post_init__(self) -> None:
        for name in ("mtu", "secondary_mtu"):
            value = getattr(self, name)
            # RFC 8200: no link may carry less than 1280 bytes; 65535 is the largest IP packet.
            require(value is None or 1280 <= value <= 65535, name, "must be between 1280 and 65535 bytes")
        require_positive(self, "tcp_gbit_s")
        require_source(self.source, self.mtu, self.secondary_mtu, self.tcp_gbit_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservabilitySection:
    """The GPU metrics that the platform must collect, to diagnose a slow job."""

    dcgm_exporter: bool = False  # an exporter of GPU metrics, ready on every GPU node
    service_monitor: bool = False  # and a ServiceMonitor of Prometheus Operator that has it scraped


SIXTEEN_GI = Size(2**34)
GPU_TAINTS: tuple[Unstructured, ...] = (
    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
)
"""The taints that keep GPU nodes for GPU work: by the resource's own name (GKE, OKE, and the admission plugin
ExtendedResourceToleration of Kubernetes), and as Azure documents it ("Use GPUs on AKS": sku=gpu:NoSchedule)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSection:
    """The pod that training would use here; the trial runs in the same one."""

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
    volumes: tuple[Unstructured, ...] = ()  # next to the probe's own: a fabric's libraries on the host, for one
    mounts: tuple[Unstructured, ...] = ()
    limits: dict[str, str] = field(default_factory=dict)  # of cpu and memory, where a quota requests them
    env: dict[str, str] = field(default_factory=dict)
    claims: tuple[ClaimSpec, ...] = ()  # devices by dynamic resource allocation, next to or instead of resources
    env_secrets: tuple[str, ...] = ()  # Secrets with keys that become variables; named here, never read
    seccomp: str = "RuntimeDefault"  # or Unconfined, as most training pods run; nothing: the node's default
    master_port: int = 29500  # torchrun's default, and TAO's


FACTS = ("kernel", "os", "runtime", "kubelet", "driver")


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSection:
    """The software of the GPU nodes, as the API shows it."""

    operator: bool = False  # the GPU operator must be there, with a ClusterPolicy that is ready
    device_plugin: bool = False  # a device plugin must be seen as pods; some platforms run it where no pod shows it
    may_differ: tuple[str, ...] = ()  # facts that need not be the same on all nodes of the pool

    baseline: Mapping[str, str] = field(
        default_factory=dict
    )  # components that cannot be read here: listed as not verified

    def __post_init__(self) -> None:
        for name in self.may_differ:
            require_known("may_differ", "fact", name, FACTS)


SIXTY_FOUR_MI = Size(2**26)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoragePath(StorageSpec):
    """A path of the trial, with its requirements; ``bytes`` is at most a twentieth of the free space."""

    bytes: Size = SIXTY_FOUR_MI
    free_min: Size | None = None
    write_mb_s: float | None = None  # MB/s (1e6 bytes) that one node must reach, fsync included
    read_mb_s: float | None = None
    files_s: float | None = None  # small files that one node must create, and the next one read, each second
    locks: bool | None = None  # whether training needs file locks that exclude other nodes; none: unknown, not judged
    not_empty: bool = False  # a data set: there must be something in it

    def __post_init__(self) -> None:
        require_positive(self, "write_mb_s", "read_mb_s", "files_s", "free_min")
        require(self.write or self.write_mb_s is None, "write_mb_s", "needs write: true")
        for key in ("files_s", "locks"):
            between = self.write and self.shared
            require(between or not getattr(self, key), key, "needs shared: true and write: true")
        require(self.bytes >= 0, "bytes", "must not be negative")
        StorageSpec.__post_init__(self)  # super() does not know a class with slots, which dataclass makes anew


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSection:
    """The paths of training's data and results (layer 15). Empty: nothing is requested, nor tried."""

    paths: tuple[StoragePath, ...] = ()
    s3: tuple[S3, ...] = ()
    classes: tuple[str, ...] = ()  # StorageClasses that must exist
    scratch: str = ""  # where node-local scratch (an emptyDir) is mounted
    burst: Size = Size(0)  # noqa: RUF009 -- a number; what every rank writes at once, as a checkpoint does
    burst_mb_s: float | None = None  # MB/s (1e6 bytes) of all ranks of a node together
    env_secrets: tuple[str, ...] = field(default=())  # Secrets with keys that become variables; never read
    credentials: tuple[Credential, ...] = ()  # keys of Secrets that training needs; their presence is judged
    source: str = ""  # the source of these numbers

    def __post_init__(self) -> None:
        require(self.burst >= 0, "burst", "must not be negative")
        require_positive(self, "burst_mb_s")
        require(not self.burst or any(p.write for p in self.paths), "burst", "needs a path with write: true")
        rates = (rate for p in self.paths for rate in (p.write_mb_s, p.read_mb_s, p.files_s))
        require_source(self.source, self.burst_mb_s, *rates)

    @property
    def asked(self) -> bool:
        """Whether the trial's pods look at any storage."""
        return bool(self.paths or self.s3 or self.scratch or self.credentials)


LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""From near to far, in the words of `nvidia-smi topo -m`."""
POLICIES, SCOPES = ("none", "best-effort", "restricted", "single-numa-node"), ("container", "pod")
"""Of the kubelet's Topology Manager (kubernetes.io, "Control Topology Management Policies on a node")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySection:
    """The distance between a GPU and its nearest NIC, and forbidden obstacles."""

    gpu_nic_max: str | None = None  # the farthest way from a GPU to its nearest NIC
    acs_off: bool | None = None  # true: Access Control Services must not redirect peer-to-peer traffic
    source: str = ""
    policy: str | None = None  # which topologyManagerPolicy every kubelet must have
    scope: str | None = None  # and which topologyManagerScope
    leaf_label: str | None = None  # the node label that names a node's leaf switch, if it is not a usual one

    def __post_init__(self) -> None:
        if self.gpu_nic_max is not None:
            require_known("gpu_nic_max", "way", self.gpu_nic_max, LEVELS)
        for key, known in (("policy", POLICIES), ("scope", SCOPES)):
            if getattr(self, key) is not None:
                require_known(key, key, getattr(self, key), known)
        require_source(self.source, self.gpu_nic_max, self.acs_off)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSection:
    """Requirements on the steps of ``accept --training``. Empty: they run, and are only compared with each other."""

    tflops: float | None = None  # TFLOP/s (1e12) of each GPU in a step with all ranks, by the formula of the report
    batch: int | None = None  # sequences a step and GPU at which the floor was measured; other runs are not held to it
    exposed_max: float | None = None  # share of a step that communication may take without compute next to it
    source: str = ""  # the source of these numbers

    def __post_init__(self) -> None:
        require_positive(self, "tflops", "batch")
        require(self.exposed_max is None or 0 < self.exposed_max < 1, "exposed_max", "must be a share between 0 and 1")
        require_source(self.source, self.tflops, self.exposed_max)
