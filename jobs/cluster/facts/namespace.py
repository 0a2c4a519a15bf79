"""Existence of a namespace, and whether it accepts new objects."""

from __future__ import annotations

from dataclasses import dataclass

from ..client.errors import ApiError, Forbidden, NotFound
from ..client.kube import Kube, path


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceState:
    """Whether the namespace can be used. ``ok`` None: unknown."""

    ok: bool | None
    observed: str
    fault: str = ""


def namespace_state(kube: Kube, namespace: str = "") -> NamespaceState:
    """Read the namespace, by default ours; without the permission, dry-run a create in it.

    Raises ClusterError without a response of the API server.
    """
    name = namespace or kube.namespace
    try:
        answer = kube.get(path("namespaces", name))
    except NotFound as error:
        return _missing(error, name)
    except Forbidden:
        return _by_dry_run(kube, name)
    phase = str((answer.get("status") or {}).get("phase") or "unknown")
    if phase == "Terminating" or (answer.get("metadata") or {}).get("deletionTimestamp"):
        return NamespaceState(ok=False, observed="Terminating", fault="namespace.terminating")
    return NamespaceState(ok=phase == "Active" or None, observed=phase)


def _by_dry_run(kube: Kube, name: str) -> NamespaceState:
    metadata = {"name": "seatrial-dry-run", "namespace": name}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    try:
        kube.create(path("configmaps", namespace=name), body, dry_run=True)
    except NotFound as error:
        return _missing(error, name)
    except ApiError as error:
        if "being terminated" in error.message:
            return NamespaceState(ok=False, observed="Terminating", fault="namespace.terminating")
        return NamespaceState(ok=None, observed=f"not seen: {error.message}")
    return NamespaceState(ok=True, observed="Active (a dry-run create is accepted; the namespace itself is unreadable)")


def _missing(error: NotFound, name: str) -> NamespaceState:
    """Interpret a 404, which an intermediate proxy sends, too: it is about the namespace if it names it."""
    if name not in error.message:
        return NamespaceState(ok=None, observed=f"not seen: {error.message}")
    return NamespaceState(ok=False, observed="does not exist", fault="namespace.missing")
