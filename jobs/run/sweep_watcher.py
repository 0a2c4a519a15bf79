"""The watcher of a sweep's job: it follows rank 0's log, and ends when the coordinator has finished.

Of the other pods only those are read that the coordinator has not reached, since nothing else shows the reason.

Pods that never start, are preempted, or die do not end a sweep: the coordinator continues with the rest and reports it.
"""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from functools import cached_property

from ..cluster.facts.events import about, read_events
from ..cluster.unstructured import Unstructured, as_list, as_map, name_of, node_of
from ..diagnosis.grace_periods import NODE_LOST_S
from ..diagnosis.pod import lost
from ..diagnosis.state import FailureAnalysis, JobState, interrupted
from . import waiting
from .containers import has_ended, has_started
from .evidence import EvidenceReader, RankEvidence
from .logs import Follower
from .waiting import WatchOutcome
from .watcher import Watcher

END_S = 5.0
"""Seconds for the agents to end after their coordinator; pods that start later are ignored."""
SIGNALS = {128 + number: number.name for number in (signal.SIGKILL, signal.SIGTERM)}
"""Exit codes of a container that was ended by a signal."""
LAG_S = 15.0
"""Seconds by which a log may lag behind its finished container."""
MOST_UNMET = 16
"""Number of pods followed in addition to the coordinator's: if more have not reached it, they share one reason."""


