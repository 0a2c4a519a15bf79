"""A real API server's events, played through the product: right for every order of reception."""

import json
from pathlib import Path

import pytest

from tests.real.playing import load, play, wrong
from tests.real.variants import VARIANTS, prefixes

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.jsonl.gz"), key=lambda path: path.name)
NAMES = [path.name.removesuffix(".jsonl.gz") for path in RECORDINGS]
# Long enough for a watcher that mistakes a pause for the end, shorter than any grace period.
HELD_S = 1.7


@pytest.mark.parametrize("path", RECORDINGS, ids=NAMES)
def test_outcome_fault_and_subject_are_right(path):
    case = load(path)
    assert not wrong(case, play(case))


@pytest.mark.slow
@pytest.mark.parametrize("path", RECORDINGS, ids=NAMES)
def test_it_is_right_however_it_is_heard(path):
    """Kinds delayed against each other, in batches, stretched, watches cut: the conclusion is the same."""
    case = load(path)
    assert {name: wrong(case, play(case, change)) for name, change in VARIANTS.items()} == dict.fromkeys(VARIANTS, "")


@pytest.mark.slow
@pytest.mark.parametrize("path", RECORDINGS, ids=NAMES)
def test_nothing_is_given_up_attributed_or_tried_again_that_the_rest_refutes(path):
    """Everything pauses after each event: the state at that time must not be taken for the end."""
    case = load(path)
    held = prefixes(case.play, HELD_S, play(case).until)
    assert {name: problem for name, change in held.items() if (problem := wrong(case, play(case, change)))} == {}


def test_a_watcher_that_misreads_is_caught(monkeypatch):
    """The test can fail: a watcher that trusts the stale condition, as before, loses a healthy trial."""
    from jobs.diagnosis import job as cases

    case = load(next(path for path in RECORDINGS if path.name.startswith("01-")))
    monkeypatch.setattr(cases.JobObjects, "state", lambda self: cases.JobState.CANCELED)
    assert "expected" in wrong(case, play(case))


def test_a_deleted_service_is_reported_as_that_where_ranks_did_not_find_each_other():
    """CoreDNS does not resolve names of a deleted Service; without a failure it does not matter."""
    case = load(next(path for path in RECORDINGS if path.name.startswith("31-")))
    peers = [{"index": 0, "addresses": ["10.0.0.1"]}, {"index": 1, "addresses": [], "error": "NXDOMAIN"}]
    logs = {str(rank): said(case, rank, {"start": {}, "dns": {"peers": peers}, "end": {}}) for rank in (0, 1)}
    outcome = play(case, logs=logs)
    assert (outcome.ends, outcome.fault, outcome.subject, outcome.attempts) == (
        "interrupted",
        "job.disrupted",
        f"service/{case.expected.job}",
        2,
    )
    assert "was deleted by others" in outcome.observed and "CoreDNS" not in outcome.observed
    well = {str(rank): said(case, rank, {"start": {}, "dns": {"peers": peers[:1]}, "end": {}}) for rank in (0, 1)}
    assert not wrong(case, play(case, logs=well))


def said(case, rank, stages):
    run = case.expected.job.removeprefix("seatrial-")
    messages = [
        {"seatrial": 1, "run": run, "rank": rank, "n": n, "stage": stage, "seconds": 0.0, "data": data}
        for n, (stage, data) in enumerate(stages.items(), 1)
    ]
    told = [
        (n, text.encode())
        for n, line in enumerate(messages)
        for text in (f"seatrial rank {rank}: {line['stage']} starts", json.dumps(line))
    ]
    return b"".join(b"2026-01-01T00:00:0%dZ %s\n" % each for each in told)


def test_pods_that_reported_all_before_they_went_are_no_interruption():
    """A preemption after the last line of the evidence had no effect."""
    case = load(next(path for path in RECORDINGS if path.name.startswith("35-")))
    logs = {str(rank): said(case, rank, {"start": {}, "end": {}}) for rank in (0, 1)}
    outcome = play(case, logs=logs)
    assert (outcome.ends, outcome.fault) == ("completed", None)
