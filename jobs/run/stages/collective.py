"""The stages of collectives."""

from __future__ import annotations

from typing import TypedDict

from .kinds import Count, LogPart


class ProgramFacts(TypedDict, total=False):
    """What a collective's program left beside its table."""

    op: str
    cycles: Count
    largest: Count
    first_us: dict[str, float]


class CollectiveRun(TypedDict, total=False):
    """One collective on one rank."""

    name: str
    op: str
    scope: str
    program: str
    stopped: str
    output_tail: str
    error: str
    skipped: str
    repeats: Count
    world_size: Count
    output_bytes: Count
    log_bytes: Count
    exit: float
    seconds: float
    command: list[str]
    logs: list[str]
    timed_out: bool
    env: dict[str, str]
    nccl_conf: dict[str, str]
    rdma_counters: dict[str, Count]
    facts: ProgramFacts
    nccl: LogPart
