"""The trial job: its pods start in the pod spec that training would use, and report."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from checks.framework.evidence import Evidence
from checks.profiles.loader import Profile
from checks.rules.fit import OTHER_KIND, unstarted
from checks.rules.job import START_FAULTS, UNFIT, start_findings
from checks.rules.ranks import node_of
from checks.rules.visibility import require_seen
from jobs.cluster.facts.inventory import Inventory
from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec
from reports.record import Finding


@pytest.mark.acceptance
@pytest.mark.check(
    "job.started",
    "Every pod of the trial is running",
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

    It is the pod that training would use: the same resources, image, tolerations and namespace. The same obstacles stop
    training: no node with the RDMA resource, an image that cannot be pulled, a quota. A manual deletion or a preemption
    is not a fault of the cluster and is not judged.
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
        evidence.advise(trial.analysis.fault, confirm=trial.analysis.confirm, remedy=trial.analysis.remedy)
        for text in (trial.analysis.suggestion, *trial.analysis.events[-3:]):
            if text:
                evidence.note(text)
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "job.nodes",
    "Nodes are unchanged after the trial",
    by_node=True,
    requires=["job.started"],
    faults=["gpu.missing", "gpu.none-allocatable", "nodes.not-ready", "job.disrupted"],
    needs=["nodes"],
)
def test_the_nodes_of_the_trial_are_as_before(
    trial: TrialResult,
    spec: TrialSpec,
    cluster: Inventory,
    kept: Callable[[Collection[str]], tuple[Finding, ...]],
    evidence: Evidence,
) -> None:
    """After the trial its nodes are Ready and offer as many GPUs as before it.

    If a device plugin reports a GPU as unhealthy during the trial, the node offers one less, but the pod keeps running:
    the trial may pass on a node that the next job does not fit.
    """
    require_seen(evidence, cluster, "nodes")
    tried = {node for rank in range(spec.nodes) if (node := node_of(trial, rank))}
    evidence.expect(tried)
    evidence.judge(kept(tried))
