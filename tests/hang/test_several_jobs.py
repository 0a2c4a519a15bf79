"""Evidence of several jobs, of several runs, and of several times of one running job raises no fault."""

import json
import os
import pickle
import shutil
from pathlib import Path

import pytest

from cli.explain import main
from tests.hang.recorded import DATA

REAL = DATA / "nccl-2.28.9"
START = 1_700_000_000


@pytest.fixture
def explain(capsys):
    """Return a function: paths to (exit code, documents)."""

    def run(*paths):
        code = main(["--format", "json", *map(str, paths)])
        return code, json.loads(capsys.readouterr().out)["jobs"]

    return run


def conclusions(jobs):
    return [(job["diagnosis"], job["late_ranks"], job["dead_ranks"]) for job in jobs]


def write(folder, number, world=2, *, begun=START, pace=1.0, timeout_ms=600_000, at=None, stem="_dump_", behind=None):
    """Write a dump per rank: `number` has the number of all_reduces of each, the last one pending; `behind`: all
    complete."""
    folder.mkdir(exist_ok=True)
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}}
    for rank, queued in number.items():
        rows = [
            {
                "record_id": n,
                "process_group": ["0", "default_pg"],
                "collective_seq_id": n,
                "profiling_name": "nccl:all_reduce",
                "input_sizes": [[8]],
                "is_p2p": False,
                "time_created_ns": int((begun + n * pace) * 1e9) + rank,
                "timeout_ms": timeout_ms,
                "state": "started" if n == queued and rank not in (behind or ()) else "completed",
            }
            for n in range(1, queued + 1)
        ]
        path = folder / f"{stem}{rank}"
        path.write_bytes(pickle.dumps({"version": "2.9", "entries": rows, "pg_config": config, "pg_status": {}}, 2))
        if at is not None:
            os.utime(path, (at, at))


def test_each_folder_is_a_job(explain):
    code, jobs = explain(REAL / "sleep", REAL / "nested", REAL / "exit")
    assert code == 1
    assert conclusions(jobs) == [("hang-late", [2], []), ("hang-late", [1], []), ("hang-dead", [], [2])]
    assert [any("sleep" in name for name in job["files"]) for job in jobs] == [True, False, False]
    assert all(len({Path(name).parent for name in job["files"]}) == 1 for job in jobs)
    assert all(job["places"] for job in jobs)  # each has its own logs next to it


@pytest.mark.parametrize("one_by_one", [False, True])
def test_folders_below_one_are_distinguished_where_a_rank_has_two_dumps(explain, tmp_path, one_by_one):
    """Job a lacks the dump of its rank 2, which is late in a and waits in b."""
    for job, case in (("a", "sleep"), ("b", "nested")):
        shutil.copytree(REAL / case, tmp_path / job, ignore=shutil.ignore_patterns("*.log", "ras*"))
    (tmp_path / "a" / "nccl_trace_rank_2").unlink()
    _, jobs = explain(*(sorted(tmp_path.rglob("*_*")) if one_by_one else [tmp_path]))
    assert [(job["late_ranks"], job["unknown_ranks"]) for job in jobs] == [([], [2]), ([0, 1], [])]


def test_ranks_in_folders_of_their_own_are_one_job(explain, tmp_path):
    """Each node's dumps are copied into a separate folder, below one folder or each given by name."""
    for rank in range(4):
        (tmp_path / f"node{rank}").mkdir()
        shutil.copy(REAL / "sleep" / f"nccl_trace_rank_{rank}", tmp_path / f"node{rank}")
    assert conclusions(explain(tmp_path)[1]) == [("hang-late", [2], [])]
    assert conclusions(explain(*(tmp_path / f"node{rank}" for rank in range(4)))[1]) == [("hang-late", [2], [])]


def test_dumps_of_jobs_of_different_sizes_in_one_folder_are_two_jobs(explain, tmp_path):
    """Rank 1 of the job of two looks late in the job of four, whose own rank 1 left no dump."""
    write(tmp_path, {0: 5, 2: 5, 3: 5}, world=4)
    write(tmp_path, {1: 3}, world=2)
    _, jobs = explain(tmp_path)
    assert [(job["late_ranks"], job["unknown_ranks"]) for job in jobs] == [([], [1]), ([], [0])]


def test_a_watchdog_of_a_larger_job_says_nothing_of_these_dumps(explain, tmp_path):
    write(tmp_path, {0: 5, 1: 5}, at=START + 5.5)
    line = "[rank9]:[E] [PG ID 0 PG GUID 0(default_pg) Rank 9] Watchdog caught collective operation timeout: WorkNCCL("
    (tmp_path / "other.txt").write_text(
        f"{line}SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000)\n"
    )
    _, jobs = explain(tmp_path)
    assert (jobs[0]["diagnosis"], jobs[0]["late_ranks"]) == ("hang", [])  # the log's result, about no rank of the dumps
    assert "too early" in jobs[0]["sentence"]


