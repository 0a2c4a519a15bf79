"""Tables of other benches: any header that names a size and a bandwidth, and the rows below it.

It reads the tables of torch.distributed benches (ml-engineering's all_reduce_bench, DeepSpeed's ds_bench) and of
Markdown reports. A unit is in the header or after the number; the latter takes precedence.
"""

from __future__ import annotations

import math
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .headings import collective_of
from .rows import number


class Form(NamedTuple):
    """The content of each column: its role, and the value of one unit in bytes, microseconds or GB/s."""

    columns: Tuple[Tuple[Optional[str], float], ...]
    piped: bool


class BenchTitle(NamedTuple):
    """The text of a bench before its numbers."""

    collective: Optional[str]
    ranks: Optional[int]
    payload: Optional[float]  # bytes; set if the numbers are in the next lines and not in a table


_WORTH = re.compile(rb"(?i)(?:algo? ?bw|throughput|size|payload).{0,80}bus ?(?:bw|bandwidth)|busbw.{0,60}algo?bw")
_AVERAGE_OF = re.compile(
    rb"The average bandwidth of (\w+) (?:with a ([\d.]+)GB payload \([^)]{0,60}?(\d+) ranks\)|over (\d+) ranks)"
)
_PERFORMANCE_OF = re.compile(rb"---- Performance of (\w+) on (\d+) devices")
_CELL = re.compile(rb"[*`~\s]*(-?(?:[\d.,]+(?:e[+-]?\d+)?|nan|inf))\s?([A-Za-z/]{1,8})?")
_CHECKED = {b"pass": 0.0, b"passed": 0.0, b"ok": 0.0, b"fail": 1.0, b"failed": 1.0}
_UNIT_BLANK = re.compile(rb"(?<=\d) (?=(?:[KMGT]i?B|[mun]?s)\b)")
_GAPS = re.compile(rb"\s{2,}|\t")
_ROLES = (
    ("busbw", re.compile(rb"bus ?bw|bus bandwidth")),
    ("algbw", re.compile(rb"algo? ?bw|throughput|bandwidth")),
    ("#wrong", re.compile(rb"wrong|validation|correct")),
    ("size", re.compile(rb"\bsize|payload|\bbytes\b")),
    ("time", re.compile(rb"\btime|latency|duration")),
)
_SIDED = ("busbw", "algbw", "time", "#wrong")
_IN_PLACE = " in place"
# Units of a size, a time and a bandwidth. Benches count sizes in powers of two, whatever they call them.
_BYTES = {b"b": 1.0, b"k": 1024.0, b"m": 1024.0**2, b"g": 1024.0**3, b"t": 1024.0**4}
_MICROSECONDS = {b"us": 1.0, b"usec": 1.0, b"ms": 1e3, b"s": 1e6, b"sec": 1e6, b"ns": 1e-3}
_GIGABYTES = {b"GBps": 1.0, b"GB/s": 1.0, b"GB/sec": 1.0, b"MB/s": 1e-3, b"MBps": 1e-3, b"Gbps": 0.125, b"Gb/s": 0.125}


def _scale(role: str, unit: bytes) -> Optional[float]:
    """Return the value of one unit in a row's units; None if it is not a unit of the role."""
    role = role.partition(" ")[0]
    if role == "size":
        return _BYTES.get(unit[:1].lower())
    return _MICROSECONDS.get(unit.lower()) if role == "time" else _GIGABYTES.get(unit)


def form_of(raw: bytes) -> Optional[Form]:
    """Read a header; None if it is not one, or one of nccl-tests, which names a data type or has two sides."""
    if not _WORTH.search(raw):
        return None
    piped = raw.count(b"|") > 1
    cells = raw.strip().strip(b"|").split(b"|") if piped else _GAPS.split(raw.replace(b"#", b" ").strip())
    if len(cells) < 3:
        cells = raw.replace(b"#", b" ").split()
    columns: List[Tuple[Optional[str], float]] = []
    for cell in cells:
        low = cell.lower()
        role = next((name for name, pattern in _ROLES if pattern.search(low)), None)
        if role in _SIDED and (b"in-place" in low or b"in place" in low):
            role += _IN_PLACE
        if role is not None and any(role == known for known, _ in columns):
            if role in ("busbw", "busbw" + _IN_PLACE, "size"):
                return None
            role = None
        unit = cell[cell.rfind(b"(") + 1 : cell.rfind(b")")].strip() if b"(" in cell else b""
        columns.append((role, (_scale(role, unit) if role else None) or 1.0))
    roles = {role for role, _ in columns}
    return Form(tuple(columns), piped) if {"size", "busbw"} <= roles and not _nccl_tests(cells) else None


