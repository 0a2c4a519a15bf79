"""Faults of the majority: slow nodes, rails and uplinks are reported, no node is named, and it is never go."""

import random
from dataclasses import replace
from itertools import product

import pytest

from benchmarks import sweep_model as model
from jobs.pod.sweep.model import Result
from tests.examples import rest_is_slow
from tests.pod.planned import RULES, fleet_of, play


@pytest.mark.parametrize("share", [0.4, 0.7, 0.85])
@pytest.mark.parametrize(("size", "slow"), [(4, 2), (4, 3), (6, 3), (16, 8), (16, 15), (64, 40)])
def test_slow_nodes_that_are_the_majority_are_reported_and_none_is_named(size, slow, share):
    """Slow and fast nodes are listed; if as many are fast, only nodes that are slow in single-node tests are named."""
    fleet = fleet_of(size)
    bad = set(fleet.nodes[:slow])
    blame, _ = play(fleet, RULES, lambda test, _: 100.0 * (share if bad.intersection(test) else 1.0))
    assert blame.verdict != "go"
    assert bad.issuperset(name for each in blame.findings for name in each.names)
    heaps = [each.why for each in blame.apart if "two levels" in each.why]
    fast = f"fast: {size - slow} nodes (n{slow:03}, "
    assert any(fast.removesuffix(", ") in why for why in heaps) or blame.findings, heaps
    assert all(f"{slow} nodes (n000, " in why for why in heaps if fast in why)


def test_a_slow_minority_is_named_as_ever():
    blame, _ = play(fleet_of(4), RULES, lambda test, _: 70.0 if "n001" in test else 100.0)
    assert (blame.verdict, [each.names for each in blame.findings], blame.apart) == ("no-go", [("n001",)], ())


@pytest.mark.parametrize(("size", "leaf", "slow"), [(8, 4, 1), (24, 8, 2), (24, 8, 3), (32, 8, 3), (32, 8, 2)])
def test_slow_uplinks_that_are_the_majority_are_reported_and_no_node_is_named(size, leaf, slow):
    fleet = fleet_of(size, leaf)
    bad = {f"l{n}" for n in range(slow)}
    blame, _ = play(
        fleet, RULES, lambda t, _: 70.0 if fleet.crosses(t) and bad.intersection(map(fleet.leaf, t)) else 100.0
    )
    assert blame.verdict != "go"
    assert {each.kind for each in blame.findings} <= {"uplink"}
    assert {name for each in blame.findings for name in each.names} <= bad
    assert blame.apart or blame.findings


def of_rails(shares, size=16, slow=99):
    """Simulate a cluster of this many nodes whose first `slow` have rails with these fractions of 12.5 GB/s."""

    def answer(test, _):
        mine = [12.5 * (share if any(int(node[1:]) < slow for node in test) else 1.0) for share in shares]
        return Result("measured", 100.0, tuple(mine) if len(test) > 1 else (), test)

    return play(fleet_of(size), RULES, answer)[0]


@pytest.mark.parametrize("size", [2, 4, 16])
def test_a_rail_that_is_slow_on_every_node_is_reported_as_the_rails(size):
    blame = of_rails([1, 1, 1, 0.4, 1, 1, 1, 1], size)
    assert (blame.verdict, blame.findings) == ("inconclusive", ())
    (plane,) = blame.apart
    assert (plane.rails, len(plane.names)) == ((3,), size)
    assert plane.why.startswith(f"rail 3 at 0.40 of rail 0 on all of {size} nodes")
    assert of_rails([1, 1, 1, 0.9, 1, 1, 1, 1], size).verdict == "go"


def test_a_rail_that_is_slow_on_most_nodes_is_reported_with_both_heaps():
    blame = of_rails([1, 0.6, 1, 1], slow=13)
    assert (blame.verdict, blame.findings) == ("inconclusive", ())
    assert {each.rails for each in blame.apart} == {(1,)}
    assert any(each.why.startswith("1 of 48 tests in a leaf, rail 1 reach 1.67") for each in blame.apart), blame.apart


@pytest.mark.parametrize("test_at_once", [("n002",), ("n002", "n005")])
def test_one_value_that_is_too_fast_is_measured_again_and_forgotten(test_at_once):
    seen = []

    def answer(test, _):
        seen.append(test)
        return 140.0 if test == test_at_once and seen.count(test) == 1 else 100.0

    blame, _ = play(fleet_of(16), RULES, answer)
    assert (blame.verdict, blame.reasons, seen.count(test_at_once)) == ("go", (), 2)
    never, history = play(fleet_of(16), RULES, lambda t, r: answer(t, r) if t not in seen else None, stop=40)
    assert (never.verdict, len(history) < 40) == ("inconclusive", True), "a test that never returns still ends the plan"


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("rails", [0, 8])
@rest_is_slow(8)
def test_noise_names_no_one(size, rails, every):
    for seed, percent in product(range(0, 24, every), (2, 4, 6)):
        made, _ = model.broken("none", size, random.Random(seed), sigma=percent / 100, rails=rails)
        blame = model.sweep(made, replace(model.RULES, alone=True, node_floor=10.0))
        assert blame.findings == ()
        if percent == 6 and rails and size > 4:
            noise = [each for each in blame.apart if each.kind == "noise"]
            assert (blame.verdict, len(noise) > 0) == ("inconclusive", True)
            assert "have a noise of " in noise[0].why


@rest_is_slow(8)
def test_noise_of_two_percent_hides_no_fault(every):
    for seed in range(0, 24, every):
        made, truth = model.broken("rail", 16, random.Random(seed), sigma=0.02)
        assert {(f.kind, f.names, f.rails) for f in model.sweep(made).findings} == truth


@pytest.mark.parametrize("share", [0.80, 0.82, 0.85])
@pytest.mark.parametrize("size", [4, 6])
def test_a_pair_that_the_margin_for_few_values_hides_is_tested_again_and_never_go(size, share):
    """Noise of 2 %: in so small a fleet only a value below 0.80 is a failure, and a slow pair is measured once."""
    fleet, rng = fleet_of(size), random.Random(size)
    bad = (fleet.nodes[0], fleet.nodes[1])
    blame, history = play(fleet, RULES, lambda t, _: 100.0 * rng.gauss(1, 0.02) * (share if t == bad else 1.0))
    assert sum(bad in done.results for done in history) > 1
    assert blame.verdict != "go"
    assert any(" and ".join(bad) in why or " - ".join(bad) in why for why in blame.reasons), blame.reasons


def test_a_pair_that_was_slow_once_and_passes_is_no_reason():
    """A disturbance that the margin hides: the repeat is as fast as all others."""
    seen = []

    def answer(test, _):
        seen.append(test)
        return 82.0 if test == ("n000", "n001") and seen.count(test) == 1 else 100.0 + len(seen) % 3

    blame, _ = play(fleet_of(4), RULES, answer)
    assert (blame.verdict, seen.count(("n000", "n001"))) == ("go", 2)
