"""Tables of other benches, samples without a header, and surrounding text are read correctly."""

import pytest

GIB = 1 << 30


def one_table(judge, text):
    (table,) = judge(text)["tables"]
    return table


def points(table):
    return [(row["size_bytes"], row["out_of_place"]["busbw_gbps"]) for row in table["rows"]]


MARKDOWN = """\
Environment:
- software: torch=2.7.0, cuda=12.8, nccl=(2, 26, 2)

The average bandwidth of all_reduce over 4 ranks (5 warmups / 20 trials):

| payload |    busbw   |    algbw   |
| ------: | ---------: | ---------: |
|   32KiB |   1.10GBps |   0.73GBps |
|    1GiB | 350.40GBps | 233.60GBps |
"""


def test_a_torch_benchs_markdown_table_is_read(judge):
    """ml-engineering's all_reduce_bench: the header gives the column order, and units follow the numbers."""
    job = judge(MARKDOWN)
    (table,) = job["tables"]
    assert points(table) == [(32768, 1.1), (GIB, 350.4)]
    assert (table["rows"][1]["out_of_place"]["algbw_gbps"], table["collective"]) == (233.6, "all_reduce")
    assert (job["ranks"], job["nccl_version"], job["verdict"]) == (4, "2.26.2", "inconclusive")


def test_a_table_may_name_its_sides_in_its_columns(judge):
    """A report's table with bandwidths only, out-of-place and in-place."""
    job = judge(
        "| Message Size | Bus BW (out-of-place) | Bus BW (in-place) |\n|---|---|---|\n| 8 MB | 60.1 GB/s | 61 GB/s |\n| 1 GB | 120.1 GB/s | 119 GB/s |\n"
    )
    rows = [
        (row["size_bytes"], row["out_of_place"]["busbw_gbps"], row["in_place"]["busbw_gbps"])
        for row in job["tables"][0]["rows"]
    ]
    assert rows == [(8 << 20, 60.1, 61), (GIB, 120.1, 119)]


@pytest.mark.parametrize("tag", ["", "[gke-node-a:0]:", "worker-0: "])
def test_a_result_in_words_is_a_row(judge, tag):
    """The older form of the bench, and Modal's, have one payload in two lines."""
    lines = [
        "The average bandwidth of all_reduce with a 4.0GB payload (5 trials, 16 ranks):",
        " algbw: 180.500 GBps (1444.0 Gbps)",
        " busbw: 338.400 GBps (2707.2 Gbps)",
    ]
    job = judge("".join(f"{tag}{line}\n" for line in lines))
    assert points(job["tables"][0]) == [(4_000_000_000, 338.4)]
    assert (job["tables"][0]["rows"][0]["out_of_place"]["algbw_gbps"], job["ranks"]) == (180.5, 16)


def test_deepspeeds_bench_counts_bits(judge):
    """ds_bench prints Gbps by default, and tags its lines with the host."""
    text = (
        "node-a: ---- Performance of all_reduce on 8 devices ---------------------------------\n"
        "node-a: Size (Bytes)         Description               Duration             Throughput (Gbps)    BusBW (Gbps)\n"
        "node-a: ------------------------------------------------------------------------------------\n"
        "node-a: 32.0 GB             8589934592x4              3200.0 ms          160.0              140.0\n"
    )
    job = judge(text)
    assert points(job["tables"][0]) == [(32 * GIB, 17.5)]
    side = job["tables"][0]["rows"][0]["out_of_place"]
    assert (side["time_us"], side["algbw_gbps"], job["ranks"]) == (3_200_000.0, 20.0, 8)


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("  size(MB)   time(ms)  algbw(GB/s)  busbw(GB/s)", "      1024     48.500        22.10        22.10"),
        ("| Size | Time (us) | AlgoBW (GB/s) | BusBW (GB/s) |", "| 1G | 48500 | 22.10 | 22.10 |"),
        (
            "| Message size | algbw (GB/s) | **busbw (GB/s)** |",
            "| **1 GB** | **22.10** | **22.10** <- peak (48.5 ms) |",
        ),
        (
            "     size(B)   time(us)  algbw(GB/s)  busbw(GB/s)  #wrong",
            "  1073741824   48500.00       22.100       22.100       0",
        ),
    ],
    ids=["milliseconds", "report", "emphasis", "wrong"],
)
def test_a_header_with_a_size_and_a_bandwidth_is_a_table(judge, header, row):
    """Other columns and the separator do not matter."""
    assert points(one_table(judge, f"{header}\n{row}\n")) == [(GIB, 22.1)]


def test_another_benchs_table_ends_where_its_rows_do(judge):
    """A program's later output is not a row, even with as many words."""
    text = (
        MARKDOWN
        + "".join(f"epoch {step} loss {step}\n" for step in range(300))
        + "|    2GiB | 999.00GBps | 999.00GBps |\n"
    )
    assert len(one_table(judge, MARKDOWN)["rows"]) == 2
    assert judge(text)["tables"][0]["peak_busbw_gbps"] in (350.4, 999.0)  # bounded, whatever its interpretation


