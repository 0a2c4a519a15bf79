"""The bench's output: the header, rows and footer of nccl-tests, which the log analyzer reads.

A side that is unsupported or was not measured is N/A and never 0.
"""

from __future__ import annotations

import math
from typing import Any, List, Mapping, Optional, Sequence

COLUMNS = ("time", "algbw", "busbw", "#wrong")
_LEFT = "# %10s  %12s  %8s  %6s  %6s"
_HALF = "  %7s  %6s  %6s %6s"


class Side:
    """The measurements of one size, out of place or in place."""

    def __init__(self, seconds: float, algbw: float, busbw: float, wrong: int) -> None:
        self.seconds, self.algbw, self.busbw, self.wrong = seconds, algbw, busbw, wrong


def header(name: str, library: str, options: Any, largest: int, places: Sequence[str]) -> List[str]:
    """Return the settings and the location of each rank."""
    lines = ["# seatrial %s bench, %s" % (name, library)]
    if largest < options.max_bytes:
        lines.append("# Reducing maxBytes to %d due to memory limitation" % largest)
    lines.append(
        "# nThread 1 nGpus 1 minBytes %d maxBytes %d step: %d(factor) warmup iters: %d iters: %d agg iters: 1"
        " validation: 1 graph: 0" % (options.min_bytes, largest, options.factor, options.warmup, options.iters)
    )
    lines += ["#", "# Using devices"]
    lines += ["#  Rank %2d Group  0 %s" % (rank, place) for rank, place in enumerate(places)]
    lines.append("#")
    lines.append(_LEFT % (("",) * 5) + "           out-of-place                       in-place")
    lines.append(_LEFT % ("size", "count", "type", "redop", "root") + _HALF % COLUMNS + _HALF % COLUMNS)
    units = ("(us)", "(GB/s)", "(GB/s)", "")
    lines.append(_LEFT % ("(B)", "(elements)", "", "", "") + _HALF % units + _HALF % units)
    return lines


def row(size: int, count: int, redop: str, root: int, sides: Mapping[str, Side]) -> str:
    """Return one size's row."""
    left = "%12d  %12d  %8s  %6s  %6d" % (size, count, "float", redop, root)
    return left + _half(sides.get("out_of_place")) + _half(sides.get("in_place"))


def footer(wrong: int, busbw: Sequence[float]) -> List[str]:
    """Return the number of wrong values and the sweep's mean, over both sides of every row as in nccl-tests."""
    average = sum(busbw) / len(busbw) if busbw else float("nan")
    verdict = "FAILED" if wrong else "OK"
    return ["# Out of bounds values : %d %s" % (wrong, verdict), "# Avg bus bandwidth    : %g" % average, "#"]


def _half(side: Optional[Side]) -> str:
    if side is None:
        return _HALF % (("N/A",) * 4)
    return _HALF % (fit(side.seconds * 1e6, 7), fit(side.algbw, 6), fit(side.busbw, 6), side.wrong)


def fit(value: float, width: int) -> str:
    """Return the number in at most `width` characters, with as many decimals as fit."""
    if not math.isfinite(value):
        return str(value)
    for decimals in (2, 1, 0):
        text = "%.*f" % (decimals, value)
        if len(text) <= width:
            return text
    return "%.1e" % value


def say(text: str) -> None:
    """Print one line and flush it: a later hang cannot hold it back."""
    print(text, flush=True)
