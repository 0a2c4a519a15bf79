"""Decide the kind of a hang, its late and waiting ranks: an ordered list of rules over the evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from . import reports
from .completed_operations import came_last
from .contradictions import contradictions
from .counts import from_counts, unresponsive
from .dumps import left_by_a_rank, recorded
from .gloo import overdue
from .join import waits_in_creation
from .model import Decision
from .prepare import places, prepare
from .silence import silent_ranks

if TYPE_CHECKING:
    from .join import Process as Spoken
    from .model import Evidence


def decide(evidence: Evidence) -> Decision:
    """Return the decision over evidence as it was read, without the processes of a log."""
    return judge(prepare(evidence), {})


def judge(evidence: Evidence, logged: Mapping[int, Spoken]) -> Decision:
    """Return the one decision over prepared evidence; ``logged``: the processes of ranks in the job's log.

    The strongest evidence comes first: dumps, dead processes, errors, reports, counts.
    """
    errors = sorted(evidence.samples[-1].errors, key=lambda text: "Remote" in text) if evidence.samples else ()
    made = Decision(
        unknown=evidence.world - set(evidence.ranks),
        contradictions=tuple(evidence.contradictions),
        places=places(evidence),
        reported=tuple(errors),
    )
    made += overdue(evidence) or recorded(evidence) or Decision()
    for revise in (unresponsive, left_by_a_rank):
        made = revise(made, evidence)
    for rule in RULES:
        if made.kind:
            break
        made += rule(made, evidence) or Decision()
    made = came_last(replace(made, kind=made.kind or "undecided"), evidence)
    made += Decision(contradictions=tuple(contradictions(made, evidence)))
    spoke = {event.rank for event in evidence.timeouts} & evidence.failed  # their watchdogs report that they wait
    unknown = (made.unknown - spoke | made.suspects) - made.late - made.dead
    made = replace(made, unknown=unknown, waiting=made.waiting - made.late - made.dead - unknown)
    return silent_ranks(waits_in_creation(made, logged), evidence, logged)


Rule = Callable[[Decision, "Evidence"], Decision | None]
"""Returns additions to a decision that is still open; None if the rule does not apply."""
RULES: tuple[Rule, ...] = (
    reports.absent,
    reports.timed_out_in_another,
    reports.in_desync_report,
    reports.called_otherwise,
    reports.queued_less,
    from_counts,
    reports.timed_out,
    reports.blocked,
)
"""Strongest first; after the first that decides a kind, no further rule is asked."""
