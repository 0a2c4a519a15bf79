"""Read NCCL Inspector's JSON lines: the host of each rank, and the duration of the last kernels.

A record may be dropped (formats before v4.1 do not even count dropped ones), so a rank without one is not late.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .model import Evidence, Performed

if TYPE_CHECKING:
    from collections.abc import Iterable


MAX_SEQUENCES = 64
MAX_TIMES = 500_000


def read(evidence: Evidence, lines: Iterable[str]) -> int:
    """Add the records of some lines; return the number of other lines (cut ones, other JSON)."""
    strange = 0
    for line in lines:
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            head, done = record["header"], record["coll_perf"]
            rank, sequence, microseconds = int(head["rank"]), int(done["coll_sn"]), float(done["coll_exec_time_us"])
            comm, operation = str(head["id"])[:40], str(done["coll"])[:40]
            meta = record.get("metadata") or {}
            made = Performed(rank, int(head["n_ranks"]), str(meta.get("hostname", ""))[:80])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            strange += 1
            continue
        if done.get("coll_timing_source") == "kernel_gpu" and 0 < microseconds < float("inf"):
            _time(evidence, (comm, operation), sequence, rank, microseconds)
        evidence.performed[comm, rank] = made
    return strange


def _time(evidence: Evidence, key: tuple[str, str], sequence: int, rank: int, microseconds: float) -> None:
    """Keep the duration of a kernel, for the latest operations of each kind."""
    times = evidence.times.setdefault(key, {})
    if sequence not in times:
        if len(times) >= MAX_SEQUENCES:
            if sequence < min(times):
                return
            del times[min(times)]
        if sum(len(ranks) for ranks in times.values()) >= MAX_TIMES or len(evidence.times) > MAX_SEQUENCES:
            return
        times[sequence] = {}
    times[sequence][rank] = microseconds
