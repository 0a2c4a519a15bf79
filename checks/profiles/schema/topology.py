"""Profile section `topology`: how near GPUs and NICs must be to each other."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.listing import nearest

from ..yaml_schema import require

LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""From near to far, in the words of `nvidia-smi topo -m`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySection:
    """The way between a GPU and its nearest network card, and what must not be in the way."""

    gpu_nic_max: str | None = None  # the farthest way from a GPU to its nearest card
    acs_off: bool | None = None  # true: Access Control Services must not redirect peer-to-peer traffic
    source: str = ""
    leaf_label: str | None = None  # the node label that names a node's leaf switch, where it is none of the usual ones

    def __post_init__(self) -> None:
        level = self.gpu_nic_max
        if level is not None and level not in LEVELS:
            require(ok=False, name="gpu_nic_max", text=f"unknown way {level!r}{nearest(level, LEVELS)}")
        given = level is not None or self.acs_off is not None
        require(not given or bool(self.source.strip()), "source", "must say where this comes from")
