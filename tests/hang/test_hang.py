"""Causes of hanging jobs: our own recordings (four ranks, torch 2.13, gloo), made inputs, and foreign samples."""

import io
import json
import pickle
import shutil
import sys
import time
from types import SimpleNamespace

import pytest

from cli.explain import main
from seatrial.logs.hang import watchdog
from seatrial.logs.hang.decide import decide
from seatrial.logs.hang.model import Evidence, Group, Report, Sample
from seatrial.logs.hang.pickles import loads
from tests.hang.recorded import DATA


@pytest.mark.parametrize(
    ("case", "code", "diagnosis", "late", "waiting", "unknown", "group"),
    [
        ("sleeps", 1, "hang-late", [1], [0, 2, 3], [], "default_pg"),
        ("nested", 1, "hang-late", [3], [0, 1, 2], [], "TENSOR_MODEL_PARALLEL_GROUP"),
        ("branch", 1, "hang-mismatch", [1], [0, 2, 3], [], "default_pg"),
        ("dies", 10, "hang-undecided", [], [3], [1], "default_pg"),
    ],
)
def test_our_own_recordings(explain, case, code, diagnosis, late, waiting, unknown, group):
    """A rank that sleeps, one that delays others through a nested group, one in another branch, one that is gone."""
    exit_code, job = explain(DATA / case)
    assert (exit_code, job["diagnosis"]) == (code, diagnosis)
    assert (job["late_ranks"], job["waiting_ranks"], job["unknown_ranks"]) == (late, waiting, unknown)
    assert job["stuck"]["group"] == group


@pytest.mark.parametrize(
    ("case", "diagnosis", "late", "dead", "waiting"),
    [
        ("sleep", "hang-late", [2], [], [0, 1, 3]),
        ("exit", "hang-dead", [], [2], [0, 1, 3]),
        ("stopped", "hang-dead", [], [2], [0, 1, 3]),
        ("branch", "hang-mismatch", [2], [], [0, 1, 3]),
        ("sizes", "hang-mismatch", [2], [], [0, 1, 3]),
    ],
)
def test_recordings_of_real_nccl(explain, case, diagnosis, late, dead, waiting):
    """Logs, dumps and RAS of one job of NCCL 2.28.9 on a GPU, with each hang caused on purpose, are explained.

    nccl.hang-late, nccl.hang-dead, nccl.hang-mismatch.
    """
    code, job = explain(DATA / "nccl-2.28.9" / case)
    assert (code, job["diagnosis"]) == (1, diagnosis)
    assert f"nccl.{diagnosis}" in {fault["fault"] for fault in job["faults"]}
    assert (job["late_ranks"], job["dead_ranks"], job["waiting_ranks"]) == (late, dead, waiting)
    assert job["stuck"] == {"group": "default_pg", "operation": "all_reduce", "sequence": 21}


IN_GROUPS = [0, 1, 2, 3, 4, 6, 7]


