"""Scenarios: YAML files with a world (changes to a platform), at most one fault in it, and the expected findings.

Shipped scenarios are loaded by name, a user's own by path:

    name: one-port-down              # lower case, digits, dashes
    title: One InfiniBand port is down
    breaks: the cable of mlx5_3 on gpu-node-1 was pulled
    faults:                          # the expected faults, and no others; [] for a healthy world
      - {fault: nccl.rail-missing, subject: gpu-node-1}   # its subjects: a name, a pattern (*), or a list;
                                                          # tells: TEXT that its findings must contain
    outcome: no-go                   # go | no-go | inconclusive, or a list of those that are right
    extends: healthy-storage        # optional: a scenario, or a file next to this one, whose world, run and
                                    # API faults this one changes; null removes, objects are changed by kind and name
    run: {profile: h100-ib, options: [--tenant]}          # optional: how the trial is started
    world:                           # optional; see WORLD below for the keys
      hardware: {gpu-node-1: {rdma: {devices: {mlx5_3: {state: DOWN}}}}}
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from .chaos.api_faults import ApiFaults
from .format import PLATFORM, WORLD, ScenarioError, check, check_places, check_world, compose, merge, nearest, read_yaml
from .rehearsal import read_faults, read_run, read_words

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Scenario", "ScenarioError", "load", "merge", "names", "platform_names"]

SHIPPED = Path(__file__).parent / "scenarios"
PLATFORMS = Path(__file__).parent / "hardware" / "platforms"
OUTCOMES = ("go", "no-go", "inconclusive")
TOP = {
    "name": str,
    "title": str,
    "breaks": str,
    "extends": str,
    "faults": list,
    "outcome": (str, list),
    "run": dict,
    "world": dict,
    "api_faults": (str, dict),
}
# Defaults of a platform without GPUs or a fabric.
BARE: dict[str, Any] = {"gpu": {"resource": "nvidia.com/gpu", "count": 0}, "fabric": {}, "node_name": "gpu-node-{n}"}
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A world, its fault, and the expected findings."""

    name: str
    title: str
    breaks: str
    faults: tuple[str, ...]
    outcomes: tuple[str, ...]
    platform: str
    world: Mapping[str, Any] = field(repr=False)
    api_faults: ApiFaults | None = None
    subjects: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # fault -> its subjects; none: not checked
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # fault -> texts that its findings must contain
    run: Mapping[str, Any] = field(default_factory=dict)  # how a rehearsal starts the trial; see rehearsal.py

    def summary(self) -> dict[str, Any]:
        """Return the entry in `--list --json`."""
        return {
            "name": self.name,
            "title": self.title,
            "breaks": self.breaks,
            "faults": list(self.faults),
            "subjects": {fault: list(subjects) for fault, subjects in self.subjects.items()},
            "words": {fault: list(words) for fault, words in self.words.items()},
            "outcomes": list(self.outcomes),
            "platform": self.platform,
            "run": dict(self.run),
            **({"api_faults": str(self.api_faults)} if self.api_faults else {}),
        }

    def under(self, api_faults: ApiFaults) -> Scenario:
        """Return the same scenario under these API faults."""
        return replace(self, api_faults=api_faults)


@functools.cache
def names() -> tuple[str, ...]:
    """Return the shipped scenarios, the healthy one first."""
    shipped = sorted(path.stem for path in SHIPPED.glob("*.yaml"))
    return tuple(sorted(shipped, key=lambda name: name != "healthy"))


def load(ref: str) -> Scenario:
    """Return a scenario by name, by path, or `replay=FILE`: healthy, but the collective prints that log.

    `?api-faults=NAME&seed=N` after any of them makes the API server faulty (see chaos/api_faults.py). Raises
    `ScenarioError` with one line that names the error and its place.
    """
    match = re.fullmatch(r"(.*?)\?((?:api-faults|weather|seed)=.*)", ref)
    if match:
        asked = dict(parse_qsl(match[2].replace("weather=", "api-faults="), keep_blank_values=True))  # its former name
        check(asked, {"api-faults": str, "seed": str}, ref)
        base = load(match[1])
        kind = asked.get("api-faults") or (base.api_faults.name if base.api_faults else "")
        return base.under(ApiFaults.parse(f"{kind}:{asked['seed']}" if "seed" in asked else kind))
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
    return Scenario(
        ref,
        f"Healthy, but the collective prints {path.name}",
        "depends on the log",
        (),
        OUTCOMES,
        healthy.platform,
        world,
    )


