"""The workloads to preempt: as few as possible, the least important first, if the policy allows it.

pkg/scheduler/preemption: withinClusterQueue by priority, reclaimWithinCohort from queues that borrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import queues, workloads
from .quota import Share, cohort_of
from .workloads import KEY

if TYPE_CHECKING:
    from ...apiserver.store import Store
    from .fit import Fit

Object = dict[str, Any]


class Preemption:
    """The search for the workloads that one workload may preempt."""

    def __init__(self, store: Store, fit: Fit) -> None:
        self._store, self._fit = store, fit

    def victims(self, queue: Object, workload: Object) -> list[Object]:
        """Return the fewest workloads, least important first, whose preemption lets it fit; empty if there are none."""
        candidates = sorted(
            self._candidates(queue, workload),
            key=lambda w: (
                w["status"]["admission"]["clusterQueue"] == queue["metadata"]["name"],
                int(w["spec"].get("priority") or 0),
                -self._fit.since(w, "QuotaReserved"),
            ),
        )
        gone: list[Object] = []
        for candidate in candidates:
            gone.append(candidate)
            if self._fit.assign(queue, workload, self._uids(gone)).fits:
                break
        else:
            return []
        for candidate in list(gone):
            fewer = [w for w in gone if w is not candidate]
            if fewer and self._fit.assign(queue, workload, self._uids(fewer)).fits:
                gone = fewer
        return gone

    @staticmethod
    def _uids(gone: list[Object]) -> frozenset[str]:
        return frozenset(w["metadata"]["uid"] for w in gone)

    def _candidates(self, queue: Object, workload: Object) -> list[Object]:
        policy = queue["spec"].get("preemption") or {}
        within, reclaim = policy.get("withinClusterQueue", "Never"), policy.get("reclaimWithinCohort", "Never")
        mine, cohort = int(workload["spec"].get("priority") or 0), cohort_of(queue)
        used = self._fit.usage()
        candidates = []
        for other in self._store.list(KEY):
            if not workloads.is_reserved(other) or workloads.is_finished(other):
                continue
            name, theirs = other["status"]["admission"]["clusterQueue"], int(other["spec"].get("priority") or 0)
            if name == queue["metadata"]["name"]:
                newer = (
                    theirs == mine
                    and within == "LowerOrNewerEqualPriority"
                    and (self._fit.order(other) > self._fit.order(workload))
                )
                if (within != "Never" and theirs < mine) or newer:
                    candidates.append(other)
                continue
            lender = self._store.get(queues.CLUSTER, None, name)
            if lender is None or not cohort or cohort_of(lender) != cohort or reclaim == "Never":
                continue
            share = Share.of(lender, used.get(name, {}))
            if any(share.borrows(place) for place in queues.usage_of(other)) and (reclaim == "Any" or theirs < mine):
                candidates.append(other)
        return candidates