@pytest.mark.parametrize(
    "row",
    [
        "268435456 67108864 float sum -1 2374.1 113.07 197.87 0",
        "\t\t268435456\t\t67108864\t\tfloat\t\tsum\t\t-1\t\t2374.1\t\t113.07\t\t197.87\t\t0",
        "   268435456  67108864  float  sum  -1  2374.1  113.07  197.87  0",
    ],
)
def test_a_row_of_one_side_needs_no_header(judge, row):
    """A parser's own test has four values after the root, and no more."""
    table = one_table(judge, f"a line\n{row}\n")
    assert points(table) == [(268435456, 197.87)]
    assert table["rows"][0]["in_place"] is None


def test_the_halves_of_a_torn_row_are_still_one(judge):
    """Four values and four more are both sides of one size, also without a header."""
    left = "   268435456  67108864  float  sum  -1  2374.1  113.07  197.87  0"
    table = one_table(judge, f"{left}\n  2370.0  113.30  198.20  0\n")
    assert (len(table["rows"]), table["rows"][0]["in_place"]["busbw_gbps"]) == (1, 198.2)


def test_a_rank_list_without_addresses_is_one(judge):
    """A sample without PCI addresses still lists ranks, host and GPU."""
    ranks = "".join(f"#  Rank  {rank} Group  0 Pid 12 on test device  {rank} NVIDIA A100\n" for rank in range(4))
    job = judge(ranks + "   268435456  67108864  float  sum  -1  2500.0  107.37  161.06  0\n")
    assert (job["ranks"], job["nodes"], job["gpus"]) == (4, 1, {"NVIDIA A100": 4})


def test_size_and_count_may_carry_their_units(judge):
    """``size(B) count(elems)`` with redop and root, as in reports and parsers' tests."""
    table = one_table(
        judge,
        "#    size(B)  count(elems)  type  redop  root  time(us)  algbw(GB/s)  busbw(GB/s)\n   1048576         262144  float    sum    -1     78.12        13.42       12.61\n",
    )
    assert (points(table), table["rows"][0]["root"]) == ([(1048576, 12.61)], -1)


@pytest.mark.parametrize(("text", "average"), [("40.6901GB/s", 40.6901), ("13.29 GB/s", 13.29), ("0.42", 0.42)])
def test_an_average_may_carry_its_unit(judge, text, average):
    """AWS's nccom-test prints one."""
    job = judge(
        f"     size(B)    count(elems)     type    time(us)    algbw(GB/s)    busbw(GB/s)\n    33554432        33554432    uint8         768          40.69          40.69\nAvg bus bandwidth:      {text}\n"
    )
    assert job["avg_busbw"] == average


def test_an_average_alone_is_said(judge):
    """The sentence mentions the only number."""
    assert "only the average of 461.606 GB/s" in judge("# Avg bus bandwidth    : 461.606\n")["sentence"]


def test_rccl_tests_name_their_library(judge):
    """The header of rccl-tests has the form of nccl-tests since 2.17.9."""
    text = "# rccl-tests version 2.17.9-develop:0123456789 rccl-headers=22803 rccl-library=22707\n# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 8 minBytes 8 maxBytes 8\n"
    assert (
        judge(
            text
            + "   1048576         262144     float     sum      -1    78.12   13.42   23.49      0    78.10   13.43   23.50      0\n"
        )["nccl_version"]
        == "2.27.7"
    )


@pytest.mark.parametrize("value", ["nan", "inf", "-nan", "-3.5"])
def test_numbers_of_other_benches_that_are_none_are_named(judge, value):
    """An impossible row is reported and not ignored."""
    text = "| payload |    busbw   |    algbw   |\n| ---: | ---: | ---: |\n| 32KB | 0.92GBps | 0.49GBps |\n"
    assert "nccl.odd-numbers" not in {fault["fault"] for fault in judge(text)["faults"]}
    faults = judge(text + f"| 1GB | {value}GBps | 87.60GBps |\n")["faults"]
    assert [fault["cause"] for fault in faults if fault["fault"] == "nccl.odd-numbers"] == [
        f"busbw at 1073741824 bytes is {value.replace('-nan', 'nan')}"
    ]


@pytest.mark.parametrize(("word", "wrong"), [("Pass", 0), ("Fail", 1)])
def test_a_column_of_validation_is_a_check(judge, word, wrong):
    """Some benches print pass or fail for each size."""
    head = "| size | busbw (GB/s) | algbw (GB/s) | validation |\n| ---: | ---: | ---: | --- |\n"
    job = judge(head + f"| 1MB | 100.1 | 55.1 | Pass |\n| 1GB | 200.1 | 110.1 | {word} |\n")
    assert [row["out_of_place"]["wrong"] for row in job["tables"][0]["rows"]] == [0, wrong]
    assert (job["diagnosis"] == "wrong-results") is bool(wrong)


def test_a_table_of_latencies_alone_proves_no_bandwidth(judge):
    """The MPI tables of the OSU micro-benchmarks are not read."""
    head = "# OSU MPI-CUDA Allreduce Latency Test v7.3\n# Size       Avg Latency(us)\n"
    job = judge(head + "1048576    69.55\n")
    assert (job["verdict"], job["tables"]) == ("inconclusive", [])
