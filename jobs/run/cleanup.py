"""Deletion of a run's objects, those with GPUs first, with confirmation.

Each object is entered in the ledger before it is created, so that an interrupt between request and response loses
nothing. It is deleted by its uid, so that no foreign object of the same name is affected. All objects are deleted
before waiting for any of them: one that is stuck does not delay the others. Objects that cannot be deleted are reported
with the reason. A sweep finds leftovers of crashed runs, by label *and* name.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

from ..cluster.client.errors import ApiError, ClusterError, Conflict, Forbidden, NotFound, Unreachable
from ..cluster.client.kube import Kube, path
from ..cluster.redact import safe
from ..cluster.renewal import Held, held, run_out
from ..cluster.unstructured import Unstructured, as_list, as_map, name_of, node_of
from ..listing import first_of
from ..trial.job_spec import USERS
from ..trial.launch_stack import serving
from ..trial.launchers import KINDS as LAUNCHED
from ..trial.pod import APP, LABEL_MANAGED, LABEL_RUN, MANAGED_BY
from ..trial.spec import PREFIX

# A pod gets 10 s to end, the kubelet and the garbage collector a little more; a dead kubelet never answers.
GONE_S = 60.0
STILL_GONE_S = 2.0  # after a failed wait the object is only queried again
UNWIND_S = 120.0
# Possible leftovers of a run, launched objects first: their deletion removes the rest.
KINDS = (("jobs", "batch", "v1"), ("services", "", "v1"), ("configmaps", "", "v1"), ("pods", "", "v1"))
CLAIMS = "resourceclaimtemplates"
FURTHER = (
    *((kind.resource, kind.group, kind.version) for kind in LAUNCHED.values() if kind.operator),
    ("podgroups", "scheduling.volcano.sh", "v1beta1"),
    *((CLAIMS, "resource.k8s.io", version) for version in ("v1", "v1beta2", "v1beta1")),
)
"""Kinds that not every cluster has; the first served version of a kind shows all its objects."""
LAUNCHERS = frozenset(kind.resource for kind in LAUNCHED.values())
ALWAYS = frozenset(resource for resource, *_ in KINDS)


Wait: TypeAlias = Callable[[], None]
"""Returns once the deleted objects are gone, or raises a ClusterError that lists the rest."""


@dataclass(slots=True)
class Entry:
    """An entry to undo; ``undo`` deletes it, and returns a function that waits for its end, if that takes time."""

    what: str
    undo: Callable[[], Wait | None]
    holds_gpus: bool = False
    done: bool = field(default=False)


class Ledger:
    """The list of entries to undo: those with GPUs first, the rest last in first out; threads may share it."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._lock = threading.Lock()

    def enter(self, what: str, undo: Callable[[], Wait | None], *, holds_gpus: bool = False) -> Entry:
        """Record an action before it is performed, and how to undo it."""
        entry = Entry(what, undo, holds_gpus)
        with self._lock:
            self._entries.append(entry)
        return entry

    def strike(self, entry: Entry) -> None:
        """Remove an entry: it was undone, or was never created."""
        with self._lock:
            entry.done = True
            self._entries = [other for other in self._entries if other is not entry]

    @property
    def open(self) -> tuple[str, ...]:
        """The remaining entries, the newest first."""
        with self._lock:
            return tuple(entry.what for entry in reversed(self._entries))

    def unwind(self, deadline_s: float = UNWIND_S) -> list[str]:
        """Undo everything; return the leftovers, each with the reason. Never raises."""
        left: list[str] = []
        while True:
            with self._lock:
                entries = self._entries[::-1]
            if not entries:
                return left
            for entry, why in undone(entries, deadline_s):
                left += [f"{entry.what}: {why}"] if why else []
                self.strike(entry)


def undone(entries: Sequence[Entry], deadline_s: float = UNWIND_S) -> Iterator[tuple[Entry, str]]:
    """Undo entries with GPUs, then the rest in order, then wait; yield each with the reason of a failure, or ''."""
    end = time.monotonic() + deadline_s
    waiting: list[tuple[Entry, Wait]] = []
    for entry in sorted(entries, key=lambda each: not each.holds_gpus):
        if time.monotonic() > end:
            yield entry, f"not tried, clean-up took longer than {deadline_s:.0f} s"
            continue
        wait, why = _tried(entry.undo)
        if wait and not why:
            waiting.append((entry, wait))
        else:
            yield entry, why
    for entry, wait in waiting:
        yield entry, _tried(wait)[1]


