"""How kubelets are configured, as they say themselves (/configz), through the API server.

That takes the right to get nodes/proxy, which opens all of a kubelet's API: it is used where an account has it, and
never requested (kubernetes.io, "Kubelet authentication/authorization").
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ..client.errors import ClusterError
from ..client.kube import Kube, path
from ..redact import safe
from ..unstructured import as_map

_AT_ONCE = 8
_DEADLINE_S = 10.0
"""Seconds for a kubelet's answer: one that does not answer is not waited for longer."""


class TopologyManager(NamedTuple):
    """A kubelet's Topology Manager; `problem` says why it is not known."""

    policy: str = ""
    scope: str = ""
    problem: str = ""


def topology_managers(kube: Kube, nodes: Iterable[str]) -> dict[str, TopologyManager]:
    """Ask these nodes' kubelets."""

    def one(node: str) -> TopologyManager:
        try:
            # No object of Kubernetes' API: it has no kind.
            answer = kube.request("GET", f"{path('nodes', node)}/proxy/configz", deadline_s=_DEADLINE_S).body
        except ClusterError as error:
            return TopologyManager(problem=safe(error, 200))
        config = as_map(as_map(answer).get("kubeletconfig"))
        policy, scope = (safe(config.get(f"topologyManager{key}") or "", 60) for key in ("Policy", "Scope"))
        return TopologyManager(policy, scope, "" if policy and scope else "its /configz does not report it")

    names = list(nodes)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))
