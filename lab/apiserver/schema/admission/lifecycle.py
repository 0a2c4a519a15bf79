"""Admission plugin NamespaceLifecycle: rejects objects in missing or terminating namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import forbidden, not_found

if TYPE_CHECKING:
    from ..kinds import Kind
    from ..requests import Request
    from ..seams import Objects
    from ..values import Object

UNDELETABLE = ("default", "kube-public", "kube-system")


def namespace_takes(store: Objects, kind: Kind, new: Object, request: Request) -> None:
    """Reject an object in a missing or terminating namespace."""
    del request
    if not kind.namespaced:
        return
    meta = new["metadata"]
    namespace = store.get("namespaces", None, meta["namespace"])
    if namespace is None:
        raise not_found("namespaces", "", meta["namespace"])
    if namespace["metadata"].get("deletionTimestamp"):
        text = f"unable to create new content in namespace {meta['namespace']} because it is being terminated"
        error = forbidden(kind.plural, kind.group, meta.get("name", ""), text)
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {meta['namespace']} is being terminated",
            "field": "metadata.namespace",
        }
        error.details["causes"] = [cause]
        raise error


def deletable(kind: Kind, name: str) -> None:
    """Reject the deletion of a namespace that every cluster needs."""
    if kind.key == "namespaces" and name in UNDELETABLE:
        raise forbidden("namespaces", "", name, "this namespace may not be deleted")
