"""The outcome of a trial job, in its users' terms.

The states and the failure analysis are those of NVIDIA TAO's Kubernetes document (Pending, Running, Complete, Error,
Canceled, Unknown; ERR_PROGRAM, ERR_INFRA, suggestion, readiness_issue, job_failure_by_node_event). ERR_INFRA attributes
the failure to the cluster, ERR_PROGRAM to the program or its image; an external disruption has neither (None).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

ERR_PROGRAM = "ERR_PROGRAM"
ERR_INFRA = "ERR_INFRA"


class JobState(enum.StrEnum):
    """The state of a job; Complete, Error and Canceled are final."""

    PENDING = "Pending"
    RUNNING = "Running"
    COMPLETE = "Complete"
    ERROR = "Error"
    CANCELED = "Canceled"
    UNKNOWN = "Unknown"

    @property
    def final(self) -> bool:
        """Whether the state is final."""
        return self in {JobState.COMPLETE, JobState.ERROR, JobState.CANCELED}


@dataclass(frozen=True, slots=True)
class Issue:
    """Why a replica is not ready: Kubernetes' own reason and message."""

    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.message else self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One rank of the job; `pod` is empty if none exists (yet).

    `since`: the start of its current state (RFC 3339); `gpus`: those that its pod requests, which it holds while
    `held`.
    """

    index: int
    pod: str = ""
    node: str = ""
    phase: str = "Pending"
    readiness_issue: Issue | None = None
    exit_code: int | None = None
    fault: str | None = None
    since: str = ""
    gpus: int = 0
    held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureAnalysis:
    """The failure of a job: one cause, never its consequences.

    `suggestion` explains it here; `confirm` and `remedy` are the variant's, which take precedence over the fault's.
    `hopeless`: waiting cannot help after `grace_s`. `disrupted`: others interrupted the job, which shows nothing about
    the cluster. `inferred`: no pod has reported it itself (yet). `pod` and `node`: the place of the failure.
    """

    fault: str
    subject: str
    observed: str
    expected: str
    suggestion: str = ""
    confirm: str = ""
    remedy: str = ""
    err_class: str | None = None
    events: tuple[str, ...] = ()
    job_failure_by_node_event: tuple[Mapping[str, str], ...] = ()
    disrupted: bool = False
    hopeless: bool = True
    inferred: bool = False
    grace_s: float = 0.0
    pod: str = ""
    node: str = ""
    title: str = ""


class Seen(NamedTuple):
    """One poll of a job: `standing` is the state of its ranks, in lines, `not_seen` the unreadable parts."""

    state: JobState
    replicas: tuple[Replica, ...]
    analysis: FailureAnalysis | None
    standing: tuple[str, ...] = ()
    not_seen: tuple[str, ...] = ()


INTERRUPTED = "Interrupted externally: this shows nothing about the cluster. Run it again."
UNDISTURBED = "the pods are not preempted, drained, evicted or deleted"


def interrupted(
    subject: str, observed: str, *, expected: str = UNDISTURBED, suggestion: str = INTERRUPTED, grace_s: float = 0.0
) -> FailureAnalysis:
    """Return the analysis of an externally interrupted job: without a class, to be retried."""
    return FailureAnalysis(
        fault="job.disrupted",
        subject=subject,
        observed=observed,
        expected=expected,
        suggestion=suggestion,
        disrupted=True,
        grace_s=grace_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """The cluster's facts about one pod of the trial: node, images, pull times.

    `images` maps a container to (image, imageID), `pull_seconds` an image to its pull time. `created` and `scheduled`:
    when the pod was created and bound to its node. `began` and `ended`: first start and last end of its containers, as
    reported by the kubelet. All are RFC 3339, empty if not reported.
    """

    index: int
    name: str
    node: str = ""
    uid: str = ""
    images: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    pull_seconds: Mapping[str, float] = field(default_factory=dict)  # by image; 0 if it was on the node already
    created: str = ""
    scheduled: str = ""
    began: str = ""
    ended: str = ""
