"""Traffic between hosts: edges as their two ends print them, and the transport of two hosts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ..reader.state.channels import Connector
from ..reader.state.process import Proc
from .devices import Carrier


class Crossing(NamedTuple):
    """One edge between hosts, or over the network, as one process printed it."""

    proc: Proc
    node: str  # node of that process
    comm: str
    src: int
    dst: int  # -1 if switches reduce
    mask: int  # mask of its channels
    src_node: str | None
    dst_node: str | None
    carrier: Carrier

    @property
    def connector(self) -> Connector:
        """The transport as printed."""
        return self.carrier.connector

    @property
    def transport(self) -> str:
        """The transport of the printed network."""
        return self.carrier.transport


Edge: TypeAlias = tuple[Proc, str, str, int, int, int, str | None, str | None, Carrier]
"""The fields of a crossing; a large job has many, and mostly only their ends are read."""
End: TypeAlias = tuple[str, int, int, int, str]
"""Communicator, sender, receiver, connection, transport."""


@dataclass(slots=True)
class Between:
    """The channels from one host to another, as masks: by the senders, by the receivers, and by neither."""

    sent: dict[End, int] = field(default_factory=dict)
    received: dict[End, int] = field(default_factory=dict)
    unsided: dict[End, int] = field(default_factory=dict)
    carriers: dict[int, Carrier] = field(default_factory=dict)

    def channels(self) -> dict[End, int]:
        """Return the masks of the channels that one of the ends shows."""
        if self.sent == self.received and not self.unsided:
            return self.sent
        keys = self.sent.keys() | self.received.keys() | self.unsided.keys()
        return {key: self.sent.get(key, 0) | self.received.get(key, 0) | self.unsided.get(key, 0) for key in keys}


def between(edges: Iterable[Edge]) -> dict[tuple[str, str], Between]:
    """Join the two ends of edges, by the hosts of sender and receiver."""
    pairs: dict[tuple[str, str], Between] = {}
    for _, _, comm, src, dst, mask, src_node, dst_node, carrier in edges:
        hosts = (src_node or f"(host of rank {src})", dst_node or f"(host of rank {dst})")
        pair = pairs.get(hosts)
        if pair is None:
            pair = pairs[hosts] = Between()
        pair.carriers[id(carrier)] = carrier
        connector, transport, _ = carrier
        key = (comm, src, dst, connector[1], transport)
        ends = pair.sent if connector[0] == "s" else pair.received if connector[0] else pair.unsided
        ends[key] = ends.get(key, 0) | mask
    return pairs
