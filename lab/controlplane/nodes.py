"""The node lifecycle controller: taints from a node's conditions, and evictions."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..apiserver.schema.errors import ApiError
from ..apiserver.schema.values import epoch, rfc3339
from .queue import Key, Queue
from .scheduler.binding import mark_disrupted
from .scheduler.placement import ENDED, tolerates

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..apiserver.store import Store

Object = dict[str, Any]
COMPONENT = "taint-eviction-controller"
CORDON = "node.kubernetes.io/unschedulable"
BY_STATUS = {"False": "node.kubernetes.io/not-ready", "Unknown": "node.kubernetes.io/unreachable"}
PRESSURES = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
}
OURS = frozenset({CORDON, *BY_STATUS.values(), *PRESSURES.values()})
WHY = "Taint manager: deleting due to NoExecute taint"


def condition_taints(node: Object) -> list[tuple[str, str]]:
    """Return (key, effect) of the taints for a node's cordon and conditions."""
    taints = [(CORDON, "NoSchedule")] if (node.get("spec") or {}).get("unschedulable") else []
    for condition in (node.get("status") or {}).get("conditions") or []:
        if condition["type"] == "Ready" and condition["status"] in BY_STATUS:
            taints += [(BY_STATUS[condition["status"]], effect) for effect in ("NoSchedule", "NoExecute")]
        elif condition["type"] in PRESSURES and condition["status"] == "True":
            taints.append((PRESSURES[condition["type"]], "NoSchedule"))
    return taints


def stays_for(pod: Object, taints: list[Object], now: float) -> float | None:
    """Return the seconds that a pod tolerates NoExecute taints; None: for ever."""
    tolerations = pod["spec"].get("tolerations") or []
    left: float | None = None
    for taint in taints:
        matching = [t for t in tolerations if tolerates([t], taint)]
        if not matching:
            return 0.0
        limits = [t["tolerationSeconds"] for t in matching if t.get("tolerationSeconds") is not None]
        if limits:
            since = epoch(taint["timeAdded"]) if taint.get("timeAdded") else now
            rest = max(0.0, since + min(limits) - now)
            left = rest if left is None else min(left, rest)
    return left


class NodeController:
    """The controller that updates taints and evicts pods."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._first_seen: dict[tuple[str, str, str], float] = {}
        """The time when a taint without a timestamp was first seen on a node."""
        self._queue = Queue(self.sync)
        self._ends: list[Callable[[], None]] = []

    def start(self) -> None:
        """Watch nodes and pods."""
        self._ends = [self._store.subscribe("nodes", self._node), self._store.subscribe("pods", self._pod)]
        for node in self._store.list("nodes"):
            if set(condition_taints(node)) != _held(node):
                self._node("ADDED", node, None)

    def close(self) -> None:
        """Stop."""
        self._queue.close()
        for end in self._ends:
            end()

    def _node(self, change: str, node: Object, old: Object | None) -> None:
        same = old is not None and node["spec"] == old["spec"] and condition_taints(node) == condition_taints(old)
        if change != "DELETED" and not same:
            self._queue.add(("", node["metadata"]["name"]))

    def _pod(self, change: str, pod: Object, _: Object | None) -> None:
        node = self._store.get("nodes", None, pod["spec"].get("nodeName") or "")
        if change == "ADDED" or node is None:
            return
        if any(t["effect"] == "NoExecute" for t in node["spec"].get("taints") or []):
            self._queue.add(("", node["metadata"]["name"]))

    def sync(self, key: Key) -> float | None:
        """Set the taints of one node, evict pods, and return the seconds until the next eviction."""
        node = self._store.get("nodes", None, key[1])
        if node is None:
            return None
        desired = condition_taints(node)
        if set(desired) != _held(node):
            self._taint(key[1], desired)
            return None  # the change triggers another synchronisation
        taints = self._dated(key[1], [t for t in node["spec"].get("taints") or [] if t["effect"] == "NoExecute"])
        if not taints:
            return None
        waits = []
        for pod in self._store.list("pods"):
            if (
                pod["spec"].get("nodeName") == key[1]
                and not pod["metadata"].get("deletionTimestamp")
                and (pod["status"].get("phase") not in ENDED)
            ):
                left = stays_for(pod, taints, self._store.clock())
                if left == 0:
                    self._evict(pod)
                elif left is not None:
                    waits.append(left)
        return min(waits, default=None)

    def _dated(self, name: str, taints: list[Object]) -> list[Object]:
        """Return the taints with the time from which tolerationSeconds count."""
        now, places = self._store.clock(), {(name, t["key"], t.get("value", "")): t for t in taints}
        for place in [p for p in self._first_seen if p[0] == name and p not in places]:
            del self._first_seen[place]
        return [
            t if t.get("timeAdded") else {**t, "timeAdded": rfc3339(self._first_seen.setdefault(place, now))}
            for place, t in places.items()
        ]

    def _taint(self, name: str, desired: list[tuple[str, str]]) -> None:
        now = self._store.now()

        def change(node: Object) -> None:
            old = node["spec"].get("taints") or []
            taints = [t for t in old if t["key"] not in OURS or (t["key"], t["effect"]) in desired]
            have = {(t["key"], t["effect"]) for t in taints}
            taints += [{"key": k, "effect": e, "timeAdded": now} for k, e in desired if (k, e) not in have]
            if taints:
                node["spec"]["taints"] = taints
            else:
                node["spec"].pop("taints", None)

        self._store.mutate("nodes", None, name, change)

    def _evict(self, pod: Object) -> None:
        meta = pod["metadata"]
        where = f"{meta['namespace']}/{meta['name']}"
        mark_disrupted(self._store, pod, "DeletionByTaintManager", WHY)
        self._store.event(pod, "Normal", "TaintManagerEviction", f"Marking for deletion Pod {where}", COMPONENT)
        with contextlib.suppress(ApiError):
            self._store.delete("pods", meta["namespace"], meta["name"], uid=meta["uid"])


def _held(node: Object) -> set[tuple[str, str]]:
    return {(t["key"], t["effect"]) for t in (node.get("spec") or {}).get("taints") or [] if t["key"] in OURS}