class SweepWatcher(Watcher):
    """A watcher that follows the coordinator, independently of the other pods."""

    _over_since: float | None = None
    _gone_since: float | None = None
    _lost_since: float | None = None
    _leader = ""

    @cached_property
    def unmet(self) -> dict[str, int]:
        """The pods that the coordinator had not reached when it counted its agents, with their completion indexes."""
        return {}

    @cached_property
    def placed(self) -> dict[str, frozenset[int]]:
        """The nodes to which the job's own pods have been bound, and the completion index of each."""
        return {}

    @cached_property
    def ran(self) -> set[str]:
        """The nodes on which the container of one of the job's own pods runs, or has run."""
        return set()

    def _look(self, outcome: WatchOutcome, *, final: bool = False) -> None:
        super()._look(outcome, final=final)
        for pod in (*outcome.pods, *self._pods.departed()):
            node = node_of(pod)
            if node and self._owns(pod):
                self.placed[node] = self.placed.get(node, frozenset()) | {self._kind.index(pod)}
                self.ran |= {node} if has_started(pod, self._kind.container) else set()

    @property
    def coordinator(self) -> Follower | None:
        """The log of the pod that led the sweep; None while no pod of rank 0 has started."""
        return self.followers.get(self._leader)

    def evidence(self) -> RankEvidence:
        """Return the evidence of the coordinator's log so far."""
        follower = self.coordinator
        if follower is None or not isinstance(follower.reader, EvidenceReader):
            return RankEvidence()
        evidence = follower.reader.result()
        return evidence if evidence.stages else replace(evidence, problem=evidence.problem or follower.problem)

    def all_evidence(self) -> dict[int, RankEvidence]:
        """Return the evidence of the coordinator, and of each pod that has not connected to it."""
        readers = {rank: self.followers[name].reader for name, rank in self.unmet.items() if name in self.followers}
        heard = {rank: reader.result() for rank, reader in readers.items() if isinstance(reader, EvidenceReader)}
        return heard | {0: self.evidence()}

    def _follow(self, pods: list[Unstructured]) -> None:
        """Follow the first pod of rank 0 that starts: a later one does not have its rounds."""
        counted = [data for stage, data in self.evidence().stages.items() if stage.startswith("sweep.fleet.")]
        met = as_map(counted[-1].get("ranks")) if counted else {}
        for pod in pods:
            if counted and self._kind.index(pod) and node_of(pod) not in met and self._owns(pod):
                self._hear(pod)
            name = str(pod["metadata"]["name"])
            if self._kind.index(pod) == 0 and self._leader in ("", name) and self._owns(pod):
                super()._follow([pod])
                self._leader = name if name in self.followers else ""

    def _hear(self, pod: Unstructured) -> None:
        name = name_of(pod)
        if name in self.unmet or (len(self.unmet) < MOST_UNMET and has_started(pod, self._kind.container)):
            self.unmet[name] = self._kind.index(pod)
            super()._follow([pod])

    def _taken_away(self, pods: list[Unstructured]) -> FailureAnalysis | None:
        """Return a failure only for a deleted leader: its rounds report the other pods."""
        return None if self._leader in map(name_of, pods) else super()._taken_away(pods)

    def _owns(self, pod: Unstructured) -> bool:
        """Return whether a pod is the job's own: any user can write labels."""
        uid = as_map(as_map(self._last_job).get("metadata")).get("uid")
        return bool(uid) and any(
            as_map(owner).get("uid") == uid for owner in as_list(pod["metadata"].get("ownerReferences"))
        )

    def keep(self) -> WatchOutcome:
        """Wait; return the last state. A failed job does not precede the end that its coordinator had printed."""
        outcome = super().keep()
        if self.coordinator is not None and self.coordinator.reader.ended and not outcome.aborted:
            self._through(outcome)
        return outcome

    def _heard(self, _stage: str) -> None:
        """Ignore single stages: the coordinator reports its own progress."""

    def _over(self, outcome: WatchOutcome) -> bool:
        follower = self.coordinator
        if follower is not None and follower.reader.ended:
            return self._through(outcome)
        if follower is not None and self._finished(self._leader):
            self._gone_since = self._gone_since or time.monotonic()
            if follower.join(0.0) or time.monotonic() - self._gone_since > LAG_S:
                self._abort(outcome, self._why_gone(outcome))
                outcome.aborted = True
                return True
        return self._leaderless_pods(outcome) or super()._over(outcome)

    def _leaderless_pods(self, outcome: WatchOutcome) -> bool:
        """Stop if the leader's node is lost and no agent is left.

        The status of a pod on such a node stays Running for ever. Agents end by themselves without the leader. While
        they run, the leader may only be invisible to the API. Another pod of rank 0 is a replacement created by the
        Job, and leads no agent.
        """
        led, over = self._own_pod(outcome), outcome.state.final
        left = [pod for pod in outcome.pods if pod == led or self._kind.index(pod) != 0]
        left = [pod for pod in left if has_started(pod, self._kind.container)]
        left = [pod for pod in left if not has_ended(pod, self._kind.container)]
        if led not in left or not all(self._is_lost(pod) for pod in ([led] if over else left)):
            self._lost_since = None
            return False
        self._lost_since = self._lost_since or time.monotonic()
        if not over and time.monotonic() - self._lost_since < NODE_LOST_S:
            return False
        self._abort(outcome, self._why_gone(outcome))
        outcome.aborted = True
        return True

    def _own_pod(self, outcome: WatchOutcome) -> Unstructured:
        """Return the leader's pod as last seen, also if it is gone."""
        pods = [*outcome.pods, *self._pods.departed()]
        return next((pod for pod in pods if pod["metadata"]["name"] == self._leader), {})

    def _is_lost(self, pod: Unstructured) -> bool:
        """Return whether a pod's node has stopped reporting."""
        name = node_of(pod)
        node = next((each for each in self._explanations.nodes if name_of(each) == name), None)
        events = about(read_events(self.events), "Pod", name_of(pod))
        return lost(node, as_map(pod.get("status")), events)

    def _why_gone(self, outcome: WatchOutcome) -> FailureAnalysis:
        """Explain the leader's end; a signal has no known class: neither the program nor the nodes."""
        analysis, own = outcome.analysis, self._own_pod(outcome)
        if self._is_lost(own) and not has_ended(own, self._kind.container):
            return _on_lost_node(self._leader, node_of(own))
        ended = [as_map(each.get("state")) for each in as_list(as_map(own.get("status")).get("containerStatuses"))]
        codes = [as_map(state.get("terminated")).get("exitCode") for state in ended]
        name = next((SIGNALS[code] for code in codes if code in SIGNALS), "")
        return (
            _leaderless(self._leader, name)
            if analysis is None or (analysis.fault == "job.failed" and name)
            else analysis
        )

    def _through(self, outcome: WatchOutcome) -> bool:
        """Conclude after the coordinator's end: its rounds report the other pods."""
        self._over_since = self._over_since or time.monotonic()
        final = outcome.state.final
        if not final and time.monotonic() - self._over_since < END_S and not self._waits_for_others(outcome):
            return False
        stopped = self.evidence().stages.get("end", {}).get("stopped")
        outcome.aborted = True  # later events do not matter, and the rest is deleted
        outcome.state = JobState.COMPLETE
        outcome.analysis = _leaderless(self._leader, str(stopped)) if str(stopped).startswith("SIG") else None
        return True

    def _waits_for_others(self, outcome: WatchOutcome) -> bool:
        """Return whether only pods that have not started are left of the job."""
        return all(
            not has_started(pod, self._kind.container) or has_ended(pod, self._kind.container) for pod in outcome.pods
        )

    def _given_up(self, outcome: WatchOutcome, waited: float) -> bool:
        """Give up only for obstacles of rank 0: the sweep does not wait for other ranks."""
        if self.coordinator is not None or any(has_started(pod, self._kind.container) for pod in outcome.pods):
            return False
        return super()._given_up(outcome, waited)

    def _expired(self, outcome: WatchOutcome, waited: float) -> bool:
        if self.coordinator is None or self._let_in is None:
            return super()._expired(outcome, waited)
        since = time.monotonic() - self._let_in
        if since <= self._limits.job_s + LAG_S:
            return False
        last = waiting.last_state(self._job, outcome, self.events)
        self._abort(outcome, waiting.overdue(self._job, self._limits, outcome, since, last))
        return True

    def _lingers(self, _outcome: WatchOutcome) -> bool:
        return False


def _on_lost_node(pod: str, node: str) -> FailureAnalysis:
    analysis = _leaderless(pod)
    observed = f"{node} stopped reporting, with the sweep's leading pod {pod}"
    return replace(analysis, fault="node.lost", subject=node, observed=observed, expected="the node stays Ready")


def _leaderless(pod: str, why: str = "") -> FailureAnalysis:
    return interrupted(
        pod,
        f"pod {pod}, which led the sweep, {f'was terminated by {why}' if why else 'is gone'} before it had completed",
        expected="the coordinator's pod lasts until the sweep has ended",
        suggestion="Its results are kept: seatrial sweep --resume DIR continues from there.",
    )
