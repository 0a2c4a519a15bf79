"""What a node of a sweep says of its hardware, in words: which card a rail is, which GPUs slowed themselves down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.cluster.redact import safe

if TYPE_CHECKING:
    from collections.abc import Mapping

    Hardware = Mapping[str, Any]  # jobs/run/sweep_stages.py

SHOWN = 8


def card_of(hardware: Hardware, name: str) -> str:
    """Return who a rail's device is, so that a person finds it: serial number or GUID, PCI address; '' for nothing."""
    card = (hardware.get("cards") or {}).get(name) or {}
    words = (("serial", "serial"), ("guid", "GUID"), ("pci", "PCI"))
    told = ", ".join(f"{word} {safe(card[key], 60)}" for key, word in words if card.get(key))
    return f"{name}: {told}" if told else ""


def slowed_of(hardware: Hardware) -> list[str]:
    """Return which GPUs slowed themselves down while the node was tested alone, and why."""
    found = []
    for gpu in hardware.get("gpus") or ():
        if reasons := ", ".join(safe(reason, 40) for reason in (gpu.get("throttle") or ())[:4]):
            mhz = list(gpu.get("mhz") or ())
            clock = f" at {mhz[1]:g} MHz" if len(mhz) == 3 else ""
            words = (("serial", "serial"), ("uuid", "UUID"))
            who = next((f" ({word} {safe(gpu[key], 60)})" for key, word in words if gpu.get(key)), "")
            found.append(f"GPU {gpu.get('index', '?')}{who} was slowed by {reasons}{clock}")
    return found[:SHOWN]
