"""A record is read as it was written, and has the verdict of its run, whatever ended it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from reports import record
from reports.record import CheckResult, RecordError, Run, bill, read_json, verdict_of, write_atomically, write_json
from reports.schema import Outcome, Verdict

if TYPE_CHECKING:
    from pathlib import Path

PASSED = CheckResult(id="a.b", title="", outcome=Outcome.PASSED, seconds=0.12345)


@pytest.mark.parametrize("code", [0, 2, 3, 4, 5])
def test_a_run_that_pytest_ended_is_no_go_in_its_record_either(code: int) -> None:
    """The run was interrupted, had an internal error or a usage error, or selected nothing."""
    run = Run(results=[PASSED], pytest_exit=code)
    assert (run.verdict is Verdict.GO) is (code == 0)
    assert verdict_of(json.loads(json.dumps(run.to_dict()))) is run.verdict


def test_a_record_is_written_where_it_is_asked_for_and_read_back(tmp_path: Path) -> None:
    """The folder is created if necessary, and its file can be named alone; seconds have milliseconds."""
    place = tmp_path / "new" / "folder" / "report.json"
    write_json(Run(results=[PASSED]), place)
    assert read_json(place) == read_json(place.parent)
    assert read_json(place)["checks"][0]["seconds"] == 0.123
    assert [each.name for each in place.parent.iterdir()] == ["report.json"]
    write_atomically(place, "{}")
    assert place.read_text() == "{}"


def test_a_file_that_is_too_large_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content does not matter; a record of exactly the maximum size is read."""
    place = tmp_path / "report.json"
    write_json(Run(results=[PASSED]), place)
    size = place.stat().st_size
    monkeypatch.setattr(record, "LARGEST", size)
    assert read_json(place)["checks"]
    monkeypatch.setattr(record, "LARGEST", size - 1)
    with pytest.raises(RecordError, match="it is larger than"):
        read_json(place)


def test_a_bill_of_materials_is_one_line_for_each_thing() -> None:
    """Counted values are joined, nested ones are named by path, none is omitted."""
    lines = dict(bill({"nodes": {"driver": {"580": 2, "570": 1}, "kernel": "6.8"}, "operator": "v25", "images": {}}))
    assert [(key.split()[-1].split(".")[-1], text) for key, text in lines.items()] == [
        ("driver", "580 (2), 570 (1)"),
        ("kernel", "6.8"),
        ("operator", "v25"),
    ]
