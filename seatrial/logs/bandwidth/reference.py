"""The only judgement of a measured bus bandwidth: hardware and rows in, the nearest reference out.

The references in order: a floor of the profile; a published result of the same GPUs, fabric, collective and about as
many hosts; the same GPUs in another layout, marked as such; the rate of NICs or NVLink; none. Units are GB/s (1e9 bytes
a second).

A row is compared with the published value at its own size. Of several equally near rows the highest counts, since the
same hardware reached it. If the log's fabric is unknown or has no row, the fabric with the lowest value counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..job_document import FloorRow, JobDocument, PublishedRow, Reference, ReferenceKind, Table
from ..rows import bandwidths
from .hardware import NOTHING_SAID, Hardware, Said, hardware_of
from .physics import GIB, intra_node_limit_gbps, limit_gbps, links_gbps, wire_limit_gbps
from .published import FABRICS, TCP, Published, is_card, published, rows_of, size_text, usual

LOW, FAR = 0.7, 0.25
"""The smallest accepted share of the nearest reference. Published runs of one kind of hardware differ by up to 29 %
(H100 over InfiniBand: 467 GB/s on two hosts, 330.9 on four); a healthy cluster with two of eight rails reaches more
than a quarter."""
SMALLEST = 64 << 20
"""Bytes. Below it latency decides: the smallest published row is 128 MiB."""
_OF_NICS = 0.81
"""Share of the rate of a host's NICs: the lowest published one (all_gather over RoCE 8 x 400 Gb/s, Google Cloud
documentation of A3 Ultra); InfiniBand reaches 0.97 (coreweave/nccl-tests)."""
_OF_LINKS = 0.69
"""Share of the link bandwidth of a GPU: 310 of 448 GB/s (MI300X, ROCm blogs); Ring on H200 reaches 0.82 (stas00)."""
_OTHER_COLLECTIVE = 0.68
"""all_gather is published with 325.7 GB/s and all_reduce with 481 (H200, 8 x 400 Gb/s): the lowest of such pairs."""
_RING_INSIDE = 0.76
"""Ring inside a host of H200: 367 GB/s; NVLink SHARP: 482 (stas00)."""
_MORE_HOSTS = 0.83
"""386.6 GB/s on eight hosts, 467 on two (H100 over InfiniBand): a tree over two hosts exceeds the links."""
_RING = 0.9
"""Share of the links that a ring over more than two hosts reaches: 0.97 (InfiniBand) to 0.81 (RoCE)."""
_DOMAIN = 72
"""GPUs in one NVLink domain (NVIDIA GB200 NVL72, GB300 NVL72)."""
_ACROSS_DOMAINS = 0.46
"""381 GB/s over 20 racks, 835 in one (GB200, coreweave/nccl-tests)."""
_PART_OF_A_BOARD = 1 / 3
"""A board of four GPUs without a switch joins each two by a third of their links (HGX A100 and H100 4-GPU)."""
_RINGED = frozenset(("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"))
"""On a ring every edge carries their bus bandwidth (nccl-tests, doc/PERFORMANCE.md), so that one represents another."""
_SAME_RATE = 0.1
_SHOWN = 3
_MOST_SHARE = 100
Floors = Callable[[JobDocument, Table, Hardware], Sequence[FloorRow]]
"""Returns the floors that a profile has for a table, each with its row."""


@dataclass(frozen=True, slots=True)
class _Near:
    """A published row and the measured one: its expectation, and the distance of its hardware from the log's."""

    entry: Published
    size: int
    value: float  # the measured value at that size
    expected: float
    distance: tuple[float, ...]

    @property
    def same(self) -> bool:
        """Whether hardware, collective and the approximate number of hosts are the log's."""
        return not any(self.distance[:4]) and self.distance[4] <= 1


