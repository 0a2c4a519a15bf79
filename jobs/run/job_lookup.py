"""Jobs by name, of any kind that launches trials: type, state, logs, deletion.

The events of a missing job show its end for a while.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..cluster.client.errors import ApiError, ClusterError, Forbidden, NotFound
from ..cluster.client.kube import Kube, path
from ..cluster.facts.events import read_events
from ..cluster.facts.inventory import Inventory
from ..cluster.redact import safe
from ..cluster.renewal import held
from ..cluster.unstructured import Unstructured, as_list, as_map, labels_of, name_of, phase_of, uid_of
from ..diagnosis.grace_periods import DELETED_S
from ..diagnosis.standing import standing
from ..diagnosis.state import JobState, Seen
from ..diagnosis.symptoms import PodSymptom
from ..diagnosis.verdict import CANCELED_BY, diagnose
from ..trial.launchers import KINDS, READ, Kind, unread
from ..trial.launchers.queues import KUEUE_GROUP
from ..trial.pod import LABEL_MANAGED, MANAGED_BY, OF_TRIAL, is_trial
from .cleanup import delete
from .containers import explained, speaking
from .creation import JobError
from .evidence import EvidenceReader
from .job_causes import advised, age, missing_service, queue_of_job, unsubmitted, without_service
from .logs import Follower, tail
from .queueing import Queueing

_KINDS = frozenset(kind.kind for kind in READ)
_GROUPS = ("podgroups", "scheduling.volcano.sh", "get")
_LAST_WORDS = 50
"""Number of last lines of mpirun's launcher, which contain the reason of its end."""
EVENT_TTL = "events are kept for about an hour (kube-apiserver --event-ttl)"


def absent(kube: Kube, namespace: str, name: str) -> str:
    """Report in one line whether a missing job existed before, by its events, and whether those could be read."""
    missing = f"there is no job {safe(name, 100)} in namespace {namespace}"
    try:
        items, _ = kube.list(path("events", namespace=namespace))
    except ClusterError as error:
        return f"{missing}; its events, which would show an earlier one, cannot be read: {safe(error, 200)}"
    events = [event for event in read_events(items) if event.name == name and event.kind in _KINDS]
    if not events:
        return f"{missing}, and no event of it: it never existed, or its events have expired; {EVENT_TTL}"
    last = events[-1]
    trials = "judged, canceled, or deleted after its TTL (deadlines.ttl_s)"
    became = trials if name.startswith(f"{OF_TRIAL}-") else "deleted, or removed some time after its end"
    return f"{missing} any more: it was {became}; its last event is of {last.when or 'an unknown time'}: {last}"


def with_runners(kube: Kube, inventory: Inventory, *, watched: bool) -> Inventory:
    """Add to the pods of trials in our namespace the leases of their runs.

    ``watched``: trials with an expired lease were deleted before the inventory was read. A trial in another namespace,
    or of a kind that this account may not get, stays unknown.
    """
    mine = {
        pod.owner for pod in inventory.pods if pod.app == OF_TRIAL and pod.namespace == kube.namespace and pod.requests
    }
    runners = {owner: text for owner in mine if (text := _runner(kube, owner, watched=watched))}
    if not runners:
        return inventory
    pods = (
        replace(pod, runner=runners.get(pod.owner, ""))
        if pod.app == OF_TRIAL and pod.namespace == kube.namespace
        else pod
        for pod in inventory.pods
    )
    return replace(inventory, pods=tuple(pods))


def _runner(kube: Kube, owner: str, *, watched: bool) -> str:
    """Describe by its lease whether the run that launched this ('Job/NAME') is alive; '' if unknown."""
    word, _, name = owner.partition("/")
    kind = next((kind for kind in KINDS.values() if kind.kind == word), None)
    if kind is None:
        return ""
    url_path = path(kind.resource, name, namespace=kube.namespace, group=kind.group, version=kind.version)
    try:
        lease = held(as_map(kube.get(url_path)))
    except ClusterError:
        return ""
    if lease is None:
        return ""
    if lease.released:
        return f"that was detached (seatrial job attach {safe(name, 100)})"
    if watched:
        return f"that is in progress, {lease}"
    return f"that is in progress or was killed ({lease})"


def _mentions(event: Any, uid: str) -> bool:
    """Return whether an event is not about another job of the same name."""
    about = as_map(as_map(event).get("involvedObject"))
    return about.get("kind") not in _KINDS or about.get("uid") == uid


class NotOurs(JobError):  # noqa: N818  (named for its meaning)
    """The job was not created by seatrial."""


def _names_matter(state: JobState, job: Unstructured | None) -> bool:
    """Return whether a missing Service matters.

    It does not in a completed or canceled job, nor while it may still be created.
    """
    if job is None or state in (JobState.COMPLETE, JobState.CANCELED):
        return False
    return state is JobState.ERROR or age(job) > DELETED_S


