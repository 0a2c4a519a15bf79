"""The published measurements, one data file: each row names its hardware, its numbers by size, and its source."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from .physics import GIB

FILE = Path(__file__).resolve().parent / "published.yaml"
TCP = "tcp"
FABRICS = {
    "none": "inside one host",
    TCP: "TCP, without RDMA",
    "ib": "InfiniBand",
    "roce": "RoCE",
    "efa": "EFA",
    "cxi": "Slingshot",
    "fastrak": "GPUDirect-TCPXO",
    "tcpx": "GPUDirect-TCPX",
    "mnnvl": "multi-node NVLink",
}
_FAMILY = {
    "gib": "roce",
    "socket": TCP,
    "fastsocket": TCP,
    "verbs-ofi": "unknown",
    "ucx": "unknown",
    "other": "unknown",
}
"""Transports whose name in the rows differs from the analyzer's: gIB is Google's RoCE; libfabric's verbs and UCX run
over InfiniBand as over RoCE."""
_CARDS = re.compile(r"\bPCIe\b|\bNVL\b", re.IGNORECASE)
"""The same chip on a card, without NVSwitch: another machine."""
_SIZE = re.compile(r"(\d+)([KMG]?)")
_BETWEEN_HOSTS = ((64 << 20, 0.25), (128 << 20, 0.5), (512 << 20, 0.8), (GIB, 0.8), (8 * GIB, 1.0))
_INSIDE = ((64 << 20, 0.4), (128 << 20, 0.65), (512 << 20, 0.9), (GIB, 0.95), (8 * GIB, 1.0))
"""The least share of its 8 GiB row that a published curve shows at a size, for rows that have no smaller one. Between
hosts 0.52 at 128 MiB (B200, four hosts), 0.82 at 512 MiB (H100, EFA), 0.82 at 1 GiB (GB200, 18 hosts); inside one
0.91 at 512 MiB, 0.97 at 1 GiB (H100, NVIDIA/dgxc-benchmarking). Smaller sizes are estimates, since no curve is
published."""


def family(transport: str) -> str:
    """Return a transport's fabric in the words of the rows."""
    return _FAMILY.get(transport, transport)


def operation(collective: str | None) -> str:
    """Return a collective by its name in the rows: torch's bench and nccl-tests spell one of them differently."""
    name = (collective or "").lower().replace("-", "_")
    return "alltoall" if name == "all_to_all" else name


def is_card(gpu: str) -> bool:
    """Return whether a GPU of this name is a card without NVSwitch."""
    return _CARDS.search(gpu) is not None


def size_text(size: float) -> str:
    """Return a size as nccl-tests writes it on its command line, in the largest possible unit: 8G, 1.5M."""
    for unit, power in (("G", 3), ("M", 2), ("K", 1)):
        if size >= 1024**power:
            return f"{size / 1024**power:.4g}{unit}"
    return f"{size:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One published measurement; ``memory`` and ``platform``, if a source names them, distinguish machines."""

    gpu: str
    nodes: int
    gpus_per_node: int
    fabric: str
    collective: str
    algorithm: str
    busbw_gbps: dict[str, float]
    source: str
    date: str = ""
    rails: int | None = None
    rail_gbit_s: float | None = None
    memory: str = ""
    platform: str = ""
    by_size: dict[int, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for text, value in self.busbw_gbps.items():
            if not (match := _SIZE.fullmatch(text)):
                raise ValueError(f"{FILE.name}: {text!r} of {self} is not a size such as 8G")
            self.by_size[int(match[1]) << 10 * " KMG".index(match[2] or " ")] = float(value)

    @property
    def node_gbps(self) -> float | None:
        """The bandwidth of a host's NICs together, if published."""
        return self.rails * self.rail_gbit_s / 8 if self.rails and self.rail_gbit_s else None

    @property
    def cited(self) -> str:
        """Return the source, with its date."""
        return f"{self.source}, {self.date}" if self.date else self.source

    def __str__(self) -> str:
        return f"{self.nodes} x {self.gpus_per_node} {self.gpu}, {FABRICS.get(self.fabric, self.fabric)}"

    def is_of(self, gpu: str) -> bool:
        """Return whether a GPU of this name, as a driver, a label or a person writes it, is the row's."""
        if is_card(gpu) != is_card(self.gpu) or "MIG" in gpu.upper().split():
            return False
        words = re.split(r"[\s_-]+", self.gpu)
        return re.search(r"\b" + r"[\s_-]+".join(map(re.escape, words)) + r"\b", gpu, re.IGNORECASE) is not None

    def at(self, size: float) -> float:
        """Return the bus bandwidth of a size, in GB/s: as published, interpolated, or below by a usual curve."""
        sizes = sorted(self.by_size)
        index = bisect_left(sizes, size)
        if index == len(sizes):
            return self.by_size[sizes[-1]]
        if sizes[index] == size or index > 0:
            return _between(size, *((s, self.by_size[s]) for s in sizes[max(0, index - 1) : index + 1]))
        return self.by_size[sizes[0]] * usual(size, inside=self.nodes == 1) / usual(sizes[0], inside=self.nodes == 1)


def usual(size: float, *, inside: bool) -> float:
    """Return the least share of its 8 GiB row that a published curve shows at a size."""
    shape = _INSIDE if inside else _BETWEEN_HOSTS
    sizes = [known for known, _ in shape]
    index = bisect_left(sizes, size)
    if index in (0, len(sizes)):
        return shape[min(index, len(sizes) - 1)][1]
    return _between(size, shape[index - 1], shape[index])


def _between(size: float, *ends: tuple[float, float]) -> float:
    """Return the interpolated value at a size, on a scale of powers of two."""
    (low, least), (high, most) = ends[0], ends[-1]
    return most if low == high else least + (most - least) * math.log(size / low) / math.log(high / low)


@cache
def published() -> tuple[Published, ...]:
    """Read the published measurements."""
    import yaml  # noqa: PLC0415 -- most logs hold no benchmark

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast; a PyYAML without libyaml lacks it
    entries = yaml.load(FILE.read_text(encoding="utf-8"), Loader=loader)["published"]  # noqa: S506 -- both are safe
    return tuple(Published(**{**entry, "date": str(entry.get("date", ""))}) for entry in entries)


def rows_of(gpu: str) -> Iterator[Published]:
    """Yield the published rows of a GPU with RDMA or inside one host."""
    return (entry for entry in published() if entry.fabric != TCP and entry.is_of(gpu))
