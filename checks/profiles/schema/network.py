"""Profile section `network`: what the pod network must carry, beside the fabric."""

from __future__ import annotations

from dataclasses import dataclass

from ..yaml_schema import require


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSection:
    """Packet sizes and rates between pods. Empty: nothing is known, so that only contradictions are faults."""

    mtu: int | None = None  # bytes; the least that must get through between pods without being cut
    secondary_mtu: int | None = None  # bytes; of the interfaces that Multus and its like attach
    tcp_gbit_s: float | None = None  # one TCP connection between two pods, at its best
    source: str = ""  # where these numbers come from

    def __post_init__(self) -> None:
        for name in ("mtu", "secondary_mtu"):
            value = getattr(self, name)
            # RFC 8200: no link may carry less than 1280 bytes; 65535 is the largest IP packet.
            require(value is None or 1280 <= value <= 65535, name, "must be between 1280 and 65535 bytes")
        require(self.tcp_gbit_s is None or self.tcp_gbit_s > 0, "tcp_gbit_s", "must be above 0")
        given = any(value is not None for value in (self.mtu, self.secondary_mtu, self.tcp_gbit_s))
        require(not given or bool(self.source.strip()), "source", "must say where the numbers come from")
