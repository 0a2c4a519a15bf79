"""The training steps of a node alone, in a sweep: run like a trial's, with a report that fits into one message."""

from __future__ import annotations

from typing import Any, Dict

from . import training
from .collective import BenchRun

MOST_RANKS = 16
MOST_TIMES = 40  # of each kind: sixteen GPUs are then 28 KiB
MOST_TEXT = 600


def train(alone: BenchRun, why: str) -> Dict[str, Any]:
    """Run the steps on the GPUs of `alone`, or skip them because of `why`; return a shortened training stage."""
    steps = training.Training(alone.trial, alone.me, alone.watch, alone.barrier, alone.place, alone.archive)
    data = training.blank()
    data["skipped"] = why or None
    if not why:
        steps.train(data, "")
    summary = {key: data[key] for key in "skipped stopped error exit timed_out seconds".split()}
    ranks, samples = (data[key][:MOST_RANKS] for key in ("ranks", "samples"))
    return dict(summary, output_tail=data["output_tail"][-MOST_TEXT:], ranks=_thinned(ranks), samples=samples)


def _thinned(value: Any) -> Any:
    """Return a value with every list reduced to MOST_TIMES elements: evenly spaced, in order."""
    if isinstance(value, dict):
        return {key: _thinned(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_thinned(each) for each in value[:: max(1, -(-len(value) // MOST_TIMES))]]
    return value
