"""Find ranks with a log that does not report a hang which all others report.

The first rank with a time-out signals all others to dump (torch 2.3 and later). A separate thread, which needs neither
the GPU nor Python's lock, prints on each that it received the signal. A process that is gone or stopped prints nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .watchdog import OWN_SIGNAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .join import Process
    from .model import Decision, Evidence


def silent_ranks(made: Decision, evidence: Evidence, logged: Mapping[int, Process]) -> Decision:
    """Mark ranks as dead that logged before, in complete logs, and do not report the signal; RAS takes precedence.

    ``logged``: the place of each rank's lines in the one job.
    """
    heard = evidence.queued
    passed_on = any(OWN_SIGNAL not in item.where[2] for item in heard.values())
    if made.kind not in ("undecided", "inside", "stalled") or evidence.samples or not passed_on:
        return made
    speaking = set(heard) | evidence.waiting | set(evidence.broken)
    silent = set(logged) - speaking - set(evidence.ranks)
    if not silent or 2 * len(silent) > len(heard):
        return made
    text = "rank {} does not report the signal to dump, which {} others received"
    shown = [(logged[rank].file, 0, text.format(rank, len(heard))) for rank in sorted(silent)[:4]]
    return replace(
        made,
        kind="dead",
        proven=True,
        dead=silent,
        late=set(),
        waiting=(made.waiting | speaking) - silent,
        unknown=made.unknown - silent - speaking,
        because=(*made.because, *shown),
    )
