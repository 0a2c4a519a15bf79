"""`seatrial compare` of two sweeps: slower nodes, repaired nodes, and nodes that were not tested again."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

from reports.compare.text import render
from tests.reports.records import compare, record


def sweep_record(run_id: str, speed: Callable[[str, str], float], *, seed: int = 0, **states: str) -> dict[str, Any]:
    """Return a sweep over six nodes, each in five pairs; `states`: nodes that are not proven."""
    chance = random.Random(seed)
    names = [f"n{number}" for number in range(6)]
    tests = [
        {"round": 1, "nodes": [name], "outcome": "measured", "busbw_gbps": 470.0 + chance.uniform(-9, 9)}
        for name in names
    ]
    for a in names:
        tests += [
            {"round": 2, "nodes": [a, b], "outcome": "measured", "busbw_gbps": speed(a, b) * chance.uniform(0.98, 1.02)}
            for b in names
            if a < b
        ]
    rows = [{"name": name, "leaf": "", "state": states.get(name, "proven")} for name in names]
    bad = [name for name, state in states.items() if state == "at fault"]
    sweep = {
        "sizes": {"alone": 8 << 30, "pair": 8 << 30},
        "tests": [test for test in tests if not any(states.get(n) == "not tested" for n in test["nodes"])],
        "findings": [{"kind": "node", "names": [name], "rails": [], "why": "3 of 3 pairs at 0.60"} for name in bad],
        "elements": {"nodes": rows, "uplinks": [], "pairs": []},
    }
    finding = [{"subject": name, "ok": False, "observed": "slow", "fault": "sweep.node"} for name in bad]
    checks = [{"id": "sweep.nodes", "outcome": "failed" if bad else "passed", "findings": finding}]
    verdict = "no-go" if bad else "go"
    return record(run_id=run_id, verdict=verdict, checks=checks, collectives={}, inside={}, sweep=sweep)


def fast(_a: str, _b: str) -> float:
    return 380.0


def slow_of(*bad: str) -> Callable[[str, str], float]:
    return lambda a, b: 230.0 if {a, b} & set(bad) else 380.0


def test_what_only_a_trial_or_a_sweep_has_is_one_line() -> None:
    """Twenty rows of checks that the other never runs would hide the changes; JSON has them all."""
    checks = [{"id": f"nccl.c{n}", "outcome": "passed", "findings": []} for n in range(20)]
    trial, swept = record(checks=checks), sweep_record("b", fast)
    for sides, lines in (
        ([trial, swept], ("20 checks of the trial are not part of a sweep", "1 check of the sweep is not part of a")),
        ([swept, trial], ("1 check of the sweep is not part of a trial", "20 checks of the trial are not part of a")),
    ):
        comparison = compare(sides[:1], sides[1:])
        text = render(comparison, "text")
        assert [line for line in text.splitlines() if line.startswith(lines)] == [
            line for start in lines for line in text.splitlines() if line.startswith(start)
        ]
        assert sum(line.startswith(lines) for line in text.splitlines()) == 2
        assert "nccl.c7" not in text
        assert "nccl.c7" in render(comparison, "json")
        assert comparison.verdict == "unclear"
    same = render(compare([trial], [record(checks=checks[:1])]), "text")
    assert "not part of" not in same
    assert "nccl.c7" in same


@pytest.mark.parametrize("columns", [80, 120])
def test_the_tables_fit_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No word is split, every column has a header, and equal rows are merged."""
    monkeypatch.setenv("COLUMNS", str(columns))
    text = render(compare([sweep_record("a", fast)], [sweep_record("b", slow_of("n2"), seed=7, n2="at fault")]), "text")
    assert max(map(len, text.splitlines())) <= columns
    rules = [number for number, line in enumerate(text.splitlines()) if line.startswith("---")]
    for number in rules:
        head, rule = text.splitlines()[number - 1 : number + 1]
        starts = [match.start() for match in re.finditer(r"-+", rule)]
        assert all(head[start : start + 1].strip() for start in starts)
    assert len(rules) >= 2


def test_two_healthy_sweeps_are_the_same() -> None:
    """A hundred draws have 2 % of noise on every test."""
    before = sweep_record("a", fast)
    for seed in range(1, 101):
        comparison = compare([before], [sweep_record("b", fast, seed=seed)])
        assert (comparison.verdict, comparison.changes) == ("same", []), seed


def test_a_node_that_became_slow_is_named_and_its_partners_are_not() -> None:
    """The sweep and the node's own bandwidth report it; its slow pairs are not attributed to its partners."""
    comparison = compare([sweep_record("a", fast)], [sweep_record("b", slow_of("n2"), seed=7, n2="at fault")])
    assert comparison.verdict == "worse"
    worse = {(change.area, change.subject) for change in comparison.changes if change.kind == "worse"}
    assert ("sweep", "n2") in worse
    assert ("bandwidth", "n2: all_reduce pairs of this node") in worse
    assert not [subject for _, subject in worse if subject.startswith(("n0:", "n1:", "n3:", "n4:", "n5:"))]


def test_a_node_that_was_repaired_is_better() -> None:
    """A node that was at fault is now proven."""
    comparison = compare([sweep_record("a", slow_of("n2"), n2="at fault")], [sweep_record("b", fast, seed=7)])
    assert ("better", "sweep", "n2", "at fault", "proven") in {
        (c.kind, c.area, c.subject, c.before, c.after) for c in comparison.changes
    }
    assert "worse" not in {change.kind for change in comparison.changes}


@pytest.mark.parametrize("state", ["not tested", "suspect"])
def test_a_node_that_was_at_fault_and_is_not_proven_is_not_repaired(state: str) -> None:
    """A cordoned or suspected node is not covered: the check passes for the other nodes."""
    before = sweep_record("a", slow_of("n2"), n2="at fault")
    comparison = compare([before], [sweep_record("b", fast, seed=7, n2=state)])
    assert comparison.verdict == "unclear"
    assert not [c for c in comparison.changes if (c.kind, c.area, c.subject) == ("better", "sweep", "n2")]
    assert ("unclear", "at fault", state) in {(c.kind, c.before, c.after) for c in comparison.changes}


def test_a_slower_node_that_still_passes_is_called_by_its_bandwidth() -> None:
    """Twelve percent less with all of its partners, above the floor: the sweep passes, the comparison does not."""
    after = sweep_record("b", lambda a, b: 334.0 if "n2" in (a, b) else 380.0, seed=7)
    comparison = compare([sweep_record("a", fast)], [after])
    assert comparison.verdict == "worse"
    assert "n2: all_reduce pairs of this node" in {c.subject for c in comparison.changes if c.kind == "worse"}
