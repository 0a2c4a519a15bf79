"""The launcher's interface of a kind of object that starts pods.

Each kind says how it is written (suspended, from the frozen spec), which pods are its own and which rank each is, and
reports its state in the words of a batch/v1 Job: so that one diagnosis, and one way to wait, serve all.
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
    """One kind of object; a subclass fills in the differences."""

    name = ""  # the word of the profile and the command line
    group, version, resource, kind = "", "", "", ""
    operator = ""  # the controller behind it, where it is not Kubernetes' own
    container = CONTAINER
    uses_service = True  # our own headless Service names the pods; else the operator's does
    multiplexed = False  # one pod prints the evidence of all ranks

    # -- writing ---------------------------------------------------------------------------------------------------

    def job(self, spec: JobSpec) -> Unstructured:
        """Write the object, suspended."""
        raise NotImplementedError

    def for_other_version(self, job: Unstructured, refusal: str) -> Unstructured | None:
        """The same for an older or newer operator that does not know a field, by the API server's refusal."""
        del job, refusal
        return None

    def resume(self) -> Unstructured:
        """The merge patch that lets it go."""
        return {"spec": {"suspend": False}}

    def service_selector(self, spec: JobSpec) -> dict[str, str]:
        """Which pods our Service names; empty where the operator makes one."""
        return {LABEL_RUN: spec.run_id} if self.uses_service else {}

    def left_out(self, spec: JobSpec) -> tuple[str, ...]:
        """Requests of the spec that this kind cannot express, as text."""
        del spec
        return ()

    def meta(self, spec: JobSpec) -> Unstructured:
        """Name and labels, the queue's among them."""
        own_labels = labels(spec)
        if spec.queue is not None and spec.queue.kind == "kueue":
            own_labels |= {"kueue.x-k8s.io/queue-name": spec.queue.name}
            if spec.queue.priority_class:
                own_labels |= {"kueue.x-k8s.io/priority-class": spec.queue.priority_class}
        return {"name": spec.job_name, "namespace": spec.namespace, "labels": own_labels}

    # -- reading ---------------------------------------------------------------------------------------------------

    def selector(self, name: str) -> str:
        """The label selector of all its pods."""
        raise NotImplementedError

    def as_job(self, raw: Unstructured) -> Unstructured:
        """Convert the object to a batch/v1 Job."""
        raise NotImplementedError

    def index(self, pod: Unstructured) -> int:
        """Return a pod's replica number; MOST_REPLICAS if unknown."""
        return number(pod, INDEX)

    def command_missing(self, pod: Unstructured) -> str:
        """The fault of an image that lacks this pod's program, if that is not the probe itself."""
        del pod
        return ""

    def prints_evidence(self, pod: Unstructured) -> bool:
        """Return whether this pod's log carries evidence."""
        del pod
        return True

    def desired_pods(self, raw: Unstructured) -> int:
        """How many pods it wants."""
        return _parallelism(self.as_job(raw))

    def shown_by(self, pod: Unstructured) -> bool:
        """Return whether a pod that belongs shows by itself that an object of this kind has made it."""
        del pod
        return True

    def templates(self, raw: Unstructured) -> list[Unstructured]:
        """The pod templates of a user's object."""
        return [as_map(as_map(raw.get("spec")).get("template"))]

    def size(self, raw: Unstructured) -> int:
        """The number of pods it wants, also for an object converted to a batch/v1 Job (foreign.py, unread)."""
        return self.desired_pods(raw) if raw.get("apiVersion") != "batch/v1" else _parallelism(raw)

    def children(self, name: str) -> tuple[tuple[str, str], ...]:
        """Further objects, as (kind, name), that a controller creates for it, with events that mention it."""
        del name
        return ()

    def refused(self, event: Event) -> str:
        """The API server's words where an event says that pods cannot be created; else nothing."""
        if event.reason in {"FailedCreate", "FailedCreatePod"}:
            return event.message.removeprefix("Error creating: ")
        return ""

    def not_known_yet(self, raw: Unstructured) -> bool:
        """Return whether no controller has ever touched the object."""
        return bool(self.operator) and not as_list(as_map(raw.get("status")).get("conditions"))

    def belongs(self, pod: Unstructured, name: str) -> bool:
        """Return by its labels whether a pod is this object's."""
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
    """A whole number that may be missing."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default


def retold(
    raw: Unstructured, condition_types: Mapping[str, str], *, pods: int, suspended: object, backoff: int = 0
) -> Unstructured:
    """Write an object with conditions as a batch/v1 Job: `condition_types` maps its types to the Job's."""
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
