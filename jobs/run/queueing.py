"""The queue's decision about the trial, and whether waiting may help.

Kueue reports it in the conditions of a Workload that it creates for the job, Volcano in those of the PodGroup. Time in
a queue does not count as the pods' time to start. A full queue shows nothing about the cluster; one that is stopped,
missing, or always too small for the job does. Texts: kubernetes-sigs/kueue pkg/cache, pkg/scheduler
(flavorassigner.go), pkg/controller/core/workload_controller.go; volcano-sh/volcano pkg/scheduler/plugins/gang.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from seatrial.faults.catalogue import read_text

from ..cluster.client.errors import ApiError, ClusterError, NotFound
from ..cluster.client.kube import Kube, path
from ..cluster.redact import safe
from ..cluster.unstructured import Unstructured, as_list, as_map, by_type, name_of, uid_of
from ..diagnosis.state import Issue
from ..diagnosis.symptoms import NOT_STARTED, PodSymptom, disruption
from ..trial.launchers.queues import KUEUE_GROUP, KUEUE_VERSIONS
from ..trial.parts import Queue

_POLL_S = 1.0
# Kueue creates a Workload in its first reconcile; a controller that lost leadership is back after 15 s.
_UNMANAGED_S = 30.0
# Covers a quota that is being configured, or a scheduler that has not read all nodes yet.
_SETTLES_S = 5.0

WAITING = "queue.waiting"
# kueue pkg/scheduler/preemption: "Preempted to accommodate a workload (UID: U, JobUID: J) due to ...".
_BY_WORKLOAD = re.compile(r"to accommodate a workload \(UID: ([0-9a-f-]{36})")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """The queue's decision about the trial; `admitted_s` is None if it was never admitted."""

    kind: str
    name: str
    subject: str = ""  # the Workload or PodGroup
    cluster_queue: str = ""
    phase: str = ""
    conditions: tuple[Unstructured, ...] = ()
    admitted_s: float | None = None
    not_seen: str = ""


@dataclass(slots=True)
class Queueing:
    """The state of the queue's own object, polled while the trial waits."""

    kube: Kube
    queue: Queue
    namespace: str
    job: str
    raw: Unstructured | None = None
    not_seen: str = ""
    admitted_s: float | None = None
    installed: bool = True
    _uid: str = ""
    _began: float = field(default_factory=time.monotonic)
    _asked: float = -1e9
    _version: str = ""
    _workloads: dict[str, str] = field(default_factory=dict)  # Workloads of the namespace: by uid, name and owner

    @property
    def waiting(self) -> bool:
        """Whether the queue has not admitted the trial yet."""
        return self.admitted_s is None

    def look(self, job: Unstructured | None, *, started: bool) -> None:
        """Poll, if it is due. `started`: pods run, so they are no longer held."""
        self._uid = str(as_map((job or {}).get("metadata")).get("uid") or self._uid)
        if time.monotonic() - self._asked < _POLL_S or not self._uid:
            return
        self._asked = time.monotonic()
        try:
            state = self._workload() if self.queue.kind == "kueue" else self._group()
        except NotFound:
            state = None
        except ApiError as error:
            self.not_seen = str(error)
        except ClusterError:
            return  # the watcher handles an outage
        else:
            self.raw = state if state is not None else self.raw
        if self.admitted_s is None and (self._in() or (started and self.raw is None)):
            self.admitted_s = time.monotonic() - self._began

    def _workload(self) -> Unstructured | None:
        for version in (self._version,) if self._version else KUEUE_VERSIONS:
            url_path = path("workloads", namespace=self.namespace, group=KUEUE_GROUP, version=version)
            try:
                items, _ = self.kube.list(url_path, deadline_s=10.0)
            except NotFound:
                continue
            self._version, self.installed = version, True
            self._workloads = {uid_of(item): _owner_of(item) for item in items if isinstance(item, dict)}
            mine = [item for item in items if isinstance(item, dict) and self._is_mine(item)]
            return mine[0] if mine else None
        self.installed = False
        return None

    def _is_mine(self, item: Unstructured) -> bool:
        """Return whether a Workload is this job's: by its owner, or for a TrainJob or a Job by the uid in its label."""
        meta = as_map(item.get("metadata"))
        if as_map(meta.get("labels")).get("kueue.x-k8s.io/job-uid") == self._uid:
            return True
        return any(owner.get("uid") == self._uid for owner in as_list(meta.get("ownerReferences")))

    def _group(self) -> Unstructured:
        url_path = path(
            "podgroups", self.job, namespace=self.namespace, group="scheduling.volcano.sh", version="v1beta1"
        )
        raw_group: Unstructured = self.kube.get(url_path, deadline_s=10.0)
        return raw_group

    def _in(self) -> bool:
        status = as_map((self.raw or {}).get("status"))
        if self.queue.kind == "volcano":
            return status.get("phase") in ("Running", "Completed", "Unknown")
        return _holds(status, "Admitted") and not _holds(status, "Evicted")

    def symptom(self) -> PodSymptom | None:
        """Return the reason why the trial is not admitted, or was evicted."""
        waited = time.monotonic() - self._began
        if self.raw is None:
            return None if self.not_seen or not self.waiting else self._unmanaged(waited)
        if self.queue.kind == "volcano":
            return _of_group(self.raw, self.job) if self.waiting else None
        return _of_workload(self.raw, self.queue.name, waiting=self.waiting, workloads=self._workloads)

    def began(self, seconds_ago: float) -> None:
        """Set the time of submission, which precedes the first poll."""
        self._began = time.monotonic() - max(0.0, seconds_ago)

    def settled(self) -> PodSymptom | None:
        """Return the symptom for a single poll; ignore a missing object that may only be delayed."""
        symptom = self.symptom()
        return None if self.raw is None and time.monotonic() - self._began < _UNMANAGED_S else symptom

    def _unmanaged(self, waited: float) -> PodSymptom:
        what = "Workload" if self.queue.kind == "kueue" else "PodGroup"
        text = f"no {what} of this job after {waited:.0f} s"
        if not self.installed:
            text += f": the cluster has no API {KUEUE_GROUP}, so Kueue is not installed"
        return PodSymptom(
            fault="queue.unmanaged" if self.installed else "launcher.missing",
            issue=Issue(f"No{what}", text),
            subject=self.queue.kind,
            expected=f"{self.queue.kind} queues the job",
            grace_s=_UNMANAGED_S,
        )

    def facts(self) -> QueueFacts:
        """Return the observed facts, for the report."""
        raw = self.raw or {}
        status = as_map(raw.get("status"))
        conditions = tuple(
            {key: safe(item.get(key) or "", 600) for key in ("type", "status", "reason", "message")}
            for item in as_list(status.get("conditions"))[:20]
        )
        return QueueFacts(
            kind=self.queue.kind,
            name=self.queue.name or "default",
            subject=name_of(raw),
            cluster_queue=safe(as_map(status.get("admission")).get("clusterQueue") or "", 253),
            phase=safe(status.get("phase") or "", 40),
            conditions=conditions,
            admitted_s=self.admitted_s,
            not_seen=self.not_seen,
        )