@pytest.mark.parametrize(
    ("case", "part", "expected"),
    [
        # all evidence, then each part alone: an undetermined rank must not be reported
        ("groups-late", "rank", ("hang-late", [5], [], IN_GROUPS)),
        ("groups-late", "ras", ("hang-late", [5], [], IN_GROUPS)),
        ("groups-late", "nccl_trace", ("hang-late", [5], [], IN_GROUPS)),
        ("groups-late", "log", ("hang", [], [], [0, 1, 2, 3, 4, 6, 7])),
        ("groups-killed", "ra", ("hang-dead", [], [6], [0, 1, 2, 3, 4, 5, 7])),
        ("groups-killed", "ras", ("hang-dead", [], [6], [0, 1, 2, 3, 4, 5, 7])),
        ("groups-killed", "nccl_trace", ("hang-undecided", [], [], [0, 1, 2, 3, 4, 5, 7])),
        ("groups-killed", "rank", ("hang-late", [6], [], [0, 1, 2, 3, 4, 5, 7])),
        # all but one print that they received the signal to dump
        ("groups-killed", "log", ("hang-dead", [], [6], [0, 1, 2, 3, 4, 5, 7])),
        ("exit", "log", ("hang-dead", [], [2], [0, 1, 3])),
        ("stopped", "log", ("hang-dead", [], [2], [0, 1, 3])),
        ("pipeline", "ra", ("hang-late", [2], [], [3])),
        ("pipeline", "log", ("hang", [], [], [3])),
        ("stalled", "ra", ("hang-stalled", [1], [], [0, 2, 3])),
        ("stalled", "log", ("hang-inside", [], [], [0, 1, 2, 3])),
        ("stopped-inside", "ra", ("hang-dead", [], [1], [0, 2, 3])),
        ("stopped-inside", "rank", ("hang-dead", [], [1], [0, 2, 3])),
        ("all-to-all", "ra", ("hang-late", [3], [], [0, 1, 2])),
        ("one-more", "ra", ("hang-mismatch", [0], [], [])),
        ("one-more", "log", ("hang-mismatch", [0], [], [])),
        # tensor, pipeline (batch_isend_irecv) and data parallel groups of two
        ("parallel-late", "ra", ("hang-late", [3], [], [0, 1, 2, 4, 5, 6, 7])),
        ("parallel-late", "ras", ("hang-late", [3], [], [0, 1, 2, 4, 5, 6, 7])),
        ("parallel-late", "nccl_trace", ("hang-late", [3], [], [0, 1, 2, 4, 5, 6, 7])),
        ("parallel-late", "log", ("hang", [], [], [0, 1, 2, 4, 5, 6, 7])),
        ("parallel-killed", "ra", ("hang-dead", [], [1, 5], [0, 2, 3, 4, 6, 7])),
        ("parallel-killed", "nccl_trace", ("hang-undecided", [], [], [0, 2, 3, 4, 6, 7])),
        ("parallel-killed", "log", ("hang-dead", [], [5], [0, 1, 2, 3, 4, 6, 7])),
        ("parallel-stalled", "nccl_trace", ("hang-stalled", [2], [], [0, 1, 3, 4, 5, 6, 7])),
        ("untimed-stalled", "nccl_trace", ("hang-inside", [], [], [0, 1, 2, 3, 4, 5, 6, 7])),
        ("splits", "ra", ("hang-inside", [], [], [0, 1, 2, 3])),
        ("splits", "nccl_trace", ("hang-undecided", [], [], [0, 1, 2, 3])),  # 13 of 40 s by their own timestamps
        ("dtype", "nccl_trace", ("hang-mismatch", [1], [], [0, 2, 3])),
        ("root-late", "log", ("hang-late", [0], [], [1, 2, 3])),
        # the report's snapshot shows another operation under the same number: rank 2 has completed it
        ("branch", "log", ("hang-mismatch", [2], [], [0, 1, 3])),
        # answers as received, the protocol's lines first
        ("sleep", ".json", ("hang-late", [2], [], [0, 1, 3])),
        ("exit", ".json", ("hang-dead", [], [2], [0, 1, 3])),
        ("branch", ".json", ("hang-mismatch", [2], [], [0, 1, 3])),
        # two ranks are behind and two ahead: the text names neither side
        ("nested", "-0.txt", ("hang-undecided", [], [], [])),
        ("nested", ".txt", ("hang-late", [], [], [])),
    ],
)
def test_each_part_of_what_real_nccl_left(explain, tmp_path, case, part, expected):
    """Groups within groups, pipelines, a GPU that is busy elsewhere, a process stopped midway; `part`: in a file's
    name."""
    whole = DATA / "nccl-2.28.9" / case
    for path in whole.iterdir():
        if part in path.name:
            shutil.copy2(path, tmp_path)
    _, job = explain(tmp_path)
    ranks = tuple(job.get(key) for key in ("late_ranks", "dead_ranks", "waiting_ranks"))
    assert (job["diagnosis"], *ranks) == expected, job["sentence"]
    assert ("sizes differ between ranks" in job["sentence"]) == (case == "splits" and part == "ra")
    assert ("TORCH_NCCL_ENABLE_TIMING=1" in (job["advice"] or "")) == (case == "untimed-stalled")


