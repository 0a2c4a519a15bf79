"""A Kubernetes cluster with GPUs, in a box: a real API server, real processes as pods, and faults to rehearse.

Nothing here knows what anybody wants to find in it. From a program:

    from sim import Cluster, load

    async with await Cluster.start(load("healthy")) as cluster:
        Path("kubeconfig").write_text(cluster.kubeconfig)
        ...

From a shell: `python -m sim healthy --write-kubeconfig kubeconfig`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .scenario import Scenario, ScenarioError, load, names

if TYPE_CHECKING:
    from .cluster import Cluster

__all__ = ["Cluster", "Scenario", "ScenarioError", "load", "names"]


def __getattr__(name: str) -> Any:
    """Import the cluster when it is asked for: the list of scenarios needs no web server."""
    if name == "Cluster":
        from .cluster import Cluster  # noqa: PLC0415 - that is the point

        return Cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
