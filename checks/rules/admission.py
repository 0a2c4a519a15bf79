"""Admission rules: server-side dry runs of the trial's pods; nothing is created.

Rule: the pod is tried as a Pod. A Job is accepted whatever its pods violate, with a `Warning:` header at most, and the
refusals come later as events.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from jobs.cluster.client.errors import ApiError, Forbidden, NotFound
from jobs.cluster.client.kube import Kube, path
from jobs.cluster.unstructured import Unstructured
from jobs.diagnosis.refusals import is_policys, read_refusal
from jobs.run.creation import roles_known
from reports.record import Finding

from .mutations import mutation_findings, mutation_notes
from .quota import Shortage, shortages

GATES = (
    "pod-security.denied",
    "quota.exceeded",
    "limitrange.denied",
    "runtimeclass.missing",
    "priorityclass.missing",
    "serviceaccount.missing",
)
NO_RIGHT = re.compile(r"User \".*\" cannot create resource")
NO_DRY_RUN = re.compile(r"does not support dry run", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What the dry run showed. ``ok`` None: it could not be told."""

    ok: bool | None
    observed: str
    fault: str = ""
    subject: str = ""  # the quota, webhook, policy or class that refused, where the server names it
    notes: tuple[str, ...] = ()
    shortages: tuple[Shortage, ...] = ()
    changes: tuple[Finding, ...] = ()  # what the admitted pod lacks of the one that was asked for
    granted: frozenset[str] = frozenset()  # the resources, as a pod names them, of which quotas grant some
    pod: Unstructured | None = None  # as the cluster would run it: with what webhooks and defaults added


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceState:
    """Whether the namespace can be used. ``ok`` None: it is not seen."""

    ok: bool | None
    observed: str
    fault: str = ""


def namespace_state(kube: Kube) -> NamespaceState:
    """Read the namespace; where that is not granted, try a create in it without doing it."""
    try:
        answer = kube.get(path("namespaces", kube.namespace))
    except NotFound:
        return NamespaceState(ok=False, observed="does not exist", fault="namespace.missing")
    except Forbidden:
        return _namespace_by_dry_run(kube)
    phase = str((answer.get("status") or {}).get("phase") or "unknown")
    if phase == "Terminating" or (answer.get("metadata") or {}).get("deletionTimestamp"):
        return NamespaceState(ok=False, observed="Terminating", fault="namespace.terminating")
    return NamespaceState(ok=phase == "Active" or None, observed=phase)


def _namespace_by_dry_run(kube: Kube) -> NamespaceState:
    metadata = {"name": "seatrial-dry-run", "namespace": kube.namespace}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    try:
        kube.create(path("configmaps", namespace=kube.namespace), body, dry_run=True)
    except NotFound:
        return NamespaceState(ok=False, observed="does not exist", fault="namespace.missing")
    except ApiError as error:
        if "being terminated" in error.message:
            return NamespaceState(ok=False, observed="Terminating", fault="namespace.terminating")
        return NamespaceState(ok=None, observed=f"not seen: {error.message}")
    return NamespaceState(ok=True, observed="Active (a dry-run create is accepted; the object itself is not seen)")


def try_pods(kube: Kube, pod: Unstructured, job: Unstructured, pods: int) -> Admission:
    """Dry-run one pod of the trial, and see whether the quotas have room for all; without that right, try its Job."""
    try:
        answer = kube.create(path("pods", namespace=kube.namespace), pod, dry_run=True)
    except ApiError as error:
        if isinstance(error, Forbidden) and NO_RIGHT.search(error.message):
            return _try_job(kube, job)
        return refusal(error)
    short, notes, granted = shortages(kube, answer.body, pods)
    if short:
        return Admission(
            ok=False,
            observed="no room in a quota",
            fault="quota.exceeded",
            shortages=short,
            notes=notes,
            granted=granted,
            pod=answer.body,
        )
    notes = (*answer.warnings, *notes, *mutation_notes(pod, answer.body))
    if changes := tuple(mutation_findings(pod, answer.body)):
        return Admission(
            ok=False,
            observed="admitted as another pod",
            fault="admission.changed",
            changes=changes,
            notes=notes,
            granted=granted,
            pod=answer.body,
        )
    return Admission(ok=True, observed="admitted (dry run)", notes=notes, granted=granted, pod=answer.body)


def _try_job(kube: Kube, job: Unstructured) -> Admission:
    """Without the right to create pods: try the Job, and read the warnings that PodSecurity sends with it."""
    try:
        place = path("jobs", namespace=kube.namespace, group="batch")
        answer = roles_known(lambda: kube.create(place, job, dry_run=True))
    except ApiError as error:
        return refusal(error)
    note = "no right to create pods: only the Job was tried, so a quota or webhook that refuses its pods is not seen"
    if said := [w for w in answer.warnings if "PodSecurity" in w]:
        return Admission(ok=False, observed=said[0], fault="pod-security.denied", notes=(note,))
    return Admission(ok=True, observed="the Job is admitted (dry run)", notes=(note, *answer.warnings))


def refusal(error: ApiError) -> Admission:
    """Say which of the gates refused. What is no gate's word (a webhook without dry run, a lost server) is not told."""
    read = read_refusal(error.message)
    known = read.fault in GATES or is_policys(error.message)
    if NO_DRY_RUN.search(error.message):
        return Admission(ok=None, observed=error.message, fault="admission.no-dry-run", subject=read.subject)
    if isinstance(error, NotFound) or not (known or isinstance(error, Forbidden)):
        return Admission(ok=None, observed=error.message or error.reason)
    fault = read.fault if read.fault in GATES or read.fault == "namespace.terminating" else "admission.denied"
    return Admission(ok=False, observed=error.message, fault=fault, subject=read.subject, notes=(read.suggestion,))
