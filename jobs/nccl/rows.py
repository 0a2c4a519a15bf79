"""What a row of a benchmark's table holds: the sides that were measured, and their bandwidths."""

from __future__ import annotations

from .job_document import Row, Side


def sides(row: Row) -> list[Side]:
    """Return the measurements of a row, out of place before in place."""
    return [side for side in (row["out_of_place"], row["in_place"]) if side]


def bandwidths(row: Row) -> list[float]:
    """Return the bus bandwidths of a row, in GB/s: of each side that has one."""
    return [value for side in sides(row) if (value := side["busbw_gbps"]) is not None]


def mean(values: list[float]) -> float:
    """Return the mean of some values, of which there is one at least."""
    return sum(values) / len(values)
