"""A sweep's statements about an element follow from its tests: counts, fractions, and released nodes."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import combinations
from math import comb, exp, isclose, log
from types import SimpleNamespace

import pytest

from benchmarks import sweep_model as model
from jobs.pod.sweep import apart, judgement, likelihood, section
from jobs.pod.sweep.judgement import judge
from jobs.pod.sweep.model import AT_ONCE, Result
from jobs.pod.sweep.plan import next_round
from jobs.pod.sweep.state import State
from tests.pod.planned import RULES, fleet_of, play

COUNT = re.compile(r"(\d+) of (\d+) pairs")


def pairs_of(history):
    """Return every measured pair with its values."""
    values = {}
    for done in history:
        for test, result in done.results.items():
            if len(test) == 2:
                values.setdefault(test, []).append(result.busbw)
    return values


@pytest.mark.parametrize("prior", [likelihood.ACCIDENT, likelihood.ANY, (2.0, 5.0)])
@pytest.mark.parametrize("tests", [0, 1, 2, 7, 30])
def test_how_likely_failures_are_adds_up_to_certainty(prior, tests):
    """The sum is over all numbers of failures for this many tests; fewer failures are likelier if few are expected."""
    likely = [exp(likelihood.at_unknown_rate((bad, tests), prior)) for bad in range(tests + 1)]
    assert isclose(sum(comb(tests, bad) * each for bad, each in enumerate(likely)), 1.0, rel_tol=1e-9)
    rate = prior[0] / sum(prior)
    expected = sum(bad * comb(tests, bad) * each for bad, each in enumerate(likely))
    assert isclose(expected, rate * tests, rel_tol=1e-9, abs_tol=1e-12)


@pytest.mark.parametrize(("count", "size"), [(1, 1), (3, 8), (8, 8), (5, 64)])
def test_a_group_is_one_of_as_many_as_there_are(count, size):
    assert isclose(likelihood.log_of_groups(count, size), log(comb(size, count)), rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.parametrize("unclear", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_an_uplink_is_reported_with_the_pairs_that_failed_of_those_that_were_decided(seed, unclear):
    """Some paths of the uplink are good; a pair between the thresholds is neither a failure nor a pass."""
    fleet = fleet_of(16, 4)
    rng = random.Random(seed)
    crossing = [pair for pair in combinations(fleet.nodes, 2) if len({fleet.leaf(n) for n in pair} & {"l0"}) == 1]
    crossing = [pair for pair in crossing if fleet.crosses(pair)]
    whole = set(rng.sample(crossing, len(crossing) // 5))
    between = set(rng.sample(sorted(whole), len(whole) // 2)) if unclear else set()

    def answer(test, _):
        if test in between:
            return 91.5
        return 60.0 if test in crossing and test not in whole else 100.0

    blame, history = play(fleet, replace(RULES, seed=seed), answer)
    (finding,) = [each for each in blame.findings if each.kind == "uplink"]
    assert finding.names == ("l0",)
    measured = [pair for pair in pairs_of(history) if pair in crossing]
    failed = [pair for pair in measured if pair not in whole]
    decided = [pair for pair in measured if pair not in between]
    assert COUNT.match(finding.why).groups() == (str(len(failed)), str(len(decided)))
    assert len(failed) < len(decided)


@pytest.mark.parametrize(
    ("outcome", "alone"),
    [*((each, alone) for each in AT_ONCE for alone in (True, False)), ("failed", True), ("no end", True)],
)
def test_nodes_that_are_bad_by_themselves_are_no_fault_of_an_uplink(outcome, alone):
    """Nodes that pass inside their leaf and fail across it are at fault themselves, and the uplink is not."""
    fleet = fleet_of(16, 4)
    bad = {"n000", "n001", "n002"}

    def answer(test, _):
        if not bad & {*test} or (len(test) == 1) != alone:
            return 50.0 if alone and bad & {*test} and fleet.crosses(test) else 100.0
        return Result(outcome, reported=test) if alone or fleet.crosses(test) else 100.0

    blame, _ = play(fleet, RULES, answer)
    assert {(each.kind, each.names[0]) for each in blame.findings} == {("node", node) for node in bad}, blame.reasons


@pytest.mark.parametrize("kind", ["node", "nodes3", "rail", "pair", "hidden-hashed", "most-partners", "slow-group"])
def test_no_node_meets_one_that_has_gone(kind):
    """A preempted pod does not respond, whatever is still in doubt."""
    for seed in range(2):
        made, _ = model.broken(kind, 16, random.Random(f"{kind}16{seed}"))
        fleet, rng = made.fleet(), random.Random(seed)
        gone: dict[str, str] = {}
        history = []
        while (each := next_round(replace(fleet, gone=dict(gone)), model.RULES, history)) is not None:
            assert not {node for test in each.tests for node in test} & gone.keys()
            assert len(history) < 60, "a plan without an end"
            history.append(made.run(fleet, each, 40, 120))
            if len(history) in (3, 5):
                gone[rng.choice([node for node in fleet.nodes if node not in gone])] = "preempted"


def test_a_node_meets_more_partners_while_it_has_met_few_and_others_are_left():
    """Limits: it has left, it has met enough partners, or no peer remains."""
    fleet, rules = fleet_of(8), replace(RULES, alone=False)
    _, history = play(fleet, rules, lambda *_: 100.0, stop=2)

    def state(**gone):
        of = replace(fleet, gone=gone)
        return State(of, rules, judge(of, rules, history))

    met = {partner for pair in pairs_of(history) if "n000" in pair for partner in pair} - {"n000"}
    assert len(met) == 2
    assert state()._can_meet_more("n000", 3)
    assert not state()._can_meet_more("n000", 2)
    assert not state(n000="preempted")._can_meet_more("n000", 3)
    assert not state(**dict.fromkeys({*fleet.nodes} - met - {"n000"}, "preempted"))._can_meet_more("n000", 3)
    assert state(**dict.fromkeys(met, "preempted"))._can_meet_more("n000", 3)


LEVEL = {("in a leaf", -1): 100.0, ("in a leaf", 0): 50.0, ("in a leaf", 1): 50.0, ("alone", -1): 100.0}
BOTH = ("n000", "n001")


@pytest.mark.parametrize(
    ("speed", "rails", "grade"),
    [
        (100.0, (), "pass"),
        (93.0, (), "pass"),
        (92.9, (), "unclear"),
        (90.0, (), "unclear"),
        (89.9, (), "fail"),
        (0.0, (), "fail"),
        (200.0, (), "pass"),  # twice the level is unusual but possible
        (200.1, (), "nothing"),
        (100.0, (50.0, 50.0), "pass"),
        (96.0, (50.0, 46.0), "unclear"),
        (94.0, (50.0, 44.0), "fail"),
        (100.0, (50.0, None), "nothing"),
        (0.0, (None, None), "fail"),  # it did not complete: no rail was measured
        (None, (), "nothing"),
        (float("nan"), (), "nothing"),
    ],
)
def test_a_pair_is_graded_by_its_slowest_rail_against_the_level(speed, rails, grade):
    """A pair is proven from 0.93 on, fails below 0.90, and is undecided between them; a value that no fault explains
    does not count."""
    result = Result("measured", speed, rails, BOTH)
    made = judgement._judge(fleet_of(2), replace(RULES, pair_floor=None), BOTH, result, LEVEL, {})
    assert made.grade == grade
    assert made.rails == (frozenset({1}) if rails == (50.0, 44.0) else frozenset())


@pytest.mark.parametrize(("floor", "grade"), [(None, "pass"), (99.9, "pass"), (100.0, "pass"), (100.1, "fail")])
@pytest.mark.parametrize("nodes", [BOTH, BOTH[:1]])
def test_what_is_below_its_floor_fails_at_any_level(floor, grade, nodes):
    """A pair has the floor of pairs, a single node that of nodes."""
    own, other = ("pair_floor", "node_floor")[:: 1 if len(nodes) == 2 else -1]
    rules = replace(RULES, **{own: floor, other: 500.0})
    made = judgement._judge(fleet_of(2), rules, nodes, Result("measured", 100.0, (), nodes), LEVEL, {})
    assert made.grade == grade


@pytest.mark.parametrize(
    ("result", "rules", "grade"),
    [
        (Result("measured", 100.0, (), BOTH), {"rails": True}, "nothing"),  # each rail's report was required
        (Result("measured", 100.0, (50.0, 50.0), BOTH), {"rails": True}, "pass"),
        (Result("measured", 100.0, (), BOTH[:1]), {}, "nothing"),  # only one of them sent its half
        (Result("measured", 100.0, (), ()), {}, "nothing"),
        (Result("wrong sums", 100.0, (), BOTH), {}, "hard"),
        (Result("wrong transport", None, (), ()), {}, "hard"),
        (Result("nothing", None, (), BOTH), {}, "nothing"),
        (Result("no end", None, (), BOTH), {}, "fail"),
    ],
)
def test_a_pair_that_did_not_tell_all_is_never_a_pass(result, rules, grade):
    made = judgement._judge(fleet_of(2), replace(RULES, pair_floor=None, **rules), BOTH, result, LEVEL, {})
    assert made.grade == grade


def test_a_text_in_the_record_is_cut_at_its_longest_and_shows_it():
    limit = section.MOST_TEXT
    assert section._text("x" * limit) == "x" * limit
    assert section._text("x" * (limit + 1)) == "x" * (limit - 1) + "…"


def test_a_slow_group_is_reported_with_the_median_of_its_own_failures():
    """Other nodes' failures, and passes of a node of the group, are not its speed."""
    tests = {
        ("n000", "n001"): [(judgement.FAIL, 0.80), (judgement.FAIL, 0.82)],
        ("n000", "n005"): [(judgement.FAIL, 0.81), (judgement.UNCLEAR, 0.92)],
        ("n001", "n006"): [(judgement.FAIL, 0.79), (judgement.PASS, 0.98), (judgement.PASS, 0.99)],
        ("n005", "n006"): [(judgement.FAIL, 0.30)] * 9,
        ("n001",): [(judgement.NOTHING, None)],
    }
    of = {nodes: [SimpleNamespace(grade=grade, value=value) for grade, value in each] for nodes, each in tests.items()}
    met = dict.fromkeys(fleet_of(8).nodes)
    finding = apart._slow(SimpleNamespace(of=of, slow=frozenset({"n000", "n001"}), met=met))
    assert finding.why.startswith("2 of 8 nodes reach 0.81 of the others' bandwidth, also with each other")
    assert (finding.kind, finding.names) == ("groups", ("n000", "n001"))


@pytest.mark.parametrize("whole", [False, True])
def test_a_rail_is_named_by_the_failures_that_tell_which(whole):
    """A pair that is equally slow on all rails identifies no rail, and does not cancel other evidence."""
    fleet = fleet_of(9)

    def answer(test, _):
        speeds = [12.5] * 8
        if "n000" in test and len(test) == 2:
            speeds[3] = 5.0
            if whole and "n004" in test:
                speeds = [5.0] * 8
        return Result("measured", sum(speeds), tuple(speeds), test)

    blame, _ = play(fleet, replace(RULES, node_floor=None, pair_floor=None), answer)
    assert {(each.kind, each.names, each.rails) for each in blame.findings if "n000" in each.names} == {
        ("rail", ("n000",), (3,))
    }, blame.reasons
