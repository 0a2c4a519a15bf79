"""Observability rules: a GPU metrics exporter on every GPU node, and a scrape configuration for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jobs.cluster.facts.inventory import Node, PodUse
from jobs.cluster.facts.stack import Listing
from jobs.cluster.unstructured import Unstructured, as_list, as_map
from reports.record import Finding

from .findings import compared, failed, passed
from .stack import operands

EXPORTERS = ("dcgm-exporter", "device-metrics-exporter")


def exporter_findings(nodes: Sequence[Node], pods: Iterable[PodUse]) -> Iterator[Finding]:
    """Judge the exporter on each GPU node."""
    exporters = operands(pods).get("dcgm-exporter", {})
    for node in nodes:
        here = exporters.get(node.name, [])
        ready = any(pod.ready for pod in here)
        why = f"{here[0].name} is not ready ({here[0].trouble or here[0].phase})" if here else "no exporter runs here"
        observed = "an exporter is ready" if ready else why
        expected = "a ready exporter of GPU metrics (profile)"
        yield compared(node.name, ready, observed, expected, "observability.dcgm-missing")


def monitor_finding(monitors: Listing) -> Finding:
    """Judge whether a ServiceMonitor selects the exporter, by its name or its selector."""
    expected = "a ServiceMonitor of the GPU exporter (profile)"
    named = [_name(item) for item in monitors.items if _means_exporter(item)]
    if named:
        return passed(f"servicemonitor/{named[0]}", "there", expected)
    why = f"none of {len(monitors.items)} ServiceMonitors" if monitors.served else "no Prometheus Operator installed"
    return failed("servicemonitors", why, expected, "observability.servicemonitor-missing")


def _name(item: Unstructured) -> str:
    meta = as_map(item.get("metadata"))
    return f"{meta.get('namespace')}/{meta.get('name')}"


def _means_exporter(item: Unstructured) -> bool:
    selector = as_map(as_map(item.get("spec")).get("selector"))
    labels = as_map(selector.get("matchLabels"))
    names = [_name(item), *map(str, labels.values())]
    names += [str(value) for entry in as_list(selector.get("matchExpressions")) for value in entry.get("values") or []]
    return any(exporter in word for word in names for exporter in EXPORTERS)
