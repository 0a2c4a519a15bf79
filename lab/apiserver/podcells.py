"""The cells of `kubectl get pods`: readiness, the STATUS word, restarts.

The word follows printPod of pkg/printers/internalversion: waiting and terminated reasons take precedence over the
phase.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .schema.values import Object

NONE = "<none>"


def cells(age: Callable[[str | None, float], str]) -> Callable[[Object, float], list[Any]]:
    """Return the function that formats a pod's row."""

    def show(obj: Object, now: float) -> list[Any]:
        spec, status, meta = obj["spec"], obj.get("status", {}), obj["metadata"]
        statuses = status.get("containerStatuses") or []
        restartable = {c["name"] for c in spec.get("initContainers") or [] if c.get("restartPolicy") == "Always"}
        sidecars = [s for s in status.get("initContainerStatuses") or [] if s["name"] in restartable]
        ready = sum(1 for s in statuses if s.get("ready") and "running" in (s.get("state") or {}))
        ready += sum(1 for s in sidecars if s.get("started") and s.get("ready"))
        total = len(spec.get("containers") or []) + len(restartable)
        restarts = _restarts([*statuses, *sidecars], now, age)
        wide = [status.get("podIP") or NONE, spec.get("nodeName") or NONE, status.get("nominatedNodeName") or NONE]
        gates = _gates(spec, status)
        return [
            meta["name"],
            f"{ready}/{total}",
            word(obj),
            restarts,
            age(meta.get("creationTimestamp"), now),
            *wide,
            gates,
        ]

    return show


def _restarts(statuses: list[Object], now: float, age: Callable[[str | None, float], str]) -> str:
    count = sum(s.get("restartCount", 0) for s in statuses)
    ended = [((s.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for s in statuses]
    times = sorted(time for time in ended if time)
    return f"{count} ({age(times[-1], now)} ago)" if count and times else str(count)


def _gates(spec: Object, status: Object) -> str:
    gates = spec.get("readinessGates") or []
    if not gates:
        return NONE
    true = {c["type"] for c in status.get("conditions") or [] if c.get("status") == "True"}
    return f"{sum(1 for gate in gates if gate.get('conditionType') in true)}/{len(gates)}"


def word(pod: Object) -> str:
    """Return the STATUS word of a pod."""
    status, meta = pod.get("status", {}), pod["metadata"]
    reason = status.get("reason") or status.get("phase", "")
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    initializing, reason = _init_word(pod, reason)
    if not initializing:
        reason = _container_word(status, reason)
    if meta.get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return str(reason)


def _ended(state: Object) -> str:
    ended = state["terminated"]
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


def _init_word(pod: Object, reason: str) -> tuple[bool, str]:
    spec, status = pod["spec"], pod.get("status", {})
    sidecars = {c["name"] for c in spec.get("initContainers") or [] if c.get("restartPolicy") == "Always"}
    for index, container in enumerate(status.get("initContainerStatuses") or []):
        state = container.get("state") or {}
        if "terminated" in state and state["terminated"].get("exitCode") == 0:
            continue
        if container["name"] in sidecars and container.get("started"):
            continue
        if "terminated" in state:
            return True, "Init:" + _ended(state)
        waiting = (state.get("waiting") or {}).get("reason")
        if waiting and waiting != "PodInitializing":
            return True, f"Init:{waiting}"
        return True, f"Init:{index}/{len(spec.get('initContainers') or [])}"
    return False, reason


def _container_word(status: Object, reason: str) -> str:
    running = False
    for container in reversed(status.get("containerStatuses") or []):
        state = container.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            reason = state["waiting"]["reason"]
        elif "terminated" in state:
            reason = _ended(state)
        elif container.get("ready") and "running" in state:
            running = True
    if reason == "Completed" and running:
        ready = any(c["type"] == "Ready" and c.get("status") == "True" for c in status.get("conditions") or [])
        return "Running" if ready else "NotReady"
    return reason
