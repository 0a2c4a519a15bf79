"""The published schema of report.json; tests/e2e/test_scenarios.py validates the record of every scenario with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from reports.schema import Record, RecordedCheck, RecordedFinding, RecordError, completed
from tests.table import table

ROOT = Path(__file__).resolve().parents[2]
SCHEMA: dict[str, Any] = json.loads((ROOT / "docs" / "record.schema.json").read_text())


def test_the_schema_is_one() -> None:
    """The file is itself a valid schema, of the version that the code writes."""
    from reports.record import SCHEMA as VERSION

    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["schema"]["const"] == VERSION


def test_the_types_have_the_keys_of_the_schema() -> None:
    """Every key that the code reads is published."""
    assert set(Record.__annotations__) == set(SCHEMA["properties"])
    assert set(RecordedCheck.__annotations__) == set(SCHEMA["$defs"]["check"]["properties"])
    assert set(RecordedFinding.__annotations__) == set(SCHEMA["$defs"]["finding"]["properties"])


def test_what_an_old_record_does_not_say_is_empty_and_what_a_new_one_adds_is_kept() -> None:
    """Readers find every key; a sweep and cluster facts are kept as written."""
    record = completed({"verdict": "go", "scope": "full", "checks": [{"id": "a.b", "outcome": "passed"}], "later": 1})
    assert record["checks"][0]["findings"] == record["required"] == []
    assert (record["profile"], record["sweep"], record["seconds"], record["cluster"]) == (None, None, 0.0, {})
    assert record["coverage"]["pool"] is None
    assert dict(record)["later"] == 1


@table(
    "wrong, why",
    [
        ({"verdict": "green"}, "verdict is the text 'green', not one of go, inconclusive, no-go"),
        ({"checks": {}}, "checks is a mapping, not a list"),
        ({"checks": [None]}, r"checks\[0\] is null, not a mapping"),
        ({"checks": [{"id": "a.b"}]}, r"checks\[0\]\.outcome is null, not one of"),
        (
            {"checks": [{"outcome": "passed", "findings": [{"ok": "yes"}]}]},
            r"checks\[0\]\.findings\[0\]\.ok is the text 'yes', not true or false",
        ),
        ({"sweep": {"elements": {"nodes": [7]}}}, r"sweep\.elements\.nodes\[0\] is the number 7, not a mapping"),
        ({"sweep": {"tests": [{"nodes": "ab"}]}}, r"sweep\.tests\[0\]\.nodes is the text 'ab', not a list"),
        ({"seconds": True}, "seconds is the truth value True, not a number"),
        ({"seconds": 1e20}, r"seconds is the number 1e\+20, not a number"),
        ({"trial": {"hosts": {"a": 1}}}, r"trial\.hosts\['a'\] is the number 1, not text"),
        (
            {"collectives": {"ring": {"tables": [{"rows": [{"size_bytes": "8"}]}]}}},
            r"rows\[0\]\.size_bytes is the text '8', not a whole number",
        ),
    ],
)
def test_a_record_that_does_not_fit_its_types_is_refused_by_name(wrong: dict[str, Any], why: str) -> None:
    """One line names the invalid place."""
    with pytest.raises(RecordError, match=why):
        completed({"verdict": "go", "scope": "full", **wrong})
