"""The state of a trial job, rank by rank, and the one cause if it cannot continue.

Pure: from raw objects to conclusions, without requests or a clock, so that it is tested on recordings of a real
cluster. One cause is reported, never its consequences: peers of a dead rank lose their connections, and a failing Job
deletes its remaining pods itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..cluster.facts.events import about, latest, warnings
from ..cluster.facts.inventory import gpus_of
from ..cluster.facts.scheduling import lacking, possible_nodes, untolerated
from ..cluster.redact import safe
from ..cluster.unstructured import Unstructured, as_list, as_map, name_of, node_of, phase_of
from ..trial.launchers import KINDS, Kind
from ..trial.launchers.kind import MOST_REPLICAS, whole
from ..trial.pod import is_trial
from .grace_periods import CONTROLLER_S, DELETED_S, JOINING_S
from .history import History, changes, ended, last_end
from .job import FAILED
from .job_symptoms import JobSymptoms
from .of_user import of_name, of_user
from .pod import unready
from .state import ERR_INFRA, ERR_PROGRAM, FailureAnalysis, Issue, JobState, Replica
from .symptoms import EXITED, KILLED, NOT_STARTED, REFUSED, PodSymptom, disruption, overdue

# Node events that fail jobs (kubelet, node lifecycle controller, Node Problem Detector).
_NODE_EVENTS = frozenset(
    {
        "SystemOOM",
        "OOMKilling",
        "NodeNotReady",
        "Rebooted",
        "NodeHasDiskPressure",
        "EvictionThresholdMet",
        "NodeHasInsufficientMemory",
        "KernelOops",
        "TaskHung",
        "XidError",
        "GpuError",
        "FreeDiskSpaceFailed",
        "Shutdown",
    }
)
_DEADLINE = "activeDeadlineSeconds"
CANCELED_BY = "seatrial/canceled-by"
"""The annotation in which `cancel` records its user before it deletes the job."""


def diagnose(
    job: Unstructured | None,
    pods: Iterable[Any],
    events: Iterable[Any],
    nodes: Iterable[Any] = (),
    *,
    name: str = "",
    kind: Kind = KINDS["indexed"],
    queue: PodSymptom | None = None,
    gang: bool = False,
    history: History | None = None,
    given_up: frozenset[str] = frozenset(),
    outside: bool = False,
) -> tuple[JobState, tuple[Replica, ...], FailureAnalysis | None]:
    """Diagnose a job (None: it is gone) by all pods and events of its namespace, and the visible nodes.

    `queue` is the symptom of its queue (jobs/run/queueing.py). `gang`: its pods are scheduled together or not at all.
    `history` has the results of earlier polls. `given_up` names pods whose own output rules out another attempt.
    `outside`: the caller is not the job's watcher.
    """
    judgement = _Judgement(job, pods, events, nodes, name, kind, history)
    judgement.queue, judgement.gang, judgement.given_up = queue, gang, given_up
    judgement.outside = outside
    symptoms = judgement.symptoms()
    state = judgement.state()
    return state, judgement.replicas(symptoms), judgement.analysis(state, symptoms)


# If another device is short as well, on any node, the gang waits for that device.
_ONLY_GPUS = re.compile(r"(?=.*Insufficient \S+/gpu\b)(?!.*Insufficient (?!\S+/gpu\b))", re.DOTALL)


class _Judgement(JobSymptoms):
    """The conclusions from one job's objects."""

    queue: PodSymptom | None = None
    outside = False

    # -- replicas --------------------------------------------------------------------------------------------------

    def replicas(self, symptoms: Mapping[str, PodSymptom]) -> tuple[Replica, ...]:
        """Return one entry per rank, also for a pod that could not be created or is gone; its last node is kept."""
        here = {self.index(pod) for pod in self.pods}
        gone = [pod for pod in self.history.departed.values() if self.mine(pod) and self.index(pod) not in here]
        last = {self.index(pod): self._gone(pod, symptoms) for pod in gone if self.index(pod) < MOST_REPLICAS}
        chosen: dict[int, Unstructured] = {}
        for position, pod in enumerate(self.pods):
            index = self.index(pod)
            index = index if index < MOST_REPLICAS else position
            before = chosen.get(index)
            if before is None or phase_of(before) == "Failed":
                chosen[index] = pod
        made = [self._replica(index, pod, symptoms) for index, pod in sorted(chosen.items())]
        if self.job and not self.finished() and not self.meta.get("deletionTimestamp"):
            last |= {i: self._missing(i, last.get(i)) for i in range(self.desired_pods()) if i not in chosen}
        return tuple(sorted((*made, *last.values()), key=lambda replica: replica.index))

    def _gone(self, pod: Unstructured, symptoms: Mapping[str, PodSymptom]) -> Replica:
        return replace(self._replica(self.index(pod), pod, symptoms), phase="Gone")

    def _replica(self, index: int, pod: Unstructured, symptoms: Mapping[str, PodSymptom]) -> Replica:
        meta, spec, status = (as_map(pod.get(key)) for key in ("metadata", "spec", "status"))
        name = str(meta.get("name") or "")
        symptom = symptoms.get(name)
        events = about(self.all_events, "Pod", name, str(meta.get("uid") or ""))
        return Replica(
            index=index,
            pod=name,
            node=str(spec.get("nodeName") or ""),
            phase="Terminating" if meta.get("deletionTimestamp") else str(status.get("phase") or "Pending"),
            readiness_issue=symptom.issue if symptom else unready(pod, events),
            exit_code=_exit_code(status, self.kind.container),
            fault=symptom.fault if symptom else None,
            since=_since(pod),
            gpus=gpus_of(spec),
            held=bool(spec.get("nodeName")) and status.get("phase") not in ("Succeeded", "Failed"),
        )

    def _missing(self, index: int, gone: Replica | None) -> Replica:
        missing = gone or Replica(index=index, since=str(self.meta.get("creationTimestamp") or ""))
        if self.suspended:
            message = as_map(self.conditions.get("Suspended")).get("message")
            return replace(missing, readiness_issue=Issue("Suspended", safe(message or "")))
        refused = self.refusal()
        if refused is None:
            return missing
        return replace(missing, readiness_issue=refused[0].issue, fault=refused[0].fault)

    # -- analysis --------------------------------------------------------------------------------------------------

    def analysis(self, state: JobState, symptoms: Mapping[str, PodSymptom]) -> FailureAnalysis | None:
        """Choose the cause and describe it; None if the job has no problem."""
        if state is JobState.UNKNOWN:
            return None
        if state is JobState.COMPLETE:  # only an interruption still matters: the Job counts those pods as successes
            taken = [s for s in symptoms.values() if s.disrupted or s.issue.reason == "Evicted"]
            taken += [self._whole(self._edited())] if self.resized else []
            return self._analysis(min(taken, key=self._precedence), taken) if taken else None
        if state is JobState.CANCELED:
            return self._analysis(self._whole(self._canceled()), [])
        candidates = list(symptoms.values())
        if (refused := self.refusal()) is not None:
            candidates.append(refused[0])
        if (job_wide := self._job_wide(candidates)) is not None:
            candidates.append(job_wide)
        if self.queue is not None:
            candidates.append(self._as_a_whole(self.queue, candidates))
        if not candidates:
            return None
        cause = min(self._causes(candidates), key=self._precedence)
        cause = of_name(self._torn(cause), self.name)
        if self.outside and not is_trial(self.raw):
            pods = [each for each in self.pods if name_of(each) == cause.pod or "/" in cause.pod or not cause.pod]
            pod = next(iter(pods), None)
            held = sum(gpus_of(as_map(each.get("spec"))) for each in self.living() if node_of(each))
            cause = of_user(cause, pod, list(self.nodes.values()), self.desired_pods(), held)
        return self._analysis(cause, candidates)

    def _precedence(self, symptom: PodSymptom) -> tuple[object, ...]:
        """Order causes before consequences; within one second by the events, then by observation."""
        instants = [e.instant for e in about(self.all_events, "Pod", symptom.pod) if e.warning and e.instant]
        order = self.history.order(symptom.pod, symptom.fault)
        return symptom.rank, symptom.when or "9", min(instants, default=1 << 64), order, symptom.pod

    def _causes(self, candidates: Sequence[PodSymptom]) -> Sequence[PodSymptom]:
        """Restrict the causes of a failing Job to ended pods, without those that still waited."""
        failing = self.conditions.get("FailureTarget") or self.conditions.get("Failed") or {}
        if self.state() is not JobState.ERROR or self.kind.operator or failing.get("reason") == "DeadlineExceeded":
            return candidates
        all_pods = [*self.pods, *self.history.departed.values()]
        over = {name_of(pod) for pod in all_pods if ended(pod)}
        causes = [s for s in candidates if s.pod in over or s.rank not in (REFUSED, NOT_STARTED)]
        # A node that is not Ready cannot cause an OOM kill on another node. Nor does it fail a Job while its pods have
        # neither ended nor been deleted: the cause is then another rank without a report.
        asleep = {s.pod for s in causes if s.fault == "node.lost" and s.pod not in over and not self._is_deleted(s.pod)}
        killed = {s.node for s in causes if s.rank == KILLED and s.pod in over}
        causes = [s for s in causes if s.fault != "node.lost" or not killed - {s.node}]
        if not causes or all(s.pod in asleep for s in causes):
            return [replace(s, inferred=True) for s in causes or candidates]
        return causes

    def _is_deleted(self, name: str) -> bool:
        """Return whether the pod's deletion was requested, or it is deleted."""
        here = [as_map(pod.get("metadata")) for pod in self.pods]
        return all(meta.get("deletionTimestamp") for meta in here if meta.get("name") == name)

    def _as_a_whole(self, symptom: PodSymptom, candidates: Sequence[PodSymptom]) -> PodSymptom:
        """Add to the symptom of an unschedulable gang whether enough nodes could run its pods.

        If its pods lack only GPUs in use by others, as far as is visible, the failure is not attributed to the cluster.
        """
        ranks = [pod for pod in self.living() if self.index(pod) < MOST_REPLICAS]
        if symptom.fault != "gang.unschedulable" or not ranks:
            return symptom
        nodes = list(self.nodes.values())
        waiting = [each for each in candidates if "nodes are" in each.issue.message]
        busy = waiting and all(each.err_class is None and _ONLY_GPUS.match(each.issue.message) for each in waiting)
        if busy and (not nodes or possible_nodes(ranks[0], nodes) >= len(ranks)):
            symptom = replace(symptom, err_class=None)
        if not nodes:
            return symptom
        hopeless = possible_nodes(ranks[0], nodes) < len(ranks)
        why = lacking(ranks[0], nodes)
        seen = f"seen: {why}" if why else ""
        return replace(symptom, hopeless=hopeless, grace_s=JOINING_S, suggestion=seen)

    def _torn(self, cause: PodSymptom) -> PodSymptom:
        """Convert the symptom if only some pods of a gang were scheduled: gang scheduling did not work."""
        if not self.gang or cause.fault != "job.unschedulable" or not any(self.own_nodes):
            return cause
        placed = sum(1 for pod in self.living() if node_of(pod))
        issue = Issue("PartialStart", f"{placed} of {self.desired_pods()} pods started; {cause.issue}")
        expected = "all pods of the job start, or none"
        partial = replace(cause, fault="gang.partial", err_class=ERR_INFRA, issue=issue, expected=expected)
        return replace(partial, confirm="", remedy="")  # advice on the queue, not on the pods without a node

    def _job_wide(self, candidates: Sequence[PodSymptom]) -> PodSymptom | None:
        """Return a symptom that only the Job itself shows."""
        had_pods = self.removed or (self.history.resumed and (self.created or self.history.ran))
        if self.suspended and (had_pods or (self.history.resumed and not self.gang)):  # else its queue may resume it
            message = safe(as_map(self.conditions.get("Suspended")).get("message") or "Job suspended")
            author = _manager(self.raw, "suspend")
            suspended = disruption(Issue("Suspended", f"{author} suspended the job while it ran: {message}"))
            # Meanwhile a queue writes the cause into its own object, which is polled once a second.
            return self._whole(replace(suspended, grace_s=0.0 if had_pods and not self.gang else DELETED_S))
        if self.resized:
            return self._whole(self._edited())
        failed = self.conditions.get("Failed") or self.conditions.get("FailureTarget")
        gone = latest(self.events, *FAILED) if not self.job else None
        if failed is not None:
            issue = Issue(safe(failed.get("reason") or "Failed", 100), safe(failed.get("message") or ""))
        elif gone is not None:
            issue = Issue(gone.reason, gone.message)
        else:
            return self._unattended()
        if issue.reason == "DeadlineExceeded":
            first, now = (whole(spec.get(_DEADLINE), 0) for spec in (self.history.first, self.spec))
            sooner = changes(self.history.first, self.spec, _DEADLINE) if now < first else ""
            return self._whole(self._edited(sooner) if self.job and sooner else overdue(issue))
        if issue.reason == "PodFailurePolicy" and "condition DisruptionTarget" in issue.message:
            taken = re.search(r"Pod [^/\s]+/(\S+) has condition", issue.message)
            analysis = replace(disruption(issue), inferred=True)
            return analysis.at(pod=taken[1], node="") if taken else self._whole(analysis)
        return None if candidates else self._unexplained(issue)

    def _canceled(self) -> PodSymptom:
        """Attribute a deletion: `cancel` records its user in the job; any other deletion is external."""
        when = str(self.meta.get("deletionTimestamp") or "")
        if not self.outside:
            return disruption(Issue("Deleted", f"job {self.name} was deleted by others"), when)
        by = safe(as_map(self.meta.get("annotations")).get(CANCELED_BY) or "", 300)
        author = f"canceled by {by}" if by else "deleted; only the API server's audit log shows the user"
        return PodSymptom(
            fault="job.canceled",
            issue=Issue("Canceled", f"it was {author}"),
            expected="the job runs until it completes",
            err_class=None,
            when=when,
        )

    def _edited(self, change: str = "") -> PodSymptom:
        author = _manager(self.raw, "parallelism", "completions", _DEADLINE, "replicas", "numNodes")
        return disruption(Issue("Edited", f"{author} changed the job while it ran: {change or self.resized}"))

    def _unattended(self) -> PodSymptom | None:
        """Detect an object that no controller has handled: its operator is missing."""
        if not self.raw or self.pods or self.events or not self.kind.not_known_yet(self.raw):
            return None
        return PodSymptom(
            fault="operator.down",
            issue=Issue("NoController", f"no controller acted on the {self.kind.kind}: no condition, no event, no pod"),
            subject=self.kind.operator,
            expected=f"{self.kind.operator} starts the pods",
            rank=NOT_STARTED,
            grace_s=CONTROLLER_S,
        )

    def _unexplained(self, issue: Issue) -> PodSymptom:
        vanished = self.vanished()
        if vanished and issue.reason == "BackoffLimitExceeded":
            # A failed pod remains until its Job is deleted, so the pod that failed this Job was removed.
            gone = Issue(issue.reason, f"pod {vanished[0]} is gone: deleted externally")
            return replace(disruption(gone), inferred=True).at(pod=vanished[0], node="")
        return PodSymptom(
            fault="job.failed",
            issue=issue,
            subject=f"job/{self.name}",
            suggestion="The pods and their events are gone: run it again and follow its logs.",
            err_class=ERR_PROGRAM,
            expected="the job completes",
            rank=EXITED,
            inferred=True,
        )

    def _whole(self, symptom: PodSymptom) -> PodSymptom:
        return symptom.at(pod=f"job/{self.name}", node="")

    def _analysis(self, cause: PodSymptom, candidates: Sequence[PodSymptom]) -> FailureAnalysis:
        same = sorted(
            {s.pod for s in candidates if s.fault == cause.fault and s.pod and s.issue.reason == cause.issue.reason}
        )
        place = f" on {cause.node}" if cause.node else ""
        where = f"pod {cause.pod}{place}" if cause.pod and not cause.pod.startswith("job/") else f"job {self.name}"
        more = f" (and {len(same) - 1} more)" if len(same) > 1 else ""
        return FailureAnalysis(
            fault=cause.fault,
            subject=cause.subject or f"job/{self.name}",
            observed=safe(f"{where}{more}: {cause.issue}{self._taints(cause)}", 1200),
            expected=cause.expected,
            suggestion=cause.suggestion,
            confirm=cause.confirm,
            remedy=cause.remedy,
            err_class=cause.err_class,
            events=warnings(self.related(), 10),
            job_failure_by_node_event=self._node_events(cause, candidates),
            disrupted=cause.disrupted,
            hopeless=cause.hopeless,
            inferred=cause.inferred,
            grace_s=cause.grace_s,
            pod="" if "/" in cause.pod else cause.pod,
            node=cause.node,
        )

    def _taints(self, cause: PodSymptom) -> str:
        """Name the taints of a node from which a pod was evicted: they often show the component and the reason."""
        pod = next((p for p in (*self.pods, *self.history.departed.values()) if name_of(p) == cause.pod), None)
        taints = untolerated(self.nodes.get(cause.node, {}), pod) if cause.disrupted and pod else []
        return f"; {cause.node} is tainted {', '.join(taints[:4])}" if taints else ""

    def _node_events(self, cause: PodSymptom, candidates: Sequence[PodSymptom]) -> tuple[dict[str, str], ...]:
        if cause.err_class != ERR_INFRA and cause.fault != "container.oom":
            return ()
        hosts = {s.node for s in candidates if s.node}
        events = [
            {"node_event_name": s.issue.reason, "message": s.issue.message, "node": s.node, "pod": s.pod}
            for s in candidates
            if s.fault in {"container.oom", "node.lost"}
        ]
        since = str(self.status.get("startTime") or "")
        for event in self.all_events:
            if event.kind == "Node" and event.name in hosts and event.reason in _NODE_EVENTS and event.when >= since:
                events.append(
                    {"node_event_name": event.reason, "message": event.message, "node": event.name, "pod": ""}
                )
        return tuple(events[:50])


