"""The verdict of a run: every condition that prevents `go`, also after reading its record."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from reports.record import (
    EXIT_CODES,
    SCHEMA,
    CheckResult,
    Finding,
    Run,
    ended,
    measured,
    read_json,
    samples_of,
    succeeded,
    verdict_of,
    worst,
)
from reports.schema import Outcome, RecordError, Verdict, completed
from tests.table import table

if TYPE_CHECKING:
    from pathlib import Path

GO, NO_GO, INCONCLUSIVE = Verdict.GO, Verdict.NO_GO, Verdict.INCONCLUSIVE


def check(name: str = "a", outcome: Outcome = Outcome.PASSED, **more: Any) -> CheckResult:
    return CheckResult(id=name, title="", outcome=outcome, **more)


SKIPPED = check("b", Outcome.SKIPPED)


@table(
    "verdict, results, changes",
    [
        (GO, [check()], {}),
        (GO, [check()], {"required": ("a",)}),
        (INCONCLUSIVE, [], {}),
        (NO_GO, [check(), check("b", Outcome.FAILED)], {}),
        (NO_GO, [check("b", Outcome.FAILED)], {"interrupted": "SIGTERM", "pytest_exit": 3}),
        (INCONCLUSIVE, [check(), check("b", Outcome.ERROR)], {}),
        (INCONCLUSIVE, [check(), check("b", Outcome.BLOCKED)], {}),
        (INCONCLUSIVE, [check()], {"interrupted": "SIGTERM"}),
        (INCONCLUSIVE, [check()], {"pytest_exit": 3}),
        (INCONCLUSIVE, [SKIPPED], {}),
        (GO, [check(), SKIPPED], {}),
        (INCONCLUSIVE, [check(), SKIPPED], {"required": ("b",)}),
        (GO, [check(), check("b", Outcome.SKIPPED, waived=True)], {"required": ("b",)}),
        (INCONCLUSIVE, [check()], {"required": ("b",)}),  # it never ran
        (GO, [check()], {"required": ("b",), "scope": "partial"}),  # it was deselected
        (INCONCLUSIVE, [check(), SKIPPED], {"required": ("b",), "scope": "partial"}),
        (GO, [check(), check("b", Outcome.SKIPPED, proven_by=("a",))], {"required": ("b",)}),
        (INCONCLUSIVE, [check(), check("b", Outcome.SKIPPED, proven_by=("a", "c"))], {"required": ("b",)}),
        (
            INCONCLUSIVE,
            [check(), check("c", Outcome.SKIPPED), check("b", Outcome.SKIPPED, proven_by=("a", "c"))],
            {"required": ("b",)},
        ),
        (INCONCLUSIVE, [check()], {"asks_all": True, "pool": ("n1",)}),
        (GO, [check()], {"asks_all": True, "pool": ("n1",), "trial": {"hosts": {"pod": "n1"}}}),
        (GO, [check()], {"asks_all": True, "pool": ("n1",), "scope": "partial"}),
    ],
)
def test_every_clause_of_the_verdict(verdict: Verdict, results: list[CheckResult], changes: dict[str, Any]) -> None:
    """Each applies to a run, and to its record when it is read again."""
    run = Run(results=results, **changes)
    assert run.verdict is verdict
    assert run.exit_code == (changes.get("pytest_exit") or EXIT_CODES[verdict])
    assert verdict_of(completed(json.loads(json.dumps(run.to_dict())))) is verdict


def test_the_worst_of_verdicts() -> None:
    assert [worst(some) for some in ((), (GO,), (GO, INCONCLUSIVE), (INCONCLUSIVE, NO_GO, GO))] == [
        INCONCLUSIVE,
        GO,
        INCONCLUSIVE,
        NO_GO,
    ]


def test_faults_are_of_what_did_not_hold_and_each_once() -> None:
    findings = (
        Finding(subject="n1", ok=None, observed="", fault="x.open"),
        Finding(subject="n2", ok=True, observed="", fault="x.held"),
        Finding(subject="n3", ok=False, observed="", fault="x.bad"),
        Finding(subject="n4", ok=False, observed="", fault="x.bad"),
        Finding(subject="n5", ok=False, observed=""),
    )
    assert check(fault="x.whole", findings=findings).faults == ("x.whole", "x.open", "x.bad")


def test_what_was_not_measured_is_no_measurement() -> None:
    record = Run(collectives={"ring": None, "tree": {"verdict": "go"}}, intra_node={"n1": None}).to_dict()  # type: ignore[typeddict-item]
    assert [run for run, _ in measured(record)] == ["tree"]
    side = {"out_of_place": {"busbw_gbps": 0.0}, "in_place": {"busbw_gbps": math.inf}}
    assert list(samples_of(side)) == []  # type: ignore[arg-type]
    assert list(samples_of({"out_of_place": {"busbw_gbps": 7}, "in_place": None})) == [7.0]  # type: ignore[arg-type,typeddict-item]


def test_only_a_full_go_has_succeeded() -> None:
    started = "2026-01-01T00:00:00+00:00"
    assert succeeded(Run(results=[check()], started=started, seconds=5.0).to_dict()) == 1767225605.0
    assert succeeded(Run(results=[check()], started=started, scope="partial").to_dict()) is None
    assert succeeded(Run(started=started).to_dict()) is None
    assert ended(Run(started="yesterday", seconds=5.0).to_dict()) == 0.0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema": SCHEMA}, ""),
        ({"schema": SCHEMA + 1}, "use a newer seatrial"),
        ({"schema": 0}, "has no schema"),
        ({"schema": True}, "has no schema"),
        ({"run_id": None}, "'run_id' is missing"),
    ],
)
def test_a_record_of_this_schema_is_read_and_a_newer_one_is_not(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    (tmp_path / "report.json").write_text(json.dumps({**Run(run_id="r", results=[check()]).to_dict(), **change}))
    if not why:
        assert read_json(tmp_path)["run_id"] == "r"
        return
    with pytest.raises(RecordError, match=why):
        read_json(tmp_path)


def test_json_of_something_else_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("[1]")
    with pytest.raises(RecordError, match="not a record of a run"):
        read_json(tmp_path)


def contradicting(check_id: str = "nccl.correctness", wrong: int = 0, **changes: Any) -> dict[str, Any]:
    """Return a record of two nodes with a table, in which that check passed."""
    row = {"size_bytes": 8, "out_of_place": {"busbw_gbps": 1.0, "wrong": 0}, "in_place": {"wrong": wrong}}
    job = {"tables": [{"collective": "all_reduce", "rows": [row]}]}
    made = Run(run_id="r", results=[check(check_id)], trial={"nodes": 2, "pods": {"p-0": "a", "p-1": "b"}}).to_dict()
    return {**made, "collectives": {"ring": job}, "inside": {"a": job}, **changes}


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (contradicting(), ""),
        (contradicting("nccl.transport", wrong=3), ""),  # no check shows that the sums are right
        (contradicting(wrong=3), "nccl.correctness passed, and 3 sums are wrong"),
        (contradicting("nccl.correctness-node", wrong=3), "nccl.correctness-node passed"),
        (contradicting(verdict="no-go"), "verdict no-go, exit code 0"),
        (contradicting(exit_code=10), "verdict go, exit code 10"),
        (contradicting(exit_code=3), "verdict go, exit code 3"),
        (contradicting(exit_code=3, verdict="inconclusive"), ""),  # an internal error of pytest
        (contradicting(coverage={"tried": ["a"]}), "b is not among those that were tried"),
        (contradicting(coverage={"tried": []}, trial={"hosts": {"h": "a"}}), "a is not among"),
        (contradicting(coverage={"tried": ["a", "b"]}), ""),
    ],
)
def test_a_record_that_contradicts_itself_is_none(tmp_path: Path, record: dict[str, Any], why: str) -> None:
    """A record that was edited, or assembled from two, is refused, and never compared, marked or served."""
    (tmp_path / "report.json").write_text(json.dumps(record))
    if not why:
        assert read_json(tmp_path)["run_id"] == "r"
        return
    with pytest.raises(RecordError, match=f"not a record of a run, it contradicts itself: .*{why}"):
        read_json(tmp_path)
    del record["exit_code"], record["coverage"]  # of an earlier version
    record["checks"] = []
    (tmp_path / "report.json").write_text(json.dumps(record))
    assert read_json(tmp_path)["run_id"] == "r"