@pytest.mark.parametrize(
    ("drop", "old", "new"),
    [
        ("rank2.log", "", ""),  # whether it printed anything is unknown
        ("", "due to a collective timeout from  rank", "due to a collective timeout from this local rank of"),  # not forwarded
        ("", "rank 2 warm", "rank 2 warm\n[rank2]:[E1122 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank 2] Received a dump"
         " signal due to a collective timeout from  rank 1 and we will try our best to dump the debug info. Last enqueued NCCL work: 21,"),
    ],
)  # fmt: skip
def test_a_rank_whose_silence_shows_nothing_is_not_dead(explain, tmp_path, drop, old, new):
    """The rank's log is missing, it got no signal, or it answered; not all have entered if the snapshot shows two
    places."""
    for path in (DATA / "nccl-2.28.9" / "exit").glob("*.log"):
        if path.name != drop:
            (tmp_path / path.name).write_text(path.read_text().replace(old, new) if old else path.read_text())
    _, job = explain(tmp_path)
    assert (job["diagnosis"], job.get("dead_ranks", [])) == ("hang", []), job["sentence"]


def test_a_report_does_not_tell_late_ranks_from_one_that_called_more(explain, tmp_path):
    """If the others have completed the timed-out operation, rank 0 may wait for three late ones."""
    for path in (DATA / "nccl-2.28.9" / "one-more").glob("*.log"):
        text = path.read_text().replace("OpType=_REDUCE_SCATTER_BASE", "OpType=_ALLGATHER_BASE")
        (tmp_path / path.name).write_text(text)
    _, job = explain(tmp_path)
    assert (job["diagnosis"], job["late_ranks"], job["unknown_ranks"]) == ("hang-late", [], [1, 2, 3])
    assert "or rank 0 called one operation more" in job["sentence"]


@pytest.mark.parametrize(("case", "dead", "late"), [("exit/ras-0.txt", [2], []), ("sleep/rank0.log", [], [2])])
def test_standard_input_is_read_as_a_file_is(explain, monkeypatch, case, dead, late):
    """`kubectl logs --prefix | seatrial explain -`: RAS's answer, and torch's messages."""
    text = (DATA / "nccl-2.28.9" / case).read_text().splitlines(keepends=True)
    prefixed = io.BytesIO("".join(f"[pod/train-0/main] {line}" for line in text).encode())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=prefixed))
    code, job = explain("-")
    assert (code, job["dead_ranks"], job["late_ranks"]) == (1, dead, late)


def test_a_dump_whose_entries_are_none_leaves_its_rank_open(explain, tmp_path):
    shutil.copytree(DATA / "sleeps", tmp_path / "d")
    content = loads((tmp_path / "d" / "rank_1").read_bytes())
    content["entries"] = [{"collective_seq_id": float("inf"), "process_group": {}, "time_created_ns": float("nan")}, 7]
    (tmp_path / "d" / "rank_1").write_bytes(pickle.dumps(content, protocol=2))
    code, job = explain(tmp_path / "d")
    assert (code, job["late_ranks"], job["unknown_ranks"]) == (10, [], [1])
    assert "none of its entries can be read" in job["sentence"]


def test_an_empty_recording_is_said(explain, tmp_path):
    code, said = explain(DATA / "nccl-2.28.9" / "stopped" / "ras-0.json")
    assert (code, "nothing was recorded in it" in said) == (4, True)
    shutil.copytree(DATA / "nccl-2.28.9" / "sleep", tmp_path / "d", ignore=shutil.ignore_patterns("ras*", "*.log"))
    (tmp_path / "d" / "nccl_trace_rank_2").write_bytes(b"")
    (tmp_path / "d" / "stderr").write_bytes(b"")
    _, job = explain(tmp_path / "d")
    assert (len(job["unread"]), job["late_ranks"], job["unknown_ranks"]) == (1, [], [2])
    assert "nccl_trace_rank_2: an empty file" in job["sentence"]


