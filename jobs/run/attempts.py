"""Whether an interrupted trial is tried once more, and what the second attempt says beside the first."""

from __future__ import annotations

import re
from dataclasses import replace

from ..cluster.redact import safe
from ..diagnosis.state import FailureAnalysis, JobState
from .result import TrialResult

# What an interruption leaves behind for the next attempt: the node is still cordoned, its GPUs are another's now.
_AFTERMATH = frozenset(
    {"job.unschedulable", "job.start-timeout", "gang.unschedulable", "gang.partial", "queue.waiting", "job.disrupted"}
)


def interruption(result: TrialResult) -> FailureAnalysis | None:
    """Return what interrupted a trial from outside, so that it is worth another attempt; None where nothing did."""
    cause = result.analysis
    again = cause is not None and (cause.disrupted or _raced(cause)) and result.state is not JobState.CANCELED
    return cause if again else None


def _raced(cause: FailureAnalysis) -> bool:
    """Tell whether a kubelet had no room for what the scheduler had just bound: another pod was about to end there.

    Controllers make a new pod then (kubernetes/kubernetes#106884); a Job without retries needs another Job.
    """
    return cause.fault == "container.start" and re.search(r"\bOutOf[a-z]", cause.observed) is not None


def after(first: TrialResult, second: TrialResult, attempt: int) -> TrialResult:
    """What a further attempt says: its own, unless it only met what the interruption left behind.

    A node that is missing now is a consequence only where the attempt before had one for every rank.
    """
    cause, later = first.analysis, second.analysis
    if cause is not None and later is not None and later.fault in _AFTERMATH and (later.disrupted or _had_nodes(first)):
        text = f"{cause.observed}; tried again: {later.observed}"
        later = replace(cause, observed=safe(text, 1500))
    return replace(second, analysis=later, attempts=attempt)


def _had_nodes(result: TrialResult) -> bool:
    """Tell whether every rank had found a node, as its pod says, or what is left of its events."""
    placed = {replica.pod for replica in result.replicas if replica.node}
    placed |= {match[1] for event in result.events if (match := re.match(r"Scheduled pod/([^\s:]+)", event))}
    return len(placed) >= max(len(result.replicas), 1)
