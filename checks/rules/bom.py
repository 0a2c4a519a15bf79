"""The bill of materials: one structured record, from the API and from inside the trial's pods, for later comparison.

Every value has the number of its nodes, so that two records can be compared.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

from jobs.cluster.facts.inventory import Inventory, Node
from jobs.cluster.facts.stack import Policy, image_version, operand
from jobs.run.result import TrialResult
from seatrial.logs.job_document import JobDocument

from ..profiles.profile import Profile
from .nodes import FACTS
from .ranks import every_stage

MOST = 40
"""Maximum number of different values of one kind: a longer list is not useful as a bill of materials."""

CSI = re.compile(r"(?:^|[-_.])csi(?:$|[-_.])|^cephcsi$")
SIDECARS = re.compile(
    r"csi-(?:provisioner|attacher|resizer|snapshotter|node-driver-registrar)|external-|livenessprobe|"
    r"snapshot-controller|node-driver-registrar"
)
"""A CSI driver's image, and those of the sidecars that the Kubernetes project ships next to every driver
(https://kubernetes-csi.github.io/docs/sidecar-containers.html)."""
HARDWARE = re.compile(r"(?i)(?:^|[-_.])(?:bmc|bios|firmware|fw|nvswitch|ipmi|redfish)(?:[-_.]|$)")
"""Parts of label names with which NFD's local features and providers report a node's firmware."""


def from_api(version: str, nodes: Iterable[Node], cluster: Inventory, policies: Iterable[Policy]) -> dict[str, object]:
    """Record the components that the API shows: Kubernetes, node software, operators and plugins, the ClusterPolicy."""
    nodes = list(nodes)
    software = {fact: _counted(read(node) for node in nodes) for fact, read in FACTS.items()}
    parts: dict[str, Counter[str]] = {}
    for pod in cluster.pods:
        if kind := operand(pod):
            parts.setdefault(kind, Counter()).update(pod.images)
    entries = {
        "kubernetes": version,
        "nodes": {fact: values for fact, values in software.items() if values},
        "gpus": _counted(node.labels.get("nvidia.com/gpu.product", "") for node in nodes),
        "software": {
            kind: {image: image_version(image) for image in sorted(images)[:MOST]}
            for kind, images in sorted(parts.items())
        },
        "storage clients": {image: image_version(image) for image in _csi_drivers(cluster)[:MOST]},
        "firmware labels": _firmware(nodes),
        "policy": {policy.name: dict(policy.versions) for policy in policies},
    }
    return {key: value for key, value in entries.items() if value}


def _csi_drivers(cluster: Inventory) -> list[str]:
    """Return the images of CSI drivers by name, without the sidecars."""
    names = {
        image: image.partition("@")[0].rpartition("/")[2].partition(":")[0] for p in cluster.pods for image in p.images
    }
    return sorted(image for image, name in names.items() if CSI.search(name) and not SIDECARS.search(name))


def _firmware(nodes: Iterable[Node]) -> dict[str, dict[str, int]]:
    """Return BMC, BIOS and firmware from node labels: label -> value -> nodes; empty without such labels."""
    versions: dict[str, list[str]] = {}
    for node in nodes:
        for key, value in node.labels.items():
            if _is_of_hardware(key):
                versions.setdefault(key, []).append(value)
    return {key: _counted(values) for key, values in sorted(versions.items())[:MOST] if any(values)}


@lru_cache(maxsize=4096)  # the nodes of a pool have the same labels
def _is_of_hardware(key: str) -> bool:
    return HARDWARE.search(key.rpartition("/")[2]) is not None


def from_profile(profile: Profile) -> dict[str, object]:
    """List the profile's unverifiable components, and whether each model image is pinned."""
    models = {image: "by digest" if "@sha256:" in image else "by a mutable tag" for image in profile.images.models}
    entries = {"not verified": dict(profile.stack.baseline), "model images": models}
    return {key: value for key, value in entries.items() if value}


def from_trial(trial: TrialResult, jobs: Mapping[str, JobDocument | None]) -> dict[str, object]:
    """Record the components seen by the trial's pods: driver, CUDA, NCCL, firmware of the NICs, images by digest."""
    runtimes = [every_stage(trial, rank)["runtime"] for rank in sorted(trial.evidence)]
    rdma_stages = [every_stage(trial, rank)["rdma"] for rank in sorted(trial.evidence)]
    devices = [device for each in rdma_stages for device in each["devices"] or []]
    entries = {
        "driver": _counted(str(each["driver"] or "") for each in runtimes),
        "cuda": _counted(str(each["cuda"] or "") for each in runtimes),
        "toolkit": _counted(str(each["toolkit"] or "") for each in runtimes),
        "gpu": _counted(str(gpu["name"] or "") for each in runtimes for gpu in each["gpus"] or []),
        "vbios": _counted(str(gpu["vbios"] or "") for each in runtimes for gpu in each["gpus"] or []),
        "inforom": _counted(str(gpu["inforom"] or "") for each in runtimes for gpu in each["gpus"] or []),
        "gsp firmware": _counted(str(gpu["gsp"] or "") for each in runtimes for gpu in each["gpus"] or []),
        "nccl": _counted((job["nccl_version"] or "") if job else "" for job in jobs.values()),
        "firmware": _counted(f"{d['board'] or ''} {d['fw'] or ''}".strip() for d in devices),
        "images": _images(trial),
        "probe": _counted(str(every_stage(trial, rank)["start"]["probe"] or "") for rank in trial.evidence),
    }
    return {key: value for key, value in entries.items() if value}


def _images(trial: TrialResult) -> dict[str, str]:
    """Return for each requested image its digest, or all digests if nodes resolved one tag to several."""
    digests: dict[str, set[str]] = {}
    for pod in trial.pods:
        for image, digest in pod.images.values():
            digests.setdefault(image, set()).add(digest)
    return {image: " and ".join(sorted(resolved - {""})) for image, resolved in sorted(digests.items())[:MOST]}


def _counted(values: Iterable[str]) -> dict[str, int]:
    return dict(Counter(value for value in values if value).most_common(MOST))
