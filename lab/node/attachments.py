"""Multus: the additional networks of a pod, and the annotation that lists them.

A pod names NetworkAttachmentDefinitions in an annotation; each attaches the next of the pod's virtual functions with
its RDMA device, and an address. The pod's `network-status` annotation lists attachments in the format of the Network
Plumbing Working Group's specification. Google's clusters use another form (gkenetworks.py). The interfaces themselves
are not created: nothing here sends over them.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from . import gkenetworks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..apiserver.store import Store

Object = dict[str, Any]
ASKED = "k8s.v1.cni.cncf.io/networks"
STATUS = "k8s.v1.cni.cncf.io/network-status"
RESOURCE = "k8s.v1.cni.cncf.io/resourceName"
GROUP = "k8s.cni.cncf.io"
KEY = f"network-attachment-definitions.{GROUP}"
_WORD = re.compile(r"(?:([a-z0-9.-]+)/)?([a-z0-9.-]+)(?:@([\w.-]+))?")


class AttachmentError(Exception):
    """An error while a network is attached, with Multus' message."""


class Attached(NamedTuple):
    """An interface of a pod."""

    network: str  # namespace/name
    name: str
    address: str
    mac: str
    mtu: int
    device: str  # the RDMA device that is attached with it
    pci: str


def definitions(fabric: Mapping[str, Any]) -> list[Object]:
    """Return the API objects of a platform's networks: the kind itself, and one definition for each name."""
    networks = fabric.get("networks")
    if not networks:
        return []
    if networks.get("dialect") == "gke":
        return gkenetworks.definitions(networks)
    names = {
        "kind": "NetworkAttachmentDefinition",
        "listKind": "NetworkAttachmentDefinitionList",
        "plural": "network-attachment-definitions",
        "singular": "network-attachment-definition",
        "shortNames": ["net-attach-def"],
    }
    spec = {"type": "object", "properties": {"config": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    objects: list[Object] = [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": KEY},
            "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
        }
    ]
    for name in networks["names"]:
        config = {"cniVersion": "1.0.0", "name": name, "plugins": networks.get("plugins", [])}
        objects.append(
            {
                "apiVersion": f"{GROUP}/v1",
                "kind": "NetworkAttachmentDefinition",
                "metadata": {
                    "name": name,
                    "namespace": networks.get("namespace", "default"),
                    "annotations": {RESOURCE: fabric["resource"]},
                },
                "spec": {"config": json.dumps(config)},
            }
        )
    return objects


def asked(pod: Object) -> list[tuple[str, str, str]]:
    """Return the networks that a pod requests: namespace, name, and the interface's name if it is given."""
    text = (pod["metadata"].get("annotations") or {}).get(ASKED, "").strip()
    own = pod["metadata"].get("namespace", "default")
    if text.startswith("["):
        try:
            given = [each for each in json.loads(text) if isinstance(each, dict)]
        except ValueError as error:
            raise AttachmentError(
                f"parsePodNetworkAnnotation: failed to parse pod Network Attachment Selection "
                f"Annotation JSON format: {error}"
            ) from None
        return [(each.get("namespace") or own, str(each.get("name")), each.get("interface") or "") for each in given]
    selections = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        match = _WORD.fullmatch(word)
        if match is None:
            raise AttachmentError(f"parsePodNetworkAnnotation: invalid network annotation {word!r}")
        selections.append((match[1] or own, match[2], match[3] or ""))
    return selections


def attach_gke(
    pod: Object, devices: Sequence[Object], networks: Mapping[str, Any], ip: str, store: Store
) -> list[Attached]:
    """Move the NIC of each Network that a pod names into the pod."""
    try:
        requested = gkenetworks.asked(pod)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AttachmentError(f"invalid annotation {gkenetworks.ASKED}: {error}") from None
    known, attached = list(networks["names"]), []
    for name, interface in requested:
        if store.get(gkenetworks.KEY, None, name) is None or name not in known:
            raise AttachmentError(f'failed to get network "{name}": networks.networking.gke.io "{name}" not found')
        number = known.index(name)
        if number >= len(devices):
            raise AttachmentError(f'no free device for network "{name}" on this node')
        attached.append(_attached(pod, name, name, interface, number, devices[number], networks, ip))
    return attached


def attach(
    pod: Object,
    requested: Sequence[tuple[str, str, str]],
    devices: Sequence[Object],
    networks: Mapping[str, Any],
    ip: str,
    store: Store,
) -> list[Attached]:
    """Assign the next device of the pod to each requested network."""
    attached = []
    known = list(networks["names"])
    for number, (namespace, name, interface) in enumerate(requested):
        if store.kinds.by_key.get(KEY) is None or store.get(KEY, namespace, name) is None:
            raise AttachmentError(
                f"cannot find a network-attachment-definition ({name}) in namespace ({namespace}): "
                f'network-attachment-definitions.k8s.cni.cncf.io "{name}" not found'
            )
        if number >= len(devices):
            raise AttachmentError(f"SRIOV-CNI failed to load netconf: LoadConf(): VF pci addr is required ({name})")
        place = known.index(name) if name in known else 255
        attached.append(
            _attached(
                pod, f"{namespace}/{name}", name, interface or f"net{number + 1}", place, devices[number], networks, ip
            )
        )
    return attached


def _attached(
    pod: Object,
    network: str,
    name: str,
    interface: str,
    place: int,
    device: Object,
    networks: Mapping[str, Any],
    ip: str,
) -> Attached:
    digest = hashlib.sha256(f"{pod['metadata']['uid']}/{name}".encode()).hexdigest()
    host = int(ip.rpartition(".")[2]) + 16 * (int(ip.split(".")[2]) % 15)
    subnet = networks.get("subnet", "192.168.{n}.0/24").format(n=place)
    return Attached(
        network,
        interface,
        f"{subnet.rpartition('.')[0]}.{host % 254 + 1}",
        "02:" + ":".join(digest[i : i + 2] for i in range(0, 10, 2)),
        device.get("mtu", networks.get("mtu", 1500)),
        device["name"],
        device["place"][-1],
    )


def status(attached: Sequence[Attached], ip: str) -> str:
    """Return the annotation: the pod's own network first, then attached ones."""
    entries: list[Object] = [{"name": "cbr0", "interface": "eth0", "ips": [ip], "default": True, "dns": {}}]
    for each in attached:
        device = {"type": "pci", "version": "1.1.0", "pci": {"pci-address": each.pci, "rdma-device": each.device}}
        entries.append(
            {
                "name": each.network,
                "interface": each.name,
                "ips": [each.address],
                "mac": each.mac,
                "mtu": each.mtu,
                "dns": {},
                "device-info": device,
            }
        )
    return json.dumps(entries, indent=4)
