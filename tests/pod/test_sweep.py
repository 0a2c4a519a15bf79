"""Decoding of a sweep: bad nodes are named, their partners are not, and an untested node is never go."""

import random
from dataclasses import replace
from functools import partial

import pytest

from benchmarks import sweep_model as model
from jobs.pod.sweep.decode import decode
from jobs.pod.sweep.model import Done, Fleet, Result, Rules
from jobs.pod.sweep.plan import next_round
from tests.examples import rest_is_slow
from tests.pod.planned import RULES, fleet_of, play


@rest_is_slow(every=3)
@pytest.mark.parametrize("size", [16, 64, 232])
@pytest.mark.parametrize("kind", ["none", "node", "nodes3", "rail", "uplink", "pair", "node+uplink", "two-in-a-pair"])
def test_a_fault_is_named_and_no_healthy_node_is(size, kind, every):
    for seed in range(0, 3, every):
        made, truth = model.broken(kind, size, random.Random(f"{size}{kind}{seed}"))
        blame = model.sweep(made)
        assert {(f.kind, f.names, f.rails) for f in blame.findings} == truth, blame.reasons


@pytest.mark.parametrize("bad", range(3))
def test_an_uplink_of_three_is_named_where_every_pair_was_tested(bad):
    """The two other leaves fail with it, and pass with each other."""
    leaf = f"l{bad:04}"
    made = model.Model(9, random.Random(1), leaf_size=3, faults={("uplink", leaf): 0.6})
    assert {(f.kind, f.names) for f in model.sweep(made).findings} == {("uplink", (leaf,))}


@rest_is_slow(every=3)
@pytest.mark.parametrize("size", [16, 64, 232])
@pytest.mark.parametrize("kind", ["hidden-uplink", "hidden-halves", "slow-group"])
def test_groups_that_no_label_names_are_reported_and_no_one_is_at_fault(size, kind, every):
    for seed in range(0, 6 if size < 232 else 2, every):
        made, _ = model.broken(kind, size, random.Random(f"{size}{kind}{seed}"))
        blame = model.sweep(made)
        assert (blame.verdict, blame.findings) == ("inconclusive", ()), (seed, blame.reasons)
        named = [name for each in blame.apart for name in each.names]
        if kind == "hidden-uplink":
            assert len(set(named) & set(made.hidden)) >= 0.9 * len(made.hidden), (seed, blame.reasons)
            assert set(named) <= set(made.hidden)
        else:
            assert named or any("different speed" in reason for reason in blame.reasons), (seed, blame.reasons)


def test_bad_nodes_are_named_with_a_group_that_no_label_names():
    """Bad nodes are named even inside the group, and no other node is."""
    names = fleet_of(64).nodes
    group, bad = set(names[5:21]), {names[0], names[7]}

    def answer(test, _):
        return 50.0 if len(test) > 1 and (bad & {*test} or len(group & {*test}) == 1) else 100.0

    for seed in range(5):
        blame, _ = play(Fleet(names), replace(RULES, seed=seed), answer)
        assert {f.names[0] for f in blame.findings} == bad, blame.reasons
        assert [set(each.names) for each in blame.apart] == [group - bad]


def test_an_uplink_is_not_at_fault_for_one_of_its_nodes():
    """All nodes of a leaf are bad, one of them only slightly, so it passes once: that node's pairs do not make an
    uplink fault."""
    made, truth = model.broken("leaf-of-nodes", 64, random.Random("leaf-of-nodes 64 16"))
    blame = model.sweep(made)
    assert not [f for f in blame.findings if f.kind == "uplink"], blame.reasons
    assert {f.names for f in blame.findings} <= {names for _, names, _ in truth}


@pytest.mark.parametrize("leaf", [1, 2])
@pytest.mark.parametrize("silent", [False, True])
def test_a_node_that_met_no_one_of_its_leaf_is_reported_with_the_uplink(leaf, silent):
    """The pair inside the node's leaf was never measured, or does not exist: the failures also fit the uplink."""
    fleet = fleet_of(8, leaf)
    lost = {"n000", "n001"} if silent else set()

    def answer(test, _):
        if len(test) > 1 and set(test) <= lost:
            return None
        return 50.0 if len(test) > 1 and "n000" in test else 100.0

    blame = play(fleet, RULES, answer)[0]
    (finding,) = [f for f in blame.findings if f.names == ("n000",)]
    assert ("or the uplink of l0" in finding.why) == (leaf == 1 or silent)


