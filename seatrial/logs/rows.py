"""The content of a benchmark table's row: the measured sides, and their bandwidths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from .job_document import Row, Side


def sides(row: Row) -> list[Side]:
    """Return the measurements of a row, out of place before in place."""
    return [side for side in (row["out_of_place"], row["in_place"]) if side]


def bandwidths(row: Row) -> list[float]:
    """Return the bus bandwidths of a row, in GB/s: of each side that has one."""
    return [value for side in sides(row) if (value := side["busbw_gbps"]) is not None]


def of_one_rank(rows: Iterable[Row]) -> bool:
    """Return whether rows are of one rank: data moved, but not over a bus (nccl-tests, doc/PERFORMANCE.md: (n-1)/n)."""
    measured = [side for row in rows for side in sides(row)]
    return any((side["algbw_gbps"] or 0) > 1 for side in measured) and not any(side["busbw_gbps"] for side in measured)


def copies(rows: Sequence[Row]) -> int:
    """Return how often a table has the same measurement: more than once if several processes print one table."""
    again = Counter((row["size_bytes"], row["type"], row["redop"], row["root"]) for row in rows)
    return max(again.values(), default=0)


def mean(values: list[float]) -> float:
    """Return the mean of at least one value."""
    return sum(values) / len(values)
