"""Defaults for the trial's pod from the cluster itself, without a profile.

They are the number of GPUs per node, whether GPUs are counted or claimed, and the CPU and memory that fit on the
smallest node. With these a trial runs; only a profile can show whether the cluster matches the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypedDict

from jobs.cluster.facts.stack import Listing, device_classes, devices_by_node, mapped_class
from jobs.cluster.unstructured import quantity
from jobs.trial.parts import ClaimSpec

if TYPE_CHECKING:
    from jobs.cluster.facts.inventory import Inventory, Node

    from .profile import Profile
    from .schema import PodSection

Listed = Callable[[str], Listing]

GPU_CLASSES = {"nvidia.com/gpu": "gpu.nvidia.com", "amd.com/gpu": "gpu.amd.com"}
"""For each GPU resource, the DeviceClass that its vendor's DRA driver installs for whole GPUs (NVIDIA's
k8s-dra-driver-gpu, ROCm/k8s-gpu-dra-driver)."""
SHARE = 2
"""Divisor of the smallest node's CPU and memory for one pod: the platform's daemons use a part of the rest."""


class PodDefaults(TypedDict, total=False):
    """The fields of a TrialSpec that can be derived from the nodes."""

    gpus_per_node: int
    gpu_resource: str
    claims: tuple[ClaimSpec, ...]
    cpu: str
    memory: str
    shm_bytes: int


def pod_defaults(profile: Profile, cluster: Inventory | None, listed: Listed | None = None) -> PodDefaults:
    """Return the fields of a TrialSpec that are derived from the GPU nodes, without those set by a profile."""
    resource = profile.gpu.resource
    nodes = cluster.gpu_nodes(resource) if cluster and resource else ()
    counts = [count for node in nodes if (count := node.capacity.get(resource, 0)) > 0]
    defaults: PodDefaults = {"gpus_per_node": min(counts, default=1)}
    if listed is not None and not counts and not profile.pod.claims:
        defaults |= _claims(nodes, resource, listed)
    return defaults | (modest(profile.pod, nodes) if nodes and not profile.known else {})


def claimable(nodes: Iterable[Node], resource: str, listed: Listed) -> tuple[str, dict[str, int]]:
    """Return the DeviceClass for GPU claims, and the number of GPUs that each node publishes; ('', {}) without one.

    ``listed``: lists a resource of the GPU stack by its plural. Objects that it cannot list are treated as absent.
    """
    classes = listed("deviceclasses")
    known, name = device_classes(classes), mapped_class(classes, resource) or GPU_CLASSES.get(resource, "")
    if name not in known:
        return "", {}
    counts = devices_by_node(listed("resourceslices"), known[name].driver, known[name].kind)
    here = {node.name: counts[node.name] for node in nodes if counts.get(node.name)}
    return (name, here) if here else ("", {})


def _claims(nodes: Sequence[Node], resource: str, listed: Listed) -> PodDefaults:
    name, counts = claimable(nodes, resource, listed) if nodes else ("", {})
    if not name:
        return {}
    least = min(counts.values())
    if mapped_class(listed("deviceclasses"), resource):  # Kubernetes creates the claim itself
        return {"gpus_per_node": least}
    claim = ClaimSpec(name="gpus", device_class=name, count=least)
    return {"gpus_per_node": least, "gpu_resource": "", "claims": (claim,)}


def modest(pod: PodSection, nodes: Iterable[Node]) -> PodDefaults:
    """Return CPU (thousandths of a core) and memory (MiB) if the smallest node is too small for the defaults."""
    requests: PodDefaults = {}
    cpu = min((n.allocatable["cpu"] for n in nodes if n.allocatable.get("cpu")), default=0) // SHARE
    memory = min((n.allocatable["memory"] for n in nodes if n.allocatable.get("memory")), default=0) // SHARE
    if 0 < cpu < 1000 * (quantity(pod.cpu) or 0):
        requests["cpu"] = f"{cpu}m"
    if 0 < memory < (quantity(pod.memory) or 0):
        requests["memory"] = f"{memory >> 20}Mi"
    if 0 < memory < pod.shm:  # a tmpfs is limited by the node's memory, and counts as the pod's
        requests["shm_bytes"] = memory >> 20 << 20
    return requests
