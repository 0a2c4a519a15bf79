"""A trial on CPUs alone (gpu.per_node: 0): nodes for its pods, and an all_reduce by gloo instead of NCCL's.

It tests the prerequisites of training (names, ports, packets, queue, storage) on a cluster without GPUs. It proves
nothing about GPUs and their fabric, and the verdict says so.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from checks.framework.evidence import Evidence
from checks.framework.session import Session
from checks.profiles.loader import Profile
from checks.rules.bandwidth import correctness_findings
from checks.rules.capacity import room_findings, rooms, shortage
from checks.rules.collectives import analysed, completed_findings, over_all_nodes, put_with_steps
from checks.rules.nodes import node_findings
from checks.rules.pool import Pool
from checks.rules.visibility import require_seen, skip_on_demand
from jobs.cluster.facts.inventory import Inventory
from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec
from seatrial.logs.job_document import JobDocument

Jobs = Mapping[str, JobDocument | None]
pytestmark = pytest.mark.cpu


@pytest.mark.preflight
@pytest.mark.check(
    "cpu.nodes",
    "Enough schedulable nodes exist and are Ready",
    by_node=True,
    requires=["api.version"],
    faults=["nodes.none", "nodes.too-few", "nodes.not-ready", "nodes.pressure", "nodes.tainted", "nodes.cordoned"],
    needs=["nodes"],
    proven_by=["job.started"],
)
def test_nodes_are_ready(
    cluster: Inventory, pool: Pool, profile: Profile, spec: TrialSpec, seatrial: Session, evidence: Evidence
) -> None:
    """Enough nodes for the trial accept its pod, and every node except the control plane's is Ready.

    Taints and cordons matter only if too few nodes remain. A node that is not Ready runs no pod: check its kubelet, its
    container runtime and its disk.
    """
    require_seen(evidence, cluster, "nodes")
    skip_on_demand(evidence, len(pool.nodes), spec, profile.launch)
    evidence.expect(node.name for node in pool.nodes)
    evidence.note(*pool.notes())
    judged = list(node_findings(cluster, pool, profile, seatrial.options.nodes, spec.node_names))
    found = rooms(cluster, pool.nodes, spec)
    kept_away = {finding.subject: finding for finding in room_findings(found, spec) if finding.ok is not True}
    evidence.put(kept_away.get(finding.subject, finding) if finding.ok else finding for finding in judged)
    if all(finding.subject != "cluster" for finding in judged):
        evidence.put(shortage(found, pool, spec))
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "cpu.all-reduce",
    "The gloo all_reduce over all nodes completes",
    requires=["rendezvous.port"],
    unless_failed=["network.mtu"],
    faults=["nccl.hang", "nccl.crash", "nccl.program"],
)
def test_the_all_reduce_of_cpus_ends(trial: TrialResult, spec: TrialSpec, nccl_jobs: Jobs, evidence: Evidence) -> None:
    """The benchmark's all_reduce ends on every node and prints its whole table, by gloo over the pod network.

    It is the GPUs' program with another library: it proves that the ranks connect and communicate, but nothing about
    the fabric's speed or transport.
    """
    evidence.expect(over_all_nodes(spec).values())
    put_with_steps(evidence, completed_findings(trial, spec, nccl_jobs), nccl_jobs)
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "cpu.sums", "Sums over all CPU ranks are correct", requires=["cpu.all-reduce"], faults=["nccl.wrong-results"]
)
def test_the_sums_of_cpus_are_right(nccl_jobs: Jobs, evidence: Evidence) -> None:
    """Every row of the table was checked and holds no wrong element (#wrong is 0; N/A is not 0).

    Incorrect sums without a GPU come from a machine's memory or its network: training is not possible.
    """
    put_with_steps(evidence, correctness_findings(analysed(nccl_jobs)), nccl_jobs)
    evidence.verdict()