def _nccl_tests(cells: List[bytes]) -> bool:
    return any(cell.strip().strip(b'#"').lower() in (b"type", b"redop", b"root") for cell in cells)


def row_of(form: Form, raw: bytes) -> Optional[Dict[str, Any]]:
    """Read a row; None for any other line."""
    if form.piped:
        cells = raw.strip().strip(b"|").split(b"|") if b"|" in raw else []
    else:
        cells = _UNIT_BLANK.sub(b"", raw.replace(b"|", b" ")).split()
        if len(cells) > len(form.columns) and not any(number(cell) is not None for cell in cells[: -len(form.columns)]):
            cells = cells[-len(form.columns) :]  # the first cell may be a host's name, or another tag
    if len(cells) != len(form.columns):
        return None
    values: Dict[str, float] = {}
    for (role, scale), cell in zip(form.columns, cells):
        if role is None:
            continue
        if role[:6] == "#wrong" and cell.strip().lower() in _CHECKED:
            values[role] = _CHECKED[cell.strip().lower()]
            continue
        match = _CELL.match(cell)
        value = number(match.group(1)) if match else None
        if match is None or value is None or (role == "size" and not 0 <= value < 1e18):
            return None
        values[role] = value * ((_scale(role, match.group(2)) if match.group(2) else None) or scale)
    return _row(values)


def row_said(payload: float, algbw: Optional[float], busbw: float) -> Dict[str, Any]:
    """Return the row of a bench that prints its only result as a sentence."""
    row = _row({"size": payload, "busbw": busbw})
    row["out_of_place"]["algbw_gbps"] = algbw
    return row


def _row(values: Dict[str, float]) -> Dict[str, Any]:
    time = values.get("time")
    algbw = values.get("algbw")
    second = {name: values.get(name + _IN_PLACE) for name in _SIDED}
    size = int(values["size"])
    return {
        "size_bytes": size,
        "count": None,
        "type": None,
        "redop": None,
        "root": None,
        "out_of_place": _side(time, algbw, values.get("busbw"), values.get("#wrong")),
        "in_place": _side(second["time"], second["algbw"], second["busbw"], second["#wrong"])
        if any(value is not None for value in second.values())
        else None,
    }


def _side(
    time: Optional[float], algbw: Optional[float], busbw: Optional[float], wrong: Optional[float]
) -> Dict[str, Any]:
    wrong = None if wrong is None or not math.isfinite(wrong) else math.ceil(wrong)
    return {"time_us": time, "algbw_gbps": algbw, "busbw_gbps": busbw, "wrong": wrong}


def bench_title(raw: bytes) -> Optional[BenchTitle]:
    """Read the text before a bench's numbers."""
    match = _AVERAGE_OF.search(raw)
    if match:
        payload = number(match.group(2)) if match.group(2) else None
        return BenchTitle(
            collective_of(match.group(1)),
            int(match.group(3) or match.group(4)),
            None if payload is None else payload * 1e9,
        )
    match = _PERFORMANCE_OF.search(raw)
    if match:
        return BenchTitle(collective_of(match.group(1)), int(match.group(2)), None)
    return None


_VALUE_SAID = re.compile(rb"(?:^|[\s:\]])(algbw|busbw): ([\d.]+) (GBps|GB/s)")


def value_said(raw: bytes) -> Optional[Tuple[str, float]]:
    """Return the bandwidth that a line has in words (``busbw: 449.515 GBps``), in GB/s."""
    match = _VALUE_SAID.search(raw)
    value = number(match.group(2)) if match else None
    return None if match is None or value is None else (match.group(1).decode("ascii"), value)
