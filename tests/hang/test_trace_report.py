"""What torchfrtrace printed of our own dumps (torch 2.13): nobody is named who waits, and one look proves no hang."""

import io
import sys
from types import SimpleNamespace

import pytest

from tests.hang.recorded import DATA

TRACES = DATA / "torchfrtrace"
TIMEOUT = (
    "[rank{0}]:[E1 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=21, "
    "OpType=ALLREDUCE, NumelIn=262144, NumelOut=262144, Timeout(ms)=60000) ran for 60044 milliseconds before timing out.\n"
)
RECORD = """Not all ranks joining collective, sequence number: {number}
internal record id: 7
group info: {group}
collective: nccl:{name}
missing ranks: {missing}
input sizes: [[4]]
output sizes: [[4]]
world size: 8
expected ranks: {expected}
collective state: {state}
collective stack trace:
 all_reduce at /app/train.py:1
"""

ENDED = "Too many mismatches for process_group 5: tp aborting\n"


def record(missing, expected, number=5, group="0:default_pg", name="all_reduce", state="scheduled"):
    fields = {"number": number, "group": group, "name": name, "state": state}
    return RECORD.format(missing=set(missing), expected=set(expected), **fields)


def ranks(job):
    return tuple(job[key] for key in ("late_ranks", "waiting_ranks", "unknown_ranks"))


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("sleep", ([2], [0, 1, 3], [])),
        ("all-to-all", ([3], [0, 1, 2], [])),
        ("groups-late", ([5], [0, 1, 2, 3, 4, 6, 7], [])),  # three records of what is complete come first
        ("parallel-late", ([3], [0, 1, 2, 4, 5, 6, 7], [])),
        ("nested", ([], [2, 3], [0, 1])),  # rank 0 waits for rank 1 where no recorder sees it
        ("stalled", ([], [0, 2, 3], [1])),
        ("parallel-stalled", ([], [], [])),  # whose GPU has not started may wait in another group
        ("pipeline", ([], [], [])),
        ("exit", ([], [], [2])),
    ],
)
def test_who_is_missing_and_waits_nowhere(explain, case, expected):
    code, job = explain(TRACES / f"{case}.txt")
    assert (code, job["diagnosis"], *ranks(job)) == (10, "hang-undecided", *expected), job["sentence"]


@pytest.mark.parametrize(("case", "odd"), [("branch", 2), ("sizes", 2), ("dtype", 1), ("one-more", 0)])
def test_who_called_something_else(explain, case, odd):
    """The first rank is no measure: in one-more it is the odd one, and torchfrtrace calls all others culprits."""
    code, job = explain(TRACES / f"{case}.txt")
    assert (code, job["diagnosis"], job["late_ranks"]) == (1, "hang-mismatch", [odd]), job["sentence"]
    assert [cause["fault"] for cause in job["causes"]] == ["nccl.hang-mismatch"]


def test_a_time_out_beside_it_makes_it_a_proof(explain, tmp_path):
    (tmp_path / "trace.txt").write_text((TRACES / "sleep.txt").read_text())
    (tmp_path / "rank0.log").write_text(TIMEOUT.format(0))
    code, job = explain(tmp_path)
    assert (code, job["diagnosis"], *ranks(job)) == (1, "hang-late", [2], [0, 1, 3], []), job["sentence"]


def test_standard_input_with_a_collectors_prefix(explain, monkeypatch):
    text = "".join(
        f"2026-11-23T10:00:00Z stderr F {line}\n" for line in (TRACES / "sleep.txt").read_text().splitlines()
    )
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
    code, job = explain("-")
    assert (code, job["late_ranks"]) == (10, [2])


