"""The result of a trial that could not be created: who refused which object, or which operator is missing."""

from __future__ import annotations

from ..cluster.client.errors import ApiError, Forbidden, NotFound
from ..cluster.client.kube import Kube
from ..cluster.redact import safe
from ..diagnosis.refusals import is_policys, read_refusal
from ..diagnosis.state import ERR_INFRA, ERR_PROGRAM, FailureAnalysis, JobState
from ..trial.api_discovery import missing_fault, serving
from ..trial.launchers import Kind
from .result import TrialResult


def refused(name: str, error: ApiError, seconds: float, kind: Kind) -> TrialResult:
    """Say which object was refused, and by whom: a trial is a job and what belongs to it."""
    read = read_refusal(error.message)
    what = safe(error.refused, 300) or f"{kind.kind} {name}"
    by = f", refused by {read.subject}" if "/" in read.subject else ""
    analysis = FailureAnalysis(
        fault=read.fault,
        subject=read.subject if read.subject != "pod" else what.lower().replace(" ", "/"),
        observed=f"{what} could not be created{by}: {error}",
        expected=f"the API server accepts the {what.split()[0]}",
        suggestion=read.suggestion,
        # An object that is not valid in itself is ours, or the profile's; no gate of the cluster has spoken.
        err_class=ERR_INFRA if isinstance(error, Forbidden) or is_policys(error.message) else ERR_PROGRAM,
    )
    return TrialResult(job=name, state=JobState.ERROR, analysis=analysis, seconds=seconds, launcher=kind.name)


def not_served(kube: Kube, name: str, kind: Kind, error: NotFound) -> TrialResult:
    """Say that the API server does not know the kind that was to be created; raise `error` where it does."""
    served = serving(kube, kind.group, kind.resource)
    fault = "" if served.not_seen else missing_fault(kind, served)
    if not fault:
        raise error
    elsewhere = f", but in {', '.join(served.versions)}" if served.versions else ""
    analysis = FailureAnalysis(
        fault=fault,
        subject=f"{kind.resource}.{kind.group}",
        observed=f"{kind.kind} is not served in {kind.group}/{kind.version}{elsewhere}",
        expected=f"{kind.group}/{kind.version} serves {kind.resource}",
        suggestion=f"Install {kind.operator}, or choose another launcher (--launcher indexed needs no operator).",
        err_class=ERR_INFRA,
    )
    return TrialResult(job=name, state=JobState.ERROR, analysis=analysis, launcher=kind.name)
