"""Inputs at the edge of their form: accepted and refused reports, tables, dumps and responses."""

import gzip
import io
import json
import zlib

import pytest

from seatrial.logs import exports, json_reports, read, sources
from seatrial.logs.hang import flight_recorder, watchdog
from seatrial.logs.hang.model import Evidence
from seatrial.logs.hang.pickles import PickleRefusedError
from seatrial.logs.reader.errors import NcclLogError
from tests.logs.symptom_rows import HEALTHY
from tests.logs.test_nccl_json_reports import report
from tests.table import table


@table(
    "value, printed",
    [
        (None, "N/A"),
        ("", "N/A"),
        ("  ", "N/A"),
        ("N/A", "N/A"),
        (" N/A ", "N/A"),
        (0, "0"),
        (3.0, "3"),
        ("3.5", "3.5"),
        (-2, "-2"),
        (999_999_999_999_999_872.0, "999999999999999872"),
        (1e18, "1e+18"),
        (1e300, "1e+300"),
        ("three", "unreadable"),
        (True, "unreadable"),
        ([], "unreadable"),
        (10**400, "unreadable"),
    ],
)
def test_a_figure_of_a_report_is_a_number_or_missing_or_unreadable(value, printed):
    """A missing figure is N/A, as the benchmark prints it; an invalid one is never read as a number."""
    assert json_reports._figure(value) == printed


@pytest.mark.parametrize(
    ("code", "said"), [(22809, True), (2001, True), (2000, False), (10**6, False), (7, False), (-1, False), ("22809", False), (None, False)]
)  # fmt: skip
def test_a_version_of_nccl_is_one_that_there_can_be(code, said):
    """Codes are 2xxx since 2.0 and 2xxxx since 2.9; another library counts differently."""
    lines = json_reports._of_nccl({**report(), "nccl_version": code})
    assert any(f"nccl-library={code}" in line for line in lines) is said


@pytest.mark.parametrize(
    ("head", "fields"),
    [
        ("time,message\n1,a\n2,b\n", ("time", "message")),
        ("time;message\n1;a\n", ("time", "message")),
        ("time,message\n", None),  # only a header
        ("time,message\n1,a\n2\n", None),  # rows of different width
        ("time,message\n1,a\n2,b,c\n", None),
        ("when,what\n1,a\n2,b\n", None),  # no field is known to hold the text
    ],
)
def test_a_file_of_separated_values_has_records_of_one_width_behind_their_names(head, fields):
    form = exports._csv_of(head.encode())
    assert (form and form.names) == fields


def judged_of(data):
    return read([("job.log", sources._chunks(io.BytesIO(data), "job.log", len(data)))])


def dump_of(data):
    return flight_recorder.parse("dump_3", data, {})


PACKED = gzip.compress(b"", mtime=0)  # without mtime, the time would be in the test's id


@pytest.mark.parametrize("data", [b"", PACKED, PACKED * 2], ids=["empty", "packed", "packed-twice"])
def test_an_empty_log_is_refused_and_says_what_to_look_at(data):
    with pytest.raises(NcclLogError, match=r"job\.log: the log is empty; was NCCL_DEBUG=INFO set"):
        judged_of(data)


def test_a_damaged_archive_is_refused_before_its_first_line_and_read_up_to_the_damage_behind_it():
    """The readable part before the damage counts, but not as a whole log."""
    packed = gzip.compress(HEALTHY.encode() * 20, compresslevel=0)
    with pytest.raises(NcclLogError, match=r"job\.log: damaged gzip data"):
        judged_of(packed[:10] + b"\xff" * 400)
    assert judged_of(packed)
    assert zlib.decompress(packed, 31) == HEALTHY.encode() * 20


STUCK = "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress"


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        (f"[PG ID 0 PG GUID 0(default_pg) Rank 6] {STUCK}", (6,)),
        (f"[rank14]: [PG ID 0 PG GUID 0(default_pg) Rank 6] {STUCK}", (14,)),
        (f"[PG ID 3 PG GUID 9(tp) Rank 1] {STUCK}", ()),
        (f"[rank14]: [PG ID 3 PG GUID 9(tp) Rank 1] {STUCK}", (14,)),
    ],
)
def test_a_watchdog_is_that_of_the_process_and_not_of_its_place_in_a_group(line, ranks):
    """The launcher's information about the line takes precedence over the default group's."""
    evidence = Evidence()
    watchdog.read(evidence, "job.log", [(3, line)])
    assert [(each.ranks, each.seconds) for each in evidence.reports] == [(ranks, 480)]


@table("content", [[], {}, {"a": 1}, {"entries": None}, {"entries": "x"}, [1], [{}], "x", 3, None])
def test_what_is_no_dump_is_refused_as_that(content):
    """JSON of another kind with a dump's file name yields nothing."""
    with pytest.raises(PickleRefusedError, match="that is not a Flight Recorder dump"):
        dump_of(json.dumps(content).encode())
    kept = {"entries": [], "pg_config": {}}
    assert dump_of(json.dumps(kept).encode())[1] == kept


@pytest.mark.parametrize(
    "whole", [lambda entries: entries, lambda entries: {"version": "1.4", "entries": entries}], ids=["2.2", "2.3"]
)
def test_a_dump_of_a_torch_whose_entries_name_no_group_is_refused_as_that(whole):
    """torch 2.2 writes a list of entries, 2.3 a dictionary."""
    entries = [{"profiling_name": "nccl:all_reduce", "pg_id": 0, "seq_id": 3, "state": "started"}]
    with pytest.raises(PickleRefusedError, match=r"torch 2\.2 or 2\.3"):
        dump_of(json.dumps(whole(entries)).encode())
