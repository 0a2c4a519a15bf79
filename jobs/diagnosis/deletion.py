"""When a pod was asked to go, and whether it had ended by itself before."""

from __future__ import annotations

import datetime
import signal

from ..cluster.unstructured import Unstructured, as_list, as_map, statuses_of

_KILLED_BY_KUBELET = (128 + signal.SIGTERM, 128 + signal.SIGKILL)


def was_taken(pod: Unstructured, noticed: bool | None) -> bool:
    """Tell whether the pod was asked to go before it had ended, and nothing in it failed but by that.

    The kubelet sends SIGTERM and, after the grace period, which a forced deletion does not give, SIGKILL. `noticed` is
    what earlier looks saw; without it the times decide (whole seconds, of the API server and of the node).
    """
    meta, spec, status = (as_map(pod.get(key)) for key in ("metadata", "spec", "status"))
    deletion = str(meta.get("deletionTimestamp") or "")
    if not deletion:
        return False
    sidecars = sidecar_names(spec)
    entries = statuses_of(status)
    ends = [
        as_map(as_map(entry.get("state")).get("terminated"))
        for entry in entries
        if str(entry.get("name")) not in sidecars
    ]
    failed = [end for end in ends if end and end.get("exitCode") != 0]
    if any(end.get("exitCode") not in _KILLED_BY_KUBELET or end.get("reason") == "OOMKilled" for end in failed):
        return False
    if noticed is not None:
        return noticed
    asked = asked_at(deletion, meta.get("deletionGracePeriodSeconds"))
    if failed:
        return all(str(end.get("finishedAt") or "9") >= asked for end in failed)
    return (last_end(status) or "9") >= asked


def last_end(status: Unstructured) -> str:
    """When the last of the pod's containers ended; empty while one runs or where none ever did."""
    states = [as_map(entry.get("state")) for entry in as_list(status.get("containerStatuses"))]
    if any("terminated" not in state for state in states):
        return ""
    return max((str(as_map(state.get("terminated")).get("finishedAt") or "") for state in states), default="")


def sidecar_names(spec: Unstructured) -> set[str]:
    """The names of native sidecars: they are restarted, and killed when the trial has ended."""
    return {str(c.get("name")) for c in as_list(spec.get("initContainers")) if c.get("restartPolicy") == "Always"}


def asked_at(when: str, seconds: object) -> str:
    """When the deletion was asked for: deletionTimestamp lies the grace period later."""
    return later(when, -seconds if isinstance(seconds, int) and 0 <= seconds < 86_400 else 0)


def later(when: str, seconds: int) -> str:
    """That many seconds later, as Kubernetes writes it; what is no time is returned as it is."""
    try:
        moment = datetime.datetime.fromisoformat(when)
    except ValueError:
        return when
    return (moment + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
