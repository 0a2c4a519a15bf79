"""Exports of log stores and shippers: CSV files, records whose text lies deep, lines the newest of which comes first.

What carries the lines is told by the first of them, and then undone in all. A line that is not carried so is passed on
as it is. What is turned round has to be held as a whole, so that its size is bounded.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from ..pod.nccl_reader.errors import NcclLogError
from ..pod.nccl_reader.unwrap import text_of, told_in, with_trouble

MAX_TURNED = 64 * 1024 * 1024
"""Bytes of a log whose newest line comes first."""
LOOK, _LOOK_CSV = 1 << 16, 1 << 13  # bytes of the beginning, by which a carrier is told
_MAX_FIELD = 1 << 20
TEXTS = (
    *("log", "message", "msg", "textPayload", "line", "text", "MESSAGE", "_raw", "@message", "body", "content"),
    *("LogMessage", "LogEntry", "stdout", "output"),
)
"""How a record names its text: Docker and Fluent Bit, ECS and Datadog, logfmt, Cloud Logging, logcli, journald, Splunk,
CloudWatch Logs Insights, OpenTelemetry, Azure Monitor, Ansible."""
TIMES = ("@timestamp", "timestamp", "time", "ts", "_time", "date", "timeUnixNano", "__REALTIME_TIMESTAMP")
_DEEP = 5
LIMITS = frozenset((30, 100, 500, 1000, 5000, 10_000))
"""Records of an answer that a store gives unless it is asked for more: logcli, Loki's query_range, Kibana
(discover:sampleSize), Grafana, Loki's max_entries_limit_per_query, CloudWatch Logs (``limit``) and Elasticsearch
(index.max_result_window)."""
NOT_CSV = b"(not read: what comes behind a quote of this CSV file that is not closed)"
_LOGCLI = re.compile(rb'\d{4}-\d\d-\d\dT\S{8,24} \{[^{}\n]*\} |\{"labels":\s?\{')  # plain, and -o jsonl
_LEAVES = ("stringValue", "value")  # inside of OpenTelemetry's body
_RUBY = re.compile(r'"(?:log|message|msg)"=>"((?:[^"\\]|\\.)*)"')  # Fluent Bit's and Fluentd's stdout
_LOGFMT = re.compile(r'(?:^|\s)(?:msg|message|log)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r'\\(["\\nrt])')
_ESCAPED = {"n": "\r", "r": "", "t": "\t"}
_STAMP = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|(?<![\w.])1\d{18}(?!\w)")
SHOWN = re.compile(rb'[{"]|\A[^\n]*[,;\t]|' + _STAMP.pattern)
"""What the beginning of every export holds: records, quotes, a first line of several fields, or times."""
_KIBANA = re.compile(r"([A-Z][a-z]{2}) (\d{1,2}), (\d{4}) @ (\d\d:\d\d:\d\d(?:\.\d{1,9})?)\Z")
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
_TIME = re.compile(_STAMP.pattern.decode() + r"(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?\Z")
_STAMPED_WITHIN = 200  # bytes of a line
_FEW = 4  # times that fall and never rise are no accident
_Unwrap = Callable[[str], "str | None"]


def carried(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the chunks of a log, of an export those of what it carries, the oldest line first."""
    chunks, head = _looked_at(chunks)
    unwrap = _unwrapper(head)
    table = _csv_of(head) if unwrap is None else None
    if unwrap is not None:
        chunks = _of_lines(chunks, unwrap)
    elif table is not None:
        chunks, head = _looked_at(_of_csv(chunks, table))
    elif _LOGCLI.match(head):
        chunks = _counted(chunks)
    return _turned(chunks) if _falls(head) else chunks


def may_lack(records: int) -> bytes:
    """Return what is said behind a store's answer of so many records: nothing where no store's limit cut it."""
    return (
        b"(not read: what the log store holds beyond these %d lines, a usual limit of its answers)"
        % records
        * (records in LIMITS)
    )