def test_two_bad_nodes_that_pass_with_each_other_and_with_a_few_more_are_named():
    """Two bad nodes that pass with each other are not a group behind a link if each also passes with a fourth node."""
    named = 0
    for seed in range(20):
        rng = random.Random(seed)
        bad = {"n003", "n008"}
        slow = {(a, b) for a in sorted(bad) for b in fleet_of(17).nodes if b not in bad and rng.random() < 0.75}
        answer = partial(lambda slow, t, _: 60.0 if {t, t[::-1]} & slow else 100.0, slow)
        blame, _ = play(fleet_of(17), replace(RULES, seed=seed), answer)
        accused = {f.names[0] for f in blame.findings if f.kind == "node"}
        assert accused <= bad, blame.reasons
        assert blame.verdict != "go"
        named += len(accused)
    assert named >= 32, named


@rest_is_slow(every=3)
def test_a_link_of_which_half_of_the_paths_are_bad_is_no_fault_of_a_node(every):
    """Between a leaf without a label and the rest of 64 nodes: a node with four bad paths of four is not a bad node."""
    for seed in range(0, 6, every):
        made, _ = model.broken("hidden-hashed", 64, random.Random(f"hidden-hashed64{seed}"))
        blame = model.sweep(made)
        assert {f.kind for f in blame.findings} <= {"pair"}, (seed, blame.reasons)
        assert all(made.share(made.fleet(), f.names) < 0.9 for f in blame.findings), "each of these paths is bad"
        assert blame.verdict != "go"


@rest_is_slow(every=2)
def test_of_a_small_fleet_whose_link_has_bad_paths_hardly_a_node_is_at_fault(every):
    """Four of 16 nodes with half of their paths to the others bad: some fail with six of eight partners.

    At most one sweep in 25 names a node; without a comparison with such a path it would be one in five.
    """
    blamed = []
    seeds = range(0, 50, every)
    for seed in seeds:
        made, _ = model.broken("hidden-hashed", 16, random.Random(f"hidden-hashed 16 {seed}"))
        blame = model.sweep(made)
        assert blame.verdict != "go"
        pairs = [f.names for f in blame.findings if f.kind == "pair"]
        assert all(made.share(made.fleet(), pair) < 0.9 for pair in pairs), "each of these paths is bad"
        blamed += [seed] * (len(blame.findings) > len(pairs))
    assert len(blamed) <= len(seeds) / 25, blamed


def test_a_group_that_is_slower_than_healthy_groups_are_is_no_go():
    """A quarter of 16 nodes reaches 0.87 of the others' rate with them: real healthy groups differ by 7 to 11 %."""
    group = set(fleet_of(16).nodes[:4])
    blame, _ = play(fleet_of(16), RULES, lambda t, _: 87.0 if len(t) > 1 and len(group & {*t}) == 1 else 100.0)
    assert (blame.verdict, blame.findings) == ("inconclusive", ())
    assert [set(each.names) for each in blame.apart] == [group]


def test_two_nodes_that_pass_with_each_other_only_are_a_group():
    pair = {"n003", "n011"}
    blame, _ = play(fleet_of(16), RULES, lambda t, _: 50.0 if len(t) > 1 and len(pair & {*t}) == 1 else 100.0)
    assert (blame.findings, [set(each.names) for each in blame.apart]) == ((), [pair])


@pytest.mark.parametrize("size", [2, 3, 5, 16, 17, 64])
def test_a_healthy_fleet_is_go_also_where_a_node_is_odd(size):
    blame, _ = play(fleet_of(size), RULES, lambda *_: 100.0)
    assert (blame.verdict, blame.reasons, len(blame.proven)) == ("go", (), size)


