"""The time of dumps: their own timestamps count, a file's time, which may be a copy's, does not."""

import os
import pickle
import shutil

import pytest

from seatrial.logs.hang.pickles import loads
from tests.hang.recorded import DATA
from tests.hang.test_layouts import case, dumped, play

MUCH_LATER = 2_000_000_000


@pytest.mark.parametrize(
    ("case", "late"), [("sleep_first", [2]), ("two_sleep", [1, 2]), ("branch_group", []), ("pipeline_sleep", [])]
)
def test_the_time_of_a_copy_makes_no_hang_of_dumps_that_keep_no_time(explain, tmp_path, case, late):
    """gloo's dumps are taken manually at any time: a rank that is behind in them is a hint, and not a hang."""
    shutil.copytree(DATA / "gloo-2.13" / case, tmp_path / "d")
    for path in (tmp_path / "d").iterdir():
        os.utime(path, (MUCH_LATER, MUCH_LATER))
    code, job = explain(tmp_path / "d")
    assert (code, job["diagnosis"], job["late_ranks"]) == (10, "hang-undecided", late)
    assert "at an unknown time" in job["sentence"]


@pytest.mark.parametrize("written", [None, MUCH_LATER])
@pytest.mark.parametrize(("seconds", "code", "late"), [(0.4, 10, []), (12, 10, [2]), (25.1, 1, [2])])
def test_what_nccls_recorder_stamped_while_it_dumped_says_how_long_ranks_had_waited(
    explain, tmp_path, seconds, code, late, written
):
    """The time-out is 25 s; the file's time, a copy's or none, changes nothing."""
    for path in (DATA / "nccl-2.28.9" / "sleep").glob("nccl_trace*"):
        content = loads(path.read_bytes())
        for entry in content["entries"]:
            if not entry["retired"]:
                entry["time_discovered_started_ns"] = entry["time_created_ns"] + int(seconds * 1e9)
        (tmp_path / path.name).write_bytes(pickle.dumps(content, protocol=2))
        if written:
            os.utime(tmp_path / path.name, (written, written))
    exit_code, job = explain(tmp_path)
    assert (exit_code, job["late_ranks"]) == (code, late), job["sentence"]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("written", [601, 720, 722, MUCH_LATER])
def test_nccls_dumps_without_a_time_of_their_own_are_held_for_those_of_a_timeout_and_it_says_so(
    explain, tmp_path, seed, written
):
    """A time-out writes dumps, and a copy has its own time; but a dump may also be requested from a running job."""
    ranks, groups, stops, _ = case(seed)
    entries, stands = play(groups, ranks, stops)
    dumped(tmp_path, groups, entries, stands, range(ranks))
    for path in tmp_path.iterdir():
        os.utime(path, (written, written))
    code, job = explain(tmp_path)
    assert (code, job["diagnosis"]) == (1, "hang-late")
    assert job["late_ranks"] == sorted(set(stops) - set(stands))
    assert ("treated as those of a time-out" in job["sentence"]) == (written > 720)


@pytest.mark.parametrize(("seconds", "shown"), [(599, False), (600, True)])
def test_what_a_rank_queued_a_time_out_later_shows_that_its_operation_stood_as_long(explain, tmp_path, seconds, shown):
    """Rank 0 continues in a separate group, after the one in which it waits."""
    groups = {"0": ("default_pg", [0, 1, 2]), "1": ("ALONE", [0])}
    entries, stands = play({"0": groups["0"]}, 3, {1: 1})
    later = {**entries[0][-1], "process_group": ["1", "ALONE"], "collective_seq_id": 1, "state": "completed"}
    entries[0].append({**later, "time_created_ns": entries[0][-1]["time_created_ns"] + int(seconds * 1e9)})
    dumped(tmp_path, groups, entries, stands, range(3))
    for path in tmp_path.iterdir():
        os.utime(path, (MUCH_LATER, MUCH_LATER))
    code, job = explain(tmp_path)
    assert (code, job["late_ranks"]) == (1, [1]), job["sentence"]
    assert ("treated as those of a time-out" in job["sentence"]) is not shown


@pytest.mark.parametrize(("folder", "late", "waits"), [("gpu_error_1st", [12, 14], 0), ("lock_gil_1st", [9, 14], 8)])
def test_a_watchdogs_report_next_to_copies_makes_a_hang_of_them(explain, shared, tmp_path, folder, late, waits):
    shutil.copytree(shared / "hang" / "flight-recorder" / folder, tmp_path / "d")
    (tmp_path / "d" / "stderr.log").write_text(
        f"[rank{waits}]:[E1 ProcessGroupNCCL.cpp:632] [Rank {waits}] Watchdog caught collective operation timeout:"
        " WorkNCCL(SeqNum=45265, OpType=ALLTOALL, NumelIn=4, NumelOut=4, Timeout(ms)=180000) ran for 180044"
        " milliseconds before timing out.\n"
    )
    code, job = explain(tmp_path / "d")
    assert (code, job["late_ranks"]) == (1, late), job["sentence"]


def test_a_copy_that_is_made_later_is_no_second_look(explain, tmp_path):
    for number in range(2):
        folder = tmp_path / f"look{number}"
        folder.mkdir()
        for path in (DATA / "nccl-2.28.9" / "splits").glob("nccl_trace*"):
            shutil.copy(path, folder)
            os.utime(folder / path.name, (MUCH_LATER + 600 * number,) * 2)
    code, job = explain(tmp_path / "look0", tmp_path / "look1")
    assert (code, job["diagnosis"]) == (10, "hang-undecided"), job["sentence"]


def test_pending_operations_that_overwrote_older_ones_do_not_show_where_a_rank_stands(explain, tmp_path):
    """Rank 0 queued much after the operation that it waits for, in a recorder of five operations: its dump alone is
    useless."""
    for path in (DATA / "nccl-2.28.9" / "sleep").glob("nccl_trace*"):
        content = loads(path.read_bytes())
        if path.name.endswith("_0"):
            last = content["entries"][-1]
            content["entries"] = [
                {
                    **last,
                    "record_id": last["record_id"] + n,
                    "collective_seq_id": last["collective_seq_id"] + n,
                    "profiling_name": f"nccl:{'all_to_all' if n % 2 else 'all_reduce'}",
                }
                for n in range(5, 10)
            ]
        (tmp_path / path.name).write_bytes(pickle.dumps(content, protocol=2))
    code, job = explain(tmp_path)
    assert (code, job["late_ranks"], job["unknown_ranks"]) == (1, [2], [0])
    assert "TORCH_FR_BUFFER_SIZE" in job["sentence"]