def _counted(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the chunks of a store's answer, and what may be missing behind them."""
    lines = 0
    for chunk in chunks:
        lines += chunk.count(b"\n")
        yield chunk
    if lines in LIMITS:
        yield may_lack(lines)


def _looked_at(chunks: Iterator[bytes]) -> tuple[Iterator[bytes], bytes]:
    """Return the chunks again, and whole lines of their beginning."""
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
    """How the fields of a CSV file are separated, and in which of them the text stands."""

    separator: str
    names: tuple[str, ...]  # of its fields, in small letters
    text: int
    named: bool  # by the first record


def _csv_of(head: bytes) -> _Csv | None:
    """Return the form of a CSV export: the first record names the text, or text is quoted behind a time."""
    start = head[:_LOOK_CSV].removeprefix(b"\xef\xbb\xbf")
    for separator in (",", ";", "\t"):
        if separator.encode() not in start.partition(b"\n")[0]:
            continue
        records = list(_records(iter([start]), separator))[:_MAX_RECORDS]
        records = records[:-1] if len(head) > _LOOK_CSV else records  # whose last one is cut
        if len(records) < 2 or not all(records) or len({len(record) for record in records}) > 1:
            continue
        names = tuple(name.strip().lower() for name in records[0])
        lengths = [sum(len(record[at]) for record in records[1:]) for at in range(len(names))]
        known = [names.index(name.lower()) for name in TEXTS if name.lower() in names]
        if known:  # one of them may be a number of the line, or name a group of logs
            return _Csv(separator, names, max(known, key=lengths.__getitem__), named=True)
        if b'"' in start and all(_TIME.match(record[0]) for record in records):
            numbers = tuple(map(str, range(len(names))))
            return _Csv(separator, numbers, lengths.index(max(lengths)), named=False)
    return None


_MAX_RECORDS = 50


def _records(chunks: Iterator[bytes], separator: str) -> Iterator[list[str]]:
    """Yield the records of a CSV file, an empty one where it cannot be read any further; empty lines have none."""
    limit = csv.field_size_limit(_MAX_FIELD)
    try:
        yield from (record for record in csv.reader(_lines(chunks), delimiter=separator) if record)
    except csv.Error:
        yield []
    finally:
        csv.field_size_limit(limit)


def _of_csv(chunks: Iterator[bytes], form: _Csv) -> Iterator[bytes]:
    """Yield the text of each record, behind what else of it tells a time; those of another width as they are."""
    records = _records(chunks, form.separator)
    if form.named:
        next(records, None)
    count = 0
    for record in records:
        count += 1
        if not record:  # what cannot be taken apart
            yield NOT_CSV
            return
        if len(record) != len(form.names):
            yield form.separator.join(record).encode("utf-8", "replace") + b"\n"
            continue
        text = record[form.text]
        inner = _deep_text(text) if text[:1] == "{" else None
        times = [time for at, field in enumerate(record) if at != form.text and (time := _time(field))]
        beside = {
            name: field for at, (name, field) in enumerate(zip(form.names, record, strict=True)) if at != form.text
        }
        yield _line(times[0] if times else "", with_trouble(text if inner is None else inner, beside))
    if left := may_lack(count):
        yield left


def _time(field: str) -> str:
    """Return the time that a field begins with, as ISO 8601 has it; nothing where it is none."""
    stamp = _STAMP.match(field.encode("utf-8", "replace"))
    if stamp is not None:
        return stamp.group().decode()
    kibana = _KIBANA.match(field)
    if kibana is None:
        return ""
    month, day, year, clock = kibana.groups()
    return f"{year}-{_MONTHS.find(month) // 3 + 1:02d}-{int(day):02d}T{clock}"


def _line(time: str, text: str) -> bytes:
    """Return the lines of a text, its time in front of the first."""
    front = time.encode() + b" " if time else b""
    return front + text.rstrip("\r\n").encode("utf-8", "replace") + b"\n"


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


# -- lines -------------------------------------------------------------------------------------------------------------
def _unwrapper(head: bytes) -> _Unwrap | None:
    """Return what takes the text out of a line, where most of the first ones hold one in this way."""
    lines = [line.decode("utf-8", "replace") for line in head.split(b"\n") if line.strip()][:_MAX_RECORDS]
    if not lines or (lines[0][:1] == "{" and text_of(lines[0].encode()) is not None):  # the reader's own business
        return None
    for unwrap in (_json_text, _ruby_text, _logfmt_text):
        if 2 * sum(unwrap(line) is not None for line in lines) > len(lines):
            return unwrap
    return None


def _of_lines(chunks: Iterator[bytes], unwrap: _Unwrap) -> Iterator[bytes]:
    for line in _lines(chunks):
        text = unwrap(line)
        yield line.encode("utf-8", "replace") if text is None else _line("", text)


def _json_text(line: str) -> str | None:
    """Return the text inside a JSON record that is a line, or ends one (Fluentd's time and tag stand in front)."""
    at = line.find("{")
    if at < 0 or (at and line[at - 1] not in "\t "):
        return None
    text = _deep_text(line[at:])
    return None if text is None else _with_front(line[:at], text)


def _with_front(beside: str, text: str) -> str:
    """Return a text, behind what else stands in its line where that tells of trouble."""
    return beside.rstrip() + "\n" + text if told_in(beside) else text


def _deep_text(text: str) -> str | None:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return "\n".join(texts) if isinstance(record, dict) and (texts := texts_in(record)) else None


def texts_in(value: Any, deep: int = _DEEP) -> list[str]:
    """Return the text of a record, the first named as one from the outside to the inside; of a list, those of all."""
    if isinstance(value, list):
        return [text for each in value for text in texts_in(each, deep)] if deep else []
    if not isinstance(value, dict) or not deep:
        return []
    for text in (value.get(key) for key in TEXTS):
        leaves = [text.get(key) for key in _LEAVES] if isinstance(text, dict) else [text]
        if named := [leaf for leaf in leaves if isinstance(leaf, str)]:
            return [with_trouble(named[0].rstrip("\r\n"), value)]
    for inner in value.values():
        if isinstance(inner, dict | list) and (found := texts_in(inner, deep - 1)):
            return found
    event = value.get("event")  # of structlog, and what Logstash took apart
    event = event.get("original") if isinstance(event, dict) else event
    return [with_trouble(event, value)] if isinstance(event, str) else []


def _ruby_text(line: str) -> str | None:
    return _matched(_RUBY.search(line), line)


def _logfmt_text(line: str) -> str | None:
    return _matched(_LOGFMT.search(line), line)


def _matched(match: re.Match[str] | None, line: str) -> str | None:
    if match is None:
        return None
    return _with_front(line[: match.start(1)] + line[match.end(1) :], _unescaped(match.group(1)))


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match.group(1), match.group(1)), text)


# -- order -------------------------------------------------------------------------------------------------------------
def _stamp(line: bytes) -> bytes | None:
    match = _STAMP.search(line[:_STAMPED_WITHIN])
    return None if match is None else match.group().replace(b",", b".").replace(b" ", b"T")


def _falls(head: bytes) -> bool:
    """Say whether the times of the first lines fall and never rise, as a store answers the newest lines first."""
    last, times, missing = b"\xff", 0, 0
    for line in head.split(b"\n")[:-1]:
        stamp = _stamp(line)
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


def _turned(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a log from its end; those without a time stay behind the one that they follow."""
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > MAX_TURNED:
            raise NcclLogError(
                "the newest line comes first in a log of more than %d MB: ask for the oldest first, or use tac"
                % (MAX_TURNED >> 20)
            )
    records: list[list[bytes]] = []
    for line in bytes(data).splitlines(keepends=True):
        if not records or _stamp(line) is not None:
            records.append([])
        records[-1].append(line if line.endswith(b"\n") else line + b"\n")
    yield b"".join(line for record in reversed(records) for line in record)
