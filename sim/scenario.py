"""Which worlds can the cluster in a box play, and what is wrong in each of them?

A scenario is a YAML file: a world (changes to a platform), at most one broken thing in it, and what must be found.
Shipped ones are known by name; a path works as well, so that anybody can write their own:

    name: one-port-down              # lower case, digits, dashes
    title: One InfiniBand port is down
    breaks: the cable of mlx5_3 on gpu-node-1 was pulled
    faults: [nccl.rail-missing]      # ids that must be found, and no others; [] for a healthy world
    outcome: no-go                   # go | no-go | inconclusive, or a list of those that are right
    world:                           # optional; see WORLD below for the keys
      hardware: {gpu-node-1: {rdma: {devices: {mlx5_3: {state: DOWN}}}}}
"""

from __future__ import annotations

import copy
import difflib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SHIPPED = Path(__file__).parent / "scenarios"
PLATFORMS = Path(__file__).parent / "platforms"
OUTCOMES = ("go", "no-go", "inconclusive")
TOP = {"name": str, "title": str, "breaks": str, "faults": list, "outcome": (str, list), "world": dict}

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
    "api": {"listens": bool},
}
WORKLOAD = {
    "kind": str, "api_version": str, "namespace": str, "image": str, "replicas": int, "where": str, "ordinal": bool,
    "labels": dict, "requests": dict, "broken": dict,
}  # fmt: skip
HARDWARE: dict[str, dict[str, Any]] = {
    "rdma": {"mounted": bool, "gdr": bool, "devices": dict},
}
PLATFORM: dict[str, Any] = {
    **WORLD, "name": str, "title": str, "version": str, "node_name": str, "gpu": dict, "fabric": dict,
    "gpu_labels": dict, "fabric_labels": dict,
}  # fmt: skip
SPOKEN = {
    "str": "text", "int": "a whole number", "float": "a number", "list": "a list", "dict": "a map",
    "bool": "true or false",
}  # fmt: skip
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


class ScenarioError(Exception):
    """A scenario or platform that does not exist or is wrong; one line, with the nearest right word."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A world, what is broken in it, and what must be found."""

    name: str
    title: str
    breaks: str
    faults: tuple[str, ...]
    outcomes: tuple[str, ...]
    platform: str
    world: Mapping[str, Any] = field(repr=False)

    def summary(self) -> dict[str, Any]:
        """Return what `--list --json` shows."""
        return {
            "name": self.name,
            "title": self.title,
            "breaks": self.breaks,
            "faults": list(self.faults),
            "outcomes": list(self.outcomes),
            "platform": self.platform,
        }


def names() -> tuple[str, ...]:
    """Return the shipped scenarios, the healthy one first."""
    found = sorted(path.stem for path in SHIPPED.glob("*.yaml"))
    return tuple(sorted(found, key=lambda name: name != "healthy"))


def load(ref: str) -> Scenario:
    """Return a scenario by name, by path, or `replay=FILE`: healthy, but the collective prints that log.

    Raises `ScenarioError` with one line that says what is wrong and where.
    """
    if ref.startswith("replay="):
        return _replay(ref)
    if ref.endswith((".yaml", ".yml")) or "/" in ref:
        path = Path(ref)
        if not path.is_file():
            raise ScenarioError(f"no scenario file {ref!r}")
        return _read(path)
    if ref not in names():
        raise ScenarioError(f"unknown scenario {ref!r}{nearest(ref, [*names(), 'replay=FILE'])}")
    return _read(SHIPPED / f"{ref}.yaml")


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


def _replay(ref: str) -> Scenario:
    path = Path(ref.partition("=")[2])
    if path.is_dir():
        raise ScenarioError(f"{ref}: {path} is a directory; a recorded log is needed")
    if not path.is_file():
        raise ScenarioError(f"{ref}: no such file")
    if path.stat().st_size == 0:
        raise ScenarioError(f"{ref}: the file is empty")
    healthy = load("healthy")
    world = merge(healthy.world, {"collective": {"replay": str(path.resolve())}})
    return Scenario(ref, f"Healthy, but the collective prints {path.name}", "depends on the log", (), OUTCOMES,
                    healthy.platform, world)  # fmt: skip


def _read(path: Path) -> Scenario:
    where = path.stem if path.parent == SHIPPED else str(path)
    data = _yaml(path)
    check(data, TOP, where)
    for key in ("name", "title", "breaks", "faults", "outcome"):
        if key not in data:
            raise ScenarioError(f"scenario {where}: {key!r} is missing")
    if not _NAME.fullmatch(data["name"]):
        raise ScenarioError(f"scenario {where}: name {data['name']!r} is not lower-case letters, digits and dashes")
    outcomes = [data["outcome"]] if isinstance(data["outcome"], str) else data["outcome"]
    for outcome in outcomes:
        if outcome not in OUTCOMES:
            raise ScenarioError(f"scenario {where}: outcome {outcome!r}{nearest(str(outcome), OUTCOMES)}")
    if not all(isinstance(fault, str) for fault in data["faults"]):
        raise ScenarioError(f"scenario {where}: faults must be a list of fault ids")
    changes = data.get("world") or {}
    check_world(changes, WORLD, where)
    platform = _platform(changes.get("platform", "h100-ib"), path.parent)
    world = merge(platform, {key: value for key, value in changes.items() if key not in ("platform", "node")})
    world["node_changes"] = changes.get("node", {})  # applied to the Node objects, where null removes
    return Scenario(data["name"], data["title"], data["breaks"], tuple(data["faults"]), tuple(outcomes),
                    platform["name"], world)  # fmt: skip


def _platform(ref: str, folder: Path) -> dict[str, Any]:
    shipped = sorted(path.stem for path in PLATFORMS.glob("*.yaml"))
    if ref in shipped:
        path = PLATFORMS / f"{ref}.yaml"
    elif ref.endswith((".yaml", ".yml")) and (folder / ref).is_file():
        path = folder / ref
    else:
        raise ScenarioError(f"unknown platform {ref!r}{nearest(ref, shipped)}")
    data = _yaml(path)
    check_world(data, PLATFORM, f"platform {ref}")
    for key in ("name", "version", "node_name", "gpu", "fabric", "node"):
        if key not in data:
            raise ScenarioError(f"platform {ref}: {key!r} is missing")
    return data


def check_world(world: Mapping[str, Any], allowed: Mapping[str, Any], where: str) -> None:
    """Check the keys and types of a world, down to the parts whose keys are fixed."""
    check(world, allowed, where)
    for key, keys in NESTED.items():
        check(world.get(key, {}), keys, f"{where}: {key}")
    for name, workload in world.get("workloads", {}).items():
        check(workload, WORKLOAD, f"{where}: workloads: {name}")
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
        if key not in allowed:
            raise ScenarioError(f"{where}: unknown key {key!r}{nearest(str(key), allowed)}")
        wanted = allowed[key] if isinstance(allowed[key], tuple) else (allowed[key],)
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            kinds = " or ".join(SPOKEN[kind.__name__] for kind in wanted)
            raise ScenarioError(f"{where}: {key} must be {kinds}, not {value!r}")


def _yaml(path: Path) -> dict[str, Any]:
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
