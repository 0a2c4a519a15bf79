"""Layer 14 with `--training`: a GPU node can be drained, and no drain interrupts a training job."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checks.framework.evidence import Evidence
from checks.framework.session import Session
from checks.profiles.loader import Profile
from checks.rules.drains import drain_findings, drain_notes
from checks.rules.pool import Pool, resource_of
from checks.rules.visibility import require_seen
from jobs.cluster.client.kube import Kube
from jobs.cluster.facts.drains import read_drains
from jobs.cluster.facts.inventory import Inventory
from jobs.cluster.facts.stack import Listing


@pytest.mark.preflight
@pytest.mark.training
@pytest.mark.check(
    "drains.safe",
    "Drains are possible and respect training jobs",
    by_node=True,
    requires=["nodes.gpu"],
    faults=["drains.under-way", "drains.blocked", "drains.unannounced"],
    needs=["nodes", "pods", "drains", "clusterpolicies"],
)
def test_drains_respect_training_jobs(
    seatrial: Session,
    kube: Kube,
    cluster: Inventory,
    pool: Pool,
    profile: Profile,
    listed: Callable[[str], Listing],
    evidence: Evidence,
) -> None:
    """Compare PodDisruptionBudgets, kured and the GPU operator's upgrades with the pods on the GPU nodes now.

    A budget that allows no disruption blocks every drain of a node with a long-running pod: upgrades never end. On a
    job's pods the same budget makes the drain wait for the job. Jobs without one are evicted by any drain. A node that
    is being drained would interrupt the next job.
    """
    require_seen(evidence, cluster, "pods")
    names = {node.name for node in pool.nodes}
    drains = read_drains(kube, {pod.namespace for pod in cluster.pods if pod.node in names})
    if drains.hidden:
        seatrial.run.not_seen.append(f"budgets and DaemonSets, required by drains.safe: {drains.hidden}")
        evidence.skip(f"budgets and DaemonSets are not seen: {drains.hidden} (seatrial rbac --training)")
    evidence.note(*drain_notes(drains, listed("clusterpolicies")))
    evidence.expect(names)
    evidence.judge(drain_findings(pool.nodes, cluster, drains, resource_of(profile)))
