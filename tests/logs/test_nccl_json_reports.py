"""A benchmark's report in JSON or CSV is read anywhere, like the table that the benchmark prints."""

from __future__ import annotations

import json
from itertools import product

import pytest

from seatrial.logs import json_reports
from seatrial.logs.json_reports import spelled_out
from tests.logs.logmaker import Maker, interleaved
from tests.table import table

ONE = Maker(hosts=("gpu-node-0",), gpus=8)
LOG = interleaved(ONE.processes(), 5).decode()
SIZES = {1 << 20: 26.4, 1 << 26: 120.0, 1 << 28: 140.0, 1 << 30: 153.6}


def side(size: int, busbw: float, wrong: float = 0.0) -> dict:
    return {"time": size * 1.75 / busbw / 1e3, "alg_bw": busbw / 1.75, "bus_bw": busbw, "nwrong": wrong}


def report(wrong: float = 0.0, *, errors: tuple[str, ...] = ("",)) -> dict:
    """Return the report of nccl-tests for 8 ranks (-J, common.cu), with this many wrong values in its first row."""
    return {
        "version": 3,
        "start_time": "2026-11-20 15:03:23",
        "args": ["./build/all_reduce_perf", "-b", "1M"],
        "env": ["SOME_TOKEN=planted-secret-must-never-be-shown"],
        "nccl_version": 22809,
        "config": {
            "minimum_bytes": 1 << 20,
            "maximum_bytes": 1 << 30,
            "iterations": 20,
            "devices": [
                {
                    "rank": rank,
                    "group": 0,
                    "pid": ONE.pid(rank),
                    "hostname": "gpu-node-0",
                    "device": rank,
                    "device_hex": f"0000:1{rank}:00",
                    "device_info": "NVIDIA L40S",
                }
                for rank in range(8)
            ],
        },
        "results": [
            {
                "size": size,
                "count": size // 4,
                "type": "float",
                "redop": "sum",
                "root": "     -1",
                "out_of_place": side(size, busbw, wrong * (size == 1 << 20)),
                "in_place": side(size, busbw),
            }
            for size, busbw in SIZES.items()
        ],
        "out_of_bounds": {"count": int(wrong), "okay": "false" if wrong else "true"},
        "average_bus_bandwidth": {"bandwidth": 110.0, "okay": "true"},
        "end_time": "2026-11-20 15:04:23",
        "errors": list(errors),
    }


def records(wrong: str = "0") -> list[dict]:
    """Return the records of rccl-tests (-Z json)."""
    return [
        {
            "numCycle": 0,
            "name": "AllReduce",
            "size": size,
            "type": "float",
            "redop": "sum",
            "inPlace": place,
            "time": size * 1.75 / busbw / 1e3,
            "algBw": busbw / 1.75,
            "busBw": busbw,
            "wrong": wrong if size == 1 << 20 and not place else "0",
        }
        for size, busbw in SIZES.items()
        for place in (0, 1)
    ]


def tagged(text: str) -> str:
    return "".join(f"[1,0]<stdout>: {line}\n" for line in text.splitlines())


def stamped(text: str) -> str:
    return "".join(
        f"2026-11-20T15:{at // 60 % 60:02d}:{at % 60:02d}Z {line}\n" for at, line in enumerate(text.splitlines())
    )


FORMS = {
    "indented": lambda written: json.dumps(written, indent=1) + "\n",
    "one-line": lambda written: json.dumps(written) + "\n",
    "no-line-end": lambda written: json.dumps(written, indent=2),
    "tagged": lambda written: tagged(json.dumps(written, indent=1)),
    "tagged-line": lambda written: tagged(json.dumps(written)),
    "stamped": lambda written: stamped(json.dumps(written, indent=1)),
}
WRITTEN = {"nccl-tests": report, "rccl-tests": records}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("where", ["alone", "behind", "before", "within"])
def test_a_report_is_a_table_wherever_it_stands(judge, form, written, where):
    """Healthy after a healthy log, wrong with wrong values: previously only a separate report was read."""
    lines = LOG.splitlines(keepends=True)
    for wrong in (0, 5):
        text = FORMS[form](WRITTEN[written](wrong))
        end = "" if text.endswith("\n") else "\n"
        job = judge(
            {
                "alone": text,
                "behind": LOG + text,
                "before": text + end + LOG,
                "within": "".join(lines[:20]) + text + end + "".join(lines[20:]),
            }[where]
        )
        (table,) = job["tables"]
        assert [(row["size_bytes"], row["in_place"]["busbw_gbps"]) for row in table["rows"]] == list(SIZES.items())
        assert (table["collective"], table["complete"], table["avg_busbw"]) == ("all_reduce", True, 110.0)
        assert (job["diagnosis"] == "wrong-results") is bool(wrong), job["sentence"]
        if where != "alone":
            assert (job["verdict"], job["ranks"], job["nodes"]) == ("no-go" if wrong else "go", 8, 1)