def test_folders_with_the_words_of_torch_alone_are_two_jobs(explain, tmp_path):
    """Rank 2 does not reach one job's barrier, rank 1 the other's: the messages do not mention each other."""
    logs = sorted((DATA / "gloo-2.13" / "monitored").glob("*.txt"))
    for name, was, then in (("a", "", ""), ("b", " 2 failed to pass", " 1 failed to pass")):
        (tmp_path / name).mkdir()
        for path in logs:
            text = path.read_text()
            (tmp_path / name / path.name).write_text(text.replace(was, then) if was else text)
    _, jobs = explain(tmp_path / "a", tmp_path / "b")
    late = [job["late_ranks"] for job in jobs if "late_ranks" in job]
    assert late == [[2], [1]]


def test_dumps_of_two_names_that_complete_one_another_are_one_job_and_that_is_said(explain, tmp_path):
    for rank, name in enumerate("aabb"):
        shutil.copy(REAL / "sleep" / f"nccl_trace_rank_{rank}", tmp_path / f"{name}_rank_{rank}")
    _, (job,) = explain(tmp_path)
    assert job["late_ranks"] == [2]
    assert "The dumps named a_rank_N and b_rank_N are treated as one job's" in job["sentence"]
    for rank in range(2):
        shutil.copy(REAL / "sleep" / f"nccl_trace_rank_{rank}", tmp_path / f"b_rank_{rank}")
        (tmp_path / f"a_rank_{rank}").unlink()
    assert "are treated as one" not in explain(tmp_path)[1][0]["sentence"]


def test_what_ranks_wrote_to_standard_error_is_of_one_job(explain, tmp_path):
    """gloo names no operation: a rank's exception identifies its file, and a repeated rank shows two jobs."""
    for path in (DATA / "gloo-2.13" / "timed_out").glob("*.txt"):
        shutil.copy(path, tmp_path)
    _, jobs = explain(tmp_path)
    assert [len(job["files"]) for job in jobs] == [3]
    (tmp_path / "log_7.txt").write_text((tmp_path / "log_1.txt").read_text().replace("4000ms", "9000ms"))
    assert sorted(len(job["files"]) for job in explain(*tmp_path.iterdir())[1]) == [1, 3]


def test_logs_and_answers_of_a_larger_job_say_nothing_of_the_dumps(explain, tmp_path):
    for rank in range(4):
        shutil.copy(REAL / "sleep" / f"nccl_trace_rank_{rank}", tmp_path)
    for rank in range(8):
        shutil.copy(REAL / "groups-late" / f"rank{rank}.log", tmp_path)
    shutil.copy(REAL / "parallel-killed" / "ras-2.json", tmp_path)
    _, jobs = explain(tmp_path)
    assert [(job["ranks"], job.get("late_ranks")) for job in jobs[:1]] == [(4, [2])]
    assert [job["ranks"] for job in jobs[1:]] == [8]
    assert jobs[0]["places"] == {}


def test_answers_of_ras_of_two_jobs_are_not_joined(explain, tmp_path):
    """Job a runs, and rank 1 of job b is dead: a is not affected."""
    for number in range(2):
        for name, gone in (("a", []), ("b", [{"rank": 1, "host": "h", "pid": 9, "status": {"considered_dead": True}}])):
            ranks = [
                {"rank": r, "host": "h", "pid": r, "cuda_dev": r, "collective_counts": {"AllReduce": 5 + number}}
                for r in range(2 - len(gone))
            ]
            comm = {"hash": f"0x{name}", "size": 2, "ranks": ranks, "missing_ranks": gone}
            answer = {"nccl_version": "2.29.1", "communicators": [comm]}
            (tmp_path / f"ras-{number}-{name}.json").write_text(json.dumps(answer))
    _, jobs = explain(tmp_path)
    assert conclusions(jobs) == [("alive", [], []), ("hang-dead", [], [1])]


def test_dumps_taken_one_after_the_other_while_the_job_runs_raise_no_fault(explain, tmp_path):
    """Rank 1's dump, three seconds later, has completed what rank 0 had not reached: no hang looks like that."""
    write(tmp_path, {0: 5, 1: 8})
    code, (job,) = explain(tmp_path)
    assert (code, job["diagnosis"], job["late_ranks"]) == (10, "hang-undecided", [])
    assert "rank 1 has completed all_reduce 7 of default_pg, which rank 0 had not entered" in job["sentence"]
    write(tmp_path, {0: 5, 1: 6})
    _, (job,) = explain(tmp_path)
    assert (job["late_ranks"], "rank 0 had not finished" in job["sentence"]) == ([], True)
    write(tmp_path, {0: 5, 1: 6}, behind={0})  # one further: as far as it can get alone
    assert explain(tmp_path)[1][0]["late_ranks"] == [0]


