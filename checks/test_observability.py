"""Layer 18, observability: the metrics needed to diagnose a slow job later."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checks.framework.evidence import Evidence
from checks.profiles.loader import Profile
from checks.rules.observability import exporter_findings, monitor_finding
from checks.rules.pool import Pool
from checks.rules.visibility import require_listed, require_seen
from jobs.cluster.facts.inventory import Inventory
from jobs.cluster.facts.stack import Listing


@pytest.mark.preflight
@pytest.mark.check(
    "observability.exporter",
    "GPU metrics are exported on every node",
    by_node=True,
    requires=["nodes.gpu"],
    unless_failed=["stack.pods"],
    faults=["observability.dcgm-missing"],
    needs=["nodes", "pods"],
)
def test_gpu_metrics_are_exported(cluster: Inventory, pool: Pool, profile: Profile, evidence: Evidence) -> None:
    """An exporter of GPU metrics (dcgm-exporter, AMD's device metrics exporter) is ready on every GPU node.

    Without it a throttled GPU, or one with Xids, is not noticed until a job stalls. Only if the profile requires it
    (observability.dcgm_exporter).
    """
    if not profile.observability.dcgm_exporter:
        evidence.skip("the profile does not require an exporter of GPU metrics")
    require_seen(evidence, cluster, "pods")
    evidence.expect(node.name for node in pool.nodes)
    evidence.judge(exporter_findings(pool.nodes, cluster.pods))


@pytest.mark.preflight
@pytest.mark.check(
    "observability.scraped",
    "Prometheus scrapes the GPU metrics exporter",
    requires=["api.version"],
    unless_failed=["observability.exporter"],
    faults=["observability.servicemonitor-missing"],
    needs=["servicemonitors"],
)
def test_gpu_metrics_are_scraped(listed: Callable[[str], Listing], profile: Profile, evidence: Evidence) -> None:
    """A ServiceMonitor makes Prometheus scrape the exporter of GPU metrics.

    Without scraping, dashboards are empty when they are needed. Only if the profile requires it
    (observability.service_monitor).
    """
    if not profile.observability.service_monitor:
        evidence.skip("the profile does not require a ServiceMonitor")
    evidence.judge([monitor_finding(require_listed(evidence, listed("servicemonitors"), "ServiceMonitors"))])
