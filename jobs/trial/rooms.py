"""Whether a node has room for one pod of a job now, and if not, the obstacle.

A node is judged by its first obstacle, so that one cause is one finding. The checks apply this rule to a trial's nodes,
and the launcher to a user's job before anything is created.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..cluster.facts.inventory import Inventory, Node, PodUse, Taint
from ..cluster.unstructured import Unstructured
from ..listing import first_of
from .job_spec import JobSpec

CORDON = "node.kubernetes.io/unschedulable"
"""The taint that the control plane adds to a cordoned node; the cordon is the cause."""
CLAIMED = "GPUs are claimed: only the scheduler knows the free ones"
OPEN = "open to pods; only the scheduler knows its free CPUs and memory"
IN_USE = ("gpu.taken", "gpu.held-by-slurm", "quota.in-use")
"""Faults that only report GPUs or a quota in use: a full cluster is not at fault."""
SLURM = "NodeSet/"
"""The owner of Slinky's Slurm workers: their pods reserve whole nodes, whether or not Slurm has jobs for them."""
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Whether a node has room for one pod of a job; ``fault`` names the obstacle."""

    node: str
    free: int
    observed: str
    fault: str = ""


def room_on(cluster: Inventory, node: Node, spec: JobSpec) -> Room:
    """Judge one node by the first obstacle to the pod."""
    resource = spec.gpu_resource if spec.gpus_per_node else ""
    offered, free = node.allocatable.get(resource, 0), cluster.free(node, resource)
    observed = f"{free} of {offered} free" if resource else CLAIMED if spec.claims else OPEN
    if node.unschedulable:
        return Room(node=node.name, free=free, observed=_kept_away("cordoned", observed), fault="nodes.cordoned")
    if bad := [t for t in node.taints if t.key != CORDON and not tolerated(t, spec.tolerations)]:
        names = ", ".join(map(str, bad))
        return Room(node=node.name, free=free, observed=_kept_away(f"taint {names}", observed), fault="nodes.tainted")
    if resource and offered < spec.gpus_per_node:
        return Room(node=node.name, free=free, observed=observed, fault="gpu.missing")
    if resource and free < spec.gpus_per_node:
        holding = cluster.holders(node, resource)
        slurm = bool(holding) and holding[0].owner.startswith(SLURM)
        fault = "gpu.held-by-slurm" if slurm else "gpu.taken"
        return Room(node=node.name, free=free, observed=f"{observed}; {holders(holding, resource)}", fault=fault)
    return Room(node=node.name, free=free, observed=observed)


def _kept_away(why: str, observed: str) -> str:
    return why if observed == OPEN else f"{why} ({observed})"


def holders(pods: Sequence[PodUse], resource: str) -> str:
    """Name the users of a node's GPUs, largest first: 'in use by other workloads: NodeSet/slurm in slurm (8)'."""
    counts: Counter[str] = Counter()
    for pod in pods:
        holder = f"{pod.owner or f'Pod/{pod.name}'} in {pod.namespace}"
        if pod.app == "seatrial":
            holder += f", a trial of seatrial {pod.runner or 'that is in progress or was killed'}"
        counts[holder] += pod.requests.get(resource, 0)
    return "in use by other workloads: " + first_of((f"{holder} ({n})" for holder, n in counts.most_common()), _SHOWN)


def tolerated(taint: Taint, tolerations: Iterable[Unstructured]) -> bool:
    """Return whether a taint does not exclude pods with these tolerations (PreferNoSchedule never does)."""
    return taint.effect not in ("NoSchedule", "NoExecute") or any(_tolerates(t, taint) for t in tolerations)


def _tolerates(toleration: Unstructured, taint: Taint) -> bool:
    """Return whether a toleration matches a taint.

    https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
    """
    effect, key = toleration.get("effect"), toleration.get("key")
    if effect and effect != taint.effect:
        return False
    exists = toleration.get("operator", "Equal") == "Exists"
    if not key:
        return bool(exists)
    return bool(key == taint.key and (exists or (toleration.get("value") or "") == taint.value))


def selected(node: Node, selector: Mapping[str, str]) -> bool:
    """Return whether a pod with this selector may be scheduled to the node."""
    return all(node.labels.get(key) == value for key, value in selector.items())
