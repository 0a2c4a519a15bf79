"""Where does a trial job stand, rank by rank, and what is the one cause if it cannot go on?

Pure: raw objects in, conclusions out, no request and no clock, so that it is tested on recordings of a real cluster. One
cause is reported, never its consequences: peers of a dead rank lose their connections, and a failing Job deletes its
remaining pods itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .events import Event, about, latest, read_events, warnings
from .patient import Surroundings, as_list, as_map, by_type, examine, from_events, unready
from .redact import safe
from .refusals import read_refusal
from .state import ERR_INFRA, ERR_PROGRAM, FailureAnalysis, Issue, JobState, Replica
from .symptoms import EXITED, REFUSED, Symptom, disruption, overdue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

INDEX = "batch.kubernetes.io/job-completion-index"
_MOST_REPLICAS = 5000
# Job conditions' and events' reasons (kubernetes pkg/controller/job, api/batch/v1).
_FAILED = ("BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy", "FailedIndexes", "MaxFailedIndexesExceeded")
# What happens to nodes that fails jobs (kubelet, node lifecycle controller, Node Problem Detector).
_NODE_EVENTS = frozenset(
    {
        "SystemOOM", "OOMKilling", "NodeNotReady", "Rebooted", "NodeHasDiskPressure", "EvictionThresholdMet",
        "NodeHasInsufficientMemory", "KernelOops", "TaskHung", "XidError", "GpuError", "FreeDiskSpaceFailed", "Shutdown",
    }
)  # fmt: skip


def diagnose(
    job: Mapping[str, Any] | None,
    pods: Iterable[Any],
    events: Iterable[Any],
    nodes: Iterable[Any] = (),
    *,
    name: str = "",
) -> tuple[JobState, tuple[Replica, ...], FailureAnalysis | None]:
    """Conclude from a Job (None: it is gone), all pods and events of its namespace, and what nodes are visible."""
    case = _Case(job, pods, events, nodes, name)
    found = case.symptoms()
    state = case.state()
    return state, case.replicas(found), case.analysis(state, found)


class _Case:
    """One job's objects, sorted out."""

    def __init__(
        self,
        job: Mapping[str, Any] | None,
        pods: Iterable[Any],
        events: Iterable[Any],
        nodes: Iterable[Any],
        name: str,
    ) -> None:
        self.job = as_map(job)
        self.meta, self.spec, self.status = (as_map(self.job.get(key)) for key in ("metadata", "spec", "status"))
        self.all_events = read_events(events)
        self.name = name or str(self.meta.get("name") or "") or _only_job(self.all_events)
        self.uid = str(self.meta.get("uid") or "")
        self.events = about(self.all_events, "Job", self.name, self.uid)
        self.conditions = {kind: c for kind, c in by_type(self.status).items() if c.get("status") == "True"}
        self.pods = sorted(
            (pod for pod in pods if isinstance(pod, dict) and self._mine(pod)),
            key=lambda pod: (_index(pod), str(pod["metadata"].get("creationTimestamp") or "")),
        )
        self.nodes = {str(as_map(node.get("metadata")).get("name")): node for node in nodes if isinstance(node, dict)}
        self.removed = {word for e in self.events if e.reason == "SuccessfulDelete" for word in _pod_names(e)}
        self.created = [word for e in self.events if e.reason == "SuccessfulCreate" for word in _pod_names(e)]
        failing = self.conditions.get("FailureTarget") or self.conditions.get("Failed") or {}
        told = latest(self.events, *_FAILED)
        self.failing_since = str(failing.get("lastTransitionTime") or (told.when if told and not self.job else ""))

    def _mine(self, pod: Mapping[str, Any]) -> bool:
        meta = as_map(pod.get("metadata"))
        owners = as_list(meta.get("ownerReferences"))
        if self.uid and owners:
            return any(owner.get("uid") == self.uid for owner in owners)
        labels = as_map(meta.get("labels"))
        return bool(self.name) and self.name in {labels.get("batch.kubernetes.io/job-name"), labels.get("job-name")}

    # -- state -----------------------------------------------------------------------------------------------------

    def state(self) -> JobState:  # noqa: PLR0911  (one line per state is the clearest form)
        """Name the state in the user's words."""
        if not self.job:
            return self._state_of_gone()
        if "Complete" in self.conditions:
            return JobState.COMPLETE
        if "Failed" in self.conditions:
            return JobState.ERROR
        if self.meta.get("deletionTimestamp"):
            return JobState.CANCELED
        if "FailureTarget" in self.conditions:
            return JobState.ERROR
        if "Suspended" in self.conditions:
            return JobState.PENDING
        phases = [as_map(pod.get("status")).get("phase") for pod in self.pods]
        limit = self.spec.get("backoffLimit")
        if phases.count("Failed") > (limit if isinstance(limit, int) else 6):
            return JobState.ERROR
        if "Running" in phases or "Succeeded" in phases or self.status.get("ready") or self.status.get("succeeded"):
            return JobState.RUNNING
        return JobState.PENDING

    def _state_of_gone(self) -> JobState:
        last = latest(self.events, "Completed", *_FAILED)
        if last is not None:
            return JobState.COMPLETE if last.reason == "Completed" else JobState.ERROR
        return JobState.CANCELED if self.events or self.pods else JobState.UNKNOWN

    # -- symptoms --------------------------------------------------------------------------------------------------

    def symptoms(self) -> dict[str, Symptom]:
        """What is wrong with each pod, by the pod's name; pods that are gone are judged by their events."""
        found: dict[str, Symptom] = {}
        for pod in self.pods:
            meta = as_map(pod.get("metadata"))
            symptom = examine(pod, self._around(pod))
            if symptom is not None:
                found[str(meta.get("name"))] = self._placed(symptom)
        here = {str(as_map(pod.get("metadata")).get("name")) for pod in self.pods}
        if self.state() is JobState.ERROR:
            for name in self.created:
                if name in here or name in found:
                    continue
                symptom = self._of_gone(name)
                if symptom is not None:
                    found[name] = self._placed(symptom)
        return found

    def _around(self, pod: Mapping[str, Any]) -> Surroundings:
        meta, spec = as_map(pod.get("metadata")), as_map(pod.get("spec"))
        name, node = str(meta.get("name") or ""), str(spec.get("nodeName") or "")
        own = about(self.all_events, "Pod", name, str(meta.get("uid") or ""))
        host = (
            [e for e in about(self.all_events, "Node", node) if e.reason in {"SystemOOM", "OOMKilling"}] if node else []
        )
        started = str(as_map(pod.get("status")).get("startTime") or "")
        return Surroundings(
            events=own + [e for e in host if not started or e.when >= started],
            node=self.nodes.get(node),
            nodes=tuple(self.nodes.values()),
            job_ending=bool(self.meta.get("deletionTimestamp")) or not self.job or "Suspended" in self.conditions,
            failing_since=self.failing_since,
            deleted_by_controller=name in self.removed,
        )

    def _of_gone(self, name: str) -> Symptom | None:
        events = about(self.all_events, "Pod", name)
        scheduled = latest(events, "Scheduled")
        on = re.search(r" to (\S+)$", scheduled.message) if scheduled else None
        node = on[1] if on else ""
        symptom = from_events(events)
        if symptom is None and name not in self.removed:
            killed = latest(events, "Killing")
            early = killed is not None and not (self.failing_since and killed.when >= self.failing_since)
            if killed is not None and early and killed.message.startswith("Stopping container"):
                symptom = disruption(Issue("Deleted", "the pod was deleted by others"), killed.when)
        return symptom.at(pod=name, node=node) if symptom else None

    def _placed(self, symptom: Symptom) -> Symptom:
        if symptom.fault != "node.lost":
            return symptom
        return Symptom(**{f: getattr(symptom, f) for f in symptom.__slots__} | {"subject": symptom.node or symptom.pod})

    def refusal(self) -> tuple[Symptom, Event] | None:
        """What keeps the controller from creating pods, unless it has created them all since."""
        refused = latest(self.events, "FailedCreate")
        if refused is None or (self.job and len(self._living()) >= self._wanted() and not self._finished()):
            return None
        made = latest(self.events, "SuccessfulCreate")
        if self._finished() and made is not None and len(self.created) >= self._wanted():
            return None
        message = refused.message.removeprefix("Error creating: ")
        read = read_refusal(message)
        if read.fault == "namespace.terminating":
            return disruption(Issue("FailedCreate", message), refused.when).at(pod="", node=""), refused
        symptom = Symptom(
            fault=read.fault,
            hopeless=read.fault != "job.start-timeout",
            issue=Issue("FailedCreate", message),
            subject=read.subject,
            suggestion=read.suggestion,
            expected=f"{self._wanted()} pods are created",
            rank=REFUSED,
            when=refused.when,
            # The controller tries again after 1, 2, 4 s ...: something that is just being set up gets that chance.
            grace_s=5.0,
        )
        return symptom, refused

    # -- replicas --------------------------------------------------------------------------------------------------

    def replicas(self, found: Mapping[str, Symptom]) -> tuple[Replica, ...]:
        """One entry per rank, also for ranks whose pod could not be created."""
        chosen: dict[int, Mapping[str, Any]] = {}
        for position, pod in enumerate(self.pods):
            index = _index(pod)
            index = index if index < _MOST_REPLICAS else position
            before = chosen.get(index)
            if before is None or as_map(before.get("status")).get("phase") == "Failed":
                chosen[index] = pod
        made = [self._replica(index, pod, found) for index, pod in sorted(chosen.items())]
        if self.job and not self._finished() and not self.meta.get("deletionTimestamp"):
            made += [self._missing(index) for index in range(self._wanted()) if index not in chosen]
        return tuple(sorted(made, key=lambda replica: replica.index))

    def _replica(self, index: int, pod: Mapping[str, Any], found: Mapping[str, Symptom]) -> Replica:
        meta, spec, status = (as_map(pod.get(key)) for key in ("metadata", "spec", "status"))
        name = str(meta.get("name") or "")
        symptom = found.get(name)
        events = about(self.all_events, "Pod", name, str(meta.get("uid") or ""))
        return Replica(
            index=index,
            pod=name,
            node=str(spec.get("nodeName") or ""),
            phase="Terminating" if meta.get("deletionTimestamp") else str(status.get("phase") or "Pending"),
            readiness_issue=symptom.issue if symptom else unready(pod, events),
            exit_code=_exit_code(status),
            fault=symptom.fault if symptom else None,
        )

    def _missing(self, index: int) -> Replica:
        suspended = self.conditions.get("Suspended")
        if suspended:
            return Replica(index=index, readiness_issue=Issue("Suspended", safe(suspended.get("message") or "")))
        refused = self.refusal()
        if refused is None:
            return Replica(index=index)
        return Replica(index=index, readiness_issue=refused[0].issue, fault=refused[0].fault)

    # -- analysis --------------------------------------------------------------------------------------------------

    def analysis(self, state: JobState, found: Mapping[str, Symptom]) -> FailureAnalysis | None:
        """Choose the cause and put it into words; None where nothing is wrong."""
        if state is JobState.COMPLETE or state is JobState.UNKNOWN:
            return None
        if state is JobState.CANCELED:
            when = str(self.meta.get("deletionTimestamp") or "")
            gone = disruption(Issue("Deleted", f"job {self.name} was deleted by others"), when)
            return self._told(gone.at(pod=f"job/{self.name}", node=""), [])
        candidates = list(found.values())
        if (refused := self.refusal()) is not None:
            candidates.append(refused[0])
        if (job_wide := self._job_wide(candidates)) is not None:
            candidates.append(job_wide)
        if not candidates:
            return None
        cause = min(candidates, key=lambda s: (s.rank, s.when or "9", s.pod))
        return self._told(cause, candidates)

    def _job_wide(self, candidates: Sequence[Symptom]) -> Symptom | None:
        """What only the Job itself says."""
        if "Suspended" in self.conditions and (self.created or self.removed):
            words = safe(self.conditions["Suspended"].get("message") or "")
            return disruption(Issue("Suspended", f"the job was suspended while it ran: {words}")).at(
                pod=f"job/{self.name}", node=""
            )
        failed = self.conditions.get("Failed") or self.conditions.get("FailureTarget")
        gone = latest(self.events, *_FAILED) if not self.job else None
        if failed is None and gone is None:
            return None
        reason = safe(failed.get("reason") or "Failed", 100) if failed else gone.reason if gone else ""
        message = safe(failed.get("message") or "") if failed else gone.message if gone else ""
        issue = Issue(reason, message)
        if reason == "DeadlineExceeded":
            return overdue(issue).at(pod=f"job/{self.name}", node="")
        if reason == "PodFailurePolicy" and "condition DisruptionTarget" in message:
            return disruption(issue).at(pod=f"job/{self.name}", node="") if not candidates else None
        if candidates:
            return None
        if (vanished := self._vanished()) and reason == "BackoffLimitExceeded":
            # A failed pod stays until its Job is deleted; what failed this Job was taken away by somebody.
            return disruption(Issue(reason, f"pod {vanished[0]} is gone: deleted by others")).at(
                pod=vanished[0], node=""
            )
        return Symptom(
            fault="job.failed",
            issue=issue,
            subject=f"job/{self.name}",
            suggestion="The pods and their events are gone: run it again and follow its logs.",
            err_class=ERR_PROGRAM,
            expected="the job completes",
            rank=EXITED,
        )

    def _vanished(self) -> list[str]:
        here = {str(as_map(pod.get("metadata")).get("name")) for pod in self.pods}
        return [name for name in self.created if self.job and name not in here and name not in self.removed]

    def _told(self, cause: Symptom, candidates: Sequence[Symptom]) -> FailureAnalysis:
        same = sorted(
            {s.pod for s in candidates if s.fault == cause.fault and s.pod and s.issue.reason == cause.issue.reason}
        )
        place = f" on {cause.node}" if cause.node else ""
        who = f"pod {cause.pod}{place}" if cause.pod and not cause.pod.startswith("job/") else f"job {self.name}"
        more = f" (and {len(same) - 1} more)" if len(same) > 1 else ""
        return FailureAnalysis(
            fault=cause.fault,
            subject=cause.subject or f"job/{self.name}",
            observed=safe(f"{who}{more}: {cause.issue}", 1200),
            expected=cause.expected,
            suggestion=cause.suggestion,
            err_class=cause.err_class,
            events=warnings(self._related(), 10),
            job_failure_by_node_event=self._node_events(cause, candidates),
            disrupted=cause.disrupted,
            hopeless=cause.hopeless,
            grace_s=cause.grace_s,
        )

    def _related(self) -> list[Event]:
        pods = {str(as_map(pod.get("metadata")).get("name")) for pod in self.pods} | set(self.created)
        return [
            e
            for e in self.all_events
            if (e.kind == "Job" and e.name == self.name) or (e.kind == "Pod" and e.name in pods)
        ]

    def _node_events(self, cause: Symptom, candidates: Sequence[Symptom]) -> tuple[dict[str, str], ...]:
        if cause.err_class != ERR_INFRA:
            return ()
        hosts = {s.node for s in candidates if s.node}
        told = [
            {"node_event_name": s.issue.reason, "message": s.issue.message, "node": s.node, "pod": s.pod}
            for s in candidates
            if s.fault in {"container.oom", "node.lost"}
        ]
        since = str(self.status.get("startTime") or "")
        for event in self.all_events:
            if event.kind == "Node" and event.name in hosts and event.reason in _NODE_EVENTS and event.when >= since:
                told.append({"node_event_name": event.reason, "message": event.message, "node": event.name, "pod": ""})
        return tuple(told[:50])

    # -- numbers ---------------------------------------------------------------------------------------------------

    def _finished(self) -> bool:
        return bool({"Complete", "Failed", "FailureTarget"} & self.conditions.keys())

    def _living(self) -> list[Mapping[str, Any]]:
        return [pod for pod in self.pods if not as_map(pod.get("metadata")).get("deletionTimestamp")]

    def _wanted(self) -> int:
        indexed = self.spec.get("completionMode") == "Indexed"
        counts = [self.spec.get("parallelism"), self.spec.get("completions") if indexed else None]
        wanted = max((n for n in counts if isinstance(n, int) and not isinstance(n, bool)), default=1)
        return min(max(wanted, 0), _MOST_REPLICAS)