def _tried(step: Callable[[], Wait | None]) -> tuple[Wait | None, str]:
    """Return a step's result, and its error: a failing step must not stop the remaining ones."""
    try:
        return step(), ""
    except ClusterError as error:
        return None, str(error)
    except Exception as error:  # noqa: BLE001  (as above)
        return None, f"{type(error).__name__}: {safe(error, 300)}"


def delete(
    kube: Kube,
    resource: str,
    group: str,
    namespace: str,
    name: str,
    *,
    uid: str = "",
    wait_s: float = GONE_S,
    version: str = "v1",
    stuck: Callable[[], str] = str,
) -> Wait | None:
    """Delete one object; return a function that waits for its deletion within this limit, or None if it is gone.

    NotFound counts as success, and another uid under its name is not ours. `stuck` explains why waiting cannot help; ''
    while it may.
    """
    url_path = path(resource, name, namespace=namespace, group=group, version=version)
    propagation = "Foreground" if resource in LAUNCHERS else "Background"
    try:
        kube.delete(url_path, propagation=propagation, uid=uid)
    except NotFound:
        return None
    except Conflict:
        if uid:  # the precondition failed: ours is gone, and this one is foreign
            return None
        raise
    pods = path("pods", namespace=namespace)
    return partial(_await_gone, kube, url_path, pods, uid, time.monotonic(), wait_s, stuck)


def _await_gone(
    kube: Kube, url_path: str, pods: str, uid: str, began: float, wait_s: float, stuck: Callable[[], str]
) -> None:
    """Poll until it is deleted, at least once: other waits may have used up the time."""
    pause, last, run = 0.05, "still there", ""
    while True:
        try:
            raw = kube.get(url_path, deadline_s=10.0)
        except NotFound:
            return
        except Unreachable as error:
            last = str(error)
        else:
            meta = raw.get("metadata") or {}
            if uid and meta.get("uid") != uid:
                return
            last, run = f"marked for deletion{_held_by(meta)}", str(as_map(meta.get("labels")).get(LABEL_RUN) or "")
        waited_s = time.monotonic() - began
        if why := stuck():
            last += f"; {why}"
        if why or waited_s >= wait_s:
            last += _pods_left(kube, pods, run) if not why and run and "/pods/" not in url_path else ""
            raise Unreachable(f"{kube.where('DELETE', url_path)}: not gone after {waited_s:.0f} s ({last})")
        time.sleep(pause)
        pause = min(pause * 1.5, 1.0)


def _held_by(meta: Unstructured) -> str:
    holds = ", ".join(str(item) for item in meta.get("finalizers") or [])
    return f", held by finalizers {safe(holds, 200)}" if holds else ""


def _pods_left(kube: Kube, pods: str, run: str) -> str:
    """Name the pods that block an object's foregroundDeletion, and the blocker of each."""
    try:
        items, _ = kube.list(pods, labelSelector=f"{LABEL_RUN}={run}")
    except ClusterError:
        return ""
    pending = []
    for item in items:
        meta = as_map(item.get("metadata"))
        ends = f", which the kubelet of {node_of(item) or 'no node'} has not ended"
        pending.append(f"pod/{name_of(item)}{_held_by(meta) or ends}")
    return f"; it waits for {first_of(pending, 3)}" if pending else ""


class CleanedUp(NamedTuple):
    """The result of a clean-up: deleted objects (or those to delete), failures, and kept ones, each with the reason.

    ``unseen``: kinds that this account may not list and no leftover belongs to; ``users``: jobs that a user launched
    for their own sake.
    """

    deleted: tuple[str, ...]
    left: tuple[str, ...]
    kept: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


