"""Volcano: pods of a PodGroup are bound when enough of them fit, else none is.

Phases, conditions and messages are those of volcano-sh/volcano 1.12: pkg/scheduler/api/job_info.go (FitError),
plugins/gang, actions/enqueue, pkg/controllers/podgroup. Volcano's own preemption and reclaim are not simulated.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ..apiserver.schema.errors import ApiError
from ..apiserver.schema.quantity import render
from ..apiserver.schema.quantity import value as parse
from ..apiserver.schema.values import epoch, new_uid
from ..controlplane.owned import controller_of
from ..controlplane.scheduler import binding
from ..controlplane.scheduler.placement import ENDED, InterPodAffinity, NodeView, refuse, requests, score
from .gang import GROUP, GROUPS, SCHEDULER, Gang, allocated
from .parts import phase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..apiserver.schema.kinds import Kind
    from ..apiserver.store import Store
    from ..controlplane import Controller

Object = dict[str, Any]
QUEUES = "queues.scheduling.volcano.sh"
CLASSES = "priorityclasses.scheduling.k8s.io"
MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
WATCHED = ("pods", "nodes", GROUPS, QUEUES)
OVERCOMMIT = Fraction(12, 10)
"""overcommit-factor of the overcommit plugin: the multiple of the cluster's resources that may be enqueued."""


def objects(world: Mapping[str, Any], given: Mapping[str, Any]) -> list[Object]:
    """Return the queues of every installation."""
    del world, given
    return [
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"weight": 1, "reclaimable": name == "default", **({"parent": "root"} if name != "root" else {})},
        }
        for name in ("root", "default")
    ]


def start(store: Store, world: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Controller, ...]:
    """Return the scheduler with its controllers, and register the webhook."""
    del world, given
    store.webhooks.append(Webhook(store))
    return (Volcano(store),)