def refer(hardware: Hardware, points: Mapping[int, float], floors: Sequence[FloorRow] = ()) -> Reference:
    """Return the references of a benchmark's rows.

    ``points`` are bus bandwidths by size, ``floors`` those of a profile that apply to a row.
    """
    large = {size: value for size, value in points.items() if size >= SMALLEST and math.isfinite(value)}
    near = _nearest(hardware, large) if large else []
    rows = [_row(hardware, each) for each in _shown(near)]
    if floors:
        return _said(hardware, _by_floor(min(floors, key=lambda row: row["ratio"])), rows)
    if (hardware.nodes, hardware.gpus_per_node) == (1, 1):
        return _unknown("one GPU alone sends nothing: no speed to judge")
    if not large:
        reason = f"no row is of {size_text(SMALLEST)} or more" if points else "no row holds a bus bandwidth"
        return _unknown(f"{reason}, so latency decides and the speed was not judged")
    made = _decided(hardware, large, near)
    return _said(hardware, made, rows) if made else _unknown(_missing(hardware))


def refer_table(job: JobDocument, table: Table, known: Said = NOTHING_SAID, floors: Floors | None = None) -> Hardware:
    """Add a table's reference, and return the reference's hardware."""
    hardware = hardware_of(job, table, known)
    table["reference"] = list(floors(job, table, hardware)) if floors else []
    table["nearest"] = nearest = refer(hardware, points_of(table), table["reference"])
    table["published"] = nearest["rows"][0] if nearest["kind"] == "published" else None
    return hardware


def points_of(table: Table) -> dict[int, float]:
    """Return the bus bandwidth by size: the better side of a row, since published tables show only one."""
    points: dict[int, float] = {}
    for row in table["rows"]:
        if values := bandwidths(row):
            points[row["size_bytes"]] = max(*values, points.get(row["size_bytes"], 0.0))
    return points


@dataclass(frozen=True, slots=True)
class _Made:
    kind: ReferenceKind
    size: int
    value: float
    expected: float
    source: str
    what: str


def _decided(hardware: Hardware, large: Mapping[int, float], near: Sequence[_Near]) -> _Made | None:
    """Return the deciding reference: the same hardware, the limit of NICs or links, or another layout of the GPUs."""
    first = near[0] if near else None
    if first and first.same:
        return _of_row("published", first)
    size = max(large)
    wires = _by_wires(hardware, size, large[size])
    if wires and (hardware.wires_said or first is None or wires.expected > first.expected):
        return wires  # the NICs that NCCL saw lower no expectation: some may be lost
    if first:
        return _of_row("elsewhere", first)
    return _by_links(hardware, size, large[size]) or _by_older(hardware, large)


def _by_floor(row: FloorRow) -> _Made:
    what = f"the profile's floor for {row['topology']} is {row['floor_gbps']:g}"
    return _Made("floor", row["size_bytes"], row["busbw_gbps"], row["floor_gbps"], row["source"], what)


def _of_row(kind: ReferenceKind, near: _Near) -> _Made:
    return _Made(kind, near.size, near.value, near.expected, near.entry.cited, "")


def _by_wires(hardware: Hardware, size: int, value: float) -> _Made | None:
    nodes, per_node, wires = hardware.nodes or 0, hardware.gpus_per_node or 0, hardware.wires_gbps
    if not wires or nodes < 2 or not per_node or hardware.fabric in ("mnnvl", TCP):
        return None
    collective = hardware.collective or "sendrecv"
    limit = min(_limit(collective, "ring", wires, nodes, per_node), wires)
    what = f"the NICs of a host carry {wires:g}, and at least {_OF_NICS:.0%} of what they allow is published"
    return _Made(
        "wires",
        size,
        value,
        _OF_NICS * limit * usual(size, inside=False),
        "link rate; Google Cloud documentation (A3 Ultra)",
        what,
    )


def _by_links(hardware: Hardware, size: int, value: float) -> _Made | None:
    links = links_gbps((hardware.gpu,)) if hardware.gpu and not is_card(hardware.gpu) else None
    inside = hardware.nodes == 1 or hardware.fabric == "mnnvl"
    if not links or not inside or "MIG" in hardware.gpu.upper().split() or (hardware.gpus_per_node or 0) < 2:
        return None
    part = _PART_OF_A_BOARD / 2 if hardware.gpus_per_node in (2, 3) and hardware.nodes == 1 else 1.0
    other = 1.0 if hardware.collective == "all_reduce" else _OTHER_COLLECTIVE
    what = f"the links of one {hardware.gpu} carry {links:g}"
    return _Made(
        "links",
        size,
        value,
        _OF_LINKS * links * part * other * usual(size, inside=hardware.nodes == 1),
        "the GPU's data sheet",
        what,
    )


