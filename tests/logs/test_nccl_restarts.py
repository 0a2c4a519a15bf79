"""Several runs in one log: a restarted job's last attempt is judged; different jobs do not excuse each other."""

import re
from itertools import product

import pytest

from seatrial.logs import conclude, open_sources, read
from tests.logs.logmaker import Maker, sequential, table_of
from tests.table import table

MAKER = Maker(gpus=4, rails=4, channels=4)
LAST = sequential(MAKER.processes()).decode()
TABLE = "\n".join(table_of(MAKER)) + "\n"


def without_an_end(log: str) -> str:
    return "".join(line for line in log.splitlines(keepends=True) if "Destroy COMPLETE" not in line)


def attempt(comm_id: int, gpu: str = "") -> str:
    """Return an attempt with its own processes and communicator, without an end."""
    log = without_an_end(sequential(Maker(gpus=4, rails=4, channels=4, comm_id=comm_id).processes()).decode())
    log = re.sub(r":(1\d{3}):\1 ", lambda pid: f":{int(pid[1]) + comm_id}:{int(pid[1]) + comm_id} ", log)
    return re.sub(r" \[\d\] ", f" [{gpu}] ", log) if gpu else log


FIRST = attempt(5000)
ENDS = {
    "the job ended with an error": "[rank3]: ValueError: nan\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n",
    "a collective timed out": "[rank3]:[E1122 10:30:00.1 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600011 milliseconds before timing out.\n",
    "a CUDA call failed": "gpu-node-1:6028:6028 [0] x.cc:10 NCCL WARN Cuda failure 700 'an illegal memory access was encountered'\n",
    "the GPU is out of memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
}
GLOO = "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete\n"


@table("last, said", product([LAST, LAST + TABLE, without_an_end(LAST), attempt(7000) + LAST], ENDS))
def test_the_last_attempt_is_judged_and_the_end_of_the_first_is_said(judge, said, last):
    """The fault of the first attempt is nccl.restarted."""
    job = judge(FIRST + ENDS[said] + last)
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "restarted")
    assert said in job["sentence"]
    assert job["faults"][0]["evidence"][0]["text"] in FIRST + ENDS[said]


@pytest.mark.parametrize("said", ENDS)
def test_what_ends_the_last_attempt_or_may_do_so_is_no_go(judge, said):
    """Such an end is no-go even if both runs end the same way, or with a concurrent job on other GPUs."""
    end = ENDS[said]
    for log in (FIRST + LAST + end, FIRST + end + LAST + end, FIRST + end + attempt(7000, gpu="7"), FIRST + end):
        assert judge(log)["verdict"] == "no-go"


def test_a_time_out_of_gloo_before_a_whole_run_is_an_earlier_attempt(judge):
    """Near miss: a run without an end, since an error is often pasted before its log."""
    assert judge(GLOO + LAST)["diagnosis"] == "restarted"
    assert judge(GLOO + without_an_end(LAST))["verdict"] == "no-go"


def test_a_benchmark_that_was_cut_off_is_no_attempt_at_the_one_behind_it(judge):
    cut = TABLE[: TABLE.index("# Out of bounds")]
    end = "mpirun noticed that process rank 3 with PID 5 on node x exited on signal 11 (Segmentation fault).\n"
    assert judge(FIRST + cut + end + LAST + TABLE)["verdict"] == "no-go"


UNREACHED = (
    "gpu-node-9:240:240 [6] misc/socket.cc:533 NCCL WARN socketPollConnect: Connect to 10.0.0.4<5> returned "
    "113(No route to host) errno 115(Operation now in progress)\n"
)


def test_what_processes_say_that_never_came_up_is_of_no_attempt_before_it(judge):
    """After the completed attempt such processes are a third one; both before and after it, the attempt is unknown."""
    for log in (FIRST + LAST + UNREACHED, FIRST + UNREACHED + LAST + UNREACHED):
        job = judge(log)
        assert (job["verdict"], job["faults"][0]["fault"]) == ("no-go", "nccl.no-route")
    assert judge(FIRST + UNREACHED + LAST)["diagnosis"] == "restarted"


def test_two_runs_without_trouble_are_no_attempts(judge):
    assert judge(FIRST + LAST)["verdict"] == "go"


def test_the_logs_of_pods_that_hold_both_attempts_are_one_job(tmp_path):
    for number, host in enumerate(("gpu-node-0", "gpu-node-1")):
        said = ENDS["the job ended with an error"] if number else ""
        first, last = ("".join(line for line in log.splitlines(keepends=True) if host in line) for log in (FIRST, LAST))
        (tmp_path / f"{host}.log").write_text(first + said + last)
    (job,) = conclude(read(open_sources([str(tmp_path)])))
    assert (job["diagnosis"], job["ranks"], len(job["files"])) == ("restarted", 8, 2)


def test_a_second_job_in_one_log_is_neither_excused_nor_left_out(judge):
    """A peer left before its own end, and half of the second job's ranks are missing in the log."""
    second = re.sub(
        r":(1\d{3}):\1 ",
        lambda pid: f":{int(pid[1]) + 5000}:{int(pid[1]) + 5000} ",
        sequential(
            Maker(hosts=("gpu-node-2", "gpu-node-3"), gpus=4, rails=4, channels=4, comm_id=77).processes()
        ).decode(),
    )
    runs = "".join(line for line in second.splitlines(keepends=True) if "Destroy COMPLETE" not in line)
    gone = (
        "gpu-node-2:6000:6050 [0] misc/socket.cc:57 NCCL WARN socketProgress: Connection closed by remote peer x<5>\n"
    )
    half = "".join(line for line in second.splitlines(keepends=True) if "gpu-node-3" in line)
    assert [judge(LAST + TABLE + each)["verdict"] for each in (second, runs, second + gone)] == ["go"] * 3
    assert [judge(LAST + TABLE + each)["verdict"] for each in (runs + gone, half)] == ["inconclusive"] * 2
