"""NodeResourceTopology objects, as node feature discovery's updater writes them.

`policy` and `scope` are the kubelet's Topology Manager settings; a world's hardware.NODE.topology_policy takes
precedence. The use of pods is not subtracted: the updater's figures are those of an idle node.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ..apiserver.schema.quantity import form, render
from ..apiserver.schema.quantity import value as parse
from ..format import merge, node_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..apiserver.store import Store
    from ..controlplane import Controller

Object = dict[str, Any]
KEY = "noderesourcetopologies.topology.node.k8s.io"
NEAR, FAR = 10, 20
"""Distances that the kernel reports for the own and for the other socket."""


def start(store: Store, world: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Controller, ...]:
    """Create the object of every node with GPUs."""
    hardware, gpu = world.get("hardware", {}), world["gpu"]
    for name in node_names(world)[0]:
        node = store.get("nodes", None, name)
        if node is None or store.get(KEY, None, name) is not None:
            continue
        changes = merge(hardware.get("*", {}), hardware.get(name, {})) or {}
        policy = changes.get("topology_policy") or given.get("policy", "none")
        store.create(
            KEY,
            {
                "metadata": {"name": name},
                "attributes": [
                    {"name": "topologyManagerPolicy", "value": policy},
                    {"name": "topologyManagerScope", "value": given.get("scope", "container")},
                ],
                "zones": _zones(node, gpu),
            },
        )
    return ()


def _zones(node: Object, gpu: Mapping[str, Any]) -> list[Object]:
    """Return the zones: CPUs and memory are split evenly, GPUs are assigned by location."""
    offered = node["status"].get("allocatable") or {}
    places = Counter(gpu.get("numa", []))
    zones = sorted(places) or [0]
    entries = []
    for zone in zones:
        amounts = {
            name: render(Fraction(int(parse(offered[name]) / len(zones))), form(offered[name]))
            for name in ("cpu", "memory")
            if name in offered
        }
        if gpu.get("resource") in offered:
            amounts[gpu["resource"]] = str(min(places[zone], int(parse(offered[gpu["resource"]]))))
        entries.append(
            {
                "name": f"node-{zone}",
                "type": "Node",
                "costs": [{"name": f"node-{other}", "value": NEAR if other == zone else FAR} for other in zones],
                "resources": [
                    {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
                    for name, amount in amounts.items()
                ],
            }
        )
    return entries