def _by_older(hardware: Hardware, large: Mapping[int, float]) -> _Made | None:
    """Return the lowest published value between hosts of any GPUs without faster links."""
    links = links_gbps((hardware.gpu,)) if hardware.gpu and not is_card(hardware.gpu) else None
    if not links or hardware.nodes is None or hardware.nodes < 2 or "MIG" in hardware.gpu.upper().split():
        return None
    older = [
        entry
        for entry in published()
        if entry.nodes > 1 and entry.fabric not in (TCP, "mnnvl") and 0 < (links_gbps((entry.gpu,)) or 0) <= links
    ]
    same = [entry for entry in older if entry.fabric == hardware.fabric] or older
    near = [made for entry in same if (made := _near(hardware, entry, large))]
    if not near:
        return None
    least = min(near, key=lambda each: each.expected)
    what = f"older GPUs of {least.entry} give {least.entry.at(least.size):.4g} GB/s"
    return _Made("elsewhere", least.size, least.value, least.expected, least.entry.cited, what)


# -- published rows ----------------------------------------------------------------------------------------------------
def _nearest(hardware: Hardware, large: Mapping[int, float]) -> list[_Near]:
    """Return the nearest row of each fabric, the deciding one first."""
    if not (hardware.gpu and hardware.nodes and hardware.gpus_per_node):
        return []
    by_fabric: dict[str, _Near] = {}
    for entry in rows_of(hardware.gpu):
        if (entry.nodes > 1) != (hardware.nodes > 1) or (made := _near(hardware, entry, large)) is None:
            continue
        if _is_no_guide(hardware, entry):
            continue
        best = by_fabric.get(entry.fabric)
        if best is None or (made.distance, -made.expected) < (best.distance, -best.expected):
            by_fabric[entry.fabric] = made
    if hardware.fabric != "mnnvl" and (hardware.fabric != "unknown" or len(by_fabric) > 1):
        by_fabric.pop("mnnvl", None)  # one host has no network
    own = by_fabric.pop(hardware.fabric, None)
    by_distance = sorted(by_fabric.values(), key=lambda each: (*each.distance[:3], each.distance[4] > 1, each.expected))
    return ([own] if own else []) + by_distance


def _near(hardware: Hardware, entry: Published, large: Mapping[int, float]) -> _Near | None:
    """Return a published row with the measured row of the largest size that both have, or that it represents."""
    if hardware.wires_said and entry.nodes > 1 and entry.fabric != "mnnvl":
        if not entry.node_gbps and entry.fabric != hardware.fabric:
            return None
        if entry.node_gbps and abs(entry.node_gbps / (hardware.wires_gbps or 1) - 1) > _SAME_RATE:
            return None
    most = max(entry.by_size)
    sizes = [size for size in large if size <= most * 1.001] or [min(large)]
    expected = {size: _expected(hardware, entry, size) for size in sizes}
    size = _telling({size: large[size] / expected[size] for size in sizes})
    return _Near(entry, size, large[size], expected[size], _distance(hardware, entry))


def _telling(ratios: Mapping[int, float]) -> int:
    """Return the largest size; or the worst of the large ones, if no known curve still rises there.

    A single row is not a level.
    """
    size = max(ratios)
    worst = min((each for each in ratios if each >= GIB), key=ratios.__getitem__, default=size)
    return worst if ratios[worst] < LOW * usual(worst, inside=False) and ratios[size] >= LOW else size


def _distance(hardware: Hardware, entry: Published) -> tuple[float, ...]:
    """Return the distance of a row's hardware from the log's, the most important part first."""
    nodes, few = hardware.nodes or 1, min(hardware.nodes or 1, entry.nodes)
    apart = abs(math.log2(nodes / entry.nodes))
    unknown = hardware.fabric == "unknown"
    return (
        entry.collective != hardware.collective,
        not unknown and entry.fabric != hardware.fabric,
        entry.gpus_per_node != hardware.gpus_per_node,
        entry.algorithm != hardware.asked,
        # two hosts are a separate case, and so is one NVLink domain
        1 + apart if _leaves_its_domain(hardware, entry) or (apart and few <= 2) else apart,
        bool(hardware.nics and entry.rails) and entry.rails != hardware.nics,
        bool(entry.platform) and bool(hardware.platforms) and entry.platform not in hardware.platforms,
        bool(entry.memory) and entry.memory.replace(" ", "").upper() not in hardware.gpu.replace(" ", "").upper(),
    )


