"""Rounds slowed as a whole: their failures are not findings, and bad nodes are still found."""

import random
from dataclasses import replace

import pytest

from benchmarks import sweep_model as model
from jobs.pod.sweep.decode import decode
from tests.pod.planned import RULES, fleet_of, play

PAIR = ("n087", "n088")


def test_a_first_round_that_is_slowed_does_not_clear_a_bad_pair():
    """The repetition among few nodes is 1.25 of its first round's level: that round was slowed, and is run again."""

    def answer(test, each):
        return (0.6 if each.number == 1 else 1.0) * (75.0 if test == bad else 100.0)

    fleet = fleet_of(232, 29)
    _, history = play(fleet, replace(RULES, alone=False), lambda *_: 100.0)
    bad = history[0].round.tests[5]
    blame, history = play(fleet, replace(RULES, alone=False), answer)
    assert [(f.kind, f.names) for f in blame.findings] == [("pair", bad)]
    assert [len(done.round.tests) for done in history if done.round.stage == 1] == [116, 58, 58]
    assert any("they disturb each other; repeated with 58 at once" in note for note in blame.notes)


@pytest.mark.parametrize("kind", ["none", "uplink", "pair", "node+uplink"])
@pytest.mark.parametrize("size", [16, 64])
def test_rounds_that_are_slowed_by_chance_raise_no_fault_and_hide_nothing(size, kind):
    """Three of ten rounds, in which more than a quarter of the cluster's pairs run at once."""
    for seed in range(4):
        made, truth = model.broken(kind, size, random.Random(f"{size}{kind}{seed}"), congestion=0.3)
        blame = model.sweep(made)
        assert {(f.kind, f.names, f.rails) for f in blame.findings} == truth, (seed, blame.reasons)
        assert (blame.verdict == "go") == (kind == "none"), (seed, blame.reasons)


def test_a_later_round_whose_controls_fail_raises_no_fault():
    slow = ("n003", "n011")
    failed = []

    def answer(test, each):
        if each.number == 1 and set(slow) & {*test}:
            failed.append(test)
            return 60.0  # once
        return 60.0 if each.stage > 4 and each.number < 8 else 100.0

    blame, history = play(fleet_of(64), replace(RULES, alone=False), answer)
    assert failed
    assert blame.findings == ()
    assert set(failed) <= set(blame.flaky), "a slowed test is not a failure, and is repeated until it passes"
    assert len(history) >= 8


def test_a_pairing_that_is_slow_however_few_run_at_once_is_reported_and_ends():
    blame, history = play(fleet_of(64), RULES, lambda _, each: 60.0 if each.stage == 2 else 100.0)
    assert (blame.verdict, blame.findings, blame.suspects) == ("inconclusive", (), {})
    assert any("however few run at once" in reason for reason in blame.reasons), blame.reasons
    assert len(history) < 16
    assert decode(fleet_of(64), RULES, history[::-1]) == blame


def test_bad_nodes_in_every_pair_of_a_round_are_no_disturbance():
    """Four of 24, each with a good one in the first round of four: repeated with fewer at once, they still fail."""
    rules = replace(RULES, alone=False, at_once=4)
    _, history = play(fleet_of(24), rules, lambda *_: 100.0)
    bad = {test[0] for test in history[0].round.tests}
    blame, history = play(fleet_of(24), rules, lambda t, _: 50.0 if bad & {*t} else 100.0)
    assert {f.names[0] for f in blame.findings if f.kind == "node"} == bad, blame.reasons
    assert len(blame.findings) == 4
