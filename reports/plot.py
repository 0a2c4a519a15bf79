"""Bandwidth over message size as inline SVG: no script, no library, a picture beside the table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from .schema import RecordedFloor, RecordedTable

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 860, 300, 62, 40, 16, 250
COLOURS = tuple(f"var(--curve-{number})" for number in range(6))
"""Of page.css, which has them for light and for dark."""

BEFORE = ", before"
"""Ends the name of a curve of the earlier run; it has the colour of the later one."""

Point = tuple[float, float]


def bandwidth(
    tables: Mapping[str, Sequence[RecordedTable]],
    floors: Mapping[str, Sequence[RecordedFloor]],
    before: Mapping[str, Sequence[RecordedTable]] | None = None,
) -> Iterator[str]:
    """Yield one plot of bus bandwidth over message size for each collective's tables, with its floors.

    ``before``: those of an earlier run, dashed.
    """
    curves = {name: points for name, rows in tables.items() if (points := _points(rows))}
    curves |= {f"{name}{BEFORE}": points for name, rows in (before or {}).items() if (points := _points(rows))}
    if not curves:
        return
    yield "<h2>Bus bandwidth by message size</h2>"
    marks = {name: [(float(f["size_bytes"]), f["busbw_gbps"]) for f in floors.get(name, ())] for name in curves}
    yield _svg(curves, marks)
    yield _values(curves, marks)
    yield "<p>GB/s are 1e9 bytes per second. The floor is judged at a named size, never on the average."
    if any(marks.values()):
        yield " A bar with a triangle is the profile's floor: the curve of its colour must pass above it."
    yield "</p>"


def _values(curves: Mapping[str, list[Point]], floors: Mapping[str, list[Point]]) -> str:
    """The same as a table, for who reads it aloud or copies it."""
    sizes = sorted({size for points in curves.values() for size, _ in points})
    rows = []
    for size in sizes:
        cells = []
        for name, points in curves.items():
            value, floor = dict(points).get(size), dict(floors.get(name, ())).get(size)
            said = "" if value is None else f"{value:.1f}"
            cells.append(f"<td>{said}{f' (floor {floor:g})' if floor is not None else ''}</td>")
        rows.append(f"<tr><th scope=row>{_size(int(size))}</th>{''.join(cells)}</tr>")
    head = "".join(f"<th scope=col>{escape(name)}</th>" for name in curves)
    table = f"<table><tr><th scope=col>size</th>{head}</tr>{''.join(rows)}</table>"
    return f'<details><summary>GB/s as a table</summary><div class="wide" tabindex="0">{table}</div></details>'


def _points(tables: Sequence[RecordedTable]) -> list[Point]:
    """The larger busbw of a row, in or out of place, by size in bytes; of repeats their median, as it is judged."""
    repeats: dict[float, list[float]] = {}
    for table in tables:
        for row in table["rows"]:
            sides = [side["busbw_gbps"] for side in (row["out_of_place"], row["in_place"]) if side]
            values = [value for value in sides if value is not None and math.isfinite(value)]
            if values and row["size_bytes"]:
                repeats.setdefault(float(row["size_bytes"]), []).append(max(values))
    return sorted((size, statistics.median(values)) for size, values in repeats.items())


def _svg(curves: Mapping[str, list[Point]], floors: Mapping[str, list[Point]]) -> str:
    shown = [point for points in (*curves.values(), *floors.values()) for point in points]
    sizes = [x for x, _ in shown]
    low, high = math.log2(min(sizes)), math.log2(max(sizes))
    top = round_up(max(y for _, y in shown))

    def x(size: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * ((math.log2(size) - low) / ((high - low) or 1))

    def y(gbps: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - gbps / top)

    parts = [
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        'aria-label="Bus bandwidth by message size; the table below has the numbers">'
    ]
    for step in range(5):
        value = top * step / 4
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" class="grid"/>'
            f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    for exponent in range(math.ceil(low), math.floor(high) + 1, max(1, round((high - low) / 6))):
        parts.append(
            f'<text x="{x(2**exponent):.1f}" y="{HEIGHT - 18}" text-anchor="middle">{_size(2**exponent)}</text>'
        )
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 3}">message size (bytes) → bus bandwidth (GB/s)</text>')
    names = list(dict.fromkeys(name.removesuffix(BEFORE) for name in curves))
    for index, (name, points) in enumerate(curves.items()):
        colour = COLOURS[names.index(name.removesuffix(BEFORE)) % len(COLOURS)]
        dashes = ' stroke-dasharray="6 4"' if name.endswith(BEFORE) else ""
        line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
        label = f"{escape(name)}: {points[-1][1]:.1f} at {_size(int(points[-1][0]))}"
        parts += [
            f'<path d="M{x(a) - 9:.1f} {y(b):.1f}h18m-9 0l-4 7h8z" stroke="{colour}" stroke-width="2" fill="{colour}">'
            f"<title>{escape(name)}: floor {b:g} GB/s at {_size(int(a))}</title></path>"
            for a, b in floors.get(name, ())
        ]
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'
            f'<rect x="{WIDTH - RIGHT + 12}" y="{TOP + 20 * index}" width="12" height="12" fill="{colour}"/>'
            f'<text x="{WIDTH - RIGHT + 30}" y="{TOP + 10 + 20 * index}" class="label">{label}</text>'
        )
    return "".join(parts) + "</svg>"


def round_up(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten, so that the axis has round numbers."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value)


def _size(count: int) -> str:
    for unit in ("", "K", "M", "G"):
        if count < 1024:
            return f"{count}{unit}"
        count //= 1024
    return f"{count}T"
