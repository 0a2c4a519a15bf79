"""Whether a workload fits: the quota in use of each ClusterQueue, and the order of pending workloads."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ...apiserver.schema.values import epoch
from ..conditions import find, holds
from . import queues, workloads
from .quota import Assignment, Quotas, Share, assign, cohort_of
from .workloads import KEY

if TYPE_CHECKING:
    from ...apiserver.store import Store

Object = dict[str, Any]


class Fit:
    """Queries about existing workloads, for admission and preemption."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._arrivals: dict[str, int] = {}

    def arrived(self, _: str, workload: Object, __: Object | None) -> None:
        """Record the order of arrival."""
        self._arrivals.setdefault(workload["metadata"]["uid"], len(self._arrivals))

    def order(self, workload: Object) -> tuple[int, float, int]:
        """Return Kueue's sort key: priority, waiting time (since its eviction, if any), arrival."""
        since = epoch(workload["metadata"]["creationTimestamp"])
        if holds(workload, "Evicted"):
            since = max(since, self.since(workload, "Evicted"))
        arrival = self._arrivals.setdefault(workload["metadata"]["uid"], len(self._arrivals))
        return -int(workload["spec"].get("priority") or 0), since, arrival

    def since(self, workload: Object, kind: str) -> float:
        """Return the time of a condition's last transition."""
        condition = find(workload, kind)
        return epoch(condition["lastTransitionTime"]) if condition else self._store.clock()

    def assign(self, queue: Object, workload: Object, without: frozenset[str] = frozenset()) -> Assignment:
        """Assign flavors to a workload, as if some other workloads did not exist."""
        share, peers = self._shares(queue, without)
        flavors = {each["metadata"]["name"]: each for each in self._store.list(queues.FLAVORS)}
        return assign(workload["spec"]["podSets"], queue, share, peers, flavors)

    def _shares(self, queue: Object, without: frozenset[str] = frozenset()) -> tuple[Share, list[Share]]:
        """Return the share of the queue, and those of its cohort's other queues, without some workloads."""
        cohort, used = cohort_of(queue), self.usage(without)
        peers = [
            Share.of(each, used.get(each["metadata"]["name"], {}))
            for each in self._store.list(queues.CLUSTER)
            if cohort and cohort_of(each) == cohort and each["metadata"]["uid"] != queue["metadata"]["uid"]
        ]
        return Share.of(queue, used.get(queue["metadata"]["name"], {})), peers

    def usage(self, without: frozenset[str] = frozenset()) -> dict[str, Quotas]:
        """Return the quota in use of each ClusterQueue."""
        by_queue: dict[str, Quotas] = {}
        for workload in self._store.list(KEY):
            if (
                not workloads.is_reserved(workload)
                or workloads.is_finished(workload)
                or (workload["metadata"]["uid"] in without)
            ):
                continue
            admission = workload["status"]["admission"]
            for place, amount in queues.usage_of(workload).items():
                quotas = by_queue.setdefault(admission["clusterQueue"], {})
                quotas[place] = quotas.get(place, Fraction(0)) + amount
        return by_queue
