"""The spec of a job: number and shape of its pods, their launcher, and their program.

It is validated on construction: an invalid value raises a `SpecError` with one clear line, before anything is created.
manifests.py builds its objects. A trial's spec (spec.py) adds the tasks of the probe.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..cluster.redact import safe
from ..cluster.unstructured import Unstructured, quantity
from ..listing import nearest
from .names import ENV_NAME, IMAGE, LABEL_VALUE, QUALIFIED, SUBDOMAIN, SpecError, label, pairs, toleration, whole
from .parts import ClaimSpec, Credential, Mpi, Queue, StorageSpec

LAUNCHERS = ("indexed", "mpijob", "pytorchjob", "trainjob")
USERS = "seatrial-job"
"""The label app.kubernetes.io/name of all objects of a user's own job; a trial's is "seatrial"."""
_LONGEST_RUN_ID = 40
# A host name such as NAME-worker-4999 or NAME-node-0-4999 is a DNS label of 63 characters at most.
_LONGEST_NAME = 51
# The names of rank 0 and of the others. The operators' own Services publish an MPIJob's workers, a PyTorchJob's master
# and a TrainJob's nodes (kubeflow/mpi-operator newWorker, kubeflow/training-operator pytorch, kubernetes-sigs/jobset).
_PEERS = {
    "indexed": ("{job}-{index}.{job}",) * 2,
    "mpijob": ("{job}-worker-{index}.{job}",) * 2,
    "pytorchjob": ("{job}-master-0", "{job}-{index}.{job}"),
    "trainjob": ("{job}-node-0-{index}.{job}",) * 2,
}
MOST_NODES = 5000

# Variables set by the manifests; a user's value would contradict the pods' real shape.
RESERVED_ENV = frozenset(
    {
        "WORLD_SIZE",
        "NUM_GPU_PER_NODE",
        "NNODES",
        "NPROC_PER_NODE",
        "NODE_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "JOB_COMPLETION_INDEX",
        "SEATRIAL_RUN",
        "SEATRIAL_NODE_NAME",
        "SEATRIAL_POD_NAME",
        "SEATRIAL_POD_IP",
    }
)
PET = ("NNODES", "NPROC_PER_NODE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Options that torchrun reads from variables with PET_ (torch.distributed.argparse_util.env)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One job: number and shape of its pods, their launcher, their program, and its deadlines."""

    run_id: str
    namespace: str
    image: str
    name: str = ""
    command: tuple[str, ...] = ()  # the program of each rank; empty: the probe
    nodes: int = 2
    gpus_per_node: int = 8
    gpu_resource: str = "nvidia.com/gpu"
    pull_secrets: tuple[str, ...] = ()
    pull_policy: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Unstructured, ...] = ()
    cpu: str | None = None
    memory: str | None = None
    limits: Mapping[str, str] = field(default_factory=dict)  # of cpu and memory, for some quotas and topology policies
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
    sidecars: tuple[Unstructured, ...] = ()
    volumes: tuple[Unstructured, ...] = ()  # in addition to the probe's, e.g. a fabric's libraries on the host
    mounts: tuple[Unstructured, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    node_names: tuple[str, ...] = ()  # the only nodes that may run a pod; empty: any
    avoided: tuple[str, ...] = ()  # nodes that must not run a pod; node_names takes precedence
    anti_affinity: bool = True
    master_port: int = 29500
    time_limit_s: int = 0  # activeDeadlineSeconds; 0: unlimited
    ttl_s: int = 3600  # seconds until a finished job is deleted
    launcher: str = "indexed"
    queue: Queue | None = None
    mpi: Mpi = field(default_factory=Mpi)
    runtime: str = "torch-distributed"  # the ClusterTrainingRuntime of a TrainJob
    claims: tuple[ClaimSpec, ...] = ()
    storage: tuple[StorageSpec, ...] = ()
    scratch: str = ""  # the mount path of node-local scratch (an emptyDir)
    env_secrets: tuple[str, ...] = ()  # Secrets with keys that become variables; only named here, never read
    credentials: tuple[Credential, ...] = ()  # keys of Secrets in the environment; only their presence is tested
    seccomp: str = "RuntimeDefault"  # or Unconfined; empty: the node's default

    @property
    def job_name(self) -> str:
        """The name of both the job and the Service."""
        return self.name

    @property
    def app(self) -> str:
        """The label app.kubernetes.io/name of all its objects."""
        return USERS

    @property
    def component(self) -> str:
        """The label app.kubernetes.io/component of a rank, and the name of its container."""
        return "job"

    @property
    def active_s(self) -> int:
        """The job's activeDeadlineSeconds; 0: none."""
        return self.time_limit_s

    @property
    def kept_s(self) -> int:
        """The job's ttlSecondsAfterFinished."""
        return self.ttl_s

    @property
    def lease_s(self) -> float:
        """The duration of the watcher's lease in seconds; 0: the job needs no watcher."""
        return 0.0

    @property
    def outlives_pods(self) -> bool:
        """Whether the job continues after the loss of a pod."""
        return False

    @property
    def processes(self) -> int:
        """The number of processes on a node: one for each GPU."""
        return max(1, self.gpus_per_node)

    @property
    def slots(self) -> int:
        """The number of processes that mpirun starts on a node."""
        return self.processes

    @property
    def defaults(self) -> dict[str, str]:
        """The job's own variables that the user's `env` may change."""
        return {}

    @property
    def fixed(self) -> dict[str, str]:
        """Variables in addition to the rendezvous that cannot be changed."""
        return {}

    @property
    def fields(self) -> dict[str, str]:
        """Variables that hold a field of the pod, with its path."""
        return {}

    @property
    def handed_over(self) -> tuple[str, ...]:
        """Variables of the image or of Secrets that mpirun exports to the ranks."""
        return ()

    @property
    def pet(self) -> bool:
        """Whether to set torchrun's variables: operators of other kinds set them, or reject them."""
        return self.launcher == "indexed" and bool(self.command)

    @property
    def extended(self) -> dict[str, int]:
        """All extended resources of one pod, including the GPUs."""
        gpus = {self.gpu_resource: self.gpus_per_node} if self.gpus_per_node and self.gpu_resource else {}
        return gpus | dict(self.resources)

    @property
    def peers(self) -> list[str]:
        """The name of each rank, published by our headless Service or the launching operator's."""
        first, rest = _PEERS[self.launcher]
        names = [first, *[rest] * (self.nodes - 1)]
        return [name.format(job=self.job_name, index=index) for index, name in enumerate(names)]

    def __post_init__(self) -> None:
        """Reject values that Kubernetes would reject later and less clearly."""
        label("run id", self.run_id, _LONGEST_RUN_ID)
        label("name", self.job_name, _LONGEST_NAME)
        label("namespace", self.namespace, 63)
        whole("nodes", self.nodes, 1, MOST_NODES)
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
        self._check_containers()
        self._check_launching()
        self._check_storage()

    def _check_launching(self) -> None:
        for what, word, known in (
            ("launcher", self.launcher, LAUNCHERS),
            ("seccomp", self.seccomp, ("RuntimeDefault", "Unconfined", "")),
        ):
            if word not in known:
                raise SpecError(f"unknown {what} {safe(word, 60)!r}{nearest(word, known)}")
        if not SUBDOMAIN.fullmatch(self.runtime):
            raise SpecError(f"training runtime {safe(self.runtime, 100)!r} is not a valid name")
        if self.launcher == "pytorchjob" and self.nodes != 2:
            raise SpecError(
                "a PyTorchJob's workers have no DNS names (the Training Operator makes a Service for its "
                f"master only): it can span 2 nodes, not {self.nodes}; --launcher indexed or mpijob spans any number"
            )
        if self.launcher == "trainjob" and self.queue is not None and self.queue.kind == "volcano":
            raise SpecError(
                "a TrainJob's scheduler is its runtime's: name a runtime with podGroupPolicy.volcano (launch.runtime), "
                "and no queue: Trainer makes the PodGroup itself"
            )
        names = [item.name for item in self.claims]
        if len(set(names)) != len(names):
            raise SpecError("two resource claims have the same name")
        if not self.gpu_resource and self.gpus_per_node and not self.claims:
            raise SpecError("no GPU resource and no resource claim: the pods would have no GPU")

    def _check_storage(self) -> None:
        if self.scratch and (not self.scratch.startswith("/") or self.scratch.startswith(("/seatrial/", "/dev/"))):
            raise SpecError(f"scratch {safe(self.scratch, 100)!r} must be an absolute path outside /seatrial and /dev")
        names, paths = [item.name for item in self.storage], [item.path for item in self.storage]
        paths += [self.scratch] if self.scratch else []
        if len(set(names)) != len(names) or len(set(paths)) != len(paths):
            raise SpecError("two storage entries have the same name or path")

    def _check_names(self) -> None:
        for what, names in (
            ("pull secret", self.pull_secrets),
            ("runtime class", (self.runtime_class,)),
            ("scheduler name", (self.scheduler_name,)),
            ("priority class", (self.priority_class,)),
            ("service account", (self.service_account,)),
            ("secret", self.env_secrets),
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

        for name in (*self.node_names, *self.avoided):
            if not SUBDOMAIN.fullmatch(name):
                raise SpecError(f"node {safe(name, 100)!r} is not the name of a node")
        if self.node_names and (count := len(set(self.node_names))) < self.nodes:
            raise SpecError(f"{count} node{'s are' if count > 1 else ' is'} named; {self.nodes} are needed")

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
            raise SpecError("hugepages need a cpu or memory request, too (otherwise Kubernetes rejects the pod)")

    def _check_environment(self) -> None:
        for name, value in self.env.items():
            if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
                raise SpecError(f"environment variable {safe(name, 60)!r} is not a valid name")
            if name in RESERVED_ENV or (self.pet and name.removeprefix("PET_") in PET):
                raise SpecError(f"environment variable {name} is set by seatrial from the shape of the job")
            if name in {item.env for item in self.credentials}:
                raise SpecError(
                    f"environment variable {name} is among the credentials, which only name a Secret and its key"
                )
            if not isinstance(value, str) or len(value) > 32_768 or "\0" in value:
                raise SpecError(f"environment variable {name} must be text of at most 32 KiB")

        for item in self.credentials:
            if item.env in RESERVED_ENV:
                raise SpecError(f"credential {item.env} is set by seatrial from the shape of the job")

    def _check_containers(self) -> None:
        if not all(isinstance(word, str) and "\0" not in word for word in self.command):
            raise SpecError(f"command {safe(self.command, 100)} is not a list of words")
        for sidecar in self.sidecars:
            label("sidecar name", str(sidecar.get("name") or ""), 63)
            if not isinstance(sidecar.get("image"), str) or not IMAGE.fullmatch(sidecar["image"]):
                raise SpecError(f"sidecar {sidecar['name']!r} has no usable image")
        self._check_volumes()
        containers = [str(item["name"]) for item in self.sidecars]
        if self.component in containers or len(set(containers)) != len(containers):
            raise SpecError(f"sidecar names must differ from each other and from {self.component!r}")

    def _check_volumes(self) -> None:
        names = [str(item.get("name") or "") for item in self.volumes]
        for name in names:
            label("volume name", name, 63)
            ours = name in {"probe", "shm", "scratch", "pod-info"} or name.startswith(("storage-", "hugepages-"))
            if ours or names.count(name) > 1:
                raise SpecError(f"volume name {name!r} is taken")
        for item in self.mounts:
            place = str(item.get("mountPath") or "")
            if item.get("name") not in names:
                raise SpecError(f"mount {safe(place, 100)!r}: volume {safe(item.get('name'), 60)!r} is not found")
            ours = f"{place.rstrip('/')}/".startswith(("/seatrial/", "/dev/shm/"))  # noqa: S108  (a path in the pod)
            if not place.startswith("/") or ":" in place or ours:
                raise SpecError(f"mount path {safe(place, 100)!r} is not absolute, or is used by seatrial")


def new_run_id() -> str:
    """Return an id that is unique for a run: ten characters without look-alikes, 50 bits."""
    alphabet = "23456789abcdefghjkmnpqrstuvwxyz"
    return "".join(secrets.choice(alphabet) for _ in range(10))


def queue_of(text: str) -> Queue | None:
    """Parse 'kueue:NAME', 'volcano:NAME', 'volcano', or 'none'."""
    if text == "none":
        return None
    kind, colon, name = text.partition(":")
    if kind not in ("kueue", "volcano") or (colon and not name) or (kind == "kueue" and not name):
        raise SpecError(f"--queue {text!r} is not kueue:NAME, volcano[:NAME] or none")
    return Queue(kind=kind, name=name)


_SHM_BYTES = 16 << 30
_MEMORY_LOCKED = ("IPC_LOCK",)


def job_spec(**asked: Any) -> JobSpec:
    """Return the spec of a user's own job, with often forgotten settings that jobs of its kind need.

    With GPUs: a /dev/shm for the buffers of NCCL and data loaders, as in the profiles of trials, and the toleration of
    the GPUs' own taint. Kubernetes' ExtendedResourceToleration would add the latter if it is enabled. With RDMA
    devices: the capability to lock memory for them.
    """
    known = [each.name for each in fields(JobSpec)]
    for name in asked:
        if name not in known:
            raise SpecError(f"a job has no {safe(name, 60)!r}{nearest(name, known)}")
    usual: dict[str, Any] = {"anti_affinity": False}
    if asked.get("gpus_per_node"):
        key = asked.get("gpu_resource") or "nvidia.com/gpu"
        usual |= {"shm_bytes": _SHM_BYTES, "tolerations": ({"key": key, "operator": "Exists", "effect": "NoSchedule"},)}
    if asked.get("resources"):
        usual |= {"capabilities": _MEMORY_LOCKED}
    spec = JobSpec(**(usual | asked))
    if not spec.command:
        raise SpecError("a job needs a command")
    return spec


def own_job(
    *,
    namespace: str,
    command: str | Sequence[str],
    image: str = "",
    gpu_count: int | None = None,
    num_nodes: int = 1,
    name: str = "",
    env_vars: Mapping[str, str] | None = None,
    image_pull_secret: str = "",
    node_selector: Mapping[str, str] | None = None,
    launcher: str = "",
    queue: str = "",
    mounts: Mapping[str, str] | None = None,
    rdma: Mapping[str, int] | None = None,
    profile: Mapping[str, Any] | None = None,
    **shape: Any,
) -> JobSpec:
    """Return the spec of a user's own job from the arguments of create_job, with the profile's defaults.

    `profile`: fields of a JobSpec, from checks.profiles.trial.job_defaults.
    """
    if profile is not None and not isinstance(profile, Mapping):
        raise SpecError("profile= takes the result of checks.profiles.trial.job_defaults")
    pairs = {"env_vars": env_vars, "node_selector": node_selector, "mounts": mounts, "rdma": rdma}
    for word, value in pairs.items():
        if value is not None and not isinstance(value, Mapping):
            raise SpecError(f"{word}= takes a dict, as docs/launcher.md shows it, found {type(value).__name__}")
    if not (command if isinstance(command, str) else "".join(map(str, command[:1]))).strip():
        raise SpecError("a job needs a command")
    base = dict(profile or {})
    usual = base.pop("gpus_per_node", 1)
    gpus = usual if gpu_count is None else gpu_count
    if base:
        base["resources"] = _share(base.get("resources") or {}, gpus, usual) if rdma is None else rdma
        if not gpus:
            base |= {"capabilities": (), "claims": ()}
    paths = set((mounts or {}).values())
    kept = tuple(item for item in base.pop("storage", ()) if item.path not in paths)
    asked = {
        "name": name or f"job-{new_run_id()}",
        "namespace": namespace,
        "command": ("/bin/bash", "-c", command) if isinstance(command, str) else tuple(command),
        "nodes": num_nodes,
        "gpus_per_node": gpus,
        "env": {**base.pop("env", {}), **(env_vars or {})},
        "node_selector": {**base.pop("node_selector", {}), **(node_selector or {})},
        "storage": kept + volumes(mounts or {}),
    }
    given = {
        "image": image,
        "pull_secrets": (image_pull_secret,) if image_pull_secret else (),
        "launcher": launcher,
        "resources": rdma,
    }
    asked |= {key: value for key, value in given.items() if value}
    asked |= {"queue": queue_of(queue)} if queue else {}
    return job_spec(run_id=new_run_id(), **({"image": ""} | base | asked | shape))


def _share(resources: Mapping[str, int], gpus: int, of: int) -> dict[str, int]:
    """Return the share of a node's devices for a part of its GPUs, rounded up."""
    return {name: max(1, -(-amount * gpus // max(1, of))) for name, amount in resources.items()} if gpus else {}


def volumes(mounts: Mapping[str, str]) -> tuple[StorageSpec, ...]:
    """Return claims and their mount paths in the form of a spec."""
    return tuple(
        StorageSpec(name=f"claim-{number}", claim=claim, path=where, write=True)
        for number, (claim, where) in enumerate(mounts.items())
    )
