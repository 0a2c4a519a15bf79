"""The disruption controller: the number of evictions that a PodDisruptionBudget currently allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..apiserver.schema.values import clone
from .endpoints import is_ready
from .owned import ENDED, controller_of
from .queue import Key, Queue
from .rollout import share

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..apiserver.store import Store

Object = dict[str, Any]
BUDGETS = "poddisruptionbudgets.policy"
SCALED = {"ReplicaSet": "replicasets.apps", "Job": "jobs.batch"}
"""Kinds with an expected number of pods, to which percentages refer."""


class BudgetController:
    """The controller of the status of all budgets."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue = Queue(self.sync)
        self._ends: list[Callable[[], None]] = []

    def start(self) -> None:
        """Watch budgets and pods."""
        self._ends = [self._store.subscribe(BUDGETS, self._budget), self._store.subscribe("pods", self._pod)]
        for budget in self._store.list(BUDGETS):
            self._budget("ADDED", budget, None)

    def close(self) -> None:
        """Stop."""
        self._queue.close()
        for end in self._ends:
            end()

    def _budget(self, change: str, budget: Object, _: Object | None) -> None:
        if change != "DELETED":
            self._queue.add((budget["metadata"]["namespace"], budget["metadata"]["name"]))

    def _pod(self, _: str, pod: Object, __: Object | None) -> None:
        for name in self._store.table(BUDGETS).get(pod["metadata"]["namespace"], {}):
            self._queue.add((pod["metadata"]["namespace"], name))

    def sync(self, key: Key) -> float | None:
        """Update the status of one budget."""
        budget = self._store.get(BUDGETS, *key)
        if budget is None:
            return None
        chosen = self._store.list("pods", key[0], budget["spec"].get("selector"))
        pods = [p for p in chosen if p["status"].get("phase") not in ENDED]
        healthy = sum(is_ready(p) and not p["metadata"].get("deletionTimestamp") for p in pods)
        expected, desired = self._expected(budget["spec"], pods)
        allowed = max(0, healthy - desired) if expected else 0
        held = budget.get("status") or {}
        status: Object = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": allowed,
            "expectedPods": expected,
            "observedGeneration": budget["metadata"].get("generation", 1),
            "conditions": clone(held.get("conditions") or []),
        }
        self._judge(status, allowed)
        if status != held:
            self._store.mutate(BUDGETS, *key, lambda b: b.update(status=status), "status")
        return None

    def _expected(self, spec: Object, pods: list[Object]) -> tuple[int, int]:
        """Return (expected pods, number of them that must be healthy)."""
        if isinstance(spec.get("minAvailable"), int):
            return len(pods), spec["minAvailable"]
        total = self._scale(pods)
        if spec.get("maxUnavailable") is not None:
            return total, max(0, total - share(spec["maxUnavailable"], total, up=True))
        return total, share(spec.get("minAvailable", 0), total, up=True)

    def _scale(self, pods: list[Object]) -> int:
        """Return the replicas that the controllers of these pods want; a pod without one counts as one."""
        total, counted = 0, set()
        for pod in pods:
            owner = controller_of(pod)
            key = SCALED.get(owner["kind"]) if owner else None
            workload = self._store.get(key, pod["metadata"]["namespace"], owner["name"]) if owner and key else None
            if workload is None:
                total += 1
            elif workload["metadata"]["uid"] not in counted:
                counted.add(workload["metadata"]["uid"])
                total += int(workload["spec"].get("replicas", workload["spec"].get("parallelism", 1)))
        return total

    def _judge(self, status: Object, allowed: int) -> None:
        state, reason = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
        conditions = status["conditions"]
        old = next((c for c in conditions if c["type"] == "DisruptionAllowed"), None)
        if old is not None and old["status"] == state:
            old["observedGeneration"] = status["observedGeneration"]
            return
        if old is not None:
            conditions.remove(old)
        conditions.append(
            {
                "type": "DisruptionAllowed",
                "status": state,
                "reason": reason,
                "message": "",
                "lastTransitionTime": self._store.now(),
                "observedGeneration": status["observedGeneration"],
            }
        )
