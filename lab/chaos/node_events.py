"""Events while a user's job runs: drains, preemptions, lost nodes.

    happens: [{do: drain, node: gpu-node-1}, {do: fail, node: gpu-node-0, says: "NCCL INFO", back_s: 60}]

Each event occurs once: when the first pod of a job runs on that node (or on any), or its pod with that completion
index, and a pod of a job has printed the text, if one is given. It affects the node of that pod, or the node given with
the index.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from ..apiserver.store import ApiError
from ..controlplane.scheduler.binding import mark_disrupted
from ..format import ScenarioError, check, nearest
from ..node.heartbeat import lose, regain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..apiserver.store import Store
    from ..node import Kubelet

Object = dict[str, Any]
HAPPENING = {"do": str, "node": str, "says": str, "back_s": (int, float), "index": int, "stays": bool}
JOB = "batch.kubernetes.io/job-name"
INDEX = "batch.kubernetes.io/job-completion-index"
ENDED = ("Succeeded", "Failed")
LOOKS_S = 0.05
"""Seconds between two searches of the logs for a text."""
# Messages of kubectl drain, kube-scheduler and pod garbage collection.
EVICTED = ("EvictionByEvictionAPI", "Eviction API: evicting")
PREEMPTED = ("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod")
COLLECTED = ("DeletionByPodGC", "PodGC: node no longer exists")


class NodeEvents:
    """The trigger of the events that the world defines, which waits for jobs."""

    def __init__(self, store: Store, kubelet: Kubelet, world: Mapping[str, Any]) -> None:
        self._store, self._kubelet = store, kubelet
        self._waiting: list[Object] = [dict(each) for each in world.get("happens") or []]
        for each in self._waiting:
            check(each, HAPPENING, "happens")
            if each.get("do") not in DEEDS:
                raise ScenarioError(f"happens: do {each.get('do')!r}{nearest(str(each.get('do')), DEEDS)}")
        self._timers: list[asyncio.TimerHandle] = []
        self._ends: list[Callable[[], None]] = []

    def start(self) -> None:
        """Watch the pods."""
        if self._waiting:
            self._ends = [self._store.subscribe("pods", self._pod)]

    def close(self) -> None:
        """Trigger no further events."""
        for end in self._ends:
            end()
        for timer in self._timers:
            timer.cancel()

    def _pod(self, _: str, pod: Object, __: Object | None) -> None:
        labels, node = pod["metadata"].get("labels") or {}, pod["spec"].get("nodeName")
        if JOB not in labels or pod["status"].get("phase") != "Running":
            return
        for each in [each for each in self._waiting if _meant(each, node, labels)]:
            self._waiting.remove(each)
            self._happen({"node": node, **each})

    def _happen(self, what: Object) -> None:
        if "says" in what and not self._kubelet.said(what["says"], JOB):
            later = asyncio.get_running_loop().call_later
            self._timers.append(later(LOOKS_S, self._happen, what))
            return
        with contextlib.suppress(ApiError):  # the target of the event no longer exists
            DEEDS[what["do"]](self, what["node"])
            if what.get("stays"):
                self.occupy(what["node"])
        if "back_s" in what:
            later = asyncio.get_running_loop().call_later
            self._timers.append(later(float(what["back_s"]), self.bring_back, what["node"]))

    def pods(self, node: str) -> list[Object]:
        """Return the pods of jobs that run on a node."""
        return [
            pod
            for pod in self._store.list("pods")
            if pod["spec"].get("nodeName") == node
            and JOB in (pod["metadata"].get("labels") or {})
            and pod["status"].get("phase") not in ENDED
        ]

    def take(self, node: str, why: tuple[str, str] | None) -> None:
        """Delete the pods of jobs on a node, with the condition that names the cause."""
        for pod in self.pods(node):
            if why is not None:
                mark_disrupted(self._store, pod, *why)
            meta = pod["metadata"]
            self._store.delete("pods", meta["namespace"], meta["name"], uid=meta["uid"])

    def drain(self, node: str) -> None:
        """Cordon the node, then evict its pods."""
        self._store.mutate("nodes", None, node, lambda each: each["spec"].update(unschedulable=True))
        self.take(node, EVICTED)

    def preempt(self, node: str) -> None:
        """Preempt the pods by a pod of higher priority."""
        for pod in self.pods(node):
            self._store.event(
                pod,
                "Normal",
                "Preempted",
                f"Preempted by pod 4f1d9b6e-0d4e-4b0c-9a35-1c1d6a4c2f11 on node {node}",
                "default-scheduler",
            )
        self.take(node, PREEMPTED)

    def occupy(self, node: str) -> None:
        """Create a pod of another user that holds all of a node's devices."""
        offered = (self._store.get("nodes", None, node) or {"status": {"allocatable": {}}})["status"]["allocatable"]
        held = {name: amount for name, amount in offered.items() if "/" in name}
        resources = {"requests": held, "limits": held}
        container = {"name": "main", "image": "registry.example/urgent/serve:1.0", "resources": resources}
        spec = {"nodeName": node, "containers": [container], "priority": 1_000_000}
        meta = {"name": f"urgent-{node}", "labels": {"app": "urgent"}}
        self._store.load("pods", {"metadata": meta, "spec": spec, "status": {"phase": "Running"}}, "default")

    def free(self, node: str) -> None:
        """Delete the other users' pods on a node."""
        for pod in self._store.list("pods"):
            meta = pod["metadata"]
            asked = [c.get("resources", {}).get("requests") or {} for c in pod["spec"]["containers"]]
            if (
                pod["spec"].get("nodeName") == node
                and JOB not in (meta.get("labels") or {})
                and any(map(_devices, asked))
            ):
                owner: Object = next(iter(meta.get("ownerReferences") or ()), {})
                if owner.get("kind") == "ReplicaSet":  # otherwise a replacement would be created
                    replicas = self._store.get("replicasets.apps", meta["namespace"], owner["name"]) or {"metadata": {}}
                    above: Object = next(iter(replicas["metadata"].get("ownerReferences") or ()), {})
                    for kind, name in (("deployments.apps", above.get("name")), ("replicasets.apps", owner["name"])):
                        if name and self._store.get(kind, meta["namespace"], name):
                            self._store.mutate(kind, meta["namespace"], name, _none)
                self._store.delete("pods", meta["namespace"], meta["name"], grace=0, uid=meta["uid"])

    def delete(self, node: str) -> None:
        """Delete the pods, as a user would."""
        self.take(node, None)

    def kill(self, node: str) -> None:
        """Send SIGKILL to the pods' processes, as when memory is exhausted."""
        self._kubelet.kill(node)

    def remove(self, node: str) -> None:
        """Remove the machine and its Node: its pods are collected."""
        self._kubelet.power_off(node)
        self._store.delete("nodes", None, node)
        for pod in self.pods(node):
            mark_disrupted(self._store, pod, *COLLECTED)
            meta = pod["metadata"]
            self._store.delete("pods", meta["namespace"], meta["name"], grace=0, uid=meta["uid"])

    def take_gpus(self, node: str) -> None:
        """Report two GPUs as unhealthy: allocatable shrinks, and their pods keep running."""

        def fewer(each: Object) -> None:
            allocatable = each["status"]["allocatable"]
            for name in [name for name in allocatable if name.endswith("/gpu")]:
                allocatable[name] = str(max(0, int(allocatable[name]) - 2))

        self._store.mutate("nodes", None, node, fewer)

    def bring_back(self, node: str) -> None:
        """Restart the machine; its kubelet no longer finds the pods that were deleted in the meantime."""
        self._kubelet.offline.discard(node)
        regain(self._kubelet, node)
        self._kubelet.tell(node)
        for pod in self.pods(node):
            if meta := pod["metadata"] if pod["metadata"].get("deletionTimestamp") else None:
                self._store.delete("pods", meta["namespace"], meta["name"], grace=0, uid=meta["uid"])

    def fail(self, node: str) -> None:
        """Power the node off, without the fifty seconds until the control plane reports it."""
        self._kubelet.power_off(node)
        lose(self._kubelet, node)


def _meant(what: Object, node: str, labels: Mapping[str, str]) -> bool:
    if "index" in what:
        return labels.get(INDEX) == str(what["index"])
    return bool(what.get("node", node) == node)


def _devices(asked: Mapping[str, Any]) -> bool:
    return any("/" in name for name in asked)


def _none(workload: Object) -> None:
    workload["spec"]["replicas"] = 0


DEEDS: dict[str, Callable[[NodeEvents, str], None]] = {
    "drain": NodeEvents.drain,
    "preempt": NodeEvents.preempt,
    "delete": NodeEvents.delete,
    "free": NodeEvents.free,
    "kill": NodeEvents.kill,
    "remove": NodeEvents.remove,
    "fail": NodeEvents.fail,
    "unhealthy": NodeEvents.take_gpus,
}
