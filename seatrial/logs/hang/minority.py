"""Decide between two sides: ranks missing from an operation, or the fewer that wait in it.

A few ranks that called one operation more than the others look as if all others were late. Where the evidence does not
tell, no rank is called late: the missing ranks are suspects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .model import Decision, Evidence, Ranks
    from .waits import Waits


NO_PAIRS = ". gloo records no send and no receive: one of them may wait there for another rank"


def weigh(made: Decision, waits: Waits, evidence: Evidence) -> Decision:
    """Return the decision without the late ranks that the dumps do not prove."""
    idle = waits.late - set(waits.heads)
    if waits.stalled or not idle or len(waits.late | waits.unknown) < 2:
        return made
    waiting = len(waits.waiting) or len(waits.unknown)
    if waiting < len(waits.late) + bool(waits.unknown):
        return _suspect(made, waits.waiting)
    if any(by.sends for by in evidence.ranks.values()):
        made = replace(made, unsure=NO_PAIRS)
        return _suspect(made, set()) if len(waits.late) > 1 else made
    return made


def weigh_report(made: Decision, ahead: Ranks) -> Decision:
    """Do the same for a desync report that shows some ranks further on."""
    return _suspect(made, ahead) if ahead and len(ahead) < len(made.late) else made


def _suspect(made: Decision, ahead: Ranks) -> Decision:
    return replace(made, late=set(), suspects=made.late, ahead=ahead)
