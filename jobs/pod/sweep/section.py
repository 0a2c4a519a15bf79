"""The `sweep` section of report.json: rounds, tests, elements and verdict of a sweep as plain JSON.

docs/record.schema.json describes every key; saved.py reads it back.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, TypedDict

from .decode import blame_of, untested
from .judgement import FAIL, HARD, NOTHING, PASS, UNCLEAR, Facts, Judged, judge
from .model import NOTHING_MEASURED, OUTCOMES, Blame, Done, Fleet, Nodes, Result, Rules
from .rows import Elements, FindingRow, LevelRow, NodeRow, PairRow, RoundRow, TestRow, UplinkRow
from .state import State

MOST_TESTS = 400_000
"""A sweep makes two to four tests for each node, and never more than 12: `Rules.most_partners`."""
MOST_RAILS = 64
MOST_REASONS = 200
MOST_TEXT = 400

PROVEN, AT_FAULT, SUSPECT, FLAKY, NOT_TESTED, UNDECIDED = (
    "proven",
    "at fault",
    "suspect",
    "flaky",
    "not tested",
    "undecided",
)


class Section(TypedDict):
    """The content of `sweep` in report.json."""

    verdict: str
    reasons: List[str]
    reasons_left_out: int
    notes: List[str]
    findings: List[FindingRow]
    proven: List[str]
    flaky: List[List[str]]
    apart: List[FindingRow]
    suspects: Dict[str, str]
    not_tested: Dict[str, str]
    untested: str
    rules: Dict[str, Any]
    levels: List[LevelRow]
    rounds: List[RoundRow]
    tests: List[TestRow]
    tests_left_out: int
    elements: Elements


def section(fleet: Fleet, rules: Rules, history: Sequence[Done]) -> Section:
    """Return the rounds and results of a sweep so far, as JSON types without non-finite numbers."""
    facts = judge(fleet, rules, history)
    history = facts.history
    state = State(fleet, rules, facts)
    blame = blame_of(state, facts)
    graded = {(each.round, each.nodes): each for each in facts.judged}
    tests = [
        _test(done, nodes, graded.get((done.round.number, nodes))) for done in history for nodes in done.round.tests
    ]
    return {
        "verdict": blame.verdict,
        "reasons": [_text(each) for each in blame.reasons[:MOST_REASONS]],
        "reasons_left_out": max(0, len(blame.reasons) - MOST_REASONS),
        "notes": [_text(each) for each in blame.notes[:MOST_REASONS]],
        "findings": [
            {"kind": f.kind, "names": list(f.names), "rails": list(f.rails), "why": _text(f.why)}
            for f in blame.findings
        ],
        "proven": list(blame.proven),
        "flaky": [list(pair) for pair in blame.flaky],
        "apart": [
            {"kind": f.kind, "names": list(f.names), "rails": list(f.rails), "why": _text(f.why)} for f in blame.apart
        ],
        "suspects": {name: _text(why) for name, why in blame.suspects.items()},
        "not_tested": {name: _text(why) for name, why in blame.not_tested.items()},
        "untested": _text(untested(state, blame.not_tested)),
        "rules": {key: _finite(value) if isinstance(value, float) else value for key, value in asdict(rules).items()},
        "levels": [
            {"kind": kind, "rail": rail if rail >= 0 else None, "busbw_gbps": value}
            for (kind, rail), value in sorted(facts.levels.items())
            if math.isfinite(value)
        ],
        "rounds": [_round(done, graded, facts) for done in history],
        "tests": tests[:MOST_TESTS],
        "tests_left_out": max(0, len(tests) - MOST_TESTS),
        "elements": {"nodes": _nodes(state, blame), "uplinks": _uplinks(state), "pairs": _pairs(state)},
    }


# -- rows


def _test(done: Done, nodes: Nodes, judged: Optional[Judged]) -> TestRow:
    result = done.results.get(nodes, Result(NOTHING_MEASURED))
    outcome = result.outcome if result.outcome in OUTCOMES else NOTHING_MEASURED
    row: TestRow = {"round": done.round.number, "nodes": list(nodes), "outcome": outcome}
    busbw = _finite(result.busbw)
    if busbw is not None:
        row["busbw_gbps"] = busbw
    if result.rails:
        row["rails_gbps"] = [_finite(value) for value in result.rails[:MOST_RAILS]]
    reported = [node for node in nodes if node in result.reported]
    if len(reported) < len(nodes):
        row["reported"] = reported
    at = [node for node in nodes if node in result.at]
    if at:
        row["at"] = at
    if judged is not None and judged.value is not None:
        row["share"] = _round4(judged.value)
    return row


def _round(done: Done, graded: Mapping[Tuple[int, Nodes], Judged], facts: Facts) -> RoundRow:
    number = done.round.number
    grades = [graded[number, nodes].grade for nodes in done.round.tests if (number, nodes) in graded]
    return {
        "number": number,
        "stage": done.round.stage,
        "seconds": max(0.0, _finite(done.seconds) or 0.0),
        "tests": len(done.round.tests),
        "passed": grades.count(PASS),
        "failed": grades.count(FAIL) + grades.count(HARD),
        "unclear": grades.count(UNCLEAR),
        "nothing": grades.count(NOTHING),
        "repeated": number in facts.undone,
    }


def _nodes(state: State, blame: Blame) -> List[NodeRow]:
    named = {f.names[0] for f in blame.findings if f.kind in ("node", "rail")}
    flaky = {node for pair in blame.flaky for node in pair}
    of: Dict[str, List[Judged]] = {node: [] for node in state.fleet.nodes}
    for nodes, tests in state.of.items():
        for node in nodes:
            if node in of and not _by_uplink(state, nodes):
                of[node] += tests
    rows: List[NodeRow] = []
    for node in state.fleet.nodes:
        in_pairs = [each for each in of[node] if len(each.nodes) > 1 and each.shares]
        share, rails = _best(in_pairs or [each for each in of[node] if each.shares])
        rows.append(
            {
                "name": node,
                "leaf": state.fleet.leaf(node),
                "state": AT_FAULT
                if node in named
                else NOT_TESTED
                if node in blame.not_tested
                else SUSPECT
                if node in blame.suspects
                else FLAKY
                if node in flaky
                else PROVEN,
                "tests": state.tests[node],
                "passed": len(state.passed[node]),
                "failed": len(state.failed[node]),
                "share": share,
                "rails": rails,
            }
        )
    return rows


def _uplinks(state: State) -> List[UplinkRow]:
    leaves = sorted({state.fleet.leaf(node) for node in state.fleet.nodes})
    if len(leaves) < 2:
        return []
    of: Dict[str, List[Judged]] = {leaf: [] for leaf in leaves}
    for nodes, tests in state.of.items():
        if len(nodes) > 1 and state.fleet.crosses(nodes) and not any(state.at_fault(node) for node in nodes):
            for leaf in {state.fleet.leaf(node) for node in nodes} & set(of):
                of[leaf] += tests
    rows: List[UplinkRow] = []
    for leaf in leaves:
        share, rails = _best([each for each in of[leaf] if each.shares])
        blamed = leaf in state.bad_leaves
        passed = any(each.grade == PASS for each in of[leaf])
        rows.append(
            {
                "leaf": leaf,
                "state": AT_FAULT if blamed else SUSPECT if leaf in state.hot else PROVEN if passed else NOT_TESTED,
                "tests": len(of[leaf]),
                "failed": sum(each.grade in (FAIL, HARD) for each in of[leaf]),
                "share": share,
                "rails": rails,
            }
        )
    return rows


def _pairs(state: State) -> List[PairRow]:
    rows: List[PairRow] = []
    for pair, tests in sorted(state.of.items()):
        failed = sum(each.grade in (FAIL, HARD) for each in tests)
        if len(pair) < 2 or not failed or (state.explained(pair) and not state.between(pair)):
            continue
        named = ("pair", pair) in state.findings
        flaky = pair in state.flaky
        rows.append(
            {
                "nodes": list(pair),
                "state": AT_FAULT if named else FLAKY if flaky else UNDECIDED,
                "tests": len(tests),
                "failed": failed,
                "share": _best([each for each in tests if each.shares])[0],
            }
        )
    return rows


def _by_uplink(state: State, nodes: Nodes) -> bool:
    return state.fleet.crosses(nodes) and bool({state.fleet.leaf(node) for node in nodes} & state.bad_leaves)


def _best(tests: Sequence[Judged]) -> Tuple[Optional[float], List[float]]:
    """Return the best share of all rails together, and of each rail."""
    if not tests:
        return None, []
    most = max(len(each.shares) for each in tests)
    best = [max(each.shares[i] for each in tests if i < len(each.shares)) for i in range(min(most, 1 + MOST_RAILS))]
    return _round4(best[0]), [_round4(value) for value in best[1:]]


def _finite(value: Optional[float]) -> Optional[float]:
    return value if value is not None and math.isfinite(value) else None


def _round4(value: float) -> float:
    return round(value, 4) if math.isfinite(value) else 0.0


def _text(text: str) -> str:
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"
