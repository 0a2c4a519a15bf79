"""NVIDIA's DRA driver: device classes, and slices that list the GPUs of every node.

Nodes then offer no extended resource, unless `device_plugin: true` keeps the device plugin, too. `missing` names nodes
with a failed kubelet plugin: the kubelet has withdrawn their slices. `classes: false`: the chart was installed without
its device classes. Names are those of k8s-dra-driver-gpu v25.8.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..apiserver.schema.values import suffix
from ..controlplane.scheduler.devices import SLICES
from ..format import node_names
from ..hardware.pods import Hardware

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..apiserver.store import Store
    from ..controlplane import Controller

Object = dict[str, Any]
DRIVER = "gpu.nvidia.com"


def objects(world: Mapping[str, Any], given: Mapping[str, Any]) -> list[Object]:
    """Return the device classes."""
    del world
    kinds = {"gpu.nvidia.com": "gpu", "mig.nvidia.com": "mig"} if given.get("classes", True) else {}
    return [device_class(name, DRIVER, kind) for name, kind in kinds.items()]


def device_class(name: str, driver: str, kind: str, more: str = "") -> Object:
    """Return the class for a driver's devices of one type."""
    expression = f"device.driver == '{driver}' && device.attributes['{driver}'].type == '{kind}'{more}"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def start(store: Store, world: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Controller, ...]:
    """Publish the slices of all nodes; this needs no controller."""
    hardware = Hardware(store, world, "", Path("/nonexistent"))
    for name in node_names(world)[0]:
        node = store.get("nodes", None, name)
        if node is not None and name not in (given.get("missing") or []):
            publish(store, node, DRIVER, [_device(world["gpu"], gpu) for gpu in hardware.gpus_of_node(name)])
    return ()


def publish(store: Store, node: Object, driver: str, devices: list[Object]) -> None:
    """Store one slice of a node's devices."""
    name = node["metadata"]["name"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"], "controller": True}
    store.load(
        SLICES,
        {
            "metadata": {
                "name": f"{name}-{driver}-{suffix()}",
                "generateName": f"{name}-{driver}-",
                "generation": 1,
                "ownerReferences": [owner],
            },
            "spec": {
                "driver": driver,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            },
        },
    )


def _device(kind: Mapping[str, Any], gpu: Mapping[str, Any]) -> Object:
    """Return the driver's description of one GPU."""
    texts = {
        "type": "gpu",
        "uuid": gpu["uuid"],
        "productName": kind.get("name", ""),
        "brand": "Nvidia",
        "architecture": kind.get("architecture", "Hopper"),
        "pcieBusID": gpu["bus_id"][4:].lower(),
    }
    versions = {
        "driverVersion": kind.get("driver", ""),
        "cudaDriverVersion": f"{kind.get('cuda', '')}.0",
        "cudaComputeCapability": f"{kind.get('compute', '')}.0",
    }
    root = f"pci{gpu['bus_id'][4:8]}:{gpu['bus_id'][9:11].lower()}"
    return {
        "name": f"gpu-{gpu['physical']}",
        "attributes": {
            **{name: {"string": text} for name, text in texts.items()},
            **{name: {"version": text.lstrip("0") or "0"} for name, text in versions.items()},
            "index": {"int": gpu["physical"]},
            "minor": {"int": gpu["physical"]},
            "resource.kubernetes.io/pcieRoot": {"string": root},
        },
        "capacity": {"memory": {"value": f"{kind.get('memory_mib', 0)}Mi"}},
    }
