"""How does each object of a trial come to exist exactly once, or not at all?

An interrupt, or an answer that is lost, leaves open whether something was created. So everything is entered in the
ledger before it is sent, and what carries our run's label under our name is ours, whatever answer was lost.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .cleanup import remove
from .errors import ApiError, ClusterError, Conflict, NotFound
from .exchange import Response
from .kube import path
from .manifests import LABEL_MANAGED, LABEL_RUN, MANAGED_BY
from .raw import as_map
from .redact import safe

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cleanup import Entry, Ledger
    from .kube import Kube
    from .manifests import Manifests

# A job with this label (the user's, or put on it as it was created) is Kueue's to resume, when its queue has room:
# resumed by others, Kueue takes its pods away again (https://kueue.sigs.k8s.io/docs/tasks/run/jobs/).
QUEUE = "kueue.x-k8s.io/queue-name"
_ATTEMPTS = 3


class JobError(Exception):
    """A job cannot be handled as asked; the message is one line."""


class Creation:
    """Creates the objects of one run and knows how to take them back."""

    def __init__(self, kube: Kube, ledger: Ledger, run: str, progress: Callable[[str], None]) -> None:
        self._kube, self._ledger, self._run, self._progress = kube, ledger, run, progress
        self._entries: list[Entry] = []

    def create(self, objects: Manifests) -> tuple[str, ...]:
        """Create the Job suspended, then what it owns, then let it go (or leave that to its queue)."""
        job, warned = self._post("jobs", "batch", objects.job)
        configmap, service = objects.owned_by(_uid(job))
        for resource, item in (("configmaps", configmap), ("services", service)):
            _, more = self._post(resource, "", item)
            warned += more
        meta = objects.job["metadata"]
        queue = as_map(as_map(job.get("metadata")).get("labels")).get(QUEUE)
        if queue:
            self._progress(f"job {meta['name']} waits until its queue {safe(queue, 100)} lets it start")
            return warned
        url_path = path("jobs", meta["name"], namespace=meta["namespace"], group="batch")
        self._kube.patch(url_path, {"spec": {"suspend": False}})
        return warned

    def _post(self, resource: str, group: str, item: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        name, namespace = item["metadata"]["name"], item["metadata"]["namespace"]
        known: dict[str, str] = {}

        def undo() -> None:
            uid = known.get("uid") or _uid(self._own(resource, group, namespace, name))
            if uid:
                remove(self._kube, resource, group, namespace, name, uid=uid)

        # Entered before it is sent: an interrupt, or a connection that breaks, leaves open whether it exists.
        entry = self._ledger.enter(f"{resource.removesuffix('s')}/{name} in {namespace}", undo)
        self._entries.append(entry)
        try:
            answer = self._create_once(resource, group, item)
        except Conflict as error:
            self._ledger.strike(entry)
            what = f"{resource.removesuffix('s')} {name}"
            raise JobError(f"{what} exists already in {namespace}: another run has this id") from error
        except ApiError as error:
            if error.status < 500:
                self._ledger.strike(entry)
            if len(self._entries) > 1:
                self.give_up()
            raise
        known["uid"] = _uid(answer.body)
        return answer.body, answer.warnings

    def _create_once(self, resource: str, group: str, item: dict[str, Any]) -> Response:
        """Create an object exactly once, also where answers get lost: what carries our run's label is ours."""
        name, namespace = item["metadata"]["name"], item["metadata"]["namespace"]
        for attempt in range(_ATTEMPTS):
            try:
                return self._kube.create(path(resource, namespace=namespace, group=group), item)
            except Conflict:
                found = self._own(resource, group, namespace, name) if attempt else None
                if found is None:
                    raise
                return Response(200, found)
            except ClusterError as error:
                refused = isinstance(error, ApiError) and error.status < 500
                if refused or attempt + 1 == _ATTEMPTS:
                    raise
                time.sleep(0.2 * 2**attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _own(self, resource: str, group: str, namespace: str, name: str) -> dict[str, Any] | None:
        """The object of this name if it carries our run's label."""
        try:
            found: dict[str, Any] = self._kube.get(path(resource, name, namespace=namespace, group=group))
        except NotFound:
            return None
        tags = as_map(as_map(found.get("metadata")).get("labels"))
        return found if tags.get(LABEL_MANAGED) == MANAGED_BY and tags.get(LABEL_RUN) == self._run else None

    def give_up(self) -> None:
        """Delete now what would only hold GPUs; what fails stays in the ledger, which tries again and reports."""
        for entry in reversed(self._entries):
            if entry.done:
                continue
            try:
                entry.undo()
            except ClusterError as error:
                self._progress(f"{entry.what} not deleted yet: {error}")
            else:
                self._ledger.strike(entry)


def _uid(item: dict[str, Any] | None) -> str:
    return str(as_map((item or {}).get("metadata")).get("uid") or "")