def test_most_ranks_do_not_hold_up_the_few(explain, tmp_path):
    """Three of four wait in an operation that one completed; without a snapshot the reason is unknown, and none is
    reported."""
    text = (DATA / "nccl-2.28.9" / "branch" / "rank0.log").read_text()
    (tmp_path / "rank0.log").write_text("".join(x for x in text.splitlines(True) if "started" not in x))
    _, job = explain(tmp_path)
    assert (job["hang"], job.get("late_ranks", [])) == (True, [])


def test_two_jobs_that_hang_are_each_reported_by_their_own_words(capsys):
    """Rank 2 sleeps in one job, rank 0 in the other: no rank is reported by another job's log."""
    logs = [DATA / "nccl-2.28.9" / case / f"rank{rank}.log" for case, rank in (("sleep", 0), ("root-late", 1))]
    assert main(["--format", "json", *map(str, logs)]) == 1
    jobs = json.loads(capsys.readouterr().out)["jobs"]
    assert [job["late_ranks"] for job in jobs] == [[2], [0]]


def test_ranks_that_may_wait_together_are_not_late_by_counts():
    """Ranks 0 and 1 wait in their own group, and are behind in those with 2 and 3: RAS only counts launches."""

    def sample(counts):
        made = Sample("ras", world="w", size=4, parts={"a", "b", "c"})
        made.counts = {(comm, "AllReduce"): by_rank for comm, by_rank in counts.items()}
        return made

    groups = {"a": {0: 7, 1: 7}, "b": {0: 4, 2: 5}, "c": {1: 4, 3: 5}}
    made = decide(Evidence(samples=[sample(groups) for _ in range(3)]))
    assert (made.kind, made.late, made.proven) == ("undecided", set(), False)
    made = decide(Evidence(samples=[sample({**groups, "a": {0: 7, 1: 8}}) for _ in range(3)]))
    assert (made.kind, made.late, made.proven) == ("late", {0}, True)


def test_a_report_numbers_ranks_within_its_group():
    """Rank 2 of eight reports for the group of 0, 2, 4 and 6, as [Rank 1]: its [3] is rank 6; rank 0 reports itself
    present."""
    lines = (DATA / "nccl-2.28.9" / "groups-killed" / "rank2.log").read_text().splitlines()
    evidence = Evidence()
    watchdog.read(evidence, "rank2.log", enumerate(lines, 1))

    def missing():
        (report,) = [each for each in watchdog.in_world(evidence) if each.state == "absent"]
        return report.ranks

    assert [event.rank for event in evidence.timeouts] == [2]
    (item,) = evidence.lagging
    assert (item.ranks, item.number, item.group, item.reporter) == ((0, 3), "5", "data", (2, 1))
    assert missing() == ()  # the other members of the group are unknown
    evidence.groups["g"] = Group("g", "data", (0, 2, 4, 6))
    assert missing() == (0, 6)
    evidence.reports.append(Report("failed", ("rank0.log", 1, ""), (0,)))
    assert missing() == (6,)
    evidence.groups["g"] = Group("g", "data", (1, 3, 5, 7))  # another group with that name: rank 2 is not in it
    assert missing() == ()


