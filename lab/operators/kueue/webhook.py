"""Kueue's webhook: it suspends jobs that name a queue on their creation.

As in pkg/controller/jobframework/{defaults,validation}.go: if a namespace has a LocalQueue named "default", jobs
without a queue use it; a running job may not change its queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...apiserver.schema.errors import Cause, invalid
from ...controlplane.owned import controller_of
from .jobs import INTEGRATIONS, QUEUE, queue_of

if TYPE_CHECKING:
    from ...apiserver.schema.kinds import Kind
    from ...apiserver.store import Store

Object = dict[str, Any]
DEFAULT = "default"
BY_KEY = {each.key: each for each in INTEGRATIONS}
BY_KIND = {
    "Job": "jobs.batch",
    "JobSet": "jobsets.jobset.x-k8s.io",
    "MPIJob": "mpijobs.kubeflow.org",
    "PyTorchJob": "pytorchjobs.kubeflow.org",
    "TrainJob": "trainjobs.trainer.kubeflow.org",
}


def parent_in_queue(store: Store, obj: Object) -> bool:
    """Return whether a job's owner is managed by Kueue: then the owner is suspended instead."""
    owner = controller_of(obj)
    while owner is not None:
        key = BY_KIND.get(owner["kind"])
        if key is None or key not in store.kinds.by_key:
            return False
        parent = store.get(key, obj["metadata"]["namespace"], owner["name"])
        if parent is None:
            return False
        if queue_of(parent):
            return True
        owner = controller_of(parent)
    return False


class Webhook:
    """Called for every object that is created or changed through the API, dry runs included."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __call__(self, kind: Kind, new: Object, old: Object | None) -> None:
        """Suspend a new job with a queue; reject a change of the queue while the job runs."""
        integration = BY_KEY.get(kind.key)
        if integration is None:
            return
        if old is None:
            if parent_in_queue(self._store, new):
                return
            if not queue_of(new) and self._store.get(
                "localqueues.kueue.x-k8s.io", new["metadata"]["namespace"], DEFAULT
            ):
                new["metadata"].setdefault("labels", {})[QUEUE] = DEFAULT
            if queue_of(new):
                integration.set_suspended(new, True)
        elif queue_of(old) != queue_of(new) and not integration.is_suspended(new):
            where = f"metadata.labels[{QUEUE}]"
            cause = Cause(where, "FieldValueInvalid", f'Invalid value: "{queue_of(new)}": field is immutable')
            raise invalid(kind.kind, kind.group, new["metadata"]["name"], [cause])
