"""Ranks that are no longer in a communicator, or never were, while others wait in it: their states in RAS."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .model import Decision, Evidence

_GONE = frozenset(("NOCOMM", "FINALIZE"))
"""It answers and does not know the communicator, or has called ncclCommFinalize or ncclCommDestroy."""
_THERE = frozenset(("RUNNING", "INIT"))


def departed(made: Decision, evidence: Evidence, *, frozen: bool) -> bool:
    """Name the ranks that left the job's communicator, or never created it; ``frozen``: samples show that it lasts.

    Where a rank aborts, its watchdog has given up: that one waited, and the rank that left is not reported.
    """
    last = evidence.samples[-1] if evidence.samples else None
    states = last.states.get(last.world or "", {}) if last else {}
    waited = evidence.failed | {event.rank for event in evidence.timeouts}
    gone = {rank for rank, state in states.items() if state in _GONE} - waited
    there = {rank for rank, state in states.items() if state in _THERE}
    if last is None or not gone or not there or "ABORT" in states.values():
        return False
    made.proven = frozen or bool(evidence.timeouts)
    made.kind = "late" if made.proven else "undecided"
    made.group, made.departed = f"communicator {last.world}", True
    if len(gone) <= len(there):
        made.late = gone
    else:
        made.suspects, made.ahead = gone, there
    made.waiting |= there
    shown = ", ".join(f"{rank} ({states[rank]})" for rank in sorted(gone)[:8])
    made.because.append(
        (last.file, 0, f"RAS: ranks {shown} left communicator {last.world} or never created it; {len(there)} are in it")
    )
    return True
