"""A scheduler's updates of a pod: its node, or why it has none; events of the newer kind.

Shared by all schedulers of a cluster; each has its own name in events.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from ...apiserver.schema.errors import ApiError
from ...apiserver.schema.requests import Request
from ...apiserver.schema.values import rfc3339_micro
from ...node.status import condition

if TYPE_CHECKING:
    from ...apiserver.store import Store
    from .placement import NodeView

Object = dict[str, Any]
TOPOLOGY = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")


def bind(store: Store, pod: Object, view: NodeView, scheduler: str) -> Object | None:
    """Bind a pod to a node; None if the pod does not exist any more."""
    meta, now = pod["metadata"], store.now()

    def change(p: Object) -> None:
        p["spec"]["nodeName"] = view.name
        status = p.setdefault("status", {})
        status["conditions"] = [c for c in status.get("conditions") or [] if c["type"] != "PodScheduled"]
        status["conditions"].append(
            condition("PodScheduled", True, now, pod.get("status") or {}, generation=p["metadata"].get("generation", 1))
        )
        status.pop("nominatedNodeName", None)
        zone = {key: view.labels[key] for key in TOPOLOGY if key in view.labels}
        if zone:
            p["metadata"].setdefault("labels", {}).update(zone)

    bound = store.mutate("pods", meta["namespace"], meta["name"], change)
    if bound is not None:
        say(
            store,
            pod,
            "Normal",
            "Scheduled",
            f"Successfully assigned {meta['namespace']}/{meta['name']} to {view.name}",
            "Binding",
            scheduler,
        )
    return bound


def leave(store: Store, pod: Object, why: str, scheduler: str, reason: str = "Unschedulable") -> None:
    """Record on a pod, and in an event, why it is unschedulable."""
    meta, now = pod["metadata"], store.now()

    def change(p: Object) -> None:
        status = p.setdefault("status", {})
        status["conditions"] = [c for c in status.get("conditions") or [] if c["type"] != "PodScheduled"]
        status["conditions"].append(
            condition(
                "PodScheduled",
                False,
                now,
                pod.get("status") or {},
                reason=reason,
                message=why,
                generation=p["metadata"].get("generation", 1),
            )
        )

    store.mutate("pods", meta["namespace"], meta["name"], change, "status")
    say(store, pod, "Warning", "FailedScheduling", why, "Scheduling", scheduler)


def say(store: Store, pod: Object, kind: str, reason: str, message: str, action: str, scheduler: str) -> None:
    """Record an event of the newer kind: with eventTime and action, without count and source."""
    meta, seconds = pod["metadata"], store.clock()
    event = {
        "metadata": {"name": f"{meta['name']}.{time.time_ns():x}", "namespace": meta["namespace"]},
        "involvedObject": {
            "kind": "Pod",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
            "apiVersion": "v1",
            "resourceVersion": meta["resourceVersion"],
        },
        "reason": reason,
        "message": message[:1024],
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "type": kind,
        "eventTime": rfc3339_micro(seconds),
        "action": action,
        "reportingComponent": scheduler,
        "reportingInstance": f"{scheduler}-sim",
    }
    with contextlib.suppress(ApiError):  # the namespace is terminating
        store.create("events", event, meta["namespace"], request=Request(user=f"system:{scheduler}", trusted=True))


def mark_disrupted(store: Store, pod: Object, reason: str, message: str) -> None:
    """Set the DisruptionTarget condition: the pod's end is not its own fault."""
    meta, now = pod["metadata"], store.now()

    def change(p: Object) -> None:
        conditions = [c for c in p["status"].get("conditions") or [] if c["type"] != "DisruptionTarget"]
        conditions.append(
            condition(
                "DisruptionTarget",
                True,
                now,
                {},
                reason=reason,
                message=message,
                generation=p["metadata"].get("generation", 1),
            )
        )
        p["status"]["conditions"] = conditions

    store.mutate("pods", meta["namespace"], meta["name"], change, "status")
