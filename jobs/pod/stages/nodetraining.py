"""The training steps of a node alone, in a sweep: run as a trial's are, told short enough for one message.

All of its GPUs train together, and none of another node: whoever is slow is so by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List

from . import redact, training

if TYPE_CHECKING:
    from .deadline import Watch
    from .fleettest import Link
    from .spec import Identity, Trial

__all__ = ["train"]

MOST_RANKS = 16
MOST_COMPUTE, MOST_SHARED = 40, 20  # times of steps; sixteen GPUs are 20 KiB then
MOST_TEXT = 600
PLAIN = "local bus_id device name multiprocessors torch library flops comm_ms memory_mib seed shape products".split()
OUTCOME = "skipped stopped error exit timed_out seconds".split()


def train(own: Trial, me: Identity, watch: Watch, link: Link, place: str, here: str, why: str) -> Dict[str, Any]:
    """Run the steps, or say `why` not; returns the stage of a trial's training, with what is judged of each rank.

    `own`: the trial of one node.
    """
    steps = training.Training(own, me, watch, link, place, here)  # type: ignore[arg-type]  # as much of a barrier
    data = training.blank()
    if why:
        data["skipped"] = why
    else:
        steps.train(data, "")
    found = {key: data[key] for key in OUTCOME}
    for key in ("skipped", "stopped", "error"):
        found[key] = redact.text(str(data[key]))[:MOST_TEXT] if data[key] else None
    found["output_tail"] = "" if data["exit"] == 0 else str(data["output_tail"])[-MOST_TEXT:]
    found["ranks"] = [_brief(told) for told in data["ranks"][:MOST_RANKS]]
    found["samples"] = data["samples"][:MOST_RANKS]
    return found


def _brief(told: Dict[str, Any]) -> Dict[str, Any]:
    """Return of a rank what its node is judged by."""
    found = {key: told[key] for key in PLAIN if told.get(key) is not None}
    found["compute_ms"] = _thinned(told.get("compute_ms") or [], MOST_COMPUTE)
    found["modes"] = [_mode(mode) for mode in (told.get("modes") or [])[:2]]
    return found


def _mode(mode: Dict[str, Any]) -> Dict[str, Any]:
    losses = mode.get("losses") or []
    found = {key: mode[key] for key in ("mode", "steps", "bad_step", "why") if mode.get(key) is not None}
    found["step_ms"] = _thinned(mode.get("step_ms") or [], MOST_SHARED)
    found["losses"] = losses if len(losses) <= 6 else losses[:3] + losses[-3:]
    return found


def _thinned(values: List[float], most: int) -> List[float]:
    """Return at most so many of the values, evenly chosen, in order."""
    return [round(value, 2) for value in values[:: max(1, -(-len(values) // most))]]