class JobLookup:
    """The jobs of one namespace, by default the client's."""

    def __init__(self, kube: Kube, namespace: str = "", *, sees_nodes: bool = True) -> None:
        """Prepare; with `sees_nodes` False nodes are not requested, because a tenant's Role does not allow it."""
        self._kube, self._namespace, self._sees_nodes = kube, namespace or kube.namespace, sees_nodes
        self._queues: dict[str, Queueing] = {}
        self._hidden: list[Kind] = []

    def find(self, name: str, word: str = "") -> tuple[Kind, Unstructured | None]:
        """Return the object of this name, of any kind (or of the kind `word`); by default the Indexed Job's kind."""
        self._hidden = []
        for kind in READ:
            if word not in ("", "job", kind.name):
                continue
            try:
                url_path = path(kind.resource, name, namespace=self._namespace, group=kind.group, version=kind.version)
                if kind.operator:
                    self._kube.require("get", kind.resource, group=kind.group, namespace=self._namespace)
                raw: Unstructured = self._kube.get(url_path)
            except NotFound:
                continue
            except Forbidden:
                if not kind.operator:
                    raise
                self._hidden.append(kind)  # this account has no permission for the kind, or it is not installed
                continue
            return kind, raw
        return next((kind for kind in READ if kind.name == word), KINDS["indexed"]), None

    def own(self, name: str) -> tuple[Kind, Unstructured]:
        """Return the job of this name, if it is ours; raise JobError if it does not exist, NotOurs if it is foreign."""
        kind, job = self.find(name)
        if job is None:
            raise JobError(absent(self._kube, self._namespace, name))
        if labels_of(job).get(LABEL_MANAGED) != MANAGED_BY:
            raise NotOurs(f"job {safe(name, 100)} in {self._namespace} was not created by seatrial: it is left alone")
        return kind, job

    def absent(self, name: str) -> str:
        """Describe the remaining facts about a missing job, in one line."""
        return absent(self._kube, self._namespace, name)

    def place(self, name: str) -> str:
        """Return the URL path of one of our jobs; raises as `own`."""
        kind, _ = self.own(name)
        return path(kind.resource, name, namespace=self._namespace, group=kind.group, version=kind.version)

    @property
    def namespace(self) -> str:
        """The namespace of these jobs."""
        return self._namespace

    def kind_of(self, name: str, word: str = "") -> Kind:
        """Return the kind of object that launches its pods; by default the Indexed Job's."""
        kind, job = self.find(name, word)
        if job is not None:
            return kind
        return next((each for each in self._hidden if (made := self.pods(each, name)) and each.shown_by(made[0])), kind)

    def look(self, name: str, uid: str = "", word: str = "") -> Seen:
        """Return the state of any job in our namespace, its ranks, and its cause of failure, if any.

        `uid` excludes another job of the same name, `word` restricts the kind.
        """
        kind, job = self.find(name, word)
        pods = self.pods(kind, name)
        job = self._newer(kind, name, job)
        hidden = self._hidden if job is None else ()
        for each in hidden:  # an account without permission for the object may still see its pods
            made = self.pods(each, name)
            if made and each.shown_by(made[0]):
                kind, pods, job = each, made, unread(each, name, made)
                break
        events = self._optional(path("events", namespace=self._namespace))
        if uid and uid_of(job or {}) != uid:
            job, pods = None, []
            events = [event for event in events if _mentions(event, uid)]
        if job is None:  # its events show its kind
            about = {event.kind for event in read_events(events) if event.name == name}
            kind = next((each for each in READ if each.kind in about), kind)
        nodes = self._nodes() if job is not None and self._sees_nodes else []
        not_seen: list[str] = []
        queue, gang = self._queue(kind, name, job, pods, not_seen) if job is not None else (None, "")
        state, replicas, cause = diagnose(
            job, pods, events, nodes, name=name, kind=kind, queue=queue, gang=bool(gang), outside=True
        )
        if cause is not None and cause.fault == "job.failed" and kind.multiplexed:
            cause = explained(cause, itertools.chain.from_iterable(self._tails(pods, _LAST_WORDS).values()))
        missing = missing_service(self._kube, self._namespace, pods) if _names_matter(state, job) else ""
        cause = without_service(missing, state, cause, job) if missing else cause
        wanted = kind.size(job) if job is not None else len(replicas)
        lines = standing(state, replicas, wanted, gang=gang, now=datetime.datetime.now(datetime.UTC))
        lines += [f"the Service {missing}, which gives the ranks their names, does not exist"] if missing else []
        runners = advised(cause, self._namespace, name, pods, trial=is_trial(job)) if cause is not None else None
        return Seen(state, replicas, runners, tuple(lines), tuple(not_seen))

    def whole(self, name: str, word: str = "") -> tuple[Seen, list[Unstructured]]:
        """Return the state of a job, and its pods by name. Raises NotFound if neither object nor pods exist."""
        seen = self.look(name, word=word)
        pods = sorted(self.pods(self.kind_of(name, word), name), key=name_of)
        if not pods and self.find(name, word)[1] is None:
            where = f"{self._kube.server}: {word or 'job'}/{safe(name, 100)}"
            raise NotFound(where, status=404, reason="NotFound", message=self.absent(name))
        return seen, pods

    def _newer(self, kind: Kind, name: str, job: Unstructured | None) -> Unstructured | None:
        """Return the object as it is after its pods were read.

        The status of a failed job still counts its deleted pods. An object read before the pods would show a job that
        still waits for a pod.
        """
        if job is None:
            return None
        url_path = path(kind.resource, name, namespace=self._namespace, group=kind.group, version=kind.version)
        try:
            newer: Unstructured = self._kube.get(url_path)
        except NotFound:  # deleted meanwhile: the next poll reports it
            return job
        return newer if uid_of(newer) == uid_of(job) else job

    def pods(self, kind: Kind, name: str) -> list[Unstructured]:
        """Return the pods of a job of that kind and name."""
        items, _ = self._kube.list(path("pods", namespace=self._namespace), labelSelector=kind.selector(name))
        return [pod for pod in items if isinstance(pod, dict) and kind.belongs(pod, name)]

    def _queue(
        self, kind: Kind, name: str, job: Unstructured, pods: list[Unstructured], not_seen: list[str]
    ) -> tuple[PodSymptom | None, str]:
        """Return the job's obstacle in its queue, and its gang scheduler; None and '' without a queue."""
        queue, group = queue_of_job(kind, job, pods)
        if queue is None:
            return unsubmitted(kind, name, job), ""
        resource, api, verb = ("workloads", KUEUE_GROUP, "list") if queue.kind == "kueue" else _GROUPS
        try:
            if name not in self._queues:
                self._kube.require(verb, resource, group=api, namespace=self._namespace)
                self._queues[name] = Queueing(self._kube, queue, self._namespace, group or name)
                self._queues[name].began(age(job))
        except Forbidden:
            role = f"--namespace {shlex.quote(self._namespace)} --queue {shlex.quote(f'{queue.kind}:{queue.name}')}"
            not_seen.append(
                f"the queue's state: no permission to {verb} {resource}.{api} in {self._namespace}; a Role with it is "
                f"printed by seatrial rbac --tenant {role.rstrip(':')}"
            )
            return None, queue.kind
        queueing = self._queues[name]
        queueing.look(job, started=any(phase_of(pod) != "Pending" for pod in pods))
        if queueing.not_seen:
            not_seen.append(f"the queue's state: {queueing.not_seen}")
        return queueing.settled(), queue.kind

    def _nodes(self) -> list[Any]:
        with contextlib.suppress(Forbidden):
            self._kube.require("list", "nodes", namespace="")
            return self._optional(path("nodes"))
        return []

    def _optional(self, url_path: str) -> list[Any]:
        try:
            return self._kube.list(url_path)[0]
        except ApiError:
            return []

    def follow(self, name: str, pod: str, finished: Callable[[], bool], tell: Callable[[str], None]) -> Follower | None:
        """Follow a pod's main container and pass on each line, redacted; return None without such a pod."""
        pods = self.pods(self.kind_of(name), name)
        for item in pods:
            containers = as_list(as_map(item.get("spec")).get("containers"))
            if item["metadata"]["name"] == pod and containers:
                made = Follower(
                    self._kube,
                    pod,
                    namespace=self._namespace,
                    container=str(containers[0].get("name")),
                    reader=EvidenceReader(name),
                    finished=finished,
                    on_line=tell,
                )
                made.start()
                return made
        return None

    def logs(self, name: str, lines: int = 200) -> dict[str, list[str]]:
        """Return the last lines of every pod's main container (`speaking`), redacted."""
        return self._tails(self.pods(self.kind_of(name), name), lines)

    def _tails(self, pods: list[Unstructured], lines: int) -> dict[str, list[str]]:
        by_pod = {}
        for pod in pods:
            if container := speaking(pod):
                pod_name = str(pod["metadata"]["name"])
                by_pod[pod_name] = tail(self._kube, self._namespace, pod_name, container, lines)
        return by_pod

    def cancel(self, name: str) -> None:
        """Delete one of our jobs with its pods, and wait until all are gone."""
        kind, raw = self.own(name)
        uid = str(raw["metadata"].get("uid") or "")
        with contextlib.suppress(ClusterError):  # only informs observers; a failure does not prevent the cancellation
            by = f"{self._kube.whoami() or 'an unnamed account'} with seatrial"
            self._kube.patch(self.place(name), {"metadata": {"annotations": {CANCELED_BY: by}}})
        wait = delete(self._kube, kind.resource, kind.group, self._namespace, name, uid=uid, version=kind.version)
        if wait is not None:
            wait()
