"""Synthetic records for `seatrial compare`: an accepted run with noise, and a summary of its comparison.

Rows of 1 to 8 GiB as the bench prints them. The noise of each sample is drawn uniformly within 3 %. That is the spread
of published repeats on one fabric, and twice that of the H200 recordings in tests/logs.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from reports.compare import comparison
from reports.schema import completed

if TYPE_CHECKING:
    from reports.compare.comparison import Comparison


NODES = ("gpu-node-0", "gpu-node-1")


RATES = {"ring": (366.0, 375.0, 383.0, 386.0), "default": (445.0, 456.0, 462.0, 467.0)}


NODE_RATES = (452.0, 468.0, 475.0, 479.0)


HEALTHY = ("rights.run", "nccl.completed", "nccl.transport", "nccl.gdr", "nccl.rails", "nccl.bandwidth-ring")


def record(
    seed: int = 0,
    noise: float = 0.03,
    scale: float = 1.0,
    sides: tuple[str, ...] = ("out_of_place", "in_place"),
    **changes: Any,
) -> dict[str, Any]:
    """Return a full accepted run with noise on every sample."""
    chance = random.Random(seed)

    def side(rate: float) -> dict[str, float]:
        return {"busbw_gbps": round(rate * scale * (1 + chance.uniform(-noise, noise)), 2)}

    def job(rates: tuple[float, ...], *numbers: int) -> dict[str, Any]:
        rows = [
            {"size_bytes": size << 30, **{s: side(rate) for s in sides}}
            for size, rate in zip((1, 2, 4, 8), rates, strict=True)
        ]
        hosts = [
            {
                "name": f"run{seed}-{n}",
                "gdr": True,
                "version": "2.28.9",
                "rails": {str(8 * n + g): [f"mlx5_{g}:1"] for g in range(8)},
            }
            for n in numbers
        ]
        pair = {"src": f"run{seed}-0", "dst": f"run{seed}-1", "transports": {"ib": 16}}
        return {
            "nodes": len(hosts),
            "ranks": 8 * len(hosts),
            "nccl_versions": ["2.28.9"],
            "hosts": hosts,
            "pairs": [pair] if len(hosts) > 1 else [],
            "tables": [{"collective": "all_reduce", "rows": rows}],
        }

    return {
        "schema": 1,
        "run_id": f"run{seed}",
        "verdict": "go",
        "scope": "full",
        "profile": "h100-ib",
        "simulated": False,
        "interrupted": "",
        "checks": [{"id": name, "outcome": "passed", "findings": []} for name in HEALTHY],
        "collectives": {name: job(rates, 0, 1) for name, rates in RATES.items()},
        "inside": {node: job(NODE_RATES, n) for n, node in enumerate(NODES)},
        "trial": {"hosts": {f"run{seed}-{n}": NODES[n] for n in range(2)}},
        "bom": {"nodes": {"driver": ["580.95.05"]}},
        **changes,
    }


def compare(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> Comparison:
    """Compare records as if they had been read from files."""
    return comparison.compare([completed(each) for each in before], [completed(each) for each in after])


def changes(compared: Comparison, kind: str = "worse") -> set[tuple[str, str]]:
    """Return the changes as (area, subject)."""
    return {(c.area, c.subject) for c in compared.changes if c.kind == kind}


PAIR = "gpu-node-0 - gpu-node-1"
