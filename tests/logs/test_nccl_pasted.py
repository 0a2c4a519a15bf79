"""A log is read after changes by a tracker, a mail client, a locale or a terminal."""

from __future__ import annotations

import html
import re

import pytest

from seatrial.logs.reader.lines import pasted
from tests.logs.logmaker import TABLE, Maker, sequential, table_of
from tests.table import table

MAKER = Maker(pxn=True)
LOG = sequential(MAKER.processes()).decode() + "".join(line + "\n" for line in table_of(MAKER))
KEYS = (
    "inter_node_transport",
    "gdr",
    "socket_fallback",
    "ranks",
    "nodes",
    "nccl_version",
    "avg_busbw",
    "verdict",
    "diagnosis",
)


def wrapped(text: str, width: int) -> str:
    return "".join(
        line[at : at + width] + "\n" for line in text.splitlines() for at in range(0, max(len(line), 1), width)
    )


def said(job: dict) -> list:
    rows = [
        [(row["size_bytes"], row["out_of_place"]["busbw_gbps"], row["in_place"]["wrong"]) for row in table["rows"]]
        for table in job["tables"]
    ]
    return [*[job[key] for key in KEYS], rows, [fault["fault"] for fault in job["faults"]]]


@table(
    "rewrite",
    [
        html.escape,
        lambda text: html.escape(text).replace("[", "&#91;").replace("]", "&#93;"),
        lambda text: re.sub(r"([\[\]_*#>-])", r"\\\1", text),
        lambda text: text.replace(" ", "\u00a0"),
        lambda text: text.replace(" -1 ", " \u22121 ").replace("->", "\u2192"),
        lambda text: wrapped(text, 80),
        lambda text: wrapped(text, 100),
        lambda text: "".join(f"> {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"worker_1  | {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"10.0.0.7: {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"[1,mpirank:0,algo-1]<stdout>:{line}\n" for line in text.splitlines()),
        lambda text: "".join(f"+{line}\n" for line in text.splitlines()),
    ],
)
def test_what_rewrote_a_log_does_not_change_what_it_says(judge, rewrite):
    """Escapes, blanks and typographic characters, split lines, quotes and launchers' tags."""
    assert said(judge(rewrite(LOG))) == said(judge(LOG))


def test_lines_keep_their_numbers_where_cut_ones_are_joined(judge):
    """Evidence has the line number that an editor shows."""
    cut = wrapped(sequential(Maker(net="Socket").processes()).decode(), 70)
    (fault,) = judge(cut)["faults"]
    for item in fault["evidence"]:
        assert item["text"].startswith(cut.splitlines()[item["line"] - 1])


def test_a_log_that_no_one_cut_is_not_joined(judge):
    """Equally long lines with separate prefixes are not joined."""
    line = "gpu-node-0:1:1 [0] NCCL INFO NCCL_SETTING_{} set by environment to " + "x" * 40 + ".\n"
    assert len(judge("".join(line.format(number) for number in range(10, 40)))["env"]) == 30


def _numbers(judge, text):
    (table,) = judge(text)["tables"]
    return [(row["size_bytes"], row["in_place"]["busbw_gbps"]) for row in table["rows"]], table["avg_busbw"]


PLAIN = ([(1048576, 26.76), (1073741824, 153.68)], 90.105)


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda text: re.sub(r"(\d)\.(\d)", r"\1,\2", text),
        lambda text: re.sub(r"(?<![\d.])(\d{5,})(?![\d.])", lambda match: f"{int(match[1]):,}", text),
        lambda text: text.replace("# ", " ").replace("#", ""),
        lambda text: "".join(
            "| " + " | ".join(line.split()) + " |\n" if line[:1] == " " else line + "\n" for line in text.splitlines()
        ),
        lambda text: text.replace("1073741824", "1G").replace("   1048576", "        1M"),
    ],
    ids=["decimal-comma", "thousands", "hashes-eaten", "markdown-table", "units"],
)
def test_how_numbers_are_written_does_not_change_them(judge, rewrite):
    """A decimal comma once turned an average of 90,105 into 90."""
    assert _numbers(judge, rewrite(TABLE)) == PLAIN


