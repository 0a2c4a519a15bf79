"""Exports of log stores and shippers: read CSV with a column of messages, advise for others.

The reader itself takes one JSON record a line with the message as a field (seatrial/logs/reader/unwrap.py). Any other
format of a store is rejected with the command that prints its messages, instead of being read in part. Examples are
documents, records with a nested message, quoted messages after a tag, and the newest line first.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from .reader.errors import NcclLogError
from .reader.unwrap import text_of, with_trouble

LOOK, _LOOK_CSV = 1 << 16, 1 << 13  # bytes of the beginning, by which a form is recognised
_MAX_FIELD = 1 << 20
TEXTS = (
    *("log", "message", "msg", "textpayload", "line", "text", "_raw", "@message", "body", "content"),
    *("logmessage", "logentry", "stdout", "output"),
)
"""The names of a column of messages, in lower case: Docker and Fluent Bit, ECS and Datadog, Cloud Logging, logcli,
Splunk, CloudWatch Logs Insights, OpenTelemetry, Azure Monitor, Ansible."""
LIMITS = frozenset((30, 100, 500, 1000, 5000, 10_000))
"""The default limits of stores' answers, in records: logcli, Loki's query_range, Kibana (discover:sampleSize), Grafana,
Loki's max_entries_limit_per_query, CloudWatch Logs (``limit``) and Elasticsearch (index.max_result_window)."""
NOT_CSV = b"(not read: what comes behind a quote of this CSV file that is not closed)"
_LOGCLI = re.compile(rb'\d{4}-\d\d-\d\dT\S{8,24} \{[^{}\n]*\} |\{"labels":\s?\{')  # plain, and -o jsonl
_STAMP = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|(?<![\w.])1\d{18}(?!\w)")
_SHOWN = re.compile(rb'[{"]|\A[^\n]*[,;\t]|' + _STAMP.pattern)
"""The beginning of every export: records, quotes, a first line of several fields, or times."""
_KIBANA = re.compile(r"([A-Z][a-z]{2}) (\d{1,2}), (\d{4}) @ (\d\d:\d\d:\d\d(?:\.\d{1,9})?)\Z")
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
_STAMPED_WITHIN = 200  # bytes of a line
_FEW = 4  # times that only fall, in this many lines, are not an accident
_MAX_RECORDS = 50
_DOCUMENT = re.compile(rb"(?:\xef\xbb\xbf)?\s*[{\[]\s*[\"{]")
_OF_NCCL = re.compile(rb"NCCL (?:INFO|WARN)|busbw")
_QUOTED = re.compile(rb'[:>=\[,]\s*"(?:[^"\\\n]|\\.)*NCCL (?:INFO|WARN)')
"""An NCCL line inside a string: of JSON, of a Ruby hash (Fluentd's stdout), of logfmt, of a list of lines."""
REPORT = re.compile(rb'"(?:numCycle|busBw|bus_bw|start_time|seatrial|DCGM (?:GPU )?Diagnostic)"')
"""Marks of a benchmark's report, of one of `dcgmi diag`, and of a trial's own evidence; other modules read these."""
NOT_READ = (
    "its lines are inside of JSON or quotes, as a log store or shipper wrote them: print the messages alone, oldest "
    "first, e.g. jq -r '.. | strings' FILE | seatrial explain -"
)
NEWEST_FIRST = "the newest line comes first: ask the log store for the oldest first, or: tac FILE | seatrial explain -"


