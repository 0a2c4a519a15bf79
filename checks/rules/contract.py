"""Contract rules: a workload's pod templates compared with training's requirements here. From a manifest alone.

Rule: a missing item is a fault only if no other mechanism can add it. Additions by an image, a runtime or a webhook are
unknown, and so are facts that only a profile or the nodes have. The requirements are those of the admission policy
(jobs/trial/needs.py).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.cluster.facts.workloads import Group, Workload, selects, variables_of, words_of
from jobs.cluster.redact import safe
from jobs.cluster.unstructured import Unstructured, as_list, as_map, quantity
from jobs.trial.needs import amount_of, may_lock, needs_of, queue_need, working
from reports.record import Finding

from ..profiles.proposal import FABRIC
from .findings import compared, failed, first_match, passed, unknown
from .topology import Zones, refused

if TYPE_CHECKING:
    from jobs.trial.spec import TrialSpec

    from ..profiles.profile import Profile

FAULTS = (
    "manifest.no-rdma",
    "manifest.no-network",
    "manifest.no-ipc-lock",
    "manifest.no-queue",
    "manifest.no-shm",
    "topology.inadmissible",
    "manifest.service",
    "manifest.rendezvous",
    "manifest.nccl-env",
    "mpi.sshd-missing",
    "checkpoint.not-durable",
)
_GPUS = ("nvidia.com/gpu", "amd.com/gpu")
_VERBS = tuple(name for name in FABRIC if not name.startswith(("vpc.", "networking.", "hpe.")))
SHM_DEFAULT = 64 << 20
"""Default size of /dev/shm in bytes in container runtimes (containerd, pkg/cri/opts; Docker, --shm-size)."""
_SHM = "/dev/shm"  # noqa: S108 -- a path in a pod
_CRIO_SHM = "io.kubernetes.cri-o.ShmSize"
_ADDRESS = ("MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT", "RDZV_ENDPOINT")
_SIZES = ("PET_NNODES", "NNODES", "WORLD_SIZE")
_ENDPOINT = re.compile(r"--(?:rdzv|master)[_-](?:endpoint|addr)[= ]+(?P<quote>[\"']?)([^\s\"';|&]+)(?P=quote)")
_TOGETHER = re.compile(
    r"--(?:rdzv|master)[_-](?:endpoint|addr|backend)\b|--nnodes[= ]+[\"']?(?!1\b)[\w$:{}]|--num_machines|\bmpirun\b"
    r"|\bmpiexec\b|\bsrun\b|\bdeepspeed\b"
)
_VARIABLE = re.compile(r"\$(?:\((\w+)\)|\{(\w+)\}|(\w+))")
_LOOPBACK = re.compile(r"localhost|127(?:\.\d+){3}|::1")
_ADDRESS_FORM = re.compile(r"[\d.]+|[0-9a-fA-F:]*:[0-9a-fA-F:]*")
_WITHOUT_SSHD = re.compile(
    r"(?:docker\.io/)?(?:library/)?(?:python|ubuntu|debian|alpine|busybox|fedora|rockylinux)(?:[:@].*)?"
    r"|(?:docker\.io/)?nvidia/cuda(?:[:@].*)?|nvcr\.io/nvidia/pytorch(?:[:@].*)?"
)
"""Images without sshd: those of distributions, CUDA's, and NVIDIA's PyTorch (NVIDIA/cloudai issue 720)."""
_NO_SSHD = frozenset({"sleep", "python", "python3", "torchrun", "mpirun", "tail"})
_KEPT = re.compile(
    r"--(?:(?:checkpoint|ckpt|save|output|results?)[_-]dir|save(?=[= ]+/)|default_root_dir)[= ]+"
    r"(?P<quote>[\"']?)([^\s\"';|&]+)(?P=quote)"
)
_KEPT_VARIABLES = ("CHECKPOINT_DIR", "CKPT_DIR", "OUTPUT_DIR", "SAVE_DIR", "RESULTS_DIR")
_FLEETING = ("emptyDir", "ephemeral")
_SECONDARY = ("k8s.v1.cni.cncf.io/networks", "networking.gke.io/interfaces")


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """Context of a manifest: the profile with its trial, the devices of all GPU nodes, and the Services.

    ``nics``: the NICs that every GPU node offers as a resource; None if not read. ``complete``: a Service that is not
    among ``services`` does not exist. ``zones``: the NUMA zones of every GPU node, if all are known.
    """

    profile: Profile | None = None
    spec: TrialSpec | None = None
    nics: tuple[str, ...] | None = None
    services: Sequence[Unstructured] = ()
    complete: bool = False
    zones: tuple[Zones, ...] = ()
    gpus: tuple[str, ...] = field(default=_GPUS)

    @property
    def gpu_names(self) -> tuple[str, ...]:
        """The resources that count as GPUs."""
        own = self.spec.gpu_resource if self.spec else ""
        return tuple(dict.fromkeys([own, *self.gpus] if own else self.gpus))


def contract_findings(workload: Workload, around: Around) -> Iterator[Finding]:
    """Judge one workload: missing items (False), present ones (True), and unknown ones (None)."""
    if not workload.groups:
        yield unknown(str(workload), "no pod template can be read")
        return
    for group in workload.groups:
        yield from _unreadable(workload, group, around)
    gpu_groups = [group for group in workload.groups if gpus_of(group, around)]
    yield from _service(workload, around)
    yield from _rendezvous(workload, around)
    for group in workload.groups:
        if any(as_map(each.get("resources")).get("claims") for each in working(group.template)):
            yield unknown(
                _named(workload, group), "GPUs may be claimed (resource.k8s.io): a claim does not say how many"
            )
    if not gpu_groups:
        return
    for group in gpu_groups:
        yield from _shm(workload, group, around)
        yield from _numa(workload, group, around)
    yield from _queue(workload, around)
    yield from _durable(workload, gpu_groups)
    yield from _sshd(workload, around)
    together = _together(workload, around)
    if together is None:
        many = sum(group.pods for group in gpu_groups)
        said = f"{many} pods with GPUs, and no rendezvous found: whether they train together is not known"
        yield unknown(str(workload), said, "the fabric's settings, if they do", fault="manifest.no-rdma")
    if together:
        for group in gpu_groups:
            yield from _fabric(workload, group, around)
            yield from _nccl(workload, group, around)
            yield from _apart(workload, group, around)


def _unreadable(workload: Workload, group: Group, around: Around) -> Iterator[Finding]:
    """Report values that every API server rejects: their meaning is unknown, and they are not compared."""
    spec = as_map(group.template.get("spec"))
    containers = as_list(spec.get("containers"))
    if not containers:
        yield unknown(_named(workload, group), "the pod template has no containers", "spec.containers")
    for container in (*containers, *as_list(spec.get("initContainers"))):
        resources = as_map(container.get("resources"))
        limits, requests = as_map(resources.get("limits")), as_map(resources.get("requests"))
        amounts = [*limits.items(), *requests.items()]
        wrong = [f"{name}: {amount!r} is not a quantity" for name, amount in amounts if quantity(amount) is None]
        wrong += [f"{name} has a request and no limit" for name in around.gpu_names if name in {*requests} - {*limits}]
        for key in ("command", "args"):
            words = container.get(key)
            if words is not None and not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
                wrong.append(f"{key} is not a list of strings (quote numbers and booleans)")
        for each in as_list(container.get("env")):
            if not isinstance(each.get("value"), str | None):
                wrong.append(f"{each.get('name')}: {each['value']!r} is not a string (quote it)")
        subject = _named(workload, group, container)
        yield from (unknown(subject, safe(text, 200), "what the API server takes") for text in dict.fromkeys(wrong))


def summary(workload: Workload, around: Around) -> str:
    """Summarise a workload: 'Job/train in team-a: 2 pods, each with 8 nvidia.com/gpu'."""
    parts = []
    for group in workload.groups:
        asked = {name: sum(amount_of(c, name) for c in working(group.template)) for name in around.gpu_names}
        held = " and ".join(f"{count} {name}" for name, count in asked.items() if count) or "no GPU"
        role = f"{safe(group.name, 60)}: " if group.name else ""
        parts.append(f"{role}{group.pods} pod{'s' if group.pods != 1 else ''} with {held}")
    place = f" in {safe(workload.namespace, 63)}" if workload.namespace else ""
    return f"{workload}{place}: {'; '.join(parts) or 'no pod template'}"


def gpus_of(group: Group, around: Around) -> int:
    """Return the GPUs of one pod of a group."""
    return sum(amount_of(c, name) for c in working(group.template) for name in around.gpu_names) if group.pods else 0


def _named(workload: Workload, group: Group, container: Unstructured | None = None) -> str:
    parts = [str(workload), safe(group.name, 60)] if group.name else [str(workload)]
    return " ".join([*parts, *([f"container {safe(container.get('name'), 63)}"] if container is not None else [])])


def _with_gpus(group: Group, around: Around) -> list[Unstructured]:
    return [c for c in working(group.template) if any(amount_of(c, name) for name in around.gpu_names)]


def _said(container: Unstructured) -> tuple[str, dict[str, str | None]]:
    """Return a container's command in one line, and its variables including those that the command sets."""
    line = " ".join(words_of(container))[:200_000]
    known = variables_of(container)
    for name, _, value in re.findall(
        r"(?<![\w$-])([A-Z][A-Z0-9_]{3,60})=([\"']?)([^\s\"';|&]*)\2(?=[\s\"';|&]|$)", line
    ):
        known[name] = value
    return line, known


