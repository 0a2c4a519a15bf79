"""Which profile would fit these nodes? A proposal from what the cluster says, for a person to hold against the order.

What the cluster says of itself is where a proposal starts and never what it is judged by alone: floors come from the
shipped profile that fits, and each line says what it was taken from.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ..fitting import claimable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from jobs.facts.inventory import Inventory, Node

    from ..fitting import Listed
    from ..profile import Profile

PRODUCT = {"nvidia.com/gpu": "nvidia.com/gpu.product", "amd.com/gpu": "amd.com/gpu.product-name"}
"""By GPU resource: the label in which its feature discovery names the product."""
FABRIC = (
    "rdma/", "nvidia.com/hostdev", "nvidia.com/sriov", "nvidia.com/rdma", "vpc.amazonaws.com/efa",
    "networking.gke.io.networks/", "openshift.io/", "mellanox.com/", "amd.com/nic", "hpe.com/",
)  # fmt: skip
"""How extended resources begin that bring a network card into a pod (device plugins of RDMA, SR-IOV, EFA, GKE)."""
GOOGLE = ("gib", "fastrak", "tcpx")
"""Fabrics that NCCL reaches through Google's plugins, on Google's machines only."""
MULTUS = "k8s.v1.cni.cncf.io/networks"
NOT_OURS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "ToBeDeletedByClusterAutoscaler")
"""Taints that say something about the moment and nothing about who may run there."""


@dataclass(slots=True)
class Proposal:
    """A profile as a document, what each part was taken from, and what a person must still say."""

    document: dict[str, Any]
    because: dict[str, str] = field(default_factory=dict)  # key of the document -> a comment
    open: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that offer the same: product, GPU resource, GPUs a node."""

    product: str
    resource: str
    per_node: int
    nodes: tuple[Node, ...]
    device_class: str = ""  # by which the GPUs are claimed (DRA); nothing: nodes count them

    def __str__(self) -> str:
        return f"{len(self.nodes)} nodes of {self.per_node} {self.product or self.resource}"


def pools(cluster: Inventory, listed: Listed | None = None) -> tuple[Pool, ...]:
    """Return the pools of GPU nodes, the one with the most GPUs first; ``listed`` shows GPUs that are claimed (DRA)."""
    found: dict[tuple[str, str, int], list[Node]] = {}
    for resource, label in PRODUCT.items():
        for node in cluster.gpu_nodes(resource):
            key = (node.labels.get(label, ""), resource, node.capacity.get(resource, 0))
            found.setdefault(key, []).append(node)
    made = [Pool(*key, tuple(nodes)) for key, nodes in found.items()]
    made = [_claimed(pool, listed) if listed and not pool.per_node else pool for pool in made]
    return tuple(sorted(made, key=lambda p: (-p.per_node * len(p.nodes), p.product, p.per_node)))


def _claimed(pool: Pool, listed: Listed) -> Pool:
    name, counts = claimable(pool.nodes, pool.resource, listed)
    return replace(pool, per_node=min(counts.values()), device_class=name) if name else pool


def best(pool: Pool, profiles: Mapping[str, Profile], networks: Collection[str] = ()) -> str | None:
    """Return the name of the profile that fits the pool's GPUs and fabric; None where none does."""
    scores = {name: _fit(pool, profile, networks) for name, profile in profiles.items()}
    name = max(sorted(scores), key=lambda n: scores[n], default=None)
    return name if name is not None and scores[name] > 0 else None


def _fit(pool: Pool, profile: Profile, networks: Collection[str]) -> int:
    gpu = profile.gpu
    counted = "" if pool.device_class else pool.resource
    if gpu.resource != counted or not any(fnmatchcase(pool.product, p) for p in gpu.product):
        return 0
    asked = profile.pod.annotations
    if profile.fabric.kind in GOOGLE and not _on_gke(pool):
        return 0
    attached = {name.strip().rpartition("/")[2] for name in asked.get(MULTUS, "").split(",")} & set(networks)
    wanted, offered = set(profile.pod.resources), _offered(pool)
    if wanted and not wanted & offered.keys():
        return 1
    return 2 + 2 * len(wanted & offered.keys()) + len(attached) + (gpu.per_node == pool.per_node)


def _on_gke(pool: Pool) -> bool:
    return any(label.startswith("cloud.google.com/") for node in pool.nodes for label in node.labels)


