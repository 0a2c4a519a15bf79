"""The trial job: its pods start in the pod spec that training would use, and report."""

from __future__ import annotations

import pytest

from checks.framework.evidence import Evidence
from checks.profiles.loader import Profile
from checks.rules.fit import OTHER_KIND, unstarted
from checks.rules.job import START_FAULTS, UNFIT, start_findings
from jobs.cluster.facts.inventory import Inventory
from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec


@pytest.mark.acceptance
@pytest.mark.check(
    "job.started",
    "Every pod of the trial starts and reports",
    requires=["rights.run", "namespace.ready", "queue.admitted"],
    unless_failed=[*UNFIT, "storage.claims"],
    needs=["run"],
    faults=[*START_FAULTS, OTHER_KIND],
)
def test_every_pod_of_the_trial_starts(
    trial: TrialResult,
    spec: TrialSpec,
    profile: Profile,
    cluster: Inventory,
    resources_here: frozenset[str],
    evidence: Evidence,
) -> None:
    """Every pod of the two-node trial is scheduled, pulls its image, starts and sends its evidence.

    It is the pod that training would use: the same resources, image, tolerations and namespace. What stops it here
    stops training: no node with the RDMA resource, an image that cannot be pulled, a quota. What a person or a
    preemption did to it is not the cluster's fault and is not judged.
    """
    if why := unstarted(trial, spec, cluster, profile, resources_here):
        evidence.add(trial.job, ok=None, observed=why, fault=OTHER_KIND)
    else:
        evidence.put(start_findings(trial, spec))
    for number, why in enumerate(trial.interrupted, 1):
        evidence.note(f"this is attempt {trial.attempts}: attempt {number} was interrupted: {why}")
    for text in trial.warnings:
        evidence.note(text)
    if trial.analysis:
        for text in (trial.analysis.suggestion, *trial.analysis.events[-3:]):
            if text:
                evidence.note(text)
    evidence.verdict()