def test_a_rank_that_waits_in_a_communicators_creation_is_not_late(explain, tmp_path):
    """Rank 1 sleeps, and rank 0 waits for it in ncclCommInitRank, whose end is missing in its log."""
    _, job = explain(DATA / "nccl-2.28.9" / "nested")
    assert (job["late_ranks"], job["waiting_ranks"]) == ([1], [0, 2, 3])
    shutil.copytree(DATA / "nccl-2.28.9" / "nested", tmp_path / "without", ignore=shutil.ignore_patterns("*.log"))
    _, job = explain(tmp_path / "without")
    assert (job["late_ranks"], job["waiting_ranks"]) == ([0, 1], [2, 3])  # without logs indistinguishable
    shutil.copytree(DATA / "nccl-2.28.9" / "nested", tmp_path / "d", ignore=shutil.ignore_patterns("*trace_rank_1"))
    _, job = explain(tmp_path / "d")
    assert (job["late_ranks"], job["unknown_ranks"]) == ([], [1])


WAITED = (
    "[rank{0}]:[E ProcessGroupNCCL.cpp:689] [Rank {1}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={2},"
    " OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=25000) ran for 25012 milliseconds before timing out.\n"
    "[rank{0}]:[E ProcessGroupNCCL.cpp:2303] [PG ID 0 PG GUID {3} Rank {1}]  failure detected by watchdog at work sequence"
    " id: {2} PG status: last enqueued work: {2}, last completed work: 20\n"
)


@pytest.mark.parametrize(
    ("group", "number", "late"),
    [("0(default_pg)", 21, [2]), ("0(default_pg)", 20, []), ("5(data)", 21, [])],
    ids=["never-came", "is-through", "another-group"],
)
def test_the_dump_of_the_late_rank_and_the_watchdogs_of_the_others(explain, tmp_path, group, number, late):
    """Rank 2's dump shows that rank idle after all_reduce 20; the others left only messages."""
    shutil.copy(DATA / "nccl-2.28.9" / "sleep" / "nccl_trace_rank_2", tmp_path)
    for rank in (0, 1, 3):
        (tmp_path / f"rank{rank}.log").write_text(WAITED.format(rank, rank, number, group))
    code, job = explain(tmp_path)
    assert (code, job["late_ranks"]) == (1, late), job["sentence"]
    assert (job["waiting_ranks"], job["stuck"]["sequence"]) == ([0, 1, 3], number)


def test_a_folder_with_a_log_of_each_rank_is_one_job(capsys, tmp_path):
    """Only the watchdogs report, each in a separate file; a log with another name does not belong to them."""
    for rank in (0, 1, 3):
        (tmp_path / f"rank{rank}.log").write_text(WAITED.format(rank, rank, 21, "0(default_pg)"))
    (tmp_path / "other.log").write_text(WAITED.format(2, 2, 9, "0(default_pg)"))
    assert main(["--format", "json", str(tmp_path)]) == 1
    jobs = json.loads(capsys.readouterr().out)["jobs"]
    assert [len(job["files"]) for job in jobs] == [1, 3]
    assert "ranks 0, 1, 3 waited in operation 21" in jobs[1]["sentence"]


@pytest.mark.parametrize("case", ["gpu_error_1st", "lock_gil_1st"])
def test_the_given_dumps_name_the_injected_ranks(explain, shared, case):
    folder = shared / "hang" / "flight-recorder" / case
    truth = json.loads((folder / "fault_injection.log").read_text().splitlines()[0].partition(":")[2])
    code, job = explain(folder)
    assert code == 1
    assert "treated as those of a time-out" in job["sentence"]
    assert job["late_ranks"] == truth
    assert job["waiting_ranks"] == [rank for rank in range(16) if rank not in truth]


@pytest.mark.parametrize(("gone", "late", "code"), [([9], [14], 1), ([9, 14], [], 10), ([3, 4], [9, 14], 1)])
def test_a_missing_dump_neither_reports_nor_clears(explain, shared, tmp_path, gone, late, code):
    shutil.copytree(shared / "hang" / "flight-recorder" / "lock_gil_1st", tmp_path / "dumps")
    for rank in gone:
        (tmp_path / "dumps" / f"_dump_{rank}").unlink()
    exit_code, job = explain(tmp_path / "dumps")
    assert (exit_code, job["late_ranks"], job["unknown_ranks"]) == (code, late, gone)


