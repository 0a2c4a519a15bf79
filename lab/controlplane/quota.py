"""The ResourceQuota controller: the usage of a namespace.

Admission computes the usage itself; this updates the status for users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..apiserver.schema.admission.quota import usage
from ..apiserver.schema.quantity import canonical
from .queue import Key, Queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..apiserver.store import Store

Object = dict[str, Any]
QUOTAS = "resourcequotas"
COUNTED = (QUOTAS, "pods", "configmaps", "secrets", "services", "persistentvolumeclaims", "jobs.batch")


class QuotaController:
    """The controller of the status of all ResourceQuotas."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue = Queue(self.sync)
        self._ends: list[Callable[[], None]] = []

    def start(self) -> None:
        """Watch quotas and the objects that they count."""
        self._ends = [self._store.subscribe(key, self._changed) for key in COUNTED]
        for quota in self._store.list(QUOTAS):
            self._changed("ADDED", quota, None)

    def close(self) -> None:
        """Stop."""
        self._queue.close()
        for end in self._ends:
            end()

    def _changed(self, _: str, obj: Object, __: Object | None) -> None:
        namespace = obj["metadata"]["namespace"]
        if self._store.table(QUOTAS).get(namespace):
            self._queue.add((namespace, ""))

    def sync(self, key: Key) -> float | None:
        """Write the status of the namespace's quotas."""
        for quota in self._store.list(QUOTAS, key[0]):
            hard = {name: canonical(str(amount)) for name, amount in (quota["spec"].get("hard") or {}).items()}
            used = usage(self._store, key[0], quota)
            status = {"hard": hard, "used": {name: used[name] for name in hard}}
            if quota.get("status") != status:
                self._store.mutate(QUOTAS, key[0], quota["metadata"]["name"], _writer(status), "status")
        return None


def _writer(status: Object) -> Callable[[Object], None]:
    def write(quota: Object) -> None:
        quota["status"] = status

    return write
