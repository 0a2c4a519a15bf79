"""Output of a real torchrun (torch 2.13.0) for a failed job: the cause is quoted, not its table of exit codes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from seatrial import logs as nccl

RECORDED = Path(__file__).parent / "data" / "torchrun"
CAUSES = {
    "no-gpu": "rank 1 failed: RuntimeError: torch 2.13.0+cpu finds no usable GPU in this container",
    "exception": "ValueError: the batch of rank 2 has no tokens",
    "signal": "exitcode  : -11 (pid: 5123)  (SIGSEGV)",
}


def judged(data: bytes) -> dict:
    """Judge one log."""
    (job,) = nccl.conclude(nccl.read([("a.log", io.BytesIO(data))]))
    return job


@pytest.mark.parametrize("name", CAUSES)
def test_the_programs_own_words_are_the_cause(name: str) -> None:
    """torchrun's table is at the end of the output; its first entries are the peers that it terminated itself."""
    job = judged((RECORDED / f"{name}.log").read_bytes())
    assert (job["verdict"], job["faults"][0]["fault"]) == ("no-go", "nccl.crash")
    assert job["faults"][0]["cause"] == f"the first sign of it is: {CAUSES[name]}"
    assert CAUSES[name] in job["faults"][0]["evidence"][0]["text"]


def test_an_exception_that_was_caught_is_no_crash() -> None:
    """A program that tries an import and continues has not failed, and NCCL's own warning is more specific."""
    caught = b"ImportError: cannot import name 'apex'\nModuleNotFoundError: No module named 'flash_attn'\n"
    job = judged(caught + b"n0:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n")
    assert not job["crash"]
    warning = b"n0:1:1 [0] misc/socket.cc:71 NCCL WARN socketProgress: Connection closed by remote peer n1<34567>\n"
    ended = (RECORDED / "exception.log").read_bytes().partition(b"W1122 16:03:40")[2]
    job = judged(caught + b"n0:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n" + warning + ended)
    assert job["crash"] and "ImportError" not in str(job["faults"])
