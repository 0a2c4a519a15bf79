"""JSON reports of benchmarks: nccl-tests ``-J`` and rccl-tests ``-Z json``, whole or cut short.

Its environment block is never kept: it holds the whole environment of the process, secrets included (catalogue 3.4).
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from ..lines.clean import name, printable
from .headings import PERF, library_version
from .opened import new_table
from .rows import note_odd

if TYPE_CHECKING:
    from ..state.process import Source

MAX_DOCUMENT = 16 * 1024 * 1024
MAX_ROWS = 4096
_VERSION = re.compile(r'"nccl_version"\s*:\s*(\d{4,6})')
_ROW_START = re.compile(r'\{\s*"size"\s*:')
_DEVICE_START = re.compile(r'\{\s*"rank"\s*:')


class JsonReader:
    """Collects one JSON document, and reads it when the stream ends."""

    def __init__(self, source: Source, reader: Any) -> None:
        self.source = source
        self._reader = reader
        self._parts: List[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        """Keep the next bytes, up to the bound."""
        self.source.bytes += len(chunk)
        if self._size < MAX_DOCUMENT:
            self._parts.append(chunk[: MAX_DOCUMENT - self._size])
            self._size += len(chunk)
        else:
            self._reader.partial.limited = True

    def finish(self) -> None:
        """Read the document."""
        text = b"".join(self._parts).decode("utf-8", "replace")
        self._parts = []
        self.source.nccl_lines += 1
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = _salvage(text)
            self.source.cut = True
        if isinstance(document, list):
            self._rccl(document)
        elif isinstance(document, dict):
            self._nccl(document)
        self._reader.finish()

    def _nccl(self, document: Dict[str, Any]) -> None:
        table = new_table(1)
        code = document.get("nccl_version")
        table["version"] = library_version(code) if isinstance(code, int) and 2000 < code < 1000000 else None
        arguments = document.get("args")
        if isinstance(arguments, list):
            match = PERF.search(" ".join(str(item) for item in arguments[:2]).encode("utf-8", "replace"))
            table["collective"] = match.group(1).decode("ascii") if match else None
        config = document.get("config")
        if isinstance(config, dict):
            self._devices(config.get("devices"))
            table["config"] = {
                ours: config[theirs]
                for theirs, ours in (
                    ("minimum_bytes", "minBytes"),
                    ("maximum_bytes", "maxBytes"),
                    ("iterations", "iters"),
                    ("warmup_iters", "warmup_iters"),
                    ("validation", "validation"),
                )
                if isinstance(config.get(theirs), int)
            }
        rows = document.get("results")
        for item in rows[:MAX_ROWS] if isinstance(rows, list) else ():
            if isinstance(item, dict):
                _row(table, item)
        bounds = document.get("out_of_bounds")
        if isinstance(bounds, dict):
            table["out_of_bounds"] = _integer(bounds.get("count"))
            table["out_of_bounds_ok"] = {"true": True, "false": False}.get(str(bounds.get("okay")))
        average = document.get("average_bus_bandwidth")
        if isinstance(average, dict):
            table["avg_busbw"] = _finite(average.get("bandwidth"))
            table["avg_ok"] = {"true": True, "false": False}.get(str(average.get("okay")))
        table["complete"] = isinstance(document.get("end_time"), str) and table["avg_busbw"] is not None
        if table["complete"] and not table["rows"]:
            note_odd(table, "%s GB/s is the average of no row" % table["avg_busbw"])
        _mark_wrong(table)
        self.source.tables.append(table)
        errors = document.get("errors")
        for error in errors[:MAX_ROWS] if isinstance(errors, list) else ():
            if isinstance(error, str) and error.strip():  # a run without any has one that is empty
                self.source.note("test-failure", self._reader.index, 1, printable(error, 240).encode("utf-8"))

    def _devices(self, devices: Any) -> None:
        for item in devices[:65536] if isinstance(devices, list) else ():
            if not isinstance(item, dict) or not isinstance(item.get("rank"), int):
                continue
            self.source.ranks.setdefault(
                item["rank"],
                [
                    name(str(item.get("hostname", ""))),
                    _integer(item.get("pid")) or 0,
                    _integer(item.get("device")) or 0,
                    name(str(item.get("device_hex", ""))),
                    printable(str(item.get("device_info", "")), 60),
                    1,
                ],
            )

    def _rccl(self, records: List[Any]) -> None:
        """Read rccl-tests' list: one record per size and placement."""
        tables: Dict[str, Dict[str, Any]] = {}
        rows: Dict[Any, Dict[str, Any]] = {}
        for item in records[: MAX_ROWS * 4]:
            if not isinstance(item, dict) or _integer(item.get("size")) is None:
                continue
            test = str(item.get("name", ""))
            if test not in tables:
                tables[test] = new_table(1)
                match = PERF.search((test.lower() + "_perf").encode("utf-8", "replace"))
                known = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter"}
                tables[test]["collective"] = (
                    match.group(1).decode("ascii") if match else known.get(test.lower().replace("_", ""))
                )
                self.source.tables.append(tables[test])
            key = (test, item.get("numCycle"), item.get("size"), item.get("type"), item.get("redop"))
            if key not in rows:
                rows[key] = _blank(item)
                tables[test]["rows"].append(rows[key])
            place = "in_place" if str(item.get("inPlace")) in ("1", "True", "true") else "out_of_place"
            rows[key][place] = {
                "time_us": _finite(item.get("time")),
                "algbw_gbps": _finite(item.get("algBw")),
                "busbw_gbps": _finite(item.get("busBw")),
                "wrong": _wrong(tables[test], rows[key]["size_bytes"], item.get("wrong")),
            }
        for table in tables.values():
            table["complete"] = not self.source.cut
            _mark_wrong(table)