@pytest.mark.parametrize("form", ["indented", "tagged"])
def test_the_lines_of_other_processes_within_a_report_are_kept(judge, form):
    """A rank's last messages appear between the lines of rank 0's report."""
    lines = FORMS[form](report()).splitlines(keepends=True)
    line = "[rank1]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
    job = judge(LOG + "".join(lines[:60]) + line + "".join(lines[60:]))
    assert (job["verdict"], len(job["tables"][0]["rows"])) == ("no-go", 4)


@pytest.mark.parametrize("written", WRITTEN)
def test_a_report_that_was_cut_has_no_end(judge, written):
    text = FORMS["indented"](WRITTEN[written]())
    job = judge(LOG + text[: text.rindex('"type"')])
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "truncated")
    assert [row["size_bytes"] for row in job["tables"][0]["rows"]][:3] == list(SIZES)[:3]


def test_an_error_in_a_report_behind_a_log_counts(judge):
    job = judge(LOG + FORMS["indented"](report(errors=("NCCL failure: unhandled system error",))))
    assert (job["verdict"], job["diagnosis"]) == ("no-go", "crash")


def test_several_reports_are_several_tables(judge):
    text = FORMS["indented"](report()) + FORMS["one-line"](report(7))
    job = judge(LOG + text + "step 1\n" + FORMS["indented"](records()))
    assert [len(table["rows"]) for table in job["tables"]] == [4, 4, 4]
    assert job["diagnosis"] == "wrong-results"


def test_rccl_tests_csv_is_read(judge):
    """-Z csv writes a separate file."""
    for wrong in ("0", "3"):
        rows = [list(map(str, record.values())) for record in records(wrong)]
        text = "".join(",".join(row) + "\n" for row in [list(records()[0]), *rows])
        (table,) = (job := judge(text))["tables"]
        assert [row["out_of_place"]["busbw_gbps"] for row in table["rows"]] == list(SIZES.values())
        assert (job["diagnosis"] == "wrong-results") is (wrong == "3")


def rccl_lines(form: str, wrong: str = "0", nodes: bool = True) -> str:
    """Return the output of rccl-tests of 2024: CSV without the nodes in its header, or one record per line (common.cu,
    Reporter)."""
    out = []
    for record in records(wrong):
        place = {"nodes": 1, "ranks": 8, "ranksPerNode": 8, "gpusPerRank": 1} if nodes else {"gpus": 8}
        values = {"name": record["name"], **place, **{key: record[key] for key in list(record)[2:]}}
        out.append(", ".join(map(json.dumps, values.values())) if form == "csv" else json.dumps(values))
    places = "ranks, rankspernode, gpusperrank" if nodes else "gpus"
    header = f"collective, {places}, size, type, redop, inplace, time, algbw, busbw, #wrong"
    return "".join(line + "\n" for line in ([header, *out] if form == "csv" else out))


@pytest.mark.parametrize("where", ["alone", "behind", "within", "tagged"])
@pytest.mark.parametrize(("form", "nodes"), [("csv", True), ("csv", False), ("lines", True)])
def test_what_rccl_tests_wrote_a_record_a_line_is_a_table(judge, form, nodes, where):
    for wrong in ("0", "5"):
        text = rccl_lines(form, wrong, nodes)
        text = tagged(text) if where == "tagged" else text
        within = text.replace("\n", "\n[0] step 1 loss 0.5\n", 3) + "step 2 loss 0.4\n"
        job = judge({"alone": text, "within": LOG + within}.get(where, LOG + text))
        (table,) = job["tables"]
        assert [(row["size_bytes"], row["in_place"]["busbw_gbps"]) for row in table["rows"]] == list(SIZES.items())
        assert (job["diagnosis"] == "wrong-results") is (wrong == "5"), job["sentence"]
        if where != "alone":
            assert (job["verdict"], table["collective"]) == ("no-go" if wrong == "5" else "go", "all_reduce")


@pytest.mark.parametrize("form", ["csv", "lines"])
def test_a_table_of_lines_that_was_cut_has_no_end(judge, form):
    job = judge(LOG + rccl_lines(form)[:-40])
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "truncated")