def _document(path: Path, trail: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read a scenario's file and merge its world, API faults and run over those of the scenario that it extends."""
    where = path.stem if path.parent == SHIPPED else str(path)
    data = read_yaml(path)
    if "weather" in data:  # its former name
        data["api_faults"] = data.pop("weather")
    check(data, TOP, where)
    for key in ("name", "title", "breaks", "faults", "outcome"):
        if key not in data:
            raise ScenarioError(f"scenario {where}: {key!r} is missing")
    check_world(data.get("world") or {}, WORLD, where)
    parent = data.pop("extends", None)
    if not parent:
        return data
    if path in trail:
        raise ScenarioError(f"scenario {where}: scenarios extend each other")
    sibling = path.parent / parent
    if not (parent.endswith((".yaml", ".yml")) and sibling.is_file()) and parent not in names():
        raise ScenarioError(f"scenario {where}: extends: unknown scenario {parent!r}{nearest(parent, names())}")
    below = _document(SHIPPED / f"{parent}.yaml" if parent in names() else sibling, (*trail, path))
    run = _overridden(below.get("run") or {}, data.get("run") or {})
    world = compose(below.get("world") or {}, data.get("world") or {})
    world["objects"] = _both(*((each.get("world") or {}).get("objects") or [] for each in (below, data)))
    inherited = {"api_faults": below["api_faults"]} if "api_faults" in below else {}
    return {**inherited, **data, "world": world, "run": run}


def _overridden(below: Any, above: Any) -> Any:
    """Merge two maps: null removes a value; a null without a value to remove is kept for the profile."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    gone = {key for key, value in above.items() if value is None and key in below}
    changed = {key: _overridden(below.get(key), value) for key, value in above.items() if key not in gone}
    return {key: value for key, value in below.items() if key not in gone} | changed


def _read(path: Path) -> Scenario:
    where = path.stem if path.parent == SHIPPED else str(path)
    data = _document(path)
    if not _NAME.fullmatch(data["name"]):
        raise ScenarioError(f"scenario {where}: name {data['name']!r} is not lower-case letters, digits and dashes")
    outcomes = [data["outcome"]] if isinstance(data["outcome"], str) else data["outcome"]
    for outcome in outcomes:
        if outcome not in OUTCOMES:
            raise ScenarioError(f"scenario {where}: outcome {outcome!r}{nearest(str(outcome), OUTCOMES)}")
    faults = read_faults(data["faults"], f"scenario {where}")
    run = read_run(data.get("run") or {}, f"scenario {where}", path.parent)
    changes = data.get("world") or {}
    platform = _platform(changes.get("platform", "h100-ib"), path.parent)
    apart = ("platform", "node", "objects")
    world = merge(platform, {key: value for key, value in changes.items() if key not in apart})
    world["node_changes"] = changes.get("node", {})  # applied to the Node objects, where null removes a field
    world["objects"] = _over(platform.get("objects", []), changes.get("objects", []))
    check_places(world, where)
    api_faults = ApiFaults.read(data["api_faults"], f"scenario {where}") if "api_faults" in data else None
    return Scenario(
        data["name"],
        data["title"],
        data["breaks"],
        tuple(faults),
        tuple(outcomes),
        platform["name"],
        world,
        api_faults,
        {f: s for f, s in faults.items() if s},
        read_words(data["faults"]),
        run,
    )


def _over(objects: list[Any], changes: list[Any]) -> list[Any]:
    """Add objects to those of a platform; an existing one is changed by a merge patch, or removed."""
    merged = {_identity(obj): obj for obj in objects}
    for number, change in enumerate(changes):
        known = _identity(change)
        name = known if known[-1] else (*known, number)  # generateName: each is a new object
        if isinstance(change, dict) and change.get("absent"):
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), change)
    return list(merged.values())


def _both(below: list[Any], above: list[Any]) -> list[Any]:
    """Return two lists of changes to a platform's objects as one."""
    by_identity = {_identity(each): each for each in below}
    for number, each in enumerate(above):
        known = _identity(each)
        name = known if known[-1] else (*known, number)
        gone = isinstance(each, dict) and each.get("absent")
        by_identity[name] = each if gone or name not in by_identity else compose(by_identity[name], each)
    return list(by_identity.values())


def _identity(obj: Any) -> tuple[Any, ...]:
    if not isinstance(obj, dict):
        return (str(obj), "")
    meta = obj.get("metadata") or {}
    return obj.get("apiVersion"), obj.get("kind"), meta.get("namespace"), meta.get("name")


@functools.cache
def platform_names() -> tuple[str, ...]:
    """Return the shipped platforms."""
    return tuple(sorted(path.stem for path in PLATFORMS.glob("*.yaml")))


_shipped_platform = functools.cache(read_yaml)
"""Cached, since hundreds of scenarios use a few platforms."""


def _platform(ref: str, folder: Path, trail: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read a platform, shipped or next to the scenario, and merge it over the one that it extends."""
    if ref in platform_names():
        path = PLATFORMS / f"{ref}.yaml"
    elif ref.endswith((".yaml", ".yml")) and (folder / ref).is_file():
        path = folder / ref
    else:
        raise ScenarioError(f"unknown platform {ref!r}{nearest(ref, platform_names())}")
    if str(path) in trail:
        raise ScenarioError(f"platform {ref}: platforms extend each other")
    data = dict(_shipped_platform(path) if path.parent == PLATFORMS else read_yaml(path))
    check_world(data, PLATFORM, f"platform {ref}")
    if "name" not in data:
        raise ScenarioError(f"platform {ref}: 'name' is missing")
    parent = data.pop("extends", None)
    below = _platform(parent, path.parent, (*trail, str(path))) if parent else BARE
    whole: dict[str, Any] = merge(below, data)
    for key in ("version", "node"):
        if key not in whole:
            raise ScenarioError(f"platform {ref}: {key!r} is missing")
    return whole
