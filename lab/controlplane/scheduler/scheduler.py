"""The scheduler: its queue, scheduling attempts and preemption.

Pods wait in a queue by priority; unschedulable pods wait until a node or a bound pod changes. Messages, conditions and
events are those of kube-scheduler 1.36.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from ...apiserver.schema.errors import ApiError
from . import binding, devices
from .binding import mark_disrupted
from .drafts import Draft
from .placement import ENDED, InterPodAffinity, NodeView, Refusal, explain, explain_preemption, refuse, requests, score
from .volumes import Places, claims_of, waits_for_consumer

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from ...apiserver.store import Store

Object = dict[str, Any]
NAME = "default-scheduler"
SLICE_S = 0.02
"""Maximum seconds for which one pass may block the event loop."""
CLAIMS = ("persistentvolumeclaims", "persistentvolumes", devices.CLAIMS, devices.SLICES, devices.CLASSES)
"""Objects other than nodes and pods whose changes may make a pending pod schedulable."""
PREEMPTED = "default-scheduler: preempting to accommodate a higher priority pod"


class Scheduler:
    """A scheduler, which binds pods with its own schedulerName."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._views: dict[str, NodeView] = {}
        self._where: dict[str, str] = {}
        self._active: dict[str, Object] = {}
        self._waiting: dict[str, Object] = {}
        self._said: dict[str, str] = {}
        self._ends: list[Callable[[], None]] = []
        self._due = False

    def start(self) -> None:
        """Watch nodes, pods and claims."""
        for node in self._store.list("nodes"):
            self._node("ADDED", node, None)
        for pod in self._store.list("pods"):
            self._pod("ADDED", pod, None)
        self._ends = [
            self._store.subscribe("nodes", self._node),
            self._store.subscribe("pods", self._pod),
            *(self._store.subscribe(key, lambda *_: self._retry()) for key in CLAIMS),
        ]

    def close(self) -> None:
        """Stop."""
        for end in self._ends:
            end()

    # -- what changed

    def _node(self, change: str, node: Object, old: Object | None) -> None:
        name = node["metadata"]["name"]
        if change == "DELETED":
            self._views.pop(name, None)
        elif name in self._views:
            self._views[name].node = node
        else:
            self._views[name] = NodeView(node)
        if old is None or _matters(node) != _matters(old):
            self._retry()

    def _pod(self, change: str, pod: Object, _: Object | None) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        over = change == "DELETED" or (pod.get("status") or {}).get("phase") in ENDED
        placed = self._where.get(uid)
        if over or node:
            self._active.pop(uid, None)
            self._waiting.pop(uid, None)
        if over:
            self._said.pop(uid, None)
            if placed is not None:
                self._where.pop(uid)
                if placed in self._views:
                    self._views[placed].take(uid)
                self._retry()
        elif node:
            if placed is None and node in self._views:
                self._put(pod, node)
            elif placed in self._views:
                self._views[placed].pods[uid] = pod
        elif self._ours(pod):
            if uid not in self._waiting:
                self._active[uid] = pod
                self._soon()
            else:
                self._waiting[uid] = pod

    @staticmethod
    def _ours(pod: Object) -> bool:
        spec = pod["spec"]
        return (
            spec.get("schedulerName", NAME) == NAME
            and not spec.get("schedulingGates")
            and not pod["metadata"].get("deletionTimestamp")
        )

    def _put(self, pod: Object, node: str) -> None:
        self._where[pod["metadata"]["uid"]] = node
        self._views[node].put(pod)

    def _retry(self) -> None:
        self._active.update(self._waiting)
        self._waiting.clear()
        self._soon()

    def _soon(self) -> None:
        if self._active and not self._due:
            with contextlib.suppress(RuntimeError):  # no loop yet: the first change after the start triggers it
                asyncio.get_running_loop().call_soon(self._run)
                self._due = True

    # -- one pass

    def _run(self) -> None:
        self._due = False
        until = time.monotonic() + SLICE_S
        order = sorted(
            self._active,
            key=lambda u: (-self._priority(self._active[u]), self._active[u]["metadata"]["creationTimestamp"]),
        )
        for uid in order:
            pod = self._active.pop(uid)
            self._one(pod)
            if time.monotonic() > until:
                break
        self._soon()

    @staticmethod
    def _priority(pod: Object) -> int:
        return int(pod["spec"].get("priority") or 0)

    def _one(self, pod: Object) -> None:
        draft = Draft(self._store, pod) if pod["spec"].get("resourceClaims") else None
        if draft is not None and draft.waits:
            self._waiting[pod["metadata"]["uid"]] = pod
            return
        why = self._claims(pod) or (draft.trouble(len(self._views)) if draft else None)
        if why is None:
            views = list(self._views.values())
            if not views:
                why = "no nodes available to schedule pods"
            else:
                requested, affinity = requests(pod), InterPodAffinity(pod, views)
                places = Places(self._store, pod) if claims_of(pod) else None
                refusals: list[Refusal] = []
                feasible = []
                for view in views:
                    refusal = refuse(pod, requested, view, affinity) or (places.refuse(view, views) if places else None)
                    refusal = refusal or (draft.refuse(view.node) if draft else None)
                    if refusal is None:
                        feasible.append(view)
                    else:
                        refusals.append(refusal)
                if feasible:
                    best = min(feasible, key=lambda v: score(pod, v))
                    if draft is not None:
                        draft.reserve(best.name)
                    self._bind(pod, best)
                    return
                why = self._nowhere(pod, requested, views, refusals)
                if draft is not None and draft.claims:
                    why = why.replace("no new claims to deallocate", "still not schedulable")
        self._fail(pod, why)

    def _claims(self, pod: Object) -> str | None:
        for volume in pod["spec"].get("volumes") or []:
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if not name:
                continue
            claim = self._store.get("persistentvolumeclaims", pod["metadata"]["namespace"], name)
            head = f"0/{len(self._views)} nodes are available: "
            if claim is None:
                return f'{head}persistentvolumeclaim "{name}" not found. not found'
            if claim["metadata"].get("deletionTimestamp"):
                return f'{head}persistentvolumeclaim "{name}" is being deleted. not found'
            if (claim.get("status") or {}).get("phase") != "Bound" and not waits_for_consumer(self._store, claim):
                return f"{head}pod has unbound immediate PersistentVolumeClaims. not found"
        return None

    def _nowhere(
        self, pod: Object, requested: dict[str, Fraction], views: list[NodeView], refusals: list[Refusal]
    ) -> str:
        head, never = explain(refusals, len(views)), pod["spec"].get("preemptionPolicy") == "Never"
        if not never:
            best = None
            for view in views:
                victims = self._victims(pod, requested, view, views)
                if victims and (best is None or len(victims) < len(best[1])):
                    best = view, victims
            if best is not None:
                self._preempt(pod, *best)
                return head
        return f"{head} {explain_preemption(refusals, len(views), never)}"

    def _victims(
        self, pod: Object, requested: dict[str, Fraction], view: NodeView, views: list[NodeView]
    ) -> list[Object]:
        lower = sorted((p for p in view.pods.values() if self._priority(p) < self._priority(pod)), key=self._priority)
        if not lower:
            return []
        alone = NodeView(view.node)
        for other in view.pods.values():
            alone.put(other)
        reduced = [alone if v is view else v for v in views]
        victims = []
        for other in lower:
            alone.take(other["metadata"]["uid"])
            victims.append(other)
            if refuse(pod, requested, alone, InterPodAffinity(pod, reduced)) is None:
                return victims
        return []

    def _preempt(self, pod: Object, view: NodeView, victims: list[Object]) -> None:
        meta = pod["metadata"]
        self._store.mutate(
            "pods", meta["namespace"], meta["name"], lambda p: p["status"].update(nominatedNodeName=view.name), "status"
        )
        for victim in victims:
            held = victim["metadata"]
            if held.get("deletionTimestamp"):
                continue
            mark_disrupted(self._store, victim, "PreemptionByScheduler", PREEMPTED)
            with contextlib.suppress(ApiError):
                self._store.delete("pods", held["namespace"], held["name"], uid=held["uid"])
            why = f"Preempted by pod {meta['uid']} on node {view.name}"
            binding.say(self._store, victim, "Normal", "Preempted", why, "Preempting", NAME)

    def _bind(self, pod: Object, view: NodeView) -> None:
        bound = binding.bind(self._store, pod, view, NAME)
        if bound is not None:
            self._said.pop(pod["metadata"]["uid"], None)
            self._put(bound, view.name)

    def _fail(self, pod: Object, why: str) -> None:
        uid = pod["metadata"]["uid"]
        self._waiting[uid] = pod
        if self._said.get(uid) != why:
            self._said[uid] = why
            binding.leave(self._store, pod, why, NAME)


def _matters(node: Object) -> tuple[Any, ...]:
    """Return the fields of a node that affect scheduling; heartbeats do not."""
    return (node.get("spec"), node["metadata"].get("labels"), (node.get("status") or {}).get("allocatable"))
