"""Random pairs of faults on one fleet of eight nodes.

No run may end with go, and both faults are reported if both can be determined.

    python benchmarks/fault_pairs.py --pairs 200 --seed 1 [--kind preflight|trial|mixed|all] [--jobs 2]

Each fault is one that a shipped scenario puts on one node, moved to a separate node. Faults that preflight finds leave
seven nodes for the trial. A fault that ends the trial's job early may hide one that only the trial shows: those lines
say "one" and name the missing fault, for manual review.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
NODES = 8
SHIPPED = "gpu-node-1"
"""The node that is broken in the shipped scenarios."""
PREFLIGHT = {
    "node-not-ready",
    "gpu-missing",
    "rdma-resource-missing",
    "gfd-labels-disagree",
    "device-plugin-down-on-one-node",
    "toolkit-down-on-one-node",
    "node-pressure",
    "rdma-resource-short",
    "rdma-plugin-down",
}
SPARE = {"node-cordoned", "node-tainted", "unschedulable", "mig-single", "time-slicing"}
"""Faults that do not count if enough other nodes are free, as in a fleet."""


def single_node_faults() -> dict[str, tuple[dict[str, Any], tuple[str, ...]]]:
    """Return scenario -> (its world, its faults) for scenarios that break exactly one node of the default platform."""
    found = {}
    for path in sorted((ROOT / "lab/scenarios").glob("*.yaml")):
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        world = data.get("world") or {}
        faults = [f["fault"] if isinstance(f, dict) else f for f in data["faults"]]
        parts = {"node", "hardware", "workloads"}
        if not faults or data["outcome"] != "no-go" or data.get("run") or world.keys() - parts or not world:
            continue
        named = {node for key in ("node", "hardware") for node in world.get(key, {})}
        named |= {node for load in world.get("workloads", {}).values() for node in load.get("broken", {"?": 0})}
        if named == {SHIPPED} and data["name"] not in SPARE:
            found[data["name"]] = (world, tuple(faults))
    return found


def moved(world: Any, node: str) -> Any:
    """Return the world with the broken node renamed."""
    if isinstance(world, dict):
        return {(node if key == SHIPPED else key): moved(value, node) for key, value in world.items()}
    return world


def merged(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    """Merge both worlds."""
    both = dict(one)
    for key, value in two.items():
        both[key] = merged(both[key], value) if isinstance(value, dict) and isinstance(both.get(key), dict) else value
    return both


def run(name: str, world: dict[str, Any], command: str, trial_nodes: int) -> tuple[str, set[tuple[str, str]]]:
    """Run the world; return the verdict and every (subject, fault) that was reported."""
    with tempfile.TemporaryDirectory(prefix="fault-pairs-") as place:
        folder = Path(place)
        scenario = {
            "name": name,
            "title": name,
            "breaks": "two nodes",
            "faults": [],
            "outcome": "no-go",
            "world": {**world, "nodes": NODES},
        }
        (folder / "world.yaml").write_text(yaml.safe_dump(scenario), encoding="utf-8")
        (folder / "profile.yaml").write_text(f"extends: h100-ib\nnodes: {trial_nodes}\n", encoding="utf-8")
        given = ["--cluster", f"sim:{folder / 'world.yaml'}", "--profile", str(folder / "profile.yaml")]
        words = [sys.executable, "-m", "checks", command, *given, "--out", str(folder / "out")]
        subprocess.run(words, cwd=ROOT, capture_output=True, check=False)
        report = folder / "out" / "report.json"
        if not report.exists():
            return "no report", set()
        record = json.loads(report.read_text(encoding="utf-8"))
        told = {(f["subject"], f["fault"]) for c in record["checks"] for f in c["findings"] if f["fault"]}
        return record["verdict"], told


def found(told: set[tuple[str, str]], node: str, faults: tuple[str, ...]) -> bool:
    """Return whether a fault was reported for this node, or for the whole job if the fault names no node."""
    return any(fault in faults and (node in subject.split() or "gpu-node-" not in subject) for subject, fault in told)


def main() -> int:
    """Try the pairs; return 1 if a run ended with go, or a fault of a pair was not reported."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0, help="the first pairs of this seed that were tried before")
    parser.add_argument("--kind", choices=["preflight", "trial", "mixed", "all"], default="all")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    dice = random.Random(options.seed)
    faults = single_node_faults()
    early = sorted(faults.keys() & PREFLIGHT)
    late = sorted(faults.keys() - PREFLIGHT)
    print(f"seed {options.seed}; {len(early)} faults of preflight, {len(late)} of the trial", flush=True)

    def drawn() -> tuple[str, str]:
        kind = options.kind if options.kind != "all" else dice.choice(["preflight", "trial", "mixed"])
        pools = {"preflight": (early, early), "trial": (late, late), "mixed": (early, late)}[kind]
        return dice.choice(pools[0]), dice.choice(pools[1])

    def both(number: int, pair: tuple[str, str], nodes: tuple[str, str]) -> str:
        one, two = ((moved(faults[name][0], node), faults[name][1]) for name, node in zip(pair, nodes, strict=True))
        stages = [name in PREFLIGHT for name in pair]
        command = "preflight" if all(stages) else "accept"
        # An unfit node leaves seven for the trial.
        verdict, told = run(f"pair-{number}", merged(one[0], two[0]), command, NODES - any(stages))
        missing = [
            name for name, node, each in zip(pair, nodes, (one, two), strict=True) if not found(told, node, each[1])
        ]
        word = "GO" if verdict == "go" else "both" if not missing else "one" if len(missing) == 1 else "NONE"
        lost = f"; not reported: {', '.join(missing)}; reported: {sorted(told)[:4]}" if missing else ""
        print(f"{word:5} {verdict:12} {pair[0]} on {nodes[0]} + {pair[1]} on {nodes[1]}{lost}", flush=True)
        return word

    chosen = [(drawn(), tuple(f"gpu-node-{n}" for n in dice.sample(range(NODES), 2))) for _ in range(options.pairs)]
    chosen = chosen[options.skip :]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        words = list(pool.map(lambda item: both(item[0], *item[1]), enumerate(chosen)))
    print({word: words.count(word) for word in dict.fromkeys(words)}, f"of {len(words)} pairs", flush=True)
    return int(any(word in ("GO", "NONE") for word in words))


if __name__ == "__main__":
    raise SystemExit(main())
