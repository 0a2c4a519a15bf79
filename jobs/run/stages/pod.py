"""What a pod's probe says first and last."""

from __future__ import annotations

from typing import TypedDict

from .kinds import Count


class StartStage(TypedDict, total=False):
    """The pod and its limits, in bytes and seconds since the epoch."""

    python: str
    hostname: str
    pod_ip: str
    node: str
    kernel: str
    cap_eff: str
    error: str
    time: float
    memlock_bytes: int  # -1 is without limit
    shm_bytes: int
    memory_max: int  # -1 is without limit
    cpu_max: float
    uid: Count
    env: dict[str, str]


class EndStage(TypedDict, total=False):
    """The probe's last stage; ``stopped`` says what ended it before its time."""

    seconds: float
    stopped: str
