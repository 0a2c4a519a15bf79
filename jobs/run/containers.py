"""Whether the trial's container of a pod runs, has run, or has ended, as the kubelet says it."""

from __future__ import annotations

from ..cluster.unstructured import Unstructured, as_list, as_map, by_type


def has_started(pod: Unstructured, container: str) -> bool:
    """Tell whether a container runs or has run: then there is a log."""
    for entry in _statuses(pod):
        if entry.get("name") == container:
            state, before = as_map(entry.get("state")), as_map(entry.get("lastState"))
            return "running" in state or "terminated" in state or bool(as_map(before.get("terminated")))
    return False


def has_ended(pod: Unstructured, container: str) -> bool:
    """Tell whether a container has run to its end."""
    states = [as_map(each.get("state")) for each in _statuses(pod) if each.get("name") == container]
    return any("terminated" in state for state in states)


def others_running(pod: Unstructured, container: str) -> list[str]:
    """Return the names of the pod's other containers that run."""
    return [
        str(entry.get("name"))
        for entry in _statuses(pod)
        if entry.get("name") != container and "running" in as_map(entry.get("state"))
    ]


def is_shaken(pod: Unstructured, container: str) -> bool:
    """Tell whether a pod whose container runs is said not to be ready: that is how its lost node shows first.

    The trial's container has no readiness probe, so that nobody but the node's controller says so of it.
    """
    status = as_map(pod.get("status"))
    unready = (by_type(status).get("Ready") or {}).get("status") == "False"
    return (
        status.get("phase") == "Running" and unready and has_started(pod, container) and not has_ended(pod, container)
    )


def termination_message(pod: Unstructured, container: str) -> str:
    """Return the termination message of a container that has ended; '' where there is none."""
    for entry in _statuses(pod):
        if entry.get("name") == container:
            return str(as_map(as_map(entry.get("state")).get("terminated")).get("message") or "")
    return ""


def _statuses(pod: Unstructured) -> list[Unstructured]:
    return as_list(as_map(pod.get("status")).get("containerStatuses"))
