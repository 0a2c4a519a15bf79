"""`seatrial serve`: the newest record at every scrape; a damaged one is not hidden by an older one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from cli.__main__ import main
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def record(verdict: str, started: str) -> dict[str, Any]:
    """Return the record of a run without a trial."""
    return {
        "schema": 1,
        "run_id": "a",
        "verdict": verdict,
        "scope": "full",
        "checks": [],
        "collectives": {},
        "started": started,
        "seconds": 1.0,
    }


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """Return the address of a server of an empty folder."""
    command = [sys.executable, "-m", "checks", "serve", str(tmp_path), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.terminate()
    process.wait(timeout=HANG_S)
    process.stdout.close()


def test_every_scrape_reads_the_newest_record(served: str, tmp_path: Path) -> None:
    """No record, a success, a later failure that keeps the time of the success, then a damaged record."""

    def scrape() -> str:
        with urllib.request.urlopen(served, timeout=HANG_S) as answer:
            return str(answer.read().decode())

    def write(name: str, content: str) -> None:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "report.json").write_text(content)

    assert "seatrial_record_readable 0.0" in scrape()
    write("1", json.dumps(record("go", "2026-01-01T00:00:00+00:00")))
    assert 'seatrial_run_verdict{verdict="go"} 1.0' in scrape()
    write("2", json.dumps(record("no-go", "2026-01-02T00:00:00+00:00")))
    later = scrape()
    assert 'seatrial_run_verdict{verdict="no-go"} 1.0' in later
    assert "seatrial_last_success_timestamp_seconds 1.767225601e+09" in later
    write("3", "{")
    damaged = scrape()
    assert "seatrial_record_readable 0.0" in damaged
    assert "seatrial_run_verdict" not in damaged


def test_what_a_scheduled_run_left_is_served_as_it_is(served: str, tmp_path: Path) -> None:
    """A scheduled run's metrics have bad nodes and an inconclusive first failure; a later manual run precedes it."""

    def scrape() -> str:
        with urllib.request.urlopen(served, timeout=HANG_S) as answer:
            return str(answer.read().decode())

    from reports.metrics import exposition
    from reports.schema import completed

    strike = record("no-go", "2026-01-02T00:00:00+00:00")
    exposed = exposition(completed({**strike, "verdict": "inconclusive"}), last_success=5.0, bad={"gpu-node-1": True})
    (tmp_path / "metrics.prom").write_text(exposed)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "report.json").write_text(json.dumps(strike))
    scraped = scrape()
    assert set(exposed.splitlines()) <= set(scraped.splitlines())
    assert "seatrial_record_readable 1.0" in scraped
    (tmp_path / "run" / "report.json").write_text(json.dumps(record("go", "2026-01-03T00:00:00+00:00")))
    assert 'seatrial_run_verdict{verdict="go"} 1.0' in scrape()
    for damaged in ("", "{", "seatrial_run_verdict 1"):
        (tmp_path / "metrics.prom").write_text(damaged)
        assert "seatrial_record_readable 0.0" in scrape()


def test_an_old_damaged_record_does_not_hide_the_newest(served: str, tmp_path: Path) -> None:
    """The newest record counts; time zone offsets are understood, and the server does not wait for a pipe."""
    for name, content in (
        ("a", "{"),
        ("b", json.dumps(record("no-go", "2026-01-02T23:00:00+00:00"))),
        ("c", json.dumps(record("go", "2026-01-03T00:30:00+02:00"))),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text(content)
    os.utime(tmp_path / "a" / "report.json", (1, 1))
    (tmp_path / "d").mkdir()
    os.mkfifo(tmp_path / "d" / "report.json")
    with urllib.request.urlopen(served, timeout=HANG_S) as answer:
        assert 'seatrial_run_verdict{verdict="no-go"} 1.0' in answer.read().decode()


def test_it_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    """SIGTERM and SIGINT end the server at once, with exit code 0 and without a traceback."""
    for number in (signal.SIGTERM, signal.SIGINT):
        command = [sys.executable, "-m", "checks", "serve", str(tmp_path), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.send_signal(number)
            assert process.wait(timeout=HANG_S) == 0
            assert process.stderr.read() == ""


@pytest.mark.parametrize("arguments", [["nowhere"], [".", "--port", "99999"], [".", "--listen", "203.0.113.1"]])
def test_what_cannot_be_served_is_refused_in_a_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The refusal is one line with exit code 4."""
    assert main(["serve", *arguments]) == 4
    assert len(capsys.readouterr().err.splitlines()) == 1
