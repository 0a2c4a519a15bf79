"""GKE's multi-networking: the additional networks and NICs that a pod requests.

Its annotation `networking.gke.io/interfaces` names a Network for each interface; the node's agent moves the NIC of that
network into the pod (cloud.google.com/kubernetes-engine/docs/how-to/setup-multinetwork-support-for-pods). The kinds are
Network and GKENetworkParamSet of networking.gke.io/v1; "default" is the pod's own network.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Object = dict[str, Any]
ASKED = "networking.gke.io/interfaces"
STATUS = "networking.gke.io/pod-ips"
GROUP = "networking.gke.io"
KEY = f"networks.{GROUP}"


def definitions(networks: Mapping[str, Any]) -> list[Object]:
    """Return the API objects: both kinds, and a Network with its parameters for each name."""
    objects = [_kind("Network", "networks"), _kind("GKENetworkParamSet", "gkenetworkparamsets")]
    for name in networks["names"]:
        parameters = {"group": GROUP, "kind": "GKENetworkParamSet", "name": name}
        objects.append(
            {
                "apiVersion": f"{GROUP}/v1",
                "kind": "GKENetworkParamSet",
                "metadata": {"name": name},
                "spec": {"vpc": name, "vpcSubnet": f"{name}-sub", "deviceMode": "NetDevice"},
            }
        )
        objects.append(
            {
                "apiVersion": f"{GROUP}/v1",
                "kind": "Network",
                "metadata": {"name": name},
                "spec": {"type": "Device", "parametersRef": parameters},
            }
        )
    return objects


def _kind(kind: str, plural: str) -> Object:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Cluster", "names": names, "versions": [version]},
    }


def asked(pod: Object) -> list[tuple[str, str]]:
    """Return the networks that a pod requests in addition to its own: network name, interface name.

    ValueError.
    """
    text = (pod["metadata"].get("annotations") or {}).get(ASKED, "").strip()
    given = json.loads(text) if text else []
    return [(str(each["network"]), str(each["interfaceName"])) for each in given if each.get("network") != "default"]
