"""The published schema of report.json: what runs write is what it says, and a damaged record is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[2]
SCHEMA: dict[str, Any] = json.loads((ROOT / "docs" / "record.schema.json").read_text())


@pytest.mark.parametrize(("scenario", "code"), [("healthy", 0), ("socket-fallback", 1), ("api-down", 10)])
def test_what_a_run_writes_is_what_the_schema_says(scenario: str, code: int, tmp_path: Path) -> None:
    """An accepted run, a failed one, and one that could not even begin."""
    command = [sys.executable, "-m", "checks", "accept", "--cluster", f"sim:{scenario}", "--out", str(tmp_path)]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == code
    record = json.loads((tmp_path / "report.json").read_text())
    jsonschema.validate(record, SCHEMA)
    assert record.keys() == SCHEMA["properties"].keys()  # a key that is added is documented
    record["checks"][0]["outcome"] = "green"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(record, SCHEMA)


def test_the_schema_is_one() -> None:
    """The file is itself a valid schema, of the version that the code writes."""
    from reports.record import SCHEMA as VERSION

    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["schema"]["const"] == VERSION
