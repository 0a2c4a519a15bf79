"""The format of scenario and platform files: the allowed keys, and the errors for others.

An unknown word is rejected with the nearest valid one: if a typing mistake left the cluster healthy, the scenario would
test nothing.
"""

from __future__ import annotations

import copy
import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Keys of a world, and the type of each value. A platform has the same keys and more (PLATFORM).
WORLD: dict[str, Any] = {
    "platform": str,  # a shipped platform, or the path of a file
    "nodes": int,  # number of GPU nodes
    "cpu_nodes": int,  # number of nodes without GPUs
    "node_name": str,  # name pattern of GPU nodes, with {n}
    "version": str,  # of the API server and, unless a node has its own, of the kubelets
    "crowd": dict,  # numbers of existing ended pods, events and namespaces
    "pools": dict,  # name -> further GPU nodes that differ from the first, see POOL
    "node": dict,  # node name or "*" -> merge patch of the Node object
    "operators": list,  # names, or {name: options}: see operators/registry.py
    "objects": list,  # further API objects; an existing one is changed, or removed with `absent: true`
    "workloads": dict,  # name -> running workloads, as objects; merged with the platform's
    "user": dict,  # the kubeconfig's user: name, rules (in the namespace), cluster_rules
    "registry": dict,  # existing images and their content, see NESTED
    "happens": list,  # events while a job runs, see node_events.py
    "host_paths": list,  # folders of the nodes that pods may mount
    "dns": dict,  # mode: ok | servfail | timeout | nxdomain; delay_s; wrong_address
    "fabric": dict,  # the network for training, see NESTED
    "hardware": dict,  # node name or "*" -> gpu, gpus, rdma
    "collective": dict,  # behaviour of collectives
    "api": dict,  # listens: false; clock_skew_s: its clock minus ours; latency_s: delay of every response;
    # reaches_kubelets: false: logs cannot be read
}
NESTED: dict[str, dict[str, Any]] = {
    "user": {"name": str, "rules": list, "cluster_rules": list, "token": str},
    "registry": {
        "missing": list,  # patterns of images that cannot be pulled
        "lacks": dict,  # pattern -> commands and libraries that the image lacks
        "programs": dict,  # pattern -> paths of daemons in it: they run, and do nothing
        "dcgm": str,  # the version of DCGM in the images
        "perftest": str,  # the version of perftest; with suffix "cuda" it can use GPU memory
        "slow": dict,  # pattern -> seconds of a pull
    },
    "dns": {"mode": str, "delay_s": (int, float), "wrong_address": str},
    "collective": {
        "hang": bool,  # the ranks connect, the first collective never ends
        "wrong": int,  # wrong elements per row
        "bandwidth_scale": (int, float),  # share of the nominal rate between nodes
        "log_limit_bytes": int,  # size at which the file system of the debug files is full
        "socket_ranks": list,  # ranks whose process cannot open an RDMA device
        "replay": str,  # a recorded log that rank 0 prints instead
        "says": list,  # further lines of NCCL's log, see SAYS
        "processes": int,  # on each node, independent of torchrun's arguments
        "dies": dict,  # a process ends with an NCCL error during a collective, see DIES
        "paths": list,  # between nodes, see PATH
        "checkpoint": dict,  # wrong: number of wrong values in a loaded state
        "op_scale": dict,  # collective (sendrecv, all_to_all) -> share of its nominal rate between nodes
        "noise": (int, float),  # slowdown between nodes in a third of the repeats
        "training": dict,  # see TRAINING
        "torch": str,
        "nccl": str,
        "curves": dict,  # ring, tree, socket, nvlink, nvlink-ring -> [GB/s, us, us]
    },
    "fabric": {
        "link_layer": str,  # InfiniBand | Ethernet | Unknown (EFA), as in sysfs
        "rate_gbps": (int, float),  # rate of one NIC
        "devices": list,  # names of a node's RDMA devices, in the order of their GPUs
        "resource": str,  # the extended resource with which a pod requests them
        "shares": int,  # number of them that a node offers
        "exclusive": bool,  # a pod gets as many devices as it requests; else one share has all of them
        "verbs": bool,  # false: the NICs are not RDMA devices, and only the plugin can use them
        "networks": dict,  # networks that Multus attaches, see NETWORKS
        "plugin": dict,  # the network plugin that NCCL needs here, see PLUGIN
        "mnnvl": dict,  # NVLink between nodes, see MNNVL
    },
    "crowd": {"pods": int, "events": int, "namespaces": int},
    "api": {"listens": bool, "clock_skew_s": (int, float), "latency_s": (int, float), "reaches_kubelets": bool},
}
# Secondary networks: an object for each name; a pod that requests one gets its device and address.
NETWORKS = {
    "dialect": str,  # multus (NetworkAttachmentDefinition) | gke (Network of networking.gke.io)
    "namespace": str,
    "names": list,
    "mtu": int,
    "subnet": str,  # "192.168.{n}.0/24"; n is the number of the network
    "plugins": list,  # the chain of CNI plugins of each definition
}
# A network plugin of NCCL: without it (registry: lacks), NCCL falls back to its built-in networks.
PLUGIN = {
    "file": str,  # the library
    "network": str,  # the name that NCCL prints
    "interface": str,  # the version of NCCL's plugin interface, "v11"
    "cards_per_device": int,  # number of NICs that the plugin combines to one device
    "says": list,  # lines that it prints at start; {count} NICs. "WARN PLACE|TEXT" is a warning.
    "refuses": list,  # lines that it prints if the pod has no NIC, or no daemon
    "daemon": str,  # pattern of an image: the plugin needs a container of it
    "cannot_load": str,  # NCCL's line if it cannot load this library
    "host_path": str,  # the plugin is not in the image, but in a folder of the node that the pod must mount
}
# NVLink between nodes: pods need an IMEX channel, which a claim of this device class provides.
MNNVL = {"device_class": str, "clique": str}
# Additional lines of NCCL's log. `when`: begin (after the version) | network (after its choice) | end.
SAYS = {"text": str, "level": str, "place": str, "subsystem": str, "when": str, "ranks": list, "nodes": list}
# `text`: the WARN line of the failing processes (`ranks`, or all of `nodes`); `then`: further lines; `result`:
# ncclResult; `span`: only over this number of nodes.
DIES = {"text": str, "then": list, "place": str, "result": int, "ranks": list, "nodes": list, "scope": str, "span": int}
# `exposed`: this share of a step is communication; `waves`: interval in steps of slow ones; `loss`: stays constant;
# `hangs`: the steps never end; `fails`: the error of the ranks (of `nodes`, or all).
TRAINING = {"exposed": (int, float), "waves": int, "loss": str, "hangs": bool, "fails": str, "nodes": list}
# A slow path: between `nodes` and `to` (by default all others), on `rails` (default all), `every` so many uses.
PATH = {"nodes": list, "to": list, "rails": list, "scale": (int, float), "every": int}
POOL = {"nodes": int, "node_name": str, "node": dict, "gpu": dict, "labels": dict}
WORKLOAD = {
    "kind": str,
    "api_version": str,
    "namespace": str,
    "image": str,
    "replicas": int,
    "where": str,
    "ordinal": bool,
    "labels": dict,
    "requests": dict,
    "broken": dict,
    "nodes": list,  # only on these nodes
}
HARDWARE: dict[str, dict[str, Any]] = {
    "rdma": {"mounted": bool, "attached": bool, "gdr": bool, "devices": dict},
    "network": {
        "mtu": int,  # of the pods' own interface
        "hole": int,  # larger packets are dropped silently on their way out of a pod
        "path_mtu": int,  # larger packets are rejected by ICMP on their way to a pod
        "mbit_s": int,  # maximum rate with which pods send and receive
    },
    "pci": {"readable": bool, "acs": bool},  # pods may read the whole configuration; ACS is on
}
# Keys of a node's GPUs, and further keys of a single one.
GPU = frozenset(
    {
        "name",
        "architecture",
        "memory_mib",
        "memory_free_mib",
        "driver",
        "cuda",
        "compute",
        "vbios",
        "board_part",
        "gpu_part",
        "device_id",
        "subsystem_id",
        "nvlinks",
        "nvlinks_active",
        "nvlink_gbps",
        "power_limit_w",
        "fabric_state",
        "fabric_status",
        "nvls",
        "smi_error",
        "temperature_c",
        "power_w",
        "persistence",
        "mig",
        "p2p",
        "nvlink_scale",
        "visible_all",
        "vendor",
        "recovery_action",
        "wrong",
        "lost",
        "kernel_log",
        "ecc_volatile",
        "ecc_corrected",
        "ecc_aggregate",
        "retired_pending",
        "remap_pending",
        "remap_failure",
        "throttle",
        "dcgm",  # test -> its result
        "compute_scale",
        "nan_step",
        "product_differs",
    }
)
ONE_GPU = GPU | {"uuid", "bus_id", "numa", "cpus", "serial"}
DEVICE = frozenset(
    {
        "name",
        "port",
        "state",
        "rate_gbps",
        "rail",
        "link_layer",
        "numa",
        "guid",
        "opens",
        "gid",  # false: the GID table is empty
        "pkeys",  # the P_Key table
        "fw",  # the firmware's version
        "mtu",  # of the interface that is attached with it
        "slot",  # slot of the NIC: gpu3 (next to that GPU), numa1 (anywhere on that socket)
        "errors",  # counter -> its growth in each collective
        "writes",  # gbit_s of ib_write_bw, gpu_gbit_s with GPU memory; or its error message
    }
)
PLATFORM: dict[str, Any] = {
    **WORLD,
    "name": str,
    "title": str,
    "cpu_node_name": str,
    "gpu": dict,
    "gpu_labels": dict,
    "fabric_labels": dict,
    "gpu_node": dict,
    "extends": str,
}
SPOKEN = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "list": "a list",
    "dict": "a map",
    "bool": "true or false",
}


