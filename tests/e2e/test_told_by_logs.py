"""Labelled logs for catalogue faults without a scenario."""

import io

import pytest

from seatrial.logs import conclude, read
from tests.logs.logmaker import Maker, sequential

A = "gpu-node-0:1000:1000 [0] "
STARTED = sequential(Maker(stop="init").processes()).decode()
SOCKETS = sequential(Maker(net="Socket").processes()).decode()


def said_by_all(text):
    """Return a log in which every rank uses sockets after printing a line."""
    heads = [line.split("NCCL INFO")[0] for line in SOCKETS.splitlines() if "Using network" in line]
    return "".join(f"{head}NCCL INFO {text}\n" for head in heads) + SOCKETS


LOGS = {
    "nccl.plugin-init-failed": "".join(
        line
        for line in said_by_all("Failed to initialize NET plugin FasTrak").splitlines(keepends=True)
        if "NET/IB" not in line and "plugin IB" not in line
    ),
    "nccl.net-env": said_by_all("NCCL_NET set by environment to Socket"),
    "nccl.wrong-peer": STARTED
    + f"\n{A}misc/socket.cc:486 NCCL WARN socketFinalizeAccept: wrong magic 1f3a2b4c != 564ab9f2\n{A}NCCL INFO init.cc:903 -> 3\n",
    "nccl.launch-failed": "There are not enough slots available in the system to satisfy the 16\nslots that were requested by the application:\n\n  all_reduce_perf\n",
    "nccl.oom-killed": STARTED
    + "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed.\n",
    "nccl.mnnvl-unused": said_by_all(
        "MNNVL busId 0x901000 fabric UUID 3143b15bc2cd192b.28cc9b5473fb5b93 cliqueId 0x7ffe state 3 healthMask 0xaa"
    ),
}


@pytest.mark.parametrize("fault", LOGS)
def test_a_log_reports_its_fault(fault):
    """The analyzer reports the fault, or names it as the cause of the reported one."""
    (job,) = conclude(read([("job.log", io.BytesIO(LOGS[fault].encode()))]))
    assert fault in {name for each in job["faults"] for name in (each["fault"], each.get("why"))}


@pytest.mark.parametrize("fault", LOGS)
def test_a_log_without_that_line_is_quiet_about_it(fault):
    """Near misses: a healthy job, and one that uses sockets for another reason."""
    for text in (sequential(Maker().processes()).decode(), SOCKETS):
        (job,) = conclude(read([("job.log", io.BytesIO(text.encode()))]))
        assert fault not in {name for each in job["faults"] for name in (each["fault"], each.get("why"))}
