"""The ReplicaSet controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..apiserver.schema.values import clone
from .endpoints import is_ready
from .owned import WorkloadController, available_in, condition, new_pod

if TYPE_CHECKING:
    from .queue import Key

Object = dict[str, Any]


class ReplicaSetController(WorkloadController):
    """Keeps all ReplicaSets."""

    key, kind, component = "replicasets.apps", "ReplicaSet", "replicaset-controller"

    def sync(self, key: Key) -> float | None:
        """Create what is missing, delete what is too much, write the status."""
        found = self.living(key)
        if found is None:
            return None
        pods = self.active(found)
        missing = int(found["spec"].get("replicas", 1)) - len(pods)
        failure = ""
        for _ in range(missing):
            failure = self.create(found, new_pod(found))
            if failure:
                break
        for pod in sorted(pods, key=_expendable)[: max(0, -missing)]:
            self.remove(found, pod)
        again = self._status(found, failure)
        if failure:
            return self.queue.failed(key)
        self.queue.forget(key)
        return again

    def _status(self, found: Object, failure: str) -> float | None:
        pods, spec = self.active(found), found["spec"]
        wanted = (spec["template"]["metadata"].get("labels") or {}).items()
        waits = [available_in(p, spec.get("minReadySeconds", 0), self.store.clock()) for p in pods]
        status: Object = clone(found.get("status") or {})
        counts = {
            "fullyLabeledReplicas": sum(wanted <= (p["metadata"].get("labels") or {}).items() for p in pods),
            "readyReplicas": sum(map(is_ready, pods)),
            "availableReplicas": sum(w == 0 for w in waits),
        }
        status["replicas"] = len(pods)
        for name, count in counts.items():
            status.pop(name, None)
            if count:
                status[name] = count
        status["observedGeneration"] = found["metadata"].get("generation", 1)
        if failure:
            condition(status, "ReplicaFailure", "True", "FailedCreate", failure, self.store.now())
            status["conditions"][-1].pop("lastUpdateTime", None)
        elif status.get("conditions"):
            del status["conditions"]
        self.write(found, status)
        return min((w for w in waits if w), default=None)


def _expendable(pod: Object) -> tuple[bool, int, bool, float]:
    """Who goes first: without a node, not running, not ready, younger (ActivePodsWithRanks of pkg/controller)."""
    phases = {"Pending": 0, "Unknown": 1, "Running": 2}
    age = -int(pod["metadata"]["resourceVersion"])
    return bool(pod["spec"].get("nodeName")), phases.get(pod["status"].get("phase", ""), 0), is_ready(pod), age
