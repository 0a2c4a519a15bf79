"""Layer 17, the bill of materials: installed components and versions, to be compared after an upgrade."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checks.framework.evidence import Evidence
from checks.framework.session import Session
from checks.rules import bom
from checks.rules.api import git_version
from checks.rules.pool import Pool
from jobs.cluster.facts.inventory import Inventory
from jobs.cluster.facts.stack import Listing, policies, toolkit_version
from jobs.run.result import TrialResult
from reports.record import bill
from seatrial.logs.job_document import JobDocument


@pytest.mark.preflight
@pytest.mark.check(
    "bom.platform",
    "Platform components and versions are recorded",
    by_node=True,
    requires=["api.version"],
    unless_failed=["nodes.gpu"],
    needs=["nodes", "pods", "clusterpolicies"],
    tenant=True,
)
def test_platform_is_on_record(
    seatrial: Session, cluster: Inventory, pool: Pool, listed: Callable[[str], Listing], evidence: Evidence
) -> None:
    """Kubernetes, kernels, runtimes, operators and plugins are in the report with their versions.

    Only their presence is judged: after an upgrade two reports show the changes. Components that no pod can see
    (switches, cables: stack.baseline) are listed as not verified. A tenant sees only the version of Kubernetes.
    """
    asked = policies(listed("clusterpolicies"))
    entries = bom.from_api(git_version(seatrial.kube.version()), pool.nodes, cluster, asked)
    if toolkit := toolkit_version(asked, cluster.pods):
        entries["container toolkit"] = toolkit
    entries |= bom.from_profile(seatrial.profile)
    seatrial.run.bom |= entries
    for what, value in bill(entries):
        evidence.add(what, ok=True, observed=value, expected="on record")
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check("bom.runtime", "Runtime components and versions are recorded", requires=["job.started"])
def test_runtime_is_on_record(
    seatrial: Session, trial: TrialResult, nccl_jobs: dict[str, JobDocument | None], evidence: Evidence
) -> None:
    """Driver, CUDA, NCCL, the firmware of the NICs and the images' digests, as the trial's pods saw them.

    A job's versions may differ from those that an operator was configured to install. Only their presence is judged.
    """
    entries = bom.from_trial(trial, nccl_jobs)
    seatrial.run.bom["trial"] = entries
    for what, value in bill(entries):
        evidence.add(what, ok=True, observed=value, expected="on record")
    evidence.verdict()
