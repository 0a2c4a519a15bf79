"""A benchmark's rows in a log against a profile's floors and the wires of a node, and what of a log was not judged.

Named rows are compared, never an average. Under Ring the bus bandwidth is what each node puts on its wires
(nccl-tests, doc/PERFORMANCE.md), so that it tells the rate of a rail; another algorithm on two nodes may exceed the
wires, and NVLink is then what limits it.

What was not judged, or cannot be believed, is no go, though nothing is at fault. With a profile: floors that met no
row, rails and a fabric that no layout of the log shows, sums that nobody checked. Without one: numbers at a small
fraction of what is published for the hardware that the log names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from jobs import nccl
from jobs.nccl.job_document import FloorRow, JobDocument, Table, WireUse
from jobs.nccl.rows import bandwidths, sides
from reports.plain import format_size

from .physics import TOLERANCE, intra_node_limit_gbps, limit_gbps, links_gbps, ring_limit_gbps, wire_limit_gbps
from .published import FAR_BELOW, MIDDLING, compare_published, is_card, least_elsewhere, looks_like_tcp, published_for

if TYPE_CHECKING:
    from ..profiles.loader import Profile


def compare(jobs: Iterable[JobDocument], profile: Profile | None) -> None:
    """Add to each table what the wires carried and, with a profile, how its rows compare; name what follows."""
    for job in jobs:
        if job["verdict"] == "go" and (off := _peers_off(job)):
            names = tuple(job["gpus"])
            if links_gbps(names) and not any(map(_shares_nothing, names)):
                nccl.call_peers_off(job, f"{off}, though NVLink connects {names[0]}")
            elif not (names or job["intra_node"]["p2p"]):
                nccl.withhold(job, "not-judged", f"{off}; the log does not show whether NVLink or PCIe joins its GPUs")
        for table in job["tables"]:
            table["wire"] = _wire(job, table, profile)
            table["reference"] = _rows(job, table, profile) if profile is not None else []
            table["published"] = compare_published(job, table, algorithm_of(table))
            if impossible := _above_the_hardware(job, table, profile):
                nccl.call_odd(job, impossible)
            low = [row for row in table["reference"] if row["ratio"] < 1]
            if any(fault["fault"] == "nccl.low-bandwidth" for fault in job["faults"]):
                continue
            if low:
                nccl.call_slow(job, table, _below_floor(table, low))
            elif profile is None and (tcp := looks_like_tcp(job, table, algorithm_of(table))):
                nccl.call_slow(job, table, tcp)
        if job["diagnosis"] == "healthy-rdma" and any(
            (wire := table["wire"]) is not None and wire["above_wire"] for table in job["tables"]
        ):
            job["diagnosis"] = "healthy-nvlink-limited"


def _peers_off(job: JobDocument) -> str:
    """Say that the hosts' memory carries more channels between their GPUs than P2P."""
    inside = job["intra_node"]
    if inside["shm"] <= inside["p2p"] or inside["mnnvl"] or inside["nvls"]:
        return ""
    settings = [f"{name}={job['env'][name]}" for name in ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL") if name in job["env"]]
    carried = f"{inside['shm']} of {inside['shm'] + inside['p2p']}" if inside["p2p"] else "all"
    return f"shared memory carries {carried} channels inside the hosts" + "".join(
        f", with {text}" for text in settings[:1]
    )


def _shares_nothing(gpu: str) -> bool:
    """Say whether no link leaves a GPU of this name: a card, or a part of a GPU (MIG user guide: no P2P)."""
    return is_card(gpu) or "MIG" in gpu.split()


def algorithm_of(table: Table) -> str:
    """Return 'ring', or 'default' for whatever NCCL chose."""
    return "ring" if str(table["algorithm"] or "").lower() == "ring" else "default"


_AS_WIRE_LIMIT = ("all_reduce", "alltoall", "sendrecv")
"""For the others wire_limit_gbps gives what a Ring carries; any algorithm sends as much of them as of an all_reduce."""


def _above_the_hardware(job: JobDocument, table: Table, profile: Profile | None) -> str | None:
    """Say which number no hardware of this job gives: its wires, as the log or the profile names them, or its GPUs."""
    peak, ranks, nodes = table["peak_busbw_gbps"], int(job["ranks"] or 0), int(job["nodes"] or 0)
    if peak is None or not nodes or ranks < 2 or ranks % nodes:
        return None
    wires = job["wires_gbps"] or (profile.fabric.node_gbps if profile is not None else None)
    apart = nodes > 1 and job["inter_node_transport"] not in ("none", "unknown", "mnnvl")
    if wires and apart and not job["sharp"] and not job["mixed"]:
        collective, algorithm, per_node = table["collective"] or "", algorithm_of(table), ranks // nodes
        limit = (
            wire_limit_gbps(collective, algorithm, wires, nodes=nodes, gpus_per_node=per_node)
            if collective in _AS_WIRE_LIMIT
            else limit_gbps("default", wires, nodes=nodes, gpus_per_node=per_node)
        )
        if peak > limit * TOLERANCE:
            return (
                f"{peak:g} GB/s of bus bandwidth, and {limit:.4g} is all that {wires:g} GB/s of network a host allow: "
                "what is measured did not move the data, so look at the results (-c 1)"
            )
    names = tuple(job["gpus"])
    links = links_gbps(names) if not any(map(is_card, names)) else None
    if links and peak > (limit := intra_node_limit_gbps(links, gpus=ranks)) * TOLERANCE:
        return f"{peak:g} GB/s of bus bandwidth, and {limit:.4g} is all that the links of {names[0]} allow"
    return None


def _wire(job: JobDocument, table: Table, profile: Profile | None) -> WireUse | None:
    """Return what the peak means on the wire of a host; None inside one host."""
    peak = table["peak_busbw_gbps"]
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
    if not ranks or not nodes or ranks % nodes or job["sharp"]:
        return None
    per_node: int = ranks // nodes
    return round(peak / limit_gbps("default", 1.0, nodes=nodes, gpus_per_node=per_node) * 8 / per_node, 1)


def _rows(job: JobDocument, table: Table, profile: Profile) -> list[FloorRow]:
    """Return every row that the profile names, beside its floor; the worse of both sides counts."""
    if job["ranks"] != (job["nodes"] or 0) * (profile.gpu.per_node or 0):
        return []  # other sizes give other numbers
    floors = profile.floor(_collective_of(table), algorithm_of(table), job["nodes"] or 0)
    rows: list[FloorRow] = []
    for floor in floors:
        for row in table["rows"]:
            values = bandwidths(row)
            if row["size_bytes"] == floor.size and values:
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


def _below_floor(table: Table, low: list[FloorRow]) -> str:
    worst = min(low, key=lambda row: row["ratio"])
    return (
        f"{worst['busbw_gbps']:g} GB/s at {worst['size_bytes']} bytes under {algorithm_of(table)};"
        f" {worst['topology']} gives at least {worst['floor_gbps']:g}"
    )


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
        against_floors = any(table["reference"] for table in job["tables"])
        low = list(_far_below(job))[:_SHOWN] if job["verdict"] == "go" and not against_floors else []
        text = "; ".join(low)
        if profile is not None:
            floors, others = list(_floors(job, profile, applied)), [*_layout(job, profile), *_sums(job)]
            job["not_judged"] = floors + others
            if job["not_judged"]:
                missing = "; ".join(_in_short(floors, profile) + others)
                text += f"{'; ' if text else ''}not judged against the profile: {missing}"
        if text:
            nccl.withhold(job, "far-below-published" if low else "not-judged", text)


def _in_short(floors: list[str], profile: Profile) -> list[str]:
    """Return a few floors that were not applied as they are, of many how many there are."""
    if len(floors) < 3:
        return floors
    number = "all" if len(floors) == len(profile.floors) else f"{len(floors)} of the"
    return [f"{number} {len(profile.floors)} floors, of which no row of these logs is"]


def _key(table: Table, job: JobDocument, size: int) -> tuple[str, str, int, int]:
    return _collective_of(table), algorithm_of(table), job["nodes"] or 0, size


def _collective_of(table: Table) -> str:
    """Return a table's collective: all_reduce where it does not say, unless nothing was reduced."""
    reduced = all(row["redop"] != "none" for row in table["rows"])
    return table["collective"] or ("all_reduce" if reduced else "")


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
