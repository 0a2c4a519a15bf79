"""Objects that pods refer to, each read once by name: claims, StorageClasses, networks.

A tenant may read the claims and NetworkAttachmentDefinitions of its own namespace without seeing those of others.
StorageClasses are cluster-scoped and may be unreadable. A network without a namespace is a Network of GKE.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..client.errors import ClusterError, Forbidden, NotFound, Unauthorized
from ..client.kube import Kube, path
from ..redact import safe
from ..unstructured import Unstructured, as_map, as_texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A PersistentVolumeClaim. ``hidden``: why it cannot be read; ``exists`` is then meaningless."""

    name: str
    exists: bool = False
    hidden: str = ""
    phase: str = ""
    storage_class: str | None = None
    access_modes: tuple[str, ...] = ()
    volume: str = ""
    size: str = ""
    event: str = ""  # the last event of an unbound claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Class:
    """A StorageClass."""

    name: str
    exists: bool = False
    hidden: str = ""
    provisioner: str = ""
    binding: str = ""


def claim(kube: Kube, name: str) -> Claim:
    """Read one claim of the namespace, and its last event if it is not bound."""
    try:
        raw = kube.get(path("persistentvolumeclaims", name, namespace=kube.namespace))
    except NotFound:
        return Claim(name=name)
    except (Forbidden, Unauthorized) as error:
        return Claim(name=name, hidden=safe(error.message, 300))
    spec, status = as_map(raw.get("spec")), as_map(raw.get("status"))
    phase = str(status.get("phase") or "Pending")
    return Claim(
        name=name,
        exists=True,
        phase=phase,
        storage_class=spec.get("storageClassName") if isinstance(spec.get("storageClassName"), str) else None,
        access_modes=tuple(as_texts(spec.get("accessModes"))),
        volume=str(spec.get("volumeName") or ""),
        size=str(as_map(status.get("capacity")).get("storage") or ""),
        event="" if phase == "Bound" else _last_event(kube, name),
    )


def storage_class(kube: Kube, name: str) -> Class:
    """Read one StorageClass."""
    try:
        raw = kube.get(path("storageclasses", name, group="storage.k8s.io"))
    except NotFound:
        return Class(name=name)
    except (Forbidden, Unauthorized) as error:
        return Class(name=name, hidden=safe(error.message, 300))
    binding = str(raw.get("volumeBindingMode") or "Immediate")
    return Class(name=name, exists=True, provisioner=str(raw.get("provisioner") or ""), binding=binding)


def read(
    kube: Kube, claims: Iterable[str], classes: Iterable[str], *, tenant: bool = False
) -> tuple[dict[str, Claim], dict[str, Class]]:
    """Read the claims, and the named classes with those of the claims."""
    by_name = {name: claim(kube, name) for name in dict.fromkeys(claims)}
    named = dict.fromkeys([*classes, *(each.storage_class for each in by_name.values() if each.storage_class)])
    if tenant:
        return by_name, {name: Class(name=name, hidden="not readable by a tenant") for name in named}
    return by_name, {name: storage_class(kube, name) for name in named}


def _last_event(kube: Kube, name: str) -> str:
    selector = f"involvedObject.kind=PersistentVolumeClaim,involvedObject.name={name}"
    try:
        items, _ = kube.list(path("events", namespace=kube.namespace), fieldSelector=selector)
    except ClusterError:  # context for a message; its failure is not reported
        return ""
    latest = max(items, key=_moment, default=None)
    return safe(f"{latest.get('reason')}: {latest.get('message')}", 300) if latest else ""


def _moment(event: Unstructured) -> str:
    made = as_map(event.get("metadata")).get("creationTimestamp")
    return str(event.get("lastTimestamp") or event.get("eventTime") or made or "")


GROUP, VERSION, RESOURCE = "k8s.cni.cncf.io", "v1", "network-attachment-definitions"
GKE_GROUP, GKE_RESOURCE = "networking.gke.io", "networks"
"""cloud.google.com/kubernetes-engine/docs/how-to/setup-multinetwork-support-for-pods"""

Definitions = dict[tuple[str, str], Unstructured | None]


def definitions(kube: Kube, names: Iterable[tuple[str, str]], *, tenant: bool = False) -> tuple[Definitions, str]:
    """Return each definition by (namespace, name), None if it does not exist; and why none can be read, if so."""
    definitions_by_name: Definitions = {}
    names = list(names)
    if tenant and any(not namespace for namespace, _ in names):
        return {}, f"{GKE_RESOURCE} of the cluster are not readable by a tenant"
    for namespace, name in sorted(names):
        place = path(RESOURCE, name, namespace=namespace, group=GROUP, version=VERSION)
        try:
            item = kube.get(place if namespace else path(GKE_RESOURCE, name, group=GKE_GROUP))
        except NotFound:
            definitions_by_name[namespace, name] = None
        except (Forbidden, Unauthorized) as error:
            return {}, safe(error.message, 300)
        else:
            definitions_by_name[namespace, name] = item if isinstance(item, dict) else None
    return definitions_by_name, ""
