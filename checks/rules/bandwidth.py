"""Bandwidth rules: single rows compared with the platform's floors, never the average; correct sums.

If the sweep was repeated, the median of a row is compared, and the spread of its repeats is judged separately. Units
are GB/s, 1e9 bytes per second, as nccl-tests prints them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Literal

from jobs.run.stages.programs import ProgramFacts
from jobs.trial.spec import TrialSpec
from reports.plain import format_size
from reports.record import Finding
from seatrial.logs.bandwidth.physics import TOLERANCE, wire_limit_gbps
from seatrial.logs.job_document import JobDocument, Row, Table
from seatrial.logs.rows import bandwidths, sides

from ..profiles.lint import least_seeing
from ..profiles.loader import Floor, Profile, Size
from ..profiles.trial import DEFAULT, OPERATIONS, RING
from .collectives import subject_of
from .findings import compared, failed, passed, unknown

Rows = Sequence[Row]

COLLECTIVE = "all_reduce"
SIDES: tuple[tuple[Literal["out_of_place", "in_place"], str], ...] = (
    ("out_of_place", "out of place"),
    ("in_place", "in place"),
)
NAMES = {"all_to_all": ("all_to_all", "alltoall"), "sendrecv": ("sendrecv",)}
"""Names of each collective in torch's bench and in nccl-tests."""
BANDWIDTH_BOUND = 2**30
"""Size in bytes from which a row shows bandwidth, not latency (nccl-tests' tables level out between 256M and 1G)."""
ROUNDED = 0.01
"""Tolerance for matching sizes: nccl-tests and the bundled bench round a size down to equal parts for each rank."""
DIP = 2.0
"""A note reports a first repetition of a large size that takes more than this times the mean of its repetitions."""
LOW_OF = {"sendrecv": "nccl.low-bandwidth-sendrecv", "all_to_all": "nccl.low-bandwidth-alltoall"}


def table_of(job: JobDocument | None, collective: str = COLLECTIVE) -> Table | None:
    """Return the first table of a collective with rows, or None: a better rerun after a bad one proves nothing."""
    tables = [t for t in job["tables"] if t["rows"]] if job else []
    known = (*NAMES.get(collective, (collective,)), None, "")
    return next((t for t in tables if t["collective"] in known), None)


def floors_of(profile: Profile, name: str, nodes: int) -> tuple[Floor, ...]:
    """Return the floors of a run over all nodes: those for its operation and the requested algorithm."""
    return profile.floor(OPERATIONS[name], RING if name == RING else DEFAULT, nodes)


def floor_findings(table: Table, floors: tuple[Floor, ...], node: str = "") -> Iterator[Finding]:
    """Compare the rows with a floor, out of place and in place; a missing row is undetermined."""
    for floor in floors:
        rows = rows_of(table["rows"], floor.size)
        subject = f"{node} {floor.collective} {format_size(floor.size)}".strip()
        sides = [(text, [side for row in rows if (side := row[key])]) for key, text in SIDES]
        if not any(measured for _, measured in sides):
            yield unknown(subject, "this row is missing", _expected(floor), unit="GB/s")
        for text, measured in sides:
            if measured:
                yield _compare(f"{subject} {text}", [side["busbw_gbps"] for side in measured], floor)


def blind_findings(table: Table, floors: tuple[Floor, ...], profile: Profile) -> Iterator[Finding]:
    """Withdraw passes of a floor that is far too low: a fallback to half of the links would also reach it."""
    for floor in floors:
        least = least_seeing(profile, floor)
        values = [v for row in rows_of(table["rows"], floor.size) if (v := _peak(row)) > 0]
        if not values or not floor.busbw_gbps <= median(values) < least:
            continue
        yield unknown(
            f"{floor.collective} {format_size(floor.size)}",
            f"{median(values):.1f}, which meets the floor of {floor.busbw_gbps:g} but is less than half of "
            f"the link rate (profile {profile.name}, fabric)",
            f"a floor that sees a fallback: at least {least:g}",
            unit="GB/s",
        )


def sources(floors: tuple[Floor, ...], profile: Profile) -> Iterator[str]:
    """Name the sources of the floors."""
    for floor in floors:
        yield (
            f"floor {floor.busbw_gbps:g} GB/s at {format_size(floor.size)} (profile {profile.name}): "
            f"{floor.topology}; {' '.join(floor.source.split())}"
        )


