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
    """The controller of all ReplicaSets."""

    key, kind, component = "replicasets.apps", "ReplicaSet", "replicaset-controller"

    def sync(self, key: Key) -> float | None:
        """Create missing pods, delete surplus ones, write the status."""
        replica_set = self.living(key)
        if replica_set is None:
            return None
        pods = self.active(replica_set)
        missing = int(replica_set["spec"].get("replicas", 1)) - len(pods)
        failure = ""
        for _ in range(missing):
            failure = self.create(replica_set, new_pod(replica_set))
            if failure:
                break
        for pod in sorted(pods, key=_expendable)[: max(0, -missing)]:
            self.remove(replica_set, pod)
        again = self._status(replica_set, failure)
        if failure:
            return self.queue.failed(key)
        self.queue.forget(key)
        return again

    def _status(self, replica_set: Object, failure: str) -> float | None:
        pods, spec = self.active(replica_set), replica_set["spec"]
        template_labels = (spec["template"]["metadata"].get("labels") or {}).items()
        waits = [available_in(p, spec.get("minReadySeconds", 0), self.store.clock()) for p in pods]
        status: Object = clone(replica_set.get("status") or {})
        counts = {
            "fullyLabeledReplicas": sum(template_labels <= (p["metadata"].get("labels") or {}).items() for p in pods),
            "readyReplicas": sum(map(is_ready, pods)),
            "availableReplicas": sum(w == 0 for w in waits),
        }
        status["replicas"] = len(pods)
        for name, count in counts.items():
            status.pop(name, None)
            if count:
                status[name] = count
        status["observedGeneration"] = replica_set["metadata"].get("generation", 1)
        if failure:
            condition(status, "ReplicaFailure", "True", "FailedCreate", failure, self.store.now())
            status["conditions"][-1].pop("lastUpdateTime", None)
        elif status.get("conditions"):
            del status["conditions"]
        self.write(replica_set, status)
        return min((w for w in waits if w), default=None)


def _expendable(pod: Object) -> tuple[bool, int, bool, float]:
    """Return the deletion order: no node, not running, not ready, younger (ActivePodsWithRanks of pkg/controller)."""
    phases = {"Pending": 0, "Unknown": 1, "Running": 2}
    age = -int(pod["metadata"]["resourceVersion"])
    return bool(pod["spec"].get("nodeName")), phases.get(pod["status"].get("phase", ""), 0), is_ready(pod), age
