"""Creation of each object of a trial, exactly once or not at all.

After an interrupt, or a lost response, it is unknown whether an object was created. So each object is entered in the
ledger before it is sent. An object of our name with our run's label is ours, whichever response was lost. A dry run of
all objects comes first, so that refusals are known before anything exists.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import TypeVar

from ..cluster.client.errors import ApiError, ClusterError, Conflict, Forbidden, Invalid, NotFound
from ..cluster.client.http_client import Response
from ..cluster.client.kube import Kube, path
from ..cluster.redact import safe
from ..cluster.renewal import SECONDS, Renewal, record
from ..cluster.unstructured import Unstructured, labels_of, node_of, uid_of
from ..diagnosis.grace_periods import RIGHTS_S
from ..diagnosis.refusals import read_refusal
from ..trial.manifests import Manifests, Owned, older
from ..trial.pod import LABEL_MANAGED, LABEL_RUN, MANAGED_BY
from .cleanup import GONE_S, STILL_GONE_S, Entry, Ledger, Wait, delete, undone

Answer = TypeVar("Answer")

# Kueue resumes a job with this label (set by the user or on creation) when its queue has room. If anything else resumes
# it, Kueue deletes its pods again (https://kueue.sigs.k8s.io/docs/tasks/run/jobs/).
QUEUE = "kueue.x-k8s.io/queue-name"
_ATTEMPTS = 3
# The time of an API server's restart (26 s in the recordings; a static pod's kubelet backs off 10 s, then 20 s). Once
# the suspended Job exists, its dependents wait so long.
RESTART_S = 60.0
_ASK_AGAIN_S = 1.0
# The reason why a Job remains until its node is back, or the Node is deleted: no permission of ours ends pods there.
HELD = "its last pods are on a lost node"
IN_FLIGHT_S = 5.0  # execution time of an interrupted request: an API server's webhooks, etcd
# A webhook with side effects cannot be dry-run: only the create itself shows its response.
_NO_DRY_RUN = re.compile(r"does not support dry run", re.IGNORECASE)


class JobError(Exception):
    """A request for a job cannot be carried out; the message is one line."""


class Creation:
    """The creation of one run's objects, and their removal."""

    def __init__(
        self, kube: Kube, ledger: Ledger, run: str, progress: Callable[[str], None], lease_s: float = SECONDS
    ) -> None:
        self._kube, self._ledger, self._run, self._progress = kube, ledger, run, progress
        self._lease_s = lease_s
        self._entries: list[Entry] = []
        self._versions: dict[str, str] = {}  # by resource, if not the newest
        self._renewals: list[Renewal] = []
        self.lost: frozenset[str] = frozenset()  # nodes with pods that are not awaited
        self.uid = ""  # of the launching object
        self.warned: tuple[str, ...] = ()  # the API server's messages about the created objects

    def create(self, objects: Manifests) -> None:
        """Create the launching object, suspended, then its dependents, then resume it (or leave that to its queue)."""
        kind = objects.kind
        launched = self._tried(objects)
        job, self.warned = self._post(launched, held=True)
        self.uid = uid_of(job)
        for item in objects.owned_by(self.uid):
            spoken = next((each for each in older(item) if each.version == self._versions.get(item.resource)), item)
            self.warned += self._post(spoken)[1]
        meta = launched.body["metadata"]
        queue = labels_of(job).get(QUEUE)
        if queue:
            self._progress(f"job {meta['name']} waits until its queue {safe(queue, 100)} admits it")
            return
        place = _place(launched, meta["name"])
        outlasting(lambda: self._kube.patch(place, kind.resume()), time.monotonic() + RESTART_S, self._progress)

    def _tried(self, objects: Manifests) -> Owned:
        """Dry-run all objects; return the launching object in the version of this cluster's operator."""
        kind = objects.kind
        launched = Owned(kind.resource, kind.group, kind.version, self._held(objects.job))
        try:
            self._dry_run(launched)
        except Invalid as error:
            other = kind.for_other_version(objects.job, error.message)
            if other is None:
                raise
            launched = Owned(kind.resource, kind.group, kind.version, self._held(other))
            self._dry_run(launched)
        for item in objects.all_owned():
            self._dry_run_in_some_version(item)
        return launched

    def _held(self, job: Unstructured) -> Unstructured:
        """Return the job with the lease of this run, if it has one: it shows whether the runner is alive."""
        meta = job["metadata"]
        lease = record(self._lease_s) if self._lease_s else {}
        return job | {"metadata": meta | {"annotations": meta.get("annotations", {}) | lease}} if lease else job

    def _dry_run_in_some_version(self, item: Owned) -> None:
        """Record the object's version in this cluster; errors of an unknown kind name the newest version."""
        try:
            self._dry_run(item)
        except NotFound:
            for other in older(item):
                with contextlib.suppress(NotFound):
                    self._dry_run(other)
                    self._versions[item.resource] = other.version
                    return
            raise

    def _dry_run(self, item: Owned) -> None:
        try:
            roles_known(lambda: self._kube.create(_place(item), item.body, dry_run=True))
        except Conflict as error:
            raise _taken(item) from error
        except ApiError as error:
            # After a server error, the create itself repeats the request, with a delay.
            if error.status < 500 and not _NO_DRY_RUN.search(error.message):
                raise

    def _post(self, item: Owned, *, held: bool = False) -> tuple[Unstructured, tuple[str, ...]]:
        known: dict[str, str] = {}
        name, namespace = item.body["metadata"]["name"], item.body["metadata"]["namespace"]

        def undo() -> Wait:
            uid = known.get("uid") or self._created(item, IN_FLIGHT_S if "cut" in known else 0.0)
            # A lost node keeps its pods, and they keep the Job: wait for that only once.
            wait_s = STILL_GONE_S if "waited" in known else GONE_S
            known["waited"] = uid
            place = (item.resource, item.group, namespace, name)
            stuck = partial(held_by_lost, self._kube, namespace, self._run, self.lost)
            more = {"uid": uid, "version": item.version}
            wait = delete(self._kube, *place, **more, wait_s=wait_s, stuck=stuck) if uid else None
            return partial(gone, wait)

        def gone(wait: Wait | None) -> None:
            if wait:
                wait()
            for renewal in self._renewals if held else ():  # only now: until it is gone, its deletion is our task
                renewal.stop()

        # Entered before it is sent: after an interrupt or a connection error it may or may not exist.
        entry = self._ledger.enter(f"{item.resource.removesuffix('s')}/{name} in {namespace}", undo, holds_gpus=held)
        self._entries.append(entry)
        try:
            answer = self._create_once(item)
        except KeyboardInterrupt:
            known["cut"] = "while the request was under way"
            raise
        except Conflict as error:
            self._ledger.strike(entry)
            raise _taken(item) from error
        except ApiError as error:
            if error.status < 500:
                self._ledger.strike(entry)
            if len(self._entries) > 1:
                self.give_up()
            raise
        known["uid"] = uid_of(answer.body)
        if held and self._lease_s:
            self._renewals.append(Renewal(self._kube, _place(item, name), self._lease_s))
        return answer.body, answer.warnings

    def _create_once(self, item: Owned) -> Response:
        """Create an object exactly once, even if answers are lost: an object with our run's label is ours."""
        tried = False

        def create() -> Response:
            nonlocal tried
            again, tried = tried, True
            try:
                return self._kube.create(_place(item), item.body)
            except Conflict:
                own = self._own(item) if again else None
                if own is None:
                    raise
                return Response(200, own)

        end = time.monotonic() + (RESTART_S if len(self._entries) > 1 else 0.0)
        return outlasting(create, end, self._progress)

    def _created(self, item: Owned, patience_s: float) -> str:
        """Return the uid of an object that may exist; an interrupted request may still be executed for a while."""
        end = time.monotonic() + patience_s
        while not (uid := uid_of(self._own(item) or {})) and time.monotonic() < end:
            time.sleep(0.2)
        return uid

    def _own(self, item: Owned) -> Unstructured | None:
        """Return the object of this name if it has our run's label."""
        try:
            raw: Unstructured = self._kube.get(_place(item, item.body["metadata"]["name"]))
        except NotFound:
            return None
        tags = labels_of(raw)
        return raw if tags.get(LABEL_MANAGED) == MANAGED_BY and tags.get(LABEL_RUN) == self._run else None

    def detach(self) -> None:
        """Leave all objects to the cluster, for `job attach`. Raises ClusterError; then they are still ours."""
        for renewal in self._renewals:
            renewal.release()
        for entry in self._entries:
            self._ledger.strike(entry)

    def give_up(self) -> None:
        """Delete at once objects that would only hold GPUs; failures stay in the ledger, which retries and reports."""
        for entry, why in undone([entry for entry in reversed(self._entries) if not entry.done]):
            if why:
                self._progress(f"{entry.what} not deleted yet: {why}")
            else:
                self._ledger.strike(entry)


