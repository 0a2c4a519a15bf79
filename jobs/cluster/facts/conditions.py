"""Node problems reported by agents other than the kubelet: conditions and Warning events.

node-problem-detector, NVSentinel, gpud and the clouds' agents set a condition to True for a problem (GpuUnhealthy,
KernelDeadlock, GPUMissing). The agent of EKS and node readiness controllers set one to False
(AcceleratedHardwareReady). Only the name shows the polarity; no field does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..client.errors import ClusterError
from ..client.kube import Kube, path
from ..redact import safe
from ..unstructured import Unstructured, by_type
from .events import read_events

KUBELETS = frozenset({"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})
"""Kubernetes' own conditions (kubernetes.io, Node Status); judged as readiness and pressure."""
OURS = "SeatrialFailed"
"""Conditions of ``seatrial mark`` from an earlier run: not evidence of this one."""
_POSITIVE = re.compile(
    r"(?<![Nn]ot)(?<![Uu]n)(?:Ready|[Hh]ealthy|OK|Ok|Available|Passed|Valid|Succeeded|Present)$"
    r"|Is(?!Not|Un|Down|Degraded|Missing|Broken|Lost)[A-Z]\w*$"  # EtcdIsVoter of k3s and RKE2
)
_MOST_EVENTS = 20


@dataclass(frozen=True, slots=True)
class Report:
    """An agent's report about a node: `kind` names a condition or an event's reason."""

    node: str
    kind: str
    text: str
    certain: bool = True  # False: the condition is Unknown, for example because its agent is gone

    @property
    def about(self) -> str:
        """The text of the report without the node's name, which may contain any word."""
        said = f"{self.kind} {self.text}"
        if self.node not in said:  # avoids compiling a pattern for each node
            return said
        return re.sub(rf"(?<![\w-]){re.escape(self.node)}(?![\w-])", "", said)


def is_unhealthy(kind: str, status: str) -> bool:
    """Return whether a condition of this type and status reports a problem; Unknown reports one of a positive type."""
    return status != "True" if _POSITIVE.search(kind) else status == "True"


def reported(node: str, status: Unstructured) -> Iterator[Report]:
    """Yield the conditions of a node other than Kubernetes' own that report a problem."""
    for kind, condition in sorted(by_type(status).items()):
        if kind in KUBELETS or kind == OURS or not is_unhealthy(kind, str(condition.get("status"))):
            continue
        said = f"{condition.get('reason') or ''}: {condition.get('message') or ''}".strip(": ")
        text = f"{kind}={condition.get('status')}" + (f" ({said})" if said else "")
        yield Report(node, safe(kind, 100), safe(text, 300), certain=condition.get("status") in ("True", "False"))


def warned(kube: Kube) -> tuple[list[Report], str]:
    """Return the newest Warning event of each reason about nodes, and why none can be read.

    A node's events are in the namespace default; the API server keeps them for an hour (--event-ttl).
    """
    where = path("events", namespace="default")
    try:
        items, _ = kube.list(where, fieldSelector="involvedObject.kind=Node,type=Warning")
    except ClusterError as error:
        return [], safe(error, 300)
    newest = {(event.name, event.reason): event for event in read_events(items)}
    found = [each for each in newest.values() if each.warning and each.kind == "Node"][-_MOST_EVENTS:]
    return [Report(each.name, each.reason, safe(f"event {each.reason} ({each.message})", 300)) for each in found], ""
