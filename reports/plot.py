"""Bandwidth over message size as inline SVG: without script or library, next to the table.

Curves of one scale share a panel, so that the small ones are not flat lines; a panel fits the width of a phone.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .schema import RecordedFloor, RecordedTable
from .summary import BANDWIDTH
from .template import render

TITLE = "Bus bandwidth by message size"
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 470, 270, 44, 44, 28, 158
LINE = 30
"""Pixels between the labels at the ends of two curves."""
SCALE = 0.5
"""A curve whose highest point is below this share of a panel's highest one gets its own panel."""
COLOURS = tuple(f"var(--curve-{number})" for number in range(6))
"""The colours' classes in page.css, for light and dark mode."""
BEFORE = ", before"
"""The suffix of an earlier run's curve, which has the colour of the later one."""
LONGEST_NAME = 22

Point = tuple[float, float]


class Curve(NamedTuple):
    """The curve of a collective as (bytes, GB/s), its floors, and its style."""

    name: str
    points: Sequence[Point]
    floors: Sequence[Point]
    colour: str
    dashed: bool

    @property
    def highest(self) -> float:
        """The largest number to show in a panel."""
        return max(y for _, y in (*self.points, *self.floors))


def series(run: str) -> str:
    """Return the name of a run of a collective, which is the same in every part of a report."""
    return BANDWIDTH.get(f"nccl.bandwidth-{run}", run)


def bandwidth(
    tables: Mapping[str, Sequence[RecordedTable]],
    floors: Mapping[str, Sequence[RecordedFloor]],
    before: Mapping[str, Sequence[RecordedTable]] | None = None,
) -> str:
    """Return plots of bus bandwidth over message size of each collective's tables, with its floors, and a table.

    ``before``: those of an earlier run, dashed.
    """
    curves = list(_curves(tables, floors, before or {}))
    if not curves:
        return ""
    sizes = sorted({size for curve in curves for size, _ in curve.points})
    rows = [[format_bytes(int(size)), *(_value(curve, size) for curve in curves)] for size in sizes]
    return render(
        "bandwidth.html",
        panels=[_panel(panel, sizes) for panel in _panels(curves)],
        head=["size", *(curve.name for curve in curves)],
        rows=rows,
        floors=any(curve.floors for curve in curves),
    )


def _curves(
    tables: Mapping[str, Sequence[RecordedTable]],
    floors: Mapping[str, Sequence[RecordedFloor]],
    before: Mapping[str, Sequence[RecordedTable]],
) -> Sequence[Curve]:
    runs = list(dict.fromkeys([*tables, *before]))
    colour = {run: COLOURS[number % len(COLOURS)] for number, run in enumerate(runs)}
    made = []
    for run in runs:
        marks = [(float(floor["size_bytes"]), floor["busbw_gbps"]) for floor in floors.get(run, ())]
        if points := _points(tables.get(run, ())):
            made.append(Curve(series(run), points, marks, colour[run], dashed=False))
        if points := _points(before.get(run, ())):
            made.append(Curve(series(run) + BEFORE, points, [], colour[run], dashed=True))
    return made


def _panels(curves: Sequence[Curve]) -> Sequence[Sequence[Curve]]:
    """Group curves of one scale, the highest first."""
    panels: list[list[Curve]] = []
    for curve in sorted(curves, key=lambda curve: -curve.highest):
        if panels and curve.highest >= SCALE * panels[-1][0].highest:
            panels[-1].append(curve)
        else:
            panels.append([curve])
    return panels


def _value(curve: Curve, size: float) -> str:
    value, floor = dict(curve.points).get(size), dict(curve.floors).get(size)
    return ("" if value is None else f"{value:.1f}") + (f" (floor {floor:g})" if floor is not None else "")


def _points(tables: Sequence[RecordedTable]) -> list[Point]:
    """Return the larger busbw of a row, in or out of place, by size in bytes; of repeats the median, as judged."""
    repeats: dict[float, list[float]] = {}
    for table in tables:
        for row in table["rows"]:
            sides = [side["busbw_gbps"] for side in (row["out_of_place"], row["in_place"]) if side]
            values = [value for value in sides if value is not None and math.isfinite(value)]
            if values and row["size_bytes"]:
                repeats.setdefault(float(row["size_bytes"]), []).append(max(values))
    return sorted((size, statistics.median(values)) for size, values in repeats.items())


def _panel(curves: Sequence[Curve], sizes: Sequence[float]) -> Mapping[str, object]:
    """Return the template's values of one panel; all panels share the sizes below."""
    every = [*sizes, *(size for curve in curves for size, _ in curve.floors)]
    low, high = math.log2(min(every)), math.log2(max(every))
    top = round_up(max(curve.highest for curve in curves))

    def x(size: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * ((math.log2(size) - low) / ((high - low) or 1))

    def y(gbps: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - gbps / top)

    exponents = range(math.ceil(low), math.floor(high) + 1, max(1, round((high - low) / 5)))
    labels = _spread([y(curve.points[-1][1]) for curve in curves])
    return {
        "said": ", ".join(curve.name for curve in curves),
        "grid": [(y(top * step / 4), f"{top * step / 4:g}") for step in range(5)],
        "sizes": [(x(2**each), format_bytes(2**each)) for each in exponents],
        "curves": [
            {
                "curve": curve,
                "line": " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in curve.points),
                "end": x(curve.points[-1][0]),
                "label": label,
                "value": f"{curve.points[-1][1]:.1f}",
                "name": curve.name if len(curve.name) <= LONGEST_NAME else f"{curve.name[: LONGEST_NAME - 1]}…",
                "floors": [(x(a), y(b), f"{b:g}", format_bytes(int(a))) for a, b in curve.floors],
            }
            for curve, label in zip(curves, labels, strict=True)
        ],
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "bottom": HEIGHT - BOTTOM,
    }


def _spread(places: Sequence[float]) -> list[float]:
    """Move labels apart so that none overlap, and up again if they leave the panel."""
    order = sorted(range(len(places)), key=places.__getitem__)
    spread = list(places)
    for above, below in itertools.pairwise(order):
        spread[below] = max(spread[below], spread[above] + LINE)
    over = max([0.0, *(place - (HEIGHT - BOTTOM) for place in spread)])
    return [place - over for place in spread]


def round_up(value: float) -> float:
    """Return the next 1, 2 or 5 times a power of ten, so that the axis has round numbers."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value)


def format_bytes(count: int) -> str:
    """Return a message size in the units of nccl-tests, rounded down: 64K, 8G."""
    for unit in ("", "K", "M", "G"):
        if count < 1024:
            return f"{count}{unit}"
        count //= 1024
    return f"{count}T"