GLUED = "[rank{0}]:[E1122 10:00:00.1 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={1}, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=8000) ran for 8097 milliseconds before timing out."


def test_reports_that_share_a_line_are_all_read(explain, tmp_path):
    """Processes with one pipe lose line ends between their lines."""
    (tmp_path / "job.log").write_text(GLUED.format(0, 7) + GLUED.format(3, 7) + "\n")
    _, job = explain(tmp_path / "job.log")
    assert "ranks 0, 3 waited in operation 7" in job["sentence"]


def test_the_numbers_of_watchdog_and_desync_report_are_joined(explain, tmp_path):
    """The watchdog counts from 0, the report from 1."""
    log = tmp_path / "job.log"
    log.write_text(
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=4,"
        " NumelOut=4, Timeout(ms)=8000) ran for 8097 milliseconds before timing out.\n"
        " - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
        "     [1] finished collective #2, but didn't join collective #3 (count from 1)\n"
    )
    code, job = explain(log)
    assert (code, job["diagnosis"], job["late_ranks"], job["stuck"]["sequence"]) == (1, "hang-late", [1], 2)


def test_a_log_with_the_dumps_is_never_go(explain, tmp_path):
    shutil.copytree(DATA / "dies", tmp_path / "d")
    (tmp_path / "d" / "nccl.txt").write_text("node1:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB\n")
    code, job = explain(tmp_path / "d")
    assert code != 0
    assert any(name.endswith("nccl.txt") for name in job["files"])


@pytest.mark.slow
def test_ten_thousand_ranks(explain, tmp_path):
    """The work is bounded: every rank lists all members of the world, and one is late."""
    waits, late = (loads((DATA / "nccl-2.28.9" / "sleep" / f"nccl_trace_rank_{rank}").read_bytes()) for rank in (0, 2))
    members = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(10_000)))}}
    ends = ({**x, "entries": x["entries"][-2:], "pg_config": members} for x in (waits, late))
    waiting, behind = (pickle.dumps(end, protocol=2) for end in ends)
    for rank in range(10_000):
        (tmp_path / f"dump_{rank}").write_bytes(behind if rank == 7777 else waiting)
    before = time.process_time()
    code, job = explain(tmp_path)
    assert (code, job["late_ranks"], len(job["waiting_ranks"])) == (1, [7777], 9_999)
    assert time.process_time() - before < 12


def dumped(folder, entries, timed=True):
    """Write a dump per rank: [(group, sequence, name, state), ...]; "g" and "h" are groups of ranks 0 and 1.

    The operations were queued ten minutes and a second ago, NCCL's time-out.
    """
    queued = int((time.time() - 601) * 1e9)
    for rank, made in enumerate(entries):
        rows = [
            {
                "record_id": n,
                "process_group": [group, group],
                "collective_seq_id": sequence,
                "profiling_name": f"nccl:{name}",
                "input_sizes": [[8]],
                "state": state,
                "is_p2p": False,
            }
            | ({"time_created_ns": queued + n} if timed else {})
            for n, (group, sequence, name, state) in enumerate(made)
        ]
        config = {name: {"name": name, "desc": name, "ranks": "[0, 1]"} for name in ("g", "h")}
        content = {"version": "2.9", "entries": rows, "pg_config": config, "pg_status": {}}
        (folder / f"_dump_{rank}").write_bytes(pickle.dumps(content, protocol=2))


def test_a_dump_in_json_without_its_groups_is_one(explain, tmp_path):
    """Format 2.1 lists no groups: the default group has all ranks."""
    for rank in range(4):
        content = loads((DATA / "nccl-2.28.9" / "sleep" / f"nccl_trace_rank_{rank}").read_bytes())
        (tmp_path / f"dump_{rank}.json").write_text(json.dumps({"version": "2.1", "entries": content["entries"]}))
    code, job = explain(tmp_path)
    assert (code, job["late_ranks"], job["waiting_ranks"]) == (1, [2], [0, 1, 3])