@pytest.mark.parametrize("mark", [",", ";", ", "])
def test_a_table_as_csv_is_read(judge, mark):
    """Spreadsheets and scripts write the numbers of nccl-tests under other names."""
    names = [
        "size",
        "count",
        "type",
        "redop",
        "root",
        "oop_time",
        "oop_algbw",
        "oop_busbw",
        "oop_wrong",
        "ip_time",
        "ip_algbw",
        "ip_busbw",
        "ip_wrong",
    ]
    head = mark.join(names)
    rows = [mark.join(row.split()) for row in TABLE.splitlines() if row.startswith(" ")]
    text = "\n".join([head, *rows, ""])
    assert _numbers(judge, text)[0] == PLAIN[0]


def test_columns_that_are_missing_are_missing(judge):
    """If #wrong, a side or the type is missing, the present columns are read, and missing ones stay empty."""
    (table,) = judge(
        "# size count type redop root time algbw busbw\n  134217728  33554432  float  sum  -1  2342.1  57.30  106.94\n"
    )["tables"]
    assert (
        table["rows"][0]["out_of_place"]["busbw_gbps"],
        table["rows"][0]["out_of_place"]["wrong"],
        table["rows"][0]["in_place"],
    ) == (106.94, None, None)
    (table,) = judge("#   size    algbw   busbw\n  134217728      3.01    3.02\n")["tables"]
    assert (
        table["rows"][0]["type"],
        table["rows"][0]["out_of_place"]["busbw_gbps"],
        table["rows"][0]["out_of_place"]["time_us"],
    ) == (None, 3.02, None)


def test_sides_that_are_swapped_are_put_right(judge):
    """mscclpp-test prints in-place on the left, without a type, and empty if it was not run."""
    head = (
        "#                                    in-place                       out-of-place\n"
        "#       size         count     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong\n"
        "#        (B)    (elements)     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
    )
    both = judge(head + "  1048576   262144   9.0  1.00  1.50  0   8.0  2.00  3.50  0\n")["tables"][0]["rows"][0]
    assert (both["in_place"]["busbw_gbps"], both["out_of_place"]["busbw_gbps"]) == (1.5, 3.5)
    one = judge(head + "  1073741824      33554432" + " " * 36 + "7186.2  149.42  130.74      0\n")["tables"][0][
        "rows"
    ][0]
    assert (one["in_place"], one["out_of_place"]["busbw_gbps"]) == (None, 130.74)


def test_placeholders_are_no_numbers(judge):
    """A document's XXX.XX is neither a row nor a zero."""
    (table,) = judge(TABLE.replace("153.68", "XXX.XX").replace("90.105", "XX.XX"))["tables"]
    assert ([row["size_bytes"] for row in table["rows"]], table["unreadable_rows"], table["avg_busbw"]) == (
        [1048576],
        1,
        None,
    )


HEAD = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n# Using devices\n"


@pytest.mark.parametrize("hosts", [("node-a", "node-b"), ("node-a", "node-a")])
def test_copies_that_know_nothing_of_each_other_are_named(judge, hosts):
    """nccl-tests without MPI under mpirun: every process is rank 0 of a separate job, without traffic between hosts."""
    log = "".join(
        HEAD + f"#  Rank  0 Group  0 Pid {100 + at} on {host} device  0 [0000:1b:00] NVIDIA H100\n"
        for at, host in enumerate(hosts)
    )
    log += TABLE.partition("# Out")[0] + "".join(
        f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {value}\n#\n" for value in (5.1, 5.2)
    )
    job = judge(log)
    assert [(fault["fault"], fault["severity"]) for fault in job["faults"]] == [("nccl.separate-runs", "info")]
    assert (job["verdict"], job["diagnosis"], job["avg_busbw"]) == ("inconclusive", "separate-runs", 5.1)
    assert "Pid 101" in job["faults"][0]["evidence"][0]["text"]


def test_the_same_job_started_again_is_no_copy(judge):
    """Two tests in a row list the same ranks with other pids."""
    log = "".join(
        HEAD + f"#  Rank  0 Group  0 Pid {pid} on node-a device  0 [0000:1b:00] NVIDIA H100\n" + TABLE
        for pid in (100, 200)
    )
    assert "nccl.separate-runs" not in [fault["fault"] for fault in judge(log)["faults"]]


