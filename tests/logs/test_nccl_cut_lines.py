"""A log that ends within a line: a truncated line shows no fault, but a failure in it counts."""

from __future__ import annotations

import re
from itertools import product

import pytest

from seatrial.logs.reader import scan
from tests.examples import rest_is_slow
from tests.logs.logmaker import Maker, interleaved, table_of
from tests.table import table

MAKER = Maker(gpus=2, channels=2, rails=2)
HEALTHY = interleaved(MAKER.processes(), 1).decode() + "\n".join(table_of(MAKER)) + "\n"
VERSION = next(line for line in HEALTHY.splitlines(keepends=True) if "NCCL version 2." in line)
NETWORK = "gpu-node-1:1001:1001 [1] NCCL INFO Using network IB\n"
NEVER_CUT = HEALTHY + VERSION + NETWORK


def kind(line: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+", "0", line)[:60]


def places(log: str) -> list[int]:
    """Yield every position within the last line of each kind."""
    begins, at = {}, 0
    for line in log.splitlines(keepends=True):
        begins[kind(line)] = (at + 1, at + len(line))
        at += len(line)
    return [place for begin, end in begins.values() for place in range(begin, end)]


@rest_is_slow(5)
@pytest.mark.parametrize("log", [HEALTHY, VERSION + NETWORK + NEVER_CUT], ids=["plain", "versions"])
def test_no_cut_of_a_healthy_log_is_a_no_go(judge, log, every):
    assert judge(log)["verdict"] == "go"
    cuts = {place: judge(log[:place]) for place in places(log)[::every]}
    accused = {log[place - 50 : place]: job["sentence"] for place, job in cuts.items() if job["verdict"] == "no-go"}
    assert accused == {}


def test_a_paste_without_its_last_line_end_stays_as_it_was(judge):
    whole, paste = judge(HEALTHY), judge(HEALTHY.rstrip("\n"))
    assert (paste["verdict"], paste["sentence"]) == (whole["verdict"], whole["sentence"])


@pytest.mark.parametrize(
    ("half", "fault"),
    [
        ("gpu-node-0:1000:1000 [0] NCCL INFO NCCL version 2.2", "nccl.version-mismatch"),
        ("gpu-node-0:1000:1000 [0] NCCL INFO Channel 01/0 : 0[0] -> 2[0] [send] via NET/IB/0", "nccl.gdr-mixed"),
        ("gpu-node-0:1000:1000 [0] NCCL INFO Using network I", "nccl.mixed-transport"),
    ],
)
def test_half_of_a_fact_contradicts_no_one(judge, half, fault):
    job = judge(VERSION + NETWORK + HEALTHY + half)
    assert job["verdict"] != "no-go"
    assert fault not in [found["fault"] for found in job["faults"]]


def test_another_version_is_one_without_a_line_end_too(judge):
    """Near miss: another version has a different prefix."""
    job = judge(VERSION + HEALTHY + "gpu-node-1:1001:1001 [1] NCCL INFO NCCL version 2.19.3+cuda12.3")
    assert "2.19.3+cuda12.3" in job["nccl_versions"]


def test_a_failure_in_the_last_line_counts_without_its_end(judge):
    error = "[rank0]: RuntimeError: CUDA error: out of memory"
    log = HEALTHY.partition("Connected all rings")[0].rpartition("\n")[0] + "\n" + error
    cut, whole = judge(log), judge(log + "\n")
    assert (cut["verdict"], cut["sentence"]) == (whole["verdict"], whole["sentence"])
    assert cut["faults"]
    assert error in cut["sentence"] + str(cut["faults"])


def test_a_row_that_was_cut_holds_no_wrong_values(judge):
    """A truncated row lacks its last column, so the bus bandwidth is not the count of wrong values."""
    row = next(line for line in reversed(HEALTHY.splitlines()) if re.search(r"\d+\s+\d+\s+float", line))
    log = HEALTHY.partition("# Out of bounds")[0]
    for end in range(1, len(row)):
        assert judge(log + row[:end])["verdict"] != "no-go", row[:end]


def test_no_cut_of_a_first_row_or_of_the_average_is_an_accusation(judge):
    """The bus bandwidth in place of a wrong count after root 0, and 9 of 90.105, the rows' mean, raise no fault."""
    log = HEALTHY.replace("     sum      -1", "    none       0")
    rows = [match.start() for match in re.finditer(r"\n +\d+ +\d+ +float", log)]
    ends = [*range(rows[1] - 30, rows[1]), *range(log.index("# Avg bus"), log.index("\n", log.index("# Avg bus")) + 1)]
    judged = {log[end - 40 : end]: judge(log[:end]) for end in ends}
    accused = {cut: job["sentence"] for cut, job in judged.items() if _accuses(job)}
    assert accused == {}


def _accuses(job):
    return job["verdict"] == "no-go" or {"nccl.odd-numbers", "nccl.wrong-results"} & {f["fault"] for f in job["faults"]}


@pytest.mark.parametrize(
    ("end", "fault"), [("\n", "nccl.odd-numbers"), (" OK", "nccl.odd-numbers"), ("", "nccl.log-truncated")]
)
def test_an_average_with_its_end_is_held_against_the_rows(judge, end, fault):
    """Near miss: a complete number that is not the rows' average is odd; one that may be truncated is not."""
    job = judge(HEALTHY.partition("90.105")[0] + "9.1" + end)
    assert (job["verdict"], fault in {found["fault"] for found in job["faults"]}) == ("inconclusive", True)


def test_wrong_values_in_a_whole_last_row_count_without_its_end(judge):
    """Near miss: pasted logs usually lack the last line end."""
    rows = [match.start() for match in re.finditer(r"\n +\d+ +\d+ +float", HEALTHY)]
    job = judge(re.sub(r"0\Z", "7", HEALTHY[: rows[1]]))
    assert (job["verdict"], job["diagnosis"]) == ("no-go", "wrong-results")


BAR = "".join(f"\rtraining: {step:5}/9000 [00:01<00:09, 99.0it/s]" for step in range(9000))
BEHIND = {
    "a warning": "gpu-node-0:1000:1000 [0] misc/socket.cc:9 NCCL WARN Something broke here",
    "a crash": "Segmentation fault (core dumped)",
}


@pytest.mark.parametrize("block", [None, 1 << 16], ids=["in one block", "over blocks"])
@pytest.mark.parametrize("error", BEHIND.values(), ids=BEHIND)
def test_what_follows_a_long_progress_bar_counts(judge, monkeypatch, error, block):
    """Updates of a progress bar are one line for a line reader; a shell's bar shows only the text after it."""
    if block:
        monkeypatch.setattr(scan, "BLOCK", block)
    assert len(BAR) > 4 * scan.MAX_LINE
    assert judge(HEALTHY + BAR + "\n")["verdict"] == "go"
    assert judge(HEALTHY + BAR + error + "\n")["verdict"] != "go"
    assert judge(HEALTHY + BAR + error)["verdict"] != "go"


@table(
    "end, error",
    product(
        ["", "8", "8.9", "8.9+cuda13.0"],
        [
            "RuntimeError: NCCL error in: /p/P.cpp:1970, unhandled system error (run with NCCL_DEBUG=INFO), NCCL version 2.2",
            "torch.distributed.DistBackendError: NCCL error in: /p/U.cpp:77, unhandled cuda error, NCCL version 2.2",
            "Segmentation fault, NCCL version 2.2",
            "    1024    256    float    sum   -1   gpu-node-0: Test NCCL failure common.cu:1 'unhandled cuda error' 2.2",
        ],
    ),
)
def test_an_error_that_ends_with_half_of_a_version_counts(judge, error, end):
    """Torch's errors end that way, and pasted logs usually lack the last line end."""
    assert judge(HEALTHY + error + end)["verdict"] != "go"
