"""Symptoms of the pods of one job, and obstacles to their creation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ..cluster.facts.events import Event, about, latest
from ..cluster.unstructured import Unstructured, as_map, name_of
from .grace_periods import REFUSED_S, RIGHTS_S
from .history import later
from .job import CREATED, JobObjects
from .pod import examine, from_events
from .refusals import read_refusal
from .state import ERR_INFRA, Issue, JobState
from .symptoms import REFUSED, PodSymptom, Surroundings, disruption


class JobSymptoms(JobObjects):
    """The symptoms of one job's pods; ``gang``: they are scheduled together or not at all."""

    gang = False

    def symptoms(self) -> dict[str, PodSymptom]:
        """Return each pod's symptom by name; deleted pods are judged by their events."""
        by_pod: dict[str, PodSymptom] = {}
        for pod in self.pods:
            meta = as_map(pod.get("metadata"))
            if self._served(pod):
                continue
            symptom = examine(pod, self._around(pod))
            if symptom is not None and symptom.fault == "job.failed" and self.tried_again(pod):
                continue
            if symptom is not None:
                by_pod[str(meta.get("name"))] = self._placed(symptom, pod)
        for pod in self.history.departed.values():
            name = name_of(pod)
            if self.mine(pod) and self.state() in {JobState.COMPLETE, JobState.ERROR} and not self._served(pod):
                symptom = examine(pod, self._around(pod))
                if symptom is not None:
                    by_pod[name] = self._placed(symptom, pod)
        here = {name_of(pod) for pod in [*self.pods, *self.history.departed.values()]}
        if self.state() is JobState.ERROR:
            for name in self.created:
                if name in here or name in by_pod:
                    continue
                symptom = self._of_gone(name)
                if symptom is not None:
                    by_pod[name] = self._placed(symptom, {})
        return by_pod

    def _served(self, pod: Unstructured) -> bool:
        """Return whether a pod only served ranks that have succeeded; its operator removes it."""
        return "Complete" in self.conditions and not self.kind.prints_evidence(pod)

    def _around(self, pod: Unstructured) -> Surroundings:
        meta, spec = as_map(pod.get("metadata")), as_map(pod.get("spec"))
        name, node = str(meta.get("name") or ""), str(spec.get("nodeName") or "")
        own = about(self.all_events, "Pod", name, str(meta.get("uid") or ""))
        host = (
            [e for e in about(self.all_events, "Node", node) if e.reason in {"SystemOOM", "OOMKilling"}] if node else []
        )
        started = str(as_map(pod.get("status")).get("startTime") or "")
        # A deletion after Complete changes nothing; an earlier one caused it.
        ending = bool(self.resized) or (
            "Complete" not in self.conditions
            and (
                bool(self.meta.get("deletionTimestamp"))
                or not self.job
                or self.suspended
                or bool(self.kind.operator and self.finished())  # an operator removes running pods at the end
            )
        )
        followed = self.spec.get("backoffLimit") == 0 and str(meta.get("uid") or "") in self.history.followed
        return Surroundings(
            events=own + [e for e in host if not started or e.when >= started],
            node=self.nodes.get(node),
            nodes=tuple(self.nodes.values()),
            own_nodes=self.own_nodes,
            job_ending=ending,
            ending_since=self.ending_since,
            deleted_by_controller=name in self.removed or followed,
            taken=self.taken(pod),
            probe_ended=name in self.history.finished,
            queued=self.gang,
        )

    def _of_gone(self, name: str) -> PodSymptom | None:
        events = about(self.all_events, "Pod", name)
        scheduled = latest(events, "Scheduled")
        on = re.search(r" to (\S+)$", scheduled.message) if scheduled else None
        node = on[1] if on else ""
        symptom = from_events(events)
        if symptom is None and name not in self.removed:
            killed = latest(events, "Killing")
            early = killed is not None and not (self.ending_since and killed.when >= self.ending_since)
            if killed is not None and early and killed.message.startswith("Stopping container"):
                symptom = disruption(Issue("Deleted", "the pod was deleted by others"), killed.when)
        return replace(symptom, inferred=True).at(pod=name, node=node) if symptom else None

    def _placed(self, symptom: PodSymptom, pod: Unstructured) -> PodSymptom:
        if symptom.fault == "image.no-python" and (fault := self.kind.command_missing(pod)):
            return replace(symptom, fault=fault, suggestion="", confirm="", remedy="")
        if symptom.fault != "node.lost":
            return symptom
        return replace(symptom, subject=symptom.node or symptom.pod)

    def refusal(self) -> tuple[PodSymptom, Event] | None:
        """Return the refusal that prevents the controller from creating pods; None if it has created all since."""
        said = [(event, text) for event in self.events if (text := self.kind.refused(event))]
        if not said or (self.job and len(self.living()) >= self.desired_pods() and not self.finished()):
            return None
        refused, message = next((each for each in reversed(said) if self._is_current(each[0], each[1], said)), said[-1])
        made = latest(self.events, *CREATED)
        if self.finished() and made is not None and len(self.created) >= self.desired_pods():
            return None
        read = read_refusal(message, self.desired_pods())
        if read.fault == "namespace.terminating":
            return disruption(Issue("FailedCreate", message), refused.when).at(pod="", node=""), refused
        symptom = PodSymptom(
            fault=read.fault,
            hopeless=read.fault != "job.start-timeout" and not read.in_use and self._is_current(refused, message, said),
            issue=Issue("FailedCreate", message),
            subject=read.subject,
            suggestion=read.suggestion,
            confirm=read.confirm,
            remedy=read.remedy,
            expected=f"{self.desired_pods()} pods are created",
            err_class=None if read.in_use else ERR_INFRA,
            rank=REFUSED,
            when=refused.when,
            grace_s=REFUSED_S,
        )
        return symptom, refused

    @staticmethod
    def _is_current(event: Event, message: str, refusals: Sequence[tuple[Event, str]]) -> bool:
        """Return whether this is a current refusal; errors of a restarted or unreachable server are not."""
        fault = read_refusal(message).fault
        if fault != "rights.missing":
            return fault != "job.start-timeout"
        same = [other for other, refused in refusals if read_refusal(refused).fault == fault]
        return later(min(other.since for other in same), int(RIGHTS_S)) <= later(event.when, 0)
