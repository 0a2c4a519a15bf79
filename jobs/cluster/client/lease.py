"""The Lease of scheduled runs in a namespace: acquired, renewed during the run, and released.

Optimistic locking decides between two runs that start at once: every change carries the resourceVersion that was read,
and the API server accepts one of them. A killed run leaves its Lease behind, which then expires.
"""

from __future__ import annotations

import datetime
import threading
import time
from types import TracebackType
from typing import Self

from ..redact import safe
from ..unstructured import Unstructured, as_map
from .errors import ClusterError, Conflict, NotFound
from .kube import Kube, path

SECONDS = 60
"""Seconds until a Lease without renewal expires: a killed run blocks the next one no longer than this."""
LONGEST = 3600
"""Seconds. A longer Lease, or one renewed as far in the future, was written by a broken clock; it must not stop
scheduled runs for years."""


class HeldError(Exception):
    """Another run holds the Lease; one line with holder and time."""


class Lease:
    """A Lease of the run's namespace, held during the ``with`` block.

    ``lost`` is set when another process took it, or it could not be renewed in time: the run must then stop.
    """

    def __init__(self, kube: Kube, name: str, holder: str, *, seconds: int = SECONDS) -> None:
        self._kube, self._name, self._holder, self._seconds = kube, name, holder, seconds
        self._path = path("leases", name, namespace=kube.namespace, group="coordination.k8s.io")
        self._version = ""
        self._transitions = 0
        self._ended = threading.Event()
        self._renewer: threading.Thread | None = None
        self.lost = threading.Event()

    def __enter__(self) -> Self:
        """Acquire the Lease. Raises HeldError, or ClusterError if its state is unknown."""
        self._take()
        self._renewer = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._renewer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the Lease unless another process has taken it."""
        self._ended.set()
        if self._renewer is not None:
            self._renewer.join(timeout=10)
        if not self.lost.is_set():
            try:
                self._write({"holderIdentity": None, "renewTime": self._now()})
            except ClusterError:
                return  # it expires

    def check(self) -> None:
        """Query whether we still hold the Lease, and set ``lost`` if not; an outage changes nothing."""
        try:
            ours = self._ours()
        except NotFound:
            ours = False
        except ClusterError:
            return
        if not ours:
            self.lost.set()

    def _take(self) -> None:
        spec = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": self._seconds,
            "acquireTime": self._now(),
            "renewTime": self._now(),
        }
        try:
            lease = self._kube.get(self._path)
        except NotFound:
            self._create(spec)
            return
        held = as_map(lease.get("spec"))
        holder = str(held.get("holderIdentity") or "")
        if holder and holder != self._holder and (left := self._left(held)) > 0:
            raise HeldError(self._held_by(holder, held, left))
        self._version = _version(lease)
        transitions = held.get("leaseTransitions")
        self._transitions = (transitions if isinstance(transitions, int) else 0) + 1
        if not self._written(spec | {"leaseTransitions": self._transitions}):
            raise HeldError(f"another run has just taken the lease {self._name}")

    def _create(self, spec: Unstructured) -> None:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "labels": {"app.kubernetes.io/name": "seatrial"}},
            "spec": spec,
        }
        try:
            self._version = _version(self._kube.create(self._path.rpartition("/")[0], body).body)
        except Conflict as error:
            if not self._ours():
                raise HeldError(f"another run has just taken the lease {self._name}") from error

    def _renew(self) -> None:
        """Renew until the end; if this thread ends earlier, set ``lost``."""
        renewed = time.monotonic()
        try:
            while not self._ended.wait(self._seconds / 3):
                try:
                    if not self._written({"renewTime": self._now()}):
                        return
                except NotFound:
                    return
                except ClusterError:  # an outage: the Lease is still valid for a while
                    if time.monotonic() - renewed > self._seconds:
                        return
                else:
                    renewed = time.monotonic()
        finally:
            if not self._ended.is_set():
                self.lost.set()

    def _written(self, spec: Unstructured) -> bool:
        """Write unless another process has written since our last read; return whether the Lease is ours.

        If the connection breaks after the server has applied a change, the client sends the change again. The second
        attempt then conflicts with our own first one.
        """
        try:
            self._write(spec)
        except Conflict:
            if not self._ours():
                return False
            self._write(spec)
        return True

    def _ours(self) -> bool:
        """Return whether we hold the Lease; if so, store its version."""
        lease = self._kube.get(self._path)
        if as_map(lease.get("spec")).get("holderIdentity") != self._holder:
            return False
        self._version = _version(lease)
        return True

    def _write(self, spec: Unstructured) -> None:
        answer = self._kube.patch(self._path, {"metadata": {"resourceVersion": self._version}, "spec": spec})
        self._version = _version(answer)

    def _left(self, held: Unstructured) -> float:
        """Return the holder's remaining seconds by the server's clock; 0 for an impossible time."""
        duration = held.get("leaseDurationSeconds")
        try:
            moment = datetime.datetime.fromisoformat(str(held.get("renewTime")))
        except ValueError:
            return 0.0
        moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
        age = self._server_time() - moment.timestamp()
        lasts = min(duration, LONGEST) if type(duration) is int else 0
        return lasts - age if age > -LONGEST else 0.0

    def _held_by(self, holder: str, held: Unstructured, left: float) -> str:
        since = safe(held.get("acquireTime") or "an unknown time", 40)
        return (
            f"the lease {self._name} is held by {safe(holder, 100)} since {since}: another scheduled run "
            f"is in progress (without renewal the lease expires in {left:.0f} s)"
        )

    def _server_time(self) -> float:
        try:
            return time.time() + (self._kube.server_time_skew() or 0.0)
        except ClusterError:
            return time.time()

    def _now(self) -> str:
        moment = datetime.datetime.fromtimestamp(self._server_time(), datetime.UTC)
        return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _version(lease: object) -> str:
    return str(as_map(as_map(lease).get("metadata")).get("resourceVersion") or "")
