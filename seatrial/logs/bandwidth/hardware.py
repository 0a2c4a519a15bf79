"""The hardware of a benchmark, from its log, its table, the cluster or the user."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from ..job_document import JobDocument, Table
from ..rows import sides
from .published import family, operation

_INSTANCES = {
    "p4d.24xlarge": "A100",
    "p4de.24xlarge": "A100",
    "p5.48xlarge": "H100",
    "p5e.48xlarge": "H200",
    "p5en.48xlarge": "H200",
    "p6-b200.48xlarge": "B200",
    "p6-b300.48xlarge": "B300",
}
"""The libfabric plugin's output without a table's header: AWS, Amazon EC2 accelerated computing instances."""
_GPUS = re.compile(r"(?:(?:(\d{1,5})x)?(\d{1,3})x)?([A-Za-z][\w .+-]{1,40})")
MOST_RANKS = 4096
"""From this number of ranks on, two digits cannot distinguish them."""
_DEVICES = 2
"""Maximum number of ports of one NIC (NVIDIA ConnectX, user manuals)."""
_NICS = re.compile(r"(\d{1,3})x(\d{1,4}(?:\.\d+)?)")


class UnknownHardwareError(Exception):
    """The description of the hardware has an invalid form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The hardware known from outside the log: from options, a profile or a cluster. The log takes precedence."""

    gpu: str = ""
    gpus_per_node: int | None = None
    nodes: int | None = None
    fabric: str = ""
    nics: int | None = None
    wires_gbps: float | None = None  # of all NICs of a host


NOTHING_SAID = Said()


def of_other_kind(names: Iterable[str], patterns: tuple[str, ...]) -> list[str]:
    """Return the GPU models (driver's names) that a profile does not have; feature discovery writes dashes."""
    dashed = [pattern.replace(" ", "-") for pattern in patterns]
    return sorted(n for n in names if dashed and not any(fnmatchcase(n.replace(" ", "-"), each) for each in dashed))


def said(gpus: str, nics: str) -> Said:
    """Parse ``--gpu 2x8xH100`` (or 8xH100, H100) and ``--nics 8x400``. Raises UnknownHardwareError."""
    of_gpus, of_nics = _GPUS.fullmatch(gpus.strip()), _NICS.fullmatch(nics.strip())
    if gpus and not of_gpus:
        raise UnknownHardwareError(f"--gpu {gpus!r} is not a model, or a host's number of it, such as H100 or 8xH100")
    if nics and not (of_nics and float(of_nics[2]) and int(of_nics[1])):
        raise UnknownHardwareError(
            f"--nics {nics!r} is not a host's number of NICs and their rate in Gb/s, such as 8x400"
        )
    return Said(
        gpu=of_gpus[3] if of_gpus else "",
        gpus_per_node=int(of_gpus[2] or 0) or None if of_gpus else None,
        nodes=int(of_gpus[1] or 0) or None if of_gpus else None,
        nics=int(of_nics[1]) if of_nics else None,
        wires_gbps=int(of_nics[1]) * float(of_nics[2]) / 8 if of_nics else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One benchmark's hardware and operation; unknown values are empty or None."""

    gpu: str = ""
    several_gpus: bool = False
    gpus_per_node: int | None = None
    nodes: int | None = None
    fabric: str = "unknown"
    nics: int | None = None  # number of NICs per host
    wires_gbps: float | None = None
    wires_said: bool = False  # from the caller, not only from the NICs that NCCL saw
    platforms: tuple[str, ...] = ()
    collective: str = "all_reduce"  # '' for an operation without reduction or name
    algorithm: str = "default"
    forced: bool = False  # whether the user forced NCCL's choice

    @property
    def asked(self) -> str:
        """The requested algorithm, in the terms of published rows; a ring that NCCL chose is not a request."""
        return self.algorithm if self.forced else "default"

    def __str__(self) -> str:
        gpu = self.gpu or "unknown GPUs"
        return f"{self.nodes} x {self.gpus_per_node} {gpu}" if self.nodes and self.gpus_per_node else gpu


def models_of(job: JobDocument) -> list[str]:
    """Return the GPU models of a job: of a benchmark's list, else of the instances that a plugin names."""
    return list(job["gpus"]) or sorted({_INSTANCES[text] for text in job["platforms"] if text in _INSTANCES})


def algorithm_of(table: Table) -> str:
    """Return 'ring', or 'default' for NCCL's choice; sends to peers print a ring but involve no choice."""
    if operation(table["collective"]) in ("sendrecv", "alltoall"):
        return "default"
    return "ring" if str(table["algorithm"] or "").lower() == "ring" else "default"


def collective_of(table: Table) -> str:
    """Return a table's collective: all_reduce if it names none, '' if it shows that nothing was reduced."""
    reduced = all(row["redop"] != "none" for row in table["rows"])
    return operation(table["collective"]) or ("all_reduce" if reduced else "")


def hardware_of(job: JobDocument, table: Table, known: Said = NOTHING_SAID) -> Hardware:
    """Return the hardware of a table; ``known`` adds facts that the log lacks."""
    names = models_of(job)
    per_node, nodes = _layout(job, table, known)
    carried = "none" if nodes == 1 else family(job["inter_node_transport"])
    if carried in ("unknown", "none") and nodes != 1:
        carried = known.fabric or "unknown"
    offered = [host["offered"] for host in job["rails"]["per_host"].values() if host["offered"]]
    used = max((host["used"] for host in job["rails"]["per_host"].values()), default=0)
    if known.nics and used > _DEVICES * known.nics:
        known = replace(known, nics=None, wires_gbps=None)
    return Hardware(
        gpu=names[0] if len(names) == 1 else "" if names else known.gpu,
        several_gpus=len(names) > 1,
        gpus_per_node=per_node,
        nodes=nodes,
        fabric=family(carried),
        nics=known.nics or (min(offered) if offered else None),
        wires_gbps=known.wires_gbps or job["wires_gbps"],
        wires_said=known.wires_gbps is not None,
        platforms=tuple(job["platforms"]),
        collective=collective_of(table),
        algorithm=algorithm_of(table),
        forced="NCCL_ALGO" in job["env"],
    )


def _layout(job: JobDocument, table: Table, known: Said) -> tuple[int | None, int | None]:
    """Return the number of GPUs of a host, and the number of hosts."""
    ranks, nodes, per_node = job["ranks"], job["nodes"], known.gpus_per_node
    if ranks and nodes and ranks % nodes == 0:
        return ranks // nodes, nodes
    if not per_node or (ranks is not None and nodes is not None):
        return None, None
    if known.nodes and not ranks:
        return per_node, known.nodes
    ranks = ranks or _ranks(table, per_node)
    if not ranks or ranks % min(per_node, ranks):
        return None, None
    return min(per_node, ranks), max(1, ranks // per_node)


_HALF_DIGIT = 0.005
"""nccl-tests prints bandwidths with two decimals."""


def _ranks(table: Table, per_node: int) -> int | None:
    """Return the number of ranks from an all_reduce's numbers: busbw is 2(n-1)/n times algbw (doc/PERFORMANCE.md)."""
    least, most = 2.0, float(MOST_RANKS)
    for row in table["rows"] if operation(table["collective"]) in ("", "all_reduce") else ():
        for side in sides(row) if row["redop"] not in (None, "none") else ():
            algbw, busbw = side["algbw_gbps"] or 0.0, side["busbw_gbps"] or 0.0
            if algbw >= 1 and algbw <= busbw < 2 * algbw:
                low, high = (busbw - _HALF_DIGIT) / (algbw + _HALF_DIGIT), (busbw + _HALF_DIGIT) / (algbw - _HALF_DIGIT)
                least = max(least, 2 / (2 - low))
                most = min(most, 2 / (2 - high)) if high < 2 else most
    fitting = range(math.ceil(least), math.floor(most) + 1) if most < MOST_RANKS else ()
    possible = [n for n in fitting if n % per_node == 0 or n < per_node]
    return possible[0] if len(possible) == 1 else None
