"""Profile section `deadlines`: how long each part of a trial may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinesSection:
    """How long each part may take, in seconds."""

    start_s: int | None = None
    queue_s: int | None = None
    dns_s: int | None = None
    port_s: int | None = None
    collective_s: int | None = None
    probe_s: int | None = None
    job_s: int | None = None
    ttl_s: int | None = None
    lease_s: int | None = None
