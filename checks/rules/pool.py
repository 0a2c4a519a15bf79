"""The pool: the nodes that the profile covers, and which of them offer whole GPUs; others are listed, not judged.

Each pool of a cluster needs its own profile: a node outside of the pool is listed, and never compared with the
profile's numbers. A node that offers parts of GPUs (MIG, time-slicing) is never compared like one with whole GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from jobs.cluster.facts.inventory import Inventory, Node, has_gpus
from jobs.trial.rooms import tolerated

from ..profiles.loader import Profile

PRODUCT_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name")
PARTS = re.compile(r"nvidia\.com/mig-\S+|amd\.com/(?:cpx|qpx|tpx|dpx)(?:_nps\d)?\S*")
"""Resources that are parts of a GPU: NVIDIA's under the MIG strategy 'mixed', AMD's under the naming strategy 'mixed'
(https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-operator-mig.html and the documentation of
ROCm/k8s-device-plugin)."""
ACCELERATORS = (
    "nvidia.com/gpu",
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "habana.ai/gaudi",
    "google.com/tpu",
    "aws.amazon.com/neuron",
)
"""Resource names of whole devices in the vendors' device plugins (kubernetes.io, Schedule GPUs, and their
documentation)."""
CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
"""Taints of control plane nodes, as set by kubeadm and similar tools (kubernetes.io, Well-Known Labels)."""
OTHER = "of another product"
VIRTUAL = "not a separate machine"
VIRTUAL_TAINT = "virtual-kubelet.io/provider"
VIRTUAL_LABELS = {"type": "virtual-kubelet", "liqo.io/type": "virtual-node"}
"""Marks of a virtual node, whose pods run on another service: it has no GPUs that could be checked
(virtual-kubelet/virtual-kubelet, cmd/virtual-kubelet, DefaultTaintKey; learn.microsoft.com, "Virtual nodes on AKS";
docs.liqo.io, virtual nodes)."""
LEFT_OUT = "not named by --on"
SHOWN = 8
MOST_AVOIDED = 200
"""Maximum number of names in one pod's affinity; each is a separate field."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The cluster's GPU nodes, divided by this profile."""

    nodes: tuple[Node, ...] = ()  # to be judged
    parts: dict[str, str] = field(default_factory=dict)  # of these: node -> why its GPUs are not whole ones
    outside: dict[str, str] = field(default_factory=dict)  # node -> why it belongs to another pool
    instead: str = ""  # the accelerators of another vendor, if no node has any of the profile's

    @property
    def whole(self) -> tuple[Node, ...]:
        """The nodes that offer whole GPUs."""
        return tuple(node for node in self.nodes if node.name not in self.parts)

    def without(self, names: Collection[str]) -> Pool:
        """Return the pool without these nodes."""
        parts = {name: why for name, why in self.parts.items() if name not in names}
        return replace(self, nodes=tuple(n for n in self.nodes if n.name not in names), parts=parts)

    def notes(self) -> tuple[str, ...]:
        """Name the nodes that are not judged, and why."""
        texts = [f"not judged: {name}, {why}" for name, why in self.outside.items()]
        return (*texts[:SHOWN], f"not judged: {len(texts) - SHOWN} more nodes") if len(texts) > SHOWN else tuple(texts)


def pool_of(cluster: Inventory, profile: Profile, named: Collection[str] = ()) -> Pool:
    """Divide the GPU nodes of the cluster: this profile's, those that offer parts of GPUs, and those not judged.

    ``named``: the only nodes that the user wants judged; none: all.
    """
    selector = {**profile.pool, **profile.pod.node_selector}
    members: list[Node] = []
    outside: dict[str, str] = {}
    resource = resource_of(profile)
    for node in _workers(cluster, profile) if profile.gpu.none else cluster.gpu_nodes(resource):
        wrong = [
            f"{key} is {node.labels.get(key) or 'not set'}, not {value}"
            for key, value in selector.items()
            if node.labels.get(key) != value
        ]
        if why := _virtual(node):
            outside[node.name] = why
        elif named and node.name not in named:
            outside[node.name] = LEFT_OUT
        elif wrong:
            outside[node.name] = f"outside of the profile's pool ({', '.join(wrong)})"
        elif profile.gpu.none:
            members.append(node)
        elif why := _not_for_pods(node, resource):
            outside[node.name] = why
        elif profile.gpu.product and not _is_of(node, profile.gpu.product):
            outside[node.name] = f"{OTHER} ({product(node)})"
        else:
            members.append(node)
    if profile.gpu.none:
        return Pool(tuple(members), outside=outside)
    parts = {node.name: why for node in members if (why := parted(node, resource))}
    instead = "" if members or outside else _of_another_vendor(cluster, resource)
    return Pool(tuple(members), parts, outside, instead)


def _workers(cluster: Inventory, profile: Profile) -> Iterator[Node]:
    """Yield all nodes except control plane nodes with a taint that the pods do not tolerate."""
    for node in cluster.nodes:
        own = [taint for taint in node.taints if taint.key in CONTROL_PLANE]
        if all(tolerated(taint, profile.pod.tolerations) for taint in own):
            yield node


def _of_another_vendor(cluster: Inventory, resource: str) -> str:
    """Name other accelerators that nodes offer, or have labels for; '' if there are none."""
    vendors = {
        name: node.name
        for name in ACCELERATORS
        if name != resource
        for node in reversed(cluster.nodes)
        if has_gpus(node, name)
    }
    return ", ".join(f"{name} ({node})" for name, node in sorted(vendors.items()))


def _virtual(node: Node) -> str:
    """Return the mark of a virtual node; '' for a real one, or if feature discovery has seen its GPUs."""
    taints = [taint.key for taint in node.taints if taint.key == VIRTUAL_TAINT]
    marks = [*taints, *(f"{key}={value}" for key, value in VIRTUAL_LABELS.items() if node.labels.get(key) == value)]
    return f"{VIRTUAL} ({marks[0]}: another service starts its pods)" if marks and not product(node) else ""


def _not_for_pods(node: Node, resource: str) -> str:
    """Explain by the GPU operator's labels why a node intentionally offers no GPU; '' if it should.

    https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-operator-kubevirt.html and "Preventing
    Installation of Operands on Some Nodes" of the operator's installation guide.
    """
    if node.capacity.get(resource, 0) > 0:
        return ""
    if (config := node.labels.get("nvidia.com/gpu.workload.config", "")).startswith("vm-"):
        return f"its GPUs are for virtual machines (nvidia.com/gpu.workload.config={config})"
    left_alone = node.labels.get("nvidia.com/gpu.deploy.operands") == "false"
    return "the GPU operator is disabled on it (nvidia.com/gpu.deploy.operands=false)" if left_alone else ""


def resource_of(profile: Profile) -> str:
    """Return the resource of the profile's GPUs; for claimed GPUs, the resource of their vendor's plugin."""
    return profile.gpu.resource or f"{profile.gpu.kind}.com/gpu"


def confinement(pool: Pool) -> dict[str, str]:
    """Return the label that restricts the trial to this pool's product, if the pool also has nodes of another one."""
    if not any(OTHER in why for why in pool.outside.values()):
        return {}
    for label in PRODUCT_LABELS:
        named = {node.labels.get(label, "") for node in pool.whole}
        if len(named) == 1 and "" not in named:
            return {label: named.pop()}
    return {}


