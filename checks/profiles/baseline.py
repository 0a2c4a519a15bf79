"""Baselines: an accepted run's measurements, as floors for later runs.

Only a full run that ended in ``go`` is a baseline; each floor is the lowest measured value minus a stated slack. A
higher floor in the profile of that run is kept: a baseline never lowers a requirement.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from reports.plain import format_size
from reports.record import measured, samples_of
from reports.schema import Record, RecordedJob

from .schema import Floor
from .trial import OPERATIONS
from .yaml_schema import Document

LEAST_SIZE = 1 << 30
"""The least message size in bytes: below it latency dominates, and a floor would follow noise."""
_Row = tuple[str, str, int, int]  # collective, algorithm, nodes, size in bytes


class NotABaselineError(ValueError):
    """The reason in one line why a record must not become a baseline."""


def baseline(record: Record, *, slack: float, floors: Iterable[Floor] = ()) -> Document:
    """Return the profile that a record represents. ``slack`` is the share (0.1 = 10 %) by which a run may be worse.

    ``floors`` are those of the profile that it extends. Raises NotABaselineError for a record that was not accepted or
    has no measurements.
    """
    if record["verdict"] != "go":
        raise NotABaselineError(f"the run ended {record['verdict']}: only an accepted cluster is a baseline")
    if record["scope"] != "full":
        raise NotABaselineError(f"the run judged a part only ({record['selection'] or 'partial'})")
    lowest: dict[_Row, tuple[float, str]] = {}  # the lowest value of each row, and its topology
    for name, job in measured(record):
        for row, busbw in _worst(name, job):
            lowest[row] = min(lowest.get(row, (math.inf, "")), (busbw, _topology(job)))
    if not lowest:
        raise NotABaselineError(f"the record has no row of at least {format_size(LEAST_SIZE)} to build a floor on")
    made = {row: _floor(row, busbw, where, record, slack) for row, (busbw, where) in lowest.items()}
    for floor in floors:
        row = (floor.collective, floor.algorithm, floor.nodes, int(floor.size))
        if row not in made or made[row]["busbw_gbps"] < floor.busbw_gbps <= lowest[row][0]:
            made[row] = {**asdict(floor), "size": format_size(floor.size)}
    return {"title": f"Baseline of run {record['run_id']}, {record['started'][:10]}", "floors": list(made.values())}


def _worst(name: str, job: RecordedJob) -> Iterator[tuple[_Row, float]]:
    for table in job["tables"]:
        for row in table["rows"]:
            samples = list(samples_of(row))
            if samples and row["size_bytes"] >= LEAST_SIZE:
                collective = table["collective"] or OPERATIONS.get(name) or "all_reduce"
                algorithm = "ring" if name.startswith("ring") else "default"
                yield (collective, algorithm, job["nodes"] or 0, row["size_bytes"]), min(samples)


def _topology(job: RecordedJob) -> str:
    nodes, ranks = job["nodes"] or 0, job["ranks"] or 0
    way = job["inter_node_transport"] if nodes > 1 else "inside a node"
    return f"{nodes} x {ranks // nodes if nodes else ranks} GPUs, {way}"


def _floor(row: _Row, busbw: float, topology: str, record: Record, slack: float) -> Document:
    collective, algorithm, nodes, size = row
    return {
        "collective": collective,
        "algorithm": algorithm,
        "nodes": nodes,
        "size": format_size(size),
        "busbw_gbps": round(busbw * (1 - slack), 1),
        "topology": topology,
        "source": f"run {record['run_id']} of {record['started'][:10]}: {busbw:g} GB/s, minus {100 * slack:g} %",
    }
