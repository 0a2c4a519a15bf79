"""The sweep on a model fleet: its findings, the nodes at fault, and its cost.

In four kinds of fault no node is at fault, and no sweep may be go. They are hidden-uplink (of a leaf without a label),
hidden-hashed (half of its paths are bad), hidden-halves (that fail with each other) and slow-group (a quarter to a half
is slow). In four more kinds at least half of the elements are bad, and no sweep may be go either. They are most-nodes,
most-uplinks, most-rails (one rail of most nodes) and plane (one rail of all). These run at `--depth` of nominal, 0.4 to
0.87 without it.

Nodes die (30 %) or run at 0.50 to 0.88; the same holds for rails, uplinks and pairs. Every value has noise; some tests
are disturbed without a fault. `--congestion SHARE`: in that share of rounds tests fall to 0.6 when more than a quarter
of the fleet's pairs run at once. This affects all tests, or with `--part 0.5` those of the first half of the nodes. A
round takes `--round-s`, and `--timeout-s` if a test does not end. Columns: green, sweeps that said go despite a fault;
innocents, findings about elements not at fault; paths, pairs named for a bad path though something larger is at fault;
go, sweeps that said go; plan, seconds of the longest planning of a round. Sweeps of a row have the seeds from SEED on:
--sweeps 1 --seed S repeats one.

Usage: python benchmarks/sweep_model.py [--nodes N ...] [--sweeps N] [--fault KIND ...] [--seed N] Exit code 1: a
healthy node was found at fault, or a sweep said go despite a fault.
"""

import argparse
import random
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from jobs.pod.sweep.decode import decode
from jobs.pod.sweep.model import Blame, Done, Fleet, Result, Rules
from jobs.pod.sweep.plan import next_round

LEAF = {16: 4, 64: 16, 232: 29}
RULES = Rules(alone=False, pair_floor=10.0)
NOMINAL = 100.0
KINDS = (
    "none",
    "node",
    "nodes3",
    "rail",
    "uplink",
    "pair",
    "node+uplink",
    "two-in-a-pair",
    "most-partners",
    "leaf-of-nodes",
    "hidden-uplink",
    "hidden-hashed",
    "hidden-halves",
    "slow-group",
)
MOST = ("most-nodes", "most-uplinks", "most-rails", "plane")


@dataclass
class Model:
    """A fleet with faults; keys are nodes, (node, rail), leaves and sorted pairs, values shares of nominal."""

    size: int
    rng: random.Random
    sigma: float = 0.02
    transient: float = 0.01
    congestion: float = 0.0
    part: float = 1.0
    rails: int = 0
    leaf_size: int = 0
    hashed: float = 0.0
    paths: float = 1.0
    hidden: dict = field(default_factory=dict)
    faults: dict = field(default_factory=dict)
    some: dict = field(default_factory=dict)
    guilty: set = field(default_factory=set)
    rounds: int = 0
    slots: int = 0
    tests: int = 0
    seconds: float = 0.0
    plan_s: float = 0.0

    def fleet(self) -> Fleet:
        names = tuple(f"n{i:05}" for i in range(self.size))
        leaf = self.leaf_size
        return Fleet(names, {n: f"l{i // leaf:04}" for i, n in enumerate(names)} if leaf else {})

    def share(self, fleet: Fleet, test: tuple) -> float:
        found = [self.faults.get(node, 1.0) for node in test]
        found.append(self.faults.get(test, 1.0))
        sides = {self.hidden.get(node, 0) for node in test}
        if len(sides) < 2 or random.Random(f"{self.hashed}{test}").random() < self.paths:
            found.append(self.faults.get("between" if len(sides) > 1 else ("inside", *sides), 1.0))
        if fleet.crosses(test):
            found += [self.faults.get(("uplink", fleet.leaf(node)), 1.0) for node in test]
        for node in test:
            if node in self.some and random.Random(f"{self.some[node]}{test}").random() < 0.8:
                found.append(0.6)
        return min(found)

    def run(self, fleet: Fleet, each, round_s: float, timeout_s: float) -> Done:
        self.rounds += 1
        self.tests += len(each.tests)
        self.slots += sum(map(len, each.tests))
        crowded = len(each.tests) > self.size / 8 and self.rng.random() < self.congestion
        results = {}
        for test in each.tests:
            hit = crowded and min(test) < f"n{int(self.size * self.part):05}"
            share = self.share(fleet, test) * (0.6 if hit else 1.0)
            if share <= 0:
                results[test] = Result("no end", reported=test)
                continue
            value = share * max(0.01, self.rng.gauss(1, self.sigma))
            if self.rng.random() < self.transient:
                value *= self.rng.uniform(0.6, 0.85)
            rails = []
            for rail in range(self.rails):
                slow = min(self.faults.get((node, rail), 1.0) for node in test)
                rails.append(NOMINAL / self.rails * value * slow * self.rng.gauss(1, self.sigma))
            whole = sum(rails) if rails else NOMINAL * value
            results[test] = Result("measured", whole, tuple(rails), test)
        self.seconds += timeout_s if any(r.outcome == "no end" for r in results.values()) else round_s
        return Done(each, results)


