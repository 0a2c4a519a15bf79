"""A benchmark's rows in a log against a profile's floors and the wires of a node.

Named rows are compared, never an average. Under Ring the bus bandwidth is what each node puts on its wires
(nccl-tests, doc/PERFORMANCE.md), so that it tells the rate of a rail; another algorithm on two nodes may exceed the
wires, and NVLink is then what limits it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs import nccl

from .physics import limit_gbps, ring_limit_gbps
from .published import compare_published, looks_like_tcp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobs.nccl.job_document import JobDocument, Table

    from ..profiles.loader import Profile


def compare(jobs: Iterable[JobDocument], profile: Profile | None) -> None:
    """Add to each table what the wires carried and, with a profile, how its rows compare; name what follows."""
    for job in jobs:
        for table in job["tables"]:
            table["wire"] = _wire(job, table, profile)
            table["reference"] = _rows(job, table, profile) if profile is not None else []
            table["published"] = compare_published(job, table, algorithm_of(table))
            low = [row for row in table["reference"] if row["ratio"] < 1]
            if any(fault["fault"] == "nccl.low-bandwidth" for fault in job["faults"]):
                continue
            if low:
                nccl.call_slow(job, table, _below_floor(table, low))
            elif profile is None and (tcp := looks_like_tcp(job, table, algorithm_of(table))):
                nccl.call_slow(job, table, tcp)
        if job["diagnosis"] == "healthy-rdma" and any((t["wire"] or {}).get("above_wire") for t in job["tables"]):
            job["diagnosis"] = "healthy-nvlink-limited"


def algorithm_of(table: Table) -> str:
    """Return 'ring', or 'default' for whatever NCCL chose."""
    return "ring" if str(table.get("algorithm") or "").lower() == "ring" else "default"


def _wire(job: JobDocument, table: Table, profile: Profile | None) -> dict[str, Any] | None:
    """Return what the peak means on the wire of a host; None inside one host."""
    peak = table.get("peak_busbw_gbps")
    if peak is None or (job["nodes"] or 0) < 2 or table["collective"] not in ("all_reduce", None):
        return None
    limit = profile.fabric.node_gbps if profile is not None else None
    if algorithm_of(table) != "ring":
        above = limit is not None and job["nodes"] == 2 and peak > ring_limit_gbps(limit)
        return {
            "algorithm": "default",
            "node_gbps": None,
            "rail_gbit_s": None,
            "gpu_gbit_s": _least_per_gpu(job, peak),
            "of_wire": None,
            "above_wire": above,
        }
    rails = [host["used"] for host in job["rails"]["per_host"].values() if host["used"]]
    return {
        "algorithm": "ring",
        "node_gbps": peak,
        "rail_gbit_s": round(peak * 8 / min(rails), 1) if rails else None,
        "gpu_gbit_s": _least_per_gpu(job, peak),
        "of_wire": round(peak / limit, 3) if limit else None,
        "above_wire": False,
    }


def _least_per_gpu(job: JobDocument, peak: float) -> float | None:
    """Return what each GPU's share of the wires must have carried at the peak, in Gb/s, whatever the algorithm was.

    No algorithm without in-network reduction sends less between hosts (checks.rules.physics, ``tree_limit_gbps``).
    """
    ranks, nodes = int(job["ranks"] or 0), int(job["nodes"] or 0)
    if not ranks or not nodes or ranks % nodes or job.get("sharp"):
        return None
    per_node: int = ranks // nodes
    return round(peak / limit_gbps("default", 1.0, nodes=nodes, gpus_per_node=per_node) * 8 / per_node, 1)


def _rows(job: JobDocument, table: Table, profile: Profile) -> list[dict[str, Any]]:
    """Return every row that the profile names, beside its floor; the worse of both sides counts."""
    if job["ranks"] != (job["nodes"] or 0) * (profile.gpu.per_node or 0):
        return []  # other sizes give other numbers
    floors = profile.floor(table["collective"] or "all_reduce", algorithm_of(table), job["nodes"] or 0)
    found = []
    for floor in floors:
        for row in table["rows"]:
            sides = (row["out_of_place"], row["in_place"])
            values = [side["busbw_gbps"] for side in sides if side and side["busbw_gbps"] is not None]
            if row["size_bytes"] == floor.size and values:
                found.append(
                    {
                        "size_bytes": row["size_bytes"],
                        "busbw_gbps": min(values),
                        "floor_gbps": floor.busbw_gbps,
                        "ratio": round(min(values) / floor.busbw_gbps, 3),
                        "topology": floor.topology,
                        "source": floor.source,
                    }
                )
    return found


def _below_floor(table: Table, low: list[dict[str, Any]]) -> str:
    worst = min(low, key=lambda row: float(row["ratio"]))
    return (
        f"{worst['busbw_gbps']:g} GB/s at {worst['size_bytes']} bytes under {algorithm_of(table)};"
        f" {worst['topology']} gives at least {worst['floor_gbps']:g}"
    )
