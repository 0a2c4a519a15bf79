"""Coverage of the pool by a verdict: in the record, and in everything derived from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reports import html, markdown
from reports.compare.comparison import compare
from reports.junit import stamp
from reports.metrics import exposition
from reports.record import CheckResult, Coverage, Finding, Run, coverage_of, verdict_of
from reports.schema import Outcome, Verdict, completed
from reports.summary import summarize
from tests.program import seatrial

ROOT = Path(__file__).resolve().parents[2]
POOL = tuple(f"n{number}" for number in range(16))


def run(pool: tuple[str, ...] | None, tried: tuple[str, ...], outcome: Outcome = Outcome.PASSED, **changes: Any) -> Run:
    """Return a run with this outcome of its only check."""
    return Run(
        results=[CheckResult(id="a.b", title="", outcome=outcome)],
        pool=pool,
        trial={"hosts": {f"pod-{node}": node for node in tried}},
        **changes,
    )


@pytest.mark.parametrize(
    ("pool", "tried", "said", "whole", "left"),
    [
        (POOL, POOL[:2], "2 of 16 nodes tried", False, 14),
        (POOL, POOL, "16 of 16 nodes tried", True, 0),
        (POOL[:2], POOL[:3], "3 of 3 nodes tried", True, 0),
        (POOL, (), "0 of 16 nodes tried", False, 16),
        ((), (), "0 of 0 nodes tried", False, 0),
        (POOL[:1], POOL[:1], "1 of 1 node tried", True, 0),
        (None, POOL[:2], "2 nodes tried, pool unknown", False, 0),
        (None, POOL[:1], "1 node tried, pool unknown", False, 0),
    ],
)
def test_coverage_is_said_in_words(
    pool: tuple[str, ...] | None, tried: tuple[str, ...], said: str, whole: bool, left: int
) -> None:
    """A hidden or empty pool is never completely covered."""
    coverage = Coverage(tried=tried, pool=pool)
    assert (str(coverage), coverage.whole, len(coverage.untried)) == (said, whole, left)
    assert run(pool, tried).coverage == coverage_of(json.loads(json.dumps(run(pool, tried).to_dict())))


@pytest.mark.parametrize(
    ("pool", "tried", "outcome", "verdict"),
    [
        (POOL, POOL[:2], Outcome.PASSED, Verdict.INCONCLUSIVE),
        (POOL, POOL, Outcome.PASSED, Verdict.GO),
        (None, POOL, Outcome.PASSED, Verdict.INCONCLUSIVE),
        ((), (), Outcome.PASSED, Verdict.INCONCLUSIVE),
        (POOL, POOL[:2], Outcome.FAILED, Verdict.NO_GO),
    ],
)
def test_all_nodes_are_tried_where_all_are_asked_for(
    pool: tuple[str, ...] | None, tried: tuple[str, ...], outcome: Outcome, verdict: Verdict
) -> None:
    """Fewer are not go; without that requirement the verdict is about the tried nodes. The record says the same."""
    asked = run(pool, tried, outcome, asks_all=True)
    assert asked.verdict is verdict is verdict_of(asked.to_dict())
    assert run(pool, tried, outcome).verdict is (Verdict.NO_GO if outcome is Outcome.FAILED else Verdict.GO)


@pytest.mark.parametrize(
    ("pods", "hosts", "verdict", "said"),
    [
        ({"p-0": "n0", "p-1": "n1"}, {"clone": "n1"}, Verdict.GO, "2 of 16 nodes tried"),
        ({"p-0": "n0", "p-1": "n1"}, {}, Verdict.GO, "2 of 16 nodes tried"),
        ({"p-0": "n0"}, {"p-0": "n0"}, Verdict.INCONCLUSIVE, "1 of 16 nodes tried"),
        ({"p-0": "n0", "p-1": "n0"}, {}, Verdict.INCONCLUSIVE, "1 of 16 nodes tried"),
        ({}, {}, Verdict.INCONCLUSIVE, "0 of 16 nodes tried"),
    ],
)
@pytest.mark.parametrize("scope", ["full", "partial"])
def test_no_go_covers_fewer_nodes_than_the_trial_spans(
    pods: dict[str, str], hosts: dict[str, str], verdict: Verdict, said: str, scope: str
) -> None:
    """Pods count, whatever their host names; with evidence from fewer nodes than requested nothing is go."""
    made = run(POOL, (), scope=scope)
    made.trial = {"nodes": 2, "pods": pods, "hosts": hosts}
    assert made.verdict is verdict is verdict_of(completed(json.loads(json.dumps(made.to_dict()))))
    assert str(made.coverage) == said
    assert bool(made.too_few_tried) == (verdict is not Verdict.GO)


def test_a_preflight_says_that_no_pod_was_started(tmp_path: Path) -> None:
    """The text has neither a fraction of nodes nor names of untried nodes."""
    made = run(POOL, ())
    made.trial = {}
    record = made.to_dict()
    junit = tmp_path / "junit.xml"
    junit.write_text("<testsuites><testsuite/></testsuites>")
    stamp(junit, made)
    texts = [summarize(record).headline, record["coverage"]["said"], html.page(made), junit.read_text()]
    texts.append(markdown.markdown(record))
    assert made.verdict is Verdict.GO
    for text in texts:
        assert "no pod was started" in text
        assert "nodes tried" not in text
        assert "n15" not in text
    assert record["coverage"]["untried"] == list(POOL)


def test_what_is_drawn_from_the_record_says_it() -> None:
    """Report and metrics have the number of tried nodes and the names of the others."""
    made = run(POOL, POOL[:2])
    page = html.page(made)
    assert "go \u00b7 2 of 16 nodes tried" in page
    assert "n15" in page
    metrics = exposition(made.to_dict())
    assert "seatrial_nodes_tried 2.0" in metrics
    assert "seatrial_pool_nodes 16.0" in metrics
    assert 'seatrial_node_tried{node="n15"} 0.0' in metrics
    assert 'seatrial_node_tried{node="n1"} 1.0' in metrics
    assert "seatrial_pool_nodes NaN" in exposition(run(None, POOL[:2]).to_dict())
    old = {"verdict": "go", "scope": "full", "trial": {"hosts": {"a": "n1"}}}
    assert "seatrial_pool_nodes NaN" in exposition(completed(old))  # an old record


def side(pool: tuple[str, ...] | None, *tried: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the records of runs on these nodes."""
    return [run(pool, nodes, run_id=f"r{number}").to_dict() for number, nodes in enumerate(tried)]


