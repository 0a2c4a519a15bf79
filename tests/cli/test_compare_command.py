"""`seatrial compare` as a user types it, on records of simulated runs and on damaged ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cli.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path


def record(**changes: Any) -> dict[str, Any]:
    """Return a minimal record whose bandwidth can be compared."""
    checks = [{"id": "nccl.gdr", "outcome": "passed", "findings": []}]
    rows = [{"size_bytes": size << 30, "in_place": {"busbw_gbps": 380.0}} for size in (2, 4, 8)]
    job = {"hosts": [{"name": "a"}, {"name": "b"}], "tables": [{"collective": "all_reduce", "rows": rows}]}
    return {
        "schema": 1,
        "run_id": "a",
        "verdict": "go",
        "scope": "full",
        "checks": checks,
        "collectives": {"ring": job},
        "later": "a key of a later version",
        **changes,
    }


def write(path: Path, content: object) -> str:
    """Write a record, or other content in its place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


@pytest.fixture
def broken() -> dict[str, Any]:
    """Return a record without GPUDirect, with a subject that tries to act on terminal and Markdown."""
    finding = {"subject": "node\x1b[31m|<b>", "ok": False, "observed": "no GPUDirect", "fault": "nccl.gdr-off"}
    return record(checks=[{"id": "nccl.gdr", "outcome": "failed", "findings": [finding]}])


@pytest.mark.parametrize("style", ["text", "markdown", "html", "json"])
def test_what_is_worse_is_reported_in_every_format(
    style: str, tmp_path: Path, broken: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 1, with fault and subject; no text of the record acts on the reader's terminal or page."""
    sides = [write(tmp_path / "a.json", record()), write(tmp_path / "b.json", broken)]
    assert main(["compare", *sides, "--format", style]) == 1
    said = capsys.readouterr().out
    assert "nccl.gdr-off" in said
    assert "\x1b" not in said
    assert style != "markdown" or "<b>" not in said.replace("\\<b\\>", "")
    assert style != "html" or "<b>" not in said
    assert style != "json" or json.loads(said)["verdict"] == "worse"


def test_the_same_is_said_to_be_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0; a directory of several runs is a side."""
    for run in ("one", "two"):
        write(tmp_path / "after" / run / "report.json", record(run_id=run))
    assert main(["compare", write(tmp_path / "a.json", record()), str(tmp_path / "after")]) == 0
    assert capsys.readouterr().out.startswith("SAME: nothing is worse (before: go, after: go)\n")


@pytest.mark.parametrize("style", ["text", "markdown", "json"])
def test_clusters_times_and_lost_checks_are_named(
    style: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each side has its cluster and time, and lost proofs are named."""
    about = {"cluster": {"server": "https://10.0.0.1:6443", "namespace": "team-a"}, "profile": "h100-ib"}
    before = record(started="2026-11-01T08:00:00+00:00", **about)
    after = record(started="2026-11-02T08:00:00+00:00", run_id="b", **about)
    before["checks"] = [*before["checks"], {"id": "runtime.gpus", "outcome": "passed", "findings": []}]
    sides = [write(tmp_path / "a.json", before), write(tmp_path / "b.json", after)]
    assert main(["compare", *sides, "--format", style]) == 10
    said = capsys.readouterr().out.replace("\\", "")
    assert said.count("https://10.0.0.1:6443") == 2
    assert all(word in said for word in ("2026-11-01T08:00", "2026-11-02T08:00", "team-a", "h100-ib", "runtime.gpus"))
    assert style == "json" or "1 check that passed before was not checked after" in said.replace("\n", " ")


def test_a_run_compared_with_itself_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path typed twice is reported, although the result is the same."""
    path = write(tmp_path / "a.json", record())
    assert main(["compare", path, path]) == 0
    assert "note: run a is on both sides" in capsys.readouterr().out


def test_nothing_measured_is_not_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two records without bandwidth have exit code 10, never 0."""
    sides = [write(tmp_path / f"{n}.json", record(collectives={}, run_id=str(n))) for n in range(2)]
    assert main(["compare", *sides]) == 10
    assert "no bandwidth was compared" in capsys.readouterr().out


def test_half_a_character_is_printed_and_is_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON can contain a lone surrogate, which no terminal accepts."""
    finding = {"subject": "node", "ok": False, "observed": "HALF", "fault": "nccl.gdr-off"}
    broken = record(checks=[{"id": "nccl.gdr", "outcome": "failed", "findings": [finding]}])
    after = write(tmp_path / "b.json", json.dumps(broken).replace("HALF", "\\ud800"))
    for style in ("text", "markdown", "json"):
        assert main(["compare", write(tmp_path / "a.json", record()), after, "--format", style]) == 1
        capsys.readouterr().out.encode()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[1]",
        "{}",
        "[" * 200_000,
        {"schema": 99},
        record(checks=None),
        record(checks=[{"id": 1}]),
        record(checks=[{"id": "a", "outcome": "green"}]),
        record(scope=None),
        {**record(), "schema": "1"},
        {**record(), "schema": True},
        {**record(), "schema": 0},
        record(scope="most"),
        record(verdict="fine"),
        record(trial=[1]),
        record(trial={"hosts": ["a"]}),
        record(bom=3),
        record(collectives={"ring": [1]}),
        record(collectives={"ring": {"hosts": "abc"}}),
        record(collectives={"ring": {"tables": [{"rows": [1]}]}}),
        record(collectives={"ring": {"tables": [{"rows": [{"size_bytes": "8G"}]}]}}),
        record(collectives={"ring": {"tables": [{"rows": [{"size_bytes": 1, "in_place": {"busbw_gbps": "fast"}}]}]}}),
        record(collectives={"ring": {"tables": [{"rows": [{"size_bytes": 1, "in_place": {"busbw_gbps": 10**400}}]}]}}),
        record(checks=[{"id": "a", "outcome": "failed", "findings": "none"}]),
        record(checks=[None]),
        record(checks=[{"id": "a", "outcome": "failed", "findings": [1]}]),
        json.dumps(record(seconds=float("nan"))),
    ],
)
def test_a_damaged_record_is_a_clear_error(content: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The refusal is one line with the file's name and exit code 4; never a verdict."""
    good = write(tmp_path / "good.json", record())
    bad = write(tmp_path / "bad.json", content)
    assert main(["compare", good, bad]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert "bad.json" in line


def test_what_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing file and an empty directory get one line each."""
    good = write(tmp_path / "good.json", record())
    (tmp_path / "empty").mkdir()
    for missing in ("none.json", "empty"):
        assert main(["compare", good, str(tmp_path / missing)]) == 4
        assert len(capsys.readouterr().err.splitlines()) == 1
