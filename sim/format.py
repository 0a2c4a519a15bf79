"""Is a scenario or platform file written correctly? What may stand in one, and the words for what may not.

A word that is not known is refused with the nearest right one: a world in which nothing is broken because of a typing
mistake would rehearse nothing.
"""

from __future__ import annotations

import copy
import difflib
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

#: What a world may say, and the type of each value. A platform says the same and more (PLATFORM).
WORLD: dict[str, Any] = {
    "platform": str,  # a shipped platform, or the path of a file
    "nodes": int,  # how many GPU nodes
    "cpu_nodes": int,  # how many nodes without GPUs
    "node": dict,  # node name or "*" -> merge patch of the Node object
    "objects": list,  # further API objects, created as they stand
    "workloads": dict,  # name -> what runs already, as objects; merged with the platform's
    "user": dict,  # the kubeconfig's user: name, rules (in the namespace), cluster_rules
    "registry": dict,  # missing: patterns of images; lacks: pattern -> commands that images do not contain
    "dns": dict,  # mode: ok | servfail | timeout | nxdomain; delay_s; wrong_address
    "fabric": dict,  # the network for training, see NESTED
    "hardware": dict,  # node name or "*" -> gpu, gpus, rdma
    "collective": dict,  # how collectives behave
    "api": dict,  # listens: false
}
NESTED: dict[str, dict[str, Any]] = {
    "user": {"name": str, "rules": list, "cluster_rules": list},
    "registry": {"missing": list, "lacks": dict},
    "dns": {"mode": str, "delay_s": (int, float), "wrong_address": str},
    "collective": {
        "hang": bool,  # the ranks connect, the first collective never ends
        "wrong": int,  # wrong elements per row
        "bandwidth_scale": (int, float),  # share of the nominal rate between nodes
        "log_limit_bytes": int,  # the file system of the debug files is full then
        "socket_ranks": list,  # ranks whose process cannot open an RDMA device
        "replay": str,  # a recorded log that rank 0 prints instead
        "torch": str,
        "nccl": str,
        "curves": dict,  # ring, tree, socket, nvlink, nvlink-ring -> [GB/s, us, us]
    },
    "fabric": {
        "link_layer": str,  # InfiniBand | Ethernet | Unknown (EFA), as sysfs spells it
        "rate_gbps": (int, float),  # of one card
        "devices": list,  # names of a node's RDMA devices, in the order of the GPUs they sit beside
        "resource": str,  # the extended resource that brings them into a pod
        "shares": int,  # how many of it a node offers
        "exclusive": bool,  # a pod gets as many devices as it asks for; else one share brings all of them
        "networks": dict,  # what Multus attaches, see NETWORKS
        "plugin": dict,  # the network plugin that NCCL needs here, see PLUGIN
    },
    "api": {"listens": bool},
}
#: Secondary networks: a NetworkAttachmentDefinition for each name; a pod that asks for one gets its device and address.
NETWORKS = {
    "namespace": str, "names": list, "mtu": int, "subnet": str,  # "192.168.{n}.0/24", n counts the networks
    "plugins": list,  # the chain of CNI plugins of each definition
}  # fmt: skip
#: A network plugin of NCCL: where it is missing (registry: lacks), NCCL falls back to what it has built in.
PLUGIN = {
    "file": str,  # the library
    "network": str,  # the name that NCCL prints
    "interface": str,  # the version of NCCL's plugin interface, "v11"
    "cards_per_device": int,  # how many cards the plugin shows as one device
    "says": list,  # what it prints when it starts; {count} cards. "WARN PLACE|TEXT" is a warning.
    "refuses": list,  # what it prints when the pod has no card
}
WORKLOAD = {
    "kind": str, "api_version": str, "namespace": str, "image": str, "replicas": int, "where": str, "ordinal": bool,
    "labels": dict, "requests": dict, "broken": dict,
}  # fmt: skip
HARDWARE: dict[str, dict[str, Any]] = {
    "rdma": {"mounted": bool, "attached": bool, "gdr": bool, "devices": dict},
}
#: What may be said of the GPUs of a node, and of one of them besides.
GPU = frozenset({
    "name", "architecture", "memory_mib", "memory_free_mib", "driver", "cuda", "compute", "vbios", "board_part",
    "gpu_part", "device_id", "subsystem_id", "nvlinks", "nvlinks_active", "nvlink_gbps", "power_limit_w",
    "fabric_state", "fabric_status", "nvls", "smi_error", "temperature_c", "power_w", "persistence", "mig",
    "ecc_volatile", "ecc_aggregate", "retired_pending", "remap_pending", "remap_failure", "throttle",
})  # fmt: skip
ONE_GPU = GPU | {"uuid", "bus_id", "numa", "cpus", "serial"}
DEVICE = frozenset({"name", "port", "state", "rate_gbps", "rail", "link_layer", "numa", "guid"})
PLATFORM: dict[str, Any] = {
    **WORLD, "name": str, "title": str, "version": str, "node_name": str, "cpu_node_name": str, "gpu": dict,
    "gpu_labels": dict, "fabric_labels": dict, "extends": str,
}  # fmt: skip
SPOKEN = {
    "str": "text", "int": "a whole number", "float": "a number", "list": "a list", "dict": "a map",
    "bool": "true or false",
}  # fmt: skip


