"""The GPU operators' pods and states, and the devices that drivers publish.

Reads the API objects other than nodes and pods. A kind that this cluster does not serve is distinguished from one that
we may not list. The first is a fact about the cluster, the second about our permissions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ..client.errors import Forbidden, NotFound, Unauthorized
from ..client.kube import path
from ..redact import safe
from ..unstructured import Unstructured, as_list, as_map, by_type, name_of

if TYPE_CHECKING:
    from ..client.kube import Kube
    from .inventory import PodUse

# The part of a GPU stack by the pod's name or app label. Names are those of the GPU operator
# (github.com/NVIDIA/gpu-operator, assets/), of the plugin's own manifests, GKE, EKS, AKS and AMD's operator. The order
# matters: the plugin's Helm chart prefixes the feature discovery with its own name.
_OPERANDS: tuple[tuple[str, str], ...] = (
    ("feature-discovery", r"gpu-feature-discovery|gpu-node-labeller|amdgpu-labeller|-node-labeller-"),
    ("driver", r"nvidia-driver-daemonset|nvidia-(?:gpu-)?driver-(?!manager)|driver-installer|amdgpu-driver"),
    ("toolkit", r"nvidia-container-toolkit"),
    ("device-plugin", r"nvidia-(?:gpu-)?device-plugin|amdgpu-(?:device-plugin|dp)|amd-gpu-device-plugin"),
    ("dra-driver", r"(?:nvidia|amd)[\w-]*dra-driver[\w-]*kubelet-plugin|k8s-dra-driver-gpu-kubelet-plugin"),
    ("validator", r"nvidia-operator-validator"),
    ("dcgm-exporter", r"dcgm-exporter|amd-device-metrics-exporter|device-metrics-exporter"),
    ("operator", r"^gpu-operator|amd-gpu-operator"),
    ("network-operator", r"network-operator"),
    (
        "rdma-plugin",
        r"rdma-shared-d|k8s-rdma-shared-dev-plugin|sriov-(?:network-)?device-plugin"
        r"|aws-efa-k8s-device-plugin|hostdev-plugin",
    ),
    ("multus", r"multus"),
    ("cni", r"^(?:calico-node|cilium|kube-flannel|aws-node|azure-cns|antrea-agent|ovnkube-node|weave-net|kindnet)"),
    ("queue", r"kueue-controller|volcano-(?:scheduler|controllers)"),
    ("training-operator", r"mpi-operator|training-operator|kubeflow-trainer|jobset-controller"),
)
_COMPILED = tuple((kind, re.compile(text)) for kind, text in _OPERANDS)
# Pods that share the plugin's name prefix without being the plugin: MPS, the plugin's validator, and Node Feature
# Discovery of a release named like the plugin.
_OTHER_PODS = re.compile(r"mps-control-daemon|nvidia-(?:cuda|device-plugin)-validator|node-feature-discovery")
# Operators whose DaemonSets are named after a user's resource: AMD's DeviceConfig (ROCm/gpu-operator, internal/plugin),
# and the plugin that simulates GPUs (run-ai/fake-gpu-operator).
_IMAGES = (
    ("device-plugin", re.compile(r"/k8s-device-plugin(?:@|:(?!labeller))|fake-gpu-operator/device-plugin[:@]")),
    ("dcgm-exporter", re.compile(r"/device-metrics-exporter[:@]")),
)

_PARTS = ("driver", "toolkit", "devicePlugin", "dcgmExporter")
# Group and versions, newest first; resource.k8s.io is stable from Kubernetes 1.34 on.
KINDS: dict[str, tuple[str, ...]] = {
    "clusterpolicies": ("nvidia.com", "v1"),
    "deviceclasses": ("resource.k8s.io", "v1", "v1beta2", "v1beta1"),
    "resourceslices": ("resource.k8s.io", "v1", "v1beta2", "v1beta1"),
    "servicemonitors": ("monitoring.coreos.com", "v1"),
    "noderesourcetopologies": ("topology.node.k8s.io", "v1alpha2", "v1alpha1"),
}


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of one kind, or why they cannot be read."""

    items: tuple[Unstructured, ...] = ()
    served: bool = True  # False: this cluster does not serve the kind
    hidden: str = ""  # we may not list them


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One ClusterPolicy of the NVIDIA GPU operator."""

    name: str
    state: str  # ready | notReady | ignored, or '' before the operator has reconciled it
    message: str = ""
    versions: Mapping[str, str]  # part -> version or image, as the specification requests it


def operand(pod: PodUse) -> str:
    """Name this pod's part of the GPU stack; '' for any other pod."""
    return _operand(pod.name, pod.app, pod.images)


@lru_cache(maxsize=1 << 16)  # cached: five checks call it for every pod
def _operand(name: str, app: str, images: tuple[str, ...]) -> str:
    if _OTHER_PODS.search(name):
        return ""
    by_name = next((kind for kind, text in _COMPILED if text.search(name) or text.search(app)), "")
    return by_name or next((kind for kind, text in _IMAGES for image in images if text.search(image)), "")


