"""External causes of a job's state: events and nodes, and the reason for a missing log.

They are read periodically, and skipped if refused. Missing output has two known causes. The API server fetches logs
from the node's kubelet, and may not reach it: then `kubectl logs` fails for all users. Or the node is simulated (KWOK),
and reports that pods run and succeed without running anything. Its containers have no id from a container runtime,
which the kubelet always reports for a container that has run.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..cluster.client.errors import ClusterError, Forbidden
from ..cluster.client.kube import Kube, path
from ..cluster.facts.events import Event, read_event
from ..cluster.redact import safe
from ..cluster.unstructured import Unstructured, as_list, as_map, name_of, node_of, phase_of, uid_of
from ..diagnosis.state import FailureAnalysis
from .logs import Follower

_EVENTS_EVERY_S = 2.0
_NODES_EVERY_S = 20.0
_NODES_READ_S = 60.0
_REFUSALS = 3
# Above this number of objects, one list of all events is cheaper than one request for each.
_FEW = 8


class Explanations:
    """The events of a namespace and the nodes of a pool as last read."""

    def __init__(self, kube: Kube, namespace: str, selector: str = "", *, sees_nodes: bool = True) -> None:
        self._kube, self._namespace, self._selector, self._sees_nodes = kube, namespace, selector, sees_nodes
        self._nodes_refused = 0
        self._asked_events = self._asked_nodes = -1e9
        self._events: dict[str, Event] = {}
        self.nodes: list[Any] = []

    @property
    def events(self) -> list[Event]:
        """All events read so far."""
        return list(self._events.values())

    def read_events(self, names: Sequence[str], *, now: bool) -> None:
        """Add events of objects with these names, at most every two seconds unless `now`."""
        if not now and time.monotonic() - self._asked_events < _EVENTS_EVERY_S:
            return
        self._asked_events = time.monotonic()
        selectors = [f"involvedObject.name={name}" for name in names] if len(names) <= _FEW else [""]
        items: list[Any] = []
        # Events only explain: without them (no permission, an outage) the objects still show the failure.
        with contextlib.suppress(ClusterError):
            for selector in selectors:
                url_path = path("events", namespace=self._namespace)
                items += self._kube.list(url_path, fieldSelector=selector, deadline_s=10.0)[0]
            events = {uid_of(item) or name_of(item): read_event(item) for item in items if isinstance(item, dict)}
            self._events |= {uid: event for uid, event in events.items() if event is not None}

    def read_nodes(self, *, now: bool) -> bool:
        """Read the nodes again, at most every 20 seconds unless `now`; return False if they were not read."""
        if not now and time.monotonic() - self._asked_nodes < _NODES_EVERY_S:
            return False
        if not self._sees_nodes or self._nodes_refused >= _REFUSALS:
            return False
        self._asked_nodes = time.monotonic()
        try:
            pages = self._kube.pages(path("nodes"), labelSelector=self._selector, deadline_s=_NODES_READ_S)
            # All pages or none: a node of a later page may offer what the first page lacks.
            self.nodes = [_small(node) for page, _ in pages for node in page if isinstance(node, dict)]
        except Forbidden:
            self._nodes_refused += 1  # temporary on a restarted API server, otherwise permanent
            return False
        except ClusterError:
            return False
        self._nodes_refused = 0
        return True


def _small(node: Unstructured) -> Unstructured:
    """Return the facts of a node that the diagnosis reads."""
    meta, spec, status = (as_map(node.get(key)) for key in ("metadata", "spec", "status"))
    return {
        "metadata": {"name": meta.get("name")},
        "spec": {"taints": as_list(spec.get("taints"))},
        "status": {key: status.get(key) for key in ("conditions", "capacity", "allocatable")},
    }


# Errors of components between the API server and a kubelet: the network, a tunnel (konnectivity), certificates.
# kubernetes/kubernetes, staging/src/k8s.io/apiserver/pkg/registry/generic/rest/streamer.go, passes the texts on.
_NOT_REACHED = re.compile(r"containerLogs|dial tcp|dialing backend|No agent available|x509:|tls:", re.IGNORECASE)
_SIMULATED_S = 20.0  # for a status that is written in two steps, or a delayed log


def simulated(pods: Iterable[Unstructured], followers: Mapping[str, Follower], name: str) -> FailureAnalysis | None:
    """Report pods with a container `name` that runs, or succeeded, without a runtime and without output."""
    mute = [pod for pod in _unheard(pods, followers) if _nothing_ran(pod, name)]
    mute = [pod for pod in mute if followers[name_of(pod)].problem or _phase(pod) == "Succeeded"]
    if not mute:
        return None
    first = name_of(mute[0])
    problem = followers[first].problem
    return FailureAnalysis(
        fault="node.simulated",
        subject=_node(mute[0]),
        observed=f"pod {first} on {_node(mute[0])}{_more(mute)} is {_phase(mute[0])} without a container ID, and "
        + (f"its log cannot be read: {problem}" if problem else "its log is empty"),
        expected="a container runtime runs the pod, and its log can be read",
        suggestion="No output: are these simulated nodes (KWOK)? They simulate scheduling, not GPUs.",
        grace_s=_SIMULATED_S,
    )


def unreachable(pods: Iterable[Unstructured], followers: Mapping[str, Follower]) -> FailureAnalysis | None:
    """Report pods with a log that the API server cannot fetch from the node."""
    mute = [pod for pod in _unheard(pods, followers) if _NOT_REACHED.search(followers[name_of(pod)].problem)]
    if not mute:
        return None
    return FailureAnalysis(
        fault="job.log-unreachable",
        subject=_node(mute[0]),
        observed=f"pod {name_of(mute[0])} on {_node(mute[0])}{_more(mute)} has ended, and the API server cannot fetch "
        f"its log: {followers[name_of(mute[0])].problem}",
        expected="the API server reaches the kubelet of every node",
        suggestion="kubectl logs and exec fail, too: no measurement of the trial can be read.",
    )


def _unheard(pods: Iterable[Unstructured], followers: Mapping[str, Follower]) -> list[Unstructured]:
    followed = [(pod, followers.get(name_of(pod))) for pod in pods]
    return [pod for pod, follower in followed if follower is not None and not follower.heard]


def _nothing_ran(pod: Unstructured, name: str) -> bool:
    for entry in as_list(as_map(pod.get("status")).get("containerStatuses")):
        if entry.get("name") != name or entry.get("containerID"):
            continue
        state = as_map(entry.get("state"))
        return "running" in state or as_map(state.get("terminated")).get("exitCode") == 0
    return False


def _phase(pod: Unstructured) -> str:
    return safe(phase_of(pod), 40)


def _node(pod: Unstructured) -> str:
    return node_of(pod) or name_of(pod)


def _more(causes: list[Unstructured]) -> str:
    return f" (and {len(causes) - 1} more)" if len(causes) > 1 else ""
