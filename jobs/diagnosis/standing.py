"""The state of the ranks of one job: running and waiting ones with reason and time, and the GPUs held.

One summary for the whole job: ranks that wait for the same reason share a line. A rank that runs while another waits
makes no progress: it holds its GPUs until the rendezvous is complete.
"""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from ..cluster.redact import safe
from .state import JobState, Replica

_ENDED = ("Succeeded", "Failed", "Gone")
_SHOWN = 12
_OWN = re.compile(r"\S*\d\S*")
"""Parts of a message that differ from pod to pod: names and numbers."""
_REASON = 300
NO_GANG = "the job has no gang scheduling: in a queue of Kueue or Volcano, all of its pods start, or none"


def standing(
    state: JobState, replicas: Sequence[Replica], wanted: int, *, gang: str, now: datetime.datetime
) -> list[str]:
    """Return the lines of a job of so many ranks; `gang` names the gang scheduler, '' without one."""
    if not replicas:
        return []
    lines = list(_ranks(replicas, max(wanted, len(replicas)), now))
    # A pod that its controller has not created yet (an MPIJob's launcher, after its workers) does not block a rank.
    waiting = [each for each in replicas if _waits(each) and (each.pod or each.readiness_issue)]
    if state.final or not waiting:
        return lines
    held = [each for each in replicas if each.held and not each.readiness_issue]
    gpus, names = sum(each.gpus for each in held), ranges(each.index for each in held)
    if held:
        pronoun = "it" if len(waiting) == 1 else "them"
        holds = f"{gpus} GPUs are" if gpus != 1 else "1 GPU is"
        lines.append(f"{holds} held by {_named(names, len(held))} and unused, waiting for {pronoun}" if gpus else "")
    if held and len(replicas) > 1:
        lines.append(f"{gang} has started only some of its pods" if gang else NO_GANG)
    return [line for line in lines if line]


def _waits(replica: Replica) -> bool:
    return replica.phase == "Pending" or (replica.readiness_issue is not None and replica.phase not in _ENDED)


def _ranks(replicas: Sequence[Replica], total: int, now: datetime.datetime) -> Iterator[str]:
    """Yield a line for all ranks of one state and one reason, running ranks first."""
    for what, members in itertools.groupby(sorted(replicas, key=_key), key=lambda each: _key(each)[:3]):
        ranks = sorted(members, key=lambda each: each.index)
        _, verb, reason = what
        count = f"{len(ranks)} of {total} ranks" if total > 1 else "the rank"
        named = f" ({ranges(each.index for each in ranks)})" if 1 < total != len(ranks) else ""
        long = _long(min((each.since for each in ranks if each.since), default=""), now, over=verb in _OVER)
        said = f": {next(str(each.readiness_issue) for each in ranks if each.readiness_issue)}" if reason else ""
        where = f" on {ranks[0].node}" if len(ranks) == 1 and ranks[0].node else ""
        yield safe(f"{count}{named} {_verb(verb, len(ranks) if total > 1 else 1)}{where}{long}{said}", _REASON + 200)


_ONE = {
    "run": "runs",
    "wait": "waits",
    "are not ready": "is not ready",
    "failed": "failed",
    "ended well": "ended well",
    "are being deleted": "is being deleted",
    "are gone": "is gone",
}
"""Verbs in reporting order."""
_OVER = ("failed", "ended well")
_BY_PHASE = {
    "Succeeded": "ended well",
    "Failed": "failed",
    "Gone": "are gone",
    "Terminating": "are being deleted",
    "Pending": "wait",
}


def _verb(verb: str, number: int) -> str:
    return _ONE[verb] if number == 1 else verb


def _key(replica: Replica) -> tuple[int, str, str, int]:
    issue = replica.readiness_issue
    verb = _BY_PHASE.get(replica.phase, "are not ready" if issue else "run")
    reason = f"{issue.reason} {_OWN.sub('#', issue.message)}" if issue else ""
    return list(_ONE).index(verb), verb, reason, replica.index


def _long(since: str, now: datetime.datetime, *, over: bool) -> str:
    """Format a duration, or a time ago; '' below one second or without a known time."""
    try:
        seconds = (now - datetime.datetime.fromisoformat(since)).total_seconds()
    except (TypeError, ValueError):
        return ""
    if seconds < 1:
        return ""
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    size, unit = next((each for each in units if seconds >= 2 * each[0]), units[-1])
    lasted = f"{seconds // size:.0f} {unit}"
    return f" {lasted} ago" if over else f" for {lasted}"


def _named(names: str, number: int) -> str:
    return f"rank {names}" if number == 1 else f"ranks {names}"


def ranges(numbers: Iterable[int]) -> str:
    """Format numbers as ranges: 0-3, 5."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    more = ", …" if len(runs) > _SHOWN else ""
    return ", ".join("-".join(map(str, each)) for each in runs[:_SHOWN]) + more
