"""The result of a trial that has run: each rank's evidence from its log and termination message.

A deleted Service that named the ranks is the cause of a failed rendezvous, not the network.
"""

from __future__ import annotations

import time
from dataclasses import replace

from ..cluster.client.errors import ClusterError, NotFound
from ..cluster.client.kube import Kube, path
from ..cluster.facts.events import read_events
from ..cluster.unstructured import Unstructured, as_list, as_map, name_of
from ..diagnosis.grace_periods import DELETED_S
from ..diagnosis.history import later
from ..diagnosis.podfacts import pod_facts
from ..diagnosis.state import JobState, Replica, interrupted
from ..trial.launchers import Kind
from ..trial.spec import TrialSpec
from .containers import explained, termination_message
from .evidence import EvidenceReader, MultiplexedReader, RankEvidence
from .logs import Follower
from .result import TrialResult
from .sweep_watcher import SweepWatcher
from .waiting import WatchOutcome
from .watcher import Watcher


def with_service_gone(kube: Kube, spec: TrialSpec, result: TrialResult) -> TrialResult:
    """Return the result of a trial; after a failed rendezvous, a deleted Service becomes its cause."""
    if not _apart(result):
        return result
    services = dict.fromkeys(peer.partition(".")[2] or peer for peer in spec.peers)
    return next(filter(None, (_without(kube, name, spec.namespace, result) for name in services)), result)


def _apart(result: TrialResult) -> bool:
    """Return whether a rank could not resolve a peer, or a collective failed, without another explanation."""
    if result.analysis is not None and result.analysis.fault != "job.failed":
        return False
    for evidence in result.evidence.values():
        peers = as_list(as_map(evidence.stages.get("dns")).get("peers"))
        if any(not peer.get("addresses") for peer in peers):
            return True
        if any(name.startswith("collective.") and data.get("exit") != 0 for name, data in evidence.stages.items()):
            return True
    return False


def _without(kube: Kube, name: str, namespace: str, result: TrialResult) -> TrialResult | None:
    """Return the result with a deleted or replaced Service as its cause.

    An operator creates its Service anew. Returns None if the Service is unchanged, or unknown.
    """
    try:
        service = kube.get(path("services", name, namespace=namespace))
    except NotFound:
        then = "deleted by others"
    except ClusterError:
        return None
    else:
        made = str(as_map(service.get("metadata")).get("creationTimestamp") or "")
        began = min(filter(None, (pod.began for pod in result.pods)), default="")
        if not (began and later(began, int(DELETED_S)) < made):
            return None
        then = f"deleted and recreated by others at {made}"
    analysis = interrupted(
        f"service/{name}",
        f"the headless Service {name}, which names the ranks, was {then} while the trial ran, so that ranks "
        "did not find each other",
        expected="the trial's objects are not deleted",
    )
    return replace(result, analysis=analysis)


_MOST_EVENTS = 200


def conclude(
    name: str, run: str, watcher: Watcher, outcome: WatchOutcome, began: float, warned: tuple[str, ...], kind: Kind
) -> TrialResult:
    """Return the result of a job that was watched until `outcome`; `began` is a time.monotonic()."""
    logs = {pod: f.file for pod, f in watcher.followers.items() if f.file is not None and f.file.exists()}
    seconds = time.monotonic() - began
    warned += (outcome.lingering,) if outcome.lingering else ()
    warned += tuple(f.unkept for f in watcher.followers.values() if f.unkept)[:1]  # failures of our own disk
    if outcome.state is JobState.ERROR:  # the log would show the cause, so report why it is missing
        unread = (f for f in watcher.followers.values() if f.problem and not f.heard)
        warned += tuple(f"the log of {f.pod} could not be read: {f.problem}" for f in unread)[:1]
    said = [line for follower in watcher.followers.values() for line in follower.last]
    return TrialResult(
        job=name,
        state=outcome.state,
        replicas=outcome.replicas,
        analysis=explained(outcome.analysis, said) if kind.multiplexed else outcome.analysis,
        evidence=watcher.all_evidence()
        if isinstance(watcher, SweepWatcher)
        else _evidence(run, watcher, outcome, kind),
        logs=logs,
        seconds=seconds,
        warnings=warned,
        launcher=kind.name,
        pods=pod_facts(outcome.pods, watcher.events, kind.index),
        events=tuple(str(event) for event in read_events(watcher.events)[-_MOST_EVENTS:]),
        placed=watcher.placed if isinstance(watcher, SweepWatcher) else {},
        ran=frozenset(watcher.ran) if isinstance(watcher, SweepWatcher) else frozenset(),
        queue=watcher.queueing.facts() if watcher.queueing else None,
    )


def _evidence(run: str, watcher: Watcher, outcome: WatchOutcome, kind: Kind) -> dict[int, RankEvidence]:
    """Return the evidence of each rank with output, including pods that have been deleted meanwhile."""
    evidence: dict[int, RankEvidence] = {}
    for replica in outcome.replicas:
        follower = watcher.followers.get(replica.pod)
        if not replica.pod:
            continue
        if follower is not None and isinstance(follower.reader, MultiplexedReader):
            evidence |= _of_all(follower.reader, outcome, kind)
        elif not kind.multiplexed:
            read = _of_one(run, replica, follower, outcome.pods, kind.container)
            evidence[replica.index if read.rank is None else read.rank] = read
    known = {replica.pod for replica in outcome.replicas}
    for pod, follower in watcher.followers.items():  # reports of pods deleted meanwhile
        if pod not in known and isinstance(follower.reader, EvidenceReader):
            read = follower.reader.result()
            if read.rank is not None:
                evidence.setdefault(read.rank, read)
    return evidence


def _of_all(streams_reader: MultiplexedReader, outcome: WatchOutcome, kind: Kind) -> dict[int, RankEvidence]:
    """Return the evidence of all ranks from one log, each completed by its own pod's termination message."""
    for pod in outcome.pods:
        rank, message = kind.index(pod), termination_message(pod, kind.container)
        if message and rank in streams_reader.ranks:
            streams_reader.of(rank).summarize(message)
    return streams_reader.results()


def _of_one(
    run: str, replica: Replica, follower: Follower | None, pods: list[Unstructured], container: str
) -> RankEvidence:
    """Return a rank's evidence from its log, completed by its termination message (which survives a lost log)."""
    reader = (
        follower.reader if follower is not None and isinstance(follower.reader, EvidenceReader) else EvidenceReader(run)
    )
    for pod in pods:
        if name_of(pod) == replica.pod and (message := termination_message(pod, container)):
            reader.summarize(message)
    evidence = reader.result()
    # Without any line, the reason for their absence is the best information.
    return (
        evidence
        if evidence.stages or follower is None
        else replace(evidence, problem=evidence.problem or follower.problem)
    )
