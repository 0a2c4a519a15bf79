"""The lease of a run: an annotation on its launched object, which its runner renews while it is alive.

The annotation is a record of client-go's leader election, and is judged by the same rule (tools/leaderelection): clocks
of two machines are never compared. A lease has expired if it does not change for its duration on the observer's own
clock. An annotation needs no further permission; a Lease object for each run would need five.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .client.errors import ClusterError, Conflict, NotFound
from .redact import safe
from .unstructured import Unstructured, as_map

if TYPE_CHECKING:
    from .client.kube import Kube

ANNOTATION = "seatrial/lease"
SECONDS = 40.0
"""Validity of a lease without renewal: that of a kubelet's (nodeLeaseDurationSeconds)."""
_RENEWALS = 8  # within that time: seven may be lost in an outage of the API server
_PATIENCE = 20  # errors before the state counts as unknown
_LONGEST_S = 600.0  # the limit for any annotation


@dataclass(frozen=True, slots=True)
class Held:
    """A lease as read; `text` changes with each renewal. A `released` one has no holder by intention."""

    text: str
    seconds: float
    holder: str = ""
    renewed: str = ""
    released: bool = False

    def __str__(self) -> str:
        """The holder, and the last renewal by the holder's clock."""
        return f"held by {self.holder or 'an unknown holder'}, renewed last at {self.renewed or 'an unknown time'}"


def record(seconds: float, *, released: bool = False) -> dict[str, str]:
    """Return the annotation, renewed now; a released one has an empty holder, as client-go's has."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    holder = "" if released else f"{socket.gethostname()}_{os.getpid()}"
    spec = {"holderIdentity": holder, "leaseDurationSeconds": max(1, round(seconds)), "renewTime": now}
    return {ANNOTATION: json.dumps(spec)}


def held(item: Unstructured) -> Held | None:
    """Read the lease of a launched object; None for objects without one, such as manually applied ones."""
    text = as_map(as_map(item.get("metadata")).get("annotations")).get(ANNOTATION)
    if not isinstance(text, str):
        return None
    lease: Unstructured = {}
    with contextlib.suppress(ValueError, RecursionError):
        lease = as_map(json.loads(text))
    lasts = lease.get("leaseDurationSeconds")
    seconds = float(lasts) if type(lasts) is int and 0 < lasts <= _LONGEST_S else SECONDS
    holder = lease.get("holderIdentity")
    return Held(text, seconds, safe(holder or "", 100), safe(lease.get("renewTime") or "", 40), released=holder == "")


class Renewal:
    """A thread that renews the lease of one object until `stop`.

    An answer of 404 does not end it. A restarted API server answers 404 for custom resources until it has read their
    definitions, and without renewal a live run would be taken for dead.
    """

    def __init__(self, kube: Kube, url_path: str, seconds: float) -> None:
        self._kube, self._path, self._seconds = kube, url_path, seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="renewal", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing."""
        self._ended.set()

    def release(self) -> None:
        """Stop renewing and release the lease, so that `job attach` can take it. Raises ClusterError."""
        self.stop()
        self._thread.join()  # a renewal in progress would acquire it again
        self._kube.patch(self._path, {"metadata": {"annotations": record(self._seconds, released=True)}})

    def _renew(self) -> None:
        pause = self._seconds / _RENEWALS
        while not self._ended.wait(pause):
            try:
                patch = {"metadata": {"annotations": record(self._seconds)}}
                self._kube.patch(self._path, patch, deadline_s=self._seconds / 4)
            except ClusterError:  # an outage: observers cannot read either, and wait
                continue


class Watched(Exception):  # noqa: N818  (a state of the lease, not an error)
    """Another process watches the object; the message names it."""


@contextlib.contextmanager
def taken(kube: Kube, url_path: str, tell: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Hold the lease of a run that was detached, or has a dead runner, during the block.

    Afterwards it is released if the object still exists. Raises Watched if its runner is alive or another process was
    faster; ClusterError, NotFound among them.
    """
    item = kube.get(url_path)
    lease = held(item)
    if lease is not None and not lease.released:
        ran_out = url_path in run_out(kube, {url_path: lease}, tell)
        item = kube.get(url_path)
        now = held(item)
        if now is None or not (now.released or (ran_out and now.text == lease.text)):
            raise Watched(f"it is being watched: {now or 'by no lease'}")
    seconds = lease.seconds if lease else SECONDS
    _take(kube, url_path, item, seconds)
    renewal = Renewal(kube, url_path, seconds)
    try:
        yield
    finally:
        with contextlib.suppress(ClusterError):  # the run was deleted; otherwise the lease expires
            renewal.release()


def _take(kube: Kube, url_path: str, item: Unstructured, seconds: float) -> None:
    """Write our name into an unchanged lease: of two writers, one gets a conflict."""
    known = held(item)
    mine = record(seconds)
    while True:
        version = str(as_map(item.get("metadata")).get("resourceVersion") or "")
        try:
            kube.patch(url_path, {"metadata": {"annotations": mine, "resourceVersion": version}})
        except Conflict:  # its status may have changed, which is not a manual edit
            item = kube.get(url_path)
            now = held(item)
            if now is not None and now.text == mine[ANNOTATION]:
                return  # ours: the response was lost
            if now != known:
                raise Watched(f"another process has just taken it: {now or 'by no lease'}") from None
        else:
            return


def run_out(kube: Kube, leases: Mapping[str, Held], tell: Callable[[str], None] = lambda _: None) -> set[str]:
    """Observe leases, by the path of their objects; return those not renewed for their whole duration.

    Only time during which the API server answered counts, since no run could renew during an outage. Raises
    ClusterError in a lasting outage.
    """
    waiting = {url: (lease, time.monotonic()) for url, lease in leases.items()}
    dead: set[str] = set()
    for url, lease in leases.items():
        tell(f"{url.rpartition('/')[2]}: {lease}; watching for {lease.seconds:.0f} s whether its runner is alive")
    failing = 0
    pause = min((lease.seconds / _RENEWALS for lease in leases.values()), default=0.0)
    while waiting:
        time.sleep(pause)
        for url, (lease, since) in list(waiting.items()):
            asked = time.monotonic()
            try:
                now_held = held(kube.get(url, deadline_s=lease.seconds))
            except NotFound:
                del waiting[url]
                continue
            except ClusterError:
                if failing > _PATIENCE:
                    raise
                failing += 1
                waiting[url] = (lease, time.monotonic())
                continue
            now = time.monotonic()
            if now_held is None or now_held.text != lease.text:
                del waiting[url]
            elif now - asked > pause:  # a slow response may hide an outage of that length
                waiting[url] = (lease, now)
            elif now - since >= lease.seconds:
                dead.add(url)
                del waiting[url]
    return dead
