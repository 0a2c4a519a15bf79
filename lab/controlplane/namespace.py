"""The namespace controller: the initial objects of a namespace, and the deletion of its content."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..apiserver.schema.errors import ApiError
from .queue import Key, Queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..apiserver.store import Store

Object = dict[str, Any]
ROOT_CA = "kube-root-ca.crt"
AGAIN_S = 0.1
CONDITIONS = (
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
)


class NamespaceController:
    """The controller that creates the initial objects of namespaces, and empties terminating ones."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue = Queue(self.sync)
        self._ends: list[Callable[[], None]] = []

    def start(self) -> None:
        """Watch namespaces and their initial objects."""
        self._ends = [
            self._store.subscribe("namespaces", self._namespace),
            self._store.subscribe("serviceaccounts", self._content),
            self._store.subscribe("configmaps", self._content),
        ]
        for namespace in self._store.list("namespaces"):
            self.sync(("", namespace["metadata"]["name"]))

    def close(self) -> None:
        """Stop."""
        self._queue.close()
        for end in self._ends:
            end()

    def _namespace(self, change: str, namespace: Object, _: Object | None) -> None:
        if change != "DELETED":
            self._queue.add(("", namespace["metadata"]["name"]))

    def _content(self, change: str, obj: Object, _: Object | None) -> None:
        if change == "DELETED" and obj["metadata"]["name"] in ("default", ROOT_CA):
            self._queue.add(("", obj["metadata"]["namespace"]))

    def sync(self, key: Key) -> float | None:
        """Reconcile one namespace."""
        namespace = self._store.get("namespaces", None, key[1])
        if namespace is None:
            return None
        if namespace["metadata"].get("deletionTimestamp"):
            return self._empty(namespace)
        self._furnish(key[1])
        return None

    def _furnish(self, name: str) -> None:
        with contextlib.suppress(ApiError):  # it may have been deleted in between
            if self._store.get("serviceaccounts", name, "default") is None:
                self._store.create("serviceaccounts", {"metadata": {"name": "default"}}, name)
            if self._store.get("configmaps", name, ROOT_CA) is None:
                note = (
                    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal "
                    "endpoints such as the internal service IP or kubernetes.default.svc. No other usage is "
                    "guaranteed across distributions of Kubernetes clusters."
                )
                self._store.create(
                    "configmaps",
                    {
                        "metadata": {"name": ROOT_CA, "annotations": {"kubernetes.io/description": note}},
                        "data": {"ca.crt": self._store.authority.ca_pem},
                    },
                    name,
                )

    def _empty(self, namespace: Object) -> float | None:
        name = namespace["metadata"]["name"]
        left: dict[str, int] = {}
        holders: dict[str, int] = {}
        for kind in list(self._store.kinds.by_key.values()):
            if not kind.namespaced or kind.stored_as:
                continue
            try:
                objects = self._store.list(kind.key, name)
            except ApiError:
                continue  # a resource without storage
            for obj in objects:
                self._remove(kind.key, name, obj)
            remaining = self._store.list(kind.key, name) if objects else []
            if remaining:
                left[f"{kind.plural}.{kind.group}"] = len(remaining)
            for obj in remaining:
                for finalizer in obj["metadata"].get("finalizers") or []:
                    holders[finalizer] = holders.get(finalizer, 0) + 1
        if left:
            self._say(name, left, holders)
            return AGAIN_S
        self._store.mutate("namespaces", None, name, lambda n: n["spec"].pop("finalizers", None))
        return None

    def _remove(self, key: str, namespace: str, obj: Object) -> None:
        if not obj["metadata"].get("deletionTimestamp"):
            with contextlib.suppress(ApiError):
                self._store.delete(key, namespace, obj["metadata"]["name"], propagation="Background")

    def _say(self, name: str, left: dict[str, int], holders: dict[str, int]) -> None:
        now = self._store.now()
        remains = ", ".join(f"{kind} has {count} resource instances" for kind, count in sorted(left.items()))
        held = ", ".join(f"{finalizer} in {count} resource instances" for finalizer, count in sorted(holders.items()))
        conditions = [(kind, "False", reason, message) for kind, reason, message in CONDITIONS]
        conditions.append(
            ("NamespaceContentRemaining", "True", "SomeResourcesRemain", f"Some resources are remaining: {remains}")
        )
        conditions.append(
            (
                "NamespaceFinalizersRemaining",
                "True",
                "SomeFinalizersRemain",
                f"Some content in the namespace has finalizers remaining: {held}",
            )
            if held
            else (
                "NamespaceFinalizersRemaining",
                "False",
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            )
        )

        def change(namespace: Object) -> None:
            old = {c["type"]: c for c in namespace["status"].get("conditions") or []}
            namespace["status"]["conditions"] = [
                old[kind]
                if kind in old and (old[kind]["status"], old[kind]["message"]) == (status, message)
                else {"type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message}
                for kind, status, reason, message in conditions
            ]

        self._store.mutate("namespaces", None, name, change, "status")
