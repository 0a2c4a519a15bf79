"""What became of a trial: the types that the launcher returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..diagnosis.state import FailureAnalysis, JobState, PodFacts, Replica
from .evidence import RankEvidence
from .queueing import QueueFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """What became of one trial."""

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
    placed: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Of a sweep, by the API server: the nodes that its own pods were bound to, and the index of each."""
    given_up: bool = False  # waiting for it could not help: it still holds what it has
