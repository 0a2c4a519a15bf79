"""Benchmark tables are read in every form, and an unreadable number is never zero."""

from __future__ import annotations

import json

import pytest

from tests.logs.logmaker import averaged
from tests.table import table

HEADER = (
    "#                                                              out-of-place                       in-place\n"
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)\n"
)
FOOTER = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 12.5\n"


def rows(judge, text):
    (table,) = judge(text)["tables"]
    return table["rows"]


def test_a_plain_row_is_read_on_both_sides(judge):
    """Size, count, type, operation, root; time, algbw, busbw and #wrong, out-of-place and in-place."""
    (row,) = rows(
        judge, HEADER + "  1048576  262144  float  sum  -1  69.55  15.08  26.38  0  68.58  15.29  26.76  3\n" + FOOTER
    )
    assert (row["size_bytes"], row["count"], row["type"], row["redop"], row["root"]) == (
        1048576,
        262144,
        "float",
        "sum",
        -1,
    )
    assert row["out_of_place"] == {"time_us": 69.55, "algbw_gbps": 15.08, "busbw_gbps": 26.38, "wrong": 0}
    assert row["in_place"]["wrong"] == 3


@pytest.mark.parametrize(
    ("printed", "value"), [("1.8e+07", 1.8e7), ("10728.4", 10728.4), ("nan", None), ("inf", None), ("-nan", None)]
)
def test_times_are_numbers_in_any_form_or_nothing(judge, printed, value):
    """Exponents are read; a number that is not finite is null, and a finding."""
    text = f"  1048576  262144  float  sum  -1  {printed}  0.09  0.09  0  {printed}  0.03  0.03  N/A\n"
    job = judge(averaged(HEADER + text + FOOTER))
    (row,) = job["tables"][0]["rows"]
    assert row["out_of_place"]["time_us"] == value
    assert row["in_place"]["wrong"] is None
    assert ("nccl.odd-numbers" in [fault["fault"] for fault in job["faults"]]) == (value is None)
    json.dumps(job, allow_nan=False)


@table(
    "header, row, expected",
    [
        (
            "# size count type redop time algbw busbw error time algbw busbw error",
            "8 2 float sum 34.8 0.00 0.00 0e+00 35.3 0.01 0.02 5e-04",
            ("sum", None, 0, None),
        ),
        (
            "# size count type root time algbw busbw error time algbw busbw error",
            "8 2 float 0 34.8 0.00 0.00 N/A 35.3 0.01 0.02 N/A",
            (None, 0, None, None),
        ),
        (
            "# size count type time algbw busbw error time algbw busbw error",
            "8 2 float 34.8 0.00 0.00 0e+00 35.3 0.01 0.02 0e+00",
            (None, None, 0, 0),
        ),
        (
            "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
            "8 2 float none -1 34.8 0.00 0.00 0 35.3 0.01 0.02 N/A",
            ("none", -1, 0, None),
        ),
        (
            "# size count type redop root cputime algbw busbw #wrong cputime algbw busbw #wrong",
            "8 2 bfloat16 sum -1 34.8 0.00 0.00 0 35.3 0.01 0.02 0",
            ("sum", -1, 0, 0),
        ),
        (
            "# size count type redop root time algbw busbw #wrong",
            "8 2 float sum -1 34.8 0.00 0.00 0",
            ("sum", -1, 0, "none"),
        ),
        (
            "# size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv% time algbw busbw #wrong i_min i_max i_p99 i_cv%",
            "8 2 float sum -1 34.8 0.00 0.00 0 1 2 3 4 35.3 0.01 0.02 1 5 6 7 8",
            ("sum", -1, 0, 1),
        ),
        (
            "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong timestamp",
            "8 2 float sum -1 34.8 0.00 0.00 0 35.3 0.01 0.02 0 2026-01-02 10:11:12",
            ("sum", -1, 0, 0),
        ),
        (
            "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
            "8 2 f8e4m3 sum -1 34.8 0.00 0.00 0 35.3 0.01 0.02 0",
            ("sum", -1, 0, 0),
        ),
    ],
)
def test_columns_are_found_by_the_header_from_the_right(judge, header, row, expected):
    """Old and new tables have CPU time, per-iteration or timestamp columns, and empty fields on the left."""
    (read,) = rows(
        judge, header + "\n   " + row.replace(" ", "   ").replace("2026-01-02   10", "2026-01-02 10") + "\n" + FOOTER
    )
    redop, root, out, place = expected
    assert (read["redop"], read["root"], read["out_of_place"]["wrong"]) == (redop, root, out)
    assert read["out_of_place"]["time_us"] == 34.8
    assert (read["in_place"]["wrong"] if read["in_place"] else "none") == place
    if read["in_place"]:
        assert (read["in_place"]["time_us"], read["in_place"]["busbw_gbps"]) == (35.3, 0.02)


