"""Plausibility of a table: rows, checks, last lines, and all of them together."""

from __future__ import annotations

import random
import re

import pytest

from seatrial.logs.reader.tables import rows as reader_rows
from tests.logs.logmaker import TABLE, Maker, averaged, sequential, table_of
from tests.logs.test_nccl_cut_lines import HEALTHY

ONE = Maker(hosts=("gpu-node-0",), gpus=8)
TWO = Maker(gpus=4, rails=4, channels=4)
SIZES = {1 << 20: 26.4, 1 << 26: 120.0, 1 << 28: 140.0, 1 << 30: 153.6}


def row(size: int, busbw: float, wrong: str = "0", second: str = "0", kind: str = "float", again: float = 0.0) -> str:
    """Return a row of an all-reduce over 8 ranks, whose bus bandwidth is 1.75 times the algorithm's."""

    def side(value: float, check: str) -> str:
        return f"  {size * 1.75 / value / 1e3:.2f}  {value / 1.75:.3f}  {value:.2f}  {check}"

    return f"  {size}  {size // 4}  {kind}  sum  -1{side(busbw, wrong)}{side(again or busbw, second)}\n"


def log(maker: Maker, body: str, end: str | None = None, check: str = "#wrong") -> str:
    """Return a healthy job's log with these rows and, by default, the matching last lines."""
    lines = [line for line in table_of(maker) if line[:1] != " " and "Out of" not in line and "Avg" not in line]
    head = "\n".join(line for line in lines if "concluded" not in line).replace("#wrong", check) + "\n"
    usual = (
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0\n#\n# Collective test concluded: all_reduce_perf\n"
    )
    text = averaged(body + usual) if end is None else body + end
    return sequential(maker.processes()).decode() + head + text


def rows(**changed: float) -> str:
    """Return four rows, some with another bandwidth: ``at_28=2.0`` sets that of 2**28 bytes."""
    return "".join(row(size, changed.get(f"at_{size.bit_length() - 1}", value)) for size, value in SIZES.items())


@pytest.fixture(params=[ONE, TWO], ids=["one-host", "two-hosts"])
def maker(request) -> Maker:
    return request.param


def test_rows_that_fit_each_other_and_their_average_are_a_go(judge, maker):
    assert judge(log(maker, rows()))["verdict"] == "go"


@pytest.mark.parametrize("average", ["3000.5", "0.1", "12.5", "200", "0"])
def test_an_average_of_other_rows_proves_nothing(judge, maker, average):
    """nccl-tests prints the mean of busbw, so a different one shows missing or changed rows."""
    job = judge(log(maker, rows(), f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {average}\n"))
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "odd-numbers")
    assert "is not the average of the 4 rows (110)" in job["sentence"]


def test_what_an_average_lost_by_rounding_is_no_contradiction(judge, maker):
    """0.004 GB/s is printed as 0.00, but counts in the average."""
    text = "".join(row(8 << step, 0.0049).replace("0.00  ", "0.00  ") for step in range(4))
    end = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0.0051\n"
    assert "nccl.odd-numbers" not in {fault["fault"] for fault in judge(log(maker, text, end))["faults"]}


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("0.5", "1 values were wrong"),
        ("-1", "#wrong at 1048576 bytes is -1"),
        ("nan", "#wrong at 1048576 bytes is nan"),
    ],
)
def test_a_count_that_is_none_is_never_right(judge, maker, printed, said):
    """Half a wrong value is invalid, and so is a negative count."""
    job = judge(log(maker, rows().replace("  0  ", f"  {printed}  ", 1)))
    assert (job["verdict"] == "go", said in job["sentence"]) == (False, True), job["sentence"]


def test_values_out_of_bounds_that_are_no_number_are_named(judge, maker):
    job = judge(log(maker, rows(), "# Out of bounds values : nan OK\n# Avg bus bandwidth    : 110\n"))
    assert (job["verdict"], "the values out of bounds are nan" in job["sentence"]) == ("inconclusive", True)


def test_a_row_without_numbers_is_named(judge, maker):
    empty = "  1048576  262144  float  sum  -1" + "  N/A" * 8 + "\n"
    job = judge(log(maker, empty + rows(), "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 110\n"))
    assert (job["verdict"], "no bandwidth is given at 1048576 bytes" in job["sentence"]) == ("inconclusive", True)


