"""Every pair of real clusters, replayed through the plan: unchanged, in parts, renamed, with injected faults.

Nodes of an injected fault are named or suspected; their partners are neither.
"""

import csv
import random
import re
import statistics
from collections import defaultdict
from pathlib import Path

import pytest

from jobs.pod.sweep.decode import decode
from jobs.pod.sweep.model import Done, Fleet, Result, Rules
from jobs.pod.sweep.plan import next_round
from tests.examples import rest_is_slow

PAIRS = Path(__file__).resolve().parents[3] / "shared" / "pairs"
pytestmark = pytest.mark.usefixtures("shared")


def nodes_of(text):
    """Expand cnode2-[001,004] or cnode2-[001-002] or cnode3-002,cnode3-003."""
    prefix, digits = re.match(r"(\w+-)", text)[1], re.findall(r"\d{3}", text)
    return tuple(sorted(prefix + each for each in digits))


def layouts(name):
    rates = defaultdict(dict)
    with (PAIRS / name).open() as lines:
        for row in csv.DictReader(lines):
            value = row["peak_busbw_GBs"]
            rates[row["test"], row["G"]][nodes_of(row["nodes"])] = float(value) if value else 0.0
    return rates


def replay(values, seed):
    names = tuple(sorted({node for pair in values for node in pair}))
    floor = statistics.median(values.values()) / 3
    rules = Rules(alone=False, pair_floor=floor, seed=seed)
    fleet, history = Fleet(names), []
    while (each := next_round(fleet, rules, history)) is not None:
        assert len(history) < 60, "a plan without an end"
        values_of = {test: values[test] for test in each.tests if test in values}
        results = {t: Result("measured", v, (), t) if v else Result("no end", reported=t) for t, v in values_of.items()}
        history.append(Done(each, results))
    return decode(fleet, rules, history)


@rest_is_slow(every=4)
def test_a_real_healthy_cluster_is_quiet_in_all_eight_layouts(every):
    rates = layouts("cluster01.csv")
    assert len(rates) == 8
    for values in rates.values():
        for seed in range(0, 12, every):
            blame = replay(values, seed)
            assert (blame.verdict, blame.findings, blame.suspects, blame.flaky) == ("go", (), {}, ()), blame.reasons


@rest_is_slow(every=5)
def test_a_real_cluster_with_bad_paths_has_pairs_named_and_no_node(every):
    named = set()
    for values in layouts("cluster00-one-gpu.csv").values():
        middle = statistics.median(values.values())
        for seed in range(0, 40, every):
            for finding in replay(values, seed).findings:
                assert finding.kind == "pair", finding
                assert values[finding.names] < 0.9 * middle
                named.add(finding.names)
    assert len(named) >= 8


def some_of(values, rng):
    """Draw eight nodes or more of a cluster and rename them, since the order of names determines the plan."""
    names = sorted({node for pair in values for node in pair})
    names = rng.sample(names, rng.randint(8, len(names)))
    new = dict(zip(names, rng.sample([f"x{n:02}" for n in range(99)], len(names)), strict=True))
    return {tuple(sorted((new[a], new[b]))): v for (a, b), v in values.items() if a in new and b in new}


def draws(files, every=1):
    """Return four parts to draw of each layout, or this many fewer, with the seeds of their random numbers."""
    named = [(f"{name} {key}", values) for name in files for key, values in layouts(name).items()]
    return [(f"{key} {seed}", values) for key, values in named for seed in range(0, 4, every)]


def test_parts_of_the_healthy_cluster_are_go_and_of_the_other_no_node_is_named():
    for seed, values in draws(["cluster01.csv"]):
        blame = replay(some_of(values, random.Random(seed)), 1)
        assert (blame.verdict, blame.findings, blame.suspects) == ("go", (), {}), (seed, blame.reasons)
    for seed, values in draws(["cluster00-one-gpu.csv"]):
        blame = replay(some_of(values, random.Random(seed)), 1)
        assert {f.kind for f in blame.findings} <= {"pair"}, (seed, blame.reasons)