def test_blanks_that_a_copy_squeezed_are_no_obstacle(judge):
    """A row pasted into a chat has single spaces."""
    (row,) = rows(judge, HEADER + "8388608 2097152 float sum -1 197.0 42.57 74.50 0 196.5 42.69 74.71 0\n" + FOOTER)
    assert row["in_place"]["busbw_gbps"] == 74.71


def test_an_empty_out_of_place_side_is_empty_and_not_zero(judge):
    """In an in-place table the other side is 32 spaces."""
    (row,) = rows(
        judge,
        HEADER
        + "     1048576        262144     float     sum      -1"
        + " " * 34
        + "   68.58   15.29   26.76       0\n"
        + FOOTER,
    )
    assert row["out_of_place"] is None
    assert row["in_place"]["busbw_gbps"] == 26.76


def test_a_row_torn_by_other_ranks_lines_is_joined(judge):
    """Rank 0 prints the left half, other ranks their channels, then the numbers follow in one piece or two."""
    left = "     2097152        524288     float     sum      -1"
    info = "gcn1:10:11 [0] NCCL INFO Channel 00/0 : 7[3] -> 0[0] [receive] via NET/IB/2/GDRDMA\n"
    glued = HEADER + left + info + info + "    87.18   24.05   42.10      0    85.11   24.64   43.12      0\n" + FOOTER
    own_line = (
        HEADER + left + "\n" + info + "    87.18   24.05   42.10      0    85.11   24.64   43.12      0\n" + FOOTER
    )
    tagged = (
        HEADER
        + "[1,0]<stdout>:"
        + left
        + "[1,0]<stdout>:    87.18   24.05   42.10      0[1,0]<stdout>:    85.11   24.64   43.12      0\n"
        + FOOTER
    )
    for text in (glued, own_line, tagged):
        (row,) = rows(judge, text)
        assert (row["size_bytes"], row["out_of_place"]["busbw_gbps"], row["in_place"]["busbw_gbps"]) == (
            2097152,
            42.10,
            43.12,
        )


def test_a_left_half_whose_numbers_never_come_is_counted_and_not_invented(judge):
    """A left half is not a row."""
    (table,) = judge(HEADER + "     2097152        524288     float     sum      -1\n" + FOOTER)["tables"]
    assert (table["rows"], table["unreadable_rows"]) == ([], 1)


def test_several_tests_in_one_log_are_several_tables(judge):
    """Each test has its own average, by name; the last one is not the job's."""
    text = ""
    for name, average in (("all_reduce", 167.9), ("alltoall", 46.7)):
        text += (
            f"# Collective test starting: {name}_perf\n# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20\n"
            + HEADER
        )
        text += f"  8  2  float  sum  -1  1  1  {average}  0  1  1  {average}  0\n# Out of bounds values : 0 OK\n# Avg bus bandwidth : {average}\n# Collective test concluded: {name}_perf\n"
    job = judge(text)
    assert job["avg_busbw"] == 167.9
    assert job["avg_busbw_all"] == {"all_reduce": 167.9, "alltoall": 46.7}
    assert [table["complete"] for table in job["tables"]] == [True, True]


def test_the_average_is_never_a_verdict(judge):
    """The average bus bandwidth depends on the sweep, so it is shown and not judged."""
    job = judge(
        HEADER
        + "  8  2  float  sum  -1  1  0.01  0.01  0  1  0.01  0.01  0\n# Out of bounds values : 0 OK\n# Avg bus bandwidth : 0.01\n"
    )
    assert [fault["fault"] for fault in job["faults"]] == ["nccl.no-evidence"]
    assert job["tables"][0]["sweep"] == {"min_bytes": 8, "max_bytes": 8, "rows": 1}


