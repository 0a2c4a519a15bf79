"""What a pod's probe says first and last."""

from __future__ import annotations

from typing import TypedDict

from .kinds import Count, Whole  # noqa: TC001 -- get_type_hints reads them


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
    memlock_bytes: Whole
    shm_bytes: Whole
    memory_max: Whole
    cpu_max: float
    uid: Count
    env: dict[str, str]


class EndStage(TypedDict, total=False):
    """The probe's last stage; ``stopped`` says what ended it before its time."""

    seconds: float
    stopped: str
