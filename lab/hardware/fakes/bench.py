"""The model of a collective's bandwidth, and the table that the bench prints.

The duration is a start-up time plus the bytes divided by the plateau's rate. The plateaus are published: two nodes of 8
H100 on 8x400G InfiniBand reach 467 GB/s at 8 GiB with NCCL's own choice (Together documentation), Ring 386.6 GB/s at 8
GiB (coreweave/nccl-tests), all_gather 325.7 GB/s (Google Cloud, A3 Ultra), TCP 3.76 GB/s (SkyPilot documentation); one
HGX H100 479.7 GB/s with NVLink SHARP (Voltage Park), 367 GB/s with Ring, 361 and 363 for all_gather and reduce_scatter
(ml-engineering). Without a publication the rate is derived from the links: in an all_to_all over two nodes half of the
data crosses, each GPU's over its own NIC; in a send/recv ring one pair of GPUs uses one NIC. The numbers are computed
without sleeping.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# plateau in GB/s of bus bandwidth, start-up time of a small message in us, additional start-up time of a large one in
# us
CURVES: dict[str, tuple[float, float, float]] = {
    "ring": (386.0, 58.0, 150.0),
    "tree": (470.0, 44.0, 185.0),
    "socket": (3.80, 900.0, 2600.0),
    "nvlink": (480.0, 26.0, 60.0),
    "nvlink-ring": (367.0, 30.0, 40.0),
    "shm": (21.0, 40.0, 90.0),  # through host memory: every byte crosses a ring over PCIe gen5 x16 twice
}
# Share of a Ring all_reduce's bandwidth for the other collectives: between nodes of eight GPUs, and inside one.
SHARES: dict[str, tuple[float, float]] = {
    "all_reduce": (1.0, 1.0),
    "all_gather": (0.845, 0.984),
    "reduce_scatter": (0.845, 0.989),
    "all_to_all": (0.215, 0.93),
    "sendrecv": (0.124, 1.0),
    "broadcast": (0.98, 0.98),
}
# The sides (in place, out of place) that torch's calls measure.
SIDES: dict[str, tuple[str, ...]] = {
    "all_reduce": ("in",),
    "all_gather": ("out", "in"),
    "reduce_scatter": ("out", "in"),
    "all_to_all": ("out",),
    "sendrecv": ("out",),
    "broadcast": ("in",),
}
# The sides that nccl-tests' programs measure.
BOTH_SIDES = {op: ("out",) if op == "all_to_all" else ("out", "in") for op in SIDES}
REDOPS = {"all_reduce": "sum", "reduce_scatter": "sum"}
# The rate of a rail in the measurements of the plateaus of "ring" and "tree".
_RAIL_GBIT_S = 400.0
# The message size in bytes from which the start-up time is that of a large message.
_LARGE = 64 << 20


class Half(NamedTuple):
    """The measurement of one size on one side: time in us, and derived values."""

    time_us: float
    algbw: float
    busbw: float
    wrong: int


class Row(NamedTuple):
    """One message size of one collective; None for a side that was not measured."""

    op: str
    size: int
    elements: int
    out_of_place: Half | None
    in_place: Half | None


def factor_of(op: str, ranks: int) -> float:
    """Return bus bandwidth divided by algorithm bandwidth (nccl-tests, doc/PERFORMANCE.md)."""
    if op in ("sendrecv", "broadcast"):
        return 1.0
    return (2 if op == "all_reduce" else 1) * (ranks - 1) / ranks


def curve_of(
    ranks: Sequence[Mapping[str, Any]], nodes: int, algorithm: str, curves: Mapping[str, Any], op: str = "all_reduce"
) -> list[float]:
    """Return the curve (plateau, two start-up times) of the slowest path of this communicator."""
    table = {name: list(values) for name, values in CURVES.items()}
    table.update({name: list(values) for name, values in curves.items()})
    # A broken or downtrained NVLink slows the ring of its node, and thereby all of them.
    intra_node = table["nvlink" if algorithm == "nvls" and op == "all_reduce" else "nvlink-ring"]
    if all(str(rank.get("intra", "")).startswith("NET/") and rank["devices"] for rank in ranks):
        intra_node = _between(ranks, 1, table, "ring", curves)  # through the node's own NICs, as part of the ring
    elif not all(str(rank.get("intra", "P2P")).startswith("P2P") for rank in ranks):
        intra_node = table["shm"]
    pace = min(float(rank.get("nvlink_scale", 1.0)) for rank in ranks)
    intra_node = [intra_node[0] * pace * SHARES[op][1], *intra_node[1:]]
    if nodes == 1:
        return intra_node
    curve = _between(ranks, nodes, table, "ring" if algorithm == "ring" or op != "all_reduce" else "tree", curves)
    whole = table["nvlink-ring"][0]  # a ring between nodes includes the NVLinks of each node
    slowed = min(1.0, intra_node[0] / SHARES[op][1] / whole)
    return [min(curve[0], table["tree"][0]) * (slowed if slowed < 0.9 else 1.0) * SHARES[op][0], *curve[1:]]


def _between(
    ranks: Sequence[Mapping[str, Any]], nodes: int, table: Mapping[str, list[float]], name: str, own: Mapping[str, Any]
) -> list[float]:
    curve = table[name]
    slow = [rank for rank in ranks if rank["network"] == "Socket"]
    if slow:
        # Channels share the data evenly and wait for each other: one slow rail of eight slows all of them.
        rails = max(1, len(ranks) // nodes)
        plateau, first, more = table["socket"]
        share = rails if len(slow) < len(ranks) else 1
        return [min(curve[0], plateau * share), first, more]
    if not all(rank["gdr"] for rank in ranks):
        curve = [curve[0] * 0.28, curve[1] * 1.5, curve[2] * 2]  # through host memory: both copies cross the PCIe root
    rails = max(1, len(ranks) // nodes)
    lost = max(1 - len(rank["devices"]) / rails for rank in ranks)
    # All rails carry the same share of the data, so the slowest NIC limits all.
    slowest = min((float(nic["rate_gbps"]) for rank in ranks for nic in rank["devices"]), default=_RAIL_GBIT_S)
    pace = min(1.0, slowest / _RAIL_GBIT_S) if name not in own else 1.0
    return [curve[0] * (1 - max(0.0, lost)) * pace, curve[1], curve[2]]


class Deviation(NamedTuple):
    """Deviation of measured from computed values: a seed for the noise, a share of the rate, the size of variations."""

    seed: str
    scale: float = 1.0
    noise: float = 0.0
    wrong: int = 0


def rows(
    op: str,
    sizes: Sequence[int],
    ranks: int,
    curve: Sequence[float],
    cycles: int,
    deviation: Deviation,
    sides: Mapping[str, tuple[str, ...]] = SIDES,
) -> list[Row]:
    """Return one row per size and cycle."""
    plateau, first, more = curve
    factor, whole = factor_of(op, ranks), op in ("all_reduce", "sendrecv", "broadcast")
    result = []
    for cycle in range(cycles):
        for asked in sizes:
            size = asked if whole else asked // 4 // ranks * 4 * ranks
            halves = {}
            for side in sides[op]:
                digest = hashlib.sha256(f"{deviation.seed}/{asked}/{cycle}/{side}".encode()).digest()
                noise = 1 + (digest[0] / 255 - 0.5) * 0.012
                # Variations only slow down, in a third of the cycles, so that the best cycle is the hardware's rate.
                noise *= 1 + (deviation.noise if cycle % 3 == 1 else 0.0) * (0.8 + 0.4 * digest[1] / 255)
                start_up = first + more * (1 - math.exp(-size / _LARGE))
                busy = size * factor / (plateau * deviation.scale * 1e3)
                time_us = (start_up + busy) * noise
                algbw = size / time_us / 1e3
                halves[side] = Half(time_us, algbw, algbw * factor, deviation.wrong)
            count = size // 4 if whole else size // 4 // ranks
            result.append(Row(op, size, count, halves.get("out"), halves.get("in")))
    return result


def sizes_of(options: Mapping[str, Any]) -> list[int]:
    """Return the message sizes between --min-bytes and --max-bytes."""
    size, sizes = int(options["min_bytes"]), []
    factor = max(2, int(options["factor"]))
    while 0 < size <= int(options["max_bytes"]):
        sizes.append(size)
        size *= factor
    return sizes


def header(options: Mapping[str, Any], job: Mapping[str, Any]) -> list[str]:
    """Return the lines above the rows: the settings and the devices of all ranks."""
    if options.get("program"):
        lines = [
            "# nccl-tests version 2.17.6 nccl-headers={0} nccl-library={0}".format(_code(job["nccl"])),
            f"# Collective test starting: {options['program']}",
        ]
    else:
        lines = [f"# seatrial {options['op']} bench, torch {job['torch']}, {job['library']} {job['nccl']}".rstrip()]
    lines += [
        "# nThread 1 nGpus 1 minBytes {min_bytes} maxBytes {max_bytes} step: {factor}(factor) warmup iters: {warmup} "
        "iters: {iters} agg iters: 1 validation: 1 graph: 0".format(**options),
        "#",
        "# Using devices",
    ]
    for rank in job["ranks"]:
        lines.append(
            "#  Rank {:2d} Group  0 Pid {:6d} on {:>10} device {:2d} [{}] {}".format(
                rank["rank"], rank["pid"], rank["host"], rank["local"], rank["pci"], rank["gpu"]
            )
        )
    left = ("size", "count", "type", "redop", "root")
    units = ("(B)", "(elements)", "", "", "", *(("(us)", "(GB/s)", "(GB/s)", "") * 2))
    columns = ("time", "algbw", "busbw", "#wrong")
    row = "# %10s  %12s  %8s  %6s  %6s"
    half = "  %7s  %6s  %6s %6s"
    return [
        *lines,
        "#",
        row % (("",) * 5) + "           out-of-place                       in-place",
        row % left + half % columns + half % columns,
        (row + half + half) % units,
    ]


def _code(version: str) -> int:
    """Return NCCL's version as one number: 2.28.9 is 22809 (nccl.h)."""
    major, minor, patch = (int(part) for part in version.partition("+")[0].split("."))
    return major * 10000 + minor * 100 + patch


