"""When dumps were taken: what they say themselves, and what the time of a file, which may be a copy's, does not."""

import os
import pickle
import shutil

import pytest

from jobs.nccl.hang.pickles import loads
from tests.hang.recorded import DATA

MUCH_LATER = 2_000_000_000


@pytest.mark.parametrize(
    ("case", "late"), [("sleep_first", [2]), ("two_sleep", [1, 2]), ("branch_group", []), ("pipeline_sleep", [])]
)
def test_the_time_of_a_copy_makes_no_hang_of_dumps_that_keep_no_time(explain, tmp_path, case, late):
    """gloo's dumps are taken by hand, at any moment: who had not come then is a lead, and no hang."""
    shutil.copytree(DATA / "gloo-2.13" / case, tmp_path / "d")
    for path in (tmp_path / "d").iterdir():
        os.utime(path, (MUCH_LATER, MUCH_LATER))
    code, job = explain(tmp_path / "d")
    assert (code, job["diagnosis"], job["late_ranks"]) == (10, "hang-undecided", late)
    assert "nothing tells when that was" in job["sentence"]


@pytest.mark.parametrize("written", [None, MUCH_LATER])
@pytest.mark.parametrize(("seconds", "code", "late"), [(0.4, 10, []), (12, 10, [2]), (25.1, 1, [2])])
def test_what_nccls_recorder_stamped_while_it_dumped_says_how_long_ranks_had_waited(
    explain, tmp_path, seconds, code, late, written
):
    """The time-out is 25 s; the file's time, of a copy or none, changes nothing."""
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
    """Rank 0 queued much behind what it waits for, in a recorder of five operations: its dump alone is of no use."""
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