@rest_is_slow(every=4)
@pytest.mark.parametrize("share", [0.6, 0.8, 1.0], ids=["half", "most", "all"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_fault_that_is_put_in_is_found_and_who_only_met_it_is_not_named(share, count, every):
    """A node that is slow or dead with all partners is named; with most of them it is named, or listed as doubtful."""
    named_of, expected = 0, 0
    for seed, values in draws(["cluster01.csv", "cluster00-one-gpu.csv"], every):
        rng = random.Random(f"{seed} {share} {count}")
        rates = some_of(values, rng)
        bad = set(rng.sample(sorted({node for pair in rates for node in pair}), count))
        depth = 0.0 if rng.random() < 0.3 else rng.uniform(0.4, 0.8)
        middle = statistics.median(rates.values())
        for pair in rates:
            if bad & {*pair} and rng.random() < share:
                rates[pair] = min(rates[pair], middle * depth * rng.gauss(1, 0.01))
        blame = replay(rates, 1)
        named = {f.names[0] for f in blame.findings if f.kind in ("node", "rail")}
        printed = " ".join((*blame.reasons, *(name for each in blame.apart for name in each.names)))
        assert named <= bad, (seed, bad, blame.reasons)
        assert all(re.search(rf"\b{node}\b", printed) for node in bad), (seed, bad, blame.reasons)
        assert blame.verdict != "go"
        most = {node for node in bad if fails_with_most(rates, node, middle)}
        named_of, expected = named_of + len(named & most), expected + len(most)
    least = {1.0: 0.95, 0.8: 0.9 if count == 1 else 0.75, 0.6: 0.85 if count == 1 else 0.7}[share]
    assert named_of >= least * expected, (named_of, expected)


def fails_with_most(values, node, middle):
    own = [value for pair, value in values.items() if node in pair]
    return 2 * sum(value < 0.9 * middle for value in own) > len(own)


@rest_is_slow(every=4)
@pytest.mark.parametrize("count", [1, 2])
def test_nodes_that_fail_with_most_partners_are_named_with_bad_paths(count, every):
    """Other nodes' bad pairs do not form a group with the node, whose failures have one speed and theirs do not."""
    named_of, expected = 0, 0
    for key, values in layouts("cluster00-one-gpu.csv").items():
        for seed in range(0, 8, every):
            rng, rates, middle = random.Random(f"{key} {seed}"), dict(values), statistics.median(values.values())
            bad = set(rng.sample(sorted({node for pair in rates for node in pair}), count))
            depth = rng.uniform(0.4, 0.8)
            for pair in sorted(rates):
                if bad & {*pair} and rng.random() < 0.8:
                    rates[pair] = min(rates[pair], middle * depth * rng.gauss(1, 0.01))
            named = {f.names[0] for f in replay(rates, seed).findings if f.kind in ("node", "rail")}
            assert named <= bad, (key, seed)
            most = {node for node in bad if fails_with_most(rates, node, middle)}
            named_of, expected = named_of + len(named & most), expected + len(most)
    assert named_of >= 0.75 * expected, (named_of, expected)


def test_every_pair_of_a_small_fleet_is_tested():
    """A node that fails with one or two of its nine partners is detected."""
    for key, values in layouts("cluster01.csv").items():
        rates, middle = dict(values), statistics.median(values.values())
        bad = random.Random(str(key)).choice(sorted(rates))
        rates[bad] = 0.5 * middle
        blame = replay(rates, 1)
        assert [(f.kind, f.names) for f in blame.findings] == [("pair", bad)], blame.reasons


def test_a_pair_whose_result_is_always_lost_is_no_go_and_none_is_named():
    for seed, values in draws(["cluster01.csv"]):
        rng = random.Random(seed)
        rates = {pair: value for pair, value in some_of(values, rng).items() if rng.random() < 0.8}
        if len({node for pair in rates for node in pair}) < 8:
            continue
        blame = replay(rates, 1)
        assert blame.findings == ()
        assert blame.verdict == "inconclusive" or not [r for r in blame.reasons if "nothing was measured" in r]
