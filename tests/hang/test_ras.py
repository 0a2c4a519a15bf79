"""NCCL RAS answers of a hanging job: samples, sides, and answers within logs."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from cli.running_job import _take
from jobs.cluster.client.pod_exec import Executed
from reports.record import EXIT_CODES
from seatrial.logs import conclude_hang
from seatrial.logs.hang.model import Evidence
from tests.hang.recorded import DATA
from tests.hang.test_layouts import dumped, play
from tests.program import ROOT


def test_sides_of_one_size_that_ras_does_not_name_raise_no_fault(explain, tmp_path):
    for path in (DATA / "nccl-2.28.9" / "nested").glob("ras-*.txt"):
        shutil.copy(path, tmp_path)
    code, job = explain(tmp_path)
    assert (code, job["stuck"]["operation"], job["stuck"]["sequence"]) == (1, "AllReduce", 21)
    assert job["sentence"].startswith("2 ranks never entered AllReduce 21")
    assert job["faults"][0]["subject"] == "the job"


def test_answers_one_after_the_other_in_one_file_are_samples(explain, tmp_path):
    """Three calls have appended their answers to one file, in the JSON form of NCCL 2.28.9."""
    answer = (DATA / "nccl-2.28.9" / "sleep" / "ras-0.json").read_text()
    (tmp_path / "ras.json").write_text("".join(answer.replace("17:11:34", f"17:11:3{at}") for at in (4, 6, 8)))
    code, job = explain(tmp_path)
    assert (code, job["late_ranks"], job["waiting_ranks"]) == (1, [2], [0, 1, 3])


@pytest.mark.parametrize("front", ["[pod/train-0/main] ", "2026-11-22T17:12:0{}.1234{}Z ", "[1,0]<stdout>:", "0: ", ""])
@pytest.mark.parametrize("name", ["ras-0.txt", "ras-2.json"])
def test_an_answer_of_ras_is_found_in_a_log_and_behind_a_prefix(explain, tmp_path, front, name):
    """`kubectl logs --prefix` or `--timestamps`, mpirun, srun or a script have put the answer into the log."""
    folder = DATA / "nccl-2.28.9" / "exit"
    log = [line for line in (folder / "rank0.log").read_text().splitlines() if "NCCL INFO" in line]
    answer = (folder / name).read_text().splitlines()
    lines = enumerate([*log[:20], *answer[:12], *log[20:25], *answer[12:]] if name.endswith("txt") else [*log, *answer])
    (tmp_path / "job.log").write_text("".join(f"{front.format(n % 10, n)}{line}\n" for n, line in lines))
    code, job = explain(tmp_path / "job.log")
    assert (code, job["hang"], job["dead_ranks"]) == (1, True, [2])
    assert job["nccl_lines"] > 20
    (tmp_path / "job.log").write_text("".join(f"{front.format(1, 2)}{line}\n" for line in answer[: len(answer) // 4]))
    assert "dead_ranks" not in explain(tmp_path / "job.log")[1]  # truncated before its table


def test_numbers_of_ras_that_cannot_be_true_fill_no_list(explain, tmp_path):
    gone = [{"rank": rank, "host": "h", "pid": 3, "status": {"considered_dead": True}} for rank in (3, -7)]
    there = [{"rank": rank, "host": "h", "pid": rank, "collective_counts": {"AllReduce": 4}} for rank in (0, 1)]
    comm = {"hash": "0x1", "size": 10**15, "ranks": there, "missing_ranks": gone}
    (tmp_path / "ras.json").write_text(json.dumps({"nccl_version": "2.29.1", "communicators": [comm]}))
    _, job = explain(tmp_path)
    assert (job["dead_ranks"], job["waiting_ranks"]) == ([3], [0, 1])


@pytest.mark.parametrize(
    ("case", "code", "diagnosis", "late"),
    [
        ("late", 1, "hang-late", [2]),
        ("alive", 10, "alive", []),
        ("slow", 10, "alive", []),
        ("stalled", 10, "hang-undecided", []),
    ],
)
def test_what_the_client_heard_of_real_nccl(case, code, diagnosis, late):
    """The input is the verbatim output of jobs/pod/ras_client.py next to four ranks of NCCL 2.28.9 on a GPU."""
    evidence = Evidence()
    printed = (DATA / "nccl-2.28.9" / "live" / f"{case}.jsonl").read_bytes()
    _take("pod", Executed(out=bytearray(printed), code=0), evidence)
    (job,) = conclude_hang([evidence], [])
    assert (len(evidence.samples), evidence.not_seen) == (3, [])
    assert (EXIT_CODES[job["verdict"]], job["diagnosis"], job["late_ranks"]) == (code, diagnosis, late)


def ras(counts, stamp="1"):
    ranks = [
        {"rank": r, "host": f"node{r // 8}", "pid": 100 + r, "cuda_dev": r % 8, "collective_counts": {"AllReduce": n}}
        for r, n in enumerate(counts)
    ]
    comm = {"hash": "0x1", "size": len(counts), "ranks": ranks, "missing_ranks": []}
    return json.dumps({"nccl_version": "2.29.1", "timestamp": stamp, "communicators": [comm]})


@pytest.mark.parametrize(
    ("samples", "code", "diagnosis", "late"),
    [
        (([5, 5, 5], [6, 6, 6], [7, 7, 7]), 10, "alive", []),
        (([5, 4, 5], [5, 4, 5], [5, 4, 5]), 1, "hang-late", [1]),
        (([4, 5, 4], [4, 5, 4], [4, 5, 4]), 1, "hang-late", [0, 2]),  # the larger side may be late
        (([5, 5, 5], [5, 5, 5], [5, 5, 5]), 10, "hang-undecided", []),  # inside one operation, or idle
        (([5, 4, 5],), 10, "hang-undecided", [1]),
        (([5, 4, 5], [7, 6, 7], [9, 8, 9]), 10, "slow", [1]),
        (([5, 4, 5], [7, 7, 7], [9, 8, 9]), 10, "alive", []),  # once it was not behind
        (([4, 4, 5], [6, 6, 7], [8, 8, 9]), 10, "alive", []),  # a rank that is ahead delays none
    ],
)
def test_samples_of_ras(explain, tmp_path, samples, code, diagnosis, late):
    for number, counts in enumerate(samples):
        (tmp_path / f"sample-{number}.json").write_text(ras(counts, str(number)))
    exit_code, job = explain(tmp_path)
    assert (exit_code, job["diagnosis"], job["late_ranks"]) == (code, diagnosis, late)


@pytest.mark.parametrize(
    ("name", "code", "diagnosis", "late", "dead"),
    [
        ("05-nccl-issue-1730-ras-ok-while-watchdog-times-out-2.26.2.txt", 1, "hang-inside", [], []),
        ("04-nccl-issue-1911-mismatch-text-2.26.2.txt", 10, "hang-undecided", [], []),
        ("nccl-2.29.1-one-rank-missing.json", 1, "hang-dead", [], [1]),
        ("nccl-2.30.7-exit-dead.txt", 1, "hang-dead", [], []),
        ("nccl-2.30.7-exit-incomplete.txt", 1, "hang-dead", [], [7]),
        ("nccl-2.30.7-healthy.txt", 10, "hang-undecided", [], []),
        ("nccl-2.30.7-straggler-mismatch.txt", 10, "hang-undecided", [7], []),
    ],
)
def test_the_given_answers_of_ras(explain, shared, name, code, diagnosis, late, dead):
    exit_code, job = explain(shared / "hang" / "ras" / name)
    assert (exit_code, job["diagnosis"], job["late_ranks"], job["dead_ranks"]) == (code, diagnosis, late, dead)
    assert bool(job["contradictions"]) == name.startswith("05")


@pytest.mark.parametrize(
    ("seconds", "expected"), [(5, (1, "hang-late", [7])), (0, (10, "hang-undecided", [7]))], ids=["looks", "copies"]
)
def test_three_answers_that_name_the_same_straggler_are_a_hang(explain, shared, tmp_path, seconds, expected):
    """One answer that was saved three times at once is one look, and a temporary difference shows in it, too."""
    for number in range(3):
        path = tmp_path / f"sample-{number}.txt"
        shutil.copy(shared / "hang" / "ras" / "nccl-2.30.7-straggler-mismatch.txt", path)
        os.utime(path, (1_700_000_000 + seconds * number,) * 2)
    code, job = explain(tmp_path)
    assert (code, job["diagnosis"], job["late_ranks"]) == expected
    assert "node1 GPU 3" in job["sentence"]
    assert any("copies of another one" in text for text in job["contradictions"]) == (not seconds)


@pytest.mark.parametrize("stamps", [("1", "1", "1"), ("1", "6", "11")], ids=["copies", "looks"])
def test_answers_of_one_time_are_one_look(explain, tmp_path, stamps):
    for number, stamp in enumerate(stamps):
        path = tmp_path / f"sample-{number}.json"
        path.write_text(ras([5, 4, 5], stamp))
        os.utime(path, (1_700_000_000 + 60 * number,) * 2)
    assert explain(tmp_path)[1]["diagnosis"] == ("hang-late" if len(set(stamps)) > 1 else "hang-undecided")


@pytest.mark.parametrize(("counts", "said"), [([3, 3, 2, 3], True), ([3, 2, 3, 3], False)])
def test_ras_that_names_another_rank_than_the_dumps_is_said(explain, tmp_path, counts, said):
    for number in range(3):
        (tmp_path / f"ras-{number}.json").write_text(ras(counts, str(number)))
    groups = {"0": ("default_pg", [0, 1, 2, 3])}
    dumped(tmp_path, groups, *play(groups, 4, {1: 2}), range(4))
    _, job = explain(tmp_path)
    assert job["late_ranks"] == [1]
    assert any("NCCL RAS finds ranks [2] behind" in text for text in job["contradictions"]) == said


@pytest.mark.parametrize("counts", [[[3] * 16] * 3, [[3] * 16, [4] * 16, [5] * 16], [[3] * 15 + [2]] * 3])
def test_ras_of_a_job_with_more_ranks_than_the_dumps_changes_nothing_of_theirs(explain, tmp_path, counts):
    """The other job continues, waits, or has a rank behind: the dumps' job still hangs."""
    for number, each in enumerate(counts):
        (tmp_path / f"ras-{number}.json").write_text(ras(each, str(number)))
    groups = {"0": ("default_pg", [0, 1, 2, 3])}
    dumped(tmp_path, groups, *play(groups, 4, {1: 2}), range(4))
    code, job = explain(tmp_path)
    assert (code, job["late_ranks"]) == (1, [1]), job["sentence"]
    assert [text[:36] for text in job["contradictions"]] == ["NCCL RAS reports a job of 16 ranks, "]


def test_one_answer_without_trouble_says_what_it_does_not_prove(explain, tmp_path):
    """Near miss: three answers with the same counts show equally many launches."""
    answers = DATA / "nccl-2.28.9" / "stalled"
    code, job = explain(answers / "ras-0.json")
    assert (code, job["sentence"].startswith("NCCL RAS reports no error, and that alone proves nothing")) == (10, True)
    _, job = explain(*sorted(answers.glob("ras-*.json")))
    assert "nothing wrong" not in job["sentence"], job["sentence"]


def test_two_operations_that_differ_are_reported_the_same_in_every_process():
    """Python orders sets of strings by a seed per process: RAS's first one counts."""
    code = "from cli.explain import main; main(['tests/hang/data/nccl-2.28.9/branch/ras-0.txt', '--format', 'json'])"
    told = set()
    for seed in ("0", "1"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=env, check=False
        )
        told.add(done.stdout)
    assert len(told) == 1
    assert "Rank 2 launched" in told.pop()
