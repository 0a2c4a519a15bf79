"""Profile section `fabric`: the network that must carry the training, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.listing import nearest

from ..yaml_schema import require

VERBS = {"ib": "InfiniBand", "roce": "Ethernet", "gib": "Ethernet", "efa": None}
"""Fabrics whose cards are RDMA devices, and the link layer that sysfs shows of them; EFA has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricSection:
    """The network between nodes: what NCCL must be seen to use, and how much of it."""

    kind: str | None = None  # in the words of the log analyzer: ib, roce, efa, ...
    rails: int | None = None  # network devices that NCCL must be seen to use on each node
    rail_gbit_s: float | None = None
    node_gbit_s: float | None = None  # where rails are grouped (EFA): the whole node; default rails x rail_gbit_s
    gdr: bool | None = None
    devices: int | None = None  # RDMA devices of a pod, where that is another number than its rails (EFA groups them)
    device_gbit_s: float | None = None  # of one such device; default rail_gbit_s where devices and rails are the same

    KINDS = ("ib", "roce", "efa", "cxi", "gib", "tcpx", "fastrak", "fastsocket", "ucx", "mnnvl", "socket")

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in self.KINDS:
            require(ok=False, name="kind", text=f"unknown fabric {self.kind!r}{nearest(self.kind, self.KINDS)}")
        for name in ("rails", "rail_gbit_s", "node_gbit_s", "devices", "device_gbit_s"):
            value = getattr(self, name)
            require(value is None or value > 0, name, "must be above 0")

    @property
    def verbs(self) -> bool:
        """Whether NCCL reaches this fabric through RDMA devices (verbs), which a pod can then see."""
        return self.kind in VERBS

    @property
    def device_count(self) -> int | None:
        """How many RDMA devices a pod must have."""
        return self.devices if self.devices is not None else self.rails

    @property
    def device_rate(self) -> float | None:
        """Which rate each of them must have, in Gb/s."""
        if self.device_gbit_s is not None or self.devices not in (None, self.rails):
            return self.device_gbit_s
        return self.rail_gbit_s

    @property
    def node_gbps(self) -> float | None:
        """What a node can send at most, in GB/s (1e9 bytes per second)."""
        if self.node_gbit_s is not None:
            return self.node_gbit_s / 8
        if self.rails is None or self.rail_gbit_s is None:
            return None
        return self.rails * self.rail_gbit_s / 8