def sweep(model: Model, rules: Rules = RULES, round_s: float = 40, timeout_s: float = 120) -> Blame:
    fleet, history = model.fleet(), []
    while True:
        began = time.process_time()
        each = next_round(fleet, rules, history)
        model.plan_s = max(model.plan_s, time.process_time() - began)
        if each is None:
            break
        if len(history) > 60:
            raise RuntimeError("the plan has no end")
        history.append(model.run(fleet, each, round_s, timeout_s))
    return decode(fleet, rules, history)


def broken(kind: str, size: int, rng: random.Random, most: float = 0.0, **options) -> tuple[Model, set]:
    """Return a model with a fault, and the elements to name; `most`: the depth of most elements."""
    if kind in ("rail", "most-rails", "plane"):
        options["rails"] = 8
    model = Model(size, rng, leaf_size=LEAF.get(size, 32 if size > 32 else 0), **options)
    fleet = model.fleet()
    names = list(fleet.nodes)

    def depth() -> float:
        return 0.0 if rng.random() < 0.3 else rng.uniform(0.5, 0.88)

    chosen = rng.sample(names, 3)
    truth: set = set()
    if kind in ("node", "node+uplink"):
        model.faults[chosen[0]] = depth()
        truth.add(("node", (chosen[0],), ()))
    if kind in ("nodes3", "hundredth"):
        for node in chosen if kind == "nodes3" else rng.sample(names, max(1, size // 100)):
            model.faults[node] = depth()
            truth.add(("node", (node,), ()))
    if kind == "rail":
        model.faults[(chosen[0], 3)] = rng.uniform(0.4, 0.8)
        truth.add(("rail", (chosen[0],), (3,)))
    if kind in ("uplink", "node+uplink"):
        bad = rng.choice(sorted(set(fleet.leaves.values()) - {fleet.leaf(chosen[0])}))
        model.faults[("uplink", bad)] = rng.uniform(0.4, 0.8)
        both = size <= 2 * model.leaf_size
        truth.add(("uplink", tuple(sorted(set(fleet.leaves.values()))) if both else (bad,), ()))
    if kind in ("pair", "two-in-a-pair"):
        tests = next_round(fleet, RULES, []).tests
        pair = rng.choice(tests)
        for each in (pair,) if kind == "pair" else pair:
            model.faults[each] = rng.uniform(0.3, 0.8)
            truth.add(("pair", each, ()) if kind == "pair" else ("node", (each,), ()))
    if kind == "leaf-of-nodes":
        for node in fleet.nodes[: model.leaf_size]:
            model.faults[node] = depth()
            truth.add(("node", (node,), ()))
    _spoil_groups(model, kind, depth, most)
    if kind == "most-partners":
        model.some[chosen[0]] = rng.random()
        truth.add(("node", (chosen[0],), ()))
    return model, truth


def _spoil_groups(model: Model, kind: str, depth: Callable[[], float], most: float) -> None:
    """Add a fault without a single element to name."""
    if kind.startswith("hidden") or kind == "slow-group":
        _hide(model, kind, depth() if kind == "hidden-uplink" else model.rng.uniform(0.4, 0.8))
    elif kind in MOST and (model.leaf_size or kind != "most-uplinks"):
        _spoil_most(model, kind, most or model.rng.uniform(0.4, 0.87))


def _hide(model: Model, kind: str, share: float) -> None:
    """Add a group to a fleet without leaves: the links between it and the rest, or the whole group, are slow."""
    rng, size = model.rng, model.size
    few = {"slow-group": rng.randint(size // 4, size // 2), "hidden-halves": size // 2}.get(kind, model.leaf_size)
    model.hidden, model.leaf_size = dict.fromkeys(rng.sample(model.fleet().nodes, few), 1), 0
    model.faults["between"] = share
    if kind == "slow-group":
        model.faults["inside", 1] = share
    if kind == "hidden-hashed":
        model.hashed, model.paths = rng.random(), 0.5


def _spoil_most(model: Model, kind: str, share: float) -> None:
    """Make slow at least half of the nodes or uplinks, or one rail of as many nodes, not all; plane: of all."""
    rng, fleet = model.rng, model.fleet()
    every = sorted(set(fleet.leaves.values())) if kind == "most-uplinks" else list(fleet.nodes)
    few = len(every) if kind == "plane" else rng.randint((len(every) + 1) // 2, max(1, len(every) - 1))
    model.guilty = set(rng.sample(every, few))
    rail = rng.randrange(8)
    for name in model.guilty:
        key = ("uplink", name) if kind == "most-uplinks" else name if kind == "most-nodes" else (name, rail)
        model.faults[key] = share


@dataclass
class Row:
    """Run one sweep; return the named elements, the missed ones, and the healthy nodes that were named."""

    model: Model
    exact: bool
    wanted: int
    named: int
    green: bool
    innocents: int
    paths: int
    verdict: str


def _row(kind: str, size: int, seed: int, noise: dict, options: argparse.Namespace) -> Row:
    model, truth = broken(kind, size, random.Random(f"{kind} {size} {seed}"), options.depth, **noise)
    blame = sweep(model, replace(RULES, alone=options.alone, node_floor=10.0), options.round_s, options.timeout_s)
    got = {(f.kind, f.names, f.rails): f.why for f in blame.findings}
    guilty = model.guilty.union(*(names for _, names, _ in truth))
    others = {each for each in set(got) - truth if not guilty & set(each[1])}
    paths = {each for each in others if each[0] == "pair" and model.share(model.fleet(), each[1]) < RULES.clears}
    green = kind != "none" and blame.verdict == "go"
    for each in sorted(others - paths):
        print(f"seed {seed}, N {size}, {kind}: sound {each}: {got[each]}", file=sys.stderr)
    if green or not truth <= set(got):
        what = "green" if green else f"not named: {sorted(truth - set(got))}"
        print(f"seed {seed}, N {size}, {kind}: {what}", file=sys.stderr)
    if options.verbose:
        print(f"seed {seed}, N {size}, {kind}: {blame.verdict}", *blame.reasons[:4], sep="\n    ", file=sys.stderr)
    return Row(
        model,
        set(got) == truth,
        len(truth),
        len(truth & set(got)),
        green,
        len(others - paths),
        len(paths),
        blame.verdict,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="*", default=[16, 64, 232])
    parser.add_argument("--sweeps", type=int, default=1000)
    parser.add_argument("--fault", nargs="*", default=list(KINDS), choices=[*KINDS, *MOST, "hundredth"])
    parser.add_argument("--sigma", type=float, default=0.02)
    parser.add_argument("--transient", type=float, default=0.01)
    parser.add_argument("--rails", type=int, default=0)
    parser.add_argument("--alone", action="store_true", help="a round of nodes alone, too; a slow node is slow there")
    parser.add_argument("--depth", type=float, default=0.0)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--congestion", type=float, default=0.0)
    parser.add_argument("--part", type=float, default=1.0)
    parser.add_argument("--round-s", type=float, default=40)
    parser.add_argument("--timeout-s", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(
        f"{'N':>6} {'fault':>14} sweeps exact  named  go green innocents paths  tests rounds(max) slots/node minutes"
        " plan"
    )
    wrong = 0
    noise = {name: getattr(options, name) for name in ("sigma", "transient", "congestion", "part", "rails")}
    for size in options.nodes:
        for kind in options.fault:
            rows = [
                _row(kind, size, seed, noise, options) for seed in range(options.seed, options.seed + options.sweeps)
            ]
            wrong += sum(row.innocents + row.green for row in rows)
            wanted = sum(row.wanted for row in rows)
            named = sum(row.named for row in rows) / wanted if wanted else 1.0
            models = [row.model for row in rows]
            print(
                f"{size:>6} {kind:>14} {len(rows):>6} {mean(row.exact for row in rows):>5.3f} {named:>6.3f}"
                f" {sum(row.verdict == 'go' for row in rows):>3} {sum(row.green for row in rows):>5}"
                f" {sum(row.innocents for row in rows):>9}"
                f" {sum(row.paths for row in rows):>5} {mean(m.tests for m in models):>6.0f}"
                f" {mean(m.rounds for m in models):>6.2f} ({max(m.rounds for m in models):>2})"
                f" {mean(m.slots for m in models) / size:>9.2f} {mean(m.seconds for m in models) / 60:>7.1f}"
                f" {max(m.plan_s for m in models):>5.2f}",
                flush=True,
            )
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