@pytest.mark.parametrize(
    ("before", "after", "fleet", "refusals"),
    [
        (side(POOL, POOL), side(POOL, POOL), True, 0),
        (side(POOL, POOL[:2]), side(POOL, POOL[:2]), True, 2),
        (side(POOL, POOL[:2]), side(POOL, POOL[:2]), False, 0),
        (side(POOL, POOL), side(POOL, POOL[:8], POOL[8:]), True, 0),
        (side(None, POOL[:2]), side(None, POOL[:2]), True, 2),
        (side(POOL, POOL), side(POOL, POOL[:2]), True, 1),
    ],
)
def test_a_gate_that_answers_for_the_fleet_refuses_a_part(
    before: list[dict[str, Any]], after: list[dict[str, Any]], fleet: bool, refusals: int
) -> None:
    """The runs of a side are combined; otherwise it is a note. A side that tries fewer nodes than before is unclear."""
    comparison = compare(before, after, all_nodes=fleet)
    assert sum("the rest is not compared" in text for text in comparison.unclear) == refusals
    assert fleet or any("2 of 16 nodes tried (not n" in note for note in comparison.notes)
    assert [c.kind for c in comparison.changes if c.area == "nodes"] == (["unclear"] if refusals == 1 else [])


def test_a_smaller_pool_is_unclear() -> None:
    """A pool is smaller after nodes left it, or with a selector that excludes them."""
    comparison = compare(side(POOL, POOL[:2]), side(POOL[:15], POOL[:2]))
    assert [(c.kind, c.subject) for c in comparison.changes if c.area == "nodes"] == [("unclear", "n15")]


def test_a_run_that_is_kept_to_the_nodes_of_the_first_is_compared_with_it() -> None:
    """`--on BEFORE` judges two of sixteen nodes: earlier API results about the others are not a lost proof."""

    def judged(nodes: tuple[str, ...]) -> dict[str, Any]:
        made = run(POOL, POOL[:2])
        findings = tuple(Finding(subject=node, ok=True, observed="8") for node in nodes)
        made.results[0] = CheckResult(id="a.b", title="", outcome=Outcome.PASSED, findings=findings)
        return made.to_dict()

    assert compare([judged(POOL)], [judged(POOL[:2])]).changes == []
    (lost,) = compare([judged(POOL)], [judged(POOL[:1])]).changes
    assert (lost.kind, lost.before, lost.after) == ("unclear", "2 subjects", "1 subjects")


@pytest.mark.parametrize(
    "arguments", [["cron", "--profile", "h100-ib", "--nodes", "all"], ["accept", "--partner", "a=b", "--nodes", "all"]]
)
def test_what_cannot_try_all_refuses_to_be_asked(arguments: list[str], tmp_path: Path) -> None:
    """A scheduled run or a canary run tries only some nodes, so `--nodes all` is refused in one line with exit code 4."""
    done = seatrial(*arguments, "--out", str(tmp_path))
    assert (done.returncode, len(done.stderr.splitlines())) == (4, 1)
    assert "--nodes all" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "said", "code"),
    [
        ([], "2 of 3 nodes tried", 0),
        (["--nodes", "all"], "2 of 3 nodes tried", 10),
        (["--tenant"], "2 nodes tried, pool unknown", 0),
        (["-m", "preflight"], "no pod was started", 0),
    ],
)
def test_a_run_says_how_many_nodes_it_tried(more: list[str], said: str, code: int, tmp_path: Path) -> None:
    """The run has three simulated nodes; the record follows the schema."""
    scenario = tmp_path / "three.yaml"
    scenario.write_text("name: three\ntitle: Three\nbreaks: nothing\nfaults: []\noutcome: go\nworld: {nodes: 3}\n")
    done = seatrial("accept", "--cluster", f"sim:{scenario}", "--out", str(tmp_path / "o"), *more)
    assert done.returncode == code, done.stdout
    assert f" \u00b7 {said} \u00b7 " in " ".join(done.stdout.split()), done.stdout
    assert json.loads((tmp_path / "o" / "report.json").read_text())["coverage"]["said"] == said


@pytest.mark.parametrize(
    ("untried", "most", "said"),
    [
        (0, 8, ""),
        (1, 8, "n00"),
        (8, 8, "n00, n01, n02, n03, n04, n05, n06, n07"),
        (9, 8, "n00, n01, n02, n03, n04, n05, n06, n07 and 1 more"),
        (40, 2, "n00, n01 and 38 more"),
    ],
)
def test_nodes_that_were_not_tried_are_named_up_to_a_number(untried: int, most: int, said: str) -> None:
    """Every node is counted: the unnamed ones by their number, and no others."""
    pool = tuple(f"n{number:02}" for number in range(untried))
    assert Coverage(tried=("tried",), pool=(*pool, "tried")).not_tried(most) == said
