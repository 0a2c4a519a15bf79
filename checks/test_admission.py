"""Layer 3, admission: the namespace admits all of the trial's pods."""

from __future__ import annotations

import pytest

from checks.framework.evidence import Evidence
from checks.rules.admission import Admission
from jobs.cluster.client.kube import Kube


@pytest.mark.preflight
@pytest.mark.check(
    "admission.pod",
    "The namespace admits the trial's pods",
    requires=["namespace.ready"],
    faults=[
        "admission.denied",
        "admission.webhook-down",
        "admission.changed",
        "admission.no-dry-run",
        "pod-security.denied",
        "quota.exceeded",
        "quota.in-use",
        "limitrange.denied",
        "runtimeclass.missing",
        "priorityclass.missing",
        "serviceaccount.missing",
    ],
    needs=["dry-run", "quotas"],
)
def test_namespace_admits_the_pods(kube: Kube, admission: Admission, evidence: Evidence) -> None:
    """A server-side dry run of the trial's pod is admitted as it is, and the quotas have room for all of its pods.

    It is tried as a Pod, because a Job is accepted even if its pods violate a policy. A refusal is usually a Pod
    Security level that forbids RDMA's capabilities, a policy webhook, or a quota too small for the job. A webhook that
    removes what the profile requests (a device, a capability, a network) is found here, too. A quota that is large
    enough and in use by other pods is not at fault: the check is then inconclusive.
    """
    evidence.note(*admission.notes)
    evidence.advise(admission.fault, confirm=admission.confirm, remedy=admission.remedy)
    for short in admission.shortages:
        evidence.add(
            f"resourcequota/{short.quota}",
            ok=None if short.in_use else False,
            observed=f"{short.resource}: {short.left}",
            expected=short.needed,
            fault=short.fault,
        )
    evidence.put(admission.changes)
    if not admission.shortages and not admission.changes:
        evidence.add(
            admission.subject or kube.namespace,
            ok=admission.ok,
            observed=admission.observed,
            expected="admitted",
            fault=admission.fault,
        )
    evidence.verdict()
