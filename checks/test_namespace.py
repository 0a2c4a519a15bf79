"""Layer 2, permissions, and the namespace: training's permissions are granted, and a tenant has no more."""

from __future__ import annotations

import pytest

from checks.framework.evidence import Evidence
from checks.framework.session import Session
from checks.profiles.loader import Profile
from checks.rules import rights
from jobs.cluster.client.kube import Kube
from jobs.cluster.facts.namespace import namespace_state
from jobs.trial.spec import TrialSpec


@pytest.mark.preflight
@pytest.mark.check(
    "rights.run",
    "All permissions for the trial are granted",
    requires=["api.version"],
    faults=["rights.missing"],
    needs=["run"],
)
def test_every_right_of_the_run_is_granted(
    seatrial: Session, answers: rights.Answers, spec: TrialSpec, evidence: Evidence
) -> None:
    """Every verb that the trial sends in this namespace is allowed (SelfSubjectAccessReview, one by one).

    A missing permission is found now, and not after half of the trial was created. Usually the Role was bound in
    another namespace or to another account. Permissions that only add visibility (nodes, other pods) are noted, not
    required.
    """
    namespace = spec.namespace
    needed = rights.wanted_by(["run"], spec=spec)
    evidence.expect(right.subject(namespace) for right in needed)
    evidence.put(rights.findings(answers.ask(needed), namespace))
    more = seatrial.needs - {"run", "training"} - rights.unused(spec, seatrial.profile)
    sight = rights.wanted_by(more, tenant=seatrial.tenant)
    for right, answer in answers.ask(sight):
        if not answer.allowed:
            evidence.note(
                f"not granted: {right.subject(namespace)}; the checks that need it report it. {rights.ADVICE}"
            )
    evidence.verdict()


@pytest.mark.preflight
@pytest.mark.check(
    "rights.training",
    "All permissions for training jobs are granted",
    requires=["rights.run"],
    faults=["rights.missing"],
    needs=["training"],
)
def test_every_right_of_a_training_job_is_granted(answers: rights.Answers, spec: TrialSpec, evidence: Evidence) -> None:
    """Every verb for submitting, watching and cancelling a training job is allowed in this namespace.

    The account of the trial should be the one that trains; a permission missing here stops users on the first day.
    Grant it in the same Role.
    """
    needed = rights.wanted_by(["training"], spec=spec)
    evidence.expect(right.subject(spec.namespace) for right in needed)
    evidence.judge(rights.findings(answers.ask(needed), spec.namespace))


@pytest.mark.preflight
@pytest.mark.check(
    "rights.least",
    "Tenant permissions are limited to the namespace",
    requires=["rights.run"],
    faults=["rights.excessive"],
)
def test_a_tenant_may_not_reach_beyond_its_namespace(
    seatrial: Session, answers: rights.Answers, profile: Profile, evidence: Evidence
) -> None:
    """A tenant's account may not read Secrets everywhere, run commands in foreign pods or change nodes.

    Only for a tenant (--tenant, or tenant: true in the profile). It is judged only if the profile requires it
    (least_rights: true): an administrator's trial has these permissions.
    """
    if not seatrial.tenant and not profile.least_rights:
        evidence.skip("this is not a tenant's run, and the profile does not require least_rights")
    excess = answers.ask(rights.EXCESSIVE)
    evidence.judge(rights.excess(excess, held=profile.least_rights))


@pytest.mark.preflight
@pytest.mark.check(
    "namespace.ready",
    "The namespace exists and is not terminating",
    requires=["rights.run"],
    faults=["namespace.missing", "namespace.terminating"],
    needs=["namespace"],
)
def test_namespace_is_ready(kube: Kube, evidence: Evidence) -> None:
    """The namespace of the trial exists and is not terminating.

    In a terminating namespace every create is rejected, which later looks like a missing permission. A namespace stuck
    in that state waits for a finalizer, and its controller is gone.
    """
    state = namespace_state(kube)
    evidence.add(kube.namespace, ok=state.ok, observed=state.observed, expected="Active", fault=state.fault)
    evidence.verdict()