HERE = Path(__file__).resolve().parent
_OWN: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ScenarioError(Exception):
    """A missing or invalid scenario or platform; one line, with the nearest valid word."""


SHOWN = 20
"""Maximum number of known words in an error."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return " (did you mean ...?)", or the first known words if none is near."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1)
    if near:
        return f" (did you mean {near[0]!r}?)"
    return f" (known: {', '.join(names[:SHOWN])}{f' and {len(names) - SHOWN} more' if len(names) > SHOWN else ''})"


def merge(base: Any, patch: Any) -> Any:
    """Return base with a JSON merge patch (RFC 7386) applied: maps are merged, null removes, other values replace."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def compose(below: Any, above: Any) -> Any:
    """Combine two merge patches: maps are merged, other values of the upper one replace, and its nulls still remove."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return copy.deepcopy(above)
    return {**below, **{key: compose(below.get(key), value) for key, value in above.items()}}


def check_world(world: Mapping[str, Any], allowed: Mapping[str, Any], where: str) -> None:
    """Check the keys and types of a world, including parts with fixed keys."""
    check(world, allowed, where)
    for key, keys in NESTED.items():
        check(world.get(key, {}), keys, f"{where}: {key}")
    fabric = world.get("fabric", {})
    check(fabric.get("networks") or {}, NETWORKS, f"{where}: fabric: networks")
    check(fabric.get("plugin") or {}, PLUGIN, f"{where}: fabric: plugin")
    check(fabric.get("mnnvl") or {}, MNNVL, f"{where}: fabric: mnnvl")
    for line in world.get("collective", {}).get("says") or []:
        check(line, SAYS, f"{where}: collective: says")
    for path in world.get("collective", {}).get("paths") or []:
        check(path, PATH, f"{where}: collective: paths")
    check(world.get("collective", {}).get("dies") or {}, DIES, f"{where}: collective: dies")
    check(world.get("collective", {}).get("training") or {}, TRAINING, f"{where}: collective: training")
    for name, pool in (world.get("pools") or {}).items():
        check(pool, POOL, f"{where}: pools: {name}")
    for name, workload in world.get("workloads", {}).items():
        check(workload or {}, WORKLOAD, f"{where}: workloads: {name}")
    for node, hardware in world.get("hardware", {}).items():
        kinds = {"gpu": dict, "gpus": dict, "rdma": dict, "imex": bool, "topology_policy": str}
        check(hardware, {**kinds, **dict.fromkeys(HARDWARE, dict)}, f"{where}: hardware: {node}")
        for part, keys in HARDWARE.items():
            check(hardware.get(part, {}), keys, f"{where}: hardware: {node}: {part}")
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
            continue  # null removes a platform's value
        if key not in allowed:
            raise ScenarioError(f"{where}: unknown key {key!r}{nearest(str(key), allowed)}")
        types = allowed[key] if isinstance(allowed[key], tuple) else (allowed[key],)
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            kinds = " or ".join(SPOKEN[kind.__name__] for kind in types)
            raise ScenarioError(f"{where}: {key} must be {kinds}, not {value!r}")


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a file; ScenarioError names it, the line, and the error there."""
    try:
        loader = _OWN if path.is_relative_to(HERE) else yaml.SafeLoader  # the one in Python has better messages
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 - both are safe
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
    """Return the names of nodes with GPUs, and of those without; kind's workers have no number, then 2, 3."""
    cpu = world.get("cpu_node_name", "cpu-node-{n}")
    return (
        [
            *(str(world["node_name"]).format(n=n) for n in range(world.get("nodes", 2))),
            *(name for names in pool_nodes(world).values() for name in names),
        ],
        [cpu.format(n=n, k=n + 1 if n else "") for n in range(world.get("cpu_nodes", 0))],
    )


def pool_nodes(world: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the nodes of each further pool."""
    return {
        pool: [str(each.get("node_name", pool + "-{n}")).format(n=n) for n in range(each.get("nodes", 2))]
        for pool, each in (world.get("pools") or {}).items()
    }


def check_places(world: Mapping[str, Any], where: str) -> None:
    """Check that all targets of a world's changes exist: nodes, GPUs, devices. A missing one would break nothing."""
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
        nics = (hardware.get("rdma") or {}).get("devices") or {}
        _known(nics, devices, f"{place}: rdma: devices")
        for name, nic in nics.items():
            _known(nic or {}, DEVICE, f"{place}: rdma: devices: {name}")


def _known(names: Iterable[Any], known: Iterable[str], where: str) -> None:
    choices = sorted(known)
    for name in map(str, names):
        if name not in choices:
            raise ScenarioError(f"{where}: unknown {name!r}{nearest(name, choices)}")
