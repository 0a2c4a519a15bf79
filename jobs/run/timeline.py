"""What a trial spent its time on: for each pod the wait for a node, the start of its containers, then its stages."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .result import TrialResult

MOST_PODS = 64
"""Of a larger trial only the first ranks are told."""
SHORTEST_S = 0.05


class Span(TypedDict):
    """One phase of one pod; seconds since the first pod was created.

    ``phase`` is ``scheduling`` (created to bound), ``image and start`` (bound to running, by the clocks of the API
    server and of the kubelet, which write whole seconds), or a stage of the probe, by the pod's own clock.
    """

    node: str
    phase: str
    start_s: float
    seconds: float


def timeline(trial: TrialResult) -> list[Span]:
    """Return the phases of each pod, by rank; nothing of a pod whose times were not told."""
    moments = [moment for pod in trial.pods if (moment := _moment(pod.created)) is not None]
    if not moments:
        return []
    first = min(moments)
    spans: list[Span] = []
    for pod in trial.pods[:MOST_PODS]:
        created, scheduled, began = (_moment(text) for text in (pod.created, pod.scheduled, pod.began))
        phases = [("scheduling", created, scheduled), ("image and start", scheduled, began)]
        for phase, start, end in phases:
            if start is not None and end is not None and end > start:
                spans.append(Span(node=pod.node or pod.name, phase=phase, start_s=start - first, seconds=end - start))
        told = trial.evidence.get(pod.index)
        if began is not None and told is not None:
            spans += _stages(pod.node or pod.name, began - first, told.seconds.items())
    return spans


def _stages(node: str, start_s: float, seconds: Iterable[tuple[str, float]]) -> Iterator[Span]:
    """The probe's stages, one after another; the last, `end`, repeats the time of all."""
    for stage, took in seconds:
        if stage != "end" and took > 0:
            if took >= SHORTEST_S:
                yield Span(node=node, phase=stage, start_s=round(start_s, 2), seconds=round(took, 2))
            start_s += took


def _moment(text: str) -> float | None:
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
