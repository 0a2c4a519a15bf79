"""Compare the progress of ranks in the default group, which each reports on a time-out's signal (torch 2.3 and later).

The missing rank writes it, too. A rank that waits in another group is behind in this one, but not at fault: its
own watchdog reports it.
"""

from __future__ import annotations

from .minority import weigh_report
from .model import At, Decision, Evidence


def queued_less(made: Decision, evidence: Evidence) -> Decision | None:  # noqa: ARG001 -- as every rule
    """Name the ranks that did not queue the timed-out operation of the default group; none if they are the majority."""
    ended = [event for event in evidence.timeouts if event.number == "0" or event.group == "default_pg"]
    queued = evidence.queued
    if not ended or not queued:
        return None
    event = min(ended, key=lambda each: each.sequence)
    waited = evidence.waiting | set(evidence.broken)
    # All came as far as what is complete: a lower number counts sends and receives, or is of another job.
    least = event.completed if event.completed is not None and event.completed < event.sequence else -1
    behind = {rank for rank, item in queued.items() if least <= item.sequence < event.sequence} - waited
    ahead = ({rank for rank, item in queued.items() if item.sequence >= event.sequence} | waited) - behind
    silent = set(range(max(behind | ahead, default=-1) + 1)) - behind - ahead
    elsewhere = len(ended) < len(evidence.timeouts)
    if not behind or (silent and elsewhere):  # some may wait for a silent rank in another group
        return None
    found = Decision(
        kind="late",
        proven=True,
        late=behind,
        waiting=ahead,
        at=At("default_pg", event.operation, event.sequence),
        because=(event.where, *[item.where for rank, item in sorted(queued.items()) if rank in behind][:3]),
    )
    return weigh_report(found, ahead)