def test_dumps_without_any_time_are_no_hang_by_themselves(explain, tmp_path):
    """Every version writes the time of queueing: it may have been removed from a running job's dump."""
    dumped(tmp_path, [[("g", 1, "all_reduce", "started")], [("h", 1, "all_reduce", "started")]], timed=False)
    code, job = explain(tmp_path)
    assert (code, job["diagnosis"]) == (10, "hang-undecided")
    assert "they were altered" in job["sentence"]


def test_two_groups_in_another_order_lock_each_other(explain, tmp_path):
    """nccl.hang-order: each waits in one group for the other, which waits in the next."""
    dumped(tmp_path, [[("g", 1, "all_reduce", "started")], [("h", 1, "all_reduce", "started")]])
    code, job = explain(tmp_path)
    assert (code, job["diagnosis"], job["faults"][0]["fault"]) == (1, "hang-order", "nccl.hang-order")


def test_work_that_its_gpu_does_not_finish_holds_up_those_that_are_through(explain, tmp_path):
    """nccl.hang-stalled: rank 1 queued an operation that rank 0 has completed, but its GPU does not complete it."""
    dumped(
        tmp_path,
        [
            [("g", 1, "all_reduce", "completed"), ("g", 2, "all_reduce", "started")],
            [("g", 1, "all_reduce", "scheduled"), ("g", 2, "all_reduce", "scheduled")],
        ],
    )
    code, job = explain(tmp_path)
    assert (code, job["diagnosis"], job["late_ranks"]) == (1, "hang-stalled", [1])
    assert job["faults"][0]["fault"] == "nccl.hang-stalled"


def test_all_are_inside_of_one_operation(explain, tmp_path):
    """nccl.hang-inside: no rank is late."""
    dumped(tmp_path, [[("g", 1, "all_reduce", "started")]] * 2)
    code, job = explain(tmp_path)
    assert (code, job["diagnosis"], job["late_ranks"]) == (1, "hang-inside", [])
    assert job["faults"][0]["fault"] == "nccl.hang-inside"


def test_sizes_of_different_operations_are_not_compared(explain, tmp_path):
    """Two pairs wait in separate operations, which both members of each have entered."""
    dumped(tmp_path, [[("g", 1, "all_to_all", "started")]] * 2 + [[("h", 4, "all_reduce", "started")]] * 2)
    for rank in (2, 3):
        content = loads((tmp_path / f"_dump_{rank}").read_bytes())
        content["entries"][0]["input_sizes"] = [[16]]
        (tmp_path / f"_dump_{rank}").write_bytes(pickle.dumps(content, protocol=2))
    job = explain(tmp_path)[1]
    assert job["diagnosis"] == "hang-inside"
    assert "sizes differ" not in job["sentence"]


@pytest.mark.parametrize(
    ("name", "diagnosis"),
    [
        ("broadcast", "hang-mismatch"),
        ("_all_gather_base", "hang-mismatch"),
        ("_reduce_scatter_base", "hang-mismatch"),
        ("all_to_all", "hang-inside"),  # its splits may differ
        ("all_gather", "hang-inside"),  # and so may the tensors of a list
        ("scatter", "hang-inside"),
        ("all_reduce_coalesced", "hang-inside"),
    ],
)
def test_sizes_that_must_be_equal_are_compared_and_no_others(explain, tmp_path, name, diagnosis):
    dumped(tmp_path, [[("g", 1, name, "started")]] * 2)
    assert explain(tmp_path)[1]["diagnosis"] == "hang-inside"
    content = loads((tmp_path / "_dump_1").read_bytes())
    content["entries"][0]["input_sizes"] = [[16]]
    (tmp_path / "_dump_1").write_bytes(pickle.dumps(content, protocol=2))
    assert explain(tmp_path)[1]["diagnosis"] == diagnosis
