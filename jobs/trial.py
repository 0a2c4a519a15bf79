"""What exactly shall one trial job ask for?

A `TrialSpec` is complete and checked when it exists: whatever a user typed wrong is a `SpecError` with one clear line,
raised before anything is created. How it becomes objects is manifests.py's business.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .names import ENV_NAME, IMAGE, LABEL_VALUE, QUALIFIED, SUBDOMAIN, SpecError, label, pairs, toleration, whole
from .quantity import quantity
from .redact import safe

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PREFIX", "RESERVED_ENV", "Bench", "Collective", "Deadlines", "SpecError", "TrialSpec", "new_run_id"]

PREFIX = "seatrial-"
_LONGEST_RUN_ID = 40
_MOST_NODES = 5000

# What the manifests set themselves; a user's value would contradict the pods' real shape.
RESERVED_ENV = frozenset(
    {
        "WORLD_SIZE", "NUM_GPU_PER_NODE", "NNODES", "NPROC_PER_NODE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT",
        "JOB_COMPLETION_INDEX", "SEATRIAL_RUN", "SEATRIAL_NODE_NAME", "SEATRIAL_POD_NAME", "SEATRIAL_POD_IP",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long each part may take, in seconds; the probe ends well before the Job would be killed.

    `start_s` holds what a first run on a fresh node takes: an autoscaler's new node, and a PyTorch image of 20 GB that
    is pulled and unpacked. The first pods wait that long for the last; `probe_s` counts from when all have met.

    `job_s` (0: start + probe + two minutes to end) is the Job's activeDeadlineSeconds, which counts from the Job's
    start and includes the time its pods are Pending. A Job that meets it deletes its pods and with them the logs.
    """

    start_s: float = 900.0
    dns_s: float = 90.0
    port_s: float = 60.0
    collective_s: float = 240.0
    probe_s: float = 540.0
    job_s: float = 0.0
    ttl_s: float = 3600.0

    def __post_init__(self) -> None:
        if self.job_s == 0:
            object.__setattr__(self, "job_s", self.start_s + self.probe_s + 120)
        for name in ("start_s", "dns_s", "port_s", "collective_s", "probe_s", "job_s", "ttl_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 7 * 86_400:
                raise SpecError(f"deadline {name} must be between 0 and 604800 seconds, found {safe(value, 40)!r}")
        if self.job_s < self.start_s + self.probe_s:
            raise SpecError(
                f"deadline job_s ({self.job_s:.0f} s) must leave room for starting and probing: "
                f"at least start_s + probe_s = {self.start_s + self.probe_s:.0f} s"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One run of the benchmark: its name becomes the stage collective.<name>, its `env` is added to the child's."""

    name: str
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        label("collective", self.name, 30)
        for key, value in self.env.items():
            if not isinstance(key, str) or not ENV_NAME.fullmatch(key) or not isinstance(value, str):
                raise SpecError(
                    f"collective {self.name!r}: env must map variable names to text, found {safe(key, 60)!r}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The sweep of message sizes, in bytes, and the repetitions of each."""

    min_bytes: int = 1 << 20
    max_bytes: int = 8 << 30
    factor: int = 2
    iters: int = 20
    warmup: int = 5

    def __post_init__(self) -> None:
        whole("bench min_bytes", self.min_bytes, 4, 1 << 40)
        whole("bench max_bytes", self.max_bytes, self.min_bytes, 1 << 40)
        whole("bench factor", self.factor, 2, 1024)
        whole("bench iters", self.iters, 1, 100_000)
        whole("bench warmup", self.warmup, 0, 100_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec:
    """One trial: how many pods of which shape, what they run, and until when."""

    run_id: str
    namespace: str
    image: str
    nodes: int = 2
    gpus_per_node: int = 8
    gpu_resource: str = "nvidia.com/gpu"
    pull_secrets: tuple[str, ...] = ()
    pull_policy: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    cpu: str | None = None
    memory: str | None = None
    limits: Mapping[str, str] = field(default_factory=dict)  # of cpu and memory: some quotas and topology policies ask
    shm_bytes: int = 0
    resources: Mapping[str, int] = field(default_factory=dict)
    hugepages: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    run_as_user: int | None = None
    runtime_class: str | None = None
    scheduler_name: str | None = None
    priority_class: str | None = None
    service_account: str | None = None
    host_network: bool = False
    sidecars: tuple[Mapping[str, Any], ...] = ()
    volumes: tuple[Mapping[str, Any], ...] = ()  # beside the probe's own, as in a pod: a fabric's libraries on the host
    mounts: tuple[Mapping[str, Any], ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    anti_affinity: bool = True
    master_port: int = 29500
    collectives: tuple[Collective, ...] = (
        Collective(name="ring", env={"NCCL_ALGO": "Ring"}),
        Collective(name="default"),
    )
    bench: Bench = field(default_factory=Bench)
    deadlines: Deadlines = field(default_factory=Deadlines)

    @property
    def job_name(self) -> str:
        """The name of the Job, the Service and the ConfigMap alike."""
        return PREFIX + self.run_id

    @property
    def gpu_kind(self) -> str:
        """Which vendor's tools the probe shall ask."""
        return "amd" if self.gpu_resource.startswith("amd.com/") else "nvidia" if self.gpus_per_node else "none"

    @property
    def extended(self) -> dict[str, int]:
        """All extended resources of one pod, the GPUs among them."""
        gpus = {self.gpu_resource: self.gpus_per_node} if self.gpus_per_node else {}
        return gpus | dict(self.resources)

    @property
    def peers(self) -> list[str]:
        """The name under which each rank is found through the headless Service."""
        return [f"{self.job_name}-{index}.{self.job_name}" for index in range(self.nodes)]

    def __post_init__(self) -> None:
        """Refuse what Kubernetes would refuse later and less clearly."""
        label("run id", self.run_id, _LONGEST_RUN_ID)
        label("namespace", self.namespace, 63)
        whole("nodes", self.nodes, 1, _MOST_NODES)
        whole("gpus per node", self.gpus_per_node, 0, 64)
        whole("MASTER_PORT", self.master_port, 1024, 65_535)
        whole("shm size", self.shm_bytes, 0, 1 << 42)
        if not isinstance(self.image, str) or len(self.image) > 512 or not IMAGE.fullmatch(self.image):
            raise SpecError(f"image {safe(self.image, 200)!r} is not an image reference such as registry/name:tag")
        if self.pull_policy not in {"", "Always", "IfNotPresent", "Never"}:
            raise SpecError(f"pull policy {safe(self.pull_policy, 60)!r} is not Always, IfNotPresent or Never")
        if self.run_as_user is not None:
            whole("user id", self.run_as_user, 1, (1 << 31) - 1)
        self._check_names()
        self._check_resources()
        self._check_environment()
        self._check_programs()

    def _check_names(self) -> None:
        for what, names in (
            ("pull secret", self.pull_secrets),
            ("runtime class", (self.runtime_class,)),
            ("scheduler name", (self.scheduler_name,)),
            ("priority class", (self.priority_class,)),
            ("service account", (self.service_account,)),
        ):
            for name in names:
                if name and (len(name) > 253 or not SUBDOMAIN.fullmatch(name)):
                    raise SpecError(
                        f"{what} {safe(name, 100)!r} is not a valid name (lower-case letters, digits, '-', '.')"
                    )
        pairs("node selector", self.node_selector, LABEL_VALUE)
        pairs("label", self.labels, LABEL_VALUE)
        pairs("annotation", self.annotations, None)
        for key in self.labels:
            if key.startswith("app.kubernetes.io/") or "batch.kubernetes.io/" in key:
                raise SpecError(f"label {key!r} is set by seatrial itself")
        for item in self.tolerations:
            toleration(item)
        for name in self.capabilities:
            if not re.fullmatch(r"[A-Z][A-Z_]*", name) or name.startswith("CAP_"):
                raise SpecError(f"capability {safe(name, 60)!r} must be written as in Kubernetes, e.g. IPC_LOCK")

    def _check_resources(self) -> None:
        for name, amount in self.extended.items():
            if "/" not in name or not QUALIFIED.fullmatch(name):
                raise SpecError(
                    f"resource {safe(name, 100)!r} is not an extended resource such as rdma/hca_shared_devices_a"
                )
            whole(f"resource {name}", amount, 1, 1_000_000)
        if self.gpu_resource in self.resources:
            raise SpecError(f"resource {self.gpu_resource} is given twice: it is the GPU resource (gpus per node)")
        for what, text in (
            ("cpu", self.cpu),
            ("memory", self.memory),
            *((f"hugepages-{k}", v) for k, v in self.hugepages.items()),
        ):
            if text and (quantity(text) or 0) <= 0:
                raise SpecError(
                    f"{what} {safe(text, 60)!r} is not a quantity such as {'8' if what == 'cpu' else '64Gi'}"
                )
        for size in self.hugepages:
            if not re.fullmatch(r"\d+[KMG]i", size):
                raise SpecError(f"hugepages size {safe(size, 60)!r} is not a page size such as 2Mi or 1Gi")
        for name, text in self.limits.items():
            asked, most = quantity(getattr(self, name, None) or "0"), quantity(text) if isinstance(text, str) else None
            if name not in {"cpu", "memory"} or most is None or most <= 0 or most < (asked or 0):
                what = f"limits: {safe(name, 40)}: {safe(text, 60)!r}"
                raise SpecError(f"{what} must be a quantity of cpu or memory, not below its request")
        if self.hugepages and not (self.cpu or self.memory):
            raise SpecError("hugepages need a cpu or memory request beside them (Kubernetes refuses the pod otherwise)")

    def _check_environment(self) -> None:
        for name, value in self.env.items():
            if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
                raise SpecError(f"environment variable {safe(name, 60)!r} is not a valid name")
            if name in RESERVED_ENV:
                raise SpecError(f"environment variable {name} is set by seatrial from the shape of the job")
            if not isinstance(value, str) or len(value) > 32_768 or "\0" in value:
                raise SpecError(f"environment variable {name} must be text of at most 32 KiB")

    def _check_programs(self) -> None:
        names = [item.name for item in self.collectives]
        if len(set(names)) != len(names):
            raise SpecError("two collectives have the same name")
        for sidecar in self.sidecars:
            label("sidecar name", str(sidecar.get("name") or ""), 63)
            if not isinstance(sidecar.get("image"), str) or not IMAGE.fullmatch(sidecar["image"]):
                raise SpecError(f"sidecar {sidecar['name']!r} has no usable image")
        self._check_volumes()
        containers = [str(item["name"]) for item in self.sidecars]
        if "trial" in containers or len(set(containers)) != len(containers):
            raise SpecError("sidecar names must differ from each other and from 'trial'")

    def _check_volumes(self) -> None:
        names = [str(item.get("name") or "") for item in self.volumes]
        for name in names:
            label("volume name", name, 63)
            if name in {"probe", "shm"} or name.startswith("hugepages-") or names.count(name) > 1:
                raise SpecError(f"volume name {name!r} is taken")
        for item in self.mounts:
            place = str(item.get("mountPath") or "")
            if item.get("name") not in names:
                raise SpecError(f"mount {safe(place, 100)!r}: volume {safe(item.get('name'), 60)!r} is not found")
            ours = f"{place.rstrip('/')}/".startswith(("/seatrial/", "/dev/shm/"))  # noqa: S108  (a path in the pod)
            if not place.startswith("/") or ":" in place or ours:
                raise SpecError(f"mount path {safe(place, 100)!r} is not absolute, or one of seatrial's own")


def new_run_id() -> str:
    """Make a short id that two runs never share: ten characters without look-alikes, 50 bits."""
    alphabet = "23456789abcdefghjkmnpqrstuvwxyz"
    return "".join(secrets.choice(alphabet) for _ in range(10))
