"""Why not one line of a pod that ran, or seems to, has arrived.

Two causes have names. The API server fetches logs from the node's kubelet, and may not get through to it: then
`kubectl logs` fails for everybody. And a simulated node (KWOK) says that pods run and end well, and runs nothing: no
container runtime has given its containers an id, which the kubelet always reports with a container that has run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..cluster.redact import safe
from ..cluster.unstructured import Unstructured, as_list, as_map, name_of, node_of, phase_of
from ..diagnosis.state import FailureAnalysis
from .logs import Follower

# What stands between the API server and a kubelet: the network, a tunnel (konnectivity), certificates.
# kubernetes/kubernetes, staging/src/k8s.io/apiserver/pkg/registry/generic/rest/streamer.go, hands the words on.
_NOT_REACHED = re.compile(r"containerLogs|dial tcp|dialing backend|No agent available|x509:|tls:", re.IGNORECASE)
_SIMULATED_S = 20.0  # a status that is written in two steps, or a log that is a moment late


def simulated(pods: Iterable[Unstructured], followers: Mapping[str, Follower], name: str) -> FailureAnalysis | None:
    """Name the pods whose container `name` runs, or ended well, though no runtime made it and nothing was heard."""
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
        suggestion="No output: are these simulated nodes (KWOK)? They show how pods are scheduled, nothing of GPUs.",
        grace_s=_SIMULATED_S,
    )


def unreachable(pods: Iterable[Unstructured], followers: Mapping[str, Follower]) -> FailureAnalysis | None:
    """Name the pods whose log the API server cannot fetch from the node."""
    mute = [pod for pod in _unheard(pods, followers) if _NOT_REACHED.search(followers[name_of(pod)].problem)]
    if not mute:
        return None
    return FailureAnalysis(
        fault="job.log-unreachable",
        subject=_node(mute[0]),
        observed=f"pod {name_of(mute[0])} on {_node(mute[0])}{_more(mute)} has ended, and the API server cannot fetch "
        f"its log: {followers[name_of(mute[0])].problem}",
        expected="the API server reaches the kubelet of every node",
        suggestion="kubectl logs and exec fail alike: nothing that the trial has measured can be read.",
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
