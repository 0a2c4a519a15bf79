"""Plugins Priority, DefaultTolerationSeconds and RuntimeClass: additions for the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import forbidden
from ..values import clone

if TYPE_CHECKING:
    from ..seams import Objects
    from ..values import Object

CLASSES = "priorityclasses.scheduling.k8s.io"
TOLERATED_S = 300  # DefaultTolerationSeconds
UNWELL = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def priority(store: Objects, pod: Object) -> None:
    """Resolve a pod's priority class to a number and a preemption policy."""
    spec, name = pod["spec"], pod["metadata"].get("name", "")
    class_name = spec.get("priorityClassName", "")
    if class_name:
        priority_class = store.get(CLASSES, None, class_name)
        if priority_class is None:
            raise forbidden("pods", "", name, f"no PriorityClass with name {class_name} was found")
    else:
        defaults = [item for item in store.list(CLASSES) if item.get("globalDefault")]
        priority_class = max(defaults, key=lambda item: item.get("value", 0), default=None)
        if priority_class is not None:
            spec["priorityClassName"] = priority_class["metadata"]["name"]
    value = (priority_class or {}).get("value", 0)
    policy = (priority_class or {}).get("preemptionPolicy", "PreemptLowerPriority")
    if spec.get("priority") not in (None, value):
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission "
            f"controller computed {value} from the given PriorityClass name"
        )
        raise forbidden("pods", "", name, why)
    if spec.get("preemptionPolicy") not in (None, policy):
        why = (
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
        raise forbidden("pods", "", name, why)
    spec["priority"] = value
    spec["preemptionPolicy"] = policy


def default_tolerations(pod: Object) -> None:
    """Add five minutes of toleration for an unhealthy node, unless the pod has its own."""
    tolerations = pod["spec"].get("tolerations") or []
    added = []
    for key in UNWELL:
        if not any(_tolerates(toleration, key) for toleration in tolerations):
            added.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATED_S})
    if added:
        pod["spec"]["tolerations"] = [*tolerations, *added]


def _tolerates(toleration: Object, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def runtime_class(store: Objects, pod: Object) -> None:
    """Look up a pod's runtime class; copy its overhead and its node selector."""
    spec, name = pod["spec"], pod["metadata"].get("name", "")
    class_name = spec.get("runtimeClassName")
    if not class_name:
        return
    runtime = store.get("runtimeclasses.node.k8s.io", None, class_name)
    if runtime is None:
        raise forbidden("pods", "", name, f'pod rejected: RuntimeClass "{class_name}" not found')
    overhead = (runtime.get("overhead") or {}).get("podFixed")
    if overhead:
        if spec.get("overhead") and spec["overhead"] != overhead:
            why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
            raise forbidden("pods", "", name, why)
        spec["overhead"] = clone(overhead)
    scheduling = runtime.get("scheduling") or {}
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        held = spec.setdefault("nodeSelector", {}).setdefault(key, value)
        if held != value:
            both = f"runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {held}"
            why = f"conflict: {both}"
            raise forbidden("pods", "", name, why)
    for toleration in scheduling.get("tolerations") or []:
        if toleration not in (spec.get("tolerations") or []):
            spec.setdefault("tolerations", []).append(clone(toleration))