@pytest.mark.parametrize("quote", ["", "> ", "  * "])
def test_messages_alone_are_read(judge, quote):
    """A forum answer quotes three lines without NCCL INFO."""
    lines = [
        "What you want to see:",
        "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
        "Channel 01/0 : 0[0] -> 8[0] [receive] via NET/IB/0/GDRDMA",
    ]
    job = judge("".join(f"{quote}{line}\n" for line in lines))
    assert (job["inter_node_transport"], job["gdr"], job["socket_fallback"], job["verdict"]) == (
        "roce",
        True,
        False,
        "inconclusive",
    )


def test_a_session_of_failed_attempts_is_no_copy(judge):
    """Repeated attempts in one terminal have the same ranks, other pids, and no row between the headers."""
    head = TABLE.splitlines(keepends=True)[:3]
    log = "".join(
        HEAD
        + f"#  Rank  0 Group  0 Pid {pid} on node-a device  0 [0000:1b:00] NVIDIA H100\n"
        + "".join(head)
        + "node-a: Test NCCL failure common.cu:394 'unhandled system error'\n"
        for pid in (100, 200, 300)
    )
    assert "nccl.separate-runs" not in [fault["fault"] for fault in judge(log)["faults"]]


def test_copies_whose_headers_do_not_mix_are_named_by_their_second_average(judge):
    """Copies print their whole header at once; rows and averages follow interleaved."""
    head, rest = TABLE.partition("     1048576")[0], "     1048576" + TABLE.partition("     1048576")[2]
    log = "".join(
        HEAD + f"#  Rank  0 Group  0 Pid {100 + at} on node-{at} device  0 [0000:1b:00] NVIDIA H100\n" + head
        for at in range(2)
    )
    job = judge(log + rest.replace("90.105\n", "90.105\n# Avg bus bandwidth    : 90.2\n"))
    assert [fault["fault"] for fault in job["faults"]] == ["nccl.separate-runs"]


def test_an_excerpt_is_said_to_be_one(judge):
    """The channels of two of four ranks show RDMA, which proves nothing for the others and is not just a network
    selection."""
    processes = MAKER.processes()
    (first, *_, last) = processes
    log = sequential({key: lines if key in (first, last) else lines[:8] for key, lines in processes.items()})
    job = judge(log)
    assert (job["inter_node_transport"], job["gdr"], job["verdict"]) == ("ib", True, "inconclusive")
    channels = "".join(line + "\n" for line in processes[first] if " via NET/" in line)
    job = judge(channels)
    assert (job["diagnosis"], job["verdict"]) == ("shown-in-part", "inconclusive")
    assert "channels of only" in job["sentence"]


RAS_SUMMARY = """\
  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
     32          8            1        256      256
"""
# NVLink pairs that NCCL counts as nodes: two ranks on each, and a rank on its host's fourth GPU
SPLIT = """\
a:1:1 [0] NCCL INFO comm 0x55 rank 0 nRanks 8 nNodes 4 localRanks 2 localRank 0 MNNVL 0
a:1:1 [0] NCCL INFO Channel 03/0 : 3[3] -> 0[0] [receive] via NET/IB/0/GDRDMA
"""


@table(
    "line, key, value",
    [
        ("a:1:1 [0] NCCL INFO comm 0x60a rank 0 nranks 2 cudaDev 0 busId 30000 - Destroy COMPLETE\n", "ranks", 2),
        (
            "a:1:1 [0] NCCL INFO Channel 00/0 : 16[17000] -> 18[21000] via P2P/IPC comm 0x5609976f9470 nRanks 32\n",
            "ranks",
            32,
        ),
        (
            "(Worker pid=820) INFO pynccl.py:113] vLLM is using nccl==2.28.9\na:1:1 [0] NCCL INFO Bootstrap: Using lo:127.0.0.1<0>\n",
            "nccl_version",
            "2.28.9",
        ),
        ("a:1:1 [0] NCCL INFO AllReduce: opCount 0 count 1 datatype 7 comm 0x55 [nranks=16] stream 0x1\n", "ranks", 16),
        ("[Gloo] Rank 9 is connected to 15 peer ranks. Expected number of connected peer ranks is : 15\n", "ranks", 16),
        (RAS_SUMMARY, "ranks", 256),
        (RAS_SUMMARY, "nodes", 32),
        ("NET/IB : No device found.\nNET/Socket : Using [0]eth0:10.0.0.1<0>\n", "socket_fallback", True),
        (SPLIT, "nodes", None),
        (SPLIT.replace("3[3]", "3[1]"), "nodes", 4),
    ],
)
def test_the_little_that_an_excerpt_shows_is_taken(judge, line, key, value):
    """An excerpt may show only a communicator's end, an RCCL suffix, or the library name that vLLM prints."""
    assert judge(line)[key] == value


