"""A warning of NCCL without its prefix: never ignored, and not a fault by itself."""

from __future__ import annotations

from itertools import product

import pytest

from tests.logs.logmaker import TABLE, Maker, before_the_end, sequential, table_of
from tests.logs.test_nccl_causes import RETRY, judged
from tests.table import table

MAKER = Maker(gpus=4, rails=4, channels=4)
LOG = sequential(MAKER.processes()).decode()
WHOLE = LOG + "".join(line + "\n" for line in table_of(MAKER))

# Texts of WARN(...) in NCCL 2.18 to 2.29, with values in place of their formats.
WARNED = [
    "NET/IBX: Got completion from peer 10.0.0.2<4> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
    "NET/IB : mlx5_0:1 Got async event : port error",
    "Call to ibv_modify_qp failed with error Connection timed out",
    "Call to ibv_dealloc_pd failed with error Device or resource busy",
    "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot be performed'",
    "Message truncated : received 2048 bytes instead of 1024",
    "Mismatched response size for local rank 3",
    "[Service thread] Get peers[4].sock fd fails",
    "ncclOsSocketProgressOpt: Call to recv from 10.0.0.2<4> failed : Connection timed out",
    "MemManager: Failed to restore from CPU backup: invalid argument",
    "No NVML device handle. Skipping nvlink detection.",
    "Tree 0 : rank 3 tree already has 3 children",
]


@pytest.mark.parametrize("front", ["", "WARN ", "transport/net_ib.cc:295 ", "(RayWorkerWrapper pid=12) "])
@pytest.mark.parametrize("said", WARNED[:7])
def test_nothing_is_called_healthy_with_the_text_of_a_warning(said, front):
    assert judged(WHOLE)["verdict"] == "go"
    job = judged(WHOLE.replace(TABLE, front + said + "\n" + TABLE, 1) + front + said + "\n")
    assert job["verdict"] == "inconclusive", job["sentence"]
    assert said[:30] in job["sentence"]


@table("front, said", product(["", "WARN "], WARNED))
def test_it_stays_an_open_question_behind_a_job_that_came_to_its_end(said, front):
    assert judged(WHOLE + front + said + "\n")["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    "said",
    [
        'Prompt: "Call to ibv_modify_qp failed with error Connection timed out" means what?',
        "If Call to ibv_modify_qp failed with error 110, look at the GID index",
        "2026-11-24 10:00:00 WARN hyper::client: connect to 10.0.0.9:443 failed: Connection timed out",
        "INFO 11-24 10:00:00 store.py:7] wrong magic, asking for the next shard",
        "[2026-11-24] DEBUG dns: No route to host 10.0.0.9",
        "upload: No route to host, retrying in 3 s",
        "transport error 3 ignored: Got completion from peer 3",
        "state (PowerSGDState): to support error feedback, warm start, etc.",
        "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>",
        "ncclProxy: 8 operations, no error so far",
        "socketAddr is 10.0.0.1",
    ],
)
def test_what_only_mentions_such_things_leaves_a_job_healthy(said):
    """Possible events, messages of a program at a lower level or about retries, and NCCL's information."""
    assert judged(before_the_end(WHOLE, said))["verdict"] == "go", said


def test_a_job_that_is_cut_off_is_not_at_fault_for_such_a_text():
    """Without a prefix such a text may be from any program."""
    running = sequential(Maker(stop="init").processes()).decode()
    assert judged(running + "No route to host\n")["verdict"] == "inconclusive"


def test_a_text_that_is_alone_is_named_and_what_failed_behind_it_too():
    alone = judged(RETRY.replace("NET/IB:", "NET/IBX:") + "\n")
    assert (alone["verdict"], alone["causes"][0]["fault"]) == ("inconclusive", "nccl.ib-retry")
    said = "Tree 0 : rank 3 tree already has 3 children\n"
    failed = judged(said + "[rank1]: ValueError: x\n[node:1] Signal: Aborted (6)\n")
    assert (failed["verdict"], [each["fault"] for each in failed["causes"]]) == (
        "no-go",
        ["nccl.crash", "nccl.ranks-differ"],
    )
