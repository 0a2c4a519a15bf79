"""NVIDIA's DRA driver: ComputeDomains with claimed channels.

Names are those of k8s-dra-driver-gpu v25.8. The IMEX daemons of a domain are not simulated: a channel exists or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..format import node_names
from .dra import device_class, publish
from .parts import OwnerController

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..apiserver.store import Store
    from ..controlplane import Controller

Object = dict[str, Any]
DRIVER, KEY = "compute-domain.nvidia.com", "computedomains.resource.nvidia.com"
CLASSES = {
    "compute-domain-default-channel.nvidia.com": ("channel", " && device.attributes['{0}'].id == 0"),
    "compute-domain-daemon.nvidia.com": ("daemon", ""),
}


def objects(world: Mapping[str, Any], given: Mapping[str, Any]) -> list[Object]:
    """Return the device classes."""
    del world, given
    return [device_class(name, DRIVER, kind, more.format(DRIVER)) for name, (kind, more) in CLASSES.items()]


def start(store: Store, world: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Controller, ...]:
    """Publish a channel and a daemon of every node, and return the controller of ComputeDomains."""
    devices = [
        {"name": f"{kind}-0", "attributes": {"type": {"string": kind}, "id": {"int": 0}}}
        for kind in ("channel", "daemon")
    ]
    for name in node_names(world)[0]:
        node = store.get("nodes", None, name)
        if node is not None and name not in (given.get("missing") or []):
            publish(store, node, DRIVER, devices)
    return (ComputeDomainController(store),)


class ComputeDomainController(OwnerController):
    """The controller that creates the template of a ComputeDomain."""

    key, component, owns = KEY, "compute-domain-controller", ()

    def reconcile(self, obj: Object) -> float | None:
        """Reconcile one domain."""
        name = obj["spec"]["channel"]["resourceClaimTemplate"]["name"]
        parameters = {
            "apiVersion": "resource.nvidia.com/v1beta1",
            "kind": "ComputeDomainChannelConfig",
            "domainID": obj["metadata"]["uid"],
            "allocationMode": obj["spec"]["channel"].get("allocationMode", "Single"),
        }
        config = {"requests": ["channel"], "opaque": {"driver": DRIVER, "parameters": parameters}}
        request = {
            "name": "channel",
            "exactly": {
                "deviceClassName": "compute-domain-default-channel.nvidia.com",
                "allocationMode": "ExactCount",
                "count": 1,
            },
        }
        self.ensure(
            obj,
            "resourceclaimtemplates.resource.k8s.io",
            {"metadata": {"name": name}, "spec": {"spec": {"devices": {"requests": [request], "config": [config]}}}},
        )
        obj.setdefault("status", {})["status"] = "Ready"
        self.write(obj)
        return None
