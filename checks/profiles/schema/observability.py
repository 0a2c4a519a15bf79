"""Profile section `observability`: the metrics that the platform must collect of its GPUs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservabilitySection:
    """What must be there to be looked at when a job is slow."""

    dcgm_exporter: bool = False  # an exporter of GPU metrics, ready on every GPU node
    service_monitor: bool = False  # and a ServiceMonitor of Prometheus Operator that has it scraped
