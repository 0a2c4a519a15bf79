"""Where does a trial job stand, rank by rank, and what is the one cause if it cannot go on?

Pure: raw objects in, conclusions out, no request and no clock, so that it is tested on recordings of a real cluster.
One cause is reported, never its consequences: peers of a dead rank lose their connections, and a failing Job deletes
its remaining pods itself.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..facts.events import Event, about, latest, warnings
from ..facts.scheduling import lacking, possible_nodes
from ..launchers import KINDS
from ..launchers.kind import MOST_REPLICAS
from ..raw import as_list, as_map
from ..redact import safe
from ..state import ERR_INFRA, ERR_PROGRAM, FailureAnalysis, Issue, JobState, Replica
from .case import CREATED, FAILED, Case
from .patient import JOINING_S, Surroundings, examine, from_events, unready
from .refusals import read_refusal
from .symptoms import EXITED, NOT_STARTED, REFUSED, Symptom, disruption, overdue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..launchers import Kind

# What happens to nodes that fails jobs (kubelet, node lifecycle controller, Node Problem Detector).
_NODE_EVENTS = frozenset(
    {
        "SystemOOM", "OOMKilling", "NodeNotReady", "Rebooted", "NodeHasDiskPressure", "EvictionThresholdMet",
        "NodeHasInsufficientMemory", "KernelOops", "TaskHung", "XidError", "GpuError", "FreeDiskSpaceFailed",
        "Shutdown",
    }
)  # fmt: skip


def diagnose(
    job: Mapping[str, Any] | None,
    pods: Iterable[Any],
    events: Iterable[Any],
    nodes: Iterable[Any] = (),
    *,
    name: str = "",
    kind: Kind = KINDS["indexed"],
    queue: Symptom | None = None,
    gang: bool = False,
    ran: bool = False,
    given_up: frozenset[str] = frozenset(),
) -> tuple[JobState, tuple[Replica, ...], FailureAnalysis | None]:
    """Conclude from a job (None: it is gone), all pods and events of its namespace, and what nodes are visible.

    `queue` is what its queue says (jobs/running/queueing.py), `gang` that its pods were to start together or not at
    all, `ran` that pods of it were seen before, `given_up` which pods' own words say that another attempt would end
    the same.
    """
    case = _Judgement(job, pods, events, nodes, name, kind)
    case.queue, case.gang, case.ran, case.given_up = queue, gang, ran, given_up
    found = case.symptoms()
    state = case.state()
    return state, case.replicas(found), case.analysis(state, found)


class _Judgement(Case):
    """The conclusions from one job's objects."""

    queue: Symptom | None = None
    gang = False
    ran = False

    # -- symptoms --------------------------------------------------------------------------------------------------

    def symptoms(self) -> dict[str, Symptom]:
        """What is wrong with each pod, by the pod's name; pods that are gone are judged by their events."""
        found: dict[str, Symptom] = {}
        for pod in self.pods:
            meta = as_map(pod.get("metadata"))
            symptom = examine(pod, self._around(pod))
            if symptom is not None and symptom.fault == "job.failed" and self.tried_again(pod):
                continue
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
            own_nodes=self.own_nodes,
            job_ending=bool(self.meta.get("deletionTimestamp"))
            or not self.job
            or "Suspended" in self.conditions
            or bool(self.kind.operator and self.finished()),  # an operator then takes away what still runs
            failing_since=self.failing_since,
            deleted_by_controller=name in self.removed,
            queued=self.gang,
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
        said = [(event, words) for event in self.events if (words := self.kind.refused(event))]
        if not said or (self.job and len(self.living()) >= self.wanted() and not self.finished()):
            return None
        refused, message = said[-1]
        made = latest(self.events, *CREATED)
        if self.finished() and made is not None and len(self.created) >= self.wanted():
            return None
        read = read_refusal(message)
        if read.fault == "namespace.terminating":
            return disruption(Issue("FailedCreate", message), refused.when).at(pod="", node=""), refused
        symptom = Symptom(
            fault=read.fault,
            hopeless=read.fault != "job.start-timeout",
            issue=Issue("FailedCreate", message),
            subject=read.subject,
            suggestion=read.suggestion,
            expected=f"{self.wanted()} pods are created",
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
            index = self.index(pod)
            index = index if index < MOST_REPLICAS else position
            before = chosen.get(index)
            if before is None or as_map(before.get("status")).get("phase") == "Failed":
                chosen[index] = pod
        made = [self._replica(index, pod, found) for index, pod in sorted(chosen.items())]
        if self.job and not self.finished() and not self.meta.get("deletionTimestamp"):
            made += [self._missing(index) for index in range(self.wanted()) if index not in chosen]
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
        if self.queue is not None:
            candidates.append(self._as_a_whole(self.queue))
        if not candidates:
            return None
        cause = min(candidates, key=lambda s: (s.rank, s.when or "9", s.pod))
        return self._told(self._torn(cause), candidates)

    def _as_a_whole(self, symptom: Symptom) -> Symptom:
        """Whether waiting may help a gang that finds no room: are there enough nodes at all that could take a pod?"""
        ranks = [pod for pod in self.living() if self.index(pod) < MOST_REPLICAS]
        if symptom.fault != "gang.unschedulable" or not ranks or not self.nodes:
            return symptom
        nodes = list(self.nodes.values())
        hopeless = possible_nodes(ranks[0], nodes) < len(ranks)
        why = lacking(ranks[0], nodes)
        advice = f"{symptom.suggestion} Seen: {why}." if why else symptom.suggestion
        return replace(symptom, hopeless=hopeless, grace_s=JOINING_S, suggestion=advice)

    def _torn(self, cause: Symptom) -> Symptom:
        """Some pods of a gang found a node and others did not: what was to hold them together did not."""
        if not self.gang or cause.fault != "job.unschedulable" or not any(self.own_nodes):
            return cause
        placed = sum(1 for pod in self.living() if as_map(pod.get("spec")).get("nodeName"))
        words = Issue("PartialStart", f"{placed} of {self.wanted()} pods started; {cause.issue}")
        advice = "Half a gang holds its GPUs and waits for ever: the queue must admit all pods or none."
        return replace(cause, fault="gang.partial", issue=words, suggestion=f"{advice} {cause.suggestion}",
                       expected="all pods of the job start, or none")  # fmt: skip

    def _job_wide(self, candidates: Sequence[Symptom]) -> Symptom | None:
        """What only the Job itself says."""
        if "Suspended" in self.conditions and (self.created or self.removed or self.ran):
            words = safe(self.conditions["Suspended"].get("message") or "")
            return self._whole(disruption(Issue("Suspended", f"the job was suspended while it ran: {words}")))
        failed = self.conditions.get("Failed") or self.conditions.get("FailureTarget")
        gone = latest(self.events, *FAILED) if not self.job else None
        if failed is not None:
            issue = Issue(safe(failed.get("reason") or "Failed", 100), safe(failed.get("message") or ""))
        elif gone is not None:
            issue = Issue(gone.reason, gone.message)
        else:
            return self._unattended()
        if issue.reason == "DeadlineExceeded":
            return self._whole(overdue(issue))
        if issue.reason == "PodFailurePolicy" and "condition DisruptionTarget" in issue.message:
            return self._whole(disruption(issue))
        return None if candidates else self._unexplained(issue)

    def _unattended(self) -> Symptom | None:
        """No controller has touched the object: the operator that should is not there."""
        if not self.raw or self.pods or self.events or not self.kind.not_known_yet(self.raw):
            return None
        return Symptom(
            fault="operator.down",
            issue=Issue("NoController", f"nobody has touched the {self.kind.kind}: no condition, no event, no pod"),
            subject=self.kind.operator,
            suggestion=f"Look at the pods of {self.kind.operator} and their log.",
            expected=f"{self.kind.operator} starts the pods",
            rank=NOT_STARTED,
            # A controller that lost its leader is back when the lease has run out (client-go's default: 15 s).
            grace_s=30.0,
        )

    def _unexplained(self, issue: Issue) -> Symptom:
        vanished = self.vanished()
        if vanished and issue.reason == "BackoffLimitExceeded":
            # A failed pod stays until its Job is deleted; what failed this Job was taken away by somebody.
            gone = Issue(issue.reason, f"pod {vanished[0]} is gone: deleted by others")
            return disruption(gone).at(pod=vanished[0], node="")
        return Symptom(
            fault="job.failed",
            issue=issue,
            subject=f"job/{self.name}",
            suggestion="The pods and their events are gone: run it again and follow its logs.",
            err_class=ERR_PROGRAM,
            expected="the job completes",
            rank=EXITED,
        )

    def _whole(self, symptom: Symptom) -> Symptom:
        return symptom.at(pod=f"job/{self.name}", node="")

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
            events=warnings(self.related(), 10),
            job_failure_by_node_event=self._node_events(cause, candidates),
            disrupted=cause.disrupted,
            hopeless=cause.hopeless,
            grace_s=cause.grace_s,
        )

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