def _manager(raw: Unstructured, *fields: str) -> str:
    """Return the last writer of one of these spec fields from managedFields; else 'an unnamed client'.

    https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
    """
    entries = as_list(as_map(raw.get("metadata")).get("managedFields"))
    keys = {f"f:{name}" for name in fields}
    wrote = [each for each in entries if _holds(as_map(as_map(each.get("fieldsV1")).get("f:spec")), keys)]
    last = max(wrote, key=lambda each: str(each.get("time") or ""), default={})
    return safe(last.get("manager") or "an unnamed client", 100)


def _holds(fields: Unstructured, keys: Collection[str], depth: int = 4) -> bool:
    return any(name in keys or (depth and _holds(as_map(inner), keys, depth - 1)) for name, inner in fields.items())


def _since(pod: Unstructured) -> str:
    """Return the start of a pod's current state: ended, terminating, running, or created and waiting."""
    meta, status = as_map(pod.get("metadata")), as_map(pod.get("status"))
    running = [as_map(as_map(each.get("state")).get("running")) for each in as_list(status.get("containerStatuses"))]
    begun = min(filter(None, (str(each.get("startedAt") or "") for each in running)), default="")
    moments = (last_end(status), meta.get("deletionTimestamp"), begun, meta.get("creationTimestamp"))
    return next((str(moment)[:40] for moment in moments if moment), "")


def _exit_code(status: Unstructured, container: str) -> int | None:
    """Return the exit status of the trial's container, else of the first other container that failed.

    A sidecar's status does not count: a native one is killed (137) when the trial has ended.
    """
    further: list[int] = []
    mains = as_list(status.get("containerStatuses"))
    for entry in (*mains, *as_list(status.get("initContainerStatuses"))):
        states = [as_map(as_map(entry.get(key)).get("terminated")) for key in ("state", "lastState")]
        codes: list[int] = [state["exitCode"] for state in states if isinstance(state.get("exitCode"), int)]
        if codes and (entry.get("name") == container or [entry] == mains):  # a user's job may use any name
            return codes[0]
        further += [code for code in codes[:1] if code]
    return further[0] if further and status.get("phase") == "Failed" else None
