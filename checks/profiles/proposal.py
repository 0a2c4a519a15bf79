"""Proposals: a profile for the cluster's nodes, for the user to compare with the order.

Facts reported by the cluster are only a start: a cluster must not be judged by its own report alone. Floors are those
of the shipped profile that fits, and each line cites its source.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from jobs.cluster.facts.inventory import Inventory, Node
from jobs.cluster.facts.stack import mapped_class, names

from ..rules.rdma_offer import GKE, MULTUS
from .cluster_defaults import Listed, claimable, modest
from .profile import Profile
from .schema import PodSection
from .yaml_schema import Document

PRODUCT = {
    "nvidia.com/gpu": ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator"),
    "amd.com/gpu": ("amd.com/gpu.product-name",),
}
"""For each GPU resource, the labels in which feature discovery, or else GKE, names the product."""
MACHINE = "node.kubernetes.io/instance-type"
"""The label in which a cloud names its machine type (kubernetes.io, "Well-Known Labels")."""
FABRIC = (
    "rdma/",
    "nvidia.com/hostdev",
    "nvidia.com/sriov",
    "nvidia.com/rdma",
    "vpc.amazonaws.com/efa",
    "networking.gke.io.networks/",
    "openshift.io/",
    "mellanox.com/",
    "amd.com/nic",
    "hpe.com/",
)
"""Prefixes of extended resources that give a pod a NIC (device plugins of RDMA, SR-IOV, EFA, GKE)."""
GOOGLE = ("gib", "fastrak", "tcpx")
"""Fabrics that NCCL uses through Google's plugins, on Google's machines only."""
GKE_NETWORK = "networking.gke.io.networks/"
"""GKE's resource for each network; pods name the network in an annotation, and GKE adds the resource to them."""
NOT_OURS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "ToBeDeletedByClusterAutoscaler")
"""Taints that describe a temporary state, and not which workloads may run there."""


@dataclass(slots=True)
class Proposal:
    """A profile as a document, the source of each part, and the parts that the user must add."""

    document: Document
    because: dict[str, str] = field(default_factory=dict)  # key of the document -> its comment
    open: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ProposedPool:
    """Nodes with the same product, GPU resource and number of GPUs."""

    product: str
    label: str  # the label that names the product
    resource: str  # '' if GPUs are claimed
    per_node: int  # 0: no node offers any
    nodes: tuple[Node, ...]
    claim: str = ""  # the DeviceClass for GPU claims

    def __str__(self) -> str:
        return f"{len(self.nodes)} nodes of {self.per_node} {self.product or self.resource}"


def pools(cluster: Inventory, listed: Listed | None = None) -> tuple[ProposedPool, ...]:
    """Return the pools of GPU nodes, the one with the most GPUs first; ``listed`` shows GPUs that are claimed (DRA).

    Nodes that offer no GPU are in no pool, unless no node offers any: then the device plugin has failed.
    """
    by_kind: dict[tuple[str, str, str, int, str], list[Node]] = {}
    for resource in PRODUCT:
        nodes = cluster.gpu_nodes(resource)
        claim, counts = claimable(nodes, resource, listed) if listed and nodes else ("", {})
        mapped = bool(listed and mapped_class(listed("deviceclasses"), resource))
        for node in nodes:
            product, label = _product(node, resource)
            counted = node.capacity.get(resource, 0)
            per_node = counted or counts.get(node.name, 0)
            plain = counted or mapped or not per_node  # requested as a resource, however it is provided
            key = (product, label, resource if plain else "", per_node, "" if plain else claim)
            by_kind.setdefault(key, []).append(node)
    by_kind = {key: nodes for key, nodes in by_kind.items() if key[3]} or by_kind
    made = (ProposedPool(*key[:4], tuple(nodes), key[4]) for key, nodes in by_kind.items())
    return tuple(sorted(made, key=lambda p: (-p.per_node * len(p.nodes), p.product, p.per_node)))


def _product(node: Node, resource: str) -> tuple[str, str]:
    """Return the node's GPU model and the label that names it; two empty strings without one."""
    return next(((node.labels[label], label) for label in PRODUCT[resource] if node.labels.get(label)), ("", ""))