@pytest.mark.parametrize("column", [5, 6, 7, 9, 10, 11])
def test_a_row_in_which_one_number_is_missing_proves_nothing(judge, maker, column):
    """N/A marks a side that was not run, and then in all of its columns."""
    lines = rows().splitlines()
    fields = lines[1].split()
    one = [*fields[:column], "N/A", *fields[column + 1 :]]
    side = fields[: 9 if column > 8 else 5] + ["N/A"] * 4 + fields[9:] * (column < 8)
    job = judge(log(maker, "\n".join([lines[0], "  ".join(one), *lines[2:]]) + "\n", END))
    assert (job["verdict"], "is missing at 67108864 bytes" in job["sentence"]) == ("inconclusive", True)
    job = judge(log(maker, "\n".join([lines[0], "  ".join(side), *lines[2:]]) + "\n"))
    assert job["verdict"] == "go", job["sentence"]


END = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 110\n"


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        (6, "0.69", "no collective has a factor above 2"),
        (6, "0.00", "no collective has a factor above 2"),
        (5, "6.95", "algbw says 15.086"),
        (5, "0.06951", None),  # milliseconds
    ],
)
def test_a_number_of_a_small_message_that_cannot_be_is_named(judge, maker, column, value, said):
    """Below 100 us a time may be in milliseconds, as in nccl-tests 1.0, but it must fit one of the two units."""
    lines = rows().splitlines()
    fields = lines[0].split()
    fields[column] = value
    job = judge(log(maker, "\n".join(["  ".join(fields), *lines[1:]]) + "\n", END))
    assert job["verdict"] == ("go" if said is None else "inconclusive")
    assert said is None or said in job["sentence"]


@pytest.mark.parametrize(("step", "missing"), [("step: 2(factor)", True), ("step: 8(factor)", False), ("", False)])
def test_a_sweep_in_which_a_size_is_missing_proves_nothing(judge, maker, step, missing):
    """64, 256 and 1,024 MiB: two sizes of a factor-2 sweep are missing, though the average may match."""
    text = log(maker, "".join(row(size, 120.0) for size in (1 << 26, 1 << 28, 1 << 30)))
    text = text.replace("step: 1024(factor)", step)
    job = judge(text)
    assert (job["verdict"], "no row is between 67108864 and" in job["sentence"]) == (
        ("inconclusive", True) if missing else ("go", False)
    )


@pytest.mark.parametrize(
    "end",
    ["", "# Out of bounds values : 0 OK\n", "# Collective test concluded: all_reduce_perf\n"],
    ids=["rows", "bounds", "concluded"],
)
def test_a_table_that_is_there_from_its_beginning_needs_its_end(judge, maker, end):
    """The job may have completed, but the count of wrong values in the last lines is missing."""
    job = judge(log(maker, rows(), end))
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "truncated")
    assert "without its last lines" in job["sentence"]


def test_rows_without_their_beginning_are_an_excerpt(judge, maker):
    """The table was pasted alone: no line announces more rows."""
    text = log(maker, rows(), "")
    assert judge("".join(line for line in text.splitlines(keepends=True) if "nThread" not in line))["verdict"] == "go"


@pytest.mark.parametrize("name", ["alltoall_perf", "sendrecv_perf"])
def test_a_test_that_was_only_announced_is_reported(judge, maker, name):
    job = judge(log(maker, rows()) + f"# Collective test starting: {name}\n")
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "truncated")
    assert job["tables"][-1]["collective"] == name[:-5]


def test_the_same_size_twice_and_far_apart_proves_nothing(judge, maker):
    """A repeated size (-N) has a similar rate; half the rate may be noise."""
    assert judge(log(maker, rows() + row(1 << 30, 80.0)))["verdict"] == "go"
    job = judge(log(maker, rows() + row(1 << 30, 1.5)))
    assert (job["verdict"], "in one row and 1.5 in another" in job["sentence"]) == ("inconclusive", True)


def test_a_size_between_two_that_collapses_is_a_fall(judge, maker):
    """2 GB/s at 256 MiB, between 120 and 153: the protocol at that size is faulty. A dip to a third is not."""
    job = judge(log(maker, rows(at_28=2.0)))
    assert [fault["fault"] for fault in job["faults"]] == ["nccl.bandwidth-falls"]
    assert "falls from 120 to 2 GB/s as messages grow to 268435456 bytes" in job["faults"][0]["cause"]
    assert judge(log(maker, rows(at_28=45.0)))["verdict"] == "go"


