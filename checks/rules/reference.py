"""Comparison of a log with a profile: floors for each table, and requirements that the log does not show.

Single rows are compared, never an average. A profile's floors are not applied to a log with other GPUs, another number
of GPUs per host, or another fabric. If a requirement was not judged, the verdict is not a go although nothing is at
fault: floors without a matching row, rails and a fabric that the log does not show, sums that were not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reports.plain import format_size
from seatrial.logs.bandwidth.hardware import NOTHING_SAID, Hardware, models_of, of_other_kind
from seatrial.logs.bandwidth.judgement import compare, judge
from seatrial.logs.bandwidth.published import FABRICS, family, operation
from seatrial.logs.job_document import FloorRow, JobDocument, Table
from seatrial.logs.rows import bandwidths, sides

from ..profiles.loader import Profile
from .levels import said_of


def judge_by(jobs: Iterable[JobDocument], profile: Profile) -> None:
    """Compare each job with a profile, and make every go inconclusive if a requirement was not judged.

    ``not_judged`` of every job lists the profile's requirements that were not applied, for any verdict.
    """
    applied: set[int] = set()
    compared = [(job, _other_gpus(job, profile), [*_differences(job, profile)]) for job in jobs]
    for job, other, differing in compared:
        if other or differing:
            compare(job, NOTHING_SAID, lambda *_: ())
        else:
            compare(job, said_of(profile), lambda _, table, hardware: _rows(table, hardware, profile, applied))
    across = any(_crosses(job) for job, *_ in compared)  # the run of a single host does not show the network
    for job, other, differing in compared:
        floors = [] if other else [*_floors(job, profile, applied)]
        layout = [] if across and job["nodes"] == 1 else [*_layout(job, profile)]
        rest = [] if other else [*layout, *_sums(job)]
        job["not_judged"] = [*other, *differing, *floors, *rest]
        if other and job["verdict"] != "go":
            job["sentence"] += f" {other[0][0].upper()}{other[0][1:]}."
        judge(job, "; ".join([*other, *differing, *_in_short(floors, profile), *rest]))


def _other_gpus(job: JobDocument, profile: Profile) -> list[str]:
    """Name both models if the log's GPUs are not the profile's: then the profile does not apply."""
    models = of_other_kind(models_of(job), profile.gpu.product)
    theirs = " or ".join(profile.gpu.product)
    what = f"the log is of {', '.join(models[:3])}, and profile {profile.name} of {theirs}, so none of its floors apply"
    return [what] if models else []


def _differences(job: JobDocument, profile: Profile) -> Iterator[str]:
    """Yield further differences between a log's hardware and the profile's, each with both values."""
    named = f"profile {profile.name} is of"
    ranks, nodes, per_node = job["ranks"] or 0, job["nodes"] or 0, profile.gpu.per_node
    if per_node and nodes and ranks % nodes == 0 and ranks // nodes not in (0, per_node):
        yield f"the log is of hosts with {ranks // nodes} GPUs, and {named} hosts with {per_node}"
    carried = family(job["inter_node_transport"])
    known = carried not in ("none", "unknown", "tcp") and nodes > 1
    theirs = family(profile.fabric.kind or "unknown")
    if theirs != "unknown" and known and carried != theirs:
        yield f"the log is of {FABRICS.get(carried, carried)}, and {named} {FABRICS.get(theirs, theirs)}"


def _rows(table: Table, hardware: Hardware, profile: Profile, applied: set[int]) -> list[FloorRow]:
    """Return every row with a floor in the profile, and the floor; the worse of out of place and in place counts.

    If NCCL chose a ring by itself, the floors of the default algorithm apply, too. ``applied`` receives the floors that
    matched a row.
    """
    if hardware.gpus_per_node != profile.gpu.per_node or not hardware.nodes:
        return []  # the floors are for another number of GPUs
    rows: list[FloorRow] = []
    algorithms = {hardware.algorithm} if hardware.forced else {hardware.algorithm, "default"}
    for floor in profile.floors:
        if (operation(floor.collective), floor.nodes) != (hardware.collective, hardware.nodes):
            continue
        if floor.algorithm not in algorithms:
            continue
        for row in table["rows"]:
            values = bandwidths(row)
            if row["size_bytes"] == floor.size and values:
                applied.add(id(floor))
                rows.append(
                    {
                        "size_bytes": row["size_bytes"],
                        "busbw_gbps": min(values),
                        "floor_gbps": floor.busbw_gbps,
                        "ratio": round(min(values) / floor.busbw_gbps, 3),
                        "topology": floor.topology,
                        "source": floor.source,
                    }
                )
    return rows


def _in_short(floors: list[str], profile: Profile) -> list[str]:
    """Return the floors that were not applied; if they are many, only their number."""
    if len(floors) < 3:
        return floors
    number = "all" if len(floors) == len(profile.floors) else f"{len(floors)} of the"
    return [f"{number} {len(profile.floors)} floors; no row of these logs has one"]


def _floors(job: JobDocument, profile: Profile, applied: set[int]) -> Iterator[str]:
    for floor in profile.floors:
        if id(floor) in applied:
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
    crossed = _crosses(job)
    if fabric.kind and not crossed:
        yield f"the fabric {fabric.kind}, since no data crosses hosts"
    whole = bool(profile.gpu.per_node) and job["ranks"] == (job["nodes"] or 0) * (profile.gpu.per_node or 0)
    if fabric.gdr and crossed and job["gdr"] is None:
        yield "GPUDirect RDMA: no channel line shows it"
    if fabric.rails and not (crossed and whole and hosts and all(host["used"] for host in hosts.values())):
        yield f"the {fabric.rails} rails of a host: this layout does not show them"


def _crosses(job: JobDocument) -> bool:
    return (job["nodes"] or 0) > 1 and job["inter_node_transport"] not in ("none", "unknown")


def _sums(job: JobDocument) -> Iterator[str]:
    if any(side["wrong"] is None for table in job["tables"] for row in table["rows"] for side in sides(row)):
        yield "the results, since #wrong has no count"