def test_a_host_with_the_end_of_a_pointer_in_front_is_that_host(judge):
    """Torn lines attach a number or a pointer to the next line's host."""
    log = "g183:161264:1 [7] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\nparent 0x55cd375g183:161262:2 [5] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n161264:166015g183:161258:3 [1] NCCL INFO cudaDriverVersion 12040\n"
    assert [host["name"] for host in judge(log)["hosts"]] == ["g183"]


@pytest.mark.parametrize(
    ("maker", "quoted"),
    [
        (Maker(net="Socket", env={"NCCL_IB_DISABLE": "1"}), "NCCL_IB_DISABLE set by environment to 1"),
        (Maker(net="Socket", env={"NCCL_NET": "Socket"}), "NCCL_NET set by environment to Socket"),
        (Maker(net="Socket"), "via NET/Socket/0"),
        (Maker(gdr=False), "via NET/IB/"),
        (Maker(gdr=False, env={"NCCL_NET_GDR_LEVEL": "LOC"}), "NCCL_NET_GDR_LEVEL set by environment to LOC"),
    ],
)
def test_a_fault_quotes_the_line_that_shows_it(judge, maker, quoted):
    """A setting, the choice and the channel are quoted with file, number and text."""
    log = sequential(maker.processes()).decode()
    (fault,) = judge(log)["faults"]
    assert any(
        quoted in item["text"] and log.splitlines()[item["line"] - 1] == item["text"] for item in fault["evidence"]
    ), fault["evidence"]


def test_a_plugin_that_failed_is_mentioned_where_nothing_shows_what_came_of_it(judge):
    """Many bug reports contain only the warning about the plugin."""
    job = judge(
        "[2025-10-16 22:16:08] a:1:1 [0] nccl_net_ofi_rdma_init:7978 NCCL WARN NET/OFI OFI fi_getinfo() call failed: No data available\n"
    )
    assert [(fault["fault"], fault["why"]) for fault in job["faults"]] == [("nccl.no-evidence", "nccl.ofi-no-provider")]
    assert "found no fabric provider" in job["sentence"]


def test_a_collective_that_is_not_named_is_reported_by_its_numbers(judge):
    """busbw over algbw is 2(n-1)/n for all_reduce and (n-1)/n for reduce_scatter."""
    maker = Maker(gpus=4)
    ranks = "".join(line + "\n" for line in table_of(maker) if " Rank " in line)
    body = TABLE.partition("# Collective")[0]
    assert judge(ranks + body)["tables"][0]["collective"] == "all_reduce"
    assert judge(ranks + body.replace(" sum ", "none "))["tables"][0]["collective"] is None


def test_no_terminal_cut_what_comes_again_or_has_a_fixed_width():
    """Repetitions of a log's longest line, and output of fixed width, are complete lines."""
    again = LOG + "gpu-node-0:1000:1000 [0] NCCL INFO " + "x" * 200 + "\nits next line has no head\n"
    steps = "".join(
        f" iteration {step:8d}/  500000 | loss: {step * 7 % 10000:06d} | and so on for a while ...... |\n"
        for step in range(99)
    )
    assert pasted.cut_width(wrapped(LOG, 80).encode()) == 80
    assert pasted.cut_width((again * 6).encode()) == 0
    assert pasted.cut_width(("gpu-node-0:1000:1000 [0] NCCL INFO x\n" + steps).encode()) == 0
