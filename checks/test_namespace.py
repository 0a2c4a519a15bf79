"""Layers 2 and 3, rights and admission: the namespace lets us do what training does, and would take the pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from checks.judgement import rights
from checks.judgement.admission import namespace_state, try_pods
from jobs.manifests import build, dry_pod
from jobs.probes import files

if TYPE_CHECKING:
    from checks.evidence import Evidence
    from jobs.kube import Kube
    from jobs.trial import TrialSpec


@pytest.mark.preflight
@pytest.mark.check(
    "rights.run", "We may do what the trial needs", requires=["api.version"], faults=["rights.missing"]
)
def test_every_right_of_the_run_is_granted(kube: Kube, evidence: Evidence) -> None:
    """Every verb that the trial sends in this namespace is allowed (SelfSubjectAccessReview, one by one).

    A right that is missing shows now, and not when half of the trial has been created. Usually the Role was bound in
    another namespace or to another account. What only makes more visible (nodes, other pods) is noted, not asked for.
    """
    evidence.expect(right.subject(kube.namespace) for right in rights.RUN)
    for right, answer in rights.ask(kube, rights.RUN):
        evidence.compare(right.subject(kube.namespace), observed=_said(answer.allowed, answer.reason),
                         expected="allowed", fault="rights.missing", ok=answer.allowed)  # fmt: skip
    for right, answer in rights.ask(kube, rights.SIGHT):
        if not answer.allowed:
            evidence.note(f"not granted: {right.subject(kube.namespace)}; what needs it will say that it cannot tell")
    evidence.verdict()


@pytest.mark.preflight
@pytest.mark.check(
    "rights.training", "A training job may be submitted, watched and cancelled", requires=["rights.run"],
    faults=["rights.missing"],
)  # fmt: skip
def test_every_right_of_a_training_job_is_granted(kube: Kube, evidence: Evidence) -> None:
    """Every verb that submitting, watching and cancelling a training job takes is allowed in this namespace.

    The account that runs the trial should be the one that trains; a right that is missing here is a support call on the
    first day. Grant it in the same Role.
    """
    evidence.expect(right.subject(kube.namespace) for right in rights.TRAINING)
    for right, answer in rights.ask(kube, rights.TRAINING):
        evidence.compare(right.subject(kube.namespace), observed=_said(answer.allowed, answer.reason),
                         expected="allowed", fault="rights.missing", ok=answer.allowed)  # fmt: skip
    evidence.verdict()


def _said(allowed: bool, reason: str) -> str:
    return "allowed" if allowed else f"denied: {reason}" if reason else "denied"


@pytest.mark.preflight
@pytest.mark.check(
    "namespace.ready", "The namespace exists and is not being deleted", requires=["rights.run"],
    faults=["namespace.missing", "namespace.terminating"],
)  # fmt: skip
def test_namespace_is_ready(kube: Kube, evidence: Evidence) -> None:
    """The namespace of the trial exists and is not terminating.

    In a namespace that is being deleted every create is refused, which later looks like a missing right. One that hangs
    in that state waits for a finalizer whose controller is gone.
    """
    found = namespace_state(kube)
    evidence.add(kube.namespace, ok=found.ok, observed=found.observed, expected="Active", fault=found.fault)
    evidence.verdict()


@pytest.mark.preflight
@pytest.mark.check(
    "admission.pod", "The namespace would admit the trial's pods", requires=["namespace.ready"],
    faults=["admission.denied", "pod-security.denied", "quota.exceeded", "limitrange.denied", "runtimeclass.missing",
            "priorityclass.missing"],
)  # fmt: skip
def test_namespace_admits_the_pods(kube: Kube, spec: TrialSpec, evidence: Evidence) -> None:
    """A server-side dry run of the trial's pod is admitted, and the quotas have room for all of its pods.

    The pod is tried as a Pod, because a Job is accepted whatever its pods violate. A refusal is usually a Pod Security
    level that forbids what RDMA needs, a policy webhook, or a quota that has room for half of the job.
    """
    found = try_pods(kube, dry_pod(spec), build(spec, files()).job, pods=spec.nodes)
    for text in found.notes:
        evidence.note(text)
    for short in found.shortages:
        evidence.add(f"resourcequota/{short.quota}", ok=False, observed=f"{short.resource}: {short.left} left",
                     expected=f"{short.needed} for {spec.nodes} pods", fault=found.fault)  # fmt: skip
    if not found.shortages:
        evidence.add(found.subject or kube.namespace, ok=found.ok, observed=found.observed, expected="admitted",
                     fault=found.fault)  # fmt: skip
    evidence.verdict()