def _offered(pool: Pool) -> dict[str, int]:
    """The fabric's resources that every node of the pool offers, with the least of them."""
    names = {name for node in pool.nodes for name in node.allocatable if name.startswith(FABRIC)}
    least = {name: min(node.allocatable.get(name, 0) for node in pool.nodes) for name in sorted(names)}
    return {name: count for name, count in least.items() if count > 0}


def propose(
    cluster: Inventory, profiles: Mapping[str, Profile], networks: Collection[str] = (), listed: Listed | None = None
) -> Proposal | None:
    """Propose a profile for the pool with the most GPUs; None where no node has any.

    ``networks``: names of the NetworkAttachmentDefinitions that a pod could attach. ``listed``: see `pools`.
    """
    found = pools(cluster, listed)
    if not found:
        return None
    pool, others = found[0], found[1:]
    parent = best(pool, profiles, networks)
    document: dict[str, Any] = {"title": f"{pool.product or pool.resource}, {pool.per_node} GPUs a node"}
    made = Proposal(document)
    if parent is not None:
        document["extends"] = parent
        made.because["extends"] = f"{profiles[parent].title}; its fabric and floors are inherited"
    else:
        made.open.append("no shipped profile fits: say fabric (kind, rails, rail_gbit_s, gdr) and floors yourself, "
                         "else transport and bandwidth stay unjudged")  # fmt: skip
    document["gpu"] = {"resource": "" if pool.device_class else pool.resource, "per_node": pool.per_node}
    if not pool.per_node:
        made.open.append("no GPU is offered there, counted or claimed: the number is yours to say")
        del document["gpu"]["per_node"]
    where = "ResourceSlices" if pool.device_class else "capacity"
    made.because["gpu"] = (f"the {where} of {', '.join(n.name for n in pool.nodes[:4])}"
                           f"{' and others' if len(pool.nodes) > 4 else ''}: is it what was ordered?")  # fmt: skip
    if len(pool.nodes) < 2:
        made.open.append(f"only {len(pool.nodes)} node of this kind was seen; a trial needs two")
    document["pod"] = _pod(pool, others, profiles.get(parent or ""), made)
    if not document["pod"]:
        del document["pod"]
    made.open += [f"not covered, wants a profile of its own: {other}" for other in others]
    return made


def _pod(pool: Pool, others: Iterable[Pool], parent: Profile | None, made: Proposal) -> dict[str, Any]:
    pod: dict[str, Any] = {}
    label = PRODUCT[pool.resource]
    if any(others) and pool.product:
        pod["node_selector"] = {label: pool.product}
    if taints := _taints(pool):
        pod["tolerations"] = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in taints]
    claims = [{"name": "gpus", "device_class": pool.device_class, "count": pool.per_node}]
    if pool.device_class and claims != [asdict(claim) for claim in (parent.pod.claims if parent else ())]:
        pod["claims"] = claims
    resources = _resources(pool, parent)
    if resources != (dict(parent.pod.resources) if parent else {}):
        pod["resources"] = resources
    if not resources and not (parent and parent.pod.annotations):
        made.open.append("no node offers a network card as a resource: where the fabric needs that, a device plugin is "
                         "missing")  # fmt: skip
    if pod:
        made.because["pod"] = f"taints and allocatable resources that all {len(pool.nodes)} nodes share"
    return pod


def _taints(pool: Pool) -> list[tuple[str, str]]:
    """The taints by which nodes of the pool are kept for GPU work, as (key, effect)."""
    held = Counter((t.key, t.effect) for node in pool.nodes for t in node.taints
                   if t.effect in ("NoSchedule", "NoExecute") and not t.key.startswith(NOT_OURS))  # fmt: skip
    return sorted(pair for pair, count in held.items() if count == len(pool.nodes))


def _resources(pool: Pool, parent: Profile | None) -> dict[str, int]:
    """What a pod asks for to get the cards: as the profile that fits, else one share, or all cards that are counted."""
    offered = _offered(pool)
    known = {name: amount for name, amount in (parent.pod.resources if parent else {}).items() if name in offered}
    if known:
        return known
    # The shared RDMA plugin hands out shares, each with all cards; the others count cards.
    return {name: 1 if name.startswith("rdma/") and count > 32 else count for name, count in offered.items()}
