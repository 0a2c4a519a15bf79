"""How fast is an all_reduce of these sizes on this hardware, and what does the bench print?

The time of one all_reduce is a start-up time plus the bytes over the plateau's rate; the plateaus are published ones:
two nodes of 8 H100 on 8x400G InfiniBand reach 467 GB/s at 8 GiB with NCCL's own choice (Together documentation), Ring
386.6 GB/s at 8 GiB (coreweave/nccl-tests), TCP 3.76 GB/s (SkyPilot documentation); one HGX H100 479.7 GB/s with NVLink
SHARP (Voltage Park), 367 GB/s with Ring (ml-engineering). Nothing is slept for: the numbers are computed.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

#: plateau in GB/s of bus bandwidth, start-up of a small message in us, more start-up of a large one in us
CURVES: Dict[str, Tuple[float, float, float]] = {
    "ring": (386.0, 58.0, 150.0),
    "tree": (470.0, 44.0, 185.0),
    "socket": (3.80, 900.0, 2600.0),
    "nvlink": (480.0, 26.0, 60.0),
    "nvlink-ring": (367.0, 30.0, 40.0),
}
#: The rate at which a message counts as large in the start-up time.
_LARGE = 64 << 20


class Row(NamedTuple):
    """One message size: time in us, and what follows from it."""

    size: int
    time_us: float
    algbw: float
    busbw: float
    wrong: int


def curve_of(ranks: Sequence[Mapping[str, Any]], nodes: int, algorithm: str, curves: Mapping[str, Any]) -> List[float]:
    """The curve (plateau, two start-up times) for the slowest path that this communicator has."""
    table = {name: list(values) for name, values in CURVES.items()}
    table.update({name: list(values) for name, values in curves.items()})
    if nodes == 1:
        return table["nvlink" if algorithm == "nvls" else "nvlink-ring"]
    curve = table["ring" if algorithm == "ring" else "tree"]
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
    return [curve[0] * (1 - max(0.0, lost)), curve[1], curve[2]]


def rows(sizes: Sequence[int], ranks: int, curve: Sequence[float], *, seed: str, scale: float, wrong: int) -> List[Row]:
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


def sizes_of(options: Mapping[str, Any]) -> List[int]:
    """The message sizes between --min-bytes and --max-bytes."""
    size, sizes = int(options["min_bytes"]), []
    factor = max(2, int(options["factor"]))
    while 0 < size <= int(options["max_bytes"]):
        sizes.append(size)
        size *= factor
    return sizes


def header(options: Mapping[str, Any], job: Mapping[str, Any]) -> List[str]:
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
    return [
        *lines,
        "#",
        "#                                                              out-of-place                       in-place          ",
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong ",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         ",
    ]


def line(out: Row, within: Row) -> str:
    """One row of the table: out of place, in place."""
    halves = "".join(
        "  {:>7}  {:6.2f}  {:6.2f}  {:6d}".format(_time(row.time_us), row.algbw, row.busbw, row.wrong)
        for row in (out, within)
    )
    return f"{out.size:12d}  {out.size // 4:12d}     float     sum      -1{halves}"


def footer(table: Sequence[Tuple[Row, Row]]) -> List[str]:
    """The lines below the table."""
    bad = sum(1 for pair in table for row in pair if row.wrong)
    average = sum(row.busbw for pair in table for row in pair) / (2 * len(table)) if table else 0.0
    return [
        f"# Out of bounds values : {bad} {'FAILED' if bad else 'OK'}",
        f"# Avg bus bandwidth    : {average:g} ",
        "#",
    ]


def _time(us: float) -> str:
    """A time as nccl-tests prints it: seven characters, fewer decimals the longer it is."""
    if us >= 10_000_000:
        return f"{us:.1e}"
    if us >= 100_000:
        return f"{us:.0f}"
    if us >= 10_000:
        return f"{us:.1f}"
    return f"{us:.2f}"
