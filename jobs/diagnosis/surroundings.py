"""What must be known besides a pod to judge it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..cluster.facts.events import Event
from ..cluster.unstructured import Unstructured


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Events of a pod, its node and its job, as far as they are seen.

    `ending_since`: from when on its Job's controller may have deleted it, since the Job was failing. `taken`: whether
    it was on its way out before it ended, None where no look tells. `probe_ended`: its probe had ended before.
    """

    events: Sequence[Event] = ()
    node: Unstructured | None = None
    nodes: Sequence[Unstructured] = ()
    own_nodes: frozenset[str] = frozenset()
    job_ending: bool = False
    ending_since: str = ""
    deleted_by_controller: bool = False
    taken: bool | None = None
    probe_ended: bool = False
    queued: bool = False  # a queue's scheduler is silent about a gang that waits
