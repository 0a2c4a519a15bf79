"""All code that accesses a cluster or runs in one, and the names that other programs import (docs/launcher.md)."""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cluster.client.errors import ClusterError
    from .cluster.client.kube import Kube
    from .diagnosis.state import JobState
    from .run.creation import JobError
    from .run.handle import JobHandle, Refused
    from .run.launcher import Launcher
    from .trial.names import SpecError

__all__ = ["ClusterError", "JobError", "JobHandle", "JobState", "Kube", "Launcher", "Refused", "SpecError"]

_HOMES = {
    "ClusterError": ".cluster.client.errors",
    "JobError": ".run.creation",
    "JobHandle": ".run.handle",
    "JobState": ".diagnosis.state",
    "Kube": ".cluster.client.kube",
    "Launcher": ".run.launcher",
    "Refused": ".run.handle",
    "SpecError": ".trial.names",
}


@cache
def __getattr__(name: str) -> Any:
    """Import a name when it is first used (PEP 562): importing one package does not load the others."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
