"""Counters of the NICs after a collective: traffic and errors."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LIVE = "/run/sim/live"
OUT, IN = ("port_xmit_data", "tx_bytes"), ("port_rcv_data", "rx_bytes")


def count(world: Mapping[str, Any], used: Iterable[str], sent_bytes: int) -> None:
    """Add a collective to the counters of this pod's devices: `used` carried `sent_bytes` in total, each way."""
    names, devices = set(used), (world.get("rdma") or {}).get("devices", [])
    each = sent_bytes // max(1, len(names))
    for device in devices:
        if device["name"] in names:
            for counter in (*OUT, *IN):
                _add(device["name"], counter, each if counter.endswith("bytes") else each // 4)  # in 32-bit words
            for counter, errors in (device.get("errors") or {}).items():
                _add(device["name"], counter, int(errors))


def _add(device: str, counter: str, amount: int) -> None:
    try:
        with open(os.path.join(LIVE, f"{device}.{counter}"), "r+b", buffering=0) as file:
            value = int(file.read() or 0) + amount
            file.seek(0)
            file.write(b"%d\n" % value)
    except (OSError, ValueError):  # this device has no such counter
        return