def _together(workload: Workload, around: Around) -> bool | None:
    """Return whether a workload's pods with GPUs train together; None if nothing shows it."""
    groups = [group for group in workload.groups if gpus_of(group, around)]
    if sum(group.pods for group in groups) < 2:
        return False
    if workload.trains or (workload.kind == "Job" and workload.service):
        return True
    for group in groups:
        for container in _with_gpus(group, around):
            line, known = _said(container)
            if _TOGETHER.search(line) or any(_several(known.get(name)) for name in _SIZES):
                return True
            if any(name in known and not _is_own(known[name]) for name in _ADDRESS):
                return True
    return False if workload.kind == "Deployment" else None  # inference replicas


def _several(value: str | None) -> bool:
    """Return whether a number of nodes is above one: '4', '2:8'."""
    return any(
        part.isascii() and part.isdigit() and part.strip("0") not in ("", "1") for part in (value or "").split(":")
    )


def _is_own(value: str | None) -> bool:
    return value is not None and bool(_LOOPBACK.fullmatch(value.rsplit(":", 1)[0] if value.count(":") == 1 else value))


# -- the fabric --------------------------------------------------------------------------------------------------------


def _fabric(workload: Workload, group: Group, around: Around) -> Iterator[Finding]:
    """Compare with the devices of the profile's pods; without a profile, with those of the nodes."""
    pod, subject = group.template, _named(workload, group)
    nics = sorted({name for c in working(pod) for name in _limits(c) if name.startswith(FABRIC) and amount_of(c, name)})
    if around.spec is None:
        yield from _without_profile(workload, group, nics, around)
        return
    for need in needs_of(around.spec):
        has = f"{', '.join(nics) or 'no RDMA device'}" if need.fault == "manifest.no-rdma" else f"no {need.needed}"
        if need.met(pod):
            yield passed(subject, need.needed, need.needed)
        elif why := _otherwise(workload, group, need.fault):
            yield unknown(subject, why, need.needed, fault=need.fault)
        else:
            observed = f"the pod requests {has}" if need.fault == "manifest.no-rdma" else f"the pod has {has}"
            yield failed(subject, observed, f"{need.needed} ({_source(around)})", need.fault)


