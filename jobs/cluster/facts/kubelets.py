"""The configuration of kubelets, as they report it (/configz) through the API server.

This needs the permission to get nodes/proxy, which opens the whole API of a kubelet. It is used where an account has
it, and never requested (kubernetes.io, "Kubelet authentication/authorization").
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
"""Time limit of a kubelet's response, in seconds."""


class TopologyManager(NamedTuple):
    """A kubelet's Topology Manager; `problem` says why it is unknown."""

    policy: str = ""
    scope: str = ""
    problem: str = ""


def topology_managers(kube: Kube, nodes: Iterable[str]) -> dict[str, TopologyManager]:
    """Read the configuration of these nodes' kubelets."""

    def one(node: str) -> TopologyManager:
        try:
            # This response is not an object of Kubernetes' API: it has no kind.
            answer = kube.request("GET", f"{path('nodes', node)}/proxy/configz", deadline_s=_DEADLINE_S).body
        except ClusterError as error:
            return TopologyManager(problem=safe(error, 200))
        config = as_map(as_map(answer).get("kubeletconfig"))
        policy, scope = (safe(config.get(f"topologyManager{key}") or "", 60) for key in ("Policy", "Scope"))
        return TopologyManager(policy, scope, "" if policy and scope else "its /configz does not report it")

    names = list(nodes)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))
