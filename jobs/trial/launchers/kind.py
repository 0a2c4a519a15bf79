"""The launcher's interface of a kind of object that starts pods.

Each kind defines its manifest (suspended, from the frozen spec), its pods and their ranks. It reports its state in the
form of a batch/v1 Job, so that one diagnosis and one way of waiting serve all kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...cluster.unstructured import Unstructured, as_list, as_map, labels_of
from ..pod import CONTAINER, LABEL_RUN, labels

if TYPE_CHECKING:
    from ...cluster.facts.events import Event
    from ..job_spec import JobSpec

MOST_REPLICAS = 5000
INDEX = "batch.kubernetes.io/job-completion-index"


class Kind:
    """One kind of object; subclasses override the differences."""

    name = ""  # its name in profiles and on the command line
    group, version, resource, kind = "", "", "", ""
    operator = ""  # its controller, if it is not Kubernetes' own
    container = CONTAINER
    uses_service = True  # our own headless Service names the pods; otherwise the operator's does
    multiplexed = False  # one pod prints the evidence of all ranks

    # -- writing ---------------------------------------------------------------------------------------------------

    def job(self, spec: JobSpec) -> Unstructured:
        """Return the object's manifest, suspended."""
        raise NotImplementedError

    def for_other_version(self, job: Unstructured, refusal: str) -> Unstructured | None:
        """Return the object for another version of the operator, by the API server's refusal; None without one."""
        del job, refusal
        return None

    def resume(self) -> Unstructured:
        """Return the merge patch that resumes it."""
        return {"spec": {"suspend": False}}

    def service_selector(self, spec: JobSpec) -> dict[str, str]:
        """Return the selector of our Service; {} if the operator creates its own."""
        return {LABEL_RUN: spec.run_id} if self.uses_service else {}

    def left_out(self, spec: JobSpec) -> tuple[str, ...]:
        """Return requests of the spec that this kind cannot express, as text."""
        del spec
        return ()

    def meta(self, spec: JobSpec) -> Unstructured:
        """Return name and labels, including the queue's."""
        own_labels = labels(spec)
        if spec.queue is not None and spec.queue.kind == "kueue":
            own_labels |= {"kueue.x-k8s.io/queue-name": spec.queue.name}
            if spec.queue.priority_class:
                own_labels |= {"kueue.x-k8s.io/priority-class": spec.queue.priority_class}
        return {"name": spec.job_name, "namespace": spec.namespace, "labels": own_labels}

    # -- reading ---------------------------------------------------------------------------------------------------

    def selector(self, name: str) -> str:
        """Return the label selector of all its pods."""
        raise NotImplementedError

    def as_job(self, raw: Unstructured) -> Unstructured:
        """Convert the object to a batch/v1 Job."""
        raise NotImplementedError

    def index(self, pod: Unstructured) -> int:
        """Return a pod's replica number; MOST_REPLICAS if unknown."""
        return number(pod, INDEX)

    def command_missing(self, pod: Unstructured) -> str:
        """Return the fault of an image that lacks this pod's program; '' if that is the probe itself."""
        del pod
        return ""

    def prints_evidence(self, pod: Unstructured) -> bool:
        """Return whether this pod's log contains evidence."""
        del pod
        return True

    def desired_pods(self, raw: Unstructured) -> int:
        """Return how many pods it wants."""
        return _parallelism(self.as_job(raw))

    def shown_by(self, pod: Unstructured) -> bool:
        """Return whether a pod alone proves that an object of this kind created it."""
        del pod
        return True

    def templates(self, raw: Unstructured) -> list[Unstructured]:
        """Return the pod templates of a user's object."""
        return [as_map(as_map(raw.get("spec")).get("template"))]

    def size(self, raw: Unstructured) -> int:
        """Return the number of pods it wants, also for an object converted to a batch/v1 Job (foreign.py, unread)."""
        return self.desired_pods(raw) if raw.get("apiVersion") != "batch/v1" else _parallelism(raw)

    def children(self, name: str) -> tuple[tuple[str, str], ...]:
        """Return further objects, as (kind, name), that a controller creates for it; their events concern it."""
        del name
        return ()

    def refused(self, event: Event) -> str:
        """Return the API server's message if the event reports that pods cannot be created; else ''."""
        if event.reason in {"FailedCreate", "FailedCreatePod"}:
            return event.message.removeprefix("Error creating: ")
        return ""

    def not_known_yet(self, raw: Unstructured) -> bool:
        """Return whether no controller has handled the object yet."""
        return bool(self.operator) and not as_list(as_map(raw.get("status")).get("conditions"))

    def belongs(self, pod: Unstructured, name: str) -> bool:
        """Return whether a pod is this object's, by its labels."""
        key, _, value = self.selector(name).partition("=")
        return labels_of(pod).get(key) == value


def _parallelism(job: Unstructured) -> int:
    return whole(as_map(job.get("spec")).get("parallelism"), 1)


def number(pod: Unstructured, key: str) -> int:
    """Read a small number from an annotation or a label of a pod."""
    meta = as_map(pod.get("metadata"))
    for place in ("annotations", "labels"):
        text = str(as_map(meta.get(place)).get(key) or "")
        if text.isdigit() and len(text) < 7:
            return int(text)
    return MOST_REPLICAS


def whole(value: object, default: int) -> int:
    """Return the value if it is a whole number, else the default."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default


def retold(
    raw: Unstructured, condition_types: Mapping[str, str], *, pods: int, suspended: object, backoff: int = 0
) -> Unstructured:
    """Convert an object with conditions to a batch/v1 Job: `condition_types` maps its types to the Job's."""
    meta, status = as_map(raw.get("metadata")), as_map(raw.get("status"))
    conditions = [
        item | {"type": condition_types[str(item.get("type"))]}
        for item in as_list(status.get("conditions"))
        if str(item.get("type")) in condition_types
    ]
    spec = {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "backoffLimit": backoff,
        "suspend": suspended is True,
    }
    return {
        "metadata": dict(meta),
        "spec": spec,
        "status": {"conditions": conditions, "startTime": status.get("startTime")},
    }