def test_a_node_that_fails_with_most_partners_is_named_and_those_it_met_are_not():
    for seed in range(20):
        rng = random.Random(seed)
        bad = {"n003": set(rng.sample(range(17), 13)), "n008": set(rng.sample(range(17), 13))}

        def answer(test, _, bad=bad):
            slow = any(int(other[1:]) in bad.get(node, ()) for node in test for other in test if other != node)
            return 60.0 if len(test) > 1 and slow else 100.0

        blame, _ = play(fleet_of(17), Rules(pair_floor=20.0, node_floor=20.0, seed=seed), answer)
        named = {f.names[0] for f in blame.findings if f.kind == "node"}
        assert named <= set(bad)
        assert blame.verdict != "go"
        assert set(bad) <= named | set(blame.suspects) | {n for f in blame.findings for n in f.names}


NEVER_GO = {
    "one node": (1, lambda *_: 100.0, 99, "no pair to test"),
    "no nodes": (0, lambda *_: 100.0, 99, "no pair to test"),
    "all dead": (16, lambda *_: 0.0, 99, "alone"),
    "all pairs dead": (16, lambda t, _: 100.0 if len(t) == 1 else 0.0, 99, "no pair passed"),
    "all below the floor": (16, lambda *_: 10.0, 99, "alone"),
    "nothing ran": (16, lambda *_: 100.0, 0, "not complete"),
    "ended early": (16, lambda *_: 100.0, 2, "not complete"),
    "a silent agent": (
        16,
        lambda t, _: Result("measured", 100.0, (), tuple(n for n in t if n != "n003")),
        99,
        "n003: reported nothing",
    ),
    "all silent": (16, lambda *_: None, 99, "reported nothing"),
    "half a result": (16, lambda t, _: Result("measured", None if "n003" in t else 100.0, (), t), 99, "n003"),
    "a rail missing": (16, lambda t, _: Result("measured", 9e1, (45.0, None if "n003" in t else 45.0), t), 99, "n003"),
    "wrong sums once": (4, lambda t, r: Result("wrong sums", 1.0, (), t) if r.number == 2 else 100.0, 99, "wrong sums"),
    "two nodes, one dead": (2, lambda t, _: 100.0 if t == ("n000",) else 0.0, 99, "alone"),
    "three nodes, all pairs slow but one": (3, lambda t, _: 60.0 if "n001" in t and len(t) > 1 else 100.0, 99, "n001"),
    "negative": (16, lambda t, _: -100.0 if "n003" in t else 100.0, 99, "n003"),
    "not a number": (16, lambda t, _: float("nan") if "n003" in t else 100.0, 99, "n003"),
    "infinite": (16, lambda t, _: float("inf") if "n003" in t else 100.0, 99, "n003"),
    "huge": (16, lambda t, _: 1e300 if "n003" in t else 100.0, 99, "n003"),
    "a clock that jumped back": (16, lambda t, _: 900.0 if "n003" in t else 100.0, 99, "n003"),
    "all huge": (16, lambda *_: 1e12, 99, "no pair passed"),
    "all not a number": (16, lambda *_: float("nan"), 99, "no pair passed"),
    "a rail that is no number": (
        16,
        lambda t, _: Result("measured", 90.0, (45.0, float("nan") if "n003" in t else 45.0), t),
        99,
        "n003",
    ),
    "rails left out": (16, lambda t, _: Result("measured", 90.0, () if "n003" in t else (45.0, 45.0), t), 99, "n003"),
    "an unknown outcome": (16, lambda t, _: Result("green", 100.0, (), t) if "n003" in t else 100.0, 99, "n003"),
    "every second report lost": (16, lambda t, r: None if r.number % 2 else 100.0, 99, "no"),
    "wrong transport": (
        16,
        lambda t, _: Result("wrong transport", 1e2, (), t, ("n003",)) if "n003" in t and len(t) > 1 else 100.0,
        99,
        "node n003: wrong transport",
    ),
}


@pytest.mark.parametrize("case", sorted(NEVER_GO))
def test_what_was_not_seen_is_never_go_and_says_why(case):
    size, answer, stop, why = NEVER_GO[case]
    blame, _ = play(fleet_of(size), RULES, answer, stop)
    assert blame.verdict != "go"
    assert any(why in reason for reason in blame.reasons), blame.reasons