def _limits(container: Unstructured) -> Unstructured:
    return as_map(as_map(container.get("resources")).get("limits"))


def _source(around: Around) -> str:
    return f"profile {safe(around.profile.name, 100)}" if around.profile else "the accepted trial"


def _otherwise(workload: Workload, group: Group, fault: str) -> str:
    """Name mechanisms that may add missing items to a pod; '' if there are none."""
    spec = as_map(group.template.get("spec"))
    if not workload.whole and (
        fault != "manifest.no-rdma" or not any("resources" in c for c in as_list(spec.get("containers")))
    ):
        return f"the runtime of a {workload.kind} may bring it: its pods are not written here"
    paths = [str(as_map(each.get("hostPath")).get("path") or "") for each in as_list(spec.get("volumes"))]
    if fault == "manifest.no-rdma" and any(_of_rdma(path) for path in paths if path):
        return "the pod mounts the host's devices: those that it reaches are not known"
    open_pods = [as_map(c.get("securityContext")).get("privileged") is True for c in working(group.template)]
    if fault == "manifest.no-rdma" and any(open_pods):
        return "a privileged container sees the host's devices: whether RDMA is among them is not known"
    if fault == "manifest.no-network" and spec.get("hostNetwork") is True:
        return "the pod is on the host's network, with its interfaces"
    return ""