@pytest.mark.parametrize(
    ("text", "late", "unknown"),
    [
        (record({3}, range(8)), [3], []),
        (record({3, 4, 5, 6, 7}, range(8)), [], [3, 4, 5, 6, 7]),  # or 0, 1 and 2 called one more
        (record({3}, range(8), state="completed"), [], []),  # what a recorder no longer holds
        (record({3}, range(4), name="recv 1<-0"), [], []),  # its peers are two of the group
        (record({2, 3}, range(4)) + record({3}, {2, 3}, 9, "1:tp"), [3], []),
        (record({3}, range(4)).partition("collective state")[0], [], []),  # cut
        (record({3}, range(4)).replace(", sequence number: 5", " 5 at entry 4"), [3], []),  # torch 2.5
        (record({3}, range(4)).replace("{0, 1, 2, 3}", "4").replace(", sequence number: 5", " 5 at entry 4"), [3], []),
        ("AssertionError: Missing dump files from ranks {4, 6}\n", [], [4, 6]),
        # what all have entered is in no record: 2 and 6 may wait there
        (record({2}, range(4), group="1:shard") + record({6}, range(4, 8), group="2:shard"), [], [2, 6]),
        (record({6}, {2, 6}, group="1:dp") + record({6}, range(4, 8), group="2:tp"), [6], []),
        # the third of the group waits in it, of the first nothing is told
        (record({5}, {4, 5}, group="5:tp") + record({3}, {1, 3, 5, 7}, group="9:pp", name="recv 2<-1"), [], []),
        (record({1}, {0, 1}, group="5:tp") + record({3}, {1, 3, 5, 7}, group="9:pp", name="recv 2<-1"), [], [1]),
        (record({1}, {0, 1}, group="5:tp") + ENDED, [], [1]),
        (record({1}, {0, 1}, group="5:tp") + ENDED + record({1, 2}, range(4)), [], [1, 2]),
        (record({3}, range(8)) + ENDED, [3], []),
    ],
)
def test_forms_and_near_misses(explain, tmp_path, text, late, unknown):
    path = tmp_path / "trace.txt"
    path.write_text(text)
    code, job = explain(path)
    assert (code, job.get("late_ranks", []), job.get("unknown_ranks", [])) == (10, late, unknown), job["sentence"]


@pytest.mark.parametrize(
    ("name", "kind", "late"),
    [
        ("all_reduce", "SIZE_OR_SYNTAX_MISMATCH", [1]),
        ("all_to_all_v_single", "SIZE_OR_SYNTAX_MISMATCH", []),  # its sizes may differ
        ("all_reduce", "COLLECTIVE_STATE_MISMATCH", []),
    ],
)
def test_a_difference_that_is_none(explain, tmp_path, name, kind, late):
    text = record((), range(4), name=name).replace("Not all ranks joining collective, sequence", "Collective sequence")
    text = text.replace("number: 5\n", "number: 5 has errors\n").replace("missing ranks: set()\n", "")
    said = f"error msg: Culprit rank 1; Error type: {kind}, Expected state: 'x' does not match found state: 'y'\n"
    (tmp_path / "trace.txt").write_text(text.replace("collective stack", said + "collective stack"))
    _, job = explain(tmp_path / "trace.txt")
    assert (job["late_ranks"], job["diagnosis"] == "hang-mismatch") == (late, bool(late))


def test_dumps_beside_it_say_more(explain, tmp_path):
    for path in (DATA / "nccl-2.28.9" / "stalled").glob("*[0-9]"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    _, alone = explain(tmp_path)
    (tmp_path / "trace.txt").write_text(record({0}, range(4)))
    _, job = explain(tmp_path)
    assert (job["late_ranks"], job["diagnosis"]) == (alone["late_ranks"], alone["diagnosis"])


def test_a_group_of_thousands_is_read_whole(explain, tmp_path):
    """Rank 8100 stands in the whole job's operation, and so is not late in its pair."""
    world = record({4}, range(8192))
    (tmp_path / "trace.txt").write_text(record({8100}, {8100, 8101}, 9, "7:tp") + world)
    _, job = explain(tmp_path / "trace.txt")
    assert (job["late_ranks"], len(job["waiting_ranks"])) == ([4], 8191)


def test_where_it_is_not_told_who_stands_nobody_is_late(explain, tmp_path):
    """torch 2.5 counts the ranks of a group: whether rank 3 stands in the other operation is not known."""
    text = record({3}, {2, 3}, 9, "7:tp") + record({0}, range(4)).replace("{0, 1, 2, 3}", "4")
    (tmp_path / "trace.txt").write_text(text)
    _, job = explain(tmp_path / "trace.txt")
    assert (job["late_ranks"], job["unknown_ranks"]) == ([], [0, 3])