@pytest.mark.parametrize(
    ("second", "later", "code", "diagnosis", "late"),
    [
        ({0: 5, 1: 6}, 60, 1, "hang-late", [0]),
        ({0: 9, 1: 9}, 60, 10, "hang-undecided", []),
        ({0: 5, 1: 6}, 0, 10, "hang-undecided", [0]),  # the same dumps, copied twice
    ],
)
def test_a_second_look_distinguishes_a_job_that_runs_from_one_that_hangs(
    explain, tmp_path, second, later, code, diagnosis, late
):
    now = START + 60
    write(tmp_path / "first", {0: 5, 1: 6}, at=now, behind={0})
    write(tmp_path / "second", second, at=now + later, behind={0} if second[0] == 5 else None)
    for folders in ([tmp_path], [tmp_path / "first", tmp_path / "second"]):
        exit_code, (job,) = explain(*folders)
        assert (exit_code, job["diagnosis"], job["late_ranks"]) == (code, diagnosis, late), job["sentence"]
    assert explain(tmp_path / "first")[0] == 10


def test_a_dump_that_an_earlier_run_left_is_not_counted(explain, tmp_path):
    """Each run hangs at its fifth operation; rank 1 left no dump in the last run, but has the previous one's."""
    write(tmp_path, {0: 5, 2: 5}, world=3)
    write(tmp_path, {1: 4}, world=3, begun=START - 7200)
    code, (job,) = explain(tmp_path)
    assert (code, job["late_ranks"], job["unknown_ranks"]) == (10, [], [1])
    assert "of an earlier run" in job["sentence"]
    write(tmp_path, {1: 4}, world=3, behind={1})
    assert explain(tmp_path)[1][0]["late_ranks"] == [1]


@pytest.mark.parametrize("size", [8, 16])
def test_dumps_of_other_ranks_are_of_another_job_where_they_called_something_else(explain, tmp_path, size):
    """Two jobs of four ranks run at the same time: ranks 0 and 1 of one left dumps, ranks 2 and 3 of the other."""
    write(tmp_path / "a", {0: 12, 1: 12}, world=4)
    write(tmp_path / "b", {2: 11, 3: 12}, world=4, behind={2})
    for path in (tmp_path / "b").iterdir():
        content = pickle.loads(path.read_bytes())
        for entry in content["entries"]:
            entry["input_sizes"] = [[size]]
        path.write_bytes(pickle.dumps(content, 2))
    for folders in ([tmp_path], [tmp_path / "a", tmp_path / "b"]):
        _, jobs = explain(*folders)
        missing = [[2, 3], [0, 1, 2]]  # rank 2 did not reach the operation in which only rank 3 is seen to wait
        assert [job["unknown_ranks"] for job in jobs] == ([[]] if size == 8 else missing)


def test_a_job_whose_ranks_called_different_operations_at_last_is_one_job_in_folders_of_its_nodes(explain, tmp_path):
    """Under one number rank 0 has completed an operation that the others did not call."""
    for rank in range(4):
        (tmp_path / f"node{rank}").mkdir()
        shutil.copy(REAL / "one-more" / f"nccl_trace_rank_{rank}", tmp_path / f"node{rank}")
    assert conclusions(explain(tmp_path)[1]) == [("hang-mismatch", [0], [])]


def test_a_copy_of_one_dump_is_no_second_look_at_the_job(explain, tmp_path):
    write(tmp_path, {0: 5, 1: 6}, at=START + 60, behind={0})
    (tmp_path / "again").mkdir()
    shutil.copy(tmp_path / "_dump_1", tmp_path / "again")
    code, (job,) = explain(tmp_path)
    assert (code, job["diagnosis"]) == (10, "hang-undecided")


def test_half_of_the_ranks_of_another_run_under_the_same_names(explain, tmp_path):
    """Ranks 2 and 3 are from a run that ended before the others' began: by its own time-out, not by the maximum."""
    for rank in range(4):
        case = "sleep" if rank < 2 else "branch"
        shutil.copy2(REAL / case / f"nccl_trace_rank_{rank}", tmp_path)
    code, (job,) = explain(tmp_path)
    assert (code, job["late_ranks"], job["unknown_ranks"]) == (10, [], [2, 3]), job["sentence"]


def test_a_blocked_watchdog_in_the_log_of_a_larger_job_decides_nothing_about_dumps(explain, tmp_path):
    """Dumps of two ranks that wait for a minute, next to the log of one rank of eight with a blocked watchdog."""
    write(tmp_path / "job", {0: 5, 1: 6}, at=START + 60, behind={0})
    shutil.copy(REAL / "parallel-late" / "rank0.log", tmp_path / "job")
    code, (dumped, logged) = explain(tmp_path / "job")
    assert (code, dumped["diagnosis"], dumped["ranks"]) == (1, "hang-undecided", 2), dumped["sentence"]
    assert (logged["diagnosis"], logged["ranks"]) == ("hang", 8)
