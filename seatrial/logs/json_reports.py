"""Converts reports in JSON and CSV: benchmarks' to the table that the same one prints, DCGM's to a line per result.

nccl-tests ``-J``, rccl-tests ``-Z json`` (a list, or a record a line) and ``-Z csv``, ``dcgmi diag -j`` and its table.
They are in a separate file or after a log, with or without a launcher's tag before every line, complete or truncated.
Only figures and names are taken from a report: its environment block holds the whole environment of the process,
secrets included.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from ..faults.catalogue import catalogue
from ..faults.dcgm import action_of, fault_of, is_persistence, text_of
from .reader import dcgm
from .reader.events import signals
from .reader.events.signals import matters
from .reader.lines.patterns import DIGITS
from .reader.tables.headings import PERF
from .rows import mean

MAX_REPORT = 16 * 1024 * 1024
MAX_ROWS = 4096
_TRIED = 16 * MAX_REPORT
"""Maximum number of bytes that are decoded to find the end of a report: each possible last line is tried."""
_WORDS, _LONGEST_WORD = (b'"start_time"', b'"numCycle"', b'"inPlace"', b"busBw,", b"busbw,", *dcgm.MARKS), 22
_HEADS = (b"numCycle,", b"collective,")  # the beginning of a CSV file; one after a log has lines with a leading #
_BEGINNINGS = (
    re.compile(rb'(\{)[^{}"]*"version"\s*:\s*\d+\s*,[^{}"]*"start_time"\Z'),  # nccl-tests
    re.compile(rb'(\[)\s*\{[^{}"]*"numCycle"\Z'),  # rccl-tests: a list that begins on a line with its first record,
    re.compile(rb'(\[)\s*\n[^{}"\n]*\{[^{}"]*"numCycle"\Z'),  # or on the line before
    re.compile(
        rb'(\{)"name"\s*:\s*"\w+"[^{}\n]*"inPlace"\Z'
    ),  # records without a list around them (common.cu, Reporter)
    re.compile(rb"(?:\A|[\n :>|\]])((?:numCycle|collective),[^\n]*algbw, ?busbw,)\Z", re.IGNORECASE),
    re.compile(rb'(\{)\s*"DCGM (?:GPU )?Diagnostic"\Z'),
    re.compile(rb"(?:\A|[\n :>|\]])(\| Diagnostic  )\Z"),
)
_APART = 64  # consecutive other lines after which a report of lines is over: other processes write between them
_COLUMNS = {"collective": "name", "numcycle": "numCycle", "inplace": "inPlace", "algbw": "algBw", "busbw": "busBw"}
_COLUMNS |= {"#wrong": "wrong"}
_RECORD = re.compile(rb'\{"name"')
_NEAR = 4096  # bytes before a mark in which its report begins
_PIECE = re.compile(
    rb'\s*(?:$|[}\]]+,?\s*$|[{\[]\s*(?:$|["{\[])|"[^"\n]*"\s*(?:[:,]|$)|(?:-?[\d.eE+]+|true|false|null|NaN|-?Infinity),?\s*$)'
)
_VERSION = re.compile(r'"nccl_version"\s*:\s*(\d{4,6})')
_SETTINGS = {"minimum_bytes": "minBytes", "maximum_bytes": "maxBytes", "iterations": "iters"}
_SETTING = re.compile(r'"(%s)"\s*:\s*(\d{1,18})' % "|".join(_SETTINGS))
_ITEM = re.compile(r'\{\s*"(size|rank|numCycle)"\s*:')
_WIDTHS = {"half": 2, "bfloat16": 2, "double": 8, "int64": 8, "uint64": 8, "int8": 1, "uint8": 1}
_KNOWN = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter"}
_HEADER = "#  size  count  type  redop  root" + "  time  algbw  busbw  #wrong" * 2
_SIDES = ("out_of_place", "in_place")
_LONGEST = 32 * 1024  # characters of such lines that represent one


def spelled_out(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the chunks of a log; a report is replaced by the lines of its table, on as many lines if they fit."""
    data, seen = next(chunks, b""), 0
    while data:
        mark = (
            _marked(data, seen) if b"{" in data or b"#" in data or dcgm.TABLE in data or data.startswith(_HEADS) else -1
        )
        begin = _begin(data[max(0, mark - _NEAR) : mark], max(0, mark - _NEAR)) if mark >= 0 else None
        if begin is not None:
            line = data.rfind(b"\n", 0, begin) + 1
            yield data[:line]
            lines = _Lines(data[line:], chunks)
            yield from _spelled(lines, begin - line)
            data, seen = lines.rest or next(chunks, b""), 0
        elif mark >= 0:
            seen = mark
        elif more := next(chunks, b""):
            kept = max(0, len(data) - _NEAR)  # where a report may begin: on one of the last two lines
            if b"{" not in more and b"{" not in data[kept:]:
                kept = max(kept, data.rfind(b"\n", 0, max(0, data.rfind(b"\n"))) + 1)
            yield data[:kept]
            data = data[kept:] + more
            seen = max(0, len(data) - len(more) - _LONGEST_WORD)
        else:
            yield data
            return


