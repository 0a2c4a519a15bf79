"""Baselines: what an accepted run measured, as floors for the runs that follow.

Only a full run that ended in ``go`` is a baseline; each floor is the worst of what was measured, less a stated slack.
A floor of the profile that the run was accepted by stays where it asks for more: a baseline never lets more pass.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from reports.sizes import format_size

from .trial import NODE, OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .schema.bench import Floor

LEAST_SIZE = 1 << 30
"""Bytes: below it latency decides, and a floor would follow the noise."""
SIDES = ("out_of_place", "in_place")
_Row = tuple[str, str, int, int]  # collective, algorithm, nodes, size in bytes


class NotABaselineError(ValueError):
    """Why this record must not become what others are judged by; one line."""


def baseline(record: Mapping[str, Any], *, slack: float, floors: Iterable[Floor] = ()) -> dict[str, Any]:
    """Return the profile that a record stands for. ``slack`` is the share (0.1 = 10 %) by which a run may be worse.

    ``floors`` are those of the profile that it extends. Raises NotABaselineError for a record that was not accepted or
    measured nothing.
    """
    if record.get("verdict") != "go":
        raise NotABaselineError(f"the run ended {record.get('verdict')}: only an accepted cluster is a baseline")
    if record.get("scope") != "full":
        raise NotABaselineError(f"the run judged a part only ({record.get('selection') or 'partial'})")
    measured: dict[_Row, tuple[float, str]] = {}  # the worst of each row, and where
    for name, job in [*(record.get("collectives") or {}).items(), *_intra_node(record)]:
        for row, busbw in _worst(str(name), job) if isinstance(job, dict) else ():
            measured[row] = min(measured.get(row, (math.inf, "")), (busbw, _topology(job)))
    if not measured:
        raise NotABaselineError(f"the record has no row of at least {format_size(LEAST_SIZE)} to build a floor on")
    made = {row: _floor(row, busbw, where, record, slack) for row, (busbw, where) in measured.items()}
    for floor in floors:
        row = (floor.collective, floor.algorithm, floor.nodes, int(floor.size))
        if row not in made or made[row]["busbw_gbps"] < floor.busbw_gbps <= measured[row][0]:
            made[row] = {**asdict(floor), "size": format_size(floor.size)}
    return {
        "title": f"Baseline of run {record.get('run_id')}, {str(record.get('started'))[:10]}",
        "floors": list(made.values()),
    }


def _intra_node(record: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What every node ran on its own."""
    return [(NODE, job) for job in (record.get("inside") or {}).values()]


def _worst(name: str, job: Mapping[str, Any]) -> Iterator[tuple[_Row, float]]:
    for table in job.get("tables") or []:
        for row in table.get("rows") or []:
            values = [(row.get(side) or {}).get("busbw_gbps") for side in SIDES]
            good = [v for v in values if isinstance(v, int | float) and math.isfinite(v) and v > 0]
            size = int(row.get("size_bytes") or 0)
            if good and size >= LEAST_SIZE:
                collective = str(table.get("collective") or OPERATIONS.get(name) or "all_reduce")
                algorithm = "ring" if name.startswith("ring") else "default"
                yield (collective, algorithm, job.get("nodes") or 0, size), min(good)


def _topology(job: Mapping[str, Any]) -> str:
    nodes, ranks = job.get("nodes") or 0, job.get("ranks") or 0
    way = job.get("inter_node_transport") if nodes > 1 else "inside a node"
    return f"{nodes} x {ranks // nodes if nodes else ranks} GPUs, {way}"


def _floor(row: _Row, busbw: float, topology: str, record: Mapping[str, Any], slack: float) -> dict[str, Any]:
    collective, algorithm, nodes, size = row
    return {
        "collective": collective,
        "algorithm": algorithm,
        "nodes": nodes,
        "size": format_size(size),
        "busbw_gbps": round(busbw * (1 - slack), 1),
        "topology": topology,
        "source": (
            f"run {record.get('run_id')} of {str(record.get('started'))[:10]}: {busbw:g} GB/s, minus {100 * slack:g} %"
        ),
    }
