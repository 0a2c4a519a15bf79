"""NCCL Inspector's times: the last rank makes the others wait, and has the short kernel."""

import json
import os

import pytest

from cli.explain import main
from tests.hang.ras_printer import Comm, Job, text


def record(rank, number, time, size=8, op="AllReduce", source="kernel_gpu", comm="0xad56"):
    return json.dumps(
        {
            "header": {"id": comm, "rank": rank, "n_ranks": size, "nnodes": 2},
            "metadata": {
                "inspector_output_format_version": "v4.1",
                "hostname": f"gpu-node-{rank // 4}",
                "pid": 100 + rank,
            },
            "coll_perf": {
                "coll": op,
                "coll_sn": number,
                "coll_msg_size_bytes": 1 << 26,
                "coll_exec_time_us": time,
                "coll_timing_source": source,
            },
        }
    )


def times(late, number, rank, size=8):
    """A late rank is inside for 3 ms, the waiting ones for 40; with the same noise in each run."""
    return (3000 if rank in late(number) else 40_000) + 37 * ((number * 31 + rank * 17) % 23)


def explained(tmp_path, capsys, late, numbers=range(10), drop=lambda rank, number: False, extra=(), **what):
    size = what.get("size", 8)
    for rank in range(size):
        lines = [record(rank, n, times(late, n, rank), **what) for n in numbers if not drop(rank, n)]
        (tmp_path / f"inspector-{rank}.jsonl").write_text("\n".join(lines) + "\n")
    for name, content in extra:
        (tmp_path / name).write_text(content)
    code = main([str(tmp_path), "--format", "json"])
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert code == {"no-go": 1, "inconclusive": 10, "go": 0}[job["verdict"]]
    return job


@pytest.mark.parametrize("ranks", [{5}, {0}, {1, 6}])
def test_the_rank_that_comes_last_each_time_is_named(tmp_path, capsys, ranks):
    job = explained(tmp_path, capsys, lambda number: ranks)
    assert (job["diagnosis"], job["verdict"], job["late_ranks"]) == ("slow", "inconclusive", sorted(ranks))
    assert "came last to every AllReduce" in job["sentence"]


@pytest.mark.parametrize(
    ("late", "what"),
    [
        (lambda number: {number % 8}, {}),  # chance: a different one each time
        (lambda number: set(), {}),
        (lambda number: {5}, {"op": "Broadcast"}),  # a root completes early
        (lambda number: {5}, {"source": "collective_cpu"}),  # the host's clock does not show waiting
        (lambda number: {5}, {"numbers": range(2)}),
        (lambda number: {5}, {"drop": lambda rank, number: rank == 2}),  # records may be missing
        (lambda number: {0, 1, 2, 3, 4}, {}),  # no minority
        (lambda number: {1}, {"size": 2}),
    ],
)
def test_what_may_be_chance_names_no_one(tmp_path, capsys, late, what):
    job = explained(tmp_path, capsys, late, **what)
    assert (job["diagnosis"], job["late_ranks"]) == ("hang-undecided", [])


def test_short_operations_are_not_judged(tmp_path, capsys):
    for rank in range(8):
        lines = [record(rank, number, 20 if rank == 5 else 90) for number in range(10)]
        (tmp_path / f"{rank}.jsonl").write_text("\n".join(lines))
    main([str(tmp_path), "--format", "json"])
    assert json.loads(capsys.readouterr().out)["jobs"][0]["late_ranks"] == []


def test_a_watchdog_with_it_is_a_hang_and_no_pace(tmp_path, capsys):
    said = (
        "[rank3]:[E603 17:48:01.0 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=11, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800068 milliseconds\n"
    )
    job = explained(tmp_path, capsys, lambda number: {5}, extra=[("job.log", said)])
    assert job["diagnosis"] not in ("slow", "alive")
    assert job["late_ranks"] == []


def test_dumps_that_name_another_rank_are_right_about_the_hang(tmp_path, capsys):
    """The two contradict each other: both are reported, each for its own conclusion."""
    for rank in range(8):
        entry = {
            "process_group": ["0", "default_pg"],
            "collective_seq_id": 12,
            "p2p_seq_id": 0,
            "op_id": 12,
            "profiling_name": "nccl:all_reduce",
            "input_sizes": [[4]],
            "output_sizes": [[4]],
            "is_p2p": False,
            "state": "started",
            "time_created_ns": 1,
            "timeout_ms": 600000,
        }
        dump = {
            "version": "2.9",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(8)))}},
            "pg_status": {"0": {"last_enqueued_collective": 12 if rank != 2 else 11, "last_completed_collective": 11}},
            "entries": [entry] if rank != 2 else [],
        }
        (tmp_path / f"nccl_trace_rank_{rank}.json").write_text(json.dumps(dump))
        os.utime(tmp_path / f"nccl_trace_rank_{rank}.json", (601, 601))  # at its time-out
    job = explained(tmp_path, capsys, lambda number: {5})
    assert (job["diagnosis"], job["late_ranks"]) == ("hang-late", [2])
    assert any("Inspector" in text for text in job["contradictions"])


def test_ten_thousand_ranks_and_cut_lines_are_bounded(tmp_path, capsys):
    whole = "\n".join(
        record(rank, number, 3000 if rank == 7 else 40_000, size=2000) for number in range(5) for rank in range(2000)
    )
    (tmp_path / "all.jsonl").write_text(whole + "\n" + whole[:400].replace("coll_sn", "coll") + '\n{"coll_perf":')
    main([str(tmp_path), "--format", "json"])
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert job["late_ranks"] == [7]
    assert any("not Inspector records" in text for text in job["unread"])


def test_records_do_not_change_what_one_answer_of_ras_proves(tmp_path, capsys):
    """Ranks behind in one answer may be behind for a moment: their communicator is not what is unclear."""
    answer = text(Job(8, [Comm(list(range(8)), counts={3: 0})]))
    job = explained(tmp_path, capsys, lambda number: {number % 8}, extra=[("ras-0.txt", answer)])
    assert "one sample does not prove a hang" in job["sentence"]