def opened(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield the chunks of a log; for a CSV file those of its messages.

    Raises NcclLogError for a store's format that is not supported, and if the newest line comes first.
    """
    first = next(chunks, b"")
    while len(first) < LOOK and (more := next(chunks, b"")):
        first += more
    chunks = chain([first], chunks)
    yield from _checked(chunks, name) if _SHOWN.search(first[:LOOK]) else chunks  # most logs contain no such text


def _checked(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Return the messages of an export, oldest line first, or raise."""
    chunks, head = _looked_at(chunks)
    form = _csv_of(head)
    if form is not None:
        chunks, head = _looked_at(_of_csv(chunks, form))
    elif _LOGCLI.match(head):
        chunks = _counted(chunks)
    if _is_carried(head):
        raise NcclLogError("%s: %s" % (name, NOT_READ))
    if _falls(head):
        raise NcclLogError("%s: %s" % (name, NEWEST_FIRST))
    return chunks


def _is_carried(head: bytes) -> bool:
    """Return whether NCCL's lines are in strings, so that the lines of the file are not those of the log."""
    if not _OF_NCCL.search(head) or text_of(head.lstrip(b"\xef\xbb\xbf \r\n\t").partition(b"\n")[0]) is not None:
        return False
    if REPORT.search(head):
        return False
    said = [line for line in head.split(b"\n") if b"NCCL INFO" in line or b"NCCL WARN" in line][:_MAX_RECORDS]
    return _DOCUMENT.match(head) is not None or 2 * sum(map(bool, map(_QUOTED.search, said))) > len(said)


def _may_lack(records: int) -> bytes:
    """Return a note if a store's limit truncated the answer after so many records; else nothing."""
    said = b"(not read: what the log store holds beyond these %d lines, a usual limit of its answers)" % records
    return said if records in LIMITS else b""


def _counted(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the chunks of a store's answer, and a note on missing ones."""
    lines = 0
    for chunk in chunks:
        lines += chunk.count(b"\n")
        yield chunk
    if left := _may_lack(lines):
        yield left


def _looked_at(chunks: Iterator[bytes]) -> tuple[Iterator[bytes], bytes]:
    """Yield the chunks again, with their beginning as whole lines."""
    first, size = [], 0
    for chunk in chunks:
        first.append(chunk)
        size += len(chunk)
        if size >= LOOK:
            break
    head = b"".join(first)[:LOOK]
    return chain(first, chunks), head[: head.rfind(b"\n") + 1] if size >= LOOK else head


# -- CSV ---------------------------------------------------------------------------------------------------------------
class _Csv(NamedTuple):
    """The separator of a CSV file's fields, and the field with the text."""

    separator: str
    names: tuple[str, ...]  # names of its fields, in lower case
    text: int


def _csv_of(head: bytes) -> _Csv | None:
    """Return the form of a CSV export; its first record names the column of messages."""
    start = head[:_LOOK_CSV].removeprefix(b"\xef\xbb\xbf")
    for separator in (",", ";", "\t"):
        if separator.encode() not in start.partition(b"\n")[0]:
            continue
        records = list(_records(iter([start]), separator))[:_MAX_RECORDS]
        records = records[:-1] if len(head) > _LOOK_CSV else records  # without a truncated last record
        if len(records) < 2 or not all(records) or len({len(record) for record in records}) > 1:
            continue
        names = tuple(name.strip().lower() for name in records[0])
        lengths = [sum(len(record[at]) for record in records[1:]) for at in range(len(names))]
        known = [names.index(name) for name in TEXTS if name in names]
        if known:  # one of them may be a line number, or name a group of logs
            return _Csv(separator, names, max(known, key=lengths.__getitem__))
    return None


def _records(chunks: Iterator[bytes], separator: str) -> Iterator[list[str]]:
    """Yield the records of a CSV file, an empty one if the rest is unreadable; empty lines have none."""
    limit = csv.field_size_limit(_MAX_FIELD)
    try:
        yield from (record for record in csv.reader(_lines(chunks), delimiter=separator) if record)
    except csv.Error:
        yield []
    finally:
        csv.field_size_limit(limit)


def _of_csv(chunks: Iterator[bytes], form: _Csv) -> Iterator[bytes]:
    """Yield each record's text after its fields with a time; records of another width are unchanged."""
    records = _records(chunks, form.separator)
    next(records, None)
    count = 0
    for record in records:
        count += 1
        if not record:  # text that cannot be parsed
            yield NOT_CSV
            return
        if len(record) != len(form.names):
            yield form.separator.join(record).encode("utf-8", "replace") + b"\n"
            continue
        text = record[form.text]
        inner = text_of(text.encode("utf-8", "replace"))
        other_fields = {
            name: field for at, (name, field) in enumerate(zip(form.names, record, strict=True)) if at != form.text
        }
        times = [time for field in other_fields.values() if (time := _time(field))]
        text = with_trouble(text if inner is None else inner, other_fields).rstrip("\r\n")
        yield (times[0] + " " + text if times else text).encode("utf-8", "replace") + b"\n"
    if left := _may_lack(count):
        yield left


def _time(field: str) -> str:
    """Return the time at the start of a field, as ISO 8601; None if it is invalid."""
    stamp = _STAMP.match(field.encode("utf-8", "replace"))
    if stamp is not None:
        return stamp.group().decode()
    kibana = _KIBANA.match(field)
    if kibana is None:
        return ""
    month, day, year, clock = kibana.groups()
    return f"{year}-{_MONTHS.find(month) // 3 + 1:02d}-{int(day):02d}T{clock}"


def _lines(chunks: Iterator[bytes]) -> Iterator[str]:
    """Yield the lines of a stream, ends included."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace").replace("\0", "") + "\n"
        if len(rest) > _MAX_FIELD:
            yield rest.decode("utf-8", "replace").replace("\0", "")
            rest = b""
    if rest:
        yield rest.decode("utf-8", "replace").replace("\0", "")


# -- order -------------------------------------------------------------------------------------------------------------
def _falls(head: bytes) -> bool:
    """Return whether the times of the first lines only fall, as in a store's answer with the newest lines first."""
    last, times, missing = b"\xff", 0, 0
    for line in head.split(b"\n")[:-1]:
        match = _STAMP.search(line[:_STAMPED_WITHIN])
        stamp = None if match is None else match.group().replace(b",", b".").replace(b" ", b"T")
        if stamp is None:
            missing += bool(line.strip())
            if missing > _FEW + times:
                return False
        elif stamp > last:
            return False
        else:
            times += stamp < last
            last = stamp
    return times >= _FEW
