"""The controllers: pods of Jobs, endpoints of Services, deletion of dependents.

`Controllers(store).start()` runs them all in the event loop; each is a synchronous function over a queue of keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .budgets import BudgetController
from .claims import ClaimController
from .daemons import DaemonSetController
from .deployments import DeploymentController
from .deviceclaims import ResourceClaimController
from .endpoints import EndpointController
from .garbage import GarbageCollector
from .job import JobController
from .namespace import NamespaceController
from .nodes import NodeController
from .quota import QuotaController
from .replicas import ReplicaSetController

if TYPE_CHECKING:
    from ..apiserver.store import Store

__all__ = ["Controller", "Controllers"]


class Controller(Protocol):
    """One controller."""

    def start(self) -> None:
        """Watch, and process existing objects."""

    def close(self) -> None:
        """Stop."""


class Controllers:
    """All controllers of a cluster; `extra` are those of the world's operators."""

    def __init__(self, store: Store, extra: tuple[Controller, ...] = ()) -> None:
        self.all: tuple[Controller, ...] = (
            NamespaceController(store),
            JobController(store),
            EndpointController(store),
            GarbageCollector(store),
            NodeController(store),
            ClaimController(store),
            QuotaController(store),
            ReplicaSetController(store),
            DeploymentController(store),
            DaemonSetController(store),
            BudgetController(store),
            ResourceClaimController(store),
            *extra,
        )

    def start(self) -> None:
        """Start all controllers."""
        for controller in self.all:
            controller.start()

    def close(self) -> None:
        """Stop all controllers."""
        for controller in self.all:
            controller.close()