def line(row: Row) -> str:
    """Format one row of the table; values that torch's call does not measure are omitted."""
    root = 0 if row.op == "broadcast" else -1
    left = f"{row.size:12d}  {row.elements:12d}     float  {REDOPS.get(row.op, 'none'):>6}  {root:6d}"
    return left + _half(row.out_of_place) + _half(row.in_place)


def _half(half: Half | None) -> str:
    if half is None:
        return "      N/A     N/A     N/A    N/A"
    return f"  {_time(half.time_us):>7}  {half.algbw:6.2f}  {half.busbw:6.2f} {half.wrong:6d}"


def footer(table: Sequence[Row]) -> list[str]:
    """Return the lines below the table."""
    halves = [half for row in table for half in (row.out_of_place, row.in_place) if half]
    wrong = sum(half.wrong for half in halves)
    average = sum(half.busbw for half in halves) / len(halves) if halves else 0.0
    return [
        f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}",
        f"# Avg bus bandwidth    : {average:g}",
        "#",
    ]


def facts(table: Sequence[Row], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the additional file of the bench: the duration of the first message of each size, with cold caches."""
    first: dict[str, float] = {}
    for row in table:
        half = row.out_of_place or row.in_place
        if half is not None:
            first.setdefault(str(row.size), round(half.time_us * 1.18 + 40, 2))
    return {"op": options["op"], "cycles": options["cycles"], "largest": options["max_bytes"], "first_us": first}


def _time(us: float) -> str:
    """Format a time in at most seven characters: fewer decimals for a longer time."""
    for decimals in (2, 1, 0):
        text = f"{us:.{decimals}f}"
        if len(text) <= 7:
            return text
    return f"{us:.1e}"
