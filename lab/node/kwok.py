"""Nodes without a machine, as KWOK simulates them: pods are objects, and nothing runs.

A pod is Running as soon as it is bound, and one of a Job is Succeeded right after. It has no container id, since no
runtime has created one; its log is refused (kubernetes-sigs/kwok, kustomize/stage/pod/fast and
pkg/kwok/server/debugging_logs.go).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..apiserver.schema.errors import ApiError

if TYPE_CHECKING:
    from ..apiserver.store import Store

Object = dict[str, Any]
ANNOTATION = "kwok.x-k8s.io/node"
READY = ("Initialized", "Ready", "ContainersReady")


def is_kwok(node: Object | None) -> bool:
    """Return whether the node has no machine."""
    return ANNOTATION in ((node or {}).get("metadata", {}).get("annotations") or {})


async def simulate(store: Store, pod: Object, host_ip: str, pod_ip: str) -> None:
    """Set a pod to Running, and to Succeeded if a Job owns it."""
    meta, now = pod["metadata"], store.now()
    true = [{"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": now} for kind in READY]

    def run(obj: Object) -> None:
        conditions = [c for c in obj["status"].get("conditions") or [] if c["type"] not in READY]
        obj["status"] |= {
            "phase": "Running",
            "startTime": now,
            "conditions": [*conditions, *true],
            "hostIP": host_ip,
            "podIP": pod_ip,
            "podIPs": [{"ip": pod_ip}],
            "containerStatuses": _statuses(obj, {"running": {"startedAt": now}}),
        }

    def end(obj: Object) -> None:
        ended = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": store.now()}
        obj["status"] |= {"phase": "Succeeded", "containerStatuses": _statuses(obj, {"terminated": ended})}

    store.mutate("pods", meta["namespace"], meta["name"], run, "status")
    if any(owner["kind"] == "Job" for owner in meta.get("ownerReferences") or []):
        await asyncio.sleep(0.1)
        store.mutate("pods", meta["namespace"], meta["name"], end, "status")


def _statuses(pod: Object, state: Object) -> list[Object]:
    ready = "running" in state
    return [
        {
            "name": each["name"],
            "image": each["image"],
            "imageID": "",
            "ready": ready,
            "restartCount": 0,
            "started": ready,
            "state": state,
            "lastState": {},
        }
        for each in pod["spec"]["containers"]
    ]


def no_log(namespace: str, pod: str, container: str) -> ApiError:
    """Return KWOK's error for a log without configuration, as the API server wraps it."""
    return ApiError(400, "BadRequest", f'no logs found for container "{container}" in pod "{namespace}/{pod}"')