def _leaves_its_domain(hardware: Hardware, entry: Published) -> bool:
    """Return whether exactly one of the log and the row is inside an NVLink domain, and the other spans several."""
    gpus = (hardware.nodes or 1) * (hardware.gpus_per_node or 1), entry.nodes * entry.gpus_per_node
    return entry.fabric == hardware.fabric == "mnnvl" and min(gpus) <= _DOMAIN < max(gpus)


def _is_no_guide(hardware: Hardware, entry: Published) -> bool:
    """Return whether to exclude an alltoall over NVLink domains: a fourteenth of one domain's bandwidth (GB300)."""
    across = entry.fabric == "mnnvl" and (hardware.nodes or 1) * (hardware.gpus_per_node or 1) > _DOMAIN
    kinds = {entry.collective, hardware.collective}
    return "alltoall" in kinds and (_leaves_its_domain(hardware, entry) or (across and len(kinds) > 1))


def _expected(hardware: Hardware, entry: Published, size: int) -> float:
    """Return a row's expectation for the log's hardware; conservative if the two differ."""
    value, nodes, per_node = entry.at(size), hardware.nodes or 1, hardware.gpus_per_node or 1
    inside, collective = nodes == 1, hardware.collective or "sendrecv"
    if entry.algorithm != "ring" and (hardware.asked == "ring" or (entry.nodes == 2 < nodes)):
        if inside:
            value *= _RING_INSIDE
        elif entry.nodes == 2 and entry.collective == "all_reduce" and entry.fabric != "mnnvl":
            value = min(value, _RING * entry.node_gbps if entry.node_gbps else _MORE_HOSTS * value)
    further = entry.fabric == "mnnvl" and nodes > 2 * entry.nodes and nodes * per_node > _DOMAIN
    if further or (_leaves_its_domain(hardware, entry) and entry.nodes < nodes):
        value *= _ACROSS_DOMAINS
    if "alltoall" == collective == entry.collective and not inside and entry.fabric != "mnnvl":
        value *= _limit(collective, "default", per_node, nodes, per_node)
        value /= _limit(collective, "default", per_node, entry.nodes, per_node)
    if inside and per_node != entry.gpus_per_node:
        value *= intra_node_limit_gbps(1.0, gpus=per_node) / intra_node_limit_gbps(1.0, gpus=entry.gpus_per_node)
        value *= _PART_OF_A_BOARD if per_node < 4 else 1.0
    elif not inside and entry.fabric != "mnnvl" and (per_node, collective) != (entry.gpus_per_node, entry.collective):
        theirs = collective if {collective, entry.collective} <= _RINGED else entry.collective
        allowed = _limit(collective, hardware.asked, per_node, nodes, per_node)
        allowed /= _limit(theirs, hardware.asked, entry.gpus_per_node, nodes, entry.gpus_per_node)
        value *= allowed if theirs == collective else min(allowed, per_node / entry.gpus_per_node)
    if entry.collective == collective:
        return value
    if entry.nodes == 2 and entry.collective == "all_reduce" and collective in _RINGED and entry.fabric != "mnnvl":
        return min(value, _OF_NICS * entry.node_gbps) if entry.node_gbps else value / 2  # the others have no tree
    return value * _OTHER_COLLECTIVE


def _limit(collective: str, algorithm: str, node: float, nodes: int, per_node: int) -> float:
    """Return the limit of the NICs; for sendrecv that of the NIC next to each GPU."""
    if collective == "sendrecv":
        return node / per_node
    return wire_limit_gbps(collective, algorithm, node, nodes=nodes, gpus_per_node=per_node)


def _shown(near: Sequence[_Near]) -> list[_Near]:
    """Return the deciding row, and the lowest and highest rows of other fabrics that are equally near."""
    first = next(iter(near), None)
    by_distance = [each for each in near[1:] if first and each.distance[:3:2] == first.distance[:3:2]]
    ends = sorted(by_distance, key=lambda each: each.entry.at(each.size))
    return [*near[:1], *(ends if len(ends) < _SHOWN else (ends[0], ends[-1]))]


