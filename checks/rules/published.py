"""A log's rows beside published measurements of this hardware, and what its wires must carry.

The kind is what the log itself shows: the GPU's name in the table's header, how many GPUs a host has, the transport.
Published numbers are no floors: without a profile they never make a no-go, but for one case. Numbers of eight data
centre GPUs a host that are as low as what was published for the same hosts without RDMA have one explanation, also
where no line shows the transport.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from jobs.nccl.job_document import JobDocument, PublishedRow, Table
from jobs.nccl.rows import bandwidths
from reports.plain import format_size

from ..profiles.yaml_schema import build, parse_size, read_yaml
from .physics import limit_gbps, links_gbps

FILE = Path(__file__).resolve().parent / "published.yaml"
TCP = "tcp"
_PCIE_CARDS = re.compile(
    r"\bPCIe\b|\bNVL\b", re.IGNORECASE
)  # the same chip on a card, without NVSwitch: another machine
_INSTANCES = {
    "p4d.24xlarge": "A100",
    "p4de.24xlarge": "A100",
    "p5.48xlarge": "H100",
    "p5e.48xlarge": "H200",
    "p5en.48xlarge": "H200",
    "p6-b200.48xlarge": "B200",
}
"""What the libfabric plugin prints without a table's header: AWS, Amazon EC2 accelerated computing instances."""
_LARGE, MIDDLING = 1 << 30, 64 << 20
"""Rows between them are still bound by latency in part."""
_NEAR_TCP = 2.5
"""3.15 and 3.76 GB/s are published for IPoIB and TCP; a 100 Gb/s Ethernet port gives at most 12.5 GB/s to all of it."""
FAR_BELOW = 0.05
"""Of what is published for the same hosts with RDMA: one rail of eight, or no GPUDirect, still gives more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One published measurement; ``memory`` and ``platform`` tell machines of one GPU apart, where a source does."""

    gpu: str
    nodes: int
    gpus_per_node: int
    fabric: str
    collective: str
    algorithm: str
    busbw_gbps: dict[str, float]
    source: str
    date: str
    rails: int | None = None
    rail_gbit_s: float | None = None
    memory: str = ""
    platform: str = ""
    by_size: dict[int, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.by_size.update({parse_size(size): value for size, value in self.busbw_gbps.items()})

    @property
    def node_gbps(self) -> float | None:
        """What the rails of a host carry together, where that was published."""
        return self.rails * self.rail_gbit_s / 8 if self.rails and self.rail_gbit_s else None

    def __str__(self) -> str:
        where = {"none": "one host", TCP: "TCP, without RDMA"}.get(self.fabric, self.fabric)
        return f"{self.nodes} x {self.gpus_per_node} {self.gpu}, {where}"


@cache
def published() -> tuple[Published, ...]:
    """Read the published measurements."""
    entries = build(tuple[Published, ...], read_yaml(FILE).get("published"), FILE.name)
    return tuple(entries)


def is_card(gpu: str) -> bool:
    """Say whether a GPU of this name is a card without NVSwitch."""
    return _PCIE_CARDS.search(gpu) is not None


def compare_published(job: JobDocument, table: Table, algorithm: str) -> PublishedRow | None:
    """Return the published row that fits a table, beside the table's own; None where none fits."""
    best: PublishedRow | None = None
    for entry in _matching(job, table, algorithm):
        if entry.fabric == TCP or entry.fabric != _fabric(job):
            continue
        row = _largest_shared(entry, table)
        if row is None or (best is not None and row[0] <= best["size_bytes"]):
            continue
        size, value = row
        limit = (
            entry.node_gbps
            and (job["nodes"] or 0) > 1
            and limit_gbps(algorithm, entry.node_gbps, nodes=entry.nodes, gpus_per_node=entry.gpus_per_node)
        )
        best = {
            "size_bytes": size,
            "busbw_gbps": value,
            "published_gbps": entry.by_size[size],
            "ratio": round(value / entry.by_size[size], 3),
            "of_wire": round(value / limit, 3) if limit and table["collective"] == "all_reduce" else None,
            "topology": str(entry),
            "source": entry.source,
        }
    return best


def looks_like_tcp(job: JobDocument, table: Table, algorithm: str) -> str | None:
    """Say why a table whose transport no line shows can only have been carried by TCP; None where it need not be."""
    if job["inter_node_transport"] != "unknown" or (job["nodes"] or 0) < 2:
        return None
    rows = [(size, value) for size, value in _rows(table) if size >= _LARGE]
    fast = [entry for entry in _matching(job, table, algorithm) if entry.fabric != TCP]
    slow = [e for e in published() if e.fabric == TCP and e.collective == table["collective"]]
    if not rows or not fast or not slow:
        return None
    size, value = max(rows)
    least = min(fast, key=lambda entry: max(entry.busbw_gbps.values()))
    if value > _NEAR_TCP * max(max(e.busbw_gbps.values()) for e in slow):
        return None
    if value > FAR_BELOW * max(least.busbw_gbps.values()):
        return None
    figures = " and ".join(f"{max(e.busbw_gbps.values()):g} GB/s ({e.source})" for e in slow)
    return (
        f"{value:g} GB/s at {format_size(size)} is what such hosts give over TCP, {figures}; {least} gives"
        f" {max(least.busbw_gbps.values()):g} ({least.source})"
    )


def _fabric(job: JobDocument) -> str:
    carried = str(job["inter_node_transport"])
    return TCP if carried in ("socket", "fastsocket") else carried


def _matching(job: JobDocument, table: Table, algorithm: str) -> Iterator[Published]:
    """Yield what was published for these GPUs, as many a host and as many hosts, and this collective."""
    nodes = job["nodes"]
    for entry in _of_gpus(job):
        if (entry.nodes, entry.collective, entry.algorithm) == (nodes, table["collective"], algorithm):
            yield entry


def published_for(job: JobDocument, table: Table) -> list[Published]:
    """Return what was published for these GPUs, as many a host, over the fabric of the log, on any number of hosts."""
    several = (job["nodes"] or 0) > 1
    carried = _fabric(job) if several else "none"
    return [
        entry
        for entry in _of_gpus(job)
        if entry.collective == (table["collective"] or "all_reduce")
        and (entry.nodes > 1) == several
        and entry.fabric != TCP
        and (not several or entry.fabric == carried)
    ]


_RINGED = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
"""On a ring every edge carries their bus bandwidth (nccl-tests, doc/PERFORMANCE.md), so that one is told by another."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What other hosts of the same GPUs give, in GB/s, and from which size on that is told by a number."""

    what: str
    busbw_gbps: float
    source: str
    from_size: int


def least_elsewhere(job: JobDocument, table: Table) -> Elsewhere | None:
    """Return the least that was published for these GPUs in any other layout, fabric or collective.

    Between hosts, scaled to as many GPUs a host as the log has, and to one of them where each sends on its own. Inside
    one, what NVLink carries is all there is where nothing was published. None where neither is known.
    """
    several, per_node = (job["nodes"] or 0) > 1, (job["ranks"] or 0) // (job["nodes"] or 1)
    collective = table["collective"] or "all_reduce"
    known = [entry for entry in _of_gpus(job, any_host=True) if (entry.nodes > 1) is several and entry.fabric != TCP]
    known = known or (list(_of_slower_gpus(job)) if several else [])
    known = [entry for entry in known if entry.fabric == _fabric(job)] or known
    alike = [entry for entry in known if entry.collective == collective]
    alone = several and not alike and collective not in _RINGED
    scaled = [
        (max(entry.busbw_gbps.values()) * (per_node / entry.gpus_per_node if several else 1), entry)
        for entry in alike or known
    ]
    if scaled:
        value, entry = min(scaled, key=lambda item: item[0])
        what = "as many of the GPUs of " if several else ""
        what = ("one of the GPUs of " if alone else what) + str(entry)
        if not alike:
            what += f", {entry.collective}"
        return Elsewhere(what, value / per_node if alone else value, entry.source, _LARGE if alone else MIDDLING)
    names = tuple(job["gpus"])
    links = None if several or any(map(is_card, names)) else links_gbps(names)
    return Elsewhere(f"the links of {names[0]}", links, "its data sheet", MIDDLING) if links else None


def _of_gpus(job: JobDocument, *, any_host: bool = False) -> Iterator[Published]:
    """Yield what was published for these GPUs, as many a host unless any number of them will do."""
    ranks, nodes = job["ranks"], job["nodes"]
    names = list(job.get("gpus") or {}) or [_INSTANCES.get(text, text) for text in job.get("platforms") or ()]
    names = [name for name in names if not is_card(name)]
    if len(names) != 1 or not ranks or not nodes or ranks % nodes:
        return
    for entry in published():
        same = any_host or entry.gpus_per_node == ranks // nodes
        if same and re.search(rf"\b{re.escape(entry.gpu)}\b", names[0]):
            yield entry


def _of_slower_gpus(job: JobDocument) -> Iterator[Published]:
    """Yield what was published between hosts of any GPUs whose links are no faster than these: an older network."""
    links = None if any(map(is_card, job["gpus"])) else links_gbps(tuple(job["gpus"]))
    for entry in published() if links else ():
        theirs = links_gbps((entry.gpu,))
        if entry.nodes > 1 and entry.fabric != TCP and theirs is not None and theirs <= (links or 0.0):
            yield entry


def _largest_shared(entry: Published, table: Table) -> tuple[int, float] | None:
    return max(((size, value) for size, value in _rows(table) if size in entry.by_size), default=None)


def _rows(table: Table) -> Iterator[tuple[int, float]]:
    """Yield size and bus bandwidth of each row; the better side, as published tables show one of them."""
    for row in table["rows"]:
        if values := bandwidths(row):
            yield row["size_bytes"], max(values)