class ScenarioError(Exception):
    """A scenario or platform that does not exist or is wrong; one line, with the nearest right word."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return " (did you mean ...?)", or all words where none is near."""
    words = list(known)
    near = difflib.get_close_matches(word, words, n=1)
    return f" (did you mean {near[0]!r}?)" if near else f" (known: {', '.join(words)})"


def merge(base: Any, patch: Any) -> Any:
    """Return base with a JSON merge patch (RFC 7386) applied: maps are merged, null removes, all else replaces."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def check_world(world: Mapping[str, Any], allowed: Mapping[str, Any], where: str) -> None:
    """Check the keys and types of a world, down to the parts whose keys are fixed."""
    check(world, allowed, where)
    for key, keys in NESTED.items():
        check(world.get(key, {}), keys, f"{where}: {key}")
    fabric = world.get("fabric", {})
    check(fabric.get("networks") or {}, NETWORKS, f"{where}: fabric: networks")
    check(fabric.get("plugin") or {}, PLUGIN, f"{where}: fabric: plugin")
    for name, workload in world.get("workloads", {}).items():
        check(workload or {}, WORKLOAD, f"{where}: workloads: {name}")
    for node, hardware in world.get("hardware", {}).items():
        check(hardware, {"gpu": dict, "gpus": dict, "rdma": dict}, f"{where}: hardware: {node}")
        check(hardware.get("rdma", {}), HARDWARE["rdma"], f"{where}: hardware: {node}: rdma")
    modes = ("ok", "servfail", "timeout", "nxdomain")
    mode = world.get("dns", {}).get("mode", "ok")
    if mode not in modes:
        raise ScenarioError(f"{where}: dns: mode {mode!r}{nearest(mode, modes)}")


def check(data: Any, allowed: Mapping[str, Any], where: str) -> None:
    """Check that `data` is a map of known keys with values of the right types."""
    if not isinstance(data, dict):
        raise ScenarioError(f"{where}: a map is needed, not {type(data).__name__}")
    for key, value in data.items():
        if value is None and key in allowed:
            continue  # null takes away what a platform brings
        if key not in allowed:
            raise ScenarioError(f"{where}: unknown key {key!r}{nearest(str(key), allowed)}")
        wanted = allowed[key] if isinstance(allowed[key], tuple) else (allowed[key],)
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            kinds = " or ".join(SPOKEN[kind.__name__] for kind in wanted)
            raise ScenarioError(f"{where}: {key} must be {kinds}, not {value!r}")


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a file; ScenarioError names it, the line, and what is wrong there."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark else ""
        raise ScenarioError(f"{path}: no valid YAML{line}: {getattr(error, 'problem', error)}") from None
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from None
    if not isinstance(data, dict):
        raise ScenarioError(f"{path}: a map is needed at the top")
    return data


def node_names(world: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the names of the nodes with GPUs, and of those without; kind counts its workers: nothing, 2, 3."""
    cpu = world.get("cpu_node_name", "cpu-node-{n}")
    return (
        [str(world["node_name"]).format(n=n) for n in range(world.get("nodes", 2))],
        [cpu.format(n=n, k=n + 1 if n else "") for n in range(world.get("cpu_nodes", 0))],
    )


def check_places(world: Mapping[str, Any], where: str) -> None:
    """Check that everything a world changes is there: nodes, GPUs, devices. What is not would break nothing."""
    gpu_nodes, cpu_nodes = node_names(world)
    nodes = {*gpu_nodes, *cpu_nodes, "*"}
    nodes |= {str((o.get("metadata") or {}).get("name")) for o in world.get("objects", []) if o.get("kind") == "Node"}
    indexes = [str(n) for n in range((world.get("gpu") or {}).get("count", 0))]
    devices = world.get("fabric", {}).get("devices", [])
    for key in ("node_changes", "hardware"):
        _known(world.get(key) or {}, nodes, f"{where}: {key.removesuffix('_changes')}")
    for name, workload in world.get("workloads", {}).items():
        _known((workload or {}).get("broken") or {}, nodes, f"{where}: workloads: {name}: broken")
    for node, hardware in world.get("hardware", {}).items():
        place = f"{where}: hardware: {node}"
        _known(hardware.get("gpu") or {}, GPU, f"{place}: gpu")
        _known(hardware.get("gpus") or {}, indexes, f"{place}: gpus")
        for index, gpu in (hardware.get("gpus") or {}).items():
            _known(gpu or {}, ONE_GPU, f"{place}: gpus: {index}")
        cards = (hardware.get("rdma") or {}).get("devices") or {}
        _known(cards, devices, f"{place}: rdma: devices")
        for name, card in cards.items():
            _known(card or {}, DEVICE, f"{place}: rdma: devices: {name}")


def _known(names: Iterable[Any], known: Iterable[str], where: str) -> None:
    words = sorted(known)
    for name in map(str, names):
        if name not in words:
            raise ScenarioError(f"{where}: unknown {name!r}{nearest(name, words)}")
