"""Causes in a user's job outside its pods: its queue, its Service; and the advice with its names.

The wording of a cause depends on the owner of the job: a trial's refers to the profile, a user's job's to the pod.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Iterable
from dataclasses import replace

from ..cluster.client.errors import ClusterError, NotFound
from ..cluster.client.kube import Kube, path
from ..cluster.redact import safe
from ..cluster.unstructured import Unstructured, as_list, as_map, labels_of, name_of, node_of, uid_of
from ..diagnosis.grace_periods import REFUSED_S
from ..diagnosis.state import ERR_PROGRAM, FailureAnalysis, Issue, JobState
from ..diagnosis.symptoms import PodSymptom
from ..trial.launchers import Kind
from ..trial.launchers.queues import GROUP_NAME, VOLCANO
from ..trial.names import SpecError
from ..trial.parts import Queue
from ..trial.pod import LABEL_MANAGED, MANAGED_BY, is_trial
from .creation import QUEUE


def advised(
    cause: FailureAnalysis, namespace: str, job: str, pods: Iterable[Unstructured] = (), *, trial: bool = False
) -> FailureAnalysis:
    """Return a cause with its own advice, or that of its fault, with all names filled in."""
    from seatrial.faults.advice import explain  # noqa: PLC0415 -- only a job with a fault needs the catalogue

    entry = explain(
        cause.fault,
        cause.subject,
        namespace,
        advice={"confirm": cause.confirm, "remedy": cause.remedy},
        names=names_of(cause, job, pods),
        trial=trial,
    )
    suggestion = cause.suggestion or entry["remedy"]
    return replace(cause, title=entry["title"], confirm=entry["confirm"], remedy=entry["remedy"], suggestion=suggestion)


def names_of(cause: FailureAnalysis, job: str, pods: Iterable[Unstructured]) -> dict[str, str]:
    """Return the known values of a command's placeholders in capitals."""
    pod = next((each for each in pods if name_of(each) == (cause.pod or cause.subject)), {})
    containers = as_list(as_map(pod.get("spec")).get("containers"))
    image = str(containers[0].get("image") or "") if containers else ""
    names = {"JOB": job, "POD": name_of(pod) or cause.pod, "NODE": cause.node or node_of(pod), "IMAGE": image}
    names["WORKER"] = cause.subject if cause.fault == "mpi.ssh-failed" else ""
    return {word: name for word, name in names.items() if name}


def queue_of_job(kind: Kind, job: Unstructured, pods: list[Unstructured]) -> tuple[Queue | None, str]:
    """Return the queue that a job requests, by Kueue's label or Volcano's scheduler, and the name of its PodGroup."""
    with contextlib.suppress(SpecError):
        if name := labels_of(job).get(QUEUE):
            return Queue(kind="kueue", name=str(name)), ""
        for each in [*pods, *kind.templates(job)]:
            if group := as_map(as_map(each.get("metadata")).get("annotations")).get(GROUP_NAME):
                return Queue(kind=VOLCANO), str(group)
            if as_map(each.get("spec")).get("schedulerName") == VOLCANO:  # volcano pkg/controllers/podgroup
                return Queue(kind=VOLCANO), f"podgroup-{uid_of(job)}"
    return None, ""


def unsubmitted(kind: Kind, name: str, job: Unstructured) -> PodSymptom | None:
    """Judge a suspended job without a queue's label: nothing will resume it, unless it has an owner."""
    if as_map(kind.as_job(job).get("spec")).get("suspend") is not True or is_trial(job):
        return None
    if as_list(as_map(job.get("metadata")).get("ownerReferences")):  # a JobSet, for example: the JobSet is in the queue
        return None
    inside = any(labels_of(each).get(QUEUE) for each in kind.templates(job))
    text = f"the job is suspended, and no label {QUEUE} names a queue that would start it"
    text += "; its pod template has that label, which Kueue does not read" if inside else ""
    return PodSymptom(
        fault="queue.unnamed",
        issue=Issue("Suspended", text),
        subject=f"{kind.resource}.{kind.group}/{name}",
        expected="a queue, or its owner, resumes the job",
        err_class=ERR_PROGRAM,
        grace_s=REFUSED_S,
    )


def age(job: Unstructured) -> float:
    """Return the seconds since the job's creation, by this machine's clock."""
    try:
        made = datetime.datetime.fromisoformat(str(as_map(job.get("metadata")).get("creationTimestamp")))
        return (datetime.datetime.now(datetime.UTC) - made).total_seconds()
    except (TypeError, ValueError):
        return 0.0


def missing_service(kube: Kube, namespace: str, pods: Iterable[Unstructured]) -> str:
    """Return the Service that names the pods of a job (their subdomain) if it is missing; otherwise ''."""
    for name in dict.fromkeys(str(as_map(pod.get("spec")).get("subdomain") or "") for pod in pods):
        try:
            if name:
                kube.get(path("services", name, namespace=namespace))
        except NotFound:
            return safe(name, 100)
        except ClusterError:
            return ""
    return ""


_NO_NAME = re.compile(
    r"(?i)name or service not known|(?:could not|cannot|failed to) resolve|name resolution|getaddrinfo|gaierror"
    r"|no such host|nodename nor servname|name does not resolve"
)
"""Errors of glibc, musl, c10d, Python, ssh and Go for a name without an address."""


def without_service(
    service: str, state: JobState, cause: FailureAnalysis | None, job: Unstructured | None
) -> FailureAnalysis | None:
    """Return the missing Service as the cause, if there is no other cause, or the cause is name resolution."""
    if state in (JobState.COMPLETE, JobState.CANCELED, JobState.UNKNOWN):
        return cause
    if cause is not None and not (cause.fault == "job.failed" and _NO_NAME.search(cause.observed)):
        return cause
    ours = labels_of(job or {}).get(LABEL_MANAGED) == MANAGED_BY
    gone = "was deleted by others" if ours else "does not exist"
    said = f"; {cause.observed}" if cause is not None else ""
    return FailureAnalysis(
        fault="dns.service-missing",
        subject=service,
        observed=safe(f"the headless Service {service} {gone}: no rank can resolve the name of another{said}", 1200),
        expected="a headless Service with the name of the pods' subdomain",
        err_class=None,
        hopeless=False,
        disrupted=ours,
        pod=cause.pod if cause is not None else "",
        node=cause.node if cause is not None else "",
    )