def listing(kube: Kube, resource: str, group: str, *versions: str) -> Listing:
    """List all objects of a kind in the cluster, in the first of these versions that it serves."""
    for version in versions:
        try:
            items, _ = kube.list(path(resource, group=group, version=version))
        except NotFound:
            continue
        except (Forbidden, Unauthorized) as error:
            return Listing(hidden=safe(error.message, 300))
        return Listing(tuple(item for item in items if isinstance(item, dict)))
    return Listing(served=False)


def policies(listing: Listing) -> tuple[Policy, ...]:
    """Read the ClusterPolicies."""
    return tuple(_policy(item) for item in listing.items)


def _policy(item: Unstructured) -> Policy:
    spec, status = as_map(item.get("spec")), as_map(item.get("status"))
    conditions = by_type(status)
    wrong = conditions.get("Error") or {}
    ready = conditions.get("Ready") or {}
    said = wrong if wrong.get("status") == "True" else ready if ready.get("status") == "False" else {}
    versions = {name: _version(as_map(spec.get(name))) for name in _PARTS}
    return Policy(
        name=safe(name_of(item), 253),
        state=safe(status.get("state") or "", 60),
        message=safe(f"{said.get('reason') or ''}: {said.get('message') or ''}".strip(": "), 300),
        versions={name: version for name, version in versions.items() if version},
    )


def _version(part: Unstructured) -> str:
    return safe(part.get("version") or "", 100) if part.get("enabled") is not False else ""


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """The vendor and type of a class's devices, if its selectors name them; '' for any."""

    name: str
    driver: str = ""
    kind: str = ""


def device_classes(listing: Listing) -> dict[str, DeviceClass]:
    """Read the DeviceClasses; their CEL expressions only for NVIDIA's and AMD's drivers."""
    classes = {}
    for name, item in zip(names(listing), listing.items, strict=True):
        cels = (as_map(each.get("cel")) for each in as_list(as_map(item.get("spec")).get("selectors")))
        text = " ".join(str(cel.get("expression") or "") for cel in cels)
        driver = re.search(r"device\.driver\s*==\s*['\"]([\w.-]+)['\"]", text)
        kind = re.search(r"\.type\s*==\s*['\"]([\w.-]+)['\"]", text)
        classes[name] = DeviceClass(name, driver[1] if driver else "", kind[1] if kind else "")
    return classes


def mapped_class(listing: Listing, resource: str) -> str:
    """Name the DeviceClass that represents an extended resource; '' if none does.

    Pods then request the resource as usual, and no node counts it (DRAExtendedResource, beta in Kubernetes 1.36;
    https://www.kubernetes.dev/resources/keps/5004/).
    """
    mapped = (as_map(item.get("spec")).get("extendedResourceName") == resource for item in listing.items)
    return next((name for name, fits in zip(names(listing), mapped, strict=True) if fits), "")


def devices_by_node(listing: Listing, driver: str = "", kind: str = "") -> dict[str, int]:
    """Count the devices that a driver publishes for each node in ResourceSlices of the newest generation.

    `kind` is the expected value of their attribute `type`, if they have one: a MIG partition is not a whole GPU.
    https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#resourceslice
    """
    newest: dict[tuple[str, str], int] = {}
    slices: list[tuple[tuple[str, str], int, Unstructured]] = []
    for item in listing.items:
        spec = as_map(item.get("spec"))
        pool = as_map(spec.get("pool"))
        if driver and spec.get("driver") != driver:
            continue
        key, generation = (str(spec.get("driver")), str(pool.get("name"))), _whole(pool.get("generation"))
        newest[key] = max(newest.get(key, 0), generation)
        slices.append((key, generation, spec))
    counts: dict[str, int] = {}
    for key, generation, spec in slices:
        if generation == newest[key] and spec.get("nodeName"):
            node = str(spec["nodeName"])
            matching = sum(not kind or _type(entry) in ("", kind) for entry in as_list(spec.get("devices")))
            counts[node] = counts.get(node, 0) + matching
    return counts


def _type(device: Unstructured) -> str:
    attributes = as_map(device.get("attributes")) or as_map(as_map(device.get("basic")).get("attributes"))
    return str(as_map(attributes.get("type")).get("string") or "")


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def names(listing: Listing) -> tuple[str, ...]:
    """Return the names of the objects."""
    return tuple(safe(name_of(item), 253) for item in listing.items)


def image_version(image: str) -> str:
    """Return the version in the tag of an image: 'v1.19.0' of '.../container-toolkit:v1.19.0-ubi9'."""
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    match = re.match(r"v?\d+(?:\.\d+)+", tag)
    return match[0] if match else tag


def toolkit_version(installed: Iterable[Policy], pods: Iterable[PodUse]) -> str:
    """Return the version of the container toolkit that the operator installs; '' if not reported.

    Reads the ClusterPolicy, else the image of the toolkit's DaemonSet; neither shows a toolkit that is a package of the
    host.
    """
    asked = [policy.versions["toolkit"] for policy in installed if policy.versions.get("toolkit")]
    images = [image for pod in pods if operand(pod) == "toolkit" for image in pod.images]
    versions = [image_version(f"x:{text}") for text in asked] + [image_version(image) for image in images]
    return next((text for text in versions if re.match(r"v?\d", text)), "")
