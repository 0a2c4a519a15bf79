"""What did an accepted run measure, as floors for the runs that follow? A baseline from a record.

Only a full run that ended in ``go`` is a baseline; each floor is the worst of what was measured, less a stated slack.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..strict import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LEAST_SIZE = 1 << 30
"""Bytes: below it latency decides, and a floor would follow the noise."""
SIDES = ("out_of_place", "in_place")


class NotABaselineError(ValueError):
    """Why this record must not become what others are judged by; one line."""


def baseline(record: Mapping[str, Any], *, slack: float) -> dict[str, Any]:
    """Return the profile that a record stands for. ``slack`` is the share (0.1 = 10 %) by which a run may be worse.

    Raises NotABaselineError for a record that was not accepted or measured nothing.
    """
    if record.get("verdict") != "go":
        raise NotABaselineError(f"the run ended {record.get('verdict')}: only an accepted cluster is a baseline")
    if record.get("scope") != "full":
        raise NotABaselineError(f"the run judged a part only ({record.get('selection') or 'partial'})")
    jobs = {str(name): job for name, job in (record.get("collectives") or {}).items() if isinstance(job, dict)}
    floors = [floor for name, job in jobs.items() for floor in _floors(name, job, record, slack)]
    if not floors:
        raise NotABaselineError(f"the record has no row of at least {format_size(LEAST_SIZE)} to build a floor on")
    return {"title": f"Baseline of run {record.get('run_id')}, {str(record.get('started'))[:10]}", "floors": floors}


def _floors(name: str, job: Mapping[str, Any], record: Mapping[str, Any], slack: float) -> Iterator[dict[str, Any]]:
    nodes, ranks = job.get("nodes") or 0, job.get("ranks") or 0
    worst: dict[tuple[str, int], float] = {}
    for table in job.get("tables") or []:
        for row in table.get("rows") or []:
            values = [(row.get(side) or {}).get("busbw_gbps") for side in SIDES]
            good = [v for v in values if isinstance(v, int | float) and math.isfinite(v) and v > 0]
            key = (str(table.get("collective") or "all_reduce"), int(row.get("size_bytes") or 0))
            if good and key[1] >= LEAST_SIZE:
                worst[key] = min([*good, worst.get(key, math.inf)])
    for (collective, size), busbw in sorted(worst.items()):
        yield {
            "collective": collective,
            "algorithm": "ring" if name.startswith("ring") else "default",
            "nodes": nodes,
            "size": format_size(size),
            "busbw_gbps": round(busbw * (1 - slack), 1),
            "topology": f"{nodes} x {ranks // nodes if nodes else ranks} GPUs, {job.get('inter_node_transport')}",
            "source": (f"run {record.get('run_id')} of {str(record.get('started'))[:10]}: {busbw:g} GB/s, "
                       f"minus {100 * slack:g} %"),
        }  # fmt: skip
