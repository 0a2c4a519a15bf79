"""The plan of a sweep: rounds, budgets, joining and leaving nodes, and the command's output about it."""

import os
import random
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from jobs.pod.sweep.decode import decode
from jobs.pod.sweep.model import Done, Fleet, Result, Rules
from jobs.pod.sweep.plan import next_round
from tests.pod.planned import ROOT, RULES, fleet_of, play


def test_a_round_that_disturbs_itself_is_repeated_with_half_as_many():
    def answer(test, each):
        return 50.0 if each.stage == 2 and len(each.tests) > 16 else 100.0

    blame, history = play(fleet_of(64), RULES, answer)
    assert (blame.verdict, blame.findings) == ("go", ())
    assert [len(done.round.tests) for done in history if done.round.stage == 2][:3] == [32, 16, 16]
    assert any("disturb each other" in note for note in blame.notes)


def test_the_plan_goes_on_from_its_history_and_keeps_to_at_once():
    _, history = play(fleet_of(33, 8), Rules(at_once=5), lambda *_: 100.0)
    assert max(len(done.round.tests) for done in history) == 5
    assert next_round(fleet_of(33, 8), Rules(at_once=5), history[:4]) == history[4].round


def test_nodes_that_are_busy_or_die_are_listed_and_the_others_are_proven():
    names = fleet_of(18).nodes
    busy = Fleet(names, {}, {"n003": "busy: team-a/train holds its GPUs"})
    blame, history = play(busy, RULES, lambda *_: 100.0)
    assert not any("n003" in test for done in history for test in done.round.tests)
    assert (blame.verdict, len(blame.proven)) == ("inconclusive", 17)
    assert "busy: team-a/train" in blame.not_tested["n003"]
    gone = dict.fromkeys(names, "busy")
    blame, history = play(Fleet(names, {}, gone), RULES, lambda *_: 100.0)
    assert (blame.verdict, history, sorted(blame.not_tested)) == ("inconclusive", [], sorted(names))
    _, history = play(fleet_of(18), RULES, lambda *_: 100.0)
    released = Fleet(names, {}, {"n003": "released"})
    assert next_round(released, RULES, history) is None
    assert decode(released, RULES, history).verdict == "go", "it was proven before it went"
    dead = Fleet(names, {}, {"n003": "the node is NotReady"})
    while (each := next_round(dead, RULES, history[:2])) is not None:
        assert not any("n003" in test for test in each.tests)
        history[2:] = [*history[2:], Done(each, {t: Result("measured", 100.0, (), t) for t in each.tests})][-1:]
        break


def test_nodes_join_and_go_while_a_sweep_runs():
    """All that stay are proven, none meets a partner twice except as a control, and a node that left half-tested is
    reported."""
    rng = random.Random(3)
    names = fleet_of(40, 8).nodes
    leaves = fleet_of(40, 8).leaves
    gone, history, met = dict.fromkeys(names[24:], "busy"), [], set()
    while (each := next_round(Fleet(names, leaves, gone), RULES, history)) is not None:
        assert not {n for t in each.tests for n in t} & set(gone)
        pairs = [t for t in each.tests if len(t) > 1]
        again = met.intersection(pairs)
        assert len(again) <= (2 if each.stage > 4 else 0), "a control of each kind, plus the open ones"
        met.update(pairs)
        history.append(Done(each, {t: Result("measured", rng.gauss(100, 1), (), t) for t in each.tests}))
        assert len(history) < 40
        if each.number == 2:
            gone["n000"] = "preempted"
            for name in names[24:32]:
                del gone[name]
        if each.number == 4:
            for name in names[32:]:
                del gone[name]
    blame = decode(Fleet(names, leaves, gone), RULES, history)
    assert set(names) - set(blame.proven) == set(blame.not_tested) == {"n000"}
    assert "preempted" in blame.not_tested["n000"]
    assert blame.verdict == "inconclusive"


