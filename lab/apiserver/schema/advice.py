"""Warnings about allowed but inadvisable fields, sent to the client as headers (GetWarnings of the API packages)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .validation import metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .kinds import Kind
    from .values import Object

STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
HOSTNAME = "which can result in surprising behavior; a DNS label is recommended"
NAMED_IN = {
    "pods": "metadata.name: this is used in the Pod's hostname",
    "jobs.batch": "metadata.name: this is used in Pod names and hostnames",
    "deployments.apps": "metadata.name: this is used in Pod names and hostnames",
    "replicasets.apps": "metadata.name: this is used in Pod names and hostnames",
}
TEMPLATES = (*NAMED_IN, "daemonsets.apps")
OLD_LABELS = {
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
SINCE = {"beta.kubernetes.io/arch": "v1.14", "beta.kubernetes.io/os": "v1.14"}


def on_create(kind: Kind, new: Object) -> Iterator[str]:
    """Yield the warnings about a new object."""
    name = new["metadata"].get("name", "")
    wrong = metadata.dns_label(name)
    if kind.key in NAMED_IN and wrong:
        yield f"{NAMED_IN[kind.key]}, {HOSTNAME}: [{' '.join(wrong)}]"
    yield from _finalizers({}, new)
    if kind.key in TEMPLATES:
        path, spec = _pod_spec(kind, new)
        yield from _spec(path, spec)


def on_update(kind: Kind, old: Object, new: Object) -> Iterator[str]:
    """Yield the warnings about an update."""
    del kind
    yield from _finalizers(old, new)


def _finalizers(old: Object, new: Object) -> Iterator[str]:
    held = old.get("metadata", {}).get("finalizers") or []
    for finalizer in new["metadata"].get("finalizers") or []:
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS and finalizer not in held:
            yield (
                f'metadata.finalizers: "{finalizer}": prefer a domain-qualified finalizer name including a path (/) to '
                "avoid accidental conflicts with other finalizer writers"
            )


def _pod_spec(kind: Kind, obj: Object) -> tuple[str, Object]:
    if kind.key == "pods":
        return "spec", obj.get("spec", {})
    return "spec.template.spec", obj.get("spec", {}).get("template", {}).get("spec", {})


def _spec(path: str, spec: Object) -> Iterator[str]:
    for label in spec.get("nodeSelector") or {}:
        if label in OLD_LABELS:
            since = SINCE.get(label, "v1.17")
            yield f'{path}.nodeSelector[{label}]: deprecated since {since}; use "{OLD_LABELS[label]}" instead'
    for part in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(part) or []):
            yield from _environment(f"{path}.{part}[{index}].env", container)


def _environment(path: str, container: Object) -> Iterator[str]:
    names: set[str] = set()
    for index, variable in enumerate(container.get("env") or []):
        name = variable.get("name", "")
        if name in names:
            yield f'{path}[{index}]: hides previous definition of "{name}", which may be dropped when using apply'
        names.add(name)