def _row(table: Dict[str, Any], item: Dict[str, Any]) -> None:
    row = _blank(item)
    if row["size_bytes"] is None:
        table["unreadable"] += 1
        return
    for side in ("out_of_place", "in_place"):
        values = item.get(side)
        if not isinstance(values, dict):
            continue
        time = values.get("time", values.get("cpu_time"))
        row[side] = {
            "time_us": _finite(time),
            "algbw_gbps": _finite(values.get("alg_bw")),
            "busbw_gbps": _finite(values.get("bus_bw")),
            "wrong": _wrong(table, row["size_bytes"], values.get("nwrong")),
        }
        for key in ("time", "alg_bw", "bus_bw"):
            if str(values.get(key)).lower() in ("nan", "inf", "-inf") and len(table["odd"]) < 8:
                table["odd"].append("%s at %d bytes is %s" % (key, row["size_bytes"], str(values[key]).lower()))
    table["rows"].append(row)


def _blank(item: Dict[str, Any]) -> Dict[str, Any]:
    root = item.get("root")
    return {
        "size_bytes": _integer(item.get("size")),
        "count": _integer(item.get("count")),
        "type": printable(str(item["type"]), 16) if "type" in item else None,
        "redop": printable(str(item["redop"]), 16) if item.get("redop") is not None else None,
        "root": _integer(root.strip() if isinstance(root, str) else root),
        "out_of_place": None,
        "in_place": None,
    }


def _mark_wrong(table: Dict[str, Any]) -> None:
    for row in table["rows"]:
        for side in ("out_of_place", "in_place"):
            if row[side] and row[side]["wrong"]:
                table["wrong_line"] = table["wrong_line"] or [
                    1,
                    "%s bytes, %s: nwrong %s" % (row["size_bytes"], side, row[side]["wrong"]),
                ]


def _wrong(table: Dict[str, Any], size: int, value: Any) -> Optional[int]:
    """Return a count of wrong values; what is no count is kept as an odd number."""
    number = _finite(value)
    odd = number is not None and number < 0
    if odd or str(value).lower().lstrip("-") in ("nan", "inf", "infinity"):
        note_odd(table, "#wrong at %d bytes is %s" % (size, value))
    return None if number is None or odd else math.ceil(number)


def _finite(value: Any) -> Optional[float]:
    """Return a number; None for anything that is none, and for ``nan`` and ``inf``."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _integer(value: Any) -> Optional[int]:
    number = _finite(value)
    return None if number is None else int(number)


def _salvage(text: str) -> Dict[str, Any]:
    """Take the whole rows and devices out of a document that was cut (a crash leaves it open, catalogue 3.4)."""
    decoder = json.JSONDecoder()
    document: Dict[str, Any] = {"results": [], "config": {"devices": []}}
    version = _VERSION.search(text)
    if version:
        document["nccl_version"] = int(version.group(1))
    for pattern, target in ((_ROW_START, document["results"]), (_DEVICE_START, document["config"]["devices"])):
        for match in pattern.finditer(text):
            if len(target) >= MAX_ROWS:
                break
            try:
                target.append(decoder.raw_decode(text, match.start())[0])
            except (ValueError, RecursionError):
                continue
    start = text.find('"args"')
    if start >= 0:
        try:
            document["args"] = decoder.raw_decode(text, text.index("[", start))[0]
        except (ValueError, RecursionError):
            document["args"] = []
    return document