@rest_is_slow(every=3)
@pytest.mark.parametrize("size", [2, 5, 17, 64])
def test_whatever_is_always_lost_or_odd_of_a_test_keeps_a_fleet_from_go(size, every):
    """A test lacks its result, half of it or its number, or has a negative number or a clock jump."""
    odd = [
        None,
        Result("measured", None, (), ("n000",)),
        *(Result("measured", each, (), ("n000", "n001")) for each in (float("nan"), -1.0)),
        Result("nothing"),
        900.0,
    ]
    for seed in range(0, 20, every):
        rng, hit = random.Random(f"{size} {seed}"), []
        fleet, share, what = fleet_of(size, rng.choice([0, 4])), rng.choice([0.02, 0.2, 0.7]), rng.choice(odd)

        def answer(test, _, hit=hit, share=share, what=what, seed=seed):
            if random.Random(f"{seed}{test}").random() >= share:
                return 100.0
            hit.append(test)
            return (
                replace(what, reported=test[:1] if what.busbw is None else test) if isinstance(what, Result) else what
            )

        blame, _ = play(fleet, replace(RULES, seed=seed), answer)
        assert bool(hit) == (blame.verdict != "go"), (seed, share, what, hit[:3], blame.reasons)
        assert bool(hit) == bool(blame.reasons)
        if what != 900.0:  # if most clocks jump, the others look slow
            assert not blame.findings, "an unmeasured pair is no finding"


def test_nodes_below_their_floor_are_reported_with_their_speed():
    """All are equally slow: a fraction of their own median would explain nothing."""
    blame, _ = play(fleet_of(4), RULES, lambda test, _: 10.0 if len(test) == 1 else 100.0)
    assert blame.verdict == "no-go"
    assert {each.why for each in blame.findings} == {"alone: 1.00 of the median, 10 GB/s below the floor of 20"}


@pytest.mark.parametrize(("bus", "verdict"), [(False, "go"), (True, "inconclusive")])
def test_a_node_alone_needs_a_speed_only_where_it_has_a_bus(bus, verdict):
    """With one GPU per node there is no bus, and no floor for it; with several, a test without a rate has measured
    nothing."""

    def answer(test, _):
        return Result("measured", None, (), test) if len(test) == 1 else 100.0

    blame, _ = play(fleet_of(6), replace(RULES, bus=bus, node_floor=20.0 if bus else None), answer)
    assert (blame.verdict, blame.findings) == (verdict, ())


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (Result("nothing"), "reported nothing"),
        (Result("no end", reported=("n002",)), "alone"),
        (Result("measured"), "nothing"),
    ],
)
def test_a_node_of_one_gpu_that_is_not_whole_alone_is_no_go(result, said):
    """The node reported nothing, did not complete, or half of its answer is missing."""

    def answer(test, _):
        if len(test) > 1:
            return 100.0
        return result if test == ("n002",) else Result("measured", None, (), test)

    blame, _ = play(fleet_of(6), replace(RULES, bus=False, node_floor=None), answer)
    assert blame.verdict != "go"
    assert "n002" not in blame.proven
    assert said in " ".join([*blame.not_tested.values(), *(each.why for each in blame.findings)])


def test_a_fabric_of_rails_that_no_pair_reports_is_no_go():
    """The sum of all rails may hide a dead one; a single node has no rails to report."""
    rules, fleet = replace(RULES, rails=True), fleet_of(16)
    blame, _ = play(fleet, rules, lambda *_: 100.0)
    assert (blame.verdict, blame.findings) == ("inconclusive", ())
    assert "measured nothing in" in blame.not_tested["n003"]
    blame, _ = play(fleet, rules, lambda t, _: Result("measured", 100.0, (50.0, 50.0) if len(t) > 1 else (), t))
    assert (blame.verdict, blame.reasons) == ("go", ())


def test_a_missing_round_and_a_missing_floor_are_no_go():
    fleet = fleet_of(16)
    _, history = play(fleet, RULES, lambda *_: 100.0)
    assert decode(fleet, RULES, history).verdict == "go"
    for gone in range(len(history)):
        assert decode(fleet, RULES, history[:gone] + history[gone + 1 :]).verdict == "inconclusive"
    assert decode(fleet, Rules(), history).verdict == "inconclusive"


