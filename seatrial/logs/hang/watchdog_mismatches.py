"""Compare the operations that ranks waited in, as their watchdogs print them.

Another operation or size under one number is a mismatch.

Every process group numbers its own operations. Where a line names no group (torch before 2.2), ranks are compared only
where nothing shows several groups: all have their own rank in it, and all wait under one number.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from .model import At, Decision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .model import Evidence, Report

_SIZES = re.compile(r"NumelIn=(\d{1,15}), NumelOut=(\d{1,15})")
_RANK = re.compile(r"Rank (\d{1,7})\]\s+Watchdog")
# Whose sizes are the same on every rank; of the others a root, or uneven splits, has its own (torch.distributed).
_EVEN = frozenset(
    ("ALLREDUCE", "BROADCAST", "REDUCE", "ALLGATHER", "_ALLGATHER_BASE", "REDUCE_SCATTER", "_REDUCE_SCATTER_BASE")
)
_OTHER = frozenset(("SEND", "RECV", "COALESCED"))  # numbered by pair, or several in one


def called_otherwise(made: Decision, evidence: Evidence) -> Decision | None:  # noqa: ARG001 -- as every rule
    """Name a mismatch that the watchdogs of several ranks show, and the ranks that are fewer on their side."""
    same: dict[tuple[str, str, int], dict[str, dict[int, Report]]] = defaultdict(lambda: defaultdict(dict))
    for event in evidence.timeouts:
        if event.operation not in _OTHER:
            same[event.place][_call(event)].setdefault(event.rank, event)
    for (group, number, sequence), calls in sorted(same.items(), key=lambda item: item[0][2]):
        spoke = [rank for ranks in calls.values() for rank in ranks]
        if len(calls) < 2 or len(spoke) != len(set(spoke)) or not (number or group or _one_group(evidence)):
            continue
        if group not in ("", "default_pg") and not number:
            continue  # groups of one name are many
        common = max(calls, key=lambda name: (len(calls[name]), name))
        differing = {rank for name, ranks in calls.items() if name != common for rank in ranks}
        late = differing if len(differing) < len(calls[common]) else set()
        return Decision(
            kind="mismatch",
            proven=True,
            late=late,
            waiting=set(spoke) - late if late else set(),  # of two sides, none is not at fault
            at=At(group or None, common.partition(" ")[0], sequence),
            called=calls_in_words(sequence, {name: len(ranks) for name, ranks in calls.items()}),
            because=tuple([e.where for ranks in calls.values() for e in list(ranks.values())[:1]][:4]),
        )
    return None


def calls_in_words(sequence: int, calls: Mapping[str, int]) -> str:
    """Return how many ranks called what under one number."""
    called = [f"{count} rank{'s' if count > 1 else ''} called {name}" for name, count in sorted(calls.items())]
    return f"as number {sequence}: {', '.join(called)}"


def _call(event: Report) -> str:
    sizes = _SIZES.search(event.where[2]) if event.operation in _EVEN else None
    return event.operation + (f" ({sizes[0]})" if sizes else "")


def _one_group(evidence: Evidence) -> bool:
    """Return whether nothing shows several groups: one number, and ranks as in the world."""
    ranks = [(event, _RANK.search(event.where[2])) for event in evidence.timeouts]
    own = all(match is not None and int(match[1]) == event.rank and not event.group for event, match in ranks)
    return own and len({event.sequence for event in evidence.timeouts}) == 1
