"""Decides between two sides: ranks missing from an operation, or the fewer that wait in it.

A few ranks that called one operation more than the others look as if all others were late. Where the evidence does not
tell, no rank is called late: the missing ranks are suspects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .model import Decision, Evidence
    from .waits import Waits


NO_PAIRS = ". gloo records no send and no receive: one of them may wait there for another rank"


def weigh(made: Decision, waits: Waits, evidence: Evidence) -> None:
    """Remove the late ranks that the dumps do not prove."""
    idle = waits.late - set(waits.heads)
    if waits.stalled or not idle or len(waits.late | waits.unknown) < 2:
        return
    waiting = len(waits.waiting) or len(waits.unknown)
    if waiting < len(waits.late) + bool(waits.unknown):
        _suspect(made, waits.waiting)
    elif any(by.sends for by in evidence.ranks.values()):
        made.unrecorded, made.unsure = True, NO_PAIRS
        if len(waits.late) > 1:
            _suspect(made, set())


def weigh_report(made: Decision, ahead: set[int]) -> None:
    """Do the same for a desync report that shows some ranks further on."""
    if ahead and len(ahead) < len(made.late):
        _suspect(made, ahead)


def _suspect(made: Decision, ahead: set[int]) -> None:
    made.late, made.suspects, made.ahead = set(), made.late, set(ahead)