def best(
    pool: ProposedPool,
    profiles: Mapping[str, Profile],
    networks: Collection[str] = (),
    classes: Collection[str] | None = None,
) -> str | None:
    """Return the name of the profile that fits the pool's GPUs and fabric; None if none does.

    ``classes``: the existing DeviceClasses; None if they cannot be listed.
    """
    scores = {name: _fit(pool, profile, networks, classes) for name, profile in profiles.items()}
    name = max(sorted(scores), key=lambda n: (scores[n], not profiles[n].gpu.machines), default=None)
    return name if name is not None and scores[name] > 0 else None


def _fit(pool: ProposedPool, profile: Profile, networks: Collection[str], classes: Collection[str] | None) -> int:
    gpu = profile.gpu
    other = pool.per_node and gpu.per_node not in (None, pool.per_node)
    if gpu.resource != pool.resource or not _is_of(pool, profile) or other:
        return 0  # floors and rails for another number of GPUs per node do not apply
    asked = {claim.device_class for claim in profile.pod.claims}
    if (pool.claim and pool.claim not in asked) or (classes is not None and not asked <= {*classes}):
        return 0
    if profile.fabric.kind in GOOGLE and not _on_gke(pool):
        return 0
    known = {label for node in pool.nodes if (label := node.labels.get(MACHINE))}
    same = all(any(fnmatchcase(each, pattern) for pattern in gpu.machines) for each in known)
    if gpu.machines and not same:
        return 0
    more = len(asked) + 4 * bool(known and gpu.machines)  # the machine type has priority over the names of its plugins
    resources, offered = set(profile.pod.resources), _offered(pool)
    if resources and not resources & offered.keys():
        return 1 + more
    there = {*networks, *(name.removeprefix(GKE_NETWORK) for name in offered)}
    return 2 + more + 2 * len(resources & offered.keys()) + len(_networks(profile) & there)


def _is_of(pool: ProposedPool, profile: Profile) -> bool:
    """Return whether the product is one of the profile's; GKE writes it in lower case."""
    return any(fnmatchcase(pool.product.upper(), pattern.upper()) for pattern in profile.gpu.product)


def _networks(profile: Profile) -> set[str]:
    """Return the secondary networks that the profile's pods name, without their namespaces."""
    asked = profile.pod.annotations
    try:
        google = [each["network"] for each in json.loads(asked.get(GKE) or "[]")]
    except (ValueError, TypeError, KeyError):
        google = []
    names_of = [name.strip().rpartition("/")[2] for name in asked.get(MULTUS, "").split(",")]
    return {*names_of, *google} - {"", "default"}


def _on_gke(pool: ProposedPool) -> bool:
    return any(label.startswith("cloud.google.com/") for node in pool.nodes for label in node.labels)


def _offered(pool: ProposedPool) -> dict[str, int]:
    """Return the fabric's resources that every node of the pool offers, with the smallest count."""
    names = {name for node in pool.nodes for name in node.allocatable if name.startswith(FABRIC)}
    least = {name: min(node.allocatable.get(name, 0) for node in pool.nodes) for name in sorted(names)}
    return {name: count for name, count in least.items() if count > 0}


