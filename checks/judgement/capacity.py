"""Which GPU nodes could take a pod of the trial now, and what keeps the others from it? One snapshot, no guess.

Rule: a node is judged by the first thing that keeps the pod away, so that one cause is one finding.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jobs.inventory import Inventory, Node, PodUse, Taint
    from jobs.trial import TrialSpec

CORDON = "node.kubernetes.io/unschedulable"
"""The taint that the control plane adds to a cordoned node; the cordon is the cause."""
SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Whether a node has room for one pod of the trial; ``fault`` names what is in the way."""

    node: str
    free: int
    observed: str
    fault: str = ""


def rooms(cluster: Inventory, nodes: Iterable[Node], spec: TrialSpec) -> list[Room]:
    """Judge each node that the trial may be scheduled to; nodes its selector excludes are left out."""
    return [_room(cluster, node, spec) for node in nodes if _selected(node, spec.node_selector)]


def _room(cluster: Inventory, node: Node, spec: TrialSpec) -> Room:
    resource = spec.gpu_resource
    offered, free = node.allocatable.get(resource, 0), cluster.free(node, resource)
    observed = f"{free} of {offered} free"
    if node.unschedulable:
        return Room(node=node.name, free=free, observed=f"cordoned ({observed})", fault="nodes.cordoned")
    if bad := [t for t in node.taints if t.key != CORDON and not tolerated(t, spec.tolerations)]:
        names = ", ".join(map(str, bad))
        return Room(node=node.name, free=free, observed=f"taint {names} ({observed})", fault="nodes.tainted")
    if free < spec.gpus_per_node:
        held = holders(cluster.holders(node, resource), resource)
        return Room(node=node.name, free=free, observed=f"{observed}; {held}", fault="gpu.taken")
    return Room(node=node.name, free=free, observed=observed)


def holders(pods: Sequence[PodUse], resource: str) -> str:
    """Say who holds the GPUs of a node, largest first: 'held by NodeSet/slurm in slurm (8)'."""
    counts: Counter[str] = Counter()
    for pod in pods:
        counts[f"{pod.owner or f'Pod/{pod.name}'} in {pod.namespace}"] += pod.requests.get(resource, 0)
    if not counts:
        return "held by pods that are not seen"
    named = [f"{who} ({n})" for who, n in counts.most_common(SHOWN)]
    more = f" and {len(counts) - SHOWN} more" if len(counts) > SHOWN else ""
    return "held by " + ", ".join(named) + more


def tolerated(taint: Taint, tolerations: Iterable[Mapping[str, Any]]) -> bool:
    """Say whether a taint keeps no pod with these tolerations away (PreferNoSchedule never does)."""
    return taint.effect not in ("NoSchedule", "NoExecute") or any(_tolerates(t, taint) for t in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    """Match as https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/ describes."""
    effect, key = toleration.get("effect"), toleration.get("key")
    if effect and effect != taint.effect:
        return False
    exists = toleration.get("operator", "Equal") == "Exists"
    if not key:
        return bool(exists)
    return bool(key == taint.key and (exists or (toleration.get("value") or "") == taint.value))


def _selected(node: Node, selector: Mapping[str, str]) -> bool:
    return all(node.labels.get(key) == value for key, value in selector.items())