def unjudged(table: Table, operation: str, algorithm: str, profile: Profile, nodes: int) -> tuple[float, str]:
    """Return the median of the largest row, and the reason why it is not valid without a floor; '' if it is.

    Half of the links may be lost, or the profile does not state their rate.
    """
    size = max(row["size_bytes"] for row in table["rows"])
    measured = [side["busbw_gbps"] for row in rows_of(table["rows"], size) for key, _ in SIDES if (side := row[key])]
    numbers = [number for each in measured if (number := _number(each)) is not None]
    if not numbers or len(numbers) < len(measured):
        return 0.0, "the largest row has no number"
    row = Floor(
        collective=operation, algorithm=algorithm, nodes=nodes, size=Size(size), busbw_gbps=1, topology="-", source="-"
    )
    least = least_seeing(profile, row)
    busbw = median(numbers)
    if not least:
        return busbw, "neither a floor nor the link rate is known: set fabric.rails and fabric.rail_gbit_s"
    short = f"{busbw:.1f} GB/s are less than half of the link rate (at least {least:g}), and there is no floor"
    return busbw, short if busbw < least else ""


def rows_of(rows: Rows, size: int) -> list[Row]:
    """Return all repeats of the row of one size, or of that size rounded down to equal parts."""
    return [row for row in rows if size * (1 - ROUNDED) <= row["size_bytes"] <= size]


def _expected(floor: Floor) -> str:
    return f"at least {floor.busbw_gbps:g}"


def _compare(subject: str, values: Sequence[object], floor: Floor) -> Finding:
    numbers = [v for v in values if isinstance(v, int | float) and math.isfinite(v)]
    if len(numbers) < len(values):
        odd = f"not a number: {next(v for v in values if v not in numbers)}"
        return unknown(subject, odd, _expected(floor), unit="GB/s")
    busbw = median(numbers)
    ok = busbw >= floor.busbw_gbps
    fault = "nccl.low-bandwidth-node" if floor.nodes == 1 else LOW_OF.get(floor.collective, "nccl.low-bandwidth")
    return compared(subject, ok, f"{busbw:.1f}{_range(numbers)}", _expected(floor), fault, unit="GB/s")


def _range(numbers: Sequence[float]) -> str:
    """Describe the range of the repeats."""
    return f" (median of {len(numbers)}: {min(numbers):.1f} to {max(numbers):.1f})" if len(numbers) > 1 else ""


def spread_findings(table: Table, subject: str, limit: float) -> Iterator[Finding]:
    """Judge the spread of the repeats of each large row: (largest - smallest) / median."""
    for size in sorted({row["size_bytes"] for row in table["rows"]}):
        rows = [row for row in table["rows"] if row["size_bytes"] == size]
        for key, text in SIDES:
            speeds = [_number(side["busbw_gbps"]) for row in rows if (side := row[key])]
            values = [value for value in speeds if value is not None]
            if size < BANDWIDTH_BOUND * (1 - ROUNDED) or len(values) < 2:
                continue
            middle = median(values)
            spread = (max(values) - min(values)) / middle if middle else float(max(values) > 0)
            ok = spread <= limit
            observed = f"{len(values)} repetitions differ by {spread:.1%}{_range(values)}"
            expected = f"at most {limit:.0%}"
            yield compared(f"{subject} {format_size(size)} {text}", ok, observed, expected, "nccl.unstable")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) and value >= 0 else None


def impossible_findings(
    algorithm: str, job: JobDocument, table: Table, profile: Profile, spec: TrialSpec
) -> Iterator[Finding]:
    """Yield a finding for the row furthest above the link rate, if any. ``algorithm``: name of the run."""
    node, op = profile.fabric.node_gbps, OPERATIONS.get(algorithm, COLLECTIVE)
    if node is None or (job["sharp"] and algorithm != RING):  # reduction in the switch raises the limit
        return
    limit = wire_limit_gbps(op, algorithm, node, nodes=spec.nodes, gpus_per_node=spec.gpus_per_node)
    best, size = max(((_peak(row), row["size_bytes"]) for row in table["rows"]), default=(0.0, None))
    if best > limit * TOLERANCE:
        observed = f"{best:.1f}"
        expected = f"at most {limit:g}, the link rate"
        yield failed(f"{op} {format_size(size or 0)}", observed, expected, "nccl.impossible-bandwidth", unit="GB/s")


