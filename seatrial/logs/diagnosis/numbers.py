"""The consistency of a table's numbers: impossible, contradictory or falling values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from ..job_document import ReadTable, Row, Side
from ..rows import bandwidths, mean, sides

# One order of magnitude above the fastest NVLink domain of 2026 (932 GB/s over 64 GPUs, bandwidth/published.yaml).
_MOST_GBPS = 10_000.0


def unreasonable(table: ReadTable, ranks: int | None) -> list[str]:
    """Return impossible numbers: beyond any fabric, or 0 for a large message of several ranks."""
    texts = []
    for size, value in busbw(table):
        if value > _MOST_GBPS:
            texts.append("busbw at %d bytes is %g GB/s" % (size, value))
        elif value == 0 and size >= 64 << 20 and ranks != 1:
            texts.append("busbw at %d bytes is 0" % size)
    if table["unreadable"] and table["complete"]:  # a truncated table's last row may be half of one
        texts.append("%d of its rows cannot be read" % table["unreadable"])
    texts += _ends(table)
    texts += _uneven(table)
    texts += _numberless(table)
    for row in table["rows"]:  # check each side: the better one of a row may hide a missing one
        for side in sides(row):
            if row["count"] is not None:
                texts += _contradicting(row["size_bytes"], side, table["collective"], ranks)
            numbers = {"busbw": side["busbw_gbps"], "algbw": side["algbw_gbps"], "time": side["time_us"]}
            for key, number in numbers.items():
                if number is not None and number < 0:
                    texts.append("%s at %d bytes is %g" % (key, row["size_bytes"], number))
    return texts[:8]


_UNEVEN, _LARGE = 4.0, 64 << 20
"""A row's two runs do the same work: in real tables they differ by a factor of at most 1.33 from 64 MiB on."""


def _uneven(table: ReadTable) -> Iterator[str]:
    """Yield repeats of large messages with a large spread, out of place and in place or row by row."""
    again: dict[tuple[int, str | None, str | None, int | None], list[float]] = {}
    for row in table["rows"]:
        values = bandwidths(row)
        if row["size_bytes"] < _LARGE or not values:
            continue
        if len(values) > 1 and max(values) > _UNEVEN * min(values) > 0:
            yield "busbw at %d bytes is %g GB/s out of place and %g in place" % (row["size_bytes"], *values)
        again.setdefault((row["size_bytes"], row["type"], row["redop"], row["root"]), []).append(max(values))
    for key, best in again.items():
        if max(best) > _UNEVEN * min(best) > 0:
            yield "busbw at %d bytes is %g GB/s in one row and %g in another" % (key[0], max(best), min(best))


def _ends(table: ReadTable) -> Iterator[str]:
    """Yield impossible values in the table's last lines."""
    average, wrong = table["avg_busbw"], table["out_of_bounds"]
    if wrong is not None and wrong < 0:
        yield "%d values are out of bounds" % wrong
    if average is not None and average < 0:
        yield "the average bus bandwidth is %g" % average
    elif average and not table["rows"] and table["columns"] and not table["unreadable"]:
        yield "%g GB/s is the average of no row" % average


def of_other_rows(table: ReadTable) -> list[str]:
    """Describe signs of missing rows in a table: missing sizes, or an average that does not match."""
    average, values = table["avg_busbw"], [value for row in table["rows"] for value in bandwidths(row)]
    gaps = list(_gaps(table))
    if gaps or average is None or average < 0 or table["unreadable"] or not values:
        return gaps
    if abs(average - mean(values)) <= _AVERAGED * average + _DIGITS:
        return []
    what = "%g GB/s is not the average of the %d rows (%.4g): some are missing, or numbers were changed"
    return [what % (average, len(table["rows"]), mean(values))]


_AVERAGED, _DIGITS = 0.01, 0.02
"""The last line is the mean of busbw over all rows and both sides (nccl-tests, common.cu: ``bw / bw_count``), of values
printed with two decimals: in real tables the difference is at most 0.005 GB/s."""


def _numberless(table: ReadTable) -> Iterator[str]:
    """Yield the rows of an nccl-tests table that lack a number for one of its columns."""
    for row in table["rows"] if "busbw" in table["columns"] and not table["odd"] else ():
        if row["count"] is not None and not bandwidths(row):
            yield "no bandwidth is given at %d bytes" % row["size_bytes"]
        elif row["count"] is not None and {"time", "algbw"} <= {*table["columns"]}:
            for side in sides(row):
                if None in (side["time_us"], side["algbw_gbps"], side["busbw_gbps"]):
                    yield "time, algbw or busbw is missing at %d bytes" % row["size_bytes"]


def _gaps(table: ReadTable) -> Iterator[str]:
    """Yield the neighbouring sizes between which sizes of the sweep are missing, according to its first line."""
    step, kind = table["config"].get("step"), table["config"].get("step_kind")
    sizes = sorted({row["size_bytes"] for row in table["rows"]})
    if step is None or isinstance(step, str) or step <= 1:
        return
    for one, other in pairwise(sizes):
        last = one * step if kind == "factor" else one + step if kind == "bytes" else other
        if one >= _ROUNDED_SIZE and other > last * 1.25:
            yield "no row is between %d and %d bytes" % (one, other)


_ROUNDED_SIZE = 1 << 20
"""Bytes; a size is rounded to a multiple for all ranks, so that small ones vary (nccl-tests, getCollByteCount)."""