def held_by_lost(kube: Kube, namespace: str, run: str, lost: Collection[str]) -> str:
    """Report that a run's last pods are on these lost nodes, where no kubelet can end them; '' otherwise."""
    if not lost:
        return ""
    try:
        pods, _ = kube.list(path("pods", namespace=namespace), labelSelector=f"{LABEL_RUN}={run}")
    except ClusterError:
        return ""
    nodes = {node_of(pod) for pod in pods}
    return f"{HELD}: {', '.join(sorted(nodes))}" if nodes and nodes <= {*lost} else ""


def outlasting(send: Callable[[], Answer], end: float, progress: Callable[[str], None]) -> Answer:
    """Send an idempotent request, three times; to an unreachable server until `end` (monotonic, seconds).

    A 500 comes from a reachable server, for example when a webhook does not answer.
    """
    for attempt in itertools.count(1):
        try:
            return roles_known(send)
        except ClusterError as error:
            status = error.status if isinstance(error, ApiError) else 503
            if status < 500 or (attempt >= _ATTEMPTS and (status == 500 or time.monotonic() > end)):
                raise
            if attempt == _ATTEMPTS:
                progress(f"the API server does not answer; waiting for it, {RESTART_S:.0f} s at most")
            time.sleep(min(0.1 * 2**attempt, 2.0))
    raise AssertionError("unreachable: the loop returns or raises")


def roles_known(create: Callable[[], Answer]) -> Answer:
    """Send a create; repeat after a refusal by RBAC, because a restarted server has not read its roles yet."""
    began = time.monotonic()
    while True:
        try:
            return create()
        except Forbidden as error:
            if read_refusal(error.message).fault != "rights.missing" or time.monotonic() - began > RIGHTS_S:
                raise
            time.sleep(_ASK_AGAIN_S)


def _place(item: Owned, name: str = "") -> str:
    namespace = item.body["metadata"]["namespace"]
    return path(item.resource, name, namespace=namespace, group=item.group, version=item.version)


def _taken(item: Owned) -> JobError:
    meta = item.body["metadata"]
    what = f"{item.resource.removesuffix('s')} {meta['name']}"
    return JobError(f"{what} exists already in {meta['namespace']}: it belongs to another job or run")