def test_a_round_of_any_number_is_read_in_no_time():
    """Missing lines are reported as ranges, since a log may contain any number."""
    fleet = fleet_of(4)
    _, history = play(fleet, RULES, lambda *_: 100.0)
    far = replace(history[-1], round=replace(history[-1].round, number=10**12))
    blame = decode(fleet, RULES, [history[0], *history[2:], far])
    assert f"rounds without a record: 2, {len(history) + 1} to {10**12 - 1}" in blame.reasons


def test_a_rail_that_is_slower_in_a_group_is_reported():
    """The sum of all rails does not show it."""
    group = set(fleet_of(16).nodes[:5])

    def answer(test, _):
        last = 44.5 if len(test) > 1 and group.intersection(test) else 50.0
        return Result("measured", 100.0, (50.0,) * 7 + (last,), test)

    blame, _ = play(fleet_of(16), RULES, answer)
    assert blame.findings == ()
    assert any(note.startswith("two groups in a leaf, rail 7, ") for note in blame.notes)


def without_rails(blame):
    return [note for note in blame.notes if not note.startswith("rails not tested")]


@pytest.mark.parametrize(("size", "leaf"), [(16, 4), (64, 16)])
def test_two_halves_that_are_slower_with_each_other_are_reported(size, leaf):
    """All pairs across leaves connect both halves: none is slow among its kind, and all are above the floor.

    If slower than healthy groups, most uplinks may be the cause: it is not go.
    """
    fleet = fleet_of(size, leaf)
    first = set(fleet.nodes[: size // 2])

    def halves(share):
        return lambda test, _: 100.0 * (share if len(first.intersection(test)) == len(test) - 1 == 1 else 1.0)

    blame, _ = play(fleet, RULES, halves(0.9))
    assert (blame.verdict, blame.reasons) == ("go", ())
    (note,) = without_rails(blame)
    assert note.startswith("the level across leaves is 0.90 of that in a leaf ("), note
    blame, _ = play(fleet, RULES, halves(0.8))
    assert (blame.verdict, blame.findings) == ("inconclusive", ())
    assert blame.reasons[0].startswith("the level across leaves is 0.80 of that in a leaf (")
    near, _ = play(fleet, RULES, lambda test, _: 97.0 if fleet.crosses(test) else 100.0)
    assert (near.verdict, without_rails(near)) == ("go", [])


def test_a_rail_that_is_slower_across_leaves_is_reported():
    fleet = fleet_of(16, 4)

    def answer(last):
        return lambda test, _: Result("measured", 1e2, (12.5,) * 7 + (last if fleet.crosses(test) else 12.5,), test)

    blame, _ = play(fleet, RULES, answer(11.5))
    assert (blame.verdict, len(blame.notes)) == ("go", 1)
    assert blame.notes[0].startswith("the level across leaves, rail 7 is 0.92 of that in a leaf (")
    blame, _ = play(fleet, RULES, answer(10.0))
    assert (blame.verdict, blame.findings) == ("inconclusive", ())
    assert {each.rails for each in blame.apart} == {(7,)}


@pytest.mark.parametrize("share", [0.6, 0.8, 0.84])
@pytest.mark.parametrize(("size", "leaf"), [(8, 4), (16, 4), (24, 8), (64, 16), (232, 29)])
def test_a_leaf_inside_which_all_is_slow_is_reported_and_none_of_its_nodes_or_pairs_is_at_fault(size, leaf, share):
    """In half of the cluster, or one leaf, slower NICs pass with the others if paths across leaves are no faster."""
    fleet, rng = fleet_of(size, leaf), random.Random(size)
    for slow in ({"l1"}, {fleet.leaf(node) for node in fleet.nodes[size // 2 :]}):

        def speed(test, _, slow=slow):
            within_slow_leaf = not fleet.crosses(test) and fleet.leaf(test[0]) in slow
            return 100.0 * rng.gauss(1, 0.02) * (share if within_slow_leaf and len(test) > 1 else 1.0)

        blame, history = play(fleet, RULES, speed)
        assert (blame.verdict, blame.findings, blame.suspects) == ("inconclusive", (), {}), blame.reasons
        assert {fleet.leaf(node) for each in blame.apart for node in each.names} == slow
        assert len(history) < 16


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (15.0, "6 of 48 pairs below the floor of 20 GB/s: 15 GB/s"),
        (0.0, "no test ended: 6 of 48 pairs"),
        ("wrong sums", "wrong sums"),
    ],
)
def test_a_leaf_inside_which_all_is_wrong_is_no_go(result, said):
    """A leaf with wrong results inside is not go, even without a named node or path."""
    fleet = fleet_of(16, 4)

    def answer(test, _):
        within_leaf = len(test) > 1 and not fleet.crosses(test) and fleet.leaf(test[0]) == "l1"
        return (Result(result, reported=test) if isinstance(result, str) else result) if within_leaf else 100.0

    blame, _ = play(fleet, RULES, answer)
    assert blame.verdict == "no-go"
    assert any(said in reason for reason in blame.reasons), blame.reasons


def test_one_bad_node_of_a_leaf_is_named_though_it_fails_inside_only():
    """A bad node is in half of the leaf's pairs, so the leaf as a whole is not at fault."""
    fleet = fleet_of(16, 4)
    blame, _ = play(fleet, RULES, lambda t, _: 60.0 if "n005" in t and len(t) > 1 and not fleet.crosses(t) else 100.0)
    assert not blame.apart
    assert blame.verdict != "go"
    assert all("n005" in finding.names for finding in blame.findings), blame.findings


def test_rails_that_no_pair_reports_are_reported_as_not_tested():
    """A profile without rails does not require them: go, and no text suggests that they were tested."""
    fleet = fleet_of(16)
    blame, _ = play(fleet, RULES, lambda *_: 100.0)
    assert blame.verdict == "go"
    assert blame.notes == ("rails not tested: 48 of 48 pairs measured all rails together only",)
    some, _ = play(fleet, RULES, lambda t, _: Result("measured", 100.0, () if "n003" in t else (50.0, 50.0), t))
    assert (some.verdict, list(some.not_tested)) == ("inconclusive", ["n003"]), "other pairs report rails"
    every, _ = play(fleet, RULES, lambda t, _: Result("measured", 100.0, (50.0, 50.0), t))
    assert (every.verdict, every.notes) == ("go", ())


def test_no_healthy_pair_is_at_fault_for_a_part_of_the_fabric_that_is_congested():
    for seed in range(3):
        made, _ = model.broken("none", 232, random.Random(seed), congestion=0.9, part=0.4)
        assert model.sweep(made).findings == ()


def test_a_few_slow_nodes_are_no_healthy_group():
    """Three of 16 nodes at 0.87 are reported: they are in 38 % of the pairs, like a healthy group of leaves."""
    slow = ("n002", "n007", "n011")
    blame, _ = play(fleet_of(16), RULES, lambda t, _: 87.0 if len(t) > 1 and set(slow).intersection(t) else 100.0)
    assert tuple(f.names[0] for f in blame.findings) == slow
    group = fleet_of(16).nodes[11:]
    blame, _ = play(fleet_of(16), RULES, lambda t, _: 92.0 if len(t) > 1 and set(group).intersection(t) else 100.0)
    assert (blame.verdict, blame.findings) == ("go", ())


@pytest.mark.parametrize("size", [4, 6, 8])
@pytest.mark.parametrize("times", [1.3, 1.9, 2.5])
def test_a_node_whose_clock_is_slow_raises_no_fault(size, times):
    """All pairs that it times are too fast; the others pass at their real rate, and no node is below its level."""
    nodes = tuple(f"n{n}" for n in range(size))
    fleet, rules, history = Fleet(nodes), Rules(pair_floor=325.0, node_floor=400.0), []
    while (each := next_round(fleet, rules, history)) is not None:
        speeds = {test: (370.0 * (times if "n0" in test else 1)) if len(test) > 1 else 480.0 for test in each.tests}
        history.append(Done(each, {test: Result("measured", speed, (), test) for test, speed in speeds.items()}))
    blame = decode(fleet, rules, history)
    assert (blame.verdict, blame.findings) == ("inconclusive", ())
