"""The difference between two runs as one HTML page: what the text says, and the curves of both sides in one plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reports import plot
from reports.compare.comparison import Comparison
from reports.html import style
from reports.schema import Record, RecordedFloor, RecordedTable

from .text import render


def page(comparison: Comparison, before: Sequence[Record], after: Sequence[Record]) -> str:
    """Return the page of the comparison of these records; dashed curves are those from before."""
    floors: Mapping[str, Sequence[RecordedFloor]] = next(
        (record["floors"] for record in reversed(after) if record["floors"]), {}
    )
    curves = "".join(plot.bandwidth(tables(after), floors, tables(before)))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/><title>seatrial compare</title>'
        f'{style()}</head><body><h1 id="title">seatrial compare</h1>'
        f'<main class="st">{render(comparison, "html")}{curves}</main></body></html>\n'
    )


def tables(records: Sequence[Record]) -> dict[str, list[RecordedTable]]:
    """Return the tables of each collective: those of repeats are drawn as their median."""
    joined: dict[str, list[RecordedTable]] = {}
    for record in records:
        for name, job in record["collectives"].items():
            joined.setdefault(name, []).extend(job["tables"] if job else ())
    return joined
