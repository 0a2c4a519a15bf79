"""How fast is an all_reduce of these sizes on this hardware, and what does the bench print?

The time of one all_reduce is a start-up time plus the bytes over the plateau's rate; the plateaus are published ones:
two nodes of 8 H100 on 8x400G InfiniBand reach 467 GB/s at 8 GiB with NCCL's own choice (Together documentation), Ring
386.6 GB/s at 8 GiB (coreweave/nccl-tests), TCP 3.76 GB/s (SkyPilot documentation); one HGX H100 479.7 GB/s with NVLink
SHARP (Voltage Park), 367 GB/s with Ring (ml-engineering). Nothing is slept for: the numbers are computed.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: plateau in GB/s of bus bandwidth, start-up of a small message in us, more start-up of a large one in us
CURVES: dict[str, tuple[float, float, float]] = {
    "ring": (386.0, 58.0, 150.0),
    "tree": (470.0, 44.0, 185.0),
    "socket": (3.80, 900.0, 2600.0),
    "nvlink": (480.0, 26.0, 60.0),
    "nvlink-ring": (367.0, 30.0, 40.0),
}
#: The rate of a rail with which the plateaus of "ring" and "tree" were measured.
_RAIL_GBIT_S = 400.0
#: The rate at which a message counts as large in the start-up time.
_LARGE = 64 << 20


class Row(NamedTuple):
    """One message size: time in us, and what follows from it."""

    size: int
    time_us: float
    algbw: float
    busbw: float
    wrong: int


def curve_of(ranks: Sequence[Mapping[str, Any]], nodes: int, algorithm: str, curves: Mapping[str, Any]) -> list[float]:
    """The curve (plateau, two start-up times) for the slowest path that this communicator has."""
    table = {name: list(values) for name, values in CURVES.items()}
    table.update({name: list(values) for name, values in curves.items()})
    if nodes == 1:
        return table["nvlink" if algorithm == "nvls" else "nvlink-ring"]
    name = "ring" if algorithm == "ring" else "tree"
    curve = table[name]
    slow = [rank for rank in ranks if rank["network"] == "Socket"]
    if slow:
        # Channels share the data evenly and wait for each other: one slow rail of eight sets the pace of all.
        rails = max(1, len(ranks) // nodes)
        plateau, first, more = table["socket"]
        share = rails if len(slow) < len(ranks) else 1
        return [min(curve[0], plateau * share), first, more]
    if not all(rank["gdr"] for rank in ranks):
        curve = [curve[0] * 0.28, curve[1] * 1.5, curve[2] * 2]  # through host memory: both copies cross the PCIe root
    rails = max(1, len(ranks) // nodes)
    lost = max(1 - len(rank["devices"]) / rails for rank in ranks)
    # All rails carry the same share of the data, so that the slowest card sets the pace of all.
    slowest = min((float(card["rate_gbps"]) for rank in ranks for card in rank["devices"]), default=_RAIL_GBIT_S)
    pace = min(1.0, slowest / _RAIL_GBIT_S) if name not in curves else 1.0
    return [curve[0] * (1 - max(0.0, lost)) * pace, curve[1], curve[2]]


def rows(sizes: Sequence[int], ranks: int, curve: Sequence[float], *, seed: str, scale: float, wrong: int) -> list[Row]:
    """One row per size; `seed` makes the small noise, `scale` is a fabric's share of its nominal rate."""
    plateau, first, more = curve
    factor = 2 * (ranks - 1) / ranks
    result = []
    for size in sizes:
        digest = hashlib.sha256(f"{seed}/{size}".encode()).digest()
        noise = 1 + (digest[0] / 255 - 0.5) * 0.012
        start_up = first + more * (1 - math.exp(-size / _LARGE))
        busy = size * factor / (plateau * scale * 1e3)
        time_us = (start_up + busy) * noise
        algbw = size / time_us / 1e3
        result.append(Row(size, time_us, algbw, algbw * factor, wrong))
    return result


def sizes_of(options: Mapping[str, Any]) -> list[int]:
    """The message sizes between --min-bytes and --max-bytes."""
    size, sizes = int(options["min_bytes"]), []
    factor = max(2, int(options["factor"]))
    while 0 < size <= int(options["max_bytes"]):
        sizes.append(size)
        size *= factor
    return sizes


def header(options: Mapping[str, Any], job: Mapping[str, Any]) -> list[str]:
    """What stands above the rows: the settings and the devices of all ranks."""
    lines = [
        "# seatrial all_reduce bench, torch {}, nccl {}".format(job["torch"], job["nccl"]),
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


def line(row: Row) -> str:
    """One row of the table; torch's all_reduce works in place, so nothing was measured out of place."""
    left = f"{row.size:12d}  {row.size // 4:12d}     float     sum      -1      N/A     N/A     N/A    N/A"
    return f"{left}  {_time(row.time_us):>7}  {row.algbw:6.2f}  {row.busbw:6.2f} {row.wrong:6d}"


def footer(table: Sequence[Row]) -> list[str]:
    """The lines below the table."""
    wrong = sum(row.wrong for row in table)
    average = sum(row.busbw for row in table) / len(table) if table else 0.0
    return [
        f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}",
        f"# Avg bus bandwidth    : {average:g}",
        "#",
    ]


def _time(us: float) -> str:
    """A time in at most seven characters: fewer decimals the longer it is."""
    for decimals in (2, 1, 0):
        text = f"{us:.{decimals}f}"
        if len(text) <= 7:
            return text
    return f"{us:.1e}"
