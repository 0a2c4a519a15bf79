"""API discovery: whether the cluster serves a kind that launches trials, and in which version."""

from __future__ import annotations

from dataclasses import dataclass

from ..cluster.client.errors import ClusterError, NotFound
from ..cluster.client.kube import Kube
from ..cluster.unstructured import as_list, as_map
from .launchers.kind import Kind


@dataclass(frozen=True, slots=True)
class Serving:
    """In which versions of its group a resource is served; `not_seen` says why that could not be asked."""

    versions: tuple[str, ...] = ()
    not_seen: str = ""


def serving(kube: Kube, group: str, resource: str) -> Serving:
    """Ask discovery for every version of the group."""
    try:
        api_group = as_map(kube.get(f"/apis/{group}"))
        known = [str(item.get("version")) for item in as_list(api_group.get("versions"))]
        versions = [version for version in known if _has(kube, group, version, resource)]
    except NotFound:
        return Serving()
    except ClusterError as error:
        return Serving(not_seen=str(error))
    return Serving(tuple(versions))


def missing_fault(kind: Kind, serving_now: Serving) -> str:
    """The fault of a kind that is not served as we need it; nothing where it is."""
    if kind.version in serving_now.versions:
        return ""
    # A Training Operator beside the MPI Operator brings a CRD of the same name that serves v1 only; whichever was
    # applied last is what the cluster has (kubeflow/mpi-operator README, "Training Operator").
    return "mpi.wrong-version" if serving_now.versions and kind.name == "mpijob" else "launcher.missing"


def _has(kube: Kube, group: str, version: str, resource: str) -> bool:
    try:
        listing = as_map(kube.get(f"/apis/{group}/{version}"))
    except NotFound:
        return False
    return any(item.get("name") == resource for item in as_list(listing.get("resources")))
