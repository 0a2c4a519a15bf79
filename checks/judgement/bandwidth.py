"""Is the bus bandwidth what this platform gives, and are the sums right? Named rows against floors, never the average.

Units are GB/s, 1e9 bytes per second, as nccl-tests prints them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from reports.record import Finding

from ..strict import format_size
from ..trial_spec import RING
from .physics import TOLERANCE, limit_gbps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jobs.trial import TrialSpec

    from ..profile import Floor, Profile

COLLECTIVE = "all_reduce"
SIDES = (("out_of_place", "out of place"), ("in_place", "in place"))


def table_of(job: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the first table of an all_reduce with rows, or None: a better rerun below a bad one proves nothing."""
    tables = [t for t in (job or {}).get("tables") or [] if t.get("rows")]
    return next((t for t in tables if t.get("collective") in (COLLECTIVE, None, "")), None)


def floor_findings(table: dict[str, Any], floors: tuple[Floor, ...]) -> Iterator[Finding]:
    """Compare the rows that the floors name, out of place and in place; a row that is not there is not told."""
    rows = {row.get("size_bytes"): row for row in table.get("rows") or []}
    for floor in floors:
        row = rows.get(floor.size) or {}
        sides = [(text, row[key]) for key, text in SIDES if row.get(key)]
        if not sides:
            yield Finding(subject=f"{COLLECTIVE} {format_size(floor.size)}", ok=None, observed="this row is missing",
                          expected=_expected(floor), unit="GB/s")  # fmt: skip
        for text, side in sides:
            yield _compare(f"{COLLECTIVE} {format_size(floor.size)} {text}", side.get("busbw_gbps"), floor)


def _expected(floor: Floor) -> str:
    return f"at least {floor.busbw_gbps:g}"


def _compare(subject: str, busbw: object, floor: Floor) -> Finding:
    if not isinstance(busbw, int | float) or not math.isfinite(busbw):
        observed = f"not a number: {busbw}"
        return Finding(subject=subject, ok=None, observed=observed, expected=_expected(floor), unit="GB/s")
    ok = busbw >= floor.busbw_gbps
    return Finding(subject=subject, ok=ok, observed=f"{busbw:.1f}", expected=_expected(floor), unit="GB/s",
                   fault="" if ok else "nccl.low-bandwidth")  # fmt: skip


def impossible_findings(
    algorithm: str, job: Mapping[str, Any], table: dict[str, Any], profile: Profile, spec: TrialSpec
) -> Iterator[Finding]:
    """Yield a finding for the row that is furthest above what the wires allow, if one is."""
    node = profile.fabric.node_gbps
    if node is None or (job.get("sharp") and algorithm != RING):  # the switch adds: the limit does not hold
        return
    limit = limit_gbps(algorithm, node, nodes=spec.nodes, gpus_per_node=spec.gpus_per_node)
    best, size = max(((_peak(row), row.get("size_bytes")) for row in table["rows"]), default=(0.0, None))
    if best > limit * TOLERANCE:
        yield Finding(subject=f"{COLLECTIVE} {format_size(size or 0)}", ok=False, observed=f"{best:.1f}",
                      expected=f"at most {limit:g}, what the wires carry", unit="GB/s",
                      fault="nccl.impossible-bandwidth")  # fmt: skip


def _peak(row: Mapping[str, Any]) -> float:
    values = [(row.get(key) or {}).get("busbw_gbps") for key, _ in SIDES]
    return max((v for v in values if isinstance(v, int | float) and not math.isnan(v)), default=0.0)


def notes(algorithm: str, job: Mapping[str, Any], table: dict[str, Any], profile: Profile) -> Iterator[str]:
    """Say what is shown and not judged: the average with its sweep, and what the wires carried."""
    rows = table["rows"]
    sizes = [row.get("size_bytes") or 0 for row in rows]
    average = table.get("avg_busbw") if table.get("avg_busbw") is not None else job.get("avg_busbw")
    if average is not None:
        yield (f"average bus bandwidth {average:g} GB/s over {len(rows)} sizes from {format_size(min(sizes))} to "
               f"{format_size(max(sizes))}: it depends on the sweep and is not judged")  # fmt: skip
    busbw, rails = _peak(max(rows, key=lambda row: row.get("size_bytes") or 0)), profile.fabric.rails
    if algorithm == RING and busbw and rails:
        share = f" of {profile.fabric.rail_gbit_s / 8:g}" if profile.fabric.rail_gbit_s else ""
        yield (f"on the wire at {format_size(max(sizes))}: {busbw:.1f} GB/s from each node, "
               f"{busbw / rails:.1f}{share} GB/s on each of {rails} rails")  # fmt: skip


def correctness_findings(jobs: Mapping[str, dict[str, Any]]) -> Iterator[Finding]:
    """Judge #wrong of every row; N/A is not 0, and a table without rows is not told."""
    for name, job in jobs.items():
        yield _correct(f"{COLLECTIVE} {name}", table_of(job))


def _correct(subject: str, table: dict[str, Any] | None) -> Finding:
    if table is None:
        return Finding(subject=subject, ok=None, observed="no table", expected="0 wrong")
    sides = [(row, row[key]) for row in table["rows"] for key, _ in SIDES if row.get(key)]
    wrong = [(row, side["wrong"]) for row, side in sides if side.get("wrong")]
    if wrong:
        row, count = max(wrong, key=lambda pair: pair[1])
        observed = f"wrong in {len(wrong)} of {len(sides)} measurements, {count} at {format_size(row['size_bytes'])}"
        return Finding(subject=subject, ok=False, observed=observed, expected="0 wrong", fault="nccl.wrong-results")
    if table.get("out_of_bounds"):
        observed = f"out of bounds values: {table['out_of_bounds']}"
        return Finding(subject=subject, ok=False, observed=observed, expected="0 wrong", fault="nccl.wrong-results")
    unchecked = sum(side.get("wrong") is None for _, side in sides)
    if unchecked or not sides:
        observed = f"{unchecked} of {len(sides)} measurements were not checked (N/A)"
        return Finding(subject=subject, ok=None, observed=observed, expected="0 wrong")
    return Finding(subject=subject, ok=True, observed=f"0 wrong in {len(sides)} measurements", expected="0 wrong")