def _row(hardware: Hardware, near: _Near) -> PublishedRow:
    entry, value = near.entry, near.entry.at(near.size)
    limit = (
        limit_gbps(entry.algorithm, entry.node_gbps, nodes=entry.nodes, gpus_per_node=entry.gpus_per_node)
        if entry.node_gbps and entry.nodes > 1 and hardware.collective == entry.collective == "all_reduce"
        else None
    )
    return {
        "size_bytes": near.size,
        "busbw_gbps": near.value,
        "published_gbps": round(value, 2),
        "ratio": round(near.value / value, 3),
        "of_wire": round(near.value / limit, 3) if limit else None,
        "topology": str(entry) if entry.collective == hardware.collective else f"{entry}, {entry.collective}",
        "source": entry.cited,
    }


# -- words -------------------------------------------------------------------------------------------------------------
def _said(hardware: Hardware, made: _Made, rows: list[PublishedRow]) -> Reference:
    ratio = made.value / made.expected if made.expected else 0.0
    value, first = f"{made.value:.4g} GB/s at {size_text(made.size)}", next(iter(rows), None)
    if first and made.kind == "published" and hardware.fabric != "unknown":
        text = f"{value} is {share(ratio)} of the {_published(first, 'that are published for')}"
        text += "; others: " * (len(rows) > 1) + "; ".join(_published(row, "for") for row in rows[1:])
    elif first and made.kind == "published":
        least, most = (share(end(row["ratio"] for row in rows)) for end in (min, max))
        between = least if least == most else f"{least} to {most}"
        text = f"{value} is {between} of what is published: {'; '.join(_published(row, 'for') for row in rows)}"
    elif first and made.kind == "elsewhere":
        text = f"{value} is {share(ratio)} of {made.expected:.4g} GB/s, the least that follows for {_named(hardware)}"
        text += f", without published values, from {'; '.join(_published(row, 'for') for row in rows)}"
    else:
        text = f"{value} is {share(ratio)} of {made.expected:.4g} GB/s: {made.what} ({made.source})"
        text += f"; published: {'; '.join(_published(row, 'for') for row in rows)}" if rows else ""
    return {
        "kind": made.kind,
        "size_bytes": made.size,
        "busbw_gbps": made.value,
        "expected_gbps": round(made.expected, 2),
        "ratio": round(ratio, 4),
        "source": made.source,
        "rows": rows,
        "sentence": text,
    }


def _published(row: PublishedRow, of: str) -> str:
    return f"{row['published_gbps']:.4g} GB/s {of} {row['topology']} ({row['source']})"


def _named(hardware: Hardware) -> str:
    over = FABRICS.get(hardware.fabric, "an unknown fabric")
    ring = " by Ring" if hardware.asked == "ring" else ""
    return f"{hardware}, {over}, {hardware.collective or 'an unknown collective'}{ring}"


def share(ratio: float) -> str:
    """Return a ratio in percent; very small and very large ones in words."""
    return "less than 1%" if ratio < 0.01 else f"{ratio:.0%}" if ratio <= _MOST_SHARE else f"over {_MOST_SHARE:.0%}"


def _unknown(text: str) -> Reference:
    return {
        "kind": "none",
        "size_bytes": None,
        "busbw_gbps": None,
        "expected_gbps": None,
        "ratio": None,
        "source": "",
        "rows": [],
        "sentence": text,
    }


def _missing(hardware: Hardware) -> str:
    """Explain why no reference exists, and how to provide one."""
    if hardware.several_gpus:
        return "the GPUs are of several models, without a known reference: the speed was not judged"
    lacking = []
    if not hardware.gpu or not (hardware.nodes and hardware.gpus_per_node):
        lacking.append("the hosts, their GPUs and the model (--gpu 2x8xH100)")
    if not hardware.wires_gbps and hardware.nodes != 1:
        lacking.append("a host's NICs and their rate in Gb/s (--nics 8x400)")
    said = f"; to have it judged, pass {' and '.join(lacking)}, or --profile" if lacking else ""
    return f"no reference is known for {_named(hardware)}: the speed was not judged{said}"