def test_the_benchmarks_own_minimum_is_honoured(judge):
    """NCCL_TESTS_MIN_BW: nccl-tests prints FAILED."""
    job = judge(
        HEADER + "  8  2  float  sum  -1  1  0.01  0.01  0  1  0.01  0.01  0\n# Avg bus bandwidth : 0.01 FAILED\n"
    )
    assert (job["faults"][0]["fault"], job["verdict"]) == ("nccl.low-bandwidth", "no-go")
    assert job["crash"] is False


@pytest.mark.parametrize(
    ("bad", "count"),
    [
        ("  8  2  float  sum  -1  1  1  1  5  1  1  1  0\n# Out of bounds values : 5 FAILED\n", 5),
        ("  8  2  float  sum  -1  1  1  1  5  1  1  1  7\n# Out of bounds values : 12 FAILED\n", 12),
        ("  8  2  float  sum  -1  1  1  1  0  1  1  1  N/A\n# Out of bounds values : 2 FAILED\n", 2),
    ],
)
def test_wrong_results_are_fatal(judge, bad, count):
    """#wrong above zero and out-of-bounds values are corrupted data, each value counted once."""
    job = judge(HEADER + bad + "# Avg bus bandwidth : 1\n")
    assert job["faults"][0]["cause"] == f"{count} values were wrong"
    assert (job["faults"][0]["fault"], job["faults"][0]["severity"], job["verdict"], job["diagnosis"]) == (
        "nccl.wrong-results",
        "fatal",
        "no-go",
        "wrong-results",
    )


def test_unchecked_results_are_not_right_results(judge):
    """-c 0 prints N/A and still '0 OK': wrong is null, and the table says that no value was checked."""
    (table,) = judge(HEADER + "  8  2  float  sum  -1  1  1  1  N/A  1  1  1  N/A\n" + FOOTER)["tables"]
    assert (table["rows"][0]["out_of_place"]["wrong"], table["checked"]) == (None, False)


def test_bandwidth_that_collapses_with_size_is_a_finding(judge):
    """8.8 GB/s at 32 MiB and 1.1 at 16 GiB is a faulty link; a rising curve is not."""
    body = "".join(
        f"  {2 ** (25 + step)}  1  float  sum  -1  1  {bw}  {bw}  0  1  {bw}  {bw}  0\n"
        for step, bw in enumerate((8.8, 8.1, 6.0, 3.2, 1.1))
    )
    job = judge(HEADER + body + FOOTER)
    assert "nccl.bandwidth-falls" in [fault["fault"] for fault in job["faults"]]


def test_a_table_without_its_end_is_truncated(judge):
    """A killed run has no average and no healthy verdict."""
    job = judge(
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20\n"
        + HEADER
        + "  8  2  float  sum  -1  1  1  1  0  1  1  1  0\n"
    )
    assert (job["truncated"], job["verdict"], job["tables"][0]["complete"]) == (True, "inconclusive", False)


def test_the_json_report_of_nccl_tests_is_read(judge, data):
    """-J: rows, devices, version; nwrong is a number, root a padded string."""
    text = (data / "recorded" / "mpirun-four-hosts-ring.nccl-tests.json.txt").read_text()
    job = judge(text)
    assert (job["ranks"], job["nccl_version"], job["avg_busbw"], job["tables"][0]["collective"]) == (
        4,
        "2.28.9",
        0.48338,
        "all_reduce",
    )
    row = job["tables"][0]["rows"][-1]
    assert (row["size_bytes"], row["root"], row["out_of_place"]["wrong"], round(row["in_place"]["busbw_gbps"], 3)) == (
        67108864,
        -1,
        0,
        0.929,
    )
    assert job["nodes"] is None, "one GPU, four times on one host name: not four GPUs of one host"


