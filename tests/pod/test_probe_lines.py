"""The form of the evidence: numbered lines, short enough for every log, split without loss."""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING

import pytest

from jobs.pod.stages import lines

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def written(tmp_path: Path):
    """Return a writer and its output."""
    path = tmp_path / "out"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    message = tmp_path / "message"
    message.touch()
    yield lines.Writer("r1", 3, descriptor, str(message)), path, message
    os.close(descriptor)


def reassemble(path: Path) -> dict[str, dict]:
    stages: dict[str, dict] = {}
    text = ""
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        assert len(line) <= 8192
        assert line.endswith(b"\n")
        entry = json.loads(line)
        assert next(iter(entry)) == "seatrial"
        assert entry["n"] == number
        if "chunk" not in entry:
            stages[entry["stage"]] = entry["data"]
            continue
        text = text * (entry["part"] > 1) + entry["chunk"]
        if entry["part"] == entry["parts"]:
            stages[entry["stage"]] = json.loads(text)
    return stages


def test_a_small_stage_is_one_line(written) -> None:
    """The line has exactly the specified form."""
    writer, path, _ = written
    writer.stage("dns", 0.2112, {"peers": []}, "ok")
    assert json.loads(path.read_text()) == {
        "seatrial": 1,
        "run": "r1",
        "rank": 3,
        "n": 1,
        "stage": "dns",
        "seconds": 0.211,
        "data": {"peers": []},
    }


@pytest.mark.parametrize("size", [8000, 8050, 8100, 8192, 9000, 50_000, 300_000])
@pytest.mark.parametrize(
    "letters", ['"\\', "a", "\u00e9\U0001f4a9\n", 'x\\"\u2028'], ids=["escapes", "plain", "wide", "mixed"]
)
def test_large_data_survives_being_cut(written, size: int, letters: str) -> None:
    """If text is split anywhere, no line is too long, and the parts restore the data."""
    writer, path, _ = written
    chosen = random.Random(size)
    data = {"text": "".join(chosen.choices(letters, k=size)), "more": [None, 1.5, {"\u00fc": "\\"}]}
    writer.stage("start", 1, {"x": 1}, "ok")
    writer.stage("collective.ring", 1, data, "ok")
    assert reassemble(path) == {"start": {"x": 1}, "collective.ring": data}


def test_progress_is_never_mistaken_for_evidence(written) -> None:
    """Progress lines are plain text, whatever their content."""
    writer, path, _ = written
    writer.say('{"seatrial":1}\n{"seatrial"' + "\u00e9" * 1000)
    (line,) = path.read_bytes().splitlines()
    assert line.startswith(b"seatrial rank 3: ")
    assert len(line) < 500


def test_the_termination_message_fits(written) -> None:
    """The message has at most 4,096 bytes and is still JSON, for any number of stages."""
    writer, _, message = written
    for number in range(300):
        writer.stage(f"collective.number-{number}", 0, {}, "timeout")
    writer.message()
    text = message.read_bytes()
    assert len(text) <= 4096
    assert json.loads(text)["lines"] == 300


def test_no_termination_log_is_no_problem(tmp_path: Path) -> None:
    """Without the kubelet's file none is created."""
    lines.Writer("r1", 0, 1, str(tmp_path / "absent")).message()
    assert not (tmp_path / "absent").exists()


def test_a_reader_that_went_away_is_no_problem() -> None:
    """A closed pipe does not end the probe."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        lines.Writer("r1", 0, writer).stage("start", 0, {}, "ok")
    finally:
        os.close(writer)
