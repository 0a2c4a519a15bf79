"""Lines longer than the examined part: a failure counts anywhere in them."""

from __future__ import annotations

from itertools import product

import pytest

from seatrial.logs.reader import scan
from seatrial.logs.reader.events.long_lines import MAX_LINE, far
from seatrial.logs.reader.events.signals import MOST
from tests.logs.logmaker import before_the_end
from tests.logs.test_nccl_cut_lines import HEALTHY, kind
from tests.table import table

ERROR = "RuntimeError: CUDA error: out of memory"
WARNING = "gpu-node-0:1000:1000 [0] misc/socket.cc:9 NCCL WARN Call to connect failed: Connection refused"
HEAD = "gpu-node-0:1000:1000 [0] NCCL INFO "


def filled(size: int, word: str = "step ") -> str:
    return (word * (size // len(word) + 1))[:size]


@pytest.mark.parametrize("size", [MOST - 20, MOST + 100, MAX_LINE // 2, MAX_LINE - 10, 3 * MAX_LINE])
@pytest.mark.parametrize("block", [None, MAX_LINE + 999], ids=["in one block", "over blocks"])
@pytest.mark.parametrize("behind", ["", " more", filled(2 * MAX_LINE)], ids=["last", "near", "far"])
def test_a_failure_anywhere_in_a_long_line_counts(judge, monkeypatch, size, block, behind):
    """A program prints dots or a sample without a line end, and then fails."""
    if block:
        monkeypatch.setattr(scan, "BLOCK", block)
    job = judge(f"{HEALTHY}{filled(size)} {ERROR}{behind}\n")
    assert (job["verdict"], job["causes"][0]["fault"]) == ("no-go", "nccl.cuda-memory")
    assert judge(f"{HEALTHY}{filled(size)} {WARNING}{behind}\n")["verdict"] != "go"
    assert (
        judge(f"{HEALTHY}{filled(size)} node gpu-7 was lost by the scheduler {behind}\n")["verdict"] == "inconclusive"
    )


@pytest.mark.parametrize("size", [9000, 3 * MAX_LINE])
def test_a_failure_behind_a_long_message_of_nccls_counts(judge, size):
    assert judge(f"{HEALTHY}{HEAD}{filled(size)} {ERROR}\n")["verdict"] == "no-go"


@pytest.mark.parametrize("size", [MOST + 900, 3 * MAX_LINE])
def test_lines_of_nccl_that_are_passed_over_are_reported(judge, size):
    """Dots without a line end, followed by the only edge over sockets."""
    job = judge(f"{HEALTHY}{filled(size, '.')}{HEAD}Channel 00/0 : 0[0] -> 2[0] [send] via NET/Socket/0\n")
    assert job["verdict"] != "go", job["sentence"]
    assert ("lines of NCCL that are joined with others" in job["sentence"]) == (size > MAX_LINE)


@pytest.mark.parametrize("place", [0.2, 0.5, 0.9])
def test_a_failure_between_the_updates_of_a_long_progress_bar_counts(judge, place):
    updates = [f"training: {step:5}/9000 [00:01<00:09, 99.0it/s]" for step in range(9000)]
    updates.insert(int(place * len(updates)), ERROR)
    assert judge(HEALTHY + "\r".join(updates) + "\n")["verdict"] == "no-go"


@pytest.mark.parametrize(
    "line",
    [
        filled(5000),
        filled(300_000, "."),
        "INFO 11-20 15:00:00 config: {" + filled(4000, "'on_error': 'abort', 'fail_fast': False, ") + "}",
        "INFO 11-20 15:00:00 engine args: " + filled(3000, "lr=0.1 ") + " errors in the data: 3",
        'Prompt: "' + filled(4000) + ' and then the process failed with an error"',
    ],
)
def test_a_long_line_that_reports_no_failure_stays_quiet(judge, line):
    """Near miss: the start of a line (a level or a speaker) applies to all of it."""
    assert judge(before_the_end(HEALTHY, line))["verdict"] == "go"


def test_what_is_quoted_of_a_long_line_begins_with_the_failure():
    """The text before the failure may be a part of a secret without its marker."""
    line = (filled(MOST) + "my token: hunter2hunter2 RuntimeError: CUDA error: out of memory").encode()
    assert far(line) == [b"CUDA error: out of memory"]


KINDS = {kind(line): line for line in HEALTHY.splitlines() if line.strip("# ")}


@table(
    "error, line",
    product([ERROR, "[rank1]: ValueError: no such step", "Segmentation fault (core dumped)"], KINDS.values()),
)
def test_a_failure_that_shares_a_line_with_another_counts(judge, line, error):
    """Processes with one pipe lose line ends: before NCCL's line, after it, in a table."""
    for glued in (f"{line} {error}", f"{error} {line}", f"{error}{line}"):
        assert judge(HEALTHY.replace(line, glued, 1))["verdict"] != "go", glued


def test_a_tag_in_front_of_every_line_is_no_failure(judge):
    """Near miss: a collector labels all of standard error as an error."""
    for tag in ("ERROR 10:00:00 ", "[ERROR] [rank0] ", "E1122 10:00:00.123456 "):
        log = "".join(tag + line + "\n" if " NCCL INFO " in line else line + "\n" for line in HEALTHY.splitlines())
        assert judge(log)["verdict"] == "go", tag