def _of_rdma(path: str) -> bool:
    return path.rstrip("/") in ("", "/dev") or path.startswith("/dev/infiniband")


def _without_profile(workload: Workload, group: Group, nics: Sequence[str], around: Around) -> Iterator[Finding]:
    subject = _named(workload, group)
    if nics:
        yield passed(subject, f"requests {', '.join(nics)}", "RDMA devices next to the GPUs")
        if not all(may_lock(c) for c in _with_gpus(group, around)):
            why = "no capability IPC_LOCK: whether the nodes' memlock limit is high enough without is not known"
            yield unknown(subject, why, "capability IPC_LOCK, or unlimited memlock", fault="manifest.no-ipc-lock")
    elif around.nics and not (why := _otherwise(workload, group, "manifest.no-rdma")):
        offered = ", ".join(around.nics[:4])
        observed = f"the pod requests no RDMA device, but every GPU node offers {offered}"
        yield failed(subject, observed, f"{offered} next to the GPUs", "manifest.no-rdma")
    elif around.nics is None or around.nics:
        why = "the pod requests no RDMA device: it is unknown whether the nodes have any (--profile defines it)"
        yield unknown(subject, why, "what the fabric needs", fault="manifest.no-rdma")
    else:
        yield passed(subject, "the GPU nodes offer no RDMA device as a resource")


def _nccl(workload: Workload, group: Group, around: Around) -> Iterator[Finding]:
    """Judge the variables with which NCCL selects its network."""
    for container in _with_gpus(group, around):
        subject = _named(workload, group, container)
        known = _said(container)[1]
        if workload.kind == "MPIJob":  # mpirun passes the launcher's variables on
            other_containers = [c for g in workload.groups if g is not group for c in working(g.template)]
            known = {name: value for c in other_containers for name, value in _said(c)[1].items()} | known
        usual = dict(around.spec.env) if around.spec else {}
        yield from _switched_off(subject, group, known, usual, around)
        for name, value in usual.items():
            if name not in known and container.get("envFrom"):
                yield unknown(subject, f"{name} may be set by envFrom", f"{name}={safe(value, 100)}")
            elif name not in known:
                why = f"{name} is not set: the image, or its nccl.conf, may set it"
                yield unknown(subject, why, f"{name}={safe(value, 100)} ({_source(around)})", fault="manifest.nccl-env")
            elif known[name] == value:
                yield passed(subject, f"{name} as in the profile")
            elif name == "NCCL_IB_PKEY" and (known[name] or "").isalnum():
                observed = f"{name}={safe(known[name], 60)}: another partition than the fabric's"
                yield failed(subject, observed, f"{name}={safe(value, 60)} ({_source(around)})", "manifest.nccl-env")
            else:
                given = "is set elsewhere (valueFrom)" if known[name] is None else f"is {safe(known[name], 100)}"
                why = f"{name} {given}: whether that means the same is not known"
                yield unknown(subject, why, f"{name}={safe(value, 100)} ({_source(around)})", fault="manifest.nccl-env")


def _switched_off(
    subject: str, group: Group, known: Mapping[str, str | None], usual: Mapping[str, str], around: Around
) -> Iterator[Finding]:
    asked = any(name.startswith(_VERBS) for c in working(group.template) for name in _limits(c))
    kind = around.profile.fabric.kind if around.profile else None
    verbs = kind in ("ib", "roce") or (kind is None and asked)
    off = [("NCCL_IB_DISABLE", r"0*[1-9]\d*|(?i:true)"), ("NCCL_NET", "(?i:socket)")]
    for name, pattern in off if verbs else ():
        value = known.get(name)
        if value and name not in usual and re.fullmatch(pattern, value.strip()):
            expected = f"{name} not set, where RDMA carries the data"
            yield failed(subject, f"{name}={safe(value, 60)} switches RDMA off", expected, "manifest.nccl-env")
    names = (known.get("NCCL_SOCKET_IFNAME") or "").lstrip("=").split(",")
    if names == ["lo"]:
        expected = "an interface that connects to the other nodes"
        yield failed(subject, "NCCL_SOCKET_IFNAME=lo: no other node is reachable", expected, "manifest.nccl-env")