class Webhook:
    """The webhook: a PodGroup needs an open queue."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __call__(self, kind: Kind, new: Object, old: Object | None) -> None:
        """Reject a PodGroup with a missing or closed queue."""
        if kind.key != GROUPS or old is not None:
            return
        name = new["spec"].get("queue", "default")
        queue = self._store.get(QUEUES, None, name)
        why = ""
        if queue is None:
            why = f'unable to find queue: queue.scheduling.volcano.sh "{name}" not found'
        elif (queue.get("status") or {}).get("state", "Open") != "Open":
            state = queue["status"]["state"]
            why = f"can only submit PodGroup to queue with state `Open`, queue `{name}` status is `{state}`"
        if why:
            raise ApiError(400, "", f'admission webhook "validatepodgroup.volcano.sh" denied the request: {why}')


class Volcano:
    """The scheduler, and the controllers of PodGroups and Queues."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._said: dict[str, str] = {}
        self._ends: list[Callable[[], None]] = []
        self._due = False

    def start(self) -> None:
        """Watch."""
        self._ends = [self._store.subscribe(key, self._changed) for key in WATCHED]
        self._changed("", {}, None)

    def close(self) -> None:
        """Stop."""
        self._due = True
        for end in self._ends:
            end()

    def _changed(self, _: str, obj: Object, old: Object | None) -> None:
        beat = (
            obj.get("kind") == "Node"
            and old is not None
            and (obj["spec"], obj["metadata"].get("labels"), (obj.get("status") or {}).get("allocatable"))
            == (old["spec"], old["metadata"].get("labels"), (old.get("status") or {}).get("allocatable"))
        )
        if not self._due and not beat:
            with contextlib.suppress(RuntimeError):  # no loop yet: the first change after the start triggers it
                asyncio.get_running_loop().call_soon(self._session)
                self._due = True

    # -- one session

    def _session(self) -> None:
        self._due = False
        pods = [p for p in self._store.list("pods") if p["spec"].get("schedulerName") == SCHEDULER]
        gangs = self._gangs(pods)
        views = self._views() if any(gang.pending for gang in gangs) else []
        for gang in sorted(gangs, key=self._order):
            if gang.phase in ("", "Pending"):
                self._enqueue(gang, gangs, views)
            if gang.pending and gang.phase not in ("", "Pending"):
                self._allocate(gang, gangs, views)
            self._show(gang)
        self._queues(gangs)

    def _gangs(self, pods: list[Object]) -> list[Gang]:
        members: dict[tuple[str, str], list[Object]] = {}
        for pod in pods:
            name = (pod["metadata"].get("annotations") or {}).get(GROUP) or self._adopt(pod)
            members.setdefault((pod["metadata"]["namespace"], name), []).append(pod)
        return [
            Gang(group, members.get((group["metadata"]["namespace"], group["metadata"]["name"]), []))
            for group in self._store.list(GROUPS)
            if not group["metadata"].get("deletionTimestamp")
        ]

    def _adopt(self, pod: Object) -> str:
        """Assign a pod without a group to a new one, or to that of its owner."""
        meta, owner = pod["metadata"], controller_of(pod)
        notes = meta.get("annotations") or {}
        name = f"podgroup-{owner['uid'] if owner else meta['uid']}"
        if self._store.get(GROUPS, meta["namespace"], name) is None:
            body = {
                "metadata": {
                    "name": name,
                    "ownerReferences": [
                        owner
                        or {
                            "apiVersion": "v1",
                            "kind": "Pod",
                            "name": meta["name"],
                            "uid": meta["uid"],
                            "controller": True,
                            "blockOwnerDeletion": True,
                        }
                    ],
                },
                "spec": {
                    "minMember": int(notes.get(MIN_MEMBER, 1)),
                    "queue": notes.get(QUEUE_NAME, "default"),
                    **(
                        {"priorityClassName": pod["spec"]["priorityClassName"]}
                        if pod["spec"].get("priorityClassName")
                        else {}
                    ),
                },
            }
            with contextlib.suppress(ApiError):
                self._store.create(GROUPS, body, meta["namespace"])
        self._store.mutate(
            "pods",
            meta["namespace"],
            meta["name"],
            lambda p: p["metadata"].setdefault("annotations", {}).update({GROUP: name}),
        )
        return name

    def _order(self, gang: Gang) -> tuple[int, float, str]:
        priority_class = self._store.get(CLASSES, None, gang.group["spec"].get("priorityClassName", ""))
        meta = gang.group["metadata"]
        return -int((priority_class or {}).get("value", 0)), epoch(meta["creationTimestamp"]), meta["name"]

    def _views(self) -> list[NodeView]:
        views = {node["metadata"]["name"]: NodeView(node) for node in self._store.list("nodes")}
        for pod in self._store.list("pods"):
            view = views.get(pod["spec"].get("nodeName", ""))
            if view is not None and phase(pod) not in ENDED:
                view.put(pod)
        return list(views.values())

    # -- phases of a gang

    def _enqueue(self, gang: Gang, gangs: list[Gang], views: list[NodeView]) -> None:
        """Enqueue a group: if it has minResources, its queue and the cluster must have them."""
        requested = {name: parse(text) for name, text in (gang.group["spec"].get("minResources") or {}).items()}
        why = ""
        if requested and not self._within(gang, gangs, requested):
            why = "queue resource quota insufficient"
        elif requested and views:
            for name, amount in requested.items():
                total = sum((v.allocatable(name) for v in views), Fraction(0)) * OVERCOMMIT
                used = sum((v.used.get(name, Fraction(0)) for v in views), Fraction(0))
                if total and used + amount > total:
                    why = "resource in cluster is overused"
        if not why:
            gang.phase = "Inqueue"
        else:
            gang.phase = "Pending"
            self._store.event(gang.group, "Normal", "Unschedulable", why, SCHEDULER)
            if gang.pending:
                self._unschedulable(gang, {p["metadata"]["uid"]: "Undetermined" for p in gang.pending}, {})

    def _within(self, gang: Gang, gangs: list[Gang], requested: Mapping[str, Fraction]) -> bool:
        """Return whether a queue's capability allows these additional resources."""
        queue = self._store.get(QUEUES, None, gang.queue)
        limits = ((queue or {}).get("spec") or {}).get("capability") or {}
        used = allocated(other for other in gangs if other.queue == gang.queue)
        return all(
            used.get(name, Fraction(0)) + amount <= parse(limits[name])
            for name, amount in requested.items()
            if name in limits
        )

    def _allocate(self, gang: Gang, gangs: list[Gang], views: list[NodeView]) -> None:
        placed: list[tuple[Object, NodeView]] = []
        fates: dict[str, str] = {}
        reasons: dict[str, str] = {}
        extra: collections.Counter[str] = collections.Counter()
        queue = self._store.get(QUEUES, None, gang.queue)
        for pod in sorted(gang.pending, key=lambda p: str(p["metadata"]["name"])):
            uid, requested = pod["metadata"]["uid"], requests(pod)
            more = {name: amount + extra[name] for name, amount in requested.items()}
            if queue is None or not self._within(gang, gangs, more):
                fates[uid] = "Undetermined"
                continue
            affinity = InterPodAffinity(pod, views)
            refusals = {view.name: refuse(pod, requested, view, affinity) for view in views}
            feasible = [view for view in views if refusals[view.name] is None]
            if not feasible:
                fates[uid] = "Unschedulable"
                counts = collections.Counter(
                    text for refusal in refusals.values() if refusal for text in refusal.reasons
                )
                parts = sorted(f"{count} {text}" for text, count in counts.items())
                reasons[uid] = f"0/{len(views)} nodes are unavailable: {', '.join(parts)}."
                continue
            view = min(feasible, key=lambda v: score(pod, v))
            view.put(pod)
            extra.update(requested)
            placed.append((pod, view))
            fates[uid] = "Schedulable"
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            reasons[uid] = f"Pod {name} can possibly be assigned to {view.name}, once minAvailable is satisfied"
        if len(gang.held) + gang.succeeded + len(placed) >= gang.needed:
            for pod, view in placed:
                self._said.pop(pod["metadata"]["uid"], None)
                bound = binding.bind(self._store, pod, view, SCHEDULER)
                gang.pending.remove(pod)
                gang.held.append(bound or pod)
            if not gang.pending:
                return
        else:
            for pod, view in placed:
                view.take(pod["metadata"]["uid"])
        self._unschedulable(
            gang, {u: f for u, f in fates.items() if any(p["metadata"]["uid"] == u for p in gang.pending)}, reasons
        )

    def _unschedulable(self, gang: Gang, fates: dict[str, str], reasons: Mapping[str, str]) -> None:
        sentence = gang.not_ready(fates)
        short = max(0, gang.needed - len(gang.held) - gang.succeeded)
        if short:
            text = f"{short}/{len(gang.pods)} tasks in gang unschedulable: {sentence}"
            self._condition(gang, "Unschedulable", "NotEnoughResources", text)
        for pod in gang.pending:
            uid = pod["metadata"]["uid"]
            why, fate = reasons.get(uid, sentence), fates.get(uid, "")
            if self._said.get(uid) != why:
                self._said[uid] = why
                reason = "Schedulable" if fate == "Schedulable" else "Unschedulable"
                binding.leave(self._store, pod, why, SCHEDULER, reason)

    def _condition(self, gang: Gang, kind: str, reason: str, message: str = "") -> None:
        """Set a condition of the group; the opposite one is removed."""
        group, now = gang.group, self._store.now()
        conditions = (group.get("status") or {}).get("conditions") or []
        held = next((c for c in conditions if c["type"] == kind), None)
        if held is not None and (held["reason"], held.get("message", "")) == (reason, message):
            return
        new = {
            "type": kind,
            "status": "True",
            "transitionID": new_uid(),
            "lastTransitionTime": now,
            "reason": reason,
            **({"message": message} if message else {}),
        }

        def change(obj: Object) -> None:
            status = obj.setdefault("status", {})
            status["conditions"] = [*(c for c in status.get("conditions") or [] if c["type"] != kind), new]

        self._write(gang, change)
        if kind == "Scheduled":
            self._store.event(group, "Normal", "Scheduled", "pod group is ready", SCHEDULER)
        else:
            self._store.event(group, "Warning", "Unschedulable", message, SCHEDULER)

    def _write(self, gang: Gang, change: Callable[[Object], object]) -> None:
        meta = gang.group["metadata"]
        gang.group = self._store.mutate(GROUPS, meta["namespace"], meta["name"], change, "status") or gang.group

    def _show(self, gang: Gang) -> None:
        """Update the phase and the numbers of pods."""
        counts = collections.Counter(phase(p) for p in gang.pods)
        ready = len(gang.held) + gang.succeeded >= gang.needed
        if ready and gang.held:
            gang.phase = "Running"
            self._condition(gang, "Scheduled", "tasks in gang are ready to be scheduled")
        elif gang.pods and all(phase(p) in ENDED for p in gang.pods) and gang.succeeded >= gang.needed:
            gang.phase = "Completed"
        elif gang.phase == "Running" and gang.held:
            gang.phase = "Unknown"
        elif gang.phase == "Running":
            gang.phase = "Inqueue"
        desired = {
            "phase": gang.phase,
            "running": counts["Running"],
            "succeeded": counts["Succeeded"],
            "failed": counts["Failed"],
        }

        def change(obj: Object) -> None:
            status = obj.setdefault("status", {})
            status.update({key: value for key, value in desired.items() if value})
            for key in ("running", "succeeded", "failed"):
                if not desired[key]:
                    status.pop(key, None)

        self._write(gang, change)

    def _queues(self, gangs: list[Gang]) -> None:
        for queue in self._store.list(QUEUES):
            name = queue["metadata"]["name"]
            mine = [gang for gang in gangs if gang.queue == name]
            phases = collections.Counter(gang.phase.lower() for gang in mine)
            used = {
                key: render(amount, "binary" if key == "memory" else "decimal")
                for key, amount in allocated(mine).items()
                if amount
            }
            state = (queue.get("status") or {}).get("state", "Open")
            status = {
                "state": state,
                "allocated": used,
                **{
                    key: phases[key] for key in ("pending", "inqueue", "running", "unknown", "completed") if phases[key]
                },
            }
            self._store.mutate(QUEUES, None, name, lambda q, w=status: q.update(status=w), "status")  # type: ignore[misc]
