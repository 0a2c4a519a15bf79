"""Each rank's report after a time-out signal: its last operation in the default group."""

import pytest

SIGNAL = (
    "Received a dump signal due to a collective timeout from {who} and we will try our best to dump the debug info."
    " Last enqueued NCCL work: {last}, last completed NCCL work: {done}.This is most likely caused by incorrect usages"
)
CAUGHT = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={at}, OpType=ALLREDUCE, NumelIn=4, NumelOut=4,"
    " Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
)


def log(version, ranks, timed_out, group=0):
    """Return standard error of ranks {rank: last enqueued}; those in `timed_out` {rank: SeqNum} wait in a group."""
    lines = []
    named = {
        "2.3": "PG {0} Rank {1}",
        "2.4": "PG {0} (default_pg) Rank {1}",
        "2.6": "PG ID {0} PG GUID {0}(default_pg) Rank {1}",
    }
    for rank, last in ranks.items():
        start = f"[rank{rank}]:[E1117 10:00:00.{rank} ProcessGroupNCCL.cpp:1484] "
        own = "[" + named[version].format(group, rank).replace("default_pg", "TP" if group else "default_pg") + "] "
        if rank in timed_out:
            at = timed_out[rank]
            lines.append(start + (f"[Rank {rank}] " if version == "2.3" else own) + CAUGHT.format(at=at))
            lines.append(
                start
                + own
                + {
                    "2.3": f"Timeout at NCCL work: {at}, last enqueued NCCL work: {at}, last completed NCCL work: {at - 1}.",
                    "2.4": "Exception (either an error or timeout) detected by watchdog at work: "
                    f"{at}, last enqueued NCCL work: {at}, last completed NCCL work: {at - 1}.",
                    "2.6": "Exception (either an error or timeout) detected by watchdog at work sequence id: "
                    f"{at} PG status: last enqueued work: {at}, last completed work: {at - 1}",
                }[version]
            )
        own = "[" + named[version].format(0, rank) + "] "
        who = "this local rank" if rank in timed_out else "rank 0"
        lines.append(start + own + SIGNAL.format(who=who, last=last, done=last))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("version", ["2.3", "2.4", "2.6"])
@pytest.mark.parametrize(
    ("ranks", "timed_out", "late", "unknown"),
    [
        ({0: 7, 1: 7, 2: 6, 3: 7}, {0: 7}, [2], []),
        ({0: 7, 1: 7, 2: 6, 3: 7}, {0: 7, 1: 7, 3: 7}, [2], []),
        ({0: 7, 1: 7, 2: 3, 3: 7}, {0: 7}, [], []),  # all have completed 6: this counter is for another group
        ({0: 7, 1: 6, 2: 6, 3: 6}, {0: 7}, [], [1, 2, 3]),  # rank 0 may have called one more
        ({0: 7, 1: 9, 2: 8, 3: 7}, {0: 7}, [], []),  # all have queued it
    ],
    ids=["behind", "all-speak", "other-count", "one-more", "all"],
)
def test_the_rank_that_queued_less_is_named_by_what_it_says_itself(
    explain, tmp_path, version, ranks, timed_out, late, unknown
):
    (tmp_path / "job.log").write_text(log(version, ranks, timed_out))
    code, job = explain(tmp_path / "job.log")
    assert (code, job.get("late_ranks", []), job.get("unknown_ranks", [])) == (1, late, unknown), job["sentence"]
    if late:
        assert job["sentence"].startswith("Rank 2 never entered ALLREDUCE 7 of default_pg; 3 other ranks wait")


@pytest.mark.parametrize("version", ["2.3", "2.4", "2.6"])
def test_who_timed_out_in_another_group_waits_there_and_comes_late_for_that(explain, tmp_path, version):
    """The numbers are the default group's: they do not apply to a time-out in a smaller group."""
    (tmp_path / "job.log").write_text(log(version, {0: 7, 1: 6, 2: 7, 3: 7}, {1: 3}, group=4))
    assert not explain(tmp_path / "job.log")[1].get("late_ranks")
    both = log(version, {0: 7, 2: 6, 3: 7}, {0: 7}) + log(version, {1: 6}, {1: 3}, group=4)
    (tmp_path / "job.log").write_text(both)
    assert explain(tmp_path / "job.log")[1]["late_ranks"] == [2]


def test_our_own_recording_names_the_rank_that_slept(explain):
    """Rank 2 of three processes with NCCL on GPUs slept before the second all-reduce."""
    code, job = explain("tests/logs/data/recorded/rank-hangs.log")
    assert (code, job["diagnosis"], job["late_ranks"], job["waiting_ranks"]) == (1, "hang-late", [2], [0, 1])


@pytest.mark.parametrize(("ranks", "late"), [({0: 7, 2: 6, 4: 7}, []), ({0: 7, 2: 6, 3: 7, 4: 7}, [2])])
def test_who_may_wait_elsewhere_for_a_rank_that_says_nothing_is_not_late(explain, tmp_path, ranks, late):
    """Rank 1 waits in a smaller group, perhaps with rank 2, for rank 3, which writes nothing if it is dead."""
    both = log("2.6", ranks, {0: 7}) + log("2.6", {1: 6}, {1: 3}, group=4)
    (tmp_path / "job.log").write_text(both)
    code, job = explain(tmp_path / "job.log")
    assert (code, job.get("late_ranks", [])) == (1, late), job["sentence"]