def _apart(workload: Workload, group: Group, around: Around) -> Iterator[Finding]:
    """Judge whether pods may share a node: less traffic than intended would cross nodes."""
    gpus, each = gpus_of(group, around), around.spec.gpus_per_node if around.spec else 0
    if group.pods < 2 or not gpus or 2 * gpus > each:
        return
    affinity = as_map(as_map(group.template.get("spec")).get("affinity")).get("podAntiAffinity")
    required = as_list(as_map(affinity).get("requiredDuringSchedulingIgnoredDuringExecution"))
    spread = as_list(as_map(group.template.get("spec")).get("topologySpreadConstraints"))
    if any(item.get("topologyKey") == "kubernetes.io/hostname" for item in (*required, *spread)):
        yield passed(_named(workload, group), "its pods keep to different nodes")
        return
    why = f"pods of {gpus} GPUs share a node of {each}: whether the job crosses nodes is not known"
    yield unknown(_named(workload, group), why, "podAntiAffinity by kubernetes.io/hostname, if it should")


# -- related settings --------------------------------------------------------------------------------------------------


def _queue(workload: Workload, around: Around) -> Iterator[Finding]:
    need = queue_need(around.spec) if around.spec else None
    if need is not None:
        observed = need.needed if need.met(workload.raw) else f"no {need.needed}"
        expected = f"{need.needed} ({_source(around)})"
        yield compared(str(workload), need.met(workload.raw), observed, expected, need.fault)


def _shm(workload: Workload, group: Group, around: Around) -> Iterator[Finding]:
    """Judge /dev/shm of containers with several GPUs: their ranks communicate through it."""
    spec = as_map(group.template.get("spec"))
    notes = as_map(as_map(group.template.get("metadata")).get("annotations"))
    volumes = {str(each.get("name")): each for each in as_list(spec.get("volumes"))}
    for container in _with_gpus(group, around):
        if sum(amount_of(container, name) for name in around.gpu_names) < 2:
            continue
        subject, expected = _named(workload, group, container), "an emptyDir of medium Memory on /dev/shm"
        mounts = [each for each in as_list(container.get("volumeMounts")) if _path(each) == _SHM]
        volume = volumes.get(str(mounts[0].get("name")), {}) if mounts else {}
        size = quantity(as_map(volume.get("emptyDir")).get("sizeLimit") or "")
        if mounts and size is not None and size <= SHM_DEFAULT:
            yield failed(subject, f"{int(size) >> 20} MiB of /dev/shm", expected, "manifest.no-shm")
        elif mounts or spec.get("hostIPC") is True or _CRIO_SHM in notes:
            yield passed(subject, "shared memory is more than the runtime's default", expected)
        elif not workload.whole:
            yield unknown(subject, f"the runtime of a {workload.kind} may mount it", expected, fault="manifest.no-shm")
        else:
            yield failed(subject, "nothing is mounted on /dev/shm: 64 MiB", expected, "manifest.no-shm")


def _numa(workload: Workload, group: Group, around: Around) -> Iterator[Finding]:
    """Judge whether a kubelet could ever admit the containers' devices under its NUMA alignment policy."""
    for container in _with_gpus(group, around):
        devices = {name: amount_of(container, name) for name in _limits(container) if "/" in str(name)}
        why = {zones.node: refused(zones, devices) for zones in around.zones}
        if why and all(why.values()):
            node, text = next(iter(why.items()))
            observed = f"no GPU node's kubelet would admit it ({safe(node, 63)}: {safe(text, 300)})"
            expected = "devices that the Topology Manager can align"
            yield failed(_named(workload, group, container), observed, expected, "topology.inadmissible")


def _path(mount: Unstructured) -> str:
    return posixpath.normpath(str(mount.get("mountPath") or ""))


