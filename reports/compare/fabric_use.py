"""How each node used the fabric: rails, GPUDirect and transports of a record's collectives, by node.

Each collective is held against itself: NCCL may well use more rails in one than in another.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..schema import Record, RecordedJob


@dataclass(slots=True)
class Use:
    """What one node was seen to use over all runs of a side."""

    rails: dict[str, list[frozenset[str]]] = field(default_factory=dict)  # by collective: the devices of each run
    gdr: bool | None = None
    transports: frozenset[str] = frozenset()

    def fewest(self, collective: str) -> frozenset[str]:
        """The devices of the run that used the fewest."""
        return min(self.rails.get(collective, []), key=len, default=frozenset())

    def usual(self, collective: str) -> float:
        """How many devices carried data in the median run: a single bad run before hides nothing that came to stay."""
        return statistics.median_low([len(devices) for devices in self.rails.get(collective, [])] or [0])


def nodes_of(record: Record) -> dict[str, str]:
    """Map the host names that NCCL printed to node names, as far as the record knows."""
    return dict(record["trial"].get("hosts", {}))


def fabric_use(side: Sequence[Record]) -> dict[str, Use]:
    """Return how each node used the fabric on one side."""
    uses: dict[str, Use] = {}
    for record in side:
        names = nodes_of(record)
        for collective, job in record["collectives"].items():
            if job and (job["nodes"] or 0) >= 2:
                _of_job(uses, collective, job, names)
    return uses


def _of_job(uses: dict[str, Use], collective: str, job: RecordedJob, names: Mapping[str, str]) -> None:
    devices: dict[str, set[str]] = {}
    for host in job["hosts"]:
        node = names.get(str(host["name"]), str(host["name"]))
        devices.setdefault(node, set()).update(device for rail in host["rails"].values() for device in rail)
        _direct(uses.setdefault(node, Use()), host["gdr"])
    for node, used in devices.items():
        if used:  # a log that does not show it says nothing
            uses[node].rails.setdefault(collective, []).append(frozenset(used))
    for pair in job["pairs"]:
        for end in (pair["src"], pair["dst"]):
            uses.setdefault(names.get(end, end), Use()).transports |= frozenset(pair["transports"])


def _direct(use: Use, gdr: object) -> None:
    """A node that lacked GPUDirect once, or on some channels, lacks it."""
    if gdr is True:
        use.gdr = use.gdr is not False
    elif gdr in (False, "mixed"):
        use.gdr = False
