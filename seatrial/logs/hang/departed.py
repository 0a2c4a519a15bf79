"""Ranks that are no longer in a communicator, or never were, while others wait in it: their states in RAS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .model import At, Decision

if TYPE_CHECKING:
    from .model import Evidence

_GONE = frozenset(("NOCOMM", "FINALIZE"))
"""It answers and does not know the communicator, or has called ncclCommFinalize or ncclCommDestroy."""
_THERE = frozenset(("RUNNING", "INIT"))


def departed(evidence: Evidence, *, frozen: bool) -> Decision | None:
    """Name the ranks that left the job's communicator, or never created it; ``frozen``: samples show that it lasts.

    Where a rank aborts, its watchdog has given up: that one waited, and the rank that left is not reported.
    """
    last = evidence.samples[-1] if evidence.samples else None
    states = last.states.get(last.world or "", {}) if last else {}
    gone = {rank for rank, state in states.items() if state in _GONE} - evidence.waiting
    there = {rank for rank, state in states.items() if state in _THERE}
    if last is None or not gone or not there or "ABORT" in states.values():
        return None
    proven, minority = frozen or bool(evidence.timeouts), len(gone) <= len(there)
    shown = ", ".join(f"{rank} ({states[rank]})" for rank in sorted(gone)[:8])
    text = f"RAS: ranks {shown} left communicator {last.world} or never created it; {len(there)} are in it"
    return Decision(
        kind="late" if proven else "undecided",
        proven=proven,
        late=gone if minority else set(),
        suspects=set() if minority else gone,
        ahead=set() if minority else there,
        waiting=there,
        at=At(f"communicator {last.world}"),
        departed=True,
        because=((last.file, 0, text),),
    )