def _service(workload: Workload, around: Around) -> Iterator[Finding]:
    """Judge the headless Service that gives the pods their DNS names."""
    if not workload.service or sum(group.pods for group in workload.groups) < 2:
        return
    subject, name = str(workload), safe(workload.service, 100)
    found, group = _services(workload, around, workload.service), workload.groups[0]
    spec = as_map(found[0].get("spec")) if found else {}
    containers = as_list(as_map(group.template.get("spec")).get("containers"))
    late = spec.get("publishNotReadyAddresses") is not True and any("readinessProbe" in c for c in containers)
    # Labels that the API server sets (a controller's uid) are unknown here.
    made = any("controller-uid" in str(key) for key in as_map(spec.get("selector")))
    taken = [made or selects(spec.get("selector"), group.labels(rank)) for rank in (0, 1)]
    fault, selector = "manifest.service", f"the selector of Service {name}"
    ready = f"Service {name} names pods once they are ready (publishNotReadyAddresses), and ready they are later"
    yield first_match(
        subject,
        f"a headless Service {name} (clusterIP None) that selects the job's pods",
        (not found and around.complete, False, f"Service {name} does not exist", fault),
        (not found, None, f"Service {name} is not in this manifest", fault),
        (spec.get("clusterIP") != "None", False, f"Service {name} is not headless: its pods have no names", fault),
        (not taken[0], False, f"{selector} does not take the job's pods", fault),
        (not taken[1], False, f"{selector} selects rank 0 only: the other ranks have no DNS names", fault),
        (late, False, ready, fault),
        (True, True, f"Service {name} names its pods"),
    )


def _services(workload: Workload, around: Around, name: str) -> list[Unstructured]:
    """Return the Services of a name, in the workload's namespace if both define one."""
    found = []
    for each in around.services:
        meta = as_map(each.get("metadata"))
        place = meta.get("namespace")
        if meta.get("name") == name and (not place or not workload.namespace or place == workload.namespace):
            found.append(each)
    return found


def _rendezvous(workload: Workload, around: Around) -> Iterator[Finding]:
    """Judge the address of the ranks' rendezvous."""
    if sum(group.pods for group in workload.groups) < 2:
        return
    endpoints: dict[str, str] = {}
    for group in workload.groups if workload.kind != "MPIJob" else ():
        for container in working(group.template):
            line, known = _said(container)
            given = [known[name] for name in _ADDRESS if known.get(name)]
            given += [match[2] for match in _ENDPOINT.finditer(line)]
            for text in given[:8]:
                endpoints.setdefault(_filled(text or "", known), _named(workload, group, container))
    for text, subject in list(endpoints.items())[:8]:
        yield _meeting(workload, around, subject, text)


def _filled(text: str, known: Mapping[str, str | None]) -> str:
    """Substitute variables that have values in the manifest, once."""
    return _VARIABLE.sub(lambda m: known.get(m[1] or m[2] or m[3]) or m[0], text)[:512]


def _meeting(workload: Workload, around: Around, subject: str, text: str) -> Finding:
    host = text.strip("[]") if text.count(":") != 1 else text.partition(":")[0]
    first = ", ".join(workload.first[:3])
    ok, why = _is_first(workload, around, host)
    observed = f"the ranks meet at {safe(host, 200)}{f': {why}' if why else ''}"
    expected = f"rank 0's name{f', {safe(first, 300)}' if first else ''}"
    fault = "manifest.rendezvous" if ok is not True else ""
    return Finding(subject=subject, ok=ok, observed=observed, expected=expected, fault=fault)


def _is_first(workload: Workload, around: Around, host: str) -> tuple[bool | None, str]:
    """Return whether a name is rank 0's, and why it is not, or why this is unknown."""
    if "$" in host or not host:
        return None, "a variable whose value is not in the manifest"
    if _LOOPBACK.fullmatch(host):
        alone = not (_together(workload, around) or workload.service)
        return (
            (None, "each pod by itself, if that is meant") if alone else (False, "every rank would meet itself alone")
        )
    if _ADDRESS_FORM.fullmatch(host):
        return None, "the owner of that address is unknown"
    short = _within(host, workload.namespace)
    if short in workload.first:
        return True, ""
    return _of_service(workload, around, short) if _services(workload, around, short) else _of_name(workload, host)


def _of_service(workload: Workload, around: Around, name: str) -> tuple[bool | None, str]:
    selector = as_map(_services(workload, around, name)[0].get("spec")).get("selector")
    groups = enumerate(workload.groups)
    taken = [(n, i) for n, g in groups for i in (0, 1) if i < g.pods and selects(selector, g.labels(i))]
    if len(taken) > 1:
        return False, "a Service of several ranks, so that each gets another's address"
    return (True, "a Service of one rank") if taken else (None, "apparently a Service of other pods")