@pytest.mark.parametrize(
    ("was", "then", "fault"),
    [
        ('"errors": [\n  ""', '"errors": [\n  "NCCL failure: unhandled system error"', "nccl.crash"),
        ('"nwrong": 0.0', '"nwrong": 0.001', "nccl.wrong-results"),
        ('"nwrong": 0.0', '"nwrong": NaN', "nccl.odd-numbers"),
        ('"nwrong": 0.0', '"nwrong": 0', None),
    ],
)
def test_what_a_json_report_says_of_errors_counts(judge, data, was, then, fault):
    """A failed run lists its errors; an invalid count proves nothing."""
    text = (data / "recorded" / "mpirun-four-hosts-ring.nccl-tests.json.txt").read_text()
    assert was in text
    faults = {each["fault"] for each in judge(text.replace(was, then))["faults"]} - {"nccl.no-evidence"}
    assert faults == ({fault} if fault else set())


def test_a_json_report_that_was_cut_keeps_its_whole_rows(judge, data):
    """A crash leaves the document incomplete."""
    text = (data / "recorded" / "mpirun-four-hosts-ring.nccl-tests.json.txt").read_text()
    job = judge(text[: text.index("108352.4")])
    assert [row["size_bytes"] for row in job["tables"][0]["rows"]] == [1048576, 8388608]
    assert job["tables"][0]["complete"] is False


def test_rccl_tests_records_are_read(judge):
    """The option -Z json prints one record per size and placement, with different names."""
    records = [
        {
            "numCycle": 0,
            "name": "all_reduce",
            "size": 8,
            "type": "float",
            "redop": "sum",
            "inPlace": place,
            "time": 5.0,
            "algBw": 1.0,
            "busBw": 1.75,
            "wrong": "0",
        }
        for place in (0, 1)
    ]
    job = judge(json.dumps(records))
    (row,) = job["tables"][0]["rows"]
    assert (job["tables"][0]["collective"], row["out_of_place"]["busbw_gbps"], row["in_place"]["wrong"]) == (
        "all_reduce",
        1.75,
        0,
    )


def test_the_library_version_in_the_header_is_the_version(judge):
    """nccl-library=22807 is 2.28.7, also without NCCL_DEBUG."""
    assert (
        judge("# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807\n" + HEADER + FOOTER)["nccl_version"]
        == "2.28.7"
    )


def _rows_and_average(judge, text):
    (table,) = judge(text)["tables"]
    return [row["in_place"]["busbw_gbps"] for row in table["rows"]], table["avg_busbw"]


ROW = "     1048576        262144     float     sum      -1    69.55   15.08   26.38      0    68.58   15.29   26.76      0\n"


@table(
    "carry",
    [
        lambda text: text.replace("   ", "\t"),
        lambda text: "\ufeff" + text.replace("\n", "\r\n"),
        lambda text: "".join(f'        "{line}",\n' for line in text.splitlines()),
        lambda text: '    "stdout": "' + text.replace("\n", "\\n") + '",\n',
        lambda text: "".join(f"{number:6d}\t{line}\n" for number, line in enumerate(text.splitlines(), 1)),
        lambda text: "".join(f"out.log:{line}\n" for line in text.splitlines()),
        lambda text: "".join(f"> {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"Jan  2 03:04:05 node-1 job[123]: {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"[prterun-host-123@1,0]<stdout>: {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"2026-01-02 03:04:05,678 - bench - INFO - {line}\n" for line in text.splitlines()),
    ],
)
def test_what_carried_a_table_does_not_change_it(judge, carry):
    """Tabs, Windows line ends, JSON lists, one string literal, line numbers, quotes and loggers leave rows and average
    unchanged."""
    assert _rows_and_average(judge, carry(HEADER + ROW * 2 + FOOTER)) == ([26.76, 26.76], 12.5)


def test_the_first_releases_columns_are_read(judge):
    """nccl-tests 1.0 called the columns bytes, N, op and res."""
    head = (
        "#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res\n"
    )
    row = "    10000000       2500000   float     sum    0.735  13.61  13.61    0e+00    0.734  13.63  13.63    0e+00\n"
    (read,) = rows(judge, head + row + " Out of bounds values : 0 OK\n Avg bus bandwidth    : 13.6188\n")
    assert (read["redop"], read["out_of_place"]["wrong"], read["in_place"]["busbw_gbps"]) == ("sum", 0, 13.63)