def _holds(status: Unstructured, kind: str) -> bool:
    return (by_type(status).get(kind) or {}).get("status") == "True"


def _owner_of(item: Unstructured) -> str:
    owner = next(iter(as_list(as_map(item.get("metadata")).get("ownerReferences"))), {})
    of = f" ({owner.get('kind')}/{owner.get('name')})" if owner else ""
    return safe(f"{name_of(item)}{of}", 200)


def _of_workload(raw: Unstructured, queue: str, *, waiting: bool, workloads: Mapping[str, str]) -> PodSymptom | None:
    status = as_map(raw.get("status"))
    conditions = by_type(status)
    evicted = conditions.get("Evicted") or {}
    if evicted.get("status") == "True" and not waiting:
        reason = safe(evicted.get("reason") or "Evicted", 100)
        message = safe(evicted.get("message") or "")
        by = _BY_WORKLOAD.search(message)  # for another namespace only its uid is known
        name = workloads.get(by[1], "") if by else ""
        issue = Issue(f"Evicted/{reason}", f"{message}; that workload is {name}" if name else message)
        return disruption(issue, str(evicted.get("lastTransitionTime") or "")).at(pod="", node="")
    rejected = [item for item in as_list(status.get("admissionChecks")) if item.get("state") == "Rejected"]
    if rejected:
        issue = Issue("Rejected", safe(rejected[0].get("message") or ""))
        return _not_admitted(issue, f"admissioncheck/{safe(rejected[0].get('name') or '?', 100)}")
    if as_map(raw.get("spec")).get("active") is False:
        return _not_admitted(Issue("Deactivated", "the Workload was deactivated"), f"localqueue/{queue}")
    reserved = conditions.get("QuotaReserved") or {}
    if not waiting or reserved.get("status") == "True" or not reserved:
        return None
    issue = Issue(safe(reserved.get("reason") or "Pending", 100), safe(reserved.get("message") or ""))
    return _not_admitted(issue, f"localqueue/{queue}")


def _not_admitted(issue: Issue, subject: str) -> PodSymptom:
    """Interpret Kueue's message about a Workload without quota: missing, stopped, always too small, or only full."""
    said = read_text("kueue", str(issue))
    fault = (said and said.why) or WAITING
    named = said.variant.subject.lower() if said and said.variant else ""
    if fault == WAITING:
        expected = "the queue has room within its deadline"
        waiting = PodSymptom(
            fault=fault, issue=issue, subject=subject, expected=expected, err_class=None, hopeless=False
        )
        return waiting.advised(said)
    return PodSymptom(
        fault=fault,
        issue=issue,
        subject=safe(named or subject, 300),
        expected="the queue admits the job",
        rank=NOT_STARTED,
        grace_s=_SETTLES_S,
    ).advised(said)


def _of_group(raw: Unstructured, name: str) -> PodSymptom | None:
    """Judge a Volcano group that is not ready; the pods' own symptoms show whether this can change (their nodes)."""
    condition = by_type(as_map(raw.get("status"))).get("Unschedulable") or {}
    if condition.get("status") != "True":
        return None
    return PodSymptom(
        fault="gang.unschedulable",
        issue=Issue(safe(condition.get("reason") or "Unschedulable", 100), safe(condition.get("message") or "")),
        subject=f"podgroup/{name}",
        expected="all pods of the group find a node",
        rank=REFUSED_BY_GANG,
        hopeless=False,
    )


# Precedes the symptoms of single pods, which only repeat it.
REFUSED_BY_GANG = NOT_STARTED - 1
