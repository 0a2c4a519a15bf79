"""NIC rules: what the pods saw of their RDMA NICs; ports that are down, rates below what was paid for.

No check judges this: what NCCL used and how fast it was is judged. These are the notes that say where to look first.
"""

from __future__ import annotations

from collections.abc import Iterator

from jobs.run.result import TrialResult

from ..profiles.loader import Profile
from .ranks import place, rdma_ports

SHOWN = 8


def notes(trial: TrialResult, profile: Profile) -> Iterator[str]:
    """Name each card whose port is not active or runs below the profile's rate: the slowest sets the pace of all."""
    texts = [text for rank in sorted(trial.evidence) for text in _of(trial, rank, profile.fabric.device_rate or 0.0)]
    yield from texts[:SHOWN]
    if len(texts) > SHOWN:
        yield f"and {len(texts) - SHOWN} more cards like these"


def _of(trial: TrialResult, rank: int, least_gbps: float) -> Iterator[str]:
    for device in rdma_ports(trial, rank):
        name, state, rate = device.get("name"), device.get("state"), device.get("rate_gbps")
        if state and state != "ACTIVE":
            yield f"{place(trial, rank)}: the port of {name} is {state}"
        elif isinstance(rate, int | float) and 0 < rate < least_gbps:
            yield f"{place(trial, rank)}: {name} runs at {rate:g} Gb/s, the profile says {least_gbps:g}"