@pytest.mark.parametrize(
    ("header", "verdict"),
    [
        ("#  size  count  type  redop  root  time  algbw  busbw  #wrong", "no-go"),
        ("#  size  count  type  redop  lgbw  busbw  #wrong  time  algbw  busbw  #wrong", "inconclusive"),
    ],
    ids=["half", "damaged"],
)
def test_a_header_of_fewer_columns_hides_no_side_of_a_row(judge, maker, header, verdict):
    """The wrong values are on the side that the header lacks."""
    text = log(maker, rows().replace("  0  ", "  7  ", 1))
    job = judge("".join(header + "\n" if "algbw" in line else line for line in text.splitlines(keepends=True)))
    assert job["verdict"] == verdict, job["sentence"]


# -- tables before nccl-tests 2.13: the column is an error, not a count ------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "error", "verdict"),
    [
        ("float", "5e-07", "go"),
        ("float", "7e-05", "go"),  # 1e-05 for each of 7 ranks
        ("float", "8e-05", "no-go"),
        ("float", "2e-01", "no-go"),
        ("half", "7e-02", "go"),
        ("half", "8e-02", "no-go"),
        ("double", "5e-07", "no-go"),
        ("int32", "1e+00", "no-go"),
        ("int32", "0e+00", "go"),
        ("fp8_e4m3", "1e+00", "go"),  # a type that it does not list
        ("float", "nan", "inconclusive"),
        ("float", "inf", "inconclusive"),
        ("float", "-1e-03", "inconclusive"),
    ],
)
def test_an_error_is_held_against_what_the_benchmark_held_it_against(judge, maker, kind, error, verdict):
    """The limit is DeltaMaxValue(type) * (nranks - 1)."""
    text = "".join(row(size, value, error, "0e+00", kind) for size, value in SIZES.items())
    for end in (None, "# Avg bus bandwidth    : 110\n"):  # also without the line that counts them
        job = judge(log(maker, text, end, " error"))
        assert job["verdict"] == verdict, job["sentence"]
        assert (job["diagnosis"] == "wrong-results") is (verdict == "no-go")


def test_an_error_that_is_small_enough_is_a_checked_result(judge, maker):
    """A profile requires checked results."""
    text = "".join(row(size, value, "5e-07", "0e+00") for size, value in SIZES.items())
    (table,) = judge(log(maker, text, check=" error"))["tables"]
    assert [row["out_of_place"]["wrong"] for row in table["rows"]] == [0] * 4
    assert table["checked"]


def test_of_how_many_ranks_is_not_known_only_what_no_job_allows_is_wrong(judge):
    """In a single table 1e-03 is valid for a hundred ranks, 10 is invalid for any."""
    head = TABLE[: TABLE.index("     1048576")].replace("#wrong", " error")
    for error, wrong in (("1e-03", False), ("1e+01", True)):
        faults = {fault["fault"] for fault in judge(head + row(1 << 20, 26.4, error, "0e+00"))["faults"]}
        assert ("nccl.wrong-results" in faults) is wrong


# -- rows of the usual form, read by the fast path ---------------------------------------------------------------------
def odd_rows(seed: int) -> str:
    """Return rows of which some have the usual form of nccl-tests and others do not."""
    rng = random.Random(seed)
    out = []
    for step in range(20):
        text = row(1 << (8 + step), rng.uniform(0.01, 400), kind=rng.choice(("float", "int8", "bfloat16", "f8e4m3")))
        change = rng.choice(
            [
                lambda text: text,
                lambda text: text,
                lambda text: text.replace("  ", " "),
                lambda text: text.replace("\n", "   \n"),
                lambda text: "[1,0]<stdout>:" + text,
                lambda text: re.sub(r"  0(?=\s)", "  N/A", text, count=1),
                lambda text: re.sub(r"  0(?=\s)", "  3", text, count=1),
                lambda text: re.sub(r"(\d)\.(\d)", r"\1,\2", text),
                lambda text: re.sub(r"\d+\.\d+", "1.8e+07", text, count=1),
                lambda text: re.sub(r"\d+\.\d+", "nan", text, count=1),
                lambda text: text.replace("  sum", ""),
                lambda text: text.replace("  -1", ""),
                lambda text: text[: rng.randrange(len(text))] + "\n",
                lambda text: text + text,
                lambda text: text.replace("\n", "  7.5\n"),
            ]
        )
        out.append(change(text))
    return "".join(out)


