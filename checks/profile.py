"""What must this cluster offer? A profile, read strictly from YAML into frozen records.

Rule: a word that is not known, a value of the wrong type or a number that cannot be true is refused with its path
and the nearest right word. A threshold that was silently ignored would be a check that passes without looking.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.trial import SpecError

from .judgement.physics import ring_limit_gbps
from .strict import ProfileError, Size, build, nearest, read_yaml, require
from .trial_spec import spec_of

__all__ = ["Floor", "Profile", "ProfileError", "Size", "load_profile", "profile_names"]

MI, EIGHT_GI, SIXTEEN_GI = Size(2**20), Size(2**33), Size(2**34)
SHIPPED = Path(__file__).resolve().parent / "profiles"

REQUIRED = (
    "rights.run",
    "gpu.allocatable",
    "runtime.gpus",
    "rendezvous.dns",
    "rendezvous.port",
    "nccl.completed",
    "nccl.transport",
    "nccl.bandwidth-ring",
)
"""The core of the five families (rights, allocatable, node runtime, rendezvous, all_reduce): none may be skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """The accelerators of a node, as the scheduler counts them."""

    resource: str = "nvidia.com/gpu"
    per_node: int | None = None
    kind: str = "nvidia"

    def __post_init__(self) -> None:
        require(self.kind in ("nvidia", "amd"), "kind", f"must be nvidia or amd, not {self.kind!r}")
        require(self.per_node is None or self.per_node > 0, "per_node", "must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What a pod must find on the node. ``managed``: the provider owns driver and toolkit; the family is skipped."""

    managed: bool = False
    driver_min: str | None = None
    memlock_min: Size | None = None  # 'unlimited' is -1

    def __post_init__(self) -> None:
        parts = (self.driver_min or "0").split(".")
        require(all(p.isdigit() for p in parts), "driver_min", "must look like 580 or 580.65.06")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The network between nodes: what NCCL must be seen to use, and how much of it."""

    kind: str | None = None  # in the words of the log analyzer: ib, roce, efa, ...
    rails: int | None = None  # network devices that NCCL must be seen to use on each node
    rail_gbit_s: float | None = None
    node_gbit_s: float | None = None  # where rails are grouped (EFA): the whole node; default rails x rail_gbit_s
    gdr: bool | None = None

    KINDS = ("ib", "roce", "efa", "cxi", "gib", "tcpx", "fastrak", "fastsocket", "ucx", "mnnvl", "socket")

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in self.KINDS:
            require(ok=False, name="kind", text=f"unknown fabric {self.kind!r}{nearest(self.kind, self.KINDS)}")
        for name in ("rails", "rail_gbit_s", "node_gbit_s"):
            value = getattr(self, name)
            require(value is None or value > 0, name, "must be above 0")

    @property
    def node_gbps(self) -> float | None:
        """What a node can send at most, in GB/s (1e9 bytes per second)."""
        if self.node_gbit_s is not None:
            return self.node_gbit_s / 8
        if self.rails is None or self.rail_gbit_s is None:
            return None
        return self.rails * self.rail_gbit_s / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
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
    tolerations: tuple[dict[str, Any], ...] = ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},)
    annotations: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    runtime_class: str | None = None
    scheduler_name: str | None = None
    priority_class: str | None = None
    service_account: str | None = None
    run_as_user: int | None = None
    host_network: bool = False
    sidecars: tuple[dict[str, Any], ...] = ()
    volumes: tuple[dict[str, Any], ...] = ()  # beside the probe's own: a fabric's libraries on the host, for one
    mounts: tuple[dict[str, Any], ...] = ()
    limits: dict[str, str] = field(default_factory=dict)  # of cpu and memory, where a quota asks for them
    env: dict[str, str] = field(default_factory=dict)
    master_port: int = 29500  # torchrun's default, and TAO's


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The sweep of the collective; the floors below name rows of it."""

    min: Size = MI
    max: Size = EIGHT_GI
    factor: int = 2
    iters: int = 20
    warmup: int = 5

    def __post_init__(self) -> None:
        require(0 < self.min <= self.max, "min", "must be above 0 and at most max")
        require(self.factor >= 2, "factor", "must be at least 2")
        require(self.iters >= 1, "iters", "must be at least 1")
        require(self.warmup >= 0, "warmup", "must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long each part may take, in seconds."""

    start_s: int | None = None
    dns_s: int | None = None
    port_s: int | None = None
    collective_s: int | None = None
    probe_s: int | None = None
    job_s: int | None = None
    ttl_s: int | None = None


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
        require(self.algorithm in ("ring", "default"), "algorithm", f"must be ring or default, not {self.algorithm!r}")
        require(self.busbw_gbps > 0, "busbw_gbps", "must be above 0")
        require(self.nodes >= 1, "nodes", "must be at least 1")
        require(self.size > 0, "size", "must be above 0")
        for name in ("source", "topology"):
            require(bool(getattr(self, name).strip()), name, "must say where the number comes from")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A kind of cluster. ``Profile()`` is 'no profile given': what only a profile knows is None or empty."""

    name: str | None = None
    title: str = ""
    nodes: int = 2  # how many nodes the trial spans
    kubernetes_min: str = "1.28"  # the index label of Indexed Job pods; the user's stated minimum
    required: tuple[str, ...] = REQUIRED
    gpu: Gpu = Gpu()
    runtime: Runtime = Runtime()
    fabric: Fabric = Fabric()
    pod: Pod = Pod()
    bench: Bench = Bench()
    deadlines: Deadlines = Deadlines()
    floors: tuple[Floor, ...] = ()

    def __post_init__(self) -> None:
        require(self.nodes >= 2, "nodes", "must be at least 2: one node shows nothing of the network")
        parts = self.kubernetes_min.split(".")
        require(len(parts) == 2 and all(p.isdigit() for p in parts), "kubernetes_min", "must look like 1.28")
        limit = self.fabric.node_gbps
        for index, floor in enumerate(self.floors):
            if floor.algorithm == "ring" and limit is not None and floor.nodes > 1:
                require(
                    floor.busbw_gbps < ring_limit_gbps(limit),
                    f"floors[{index}].busbw_gbps",
                    f"is above what the wires of a node carry ({limit:g} GB/s): no cluster can pass",
                )

    @property
    def known(self) -> bool:
        """Whether a profile was given."""
        return self.name is not None

    def floor(self, collective: str, algorithm: str, nodes: int) -> tuple[Floor, ...]:
        """Return the floors of this collective, algorithm and number of nodes, smallest row first."""
        key = (collective, algorithm, nodes)
        found = (f for f in self.floors if (f.collective, f.algorithm, f.nodes) == key)
        return tuple(sorted(found, key=lambda f: f.size))


def profile_names() -> tuple[str, ...]:
    """Return the names of the shipped profiles, sorted."""
    return tuple(sorted(p.stem for p in SHIPPED.glob("*.yaml") if not p.stem.startswith("_")))


def load_profile(ref: str) -> Profile:
    """Read a shipped profile by name, or a file by path. Raises ProfileError (one line)."""
    path = _locate(ref, Path.cwd())
    document = _inherit(path, ())
    document.setdefault("name", path.stem)
    try:
        found: Profile = build(Profile, document, "")
        spec_of(found, run_id="lint", namespace="lint")  # what Kubernetes would refuse is refused here
    except (ProfileError, SpecError) as error:
        raise ProfileError(f"{path.name}: {error}") from error
    return found


def _locate(ref: str, folder: Path) -> Path:
    """Find the file of a profile: a path as given (relative to ``folder``), else the name of a shipped one."""
    if "/" in ref or ref.endswith((".yaml", ".yml")):
        path = folder / ref
        if path.is_dir():
            raise ProfileError(f"profile {ref!r} is a directory; a YAML file is expected")
        if not path.is_file():
            raise ProfileError(f"profile file {ref!r} does not exist")
        return path
    path = SHIPPED / f"{ref}.yaml"
    if not ref or not path.is_file() or (ref.startswith("_") and folder != SHIPPED):
        raise ProfileError(f"unknown profile {ref!r}{nearest(ref, profile_names())}")
    return path


def _inherit(path: Path, trail: tuple[Path, ...]) -> dict[str, Any]:
    """Read a file and put it over the one it extends: mappings are merged, everything else is replaced."""
    path = path.resolve()
    if path in trail:
        circle = " -> ".join(p.name for p in (*trail, path))
        raise ProfileError(f"{trail[0].name}: profiles extend each other: {circle}")
    own = read_yaml(path)
    parent = own.pop("extends", None)
    if parent is None:
        return own
    if not isinstance(parent, str):
        raise ProfileError(f"{path.name}: extends must be the name of a profile or a file, not {parent!r}")
    try:
        source = _locate(parent, path.parent)
    except ProfileError as error:
        raise ProfileError(f"{path.name}: extends: {error}") from error
    inherited = _inherit(source, (*trail, path))
    for key in ("name", "title"):
        inherited.pop(key, None)
    return _merge(inherited, own)


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
