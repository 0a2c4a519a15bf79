"""The parts of a trial's spec: its deadlines, collectives, queue, storage, devices.

Each part is validated on construction, like the `TrialSpec` that holds them: a wrong value is one line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from ..cluster.redact import safe
from ..cluster.renewal import SECONDS
from ..listing import nearest
from .names import ENV_NAME, SUBDOMAIN, SpecError, label, whole

MPI_LAUNCHER = {"cpu": "1", "memory": "2Gi"}
"""The requests of an MPIJob's launcher pod, which runs mpirun."""
_MOST_FILES = 1000  # trial.json is in a ConfigMap, which holds 1 MiB including the probe
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "sendrecv", "broadcast")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """The time limit of each part in seconds; the probe ends well before the Job would be killed.

    `start_s` is for a first run on a fresh node: an autoscaler's new node, and a PyTorch image of 20 GB that is pulled
    and unpacked. The first pods wait that long for the last; `probe_s` starts when all have connected.

    `queue_s` is how long a queue (Kueue, Volcano) may hold the trial before its pods may start; it counts separately.

    `job_s` (0: start + probe + two minutes to end) is the Job's activeDeadlineSeconds, which counts from the Job's
    start and includes the time its pods are Pending. A Job that exceeds it deletes its pods, and the logs with them.

    `publish_s` after its start a pod first resolves a name: earlier, its address may not be published yet (kubelet,
    EndpointSlice, CoreDNS), and caches keep a negative answer.

    `lease_s` after the runner's last renewal, its trial counts as a leftover of a killed run, which others may delete.
    """

    start_s: float = 900.0
    queue_s: float = 1800.0
    publish_s: float = 1.0
    dns_s: float = 90.0
    port_s: float = 60.0
    collective_s: float = 240.0
    probe_s: float = 540.0
    job_s: float = 0.0
    ttl_s: float = 3600.0
    lease_s: float = SECONDS

    def __post_init__(self) -> None:
        if self.job_s == 0:
            object.__setattr__(self, "job_s", self.start_s + self.probe_s + 120)
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 7 * 86_400:
                raise SpecError(f"deadline {name} must be between 0 and 604800 seconds, found {safe(value, 40)!r}")
        if self.job_s < self.start_s + self.probe_s:
            raise SpecError(
                f"deadline job_s ({self.job_s:.0f} s) must leave room for starting and probing: "
                f"at least start_s + probe_s = {self.start_s + self.probe_s:.0f} s"
            )

    def longer(self, seconds: float) -> Deadlines:
        """Return these deadlines for pods that need so many more seconds."""
        return replace(self, probe_s=self.probe_s + seconds, job_s=self.job_s + seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSizes:
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
class Collective:
    """One run of the benchmark: its name becomes the stage collective.<name>, its `env` is added to the child's.

    `scope` "node": every node runs it alone on its own GPUs, all at the same time. `bench`: its own sweep. `command`:
    the user's own program, which each node runs instead of the benchmark.
    """

    name: str
    env: Mapping[str, str] = field(default_factory=dict)
    op: str = "all_reduce"
    scope: str = "job"
    bench: BenchSizes | None = None
    repeats: int = 1
    command: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        label("collective", self.name, 30)
        if self.op not in OPERATIONS:
            raise SpecError(f"collective {self.name!r}: op {safe(self.op, 40)!r} is not one of {', '.join(OPERATIONS)}")
        if self.scope not in {"job", "node"}:
            raise SpecError(f"collective {self.name!r}: scope {safe(self.scope, 40)!r} is not job or node")
        if not all(isinstance(word, str) and "\0" not in word for word in self.command):
            raise SpecError(f"collective {self.name!r}: command {safe(self.command, 100)} is not a list of words")
        whole(f"collective {self.name!r}: repeats", self.repeats, 1, 100)
        for key, value in self.env.items():
            if not isinstance(key, str) or not ENV_NAME.fullmatch(key) or not isinstance(value, str):
                raise SpecError(
                    f"collective {self.name!r}: env must map variable names to text, found {safe(key, 60)!r}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The queue that admits the trial: a Kueue LocalQueue, or a Volcano Queue through a PodGroup."""

    kind: str
    name: str = ""
    priority_class: str = ""  # for Kueue a WorkloadPriorityClass, for Volcano a PriorityClass

    def __post_init__(self) -> None:
        if self.kind not in {"kueue", "volcano"}:
            raise SpecError(f"queue kind {safe(self.kind, 60)!r} is not kueue or volcano")
        if not self.name and self.kind == "kueue":
            raise SpecError("a Kueue queue needs the name of a LocalQueue")
        for what, name in (("queue", self.name), ("queue priority class", self.priority_class)):
            if name and (len(name) > 253 or not SUBDOMAIN.fullmatch(name)):
                raise SpecError(f"{what} {safe(name, 100)!r} is not a valid name: lower-case letters, digits, '-', '.'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mpi:
    """Further settings of an MPIJob: sshd in the workers, the path of the keys, the command that starts the ranks."""

    sshd: tuple[str, ...] = ("/usr/sbin/sshd", "-De")
    ssh_path: str = ""  # sshAuthMountPath; empty: /root/.ssh, or /home/mpiuser/.ssh for another user
    mpirun: tuple[str, ...] = ("mpirun", "--allow-run-as-root")
    args: tuple[str, ...] = ()  # further options of mpirun

    def __post_init__(self) -> None:
        for what, command in (("sshd", self.sshd), ("mpirun", self.mpirun), ("args", self.args)):
            if not all(isinstance(word, str) and "\0" not in word for word in command) or (
                not command and what != "args"
            ):
                raise SpecError(f"mpi {what} must be a list of words, found {safe(command, 100)}")
        if self.ssh_path and not self.ssh_path.startswith("/"):
            raise SpecError(f"mpi ssh_path {safe(self.ssh_path, 100)!r} is not an absolute path")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSpec:
    """Devices by dynamic resource allocation: one request of `count` devices of a DeviceClass, for every pod."""

    name: str
    device_class: str
    count: int = 1

    def __post_init__(self) -> None:
        label("resource claim", self.name, 40)
        if not isinstance(self.device_class, str) or not SUBDOMAIN.fullmatch(self.device_class):
            raise SpecError(f"device class {safe(self.device_class, 100)!r} is not a valid name")
        whole(f"resource claim {self.name!r}: count", self.count, 1, 64)


BETWEEN_NODES_S = 100.0
"""Seconds for the tests of a shared path between nodes: ten steps of ten (jobs/pod/stages/semantics.py), the time for
which another node's file may stay invisible. Healthy storage takes about one for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSpec:
    """A path that training reads or writes: a mounted PVC, or an existing path of the pod."""

    name: str
    path: str
    claim: str = ""  # a PersistentVolumeClaim; empty: the path exists in the pod (volumes, mounts, the image)
    shared: bool = False  # every node sees the same files
    write: bool = False
    bytes: int = 64 << 20  # written and read back
    files: tuple[str, ...] = ()  # of a data set, below the path: each must exist and be readable

    @property
    def kind(self) -> str:
        """The probe's input: claim or path."""
        return "claim" if self.claim else "path"

    def __post_init__(self) -> None:
        label("storage", self.name, 40)
        if not isinstance(self.path, str) or not self.path.startswith("/") or ":" in self.path:
            raise SpecError(f"storage {self.name!r}: path {safe(self.path, 100)!r} is not absolute")
        if f"{self.path.rstrip('/')}/".startswith(("/seatrial/", "/dev/", "/proc/", "/sys/")) or self.path == "/":
            raise SpecError(f"storage {self.name!r}: path {safe(self.path, 100)!r} is not free for a volume")
        if self.claim and (len(self.claim) > 253 or not SUBDOMAIN.fullmatch(self.claim)):
            raise SpecError(f"storage {self.name!r}: claim {safe(self.claim, 100)!r} is not a valid name")
        whole(f"storage {self.name!r}: bytes", self.bytes, 0, 1 << 44)
        if len(self.files) > _MOST_FILES:
            raise SpecError(
                f"storage {self.name!r}: {len(self.files)} files; name at most {_MOST_FILES}, one of each shard"
            )
        for name in self.files:
            relative = isinstance(name, str) and name and not name.startswith("/") and ".." not in name.split("/")
            if not relative or len(name) > 512 or not name.isprintable():
                raise SpecError(f"storage {self.name!r}: file {safe(name, 100)!r} is not a path below {self.path}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A key of a Secret that training needs in its environment (HF_TOKEN, NGC_API_KEY): only its presence is judged."""

    env: str
    secret: str
    key: str

    def __post_init__(self) -> None:
        if not isinstance(self.env, str) or not ENV_NAME.fullmatch(self.env):
            raise SpecError(f"credential {safe(self.env, 60)!r} is not the name of an environment variable")
        if not isinstance(self.secret, str) or len(self.secret) > 253 or not SUBDOMAIN.fullmatch(self.secret):
            raise SpecError(f"credential {self.env}: {safe(self.secret, 100)!r} is not the name of a Secret")
        if not isinstance(self.key, str) or not re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", self.key):
            raise SpecError(f"credential {self.env}: {safe(self.key, 100)!r} is not a key of a Secret")


PRESETS = {
    "": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    "tao": ("ACCESS_KEY", "SECRET_KEY", "S3_BUCKET_NAME", "S3_ENDPOINT_URL"),
}
"""Variables by reader: the SDKs of Amazon and compatible ones, or NVIDIA TAO (its page on Kubernetes, env_vars)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3:
    """A bucket that training reads or writes; credentials are judged only by their presence in the environment.

    The bucket in a preset's variables is not read: without a `uri` only their presence is judged.
    """

    uri: str = ""
    endpoint: str = ""
    env: tuple[str, ...] | None = None  # None: those of the preset
    preset: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The variables that must be set in the pods."""
        return PRESETS[self.preset] if self.env is None else self.env

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise SpecError(f"s3 preset {safe(self.preset, 60)!r} is not known{nearest(self.preset, PRESETS)}")
        if self.preset and not self.uri and not self.endpoint:
            return
        if not isinstance(self.uri, str) or not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,62}(?:/\S*)?", self.uri):
            raise SpecError(f"{safe(self.uri, 100)!r} is not a bucket such as s3://name/prefix")
        if self.endpoint and not re.match(r"https?://[^\s/]+", self.endpoint):
            raise SpecError(f"{self.uri}: endpoint {safe(self.endpoint, 100)!r} is not a URL")
        for name in self.names:
            if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
                raise SpecError(f"{self.uri}: {safe(name, 60)!r} is not the name of an environment variable")


_PORTS = {"https": 443, "http": 80}
_KINDS = {443: "tls", 80: "http"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A host and port that the pods must reach, or must not: HOST:PORT, or a URL of http or https."""

    text: str
    forbidden: bool = False

    def __post_init__(self) -> None:
        self.parsed()

    def parsed(self) -> dict[str, object]:
        """Return the endpoint in the form of the pods' reports. Raises SpecError."""
        text = self.text
        wrong = SpecError(f"endpoint {safe(text, 100)!r} is not HOST:PORT, http://HOST or https://HOST")
        if not isinstance(text, str) or len(text) > 300 or not re.fullmatch(r"[!-~]+", text):
            raise wrong
        scheme, _, rest = text.rpartition("://")
        try:
            parts = urlsplit(f"//{rest}")
            port = parts.port or _PORTS.get(scheme)
        except ValueError:
            raise wrong from None
        if scheme not in ("", *_PORTS) or not parts.hostname or not port or parts.username is not None:
            raise wrong
        kind = {"https": "tls", "http": "http"}.get(scheme) or _KINDS.get(port, "tcp")
        return {"text": text, "host": parts.hostname, "port": port, "kind": kind, "forbidden": self.forbidden}


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSpec:
    """Tests between the pods in addition to MASTER_PORT: the path MTU, TCP throughput, further ports.

    TCP is repeated while the nodes' CPUs are too busy to reach `enough_gbit_s`; 0: a single test.
    """

    mtu: bool = True
    seconds: float = 1.0
    enough_gbit_s: float = 0.0
    ports: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.seconds, bool) or not isinstance(self.seconds, int | float) or not 0 <= self.seconds <= 60:
            raise SpecError(f"network seconds {safe(self.seconds, 40)!r} must be between 0 and 60")
        for port in self.ports:
            whole("network port", port, 1, 65_535)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSpec:
    """Training steps after the collectives: their number, seed, further seconds, and time limit.

    `limit_s` is the program's total time (imports, matrix products, both sharing modes); then it is killed with all its
    children.
    """

    steps: int = 40
    seed: int = 1
    soak_s: int = 0
    limit_s: float = 240.0

    def __post_init__(self) -> None:
        whole("training steps", self.steps, 5, 100_000)
        whole("training seed", self.seed, 0, 1 << 31)
        whole("training soak_s", self.soak_s, 0, 86_400)
        if isinstance(self.limit_s, bool) or not self.soak_s < self.limit_s <= 2 * 86_400:
            raise SpecError(f"training limit_s must be above soak_s, found {safe(self.limit_s, 40)!r}")

    @property
    def extra_s(self) -> float:
        """Additional time of the pods: the program, and the ranks' agreement before it."""
        return self.limit_s + 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A sweep over a fleet instead of a trial: one pod for each node, an agent in each, a coordinator in rank 0's.

    `rules` are those of jobs/pod/sweep/model.py by name, `history` the packed rounds of a resumed sweep. `budget_s`
    ends the rounds, `test_s` a single program. The present agents start when no other has joined for `settle_s`. If
    there is no job over all nodes at the `end`, nodes that have passed are released earlier.
    """

    token: str
    nodes: tuple[str, ...] = ()  # in test order
    leaves: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, Any] = field(default_factory=dict)
    pair: BenchSizes = field(default_factory=BenchSizes)
    alone: BenchSizes = field(default_factory=BenchSizes)
    fabric: str = ""
    gdr: bool = False
    end: bool = True
    history: str = ""
    budget_s: float = 3600.0
    settle_s: float = 120.0
    test_s: float = 120.0

    def __post_init__(self) -> None:
        for name in ("budget_s", "settle_s", "test_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 7 * 86_400:
                raise SpecError(f"sweep {name} must be between 0 and 604800 seconds, found {safe(value, 40)!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSpec:
    """A sharded state of all ranks, saved after the collectives: `bytes` of each rank to `path`, first to `local`."""

    path: str
    local: str = ""
    shared: bool = True  # every node sees the same files at `path`
    kinds: Mapping[str, str] = field(default_factory=dict)  # of `path` and `local`: claim, path or scratch
    bytes: int = 1 << 28
    limit_s: float = 600.0

    def __post_init__(self) -> None:
        whole("checkpoint bytes", self.bytes, 1 << 20, 1 << 33)
        if not 0 < self.limit_s <= 900:  # older files count as those of a killed run (stages/checkpoint.py)
            raise SpecError("a checkpoint's limit_s must be between 0 and 900")


DCGM_S = {1: 90.0, 2: 600.0, 3: 3600.0, 4: 10_800.0}
"""Time limit of a level in seconds; a hang must end. It is NVIDIA's figure in the page of dcgmi diag (DcgmSpec.usual),
with room for machines of eight GPUs with a reloading driver. Public health checks give levels 2 to 4 half an hour,
one and three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DcgmSpec:
    """DCGM's diagnostics before the collectives, if the image has dcgmi: their level, and the time limit."""

    level: int = 1
    limit_s: float = DCGM_S[1]

    def __post_init__(self) -> None:
        whole("DCGM level", self.level, 1, max(DCGM_S))

    @property
    def usual_s(self) -> float:
        """The seconds that NVIDIA documents; ten for level 1, an hour for level 4."""
        return {1: 10.0, 2: 120.0, 3: 900.0}.get(self.level, 3600.0)

    @property
    def usual(self) -> str:
        """The duration that NVIDIA documents, as text."""
        return {1: "seconds", 2: "about 2 minutes", 3: "about 15 minutes"}.get(self.level, "an hour and more")

    @property
    def cost(self) -> str:
        """Their duration as a text to print before they run; '' for level 1."""
        if not self.extra_s:
            return ""
        return (
            f"DCGM's diagnostics of level {self.level} run before the collectives if the image has dcgmi: "
            f"{self.usual}, at most {self.limit_s / 60:.0f} minutes, on all nodes at once"
        )

    @property
    def extra_s(self) -> float:
        """Additional time of the pods; level 1 takes seconds, which every trial has."""
        return 0.0 if self.level == 1 else self.limit_s + 30


PERFTEST_MOST_S = 60
"""Seconds of one RDMA write; a few suffice for its average, and a longer one is a burn-in."""
_WRITE_S = 2.0
"""Overhead of a write in seconds: the program sleeps for one (perftest, src/write_bw.c) and registers memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerftestSpec:
    """RDMA writes between neighbouring nodes before the collectives, if the image has perftest.

    `layer` is the link layer of the fabric's ports, '' with EFA; `gpu`: also write GPU memory, if the program supports
    it. `nics` of a node and `nodes` determine the duration.
    """

    seconds: int = 2
    layer: str = "InfiniBand"
    gpu: bool = True
    nics: int = 8
    nodes: int = 2

    def __post_init__(self) -> None:
        whole("perftest seconds", self.seconds, 1, PERFTEST_MOST_S)

    @property
    def usual_s(self) -> float:
        """Duration for host memory: one write at a time in each pair, both ways; every second pair at once."""
        each = 2 * (self.seconds + _WRITE_S) if self.layer else _WRITE_S
        return (1 if self.nodes <= 2 else 2) * self.nics * each

    @property
    def cost(self) -> str:
        """The duration of the writes as a text to print before they run; '' for one node, which has no neighbour."""
        if self.nodes < 2:
            return ""
        twice = ", twice that if it uses GPU memory" if self.layer and self.gpu else ""
        return (
            f"If the image has {self.tool}, its runs between neighbours add about {self.usual_s:.0f} s for {self.nics} "
            f"NICs{twice}; if not, nothing (fabric.perftest_s: 0 omits them)"
        )

    @property
    def tool(self) -> str:
        """The program that tests this fabric."""
        return "ib_write_bw" if self.layer else "fi_pingpong"

    @property
    def limit_s(self) -> float:
        """Time limit of all writes, including those of GPU memory."""
        return 2 * self.usual_s + 60

    @property
    def extra_s(self) -> float:
        """Additional time of the pods."""
        return self.limit_s + 60