def test_another_csv_file_is_no_table(judge):
    """Near miss: its columns differ, and it is passed on to the byte."""
    text = "collective,host,algbw,busbw,note\nAllReduce,a,1,2,x\n"
    assert b"".join(spelled_out(iter([text.encode()]))) == text.encode()
    assert judge(LOG + text)["ranks"] == 8


@table("value, key", product([[5], [], {"count": 5}, True, "five", "0,5"], ["nwrong", "bus_bw", "size"]))
def test_a_figure_that_is_no_number_is_never_go(judge, key, value):
    """A list in place of the count of wrong values was read as N/A, as in a run without checks."""
    made = report()
    place = made["results"][0] if key == "size" else made["results"][0]["out_of_place"]
    place[key] = value
    job = judge(LOG + json.dumps(made))
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "odd-numbers"), job["sentence"]


@pytest.mark.parametrize("value", [None, "N/A", "0", 0.0])
def test_no_wrong_values_are_none_in_every_spelling(judge, value):
    """Near miss: without checks (-c 0) no values were counted."""
    made = report()
    for row in made["results"]:
        row["out_of_place"]["nwrong"] = row["in_place"]["nwrong"] = value
    assert judge(LOG + json.dumps(made))["verdict"] == "go"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"nwrong": 0.0', '"nwrong": 5.0, "nwrong": 0.0'),
        ('"results"', '"results": [], "results"'),
        ('"okay": "true"', '"okay": "false", "okay": "true"'),
        ('"errors"', '"errors": ["unhandled system error"], "errors"'),
    ],
)
def test_a_key_that_is_given_twice_is_never_go(judge, old, new):
    """JSON parsers differ in which of the two values they use."""
    text = json.dumps(report())
    job = judge(LOG + text.replace(old, new, 1))
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "odd-numbers"), job["sentence"]
    assert "given-twice" in job["sentence"]
    same = text.replace('"nwrong": 0.0', '"nwrong": 0.0, "nwrong": 0.0', 1)
    assert judge(LOG + same)["verdict"] == "go"


@table("form, size", product(FORMS, [1, 13, 100, 5000]))
def test_chunks_end_anywhere(form, size):
    data = (LOG + FORMS[form](report()) + "\nlast\n").encode()
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    assert b"".join(spelled_out(pieces)) == b"".join(spelled_out(iter([data])))


@pytest.mark.parametrize("form", ["indented", "one-line", "tagged"])
def test_what_comes_behind_a_report_keeps_its_line_and_no_secret_is_kept(form):
    data = LOG + FORMS[form](report()) + "last\n"
    spelled = b"".join(spelled_out(iter([data.encode()]))).decode()
    assert spelled.split("\n").index("last") == data.split("\n").index("last")
    assert "planted" not in spelled


@pytest.mark.parametrize(
    "text",
    [
        LOG,
        '{"run": {"start_time": 5}}\n{"start_time": "x", "version": 3}\n',
        '{"version": 3, "name": "x", "start_time": 1}\n',
        'numCycle is {"a": 1} and "numCycle"\n',
        "x" * 300_000 + '{"start_time"',
        "",
    ],
)
def test_what_is_no_report_is_passed_on_to_the_byte(text):
    for size in (1 << 17, 50_000, 3000):
        pieces = (text.encode()[at : at + size] for at in range(0, len(text), size))
        assert b"".join(spelled_out(pieces)) == text.encode()


@pytest.mark.parametrize(
    "text",
    [
        '{"version": 3, "start_time": ' + "[" * 100_000,
        '{"version": 3, "start_time": 1}',
        '{"version": 3, "start_time": 1, "config": 4, "results": {"a": 1}, "args": 7, "errors": 1, "nccl_version": "x"}',
        '{"version": 3, "start_time": 1, "config": {"devices": [{"rank": "x"}, 4]}, "results": [4, {"size": "a\\nb"}]}',
        '{"version": 3, "start_time": 1, "results": [{"size": 1e400, "in_place": {"bus_bw": NaN, "nwrong": -Infinity}}]}',
        '[{"numCycle": [], "size": {}, "busBw": {}, "name": ["x"]}, 5]',
        "numCycle,name\n1\n2,3,4\n",
    ],
)
def test_reports_of_nonsense_are_no_exception(judge, text):
    for data in (text, text[: len(text) // 2], LOG + text):
        job = judge(data)
        assert not job["tables"] or job["verdict"] != "go"


def test_a_report_is_bounded(monkeypatch):
    monkeypatch.setattr(json_reports, "MAX_REPORT", 2000)
    text = FORMS["indented"](report())
    assert b"last" in b"".join(spelled_out(iter([(text + "last\n").encode()])))
