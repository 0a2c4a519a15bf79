"""A Kubernetes cluster with GPUs, embedded: a real API server, real processes as pods, and simulated faults.

Nothing here knows the expected findings. From a program:

    from lab import running

    with running("gpu-missing") as cluster:             # in a thread: for programs that block
        cluster.write_kubeconfig(Path("kubeconfig"))

    async with await Cluster.start(load("healthy")) as cluster:     # in your own event loop
        Path("kubeconfig").write_text(cluster.kubeconfig)

From a shell: `python -m lab healthy --write-kubeconfig kubeconfig`. Installed, the package is `seatrial_lab`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .chaos.api_faults import ApiFaults
from .scenario import Scenario, ScenarioError, load, names, platform_names

if TYPE_CHECKING:
    from .background import Running, running
    from .cluster import Cluster

__all__ = ["ApiFaults", "Cluster", "Running", "Scenario", "ScenarioError", "load", "names", "platform_names", "running"]
_LATE = {"Cluster": "cluster", "Running": "background", "running": "background"}


def __getattr__(name: str) -> Any:
    """Import the cluster on first use: the list of scenarios needs no web server."""
    if name in _LATE:
        return getattr(importlib.import_module(f".{_LATE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