def avoided(pool: Pool) -> tuple[str, ...]:
    """Return the nodes that the trial must avoid: with GPU partitions, another product, or another service.

    Labels keep it off other pools already. Above a limit no nodes are named: a pod on such a node reports its devices.
    """
    names = [*pool.parts, *(name for name, why in pool.outside.items() if OTHER in why or VIRTUAL in why)]
    return tuple(names) if pool.whole and len(names) <= MOST_AVOIDED else ()


def product(node: Node) -> str:
    """Return feature discovery's name of the node's GPUs, without suffixes for sharing and partitions; '' if none."""
    text = next((node.labels[key] for key in PRODUCT_LABELS if node.labels.get(key)), "")
    return re.sub(r"-(?:SHARED|MIG-[\w.]+)$", "", re.sub(r"-SHARED$", "", text))


def _is_of(node: Node, patterns: tuple[str, ...]) -> bool:
    name = product(node)
    return not name or any(fnmatchcase(name, pattern) for pattern in patterns)


def parted(node: Node, resource: str = "nvidia.com/gpu") -> str:
    """Explain why this node's GPUs are not whole ones; '' if they are."""
    labels = node.labels
    pieces = [f"{count} {name}" for name, count in node.capacity.items() if count > 0 and PARTS.fullmatch(name)]
    if pieces:
        return f"its GPUs are partitioned (MIG mixed: {', '.join(pieces[:3])})"
    if match := re.search(r"-MIG-([\w.]+?)(?:-SHARED)?$", labels.get("nvidia.com/gpu.product", "")):
        return f"its GPUs are partitioned (MIG single: each {resource} is a {match[1]})"
    if node.capacity.get("nvidia.com/gpu.shared", 0) > 0:
        return f"its GPUs are shared ({node.capacity['nvidia.com/gpu.shared']} nvidia.com/gpu.shared)"
    strategy = labels.get("nvidia.com/gpu.sharing-strategy", "none")
    replicas = labels.get("nvidia.com/gpu.replicas", "1")
    if strategy not in ("none", "") and replicas not in ("", "0", "1"):
        return f"its GPUs are shared ({strategy}: each is offered {replicas} times)"
    return ""


def sharing_fault(why: str) -> str:
    """Return the fault of a node that should offer whole GPUs and does not."""
    return "gpu.partitioned" if "partitioned" in why else "gpu.oversubscribed"