def test_a_report_that_comes_twice_or_of_strangers_counts_once_and_as_nothing():
    fleet = fleet_of(16)
    blame, history = play(fleet, RULES, lambda t, _: 60.0 if "n003" in t and len(t) > 1 else 100.0)
    assert [f.names for f in blame.findings] == [("n003",)]
    twice = decode(fleet, RULES, [done for done in history for _ in range(3)])
    assert twice.findings == blame.findings
    assert any("recorded twice" in note for note in twice.notes)
    once = history[:3]
    failed = decode(fleet, RULES, [*once, *once, *once, *once])
    assert not failed.findings, "a failure reported four times is one failure"
    strange = [Done(replace(d.round, tests=(*d.round.tests, ("x", "y"), ("n001", "n001"))), d.results) for d in history]
    assert decode(fleet, RULES, strange).findings == blame.findings
    assert decode(fleet, RULES, history[::-1]) == blame


def test_a_budget_ends_the_plan_lists_what_is_left_and_is_no_go():
    fleet, history = Fleet(fleet_of(40).nodes[::-1]), []
    rules = replace(RULES, at_once=5)
    left = 500.0
    while (each := next_round(fleet, rules, history, left)) is not None:
        history.append(Done(each, {t: Result("measured", 100.0, (), t) for t in each.tests}, 41.0))
        left -= 41
    blame = decode(fleet, rules, history)
    assert (blame.verdict, len(history)) == ("inconclusive", 12)
    assert set(blame.not_tested) | set(blame.proven) == set(fleet.nodes)
    assert blame.not_tested
    for odd in (float("nan"), -1.0, float("-inf")):
        assert next_round(fleet, rules, [], odd) is None
    assert next_round(fleet, rules, [], 0.0) is None
    first = next_round(fleet, rules, [])
    assert {n for t in first.tests for n in t} == set(fleet.nodes[:5]), "the node tested longest ago comes first"


def sweep(*arguments):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-m", "checks", "sweep", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_the_command_plans_without_a_cluster():
    done = sweep("--plan", "--nodes", "232", "--leaf-size", "29", "--budget", "4m")
    assert done.returncode == 0, done.stderr
    assert "GPU-hours" in done.stdout
    assert "not a go" in done.stdout
    for wrong in (["--plan"], ["--plan", "--nodes", "0"], ["--plan", "--nodes", "2", "--budget", "soon"]):
        done = sweep(*wrong)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (4, "", 1), done.stderr


def test_the_plan_prices_nodes_that_are_released_as_they_are_proven():
    """Without a final job over all nodes, a sweep of a cluster with a bad node keeps few nodes to its end."""
    held, released = (sweep("--plan", "--nodes", "232", *more).stdout.splitlines() for more in ([], ["--no-scale"]))
    assert any(line.endswith("one job over all nodes that passed") for line in held)
    assert not any("one job over all" in line for line in released)
    hours = [float(re.search(r"([\d.]+) GPU-hours", said[-1])[1]) for said in (held, released)]
    assert hours[0] - hours[1] > 232 * 8 * 40 / 3600, "more than the job at the end"
    count = re.search(r"\((\d+) nodes released before the last round\)", released[-1])
    assert count and int(count[1]) > 0.8 * 232, released[-1]


def test_the_plan_prices_diagnostics():
    """Two minutes of level 2 on every node; no level, and 0, cost nothing."""
    said = [sweep("--plan", "--nodes", "64", *more).stdout for more in ([], ["--dcgm", "0"], ["--dcgm", "2"])]
    hours = [float(re.search(r"([\d.]+) GPU-hours", each)[1]) for each in said]
    assert said[0] == said[1] and "dcgmi" not in said[0]
    assert hours[2] - hours[0] == pytest.approx(64 * 8 * 120 / 3600, abs=0.1)
    assert "dcgmi diag -r 2, if its image has it): about 2 minutes more, 600 s at most" in said[2]


def test_the_plan_prices_training():
    """One more minute per node counts in hours and budget: five rounds fit into 6m40s, four with training."""
    options = ("--plan", "--nodes", "64", "--budget", "400s")
    without, trained = (sweep(*options, *more).stdout for more in ([], ["--training"]))
    hours = [float(re.search(r"([\d.]+) GPU-hours", said)[1]) for said in (without, trained)]
    assert hours[1] - hours[0] == pytest.approx(64 * 8 * 60 / 3600, abs=0.1)
    assert "trains alone, too: 60 s more" in trained and "trains" not in without
    assert "enough for 5 rounds" in without and "ends after 4 of 5 rounds" in trained
