"""Fields of a log store's record other than the text, and omissions: never ignored."""

from __future__ import annotations

import json

import pytest

from seatrial.logs import conclude, json_reports, open_sources, read
from tests.logs.test_nccl_json_reports import LOG, records, report
from tests.logs.test_nccl_log_exports import LOGS, as_csv, judged, time_of

LINES = LOGS["two-hosts"].splitlines()
STACK = 'Traceback (most recent call last):\n  File "a.py", line 3, in main\nRuntimeError: CUDA error: an illegal memory access'
WRAPPED = {"json": lambda record: record}


def written(form: str, records: list[dict]) -> str:
    texts = (WRAPPED[form](record) for record in records)
    return "".join((text if isinstance(text, str) else json.dumps(text)) + "\n" for text in texts)


@pytest.mark.parametrize("form", WRAPPED)
@pytest.mark.parametrize(
    ("next_line", "verdict"),
    [
        ({"exc_info": STACK}, "no-go"),
        ({"error": {"type": "X", "stack": ["main", "RuntimeError: CUDA error: an illegal memory access"]}}, "no-go"),
        ({"level": "fatal"}, "inconclusive"),
        ({"levelname": "ERROR"}, "inconclusive"),
        ({"severity": "CRITICAL"}, "inconclusive"),
        # near misses: its writer, a store's label for all of stderr, the record's original form
        ({"severity": "ERROR", "stream": "stderr"}, "go"),
        ({"level": "info", "error": None, "errors": []}, "go"),
        ({"kubernetes": {"annotations": {"note": "restart when a rank failed with an error"}}}, "go"),
        ({"event": {"original": "2026-11-20 worker step 12 of 100"}}, "go"),
        ({"error": "none so far", "status": "0 errors"}, "go"),
    ],
)
def test_what_is_logged_with_a_text_counts(form, next_line, verdict, tmp_path):
    said = [{"message": line} for line in LINES]
    said.insert(60, {"message": "step 12 of 100", **next_line})
    assert judged(tmp_path, written(form, said))["verdict"] == verdict


def test_what_is_in_front_of_a_record_counts(tmp_path):
    lines = ["2026-11-20 10:00:00 INFO trainer " + json.dumps({"msg": "step", "at": at}) for at in range(60)]
    healthy = "\n".join(lines + LINES) + "\n"
    assert judged(tmp_path, healthy)["verdict"] == "go"
    assert judged(tmp_path, healthy + 'ERROR rank 3 died: {"msg": "step 5"}\n')["verdict"] != "go"


def test_other_columns_of_a_csv_file_count(tmp_path):
    for bad in (STACK, ""):
        write = as_csv(
            ("time", "stdout", "stderr"), lambda at, line, bad=bad: (time_of(at), line, bad if at == 20 else "")
        )
        assert (judged(tmp_path, write(LINES))["verdict"] == "go") == (not bad)
    for names in (("line", "content"), ("log", "message")):  # a number, a log group
        write = as_csv(names, lambda at, line: (at, line))
        assert judged(tmp_path, write(LINES))["verdict"] == "go"


@pytest.mark.parametrize(
    "write",
    [
        as_csv(("time", "message"), lambda at, line: (time_of(at), line)),
        lambda lines: "".join(
            json.dumps({"labels": {"pod": "w"}, "line": line, "timestamp": time_of(at)}) + "\n"
            for at, line in enumerate(lines)
        ),
    ],
    ids=["csv", "logcli-jsonl"],
)
def test_what_a_stores_limit_cut_is_reported_by_its_records(write, tmp_path):
    """The number of records counts, not of lines, since a record may hold several."""
    for count, verdict in ((500, "inconclusive"), (501, "go")):
        lines = LINES[:60] + ["step\nof\nmany"] + ["step"] * (count - len(LINES) - 1) + LINES[60:]
        assert judged(tmp_path, write(lines))["verdict"] == verdict


def test_records_without_line_ends_are_lines(tmp_path):
    """Only Docker's log driver splits a line, at 16 KiB."""
    said = "".join(json.dumps({"log": line}) + "\n" for line in LINES)
    assert judged(tmp_path, said)["verdict"] == "go"


def concluded(tmp_path, text: str) -> dict:
    (tmp_path / "job.log").write_text(text)
    (job,) = conclude(read(open_sources([str(tmp_path / "job.log")])))
    return job


def test_what_is_in_front_of_a_report_counts(tmp_path):
    written = json.dumps(report()) + "\n"
    assert (
        concluded(tmp_path, LOG + "[1,0]<stdout>: " + written)["faults"] == concluded(tmp_path, LOG + written)["faults"]
    )
    job = concluded(tmp_path, LOG + "RuntimeError: CUDA error: an illegal memory access " + written)
    assert job["verdict"] == "no-go"


@pytest.mark.parametrize("errors", ["NCCL failure", {"x": "NCCL failure"}, [{"msg": "NCCL failure"}]])
def test_errors_of_a_report_count_in_any_form(errors, tmp_path):
    job = concluded(tmp_path, LOG + json.dumps({**report(), "errors": errors}) + "\n")
    assert job["verdict"] != "go"


def test_a_size_that_ran_again_hides_no_wrong_values(tmp_path):
    first = {**records()[0], "wrong": "9"}
    assert concluded(tmp_path, LOG + json.dumps(records()) + "\n")["verdict"] == "go"
    again = json.dumps([first, *records()])
    assert concluded(tmp_path, LOG + again + "\n")["diagnosis"] == "wrong-results"


def test_the_end_of_a_damaged_report_is_looked_for_in_bounded_time(monkeypatch):
    """Each of the lines read may end it and is tried: 10 MB once took hours."""
    tried: list[int] = []
    monkeypatch.setattr(json_reports, "_TRIED", 1 << 20)
    monkeypatch.setattr(json_reports, "_decoded", lambda text, _: tried.append(len(text)))
    damaged = b'{"version": 3, "start_time": "x",\n' + b"}\n" * 20_000
    assert b"".join(json_reports.spelled_out(iter([damaged]))).count(b"\n") >= 20_000
    assert sum(tried) < (1 << 20) + len(damaged)
