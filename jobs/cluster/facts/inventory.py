"""The inventory: nodes and pods, GPUs in use and their users.

One snapshot of raw JSON. Each object becomes a small record before the next one is decoded, with the garbage collector
paused: 20,000 pods take about a second instead of 25. Kinds that our permissions hide are reported in `not_seen`, never
guessed.
"""

from __future__ import annotations

import datetime
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from ..client.errors import ApiError
from ..client.http_client import gc_paused
from ..client.kube import Kube, path
from ..redact import safe
from ..unstructured import Unstructured, as_list, as_map, by_type, statuses_of, whole
from .conditions import Report, reported

# Signs of a GPU node without allocatable GPUs: labels of GPU and Node Feature Discovery (PCI vendors 0x10de NVIDIA and
# 0x1002 AMD; classes 0300 and 0302 are display and 3D controllers), of GKE, EKS, AKS and of the AMD GPU operator.
_LABELS = {
    "nvidia.com": (
        "nvidia.com/gpu.present",
        "nvidia.com/gpu.count",
        "nvidia.com/gpu.product",
        "feature.node.kubernetes.io/pci-10de.present",
        "feature.node.kubernetes.io/pci-0302_10de.present",
        "feature.node.kubernetes.io/pci-0300_10de.present",
        "cloud.google.com/gke-accelerator",
        "k8s.amazonaws.com/accelerator",
        "kubernetes.azure.com/accelerator",
    ),
    "amd.com": (
        "feature.node.kubernetes.io/amd-gpu",
        "amd.com/gpu.vram",
        "amd.com/gpu.family",
        "feature.node.kubernetes.io/pci-1002.present",
        "feature.node.kubernetes.io/pci-0302_1002.present",
        "feature.node.kubernetes.io/pci-0380_1002.present",
    ),
}
_APP = ("app.kubernetes.io/name", "app", "k8s-app", "name")
_DRIVER_LABELS = ("nvidia.com/cuda.driver-version.full", "amd.com/gpu.driver-version")
_OFF = frozenset({"", "false", "0", "no", "none"})
# A restarted kubelet counts no device until the plugins have registered again: 10 s (recordings of a real Kubernetes
# 1.36 in tests/real). The second reading is later than that.
RESTARTED_S = 15.0
_AGAIN_S = 3.0
_BY_NAME = 4
"""Up to this many nodes are read one by one; more are found in pages of all nodes."""
# Reasons of pods that a kubelet refused because it had no such devices, or could not allocate them (kubernetes
# pkg/kubelet/lifecycle, predicate.go, and cm/devicemanager); OutOf<resource> of an extended resource.
_REFUSED = re.compile(r"UnexpectedAdmissionError|OutOf[^\s/]+/\S+")
_MOMENTS = ("Transition", "Heartbeat")
_PRESSURES = frozenset({"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})


@dataclass(frozen=True, slots=True)
class Taint:
    """One taint of a node."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}{'=' + self.value if self.value else ''}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Node:
    """One node; cpu counts in thousandths of a core, everything else in its base unit."""

    name: str
    labels: Mapping[str, str]
    ready: bool
    ready_reason: str
    unschedulable: bool
    taints: tuple[Taint, ...]
    pressures: tuple[str, ...]
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    kernel: str
    runtime: str
    kubelet: str
    os: str = ""
    boot: str = ""  # changes at each boot of the machine
    reports: tuple[Report, ...] = ()  # conditions, not Kubernetes' own, that report a problem
    restarted: bool = False  # its kubelet had just started when it wrote this, and counts no plugin's device yet


@dataclass(frozen=True, slots=True)
class PodUse:
    """The resources of a node that one pod holds; `requests` has the extended resources only."""

    namespace: str
    name: str
    node: str
    requests: Mapping[str, int]
    owner: str
    phase: str
    ready: bool = True
    trouble: str = ""  # why it is not ready, in the kubelet's words
    images: tuple[str, ...] = ()
    app: str = ""  # from its labels
    since: str = ""  # when its kubelet first saw it, in the API's time format
    leaving: bool = False  # its deletion was requested
    runner: str = ""  # for a trial's pod, the lease of its run

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" + (f" ({self.owner})" if self.owner else "")


@dataclass(frozen=True)
class Inventory:
    """One snapshot; `not_seen` has the reason for each kind ("nodes", "pods") that could not be read."""

    nodes: tuple[Node, ...]
    pods: tuple[PodUse, ...]
    not_seen: dict[str, str] = field(default_factory=dict)
    refused: tuple[PodUse, ...] = ()  # pods bound to a node without devices for them

    @classmethod
    def read(cls, kube: Kube, selector: str = "") -> Inventory:
        """Read the nodes that match `selector` and all pods that may use their resources."""
        hidden: dict[str, str] = {}
        nodes: list[Node] = []
        pods: list[PodUse] = []
        refused: list[PodUse] = []
        with gc_paused():
            try:
                for page, _ in kube.read_pages(path("nodes"), read_node, labelSelector=selector):
                    nodes += page
            except ApiError as error:
                _only_hidden(error)
                hidden["nodes"] = f"nodes cannot be listed: {error.message}"
                nodes = []
            # A finished pod holds no resources; the server omits it.
            finished = "status.phase!=Succeeded,status.phase!=Failed"
            try:
                for bound, _ in kube.read_pages(path("pods"), read_pod, fieldSelector=finished):
                    pods += bound
                for failed, _ in kube.read_pages(path("pods"), read_refused, fieldSelector="status.phase=Failed"):
                    refused += filter(None, failed)
            except ApiError as error:
                _only_hidden(error)
                hidden["pods"] = f"pods of other namespaces cannot be listed: {error.message}"
                pods = _own_pods(kube, finished, hidden)
        nodes.sort(key=lambda node: _natural(node.name))
        pods.sort(key=lambda pod: (pod.namespace, _natural(pod.name)))
        return cls(tuple(nodes), tuple(pods), hidden, tuple(refused))

    @classmethod
    def of_tenant(cls) -> Inventory:
        """Return a tenant's empty inventory."""
        return cls((), (), dict.fromkeys(("nodes", "pods"), "not readable by a tenant"))

    @classmethod
    def read_settled(cls, kube: Kube, selector: str = "") -> Inventory:
        """Read the inventory; repeat for at most RESTARTED_S while a restarted kubelet counts no devices."""
        inventory, end = cls.read(kube, selector), time.monotonic() + RESTARTED_S
        while any(node.restarted for node in inventory.nodes) and time.monotonic() < end:
            time.sleep(_AGAIN_S)
            inventory = cls.read(kube, selector)
        return inventory

    @classmethod
    def read_nodes(cls, kube: Kube, names: Iterable[str]) -> Inventory:
        """Read only these nodes, without pods; read again for a restarted kubelet, as read_settled does.

        Deleted nodes are omitted. Raises `ClusterError`, also for a missing permission: an earlier list succeeded.
        """
        wanted, end = set(names), time.monotonic() + RESTARTED_S
        # Read by name, unless a list of all nodes takes fewer requests.
        asked = [f"metadata.name={name}" for name in sorted(wanted)] if len(wanted) <= _BY_NAME else [""]
        while True:
            pages = (kube.read_pages(path("nodes"), read_node, fieldSelector=each) for each in asked)
            nodes = tuple(node for page, _ in chain.from_iterable(pages) for node in page if node.name in wanted)
            if time.monotonic() >= end or not any(node.restarted for node in nodes):
                return cls(nodes, ())
            time.sleep(_AGAIN_S)

    def gpu_nodes(self, resource: str = "nvidia.com/gpu") -> tuple[Node, ...]:
        """Return the nodes that have, offer or are labelled to have GPUs of the vendor of `resource`."""
        return tuple(node for node in self.nodes if has_gpus(node, resource))

    def on(self, node: str) -> Sequence[PodUse]:
        """Return the pods that are bound to `node`."""
        return self._by_node.get(node, ())

    def used(self, node: str, resource: str) -> int:
        """Return how many of `resource` the pods on `node` request."""
        return sum(pod.requests.get(resource, 0) for pod in self.on(node))

    def free(self, node: Node | str, resource: str) -> int:
        """Return allocatable less requested, never below zero; with hidden pods an upper bound (see `not_seen`)."""
        name = node if isinstance(node, str) else node.name
        offered = self._nodes.get(name)
        return max(0, offered.allocatable.get(resource, 0) - self.used(name, resource)) if offered else 0

    def holders(self, node: Node | str, resource: str) -> tuple[PodUse, ...]:
        """Return the pods on `node` that hold some of `resource`, the biggest first."""
        name = node if isinstance(node, str) else node.name
        holding = [pod for pod in self.on(name) if pod.requests.get(resource, 0) > 0]
        return tuple(sorted(holding, key=lambda pod: (-pod.requests[resource], pod.namespace, pod.name)))

    @cached_property
    def _by_node(self) -> dict[str, list[PodUse]]:
        index: dict[str, list[PodUse]] = defaultdict(list)
        for pod in self.pods:
            if pod.node:
                index[pod.node].append(pod)
        return dict(index)

    @cached_property
    def _nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}


def has_gpus(node: Node, resource: str = "nvidia.com/gpu") -> bool:
    """Return whether the node shows any sign of GPUs.

    A lost device plugin leaves the labels, a failed GPU a count of 0.
    """
    if node.capacity.get(resource, 0) > 0 or resource in node.allocatable:
        return True
    marks = _LABELS.get(resource.partition("/")[0], ())
    return any(node.labels.get(mark, "").lower() not in _OFF for mark in marks)


def driver(node: Node) -> str:
    """Return the driver version that feature discovery found on the node; '' if not reported."""
    full = next((node.labels[key] for key in _DRIVER_LABELS if node.labels.get(key)), "")
    parts = [node.labels.get(f"nvidia.com/cuda.driver.{part}", "") for part in ("major", "minor", "rev")]
    return full or ".".join(part for part in parts if part)


def read_node(item: Unstructured) -> Node:
    """Project one raw node."""
    meta, spec, status = as_map(item.get("metadata")), as_map(item.get("spec")), as_map(item.get("status"))
    conditions = by_type(status)
    ready = conditions.get("Ready") or {}
    info = as_map(status.get("nodeInfo"))
    return Node(
        name=str(meta.get("name") or ""),
        labels={str(key): str(value) for key, value in as_map(meta.get("labels")).items()},
        ready=ready.get("status") == "True",
        ready_reason=safe(
            f"{ready.get('reason') or 'no Ready condition'}: {ready.get('message') or ''}".strip(": "), 300
        ),
        unschedulable=spec.get("unschedulable") is True,
        taints=tuple(
            Taint(str(t.get("key") or ""), str(t.get("value") or ""), str(t.get("effect") or ""))
            for t in as_list(spec.get("taints"))
        ),
        pressures=tuple(
            sorted(kind for kind, entry in conditions.items() if kind in _PRESSURES and entry.get("status") == "True")
        ),
        capacity=_amounts(as_map(status.get("capacity"))),
        allocatable=_amounts(as_map(status.get("allocatable"))),
        kernel=safe(info.get("kernelVersion") or "", 100),
        runtime=safe(info.get("containerRuntimeVersion") or "", 100),
        kubelet=safe(info.get("kubeletVersion") or "", 100),
        os=safe(info.get("osImage") or "", 100),
        boot=safe(info.get("bootID") or "", 100),
        reports=tuple(reported(str(meta.get("name") or ""), status)),
        restarted=_has_just_begun(ready) and _lacks_devices(as_map(status.get("capacity"))),
    )


def _has_just_begun(ready: Unstructured) -> bool:
    """Return whether the kubelet wrote the Ready condition just after it became True, by the kubelet's own clock."""
    try:
        since, said = (datetime.datetime.fromisoformat(str(ready.get(f"last{key}Time"))) for key in _MOMENTS)
        return ready.get("status") == "True" and (said - since).total_seconds() < RESTARTED_S
    except (ValueError, TypeError):
        return False


def _lacks_devices(capacity: Unstructured) -> bool:
    """Return whether the count of a device that the node once had is 0."""
    return any("/" in name and whole(str(count)) == 0 for name, count in capacity.items())


def read_pod(item: Unstructured) -> PodUse:
    """Project one raw pod to its resources."""
    meta, spec, status = as_map(item.get("metadata")), as_map(item.get("spec")), as_map(item.get("status"))
    owner = next((ref for ref in as_list(meta.get("ownerReferences")) if ref.get("controller") is True), None)
    tags = as_map(meta.get("labels"))
    return PodUse(
        namespace=str(meta.get("namespace") or ""),
        name=str(meta.get("name") or ""),
        node=str(spec.get("nodeName") or ""),
        requests=pod_requests(spec),
        owner=safe(f"{owner.get('kind')}/{owner.get('name')}", 200) if owner else "",
        phase=str(status.get("phase") or ""),
        ready=(by_type(status).get("Ready") or {}).get("status") == "True",
        trouble=_trouble(status),
        images=tuple(safe(entry.get("image") or "", 300) for entry in as_list(spec.get("containers"))),
        app=next((safe(tags[key], 100) for key in _APP if tags.get(key)), ""),
        since=str(status.get("startTime") or meta.get("creationTimestamp") or ""),
        leaving=bool(meta.get("deletionTimestamp")),
    )


def read_refused(item: Unstructured) -> PodUse | None:
    """Project a failed pod that its kubelet refused for missing devices; None for any other pod."""
    status = as_map(item.get("status"))
    reason = str(status.get("reason") or "")
    if not _REFUSED.fullmatch(reason):
        return None
    pod = read_pod(item)
    trouble = safe(f"{reason}: {status.get('message') or ''}".strip(": "), 300)
    return replace(pod, trouble=trouble) if pod.node and pod.requests else None


def _trouble(status: Unstructured) -> str:
    """Explain why a pod is not ready: its first container's waiting or termination reason, else its conditions."""
    for entry in statuses_of(status):
        state = as_map(entry.get("state"))
        waiting, ended = as_map(state.get("waiting")), as_map(state.get("terminated"))
        if waiting.get("reason"):
            return safe(f"{waiting['reason']}: {waiting.get('message') or ''}".strip(": "), 300)
        if ended and ended.get("exitCode"):
            return safe(f"{ended.get('reason') or 'Error'}: exit code {ended['exitCode']}", 300)
    for kind in ("PodScheduled", "Initialized", "Ready"):
        condition = by_type(status).get(kind) or {}
        if condition.get("status") == "False":
            return safe(f"{condition.get('reason') or kind}: {condition.get('message') or ''}".strip(": "), 300)
    return ""


_GPU = re.compile(r"/(?:gpu|mig-|i915|xe$)|^habana\.ai/gaudi")
"""Resource names of GPUs: nvidia.com/gpu and /mig-1g.5gb, amd.com/gpu, gpu.intel.com/i915 and /xe,
habana.ai/gaudi."""


def pod_requests(spec: Unstructured) -> dict[str, int]:
    """Return a pod's extended resources: containers and sidecars together, or its largest init container.

    Source: kubernetes.io, "Sidecar containers", resource sharing within containers.
    """
    running: dict[str, int] = defaultdict(int)
    for container in as_list(spec.get("containers")):
        for name, amount in _extended(container).items():
            running[name] += amount
    sidecars: dict[str, int] = defaultdict(int)
    peak: dict[str, int] = defaultdict(int)
    for container in as_list(spec.get("initContainers")):
        requested = _extended(container)
        if container.get("restartPolicy") == "Always":
            for name, amount in requested.items():
                sidecars[name] += amount
        else:
            for name, amount in requested.items():
                peak[name] = max(peak[name], sidecars[name] + amount)
    names = {*running, *sidecars, *peak}
    return {name: max(running[name] + sidecars[name], peak[name]) for name in sorted(names)}


def gpus_of(spec: Unstructured) -> int:
    """Return the number of GPUs that a pod requests, MIG slices included, by the vendors' resource names."""
    return sum(amount for name, amount in pod_requests(spec).items() if _GPU.search(name))


def _own_pods(kube: Kube, finished: str, hidden: dict[str, str]) -> list[PodUse]:
    try:
        items, _ = kube.list(path("pods", namespace=kube.namespace), fieldSelector=finished)
    except ApiError as error:
        _only_hidden(error)
        hidden["pods"] = f"pods cannot be listed: {error.message}"
        return []
    return [read_pod(item) for item in items if isinstance(item, dict)]


def _only_hidden(error: ApiError) -> None:
    if error.status not in {401, 403}:
        raise error


def _extended(container: Unstructured) -> dict[str, int]:
    resources = as_map(container.get("resources"))
    both = as_map(resources.get("limits")) | as_map(resources.get("requests"))
    return {str(name): whole(amount) for name, amount in both.items() if "/" in str(name)}


def _amounts(amounts: Unstructured) -> dict[str, int]:
    return {str(name): whole(amount, milli=name == "cpu") for name, amount in amounts.items()}


def _natural(name: str) -> tuple[str, int, str]:
    """Sort gpu-2 before gpu-10."""
    stem = name.rstrip("0123456789")
    return (stem, int(name[len(stem) :] or -1), name)