def _of_name(workload: Workload, host: str) -> tuple[bool | None, str]:
    """Judge a name that no Service has: a pod name of the workload must be an existing one."""
    label = host.partition(".")[0]
    mine = any(re.fullmatch(rf"{re.escape(each)}\d+", label) for each in workload.names)
    if not mine or workload.kind == "JobSet":
        return None, "whether that is rank 0 is not known"
    if workload.first:
        return False, "no pod of it is rank 0 by that name"
    why = "the Job is not Indexed" if workload.service else "its pods have no subdomain"
    return False, f"{why}, so that no pod has that name"


def _within(host: str, namespace: str) -> str:
    """Return a name without the suffix of its namespace: .NAMESPACE.svc.cluster.local."""
    match = re.fullmatch(r"(.+?)\.([a-z0-9-]+)\.svc(?:\.[\w.-]+)?\.?", host)
    if match and (not namespace or match[2] == namespace):
        return match[1]
    return host.removesuffix(f".{namespace}") if namespace else host


def _sshd(workload: Workload, around: Around) -> Iterator[Finding]:
    """Judge whether an MPIJob's workers can run sshd, if their image is known."""
    workers = [g for g in workload.groups if g.name == "Worker"] if workload.kind == "MPIJob" else []
    for group in workers:
        for container in as_list(as_map(group.template.get("spec")).get("containers"))[:1]:
            words, image = words_of(container), str(container.get("image") or "")
            named = any("sshd" in word or "openssh" in word for word in words)
            accepted = around.spec is not None and around.spec.launcher == "mpijob" and around.spec.image == image
            program = posixpath.basename(words[0]) if words else ""
            shown, without = safe(image, 200), _WITHOUT_SSHD.fullmatch(image) and len(words) < 3
            other, fault = program in _NO_SSHD and not named, "mpi.sshd-missing"
            yield first_match(
                _named(workload, group, container),
                "an image with sshd for the workers",
                (other, False, f"the workers run {safe(program, 60)}, not sshd", fault),
                (accepted, True, "the profile's own image"),
                (without, False, f"{shown} has no sshd", fault),
                (True, None, f"whether {shown or 'the image'} has sshd is not in a manifest", fault),
            )


def _durable(workload: Workload, groups: Iterable[Group]) -> Iterator[Finding]:
    """Judge whether the program's output paths outlive its pod."""
    claims = {
        str(as_map(each.get("metadata")).get("name"))
        for each in as_list(as_map(workload.raw.get("spec")).get("volumeClaimTemplates"))
    }
    for group in groups:
        spec = as_map(group.template.get("spec"))
        volumes = {str(each.get("name")): each for each in as_list(spec.get("volumes"))}
        for container in as_list(spec.get("containers")):
            line, known = _said(container)
            given = [match[2] for match in _KEPT.finditer(line)]
            given += [known[name] or "" for name in _KEPT_VARIABLES if known.get(name)]
            for text in dict.fromkeys(_filled(each, known) for each in given[:8]):
                yield _kept(_named(workload, group, container), text, container, volumes, claims, whole=workload.whole)


def _kept(
    subject: str,
    text: str,
    container: Unstructured,
    volumes: Mapping[str, Unstructured],
    claims: set[str],
    *,
    whole: bool,
) -> Finding:
    ok, where = _outlives(text, container, volumes, claims, whole=whole)
    expected = "a path on a volume that outlives the pod"
    return compared(subject, ok, f"{safe(text, 200)} is {where}", expected, "checkpoint.not-durable")


def _outlives(
    text: str, container: Unstructured, volumes: Mapping[str, Unstructured], claims: set[str], *, whole: bool
) -> tuple[bool | None, str]:
    """Return whether a path outlives the pod, and on which volume it is."""
    if "://" in text:
        return True, "a store outside the cluster"
    if "$" in text or not text.startswith("/"):
        return None, "a location that the manifest does not show"
    place = posixpath.normpath(text)
    mounts = [m for m in as_list(container.get("volumeMounts")) if f"{place}/".startswith(f"{_path(m).rstrip('/')}/")]
    if not mounts:
        return (False, "in the container's own file system") if whole else (None, "where the runtime's mounts decide")
    name = str(max(mounts, key=lambda m: len(_path(m))).get("name"))
    volume = volumes.get(name, {})
    kind = next((each for each in _FLEETING if each in volume), "")
    if kind and name not in claims:
        return False, f"on the {kind} volume {safe(name, 63)}"
    if name in claims or (volume and "hostPath" not in volume):
        return True, f"on volume {safe(name, 63)}"
    return None, "on the node itself, or on a volume that is not written here"