def sweep(
    kube: Kube,
    namespace: str,
    run_id: str | None = None,
    *,
    dry_run: bool = False,
    living: bool = False,
    launched: Collection[str] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> CleanedUp:
    """Delete leftovers of earlier runs in a namespace: only objects with our label and our name prefix.

    A user's own job is not a leftover: it is deleted only by its `run_id`; a sweep without one reports it.

    Without ``living``, a run with a living runner is not deleted. ``launched`` restricts the sweep to these resources,
    each with all its dependents, for an account without permissions on others. ``tell`` receives the pending objects.
    """
    where = tuple(each for each in (*FURTHER, *KINDS) if not launched or each[0] in launched)
    found, denied, answered = _leftovers(kube, namespace, run_id, where)
    leftovers = found if run_id else [each for each in found if not _is_users(each[1])]
    users = tuple(
        name_of(item)
        for (resource, *_), item, _ in found
        if resource in LAUNCHERS and _is_users(item) and not (run_id or _owners(item))
    )
    alive = {} if living else _alive(kube, namespace, leftovers, tell)
    unseen = set() if living else _unseen(kube, namespace, leftovers, LAUNCHERS & denied.keys(), answered)
    alive |= dict.fromkeys(unseen, "its launcher cannot be read")
    entries: list[Entry] = []
    left_alone: list[str] = []
    for (resource, group, version), item, run in leftovers:
        name, uid = str(item["metadata"]["name"]), str(item["metadata"].get("uid") or "")
        what = f"{resource.removesuffix('s')}/{name}"
        if run in alive:
            left_alone += [f"{what}: {alive[run]}"] if resource in LAUNCHERS or run in unseen else []
            continue
        undo = partial(delete, kube, resource, group, namespace, name, uid=uid, version=version)
        entries.append(Entry(what, undo, resource in LAUNCHERS))
    whys = {} if dry_run else {id(entry): why for entry, why in undone(entries, math.inf)}
    deleted = [entry.what for entry in entries if not whys.get(id(entry))]
    left = [f"{entry.what}: {why}" for entry in entries if (why := whys.get(id(entry)))]
    # Pods are deleted with their launching object. Without a permission on the others, no namespace counts as clean.
    left += [f"unknown {denied[resource]}" for resource, *_ in KINDS if resource in denied and resource != "pods"]
    owners = _hidden_owners(leftovers, denied.keys() - ALWAYS)
    left += [f"{what}: {denied[resource]}" for what, resource in owners.items()]
    hidden = denied.keys() - ALWAYS - set(owners.values())
    return CleanedUp(
        tuple(deleted),
        tuple(left),
        tuple(left_alone),
        tuple(f"{resource}.{group}" for resource, group, _ in where if resource in hidden),
        users,
    )


def sweep_dead(kube: Kube, launcher: str, tell: Callable[[str], None] = lambda _: None) -> CleanedUp:
    """Delete leftovers of killed runs in our namespace, with only the permissions of a run by this launcher."""
    return sweep(kube, kube.namespace, launched={"jobs", LAUNCHED[launcher].resource}, tell=tell)


def _is_users(item: Unstructured) -> bool:
    """Return whether an object belongs to a user's own job."""
    return as_map(as_map(item.get("metadata")).get("labels")).get(APP) == USERS


def _hidden_owners(leftovers: _Leftovers, denied: Collection[str]) -> dict[str, str]:
    """Return the launching object of a leftover that may not be listed ('mpijob/NAME'), with its resource.

    All other objects of a run belong to the launching one, and are deleted with it.
    """
    resources = {kind.kind: kind.resource for kind in LAUNCHED.values() if kind.resource in denied}
    owners = [owner for _, item, _ in leftovers for owner in _owners(item) if owner.get("kind") in resources]
    return {
        safe(f"{str(owner['kind']).lower()}/{owner.get('name')}", 300): resources[str(owner["kind"])]
        for owner in owners
    }


def _alive(kube: Kube, namespace: str, leftovers: _Leftovers, tell: Callable[[str], None]) -> dict[str, str]:
    """Return runs with a runner that is, or may be, alive, each with the reason."""
    leases: dict[str, dict[str, Held]] = {}
    unknown: dict[str, str] = {}
    for (resource, group, version), item, run in leftovers:
        if resource not in LAUNCHERS:
            continue
        url_path = path(resource, str(item["metadata"]["name"]), namespace=namespace, group=group, version=version)
        if as_map(item.get("metadata")).get("deletionTimestamp"):
            continue  # it is being deleted already: waiting for that does not affect a run
        lease = held(item)
        if lease and lease.released:
            name = str(item["metadata"]["name"])
            unknown[run] = f"it was detached, and waits for seatrial job attach {name}"
        elif lease:
            leases.setdefault(run, {})[url_path] = lease
        elif _runs(resource, item):
            unknown[run] = "it is still running, without a lease"
    dead = run_out(kube, {url: lease for each in leases.values() for url, lease in each.items()}, tell)
    going_on = {run: each for run, each in leases.items() if each.keys() - dead}
    unknown = {run: why for run, why in unknown.items() if run not in leases}
    return unknown | {run: f"its run is in progress, {next(iter(each.values()))}" for run, each in going_on.items()}


def _unseen(
    kube: Kube, namespace: str, leftovers: _Leftovers, refused: Collection[str], answered: Collection[str]
) -> set[str]:
    """Return runs whose launched object was not found but may exist: it is unknown whether they are alive.

    An operator's Job and pods belong to an object for which we may have no permission, or that a restarted API server
    does not serve yet. An object without an owner, or with a deleted owner, is a leftover.
    """
    roots = {run for (resource, *_), item, run in leftovers if resource in LAUNCHERS and not _owners(item)}
    unseen = {run for _, item, run in leftovers if not _owners(item)} - roots if refused else set()
    known: dict[str, bool] = {}
    for _, item, run in leftovers:
        for owner in _owners(item) if run not in roots else ():
            uid = str(owner.get("uid") or "")
            if uid not in known:
                known[uid] = _may_exist(kube, namespace, owner, answered)
            if known[uid]:
                unseen.add(run)
    return unseen


def _owners(item: Unstructured) -> list[Unstructured]:
    return as_list(as_map(item.get("metadata")).get("ownerReferences"))


def _may_exist(kube: Kube, namespace: str, owner: Unstructured, answered: Collection[str]) -> bool:
    """Return whether an owner exists, or may exist; only kinds that were listed can be excluded."""
    kind = next((kind for kind in LAUNCHED.values() if kind.kind == owner.get("kind")), None)
    if kind is None or kind.resource not in answered:
        return True
    url_path = path(
        kind.resource, str(owner.get("name") or ""), namespace=namespace, group=kind.group, version=kind.version
    )
    try:
        meta = as_map(as_map(kube.get(url_path)).get("metadata"))
    except NotFound:
        return False
    except ClusterError:
        return True
    return meta.get("uid") == owner.get("uid")


_Leftovers = list[tuple[tuple[str, str, str], Unstructured, str]]


def _leftovers(
    kube: Kube, namespace: str, run_id: str | None, kinds: Sequence[tuple[str, str, str]]
) -> tuple[_Leftovers, dict[str, ApiError], set[str]]:
    """Return our objects as (kind, object, run), launching ones first; the refusals to list, and the listed kinds.

    Dependents are listed before launching objects, which are created first: so a run that begins meanwhile is never
    seen without its lease.
    """
    selector = f"{LABEL_MANAGED}={MANAGED_BY}" + (f",{LABEL_RUN}={run_id}" if run_id else "")
    leftovers: _Leftovers = []
    denied: dict[str, ApiError] = {}
    answered: set[str] = set()
    for where in sorted(kinds, key=lambda each: each[0] in LAUNCHERS):
        resource, group, version = where
        if resource in answered:
            continue
        url_path = path(resource, namespace=namespace, group=group, version=version)
        try:
            # Most accounts have no permission for these kinds: they are requested only if it is granted.
            if where in FURTHER:
                kube.require("list", resource, group=group, namespace=namespace)
            items, _ = kube.list(url_path, labelSelector=selector)
        except NotFound:
            if where in KINDS:
                raise
            continue
        except Forbidden as error:
            # Every cluster serves claim templates: an account without permission has created none.
            if where in KINDS or (resource != CLAIMS and version in serving(kube, group, resource).versions):
                denied[resource] = error
            continue
        answered.add(resource)
        for item in items:
            meta = as_map(item.get("metadata")) if isinstance(item, dict) else {}
            name, tags = str(meta.get("name") or ""), as_map(meta.get("labels"))
            ours = tags.get(LABEL_MANAGED) == MANAGED_BY and (not run_id or tags.get(LABEL_RUN) == run_id)
            if ours and (name.startswith(PREFIX) or _is_users(item)):
                leftovers.append((where, item, str(tags.get(LABEL_RUN) or "")))
    if not leftovers and denied.keys() >= {resource for resource, *_ in kinds if resource in ALWAYS}:
        raise next(reversed(denied.values()))
    return sorted(leftovers, key=lambda each: each[0][0] not in LAUNCHERS), denied, answered


def _runs(resource: str, item: Unstructured) -> bool:
    """Return whether a launched object of ours has not ended."""
    kind = next(kind for kind in LAUNCHED.values() if kind.resource == resource)
    conditions = as_list(as_map(kind.as_job(item).get("status")).get("conditions"))
    ends = ("Complete", "Failed")
    return not any(each.get("type") in ends and each.get("status") == "True" for each in conditions)
