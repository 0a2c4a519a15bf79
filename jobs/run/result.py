"""The result of a trial, as the launcher returns it, and its timeline.

The timeline has for each pod the wait for a node, the start of its containers, then its stages.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from ..diagnosis.state import FailureAnalysis, JobState, PodFacts, Replica
from .evidence import RankEvidence, StageData
from .queueing import QueueFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """The result of one trial."""

    job: str
    state: JobState
    replicas: tuple[Replica, ...] = ()
    analysis: FailureAnalysis | None = None
    evidence: dict[int, RankEvidence] = field(default_factory=dict)
    logs: dict[str, Path] = field(default_factory=dict)
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    launcher: str = "indexed"
    pods: tuple[PodFacts, ...] = ()
    events: tuple[str, ...] = ()
    queue: QueueFacts | None = None
    attempts: int = 1
    interrupted: tuple[str, ...] = ()  # the interruption of each earlier attempt
    placed: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Nodes of a sweep to which its own pods were bound, according to the API server, with the index of each pod."""
    ran: frozenset[str] = frozenset()  # those on which a pod's container runs, or has run
    refused: bool = False  # the cluster refused to create it
    given_up: bool = False  # waiting for it could not help: it still holds its resources

    @property
    def lost(self) -> frozenset[str]:
        """The nodes that stopped reporting while they ran the trial's pods."""
        return frozenset(replica.node for replica in self.replicas if replica.fault == "node.lost")


MOST_PODS = 64
"""In a larger trial only the first ranks are reported."""
SHORTEST_S = 0.05
SWEEP = "sweep."
"""Stages of a sweep's coordinator are about all nodes, and are reported by node."""


class Span(TypedDict):
    """One phase of one pod; seconds since the first pod was created.

    ``phase`` is ``scheduling`` (created to bound), ``image and start`` (bound to running, by the clocks of the API
    server and of the kubelet, which write whole seconds), or a stage of the probe, by the pod's own clock. A sweep has
    ``round 3``, by the clock of the coordinator's pod.
    """

    node: str
    phase: str
    start_s: float
    seconds: float


def timeline(trial: TrialResult) -> list[Span]:
    """Return the phases of each pod, by rank; none for a pod without reported times."""
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
        evidence = trial.evidence.get(pod.index)
        if began is not None and evidence is not None:
            spans += _stages(pod.node or pod.name, began - first, evidence.seconds.items())
            if pod.index == 0:
                spans += _rounds(began - first, evidence.stages, {pod.node for pod in trial.pods[:MOST_PODS]})
    return spans


def _rounds(start_s: float, stages: Mapping[str, StageData], nodes: set[str]) -> Iterator[Span]:
    """Yield the rounds of a sweep, for each node that was tested in them."""
    for name, row in stages.items():
        at, took = row.get("at"), row.get("seconds")
        if not name.startswith(f"{SWEEP}round.") or at is None or not took or took < SHORTEST_S:
            continue
        what = f"round {row.get('number')}{'' if row.get('stage') else ', alone'}"
        for node in sorted({node for test in row["tests"] for node in test["nodes"]} & nodes):
            yield Span(node=node, phase=what, start_s=round(start_s + at, 2), seconds=took)


def _stages(node: str, start_s: float, seconds: Iterable[tuple[str, float]]) -> Iterator[Span]:
    """Yield the probe's consecutive stages, without the last, `end`, which repeats the total time."""
    for stage, took in seconds:
        if stage != "end" and took > 0 and not stage.startswith(SWEEP):
            if took >= SHORTEST_S:
                yield Span(node=node, phase=stage, start_s=round(start_s, 2), seconds=round(took, 2))
            start_s += took


def _moment(text: str) -> float | None:
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
