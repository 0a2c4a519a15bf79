"""Single rules for hang evidence: copied answers, lost beginnings of dumps, and the speaker of a line."""

from dataclasses import replace

import pytest

from seatrial.logs.hang import counts, dump_times, model, prepare, reports, watchdog
from seatrial.logs.hang.split_jobs import SECOND_LOOK
from tests.table import table

SAMPLE = model.Sample(file="a.txt", size=4, counts={("0x1", "AllReduce"): {0: 3, 1: 3}})


@pytest.mark.parametrize(
    ("other", "looks"),
    [
        ({"file": "b.txt", "written": 1000.0}, 1),  # the same answer, saved twice at one time
        ({"file": "b.txt", "written": 1000.0 + SECOND_LOOK - 0.1}, 1),
        ({"file": "b.txt", "written": 1000.0 + SECOND_LOOK}, 2),  # asked again without progress
        ({"file": "b.txt", "written": 1000.0 - SECOND_LOOK}, 2),
        ({"file": "b.txt", "written": None}, 2),
        ({"file": "a.txt", "written": 1000.0}, 2),  # two answers in one file
        ({"file": "b.txt", "written": 1000.0, "size": 5}, 2),
        ({"file": "b.txt", "written": 1000.0, "counts": {("0x1", "AllReduce"): {0: 3, 1: 4}}}, 2),
    ],
)
def test_an_answer_is_a_copy_only_where_it_was_written_with_the_other_into_another_file(other, looks):
    """No progress between two looks shows a hang: a copy must not count as a second look."""
    one = replace(SAMPLE, written=1000.0)
    assert len(counts.looks([one, replace(one, **other)])) == looks
    stamped = replace(one, stamp="12:00:01")
    assert len(counts.looks([stamped, replace(stamped, **{**other, "size": 4, "counts": one.counts})])) == 1
    assert len(counts.looks([stamped, replace(stamped, stamp="12:00:31", **other)])) == 2


@table(
    "told, lost",
    [
        ([{"cut": True, "lost": None}], {0}),
        ([{"cut": True, "lost": False}], set()),
        ([{"cut": False, "lost": None}], set()),
        ([{"cut": False, "lost": True}], {0}),
        ([{"cut": True, "lost": None, "active": True}], set()),  # only active operations were dumped
        ([{"cut": True, "lost": None, "recorded": 0}], set()),
        ([{"cut": True, "lost": True, "active": True}], {0}),
        ([{"cut": True, "lost": None}, {"cut": False, "lost": None, "active": True}], {0}),
        ([{"cut": False, "lost": None}, {"cut": True, "lost": None}], {1}),
    ],
)
def test_the_beginning_of_a_dump_is_lost_where_newer_operations_overwrote_it(told, lost):
    """A dump's counters show the loss, if present; else a pending first operation does, in dumps with completed ones."""
    ranks = {number: model.Rank(**{"recorded": 9, **each}) for number, each in enumerate(told)}
    assert dump_times.beginning_lost(model.Evidence(ranks=ranks)) == lost


TIMED_OUT = "[rank{0}]:[E1 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={1}, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=60000) ran for 60044 milliseconds before timing out."


def read(*lines):
    evidence = model.Evidence()
    watchdog.read(evidence, "job.log", enumerate(lines, 1))
    return evidence


def test_reports_that_share_a_line_are_each_read():
    """Processes with one pipe lose line ends; a single report, and one that is far too long, counts as one."""
    both = read(TIMED_OUT.format(1, 7) + TIMED_OUT.format(3, 8))
    assert [(each.rank, each.sequence) for each in both.timeouts] == [(1, 7), (3, 8)]
    assert [(each.rank, each.sequence) for each in read(TIMED_OUT.format(1, 7)).timeouts] == [(1, 7)]
    two = TIMED_OUT.format(1, 7) + TIMED_OUT.format(3, 8)
    assert [piece for piece in watchdog._reports(two) if piece] == [TIMED_OUT.format(1, 7), TIMED_OUT.format(3, 8)]
    assert watchdog._reports(TIMED_OUT.format(1, 7)) == [TIMED_OUT.format(1, 7)]
    assert watchdog._reports(two.ljust(20_001)) == [two.ljust(20_001)]


GLOO = "/gloo/transport/tcp/"


def test_what_gloo_says_of_a_connection_is_kept_from_its_first_line():
    """A rank that waited without an answer and one whose peer left are distinguished; a later line does not replace the
    first."""
    closed = f"RuntimeError: [{GLOO}pair.cc:534] Connection closed by peer [10.0.0.2]:4711"
    waited = f"[{GLOO}unbound_buffer.cc:78] Timed out waiting 1000ms for recv operation to complete"
    evidence = read("nothing", closed, waited, closed, waited)
    assert [(each.state, each.where[:2]) for each in evidence.reports] == [
        ("left", ("job.log", 2)),
        ("broken", ("job.log", 3)),
    ]
    other = read("Connection closed by peer", "Timed out waiting 10 s for the store")
    assert other.reports == []
    unlike = read("Received data size doesn't match expected size", "Received data size doesn't match")
    assert [(each.state, each.where[1]) for each in unlike.reports] == [("unlike", 1)]


@pytest.mark.parametrize(
    ("one", "same"),
    [({}, True), ({"sequence": 8}, False), ({"sequence": -1}, False), ({"group": "tp", "number": "3"}, False)],
)
def test_a_snapshot_shows_ranks_at_one_place_only_within_their_group(one, same):
    """Each group counts its own operations: the same number in another group is another place."""
    behind = model.Report("absent", ("f", 1, ""), (1, 2), "ALLREDUCE", 7)
    item = replace(behind, state="called", ranks=(0,), **one)
    made = reports.in_desync_report(model.Decision(), model.Evidence(reports=[behind, item]))
    assert (made.ahead, made.suspects, made.late) == (({0}, {1, 2}, set()) if same else (set(), set(), {1, 2}))
    nowhere = [replace(each, sequence=-1) for each in (behind, item)]
    assert reports.in_desync_report(model.Decision(), model.Evidence(reports=nowhere)).late == {1, 2}


@pytest.mark.parametrize(("size", "host", "placed"), [(4, "a", True), (8, "a", True), (3, "a", False), (4, "", False)])
def test_a_recorded_operation_places_a_rank_only_where_it_is_of_all_ranks(size, host, placed):
    """A smaller communicator numbers ranks differently: its rank 3 is another process."""
    done = model.Performed(3, size, host)
    evidence = model.Evidence(world={0, 1, 2, 3}, performed={("0x1", 3): done})
    assert prepare.places(evidence) == ({3: model.Process(3, host)} if placed else {})
    there = model.Process(3, host="by RAS", pid=1)
    evidence.samples = [replace(SAMPLE, processes=[there])]
    assert prepare.places(evidence)[3] is there