def _marked(data: bytes, start: int) -> int:
    """Return the end of the first word after ``start`` that identifies a report; -1 without one."""
    ends = [at + len(word) for word in _WORDS if (at := data.find(word, start)) >= 0]
    return min(ends, default=-1)


def _begin(before: bytes, start: int) -> int | None:
    """Return the start of the report with a word that ends these bytes; None if the word is not a report's."""
    matches = (pattern.search(before) for pattern in _BEGINNINGS)
    return next((start + match.start(1) for match in matches if match), None)


class _Lines:
    """The lines read so far and those to come; ``rest`` was read and not consumed."""

    def __init__(self, rest: bytes, chunks: Iterator[bytes]) -> None:
        self.rest = rest
        self._chunks = chunks

    def next(self) -> bytes:
        """Take the next line with its end; nothing after the last one."""
        parts, at = [self.rest], self.rest.find(b"\n")
        while at < 0 and (more := next(self._chunks, b"")):
            parts.append(more)
            at = more.find(b"\n")
        whole = b"".join(parts)
        end = whole.find(b"\n") + 1 or len(whole)
        self.rest = whole[end:]
        return whole[:end]


def _spelled(lines: _Lines, column: int) -> Iterator[bytes]:
    """Yield the lines of a report's table, and the text before and between the lines of the report."""
    first = lines.next()
    tag, opening = first[:column], first[column:]
    if matters(tag):  # not a launcher's: another process wrote on the same line
        yield tag + b"\r"
    if opening.startswith(dcgm.TABLE):
        yield from _of_dcgm_table(lines, tag, opening)
        return
    if opening[:1] not in b"{[" or _RECORD.match(opening):
        yield from _of_lines(lines, tag, opening)
        return
    closing = b"}" if opening[:1] == b"{" else b"]"
    text, content, size, tried = [opening], None, len(opening), 0
    twice: list[str] = []
    while size < MAX_REPORT and tried < _TRIED:
        ends = text[-1].rstrip()[-1:] == closing
        if ends and (tried < _TRIED // 2 or text[-1][:1] not in b" \t"):  # large reports: only the first bracket
            content, tried = _decoded(b"".join(text), twice), tried + size
            if content is not None:
                break
        line = lines.next()
        piece = _untagged(line, tag)
        if not line:
            break
        if _PIECE.match(piece):
            text.append(piece)
            size += len(piece)
        else:
            yield line if line.endswith(b"\n") else line + b"\r"
    joined = b"".join(text).decode("utf-8", "replace")
    whole = content is not None
    if any(word in opening or word in b"".join(text[:2]) for word in dcgm.MARKS):
        yield from _placed(_of_dcgm(*dcgm.read(joined.encode()), _host(tag)), len(text))
        return
    content = _salvaged(joined, closing == b"]", twice) if content is None else content
    table = _of_rccl(content, whole) if isinstance(content, list) else _of_nccl(content)
    yield from _placed(_doubted(table, twice), len(text))


def _untagged(line: bytes, tag: bytes) -> bytes:
    """Return a line of a report without the launcher's tag, in which only digits may differ."""
    return line[len(tag) :] if line[: len(tag)].translate(DIGITS) == tag.translate(DIGITS) else line


def _of_lines(lines: _Lines, tag: bytes, opening: bytes) -> Iterator[bytes]:
    """Yield the table of a report with one record a line, and other processes' lines between them."""
    names = [] if opening.startswith(b"{") else [_COLUMNS.get(name.lower(), name) for name in _fields(opening)]
    if names and not {"size", "inPlace"} <= {*names}:
        yield tag + opening
        return
    records: list[dict[str, Any]] = []
    twice: list[str] = []
    line, taken, between, whole = lines.next() if names else tag + opening, len(names[:1]), 0, True
    while line and len(records) < MAX_ROWS * 4 and between < _APART:
        piece = _untagged(line, tag)
        record = _record(names, _fields(piece)) if names else _decoded(piece, twice)
        if isinstance(record, dict) and "size" in record:
            records.append(record)
            taken, between = taken + 1, 0
        else:
            yield line
            between, whole = between + 1, line.endswith(b"\n")
        line = lines.next()
    lines.rest = line + lines.rest
    yield from _placed(_doubted(_of_rccl(records, whole), twice), max(1, taken))


def _fields(line: bytes) -> list[str]:
    return [field.strip().strip('"') for field in line.decode("utf-8", "replace").split(",")]


def _record(names: list[str], fields: list[str]) -> dict[str, Any] | None:
    """Return a line of a CSV file by the names of its columns; None if it is another line.

    The header lacks the number of nodes that MPI programs write after the name (Reporter::addResult).
    """
    if len(fields) == len(names) + 1:
        del fields[names.index("name") + 1 if "name" in names else -1]
    return dict(zip(names, fields, strict=True)) if len(fields) == len(names) > 1 else None


def _doubted(table: list[str], twice: list[str]) -> list[str]:
    """Return a table that reports two values for one key: neither is known to be right."""
    said = [f"# Out of bounds values : {_word(key, 30)}-given-twice" for key in dict.fromkeys(twice[:4])]
    end = next((at for at, line in enumerate(table) if line.startswith("# Avg")), len(table))
    return table[:end] + said + table[end:]


def _decoded(text: bytes, twice: list[str]) -> Any:
    """Return the content of a report, None without its end; ``twice`` gets the keys with two values."""
    try:
        return json.loads(text, object_pairs_hook=partial(_object, twice))
    except (ValueError, RecursionError):
        return None


def _object(twice: list[str], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice += [key for key, value in pairs if made[key] != value][: 4 - len(twice[:4])]
    return made


def _placed(table: list[str], lines: int) -> Iterator[bytes]:
    """Yield the lines of a table on as many lines as the report had, so that later lines keep their numbers."""
    together = max(1, math.ceil(len(table) / lines))
    groups = ["\r".join(table[at : at + together]) for at in range(0, len(table), together)]
    if any(len(group) > _LONGEST for group in groups):
        groups = table
    groups += [""] * (lines - len(groups))
    yield "".join(group + "\n" for group in groups).encode("utf-8", "replace")


# -- nccl-tests --------------------------------------------------------------------------------------------------------
def _of_nccl(report: dict[str, Any]) -> list[str]:
    config, arguments = report.get("config"), report.get("args")
    config = config if isinstance(config, dict) else {}
    code = report.get("nccl_version")
    out = ["# nccl-tests version json nccl-library=%d" % code] if isinstance(code, int) and 2000 < code < 10**6 else []
    command = " ".join(map(str, arguments[:2])) if isinstance(arguments, list) else ""
    if test := PERF.search(command.encode("utf-8", "replace")):
        out.append("# Collective test starting: %s_perf" % test.group(1).decode())
    settings = [f"{name} {config[key]}" for key, name in _SETTINGS.items() if isinstance(config.get(key), int)]
    out.append("# nThread 1 " + " ".join(settings) if settings else "#")
    out += [line for item in _dicts(config.get("devices"))[: 1 << 16] if (line := _device(item))]
    rows = _dicts(report.get("results"))
    out.append(_HEADER)
    out += [_row(item, [item.get(side) for side in _SIDES]) for item in rows[:MAX_ROWS]]
    bounds, average = report.get("out_of_bounds"), report.get("average_bus_bandwidth")
    if isinstance(bounds, dict):
        out.append("# Out of bounds values : %s%s" % (_figure(bounds.get("count")), _okay(bounds)))
    if isinstance(average, dict) and isinstance(report.get("end_time"), str):
        out.append("# Avg bus bandwidth    : %s%s" % (_figure(average.get("bandwidth")), _okay(average)))
    errors = report.get("errors")
    for error in errors[:MAX_ROWS] if isinstance(errors, list) else [errors]:
        if error and str(error).strip():  # a run without errors has an empty text
            out.append("Test NCCL failure: " + _word(str(error), 240, " "))
    return out


def _device(item: dict[str, Any]) -> str:
    place = [item.get(key) for key in ("rank", "pid", "device")]
    if not all(isinstance(number, int) and number >= 0 for number in place):
        return ""
    host, bus, name = (_word(str(item.get(key, ""))) for key in ("hostname", "device_hex", "device_info"))
    return "#  Rank {} Group 0 Pid {} on {} device {} [{}] {}".format(
        place[0], place[1], host or "?", place[2], bus, name.replace("_", " ")
    )


# -- rccl-tests --------------------------------------------------------------------------------------------------------
def _of_rccl(records: list[Any], whole: bool) -> list[str]:
    """Return the tables of records, one for each size and placement: a table for each test."""
    tests: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
    again: Counter[tuple[Any, ...]] = Counter()
    for item in _dicts(records)[: MAX_ROWS * 4]:
        test = str(item.get("name", "")).lower()
        rows = tests.setdefault(test, {})
        side = _SIDES[str(item.get("inPlace")) in ("1", "True", "true")]
        what = test, *(str(item.get(key)) for key in ("numCycle", "size", "type", "redop", "root"))
        again[what, side] += 1  # a repeated run has its own row
        row = rows.setdefault((*what, again[what, side]), {"item": item})
        row[side] = {
            "time": item.get("time"),
            "alg_bw": item.get("algBw"),
            "bus_bw": item.get("busBw"),
            "nwrong": item.get("wrong"),
        }
    out: list[str] = []
    for test, rows in tests.items():
        out.append("# Collective test starting: %s_perf" % _KNOWN.get(test.replace("_", ""), _word(test) or "unknown"))
        sizes = [int(size) for row in rows.values() if (size := _figure(row["item"].get("size"))).isdigit()]
        out += ["# nThread 1 minBytes %d" % min(sizes, default=0), _HEADER]
        out += [_row(row["item"], [row.get(side) for side in _SIDES]) for row in list(rows.values())[:MAX_ROWS]]
        values = [
            float(busbw) for row in rows.values() for side in _SIDES if (busbw := _busbw(row.get(side))) is not None
        ]
        if whole and values:  # the benchmark's last line, omitted here
            out.append("# Avg bus bandwidth    : %r" % mean(values))
    return out


def _busbw(side: dict[str, Any] | None) -> float | None:
    try:
        value = float(side["bus_bw"]) if side else math.nan
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


# -- DCGM's diagnostics ------------------------------------------------------------------------------------------------
_HOST = re.compile(rb"\s*[\[(]?([A-Za-z][\w.-]{0,62})[\])]?[:>|]?\s*")  # a host tag of pdsh, clush or srun
MOST_FAILURES = 24  # each failure is an event, and a stream keeps state.process.MAX_NOTES


def _of_dcgm_table(lines: _Lines, tag: bytes, opening: bytes) -> Iterator[bytes]:
    """Yield the results of a dcgmi table, and other processes' lines between them."""
    table, line, between, mixed = [opening.decode("utf-8", "replace").rstrip()], lines.next(), 0, False
    host = _host(tag)
    while line and between < _APART and len(table) < MAX_ROWS:
        piece = _untagged(line, tag).decode("utf-8", "replace").rstrip()
        mixed = mixed or dcgm.TABLE in line
        if host.encode() in line[: len(tag)] and dcgm.of_table(piece):
            table.append(piece)
            between = 0
            if len(table) > 2 and dcgm.RULE.match(piece):
                break
        else:
            yield line if line.endswith(b"\n") else line + b"\r"
            between += 1
        line = lines.next()
    else:
        lines.rest = line + lines.rest
    after = lines.next()
    lines.rest = after + lines.rest
    if dcgm.TABLE in after:  # the rule is the first line of another table
        table.pop()
    version, results, gpus, problem = dcgm.read_table(table)
    problem = problem or ("another report is between its lines" if mixed else "")
    yield from _placed(_of_dcgm(version, results, problem, host, gpus), len(table))


def _host(tag: bytes) -> str:
    """Return the host that a launcher's tag names; '' without one."""
    match = _HOST.fullmatch(tag)
    return match.group(1).decode() if match else ""


def _of_dcgm(
    version: str | None, results: list[dict[str, Any]], problem: str, host: str = "", gpus: int = 0
) -> list[str]:
    """Return a line for each failed result and each that is left open, and one that counts the others."""
    failures, doubts = [], ["this report of dcgmi diag is not read to its end: %s" % problem] if problem else []
    for result in results:
        fault, status = fault_of(result), result["status"]
        said = _word(text_of(result), 400, " ")
        if is_persistence(result) or status in ("pass", "skip"):
            continue
        if not fault:
            doubts.append(said)
            continue
        who = (host + " " + ", ".join(result["who"][:8])).strip() or "no single GPU"
        action = action_of(result, fault) or catalogue()[fault].action_for(said) or "-"
        failures.append(" | ".join(["fail", fault, action, _word(who, 80, " "), said]))
    if len(failures) > MOST_FAILURES:
        doubts.append("%d more tests failed" % (len(failures) - MOST_FAILURES))
    of = {status: [each for each in results if each["status"] == status] for status in ("pass", "skip")}
    judged = [each for each in results if each["status"] not in of and not is_persistence(each)]
    failed = {each["test"] for each in judged if each["status"] == "fail"}
    bad = {each["test"] for each in judged}
    passed = {each["test"] for each in of["pass"]} - bad
    named = {who for each in of["pass"] for who in each["who"] if who.startswith("GPU ")}
    on = max(len(named), gpus if any(not each["who"] for each in of["pass"]) else 0)
    named_version = "DCGM %s" % version if version else "DCGM"
    text = "%s: %s passed%s" % (
        named_version,
        _tests(len(passed)),
        " on %d GPU%s" % (on, "" if on == 1 else "s") if on and passed else "",
    )
    skipped = {each["test"] for each in of["skip"]} - passed - bad
    text += "".join(
        ", %d %s" % (len(names), how)
        for names, how in ((failed, "failed"), (bad - failed, "open"), (skipped, "skipped"))
        if names
    )
    lines = [*failures[:MOST_FAILURES], *("open | " + each for each in doubts[:4]), "counted | " + text]
    return [signals.DCGM.decode() + _word(line, 600, " ") for line in lines]


def _tests(count: int) -> str:
    return "no test" if not count else "%d test%s" % (count, "" if count == 1 else "s")


# -- parts -------------------------------------------------------------------------------------------------------------
def _row(item: dict[str, Any], sides: list[Any]) -> str:
    kind, size = _word(str(item.get("type") or "float")), _figure(item.get("size"))
    count = item.get("count")
    if count is None and size.isdigit():
        count = int(size) // _WIDTHS.get(kind, 4)
    size = size if size.isdigit() else "0"  # an invalid size counts as an unreadable row
    left = [size, _figure(count, "0"), kind, _word(str(item.get("redop") or "none")), _figure(item.get("root"), "-1")]
    for side in sides:
        values = side if isinstance(side, dict) else {}
        figures = [values.get("time", values.get("cpu_time")), *map(values.get, ("alg_bw", "bus_bw", "nwrong"))]
        left += [_figure(value) for value in figures]
    return "  " + "  ".join(left)


_NO_NUMBER = "unreadable"


def _figure(value: Any, missing: str = "N/A") -> str:
    """Return a number as printed: whole ones without a point; a missing one as N/A, else unchanged."""
    if value is None or (isinstance(value, str) and value.strip() in ("", "N/A")):
        return missing
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return _NO_NUMBER
    if isinstance(value, bool):
        return _NO_NUMBER
    return "%d" % number if number.is_integer() and abs(number) < 1e18 else repr(number)


def _word(text: str, limit: int = 64, blank: str = "_") -> str:
    return re.sub(r"[\s\x00-\x1f]+", blank, text.strip())[:limit]


def _okay(verdict: dict[str, Any]) -> str:
    return {"true": " OK", "false": " FAILED"}.get(str(verdict.get("okay")).lower(), "")


def _dicts(items: Any) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _salvaged(text: str, listed: bool, twice: list[str]) -> Any:
    """Return the complete records of a truncated report, which a crash leaves open."""
    decoder = json.JSONDecoder(object_pairs_hook=partial(_object, twice))
    items = {"size": [], "rank": [], "numCycle": []}  # type: ignore[var-annotated]
    for match in _ITEM.finditer(text):
        if len(items[match.group(1)]) < MAX_ROWS * 4:
            try:
                items[match.group(1)].append(decoder.raw_decode(text, match.start())[0])
            except (ValueError, RecursionError):
                continue
    if listed:
        return items["numCycle"]
    config = {name: int(value) for name, value in _SETTING.findall(text)}
    report: dict[str, Any] = {"results": items["size"], "config": {**config, "devices": items["rank"]}}
    if version := _VERSION.search(text):
        report["nccl_version"] = int(version.group(1))
    if (start := text.find('"args"')) >= 0:
        try:
            report["args"] = decoder.raw_decode(text, text.index("[", start))[0]
        except (ValueError, RecursionError):
            report["args"] = []
    return report