HEADERS = (
    "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n",
    "#  size  count  type  redop  root  time  algbw  busbw  error  time  algbw  busbw  error\n",
    "#  size  count  type  redop  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n",
    "#  size  count  type  redop  root  time  algbw  busbw  #wrong\n",
    "#  in-place  out-of-place\n#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n",
    "",
)


@pytest.mark.parametrize("header", HEADERS, ids=["usual", "error", "no-root", "one-side", "swapped", "none"])
@pytest.mark.parametrize("seed", range(10))
def test_a_row_says_the_same_whether_it_is_read_at_once_or_piece_by_piece(judge, monkeypatch, header, seed):
    text = header + odd_rows(seed) + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1\n"
    at_once = judge(text)
    monkeypatch.setattr(reader_rows, "_USUAL", re.compile(rb"(?!)"))
    assert judge(text) == at_once


@pytest.mark.parametrize("said", ["abc", "12.3.4", "90.105abc", "?", "--"])
def test_an_average_that_is_no_number_is_never_go(judge, said):
    assert judge(HEALTHY.replace(": 90.105", f": {said}"))["diagnosis"] == "odd-numbers"


@pytest.mark.parametrize(
    "said", ["90.105`", "90.105<br>", "90.105GB/s;", "9.0105e+01", "90,105", '90.105"', "90.105\\n"]
)
def test_what_a_page_put_behind_the_average_changes_nothing(judge, said):
    """A near miss: text after the number does not change it."""
    job = judge(HEALTHY.replace(": 90.105", f": {said}"))
    assert (job["verdict"], job["tables"][0]["avg_busbw"]) == ("go", 90.105)


def test_the_average_is_no_wrong_values_of_a_row_without_its_last_column(judge):
    """A copy cut at some width lacks the column, and the next number would take its place."""
    job = judge(HEALTHY.replace("153.68       0\n", "153.68\n"))
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "odd-numbers")


def test_a_torn_row_takes_its_rest_from_another_line(judge):
    """A near miss: the rest of the row is on a later line."""
    job = judge(HEALTHY.replace("153.68       0\n", "153.68\nstep 1 loss nothing\n      7\n"))
    assert job["diagnosis"] == "wrong-results"


@pytest.mark.parametrize(
    ("torn", "what"),
    [
        # the end of a row is inside another one, so later columns belong to the next row
        (lambda line: line.replace("  0\n", "  210.99\n"), "#wrong at 67108864 bytes is 210.99"),
        (lambda line: " ".join([*line.split()[:5], "0", *line.split()[5:12]]) + "\n", "67108864 bytes"),
    ],
)
def test_a_torn_row_raises_no_fault(judge, maker, torn, what):
    """The wrong count of a torn row is a number from another column; the log is not go either."""
    body = rows()
    whole = next(line + "\n" for line in body.splitlines() if line.split()[0] == "67108864")
    assert torn(whole) != whole
    job = judge(log(maker, body.replace(whole, torn(whole))))
    assert (job["verdict"], [fault["fault"] for fault in job["faults"]]) == ("inconclusive", ["nccl.odd-numbers"])
    assert what in job["sentence"]


@pytest.mark.parametrize("count", ["1", "1.23457e+06"])
def test_a_count_of_wrong_values_as_nccl_tests_prints_it_counts(judge, maker, count):
    """The format is %g: a large one has a point and an exponent."""
    assert judge(log(maker, row(1 << 26, 120.0, wrong=count)))["diagnosis"] == "wrong-results"


@pytest.mark.parametrize(("error", "verdict"), [("2e-03", "no-go"), ("9e+04", "no-go"), ("65536", "inconclusive")])
def test_an_error_of_an_old_table_has_an_exponent(judge, maker, error, verdict):
    """nccl-tests before 2.13 prints %.0le: a plain number belongs to another column."""
    assert judge(log(maker, row(1 << 26, 120.0, wrong=error, second="0e+00"), check="error"))["verdict"] == verdict
