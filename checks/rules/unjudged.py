"""What of a log was not judged, or cannot be believed, though nothing in it is at fault: then it is no go.

With a profile: floors that met no row, rails and a fabric that no layout of the log shows, sums that nobody checked.
Without one: numbers at a small fraction of what is published for the hardware that the log names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jobs import nccl
from jobs.nccl.job_document import JobDocument, Table
from jobs.nccl.rows import bandwidths, sides
from reports.sizes import format_size

from ..profiles.loader import Profile
from .published import FAR_BELOW, MIDDLING, least_elsewhere, published_for
from .reference import algorithm_of

SMALL = 0.25
"""Of what is published: a cluster that others describe as healthy gives more with two of its eight rails."""
_LARGE = 1 << 30
_OF_MIDDLING = 0.1
"""Of what is published, in rows from 64 MiB to 1 GiB: what one of eight rails gives."""
_SHOWN = 4


def withhold_go(jobs: Iterable[JobDocument], profile: Profile | None) -> None:
    """Make every go inconclusive that rests on what was not judged, and say in the first sentence what that is.

    With a profile, ``not_judged`` of every job lists what of it was not applied, whatever the verdict.
    """
    jobs = list(jobs)
    applied = {
        _key(table, job, row["size_bytes"]) for job in jobs for table in job["tables"] for row in table["reference"]
    }
    for job in jobs:
        if profile is not None:
            missing = job["not_judged"] = [*_floors(job, profile, applied), *_layout(job, profile), *_sums(job)]
            text = "not judged against the profile: " + "; ".join(missing[:_SHOWN])
            text += f"; and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        else:
            missing = list(_far_below(job)) if job["verdict"] == "go" else []
            text = "; ".join(missing[:_SHOWN])
        if missing:
            nccl.withhold(job, "far-below-published" if profile is None else "not-judged", text)


def _key(table: Table, job: JobDocument, size: int) -> tuple[str, str, int, int]:
    return table["collective"] or "all_reduce", algorithm_of(table), job["nodes"] or 0, size


def _floors(job: JobDocument, profile: Profile, applied: set[tuple[str, str, int, int]]) -> Iterator[str]:
    for floor in profile.floors:
        if (floor.collective, floor.algorithm, floor.nodes, floor.size) in applied:
            continue
        layout = f"{floor.nodes} node{'' if floor.nodes == 1 else 's'}"
        per_node = profile.gpu.per_node
        if floor.nodes == job["nodes"] and per_node and job["ranks"] != floor.nodes * per_node:
            layout += f" of {per_node} GPUs"
        yield (
            f"the floor of {floor.collective} ({floor.algorithm}) at {format_size(floor.size)} on {layout}, which no"
            " row of these logs is"
        )


def _layout(job: JobDocument, profile: Profile) -> Iterator[str]:
    fabric, hosts = profile.fabric, job["rails"]["per_host"]
    crossed = (job["nodes"] or 0) > 1 and job["inter_node_transport"] not in ("none", "unknown")
    if fabric.kind and not crossed:
        yield f"the fabric {fabric.kind}, since no data crosses hosts"
    whole = bool(profile.gpu.per_node) and job["ranks"] == (job["nodes"] or 0) * (profile.gpu.per_node or 0)
    if fabric.gdr and crossed and job["gdr"] is None:
        yield "GPUDirect RDMA, which no channel line shows"
    if fabric.rails and not (crossed and whole and hosts and all(host["used"] for host in hosts.values())):
        yield f"the {fabric.rails} rails of a host, which this layout does not show"


def _sums(job: JobDocument) -> Iterator[str]:
    if any(side["wrong"] is None for table in job["tables"] for row in table["rows"] for side in sides(row)):
        yield "the results, since #wrong holds no count"


def _far_below(job: JobDocument) -> Iterator[str]:
    for table in job["tables"]:
        known = table.get("published")
        if known is not None and known["ratio"] < SMALL:
            yield _below_published(
                known["busbw_gbps"], known["size_bytes"], known["published_gbps"], known["topology"], known["source"]
            )
            continue
        entries = published_for(job, table)
        size, value = max(
            ((row["size_bytes"], max(busbw)) for row in table["rows"] if (busbw := bandwidths(row))), default=(0, 0.0)
        )
        if not entries:
            other = least_elsewhere(job, table)
            if other is not None and size >= other.from_size and value < FAR_BELOW * other.busbw_gbps:
                yield _below_published(value, size, other.busbw_gbps, other.what, other.source)
            continue
        if size < MIDDLING:
            continue
        least = min(entries, key=lambda entry: max(entry.busbw_gbps.values()))
        peak = max(least.busbw_gbps.values())
        if value < peak * (SMALL if size >= _LARGE else _OF_MIDDLING):
            yield _below_published(value, size, peak, str(least), least.source)


def _below_published(value: float, size: int, published: float, topology: str, source: str) -> str:
    return (
        f"{value:g} GB/s at {format_size(size)} is {_share(value / published)} of the {published:.4g} GB/s that are "
        f"published for {topology} ({source}), and nothing in the log says why"
    )


def _share(ratio: float) -> str:
    return "less than 1%" if ratio < 0.01 else f"{ratio:.0%}"
