"""The published schema of report.json; tests/e2e/test_scenarios.py holds the record of every scenario against it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

ROOT = Path(__file__).resolve().parents[2]
SCHEMA: dict[str, Any] = json.loads((ROOT / "docs" / "record.schema.json").read_text())


def test_the_schema_is_one() -> None:
    """The file is itself a valid schema, of the version that the code writes."""
    from reports.record import SCHEMA as VERSION

    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["schema"]["const"] == VERSION