def propose(
    cluster: Inventory, profiles: Mapping[str, Profile], networks: Collection[str] = (), listed: Listed | None = None
) -> Proposal | None:
    """Propose a profile for the pool with the most GPUs; None if no node offers any.

    ``networks``: names of the NetworkAttachmentDefinitions that a pod could attach. ``listed``: lists DeviceClasses and
    ResourceSlices, for GPUs that are claimed.
    """
    kinds = pools(cluster, listed)
    if not kinds:
        return None
    pool, rest = kinds[0], kinds[1:]
    classes = listed("deviceclasses") if listed else None
    known = None if classes is None or classes.hidden else names(classes)
    parent = best(pool, profiles, networks, known)
    document: Document = {"title": f"{pool.product or pool.resource}, {pool.per_node} GPUs a node"}
    made = Proposal(document)
    if parent is not None:
        document["extends"] = parent
        made.because["extends"] = f"{profiles[parent].title}; its fabric and floors are inherited"
    else:
        made.open.append(
            "no shipped profile fits: set fabric (kind, rails, rail_gbit_s, gdr) and floors yourself, "
            "else transport and bandwidth stay unjudged"
        )
    document["gpu"] = {"resource": pool.resource, "per_node": pool.per_node}
    if not pool.per_node:
        made.open.append("no GPU is offered there, counted or claimed: set the number yourself")
        del document["gpu"]["per_node"]
    if parent is None and pool.resource.startswith("amd.com/"):
        document["gpu"]["kind"] = "amd"
    source = f"the ResourceSlices (DeviceClass {pool.claim})" if pool.claim else "the capacity"
    made.because["gpu"] = (
        f"{source} of {', '.join(n.name for n in pool.nodes[:4])}"
        f"{' and others' if len(pool.nodes) > 4 else ''}: is it what was ordered?"
    )
    if len(pool.nodes) < 2:
        made.open.append(f"only {len(pool.nodes)} node of this kind was seen; a trial needs two")
    document["pod"] = _pod(pool, rest, profiles.get(parent or ""), made)
    if not document["pod"]:
        del document["pod"]
    made.open += [f"not covered, needs a separate profile: {other}" for other in rest]
    placed = {node.name for each in kinds for node in each.nodes}
    if none := [n.name for resource in PRODUCT for n in cluster.gpu_nodes(resource) if n.name not in placed]:
        made.open.append(
            f"labelled as GPU nodes, but offering none: {', '.join(none[:4])}{' and others' if len(none) > 4 else ''}"
        )
    return made


def _pod(pool: ProposedPool, other_pools: Iterable[ProposedPool], parent: Profile | None, made: Proposal) -> Document:
    pod: Document = {}
    if any(other_pools) and pool.product:
        pod["node_selector"] = {pool.label: pool.product}
    if taints := _taints(pool):
        pod["tolerations"] = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in taints]
    resources = _resources(pool, parent)
    if resources != (dict(parent.pod.resources) if parent else {}):
        foreign = set(parent.pod.resources) - resources.keys() if parent and resources else ()
        pod["resources"] = {**dict.fromkeys(sorted(foreign)), **resources}  # null removes an inherited resource
    if pool.claim and parent is None:
        pod["claims"] = [{"name": "gpus", "device_class": pool.claim, "count": pool.per_node}]
    small = modest(parent.pod if parent else PodSection(), pool.nodes)
    pod |= {"shm" if key == "shm_bytes" else key: value for key, value in small.items()}
    if not resources and not (parent and parent.pod.annotations):
        made.open.append("no node offers a NIC as a resource: where the fabric needs that, a device plugin is missing")
    if not (parent and _networks(parent)) and any(name.startswith(GKE_NETWORK) for name in _offered(pool)):
        made.open.append(f"the nodes have more networks: name them in pod.annotations ({GKE}), else NCCL uses sockets")
    if pod:
        made.because["pod"] = f"taints and allocatable resources that all {len(pool.nodes)} nodes share"
    return pod


def _taints(pool: ProposedPool) -> list[tuple[str, str]]:
    """Return the taints that reserve nodes of the pool for GPU work, as (key, effect)."""
    held = Counter(
        (t.key, t.effect)
        for node in pool.nodes
        for t in node.taints
        if t.effect in ("NoSchedule", "NoExecute") and not t.key.startswith(NOT_OURS)
    )
    return sorted(pair for pair, count in held.items() if count == len(pool.nodes))


def _resources(pool: ProposedPool, parent: Profile | None) -> dict[str, int]:
    """Return a pod's requests for NICs: those of the fitting profile, else one share, or all NICs that are counted."""
    offered = {name: count for name, count in _offered(pool).items() if not name.startswith(GKE_NETWORK)}
    known = {name: amount for name, amount in (parent.pod.resources if parent else {}).items() if name in offered}
    if known:
        return known
    # The shared RDMA device plugin offers shares, each with all NICs; other plugins count NICs.
    return {name: 1 if name.startswith("rdma/") and count > 32 else count for name, count in offered.items()}
