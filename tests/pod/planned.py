"""Simulated sweeps without a cluster: answers to the tests of each round of the plan."""

from pathlib import Path

from jobs.pod.sweep.decode import decode
from jobs.pod.sweep.model import Done, Fleet, Result, Rules
from jobs.pod.sweep.plan import next_round

ROOT = Path(__file__).resolve().parents[2]


def play(fleet, rules, answer, stop=99):
    """Sweep with answer(test, round) -> GB/s, Result or None (no answer)."""
    history: list[Done] = []
    while len(history) < stop and (each := next_round(fleet, rules, history)) is not None:
        assert len({n for t in each.tests for n in t}) == sum(map(len, each.tests)), "a node in two tests of a round"
        assert len(history) < 60, "a plan without an end"
        results = {}
        for test in each.tests:
            got = answer(test, each)
            if isinstance(got, Result):
                results[test] = got
            elif got is not None:
                results[test] = Result("measured", got, (), test) if got else Result("no end", reported=test)
        history.append(Done(each, results))
    return decode(fleet, rules, history), history


def fleet_of(size, leaf=0):
    names = tuple(f"n{i:03}" for i in range(size))
    return Fleet(names, {n: f"l{i // leaf}" for i, n in enumerate(names)} if leaf else {})


RULES = Rules(pair_floor=20.0, node_floor=20.0)