ALLOWED_ERROR = {"half": 1e-2, "bfloat16": 1e-2, "float": 1e-5, "double": 1e-12}
ALLOWED_ERROR |= dict.fromkeys(("char", "int", "int8", "uint8", "int32", "uint32", "int64", "uint64"), 1e-200)
"""The accepted difference of a result for each rank but one, by type (nccl-tests before 2.13, common.cu: DeltaMaxValue,
and ``maxDelta > DeltaMaxValue(type)*(nranks - 1)`` in CheckData): the column ``error``, which 2.13 renamed
``#wrong``."""
_MOST_RANKS = 100_000


def _allowed(row: Row, ranks: int | None) -> float:
    """Return the largest error of a row that nccl-tests accepts; infinity for a type that it does not name."""
    return ALLOWED_ERROR.get(row["type"] or "", math.inf) * max((ranks or _MOST_RANKS) - 1, 1)


def too_large_errors(table: ReadTable, ranks: int | None) -> list[str]:
    """Return the errors of an old table that nccl-tests counts as wrong results."""
    return [
        "the error at %d bytes is %g, and nccl-tests allows %g" % (row["size_bytes"], error, _allowed(row, ranks))
        for row in table["rows"]
        for side in sides(row)
        if (error := side.get("error", 0.0)) > _allowed(row, ranks)
    ]


def counted(table: ReadTable, ranks: int | None) -> list[Row]:
    """Return the rows of a table; in an old one, values with an accepted error are not wrong."""
    for row in table["rows"]:
        for side in sides(row):
            if "error" in side and side["error"] <= _allowed(row, ranks or 2) < math.inf:
                side["wrong"] = 0
    return table["rows"]


_SOME = 100.0  # microseconds; lower values may be milliseconds
_MOST_FACTOR, _ROUNDED = 2.0, 0.1
"""busbw is at most twice algbw, and algbw is size over time (nccl-tests, doc/PERFORMANCE.md), printed with 3 digits."""


def _contradicting(size: int, side: Side, collective: str | None, ranks: int | None) -> list[str]:
    """Describe numbers of one nccl-tests row that contradict each other: another unit, or a manual edit."""
    time, algbw, busbw = side["time_us"], side["algbw_gbps"], side["busbw_gbps"]
    # The expected algbw, in GB/s. Few digits prove nothing; nccl-tests 1.0 printed milliseconds.
    timed = [size / time / unit for unit in (1e3, 1e6)] if time and time >= 1 else []
    if algbw is None or max(algbw, busbw or 0.0, *(timed[:1] if (time or 0) >= _SOME else ())) < 1:
        return []
    texts = []
    if time == 0:
        texts.append("%d bytes took no time" % size)
    least = (1 - _ROUNDED) * algbw  # for two ranks the factor is 1; for one rank it is 0
    if collective == "all_reduce" and (ranks or 0) > 1 and busbw is not None and 0 < busbw < least and algbw >= 10:
        texts.append(
            "busbw at %d bytes is %g and algbw %g GB/s, and of all_reduce the factor is 1 at least"
            % (size, busbw, algbw)
        )
    if busbw == 0 and (ranks or 0) > 1:
        texts.append("busbw at %d bytes is 0 and algbw %g GB/s" % (size, algbw))
    if busbw is not None and busbw > algbw * _MOST_FACTOR * (1 + _ROUNDED):
        texts.append(
            "busbw at %d bytes is %g and algbw %g GB/s, and no collective has a factor above 2" % (size, busbw, algbw)
        )
    if timed and all(abs(rate - algbw) > _ROUNDED * algbw for rate in timed[: 1 if (time or 0) >= _SOME else 2]):
        texts.append("%d bytes in %g us are %.4g GB/s, and algbw says %g" % (size, time or 0, timed[0], algbw))
    return texts


def sound_rows(table: ReadTable, ranks: int | None) -> list[Row]:
    """Return the rows with consistent numbers: torn rows hold numbers of others, and are not evidence."""
    sound = [
        row
        for row in table["rows"]
        if row["count"] is None
        or not any(_contradicting(row["size_bytes"], side, table["collective"], ranks) for side in sides(row))
    ]
    return sound if 2 * len(sound) > len(table["rows"]) else table["rows"]


def busbw(table: ReadTable, rows: Sequence[Row] | None = None) -> list[tuple[int, float]]:
    """Return (size, best bus bandwidth of the row) for every readable row, or for some."""
    points = []
    for row in table["rows"] if rows is None else rows:
        values = bandwidths(row)
        if values and math.isfinite(max(values)):
            points.append((int(row["size_bytes"]), float(max(values))))
    return points


def fall(table: ReadTable, rows: Sequence[Row] | None = None) -> tuple[float, float, int] | None:
    """Return the bus bandwidths before and after a collapse as messages grow, in GB/s, and its size in bytes.

    The largest message, of 64 MiB or more, reaches less than 40 % of the peak, or one between less than a quarter of a
    smaller one. Healthy curves rise and then remain level. In the corpus' healthy tables the largest size reaches more
    than 85 % of the peak, and every one from 64 MiB on more than 60 % of those before it. The defective link of row 72
    reaches 12 %.
    """
    best: dict[int, float] = {}
    for size, value in busbw(table, rows):
        best[size] = max(value, best.get(size, value))
    peak, sizes = 0.0, sorted(best)
    for size in sizes if len(sizes) > _FEW else ():
        least = _LAST if size == sizes[-1] else 1 / _UNEVEN
        if size >= _LARGE and peak > 1.0 and best[size] < least * peak:
            return peak, best[size], size
        peak = max(peak, best[size])
    return None


_FEW, _LAST = 3, 0.4