def _index(pod: Mapping[str, Any]) -> int:
    meta = as_map(pod.get("metadata"))
    for place in ("annotations", "labels"):
        text = str(as_map(meta.get(place)).get(INDEX) or "")
        if text.isdigit() and len(text) < 7:
            return int(text)
    return _MOST_REPLICAS


def _exit_code(status: Mapping[str, Any]) -> int | None:
    """The exit status of the main container, or of the init container that failed."""
    codes = []
    for key in ("containerStatuses", "initContainerStatuses"):
        for entry in as_list(status.get(key)):
            code = as_map(as_map(entry.get("state")).get("terminated")).get("exitCode")
            if code is None:
                code = as_map(as_map(entry.get("lastState")).get("terminated")).get("exitCode")
            if isinstance(code, int) and (key == "containerStatuses" or code):
                codes.append(code)
    return next((code for code in codes if code), codes[0] if codes else None)


def _only_job(events: Sequence[Event]) -> str:
    """The name of the Job when only its events are left and they are about one."""
    names = {event.name for event in events if event.kind == "Job"}
    return names.pop() if len(names) == 1 else ""


def _pod_names(event: Event) -> list[str]:
    """Pods named in a SuccessfulCreate or SuccessfulDelete event of the Job controller."""
    found = re.search(r"(?:Created|Deleted) pod: (\S+)", event.message)
    return [found[1]] if found else []
