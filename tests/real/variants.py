"""The variants in which one course of events may reach a watcher: late, in batches, stretched, interrupted."""

import math
from dataclasses import replace
from typing import Any

from jobs.run.recorder import RESOURCES
from tests.real.server import Cut, at

KINDS = tuple(RESOURCES.values())


def delayed(kind, seconds):
    """Delay all events of one kind; the order within the kind is kept."""
    return lambda play: _timed(play, lambda c: c.at + seconds if c.kind == kind else c.at)


def batched(seconds):
    """Deliver everything in batches."""
    return lambda play: _timed(play, lambda c: play.start + math.ceil((c.at - play.start) / seconds) * seconds)


def stretched(factor, below_s=1.0):
    """Widen gaps of less than a second between two events: the moments of inconsistent objects."""

    def change(play):
        moments, shift, last = {}, 0.0, play.start
        for c in play.changes:
            if c.at <= play.start:
                continue
            gap = c.at - last
            if gap < below_s:
                shift += gap * (factor - 1)
            last = c.at
            moments[id(c)] = c.at + shift
        return _timed(play, lambda c: moments.get(id(c), c.at))

    return change


def held(number, seconds):
    """After this many events of the trial, delay everything else."""

    def change(play):
        trial = [c for c in play.changes if c.at > play.start]
        first = trial[number].at if number < len(trial) else math.inf
        return _timed(play, lambda c: c.at + seconds if c.at >= first else c.at)

    return change


def cut(after_s, away_s=0.0, *, kind="", too_old=False):
    """Break the watches of a kind, or all; for a while the server does not respond; then the old version may be
    refused."""
    return lambda play: replace(play, cuts=(*play.cuts, Cut(play.start + after_s, away_s, kind, too_old)))


def _timed(play, when):
    """Give every event of the trial a new moment; the Job's creation and the order within each kind are kept."""
    latest: dict[Any, Any] = {}
    changes = []
    for c in play.changes:
        moment = c.at if c.at <= play.start else max(when(c), latest.get(c.kind, 0.0))
        latest[c.kind] = moment
        changes.append(at(c, moment))
    return replace(play, changes=tuple(sorted(changes, key=lambda c: c.at)))


VARIANTS = {
    "as recorded": lambda play: play,
    **{f"{kind}s 0.3 s late": delayed(kind, 0.3) for kind in ("Job", "Pod", "Event", "Node")},
    **{f"{kind}s 1.5 s late": delayed(kind, 1.5) for kind in ("Job", "Pod", "Event", "Node")},
    "batches of 1 s": batched(1.0),
    "batches of 3 s": batched(3.0),
    "short gaps x4": stretched(4.0),
    "short gaps x10": stretched(10.0, below_s=0.3),
    "all watches cut after 3 s": cut(3.0),
    "all watches cut after 8 s, too old": cut(8.0, 2.0, too_old=True),
    "away from 5 s to 15 s, too old": cut(5.0, 10.0, too_old=True),
    "watch of Jobs cut after 2 s": cut(2.0, kind="Job"),
    "watch of Pods cut after 2 s, too old": cut(2.0, kind="Pod", too_old=True),
}


def prefixes(play, seconds, until):
    """Yield one variant for each event of the trial, in which everything pauses there.

    Of events at one moment one is taken. None is taken after `until`, when the client had ended, since later events do
    not change its result.
    """
    trial = [c.at for c in play.changes if c.at > play.start]
    different = {at: number for number, at in reversed([*enumerate(trial)]) if at <= until}
    return {f"held for {seconds} s before event {n + 1}": held(n, seconds) for n in sorted(different.values())}
