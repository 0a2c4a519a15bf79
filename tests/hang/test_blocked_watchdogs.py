"""A stuck watchdog (torch's heartbeat monitor): reported as such, without a late rank."""

import pytest

from seatrial.logs.diagnosis.faults import DIAGNOSES
from seatrial.logs.hang.collect import collect

STUCK = (
    "ProcessGroupNCCL's watchdog got stuck for {0} seconds without making progress in monitoring enqueued collectives. "
    "This typically indicates a NCCL/CUDA API hang blocking the watchdog, and could be triggered by another thread\n"
)
OLD = "[rank{0}]:[F ProcessGroupNCCL.cpp:1169] [PG {1} Rank {2}] [PG {1} Rank {2}] " + STUCK.format(600)
NEW = "[rank{0}]:[E1 12:00:00.1 ProcessGroupNCCL.cpp:1870] [PG ID 12 PG GUID 99({1}) Rank {2}] " + STUCK.format(480)
TIMEOUT = (
    "[rank{0}]:[E1 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=21, "
    "OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=60000) ran for 60044 milliseconds before timing out.\n"
)


def told(explain, tmp_path, log):
    (tmp_path / "job.log").write_text(log)
    return explain(tmp_path / "job.log")


@pytest.mark.parametrize(
    ("log", "unknown", "seconds"),
    [
        ("".join(OLD.format(rank, 0, rank) for rank in (1, 0, 2)), [0, 1, 2], 600),
        (NEW.format(4, "EXPERT_MODEL_PARALLEL_GROUP", 1) + NEW.format(0, "TP", 0), [0, 4], 480),
        (OLD.format(3, 0, 3).removeprefix("[rank3]:"), [3], 600),
        (OLD.format(3, 5, 1).removeprefix("[rank3]:"), [], 600),  # rank 1 of an unknown group
        (
            "[rank6]:[E ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 6] ProcessGroupNCCL'\ns "
            + STUCK[18:].format(480),
            [],
            480,
        ),
    ],
)
def test_whose_watchdog_is_stuck(explain, tmp_path, log, unknown, seconds):
    code, job = told(explain, tmp_path, log)
    assert (code, job["diagnosis"], job["causes"][0]["fault"]) == (1, "hang-watchdog", "nccl.hang-watchdog")
    assert job["diagnosis"] in DIAGNOSES
    assert (job["late_ranks"], job["waiting_ranks"], job["unknown_ranks"]) == ([], [], unknown)
    assert f"did not run for {seconds} s" in job["sentence"]


def test_a_time_out_says_more(explain, tmp_path):
    """A hanging abort stops the watchdog, too."""
    _, job = told(explain, tmp_path, TIMEOUT.format(2) + OLD.format(5, 0, 5))
    assert job["diagnosis"] == "hang"
    assert "rank 2 waited in operation 21" in job["sentence"]
    assert "The NCCL watchdog of rank 5 did not run for 600 s" in job["sentence"]


def test_a_watchdog_that_is_stuck_is_reported_with_ranks_that_are_late(explain, tmp_path):
    """The report names late ranks; a stuck watchdog is a second thing to examine."""
    report = (
        " - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
        "     [1] finished collective #21, but didn't join collective #22 (count from 1)\n"
    )
    _, job = told(explain, tmp_path, TIMEOUT.format(2) + report + OLD.format(5, 0, 5) + OLD.format(2, 0, 2))
    assert (job["diagnosis"], job["late_ranks"]) == ("hang-late", [1])
    assert "The NCCL watchdog of rank 5 did not run for 600 s" in job["sentence"]


def test_the_watchdog_of_a_rank_that_saw_a_time_out_is_no_second_one(explain, tmp_path):
    """Near miss: a rank that aborts after a time-out has a stuck watchdog meanwhile."""
    _, job = told(explain, tmp_path, TIMEOUT.format(2) + OLD.format(2, 0, 2))
    assert "did not run" not in job["sentence"]


def test_what_ended_the_job_says_more(explain, tmp_path):
    memory = (
        "[rank7]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.42 GiB. GPU 3 has a total capacity\n"
    )
    _, job = told(explain, tmp_path, memory + OLD.format(5, 0, 5))
    assert job["causes"][0]["fault"] == "nccl.cuda-memory"


def test_the_rank_in_a_group_is_no_rank_of_the_job(explain, tmp_path):
    """The exception's message names rank 1 of its pipeline group, which is rank 8."""
    again = (
        "  what():  [PG ID 6 PG GUID 102(PIPELINE) Rank 1] Process group watchdog thread terminated with exception: "
    )
    log = TIMEOUT.format(8).replace("[Rank 8]", "[Rank 1]") + again + TIMEOUT.format(1).partition("] ")[2]
    _, job = told(explain, tmp_path, log)
    assert "rank 8 waited in operation 21" in job["sentence"]


@pytest.mark.parametrize("before", [0, 1, 40, 60, 5000])
def test_a_report_is_found_wherever_it_is_in_a_long_log(tmp_path, before):
    """A report may be split by a block boundary, since a log is searched 256 KiB at a time."""
    log = tmp_path / "job.log"
    log.write_bytes(b"x" * (3 * 256 * 1024 - before - 1) + b"\n" + TIMEOUT.format(3).encode())
    (evidence,), logs = collect([str(log)])
    assert [(each.rank, each.sequence, each.where[1]) for each in evidence.timeouts] == [(3, 21, 2)]
    assert logs == [str(log)]