def _peak(row: Row) -> float:
    values = (value for value in bandwidths(row) if isinstance(value, int | float) and not math.isnan(value))
    return max(values, default=0.0)


def notes(
    algorithm: str, job: JobDocument, table: Table, profile: Profile, facts: ProgramFacts | None = None
) -> Iterator[str]:
    """Describe facts that are not judged: published figures, the average of the sweep, the links, a slow start."""
    rows = table["rows"]
    sizes = [row["size_bytes"] for row in rows]
    if "nearest" in table and table["peak_busbw_gbps"] is not None:
        yield f"peak {table['peak_busbw_gbps']:g} GB/s; {table['nearest']['sentence']}"
    average = table["avg_busbw"] if table["avg_busbw"] is not None else job["avg_busbw"]
    if average is not None:
        yield (
            f"average bus bandwidth {average:g} GB/s over {len(rows)} rows from {format_size(min(sizes))} to "
            f"{format_size(max(sizes))}: it depends on the sweep and is not judged"
        )
    largest = rows_of(rows, max(sizes))
    busbw, rails = median(map(_peak, largest)), profile.fabric.rails
    if algorithm == RING and busbw and rails:
        share = f" of {profile.fabric.rail_gbit_s / 8:g}" if profile.fabric.rail_gbit_s else ""
        yield (
            f"on the links at {format_size(max(sizes))}: {busbw:.1f} GB/s from each node, "
            f"{busbw / rails:.1f}{share} GB/s on each of {rails} rails{_for_each_gpu(busbw, profile)}"
        )
    chosen = job["env"].get("NCCL_ALGO")
    if algorithm != RING and chosen:
        yield f"NCCL_ALGO={chosen} is set in the pods (profile, pod.env, or the image): NCCL did not choose by itself"
    yield from _dips(rows, facts)


def _for_each_gpu(busbw: float, profile: Profile) -> str:
    gpus = profile.gpu.per_node
    return f", {busbw / gpus:.1f} GB/s for each GPU" if gpus and gpus != profile.fabric.rails else ""


def _dips(rows: Rows, facts: ProgramFacts | None) -> Iterator[str]:
    """List the large sizes whose first repetition took much longer than the rest: the start cost of a job."""
    for size, took in ((facts or {}).get("first_us") or {}).items():
        times = [
            time
            for row in rows
            if str(row["size_bytes"]) == size
            for side in sides(row)
            if (time := _number(side["time_us"]))
        ]
        slow = bool(times) and (_number(took) or 0.0) > DIP * median(times) > 0
        if slow and int(size) >= BANDWIDTH_BOUND * (1 - ROUNDED):
            yield (
                f"the first repetition of {format_size(int(size))} took {took / 1e3:.1f} ms, "
                f"{took / median(times):.1f} times the other repetitions"
            )


def correctness_findings(jobs: Mapping[str, JobDocument]) -> Iterator[Finding]:
    """Judge #wrong of every row; N/A is not 0, and a table without rows is undetermined."""
    for name, job in jobs.items():
        op = OPERATIONS.get(name, COLLECTIVE)
        yield correct(subject_of(name), table_of(job, op))


def correct(subject: str, table: Table | None) -> Finding:
    """Judge #wrong of one table."""
    if table is None:
        return unknown(subject, "no table", "0 wrong")
    measured = [(row, side) for row in table["rows"] for side in sides(row)]
    wrong = [(row, side["wrong"]) for row, side in measured if side["wrong"]]
    if wrong:
        row, count = max(wrong, key=lambda pair: pair[1])
        observed = f"wrong in {len(wrong)} of {len(measured)} measurements, {count} at {format_size(row['size_bytes'])}"
        return failed(subject, observed, "0 wrong", "nccl.wrong-results")
    if table["out_of_bounds"]:
        observed = f"out of bounds values: {table['out_of_bounds']}"
        return failed(subject, observed, "0 wrong", "nccl.wrong-results")
    unchecked = sum(side["wrong"] is None for _, side in measured)
    if unchecked or not measured:
        observed = f"{unchecked} of {len(measured)} measurements were not checked (N/A)"
        return unknown(subject, observed, "0 wrong")
    return passed(subject, f"0 wrong in {len(measured)} measurements", "0 wrong")
