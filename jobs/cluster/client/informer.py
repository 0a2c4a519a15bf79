"""An informer: a local copy of some objects, kept up to date by list and watch, while it is used.

It follows the rules that the official client's Watch breaks. After a connection ends, it continues from the last
version seen (also that of bookmarks). After 410 or an error it lists again. It never retries without a pause, and
continues through an outage until the caller stops it.

A list may come from a stale cache, and an event may arrive late: an older version never replaces a newer one of the
same object. Versions are compared only where both are decimal numbers. Kubernetes declares them comparable since 1.35,
and etcd's revisions were before. Versions that cannot be compared are accepted in the order of arrival.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from ..unstructured import Unstructured
from .errors import ClusterError, Forbidden, Gone
from .kube import Kube
from .reading import CancelToken

_WATCH_S = 120.0
_POLL_S = 1.0
_MOST_DEPARTED = 1000
_LONGEST_VERSION = 38  # a 128-bit number; int() of a hostile one of thousands of digits raises


class Informer:
    """A thread that mirrors one list; `changed` is notified on every change. Use as a context manager."""

    def __init__(self, kube: Kube, url_path: str, changed: threading.Condition, **selectors: str) -> None:
        self._kube = kube
        self._path = url_path
        self._selectors = selectors
        self._changed = changed
        self._objects: dict[str, Unstructured] = {}
        self._departed: dict[str, Unstructured] = {}
        self._gone: dict[str, str] = {}
        """Deletion version by key; older events do not restore the object."""
        self._stop = threading.Event()
        self._cancel_token = CancelToken()
        self._thread = threading.Thread(target=self._run, name=f"informer {url_path}", daemon=True)
        self.synced = False
        self.error: ClusterError | None = None
        self._failing_since: float | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._cancel_token.cut()

    def objects(self) -> list[Unstructured]:
        """Return the current objects; read-only."""
        with self._changed:
            return list(self._objects.values())

    def departed(self) -> list[Unstructured]:
        """Return the last states of deleted objects; read-only."""
        with self._changed:
            return list(self._departed.values())

    def silent_s(self) -> float:
        """Return the seconds for which every attempt has failed."""
        return time.monotonic() - self._failing_since if self._failing_since is not None else 0.0

    def _run(self) -> None:
        pause = 0.2
        version = ""
        while not self._stop.is_set():
            try:
                if not version:
                    version = self._list()
                version = self._watch(version)
                pause = 0.2
            except Gone:
                version = ""
            except Forbidden as error:
                # The account may list without watch, or neither: poll what is allowed, and report it if nothing is.
                version = ""
                self._failed(error, if_unsynced=True)
                self._stop.wait(_POLL_S)
            except ClusterError as error:
                # Start with a list again: it is small, and its response proves at once that the server is back.
                version = ""
                self._failed(error)
                self._stop.wait(pause)
                pause = min(pause * 2, 5.0)

    def _list(self) -> str:
        items, version = self._kube.list(self._path, deadline_s=30.0, **self._selectors)
        by_key = {_key(item): item for item in items if isinstance(item, dict)}
        with self._changed:
            for key in self._objects.keys() - by_key.keys():
                if not _older(version, _version(self._objects[key])):  # otherwise the list is older than the object
                    self._remove(key, self._objects[key], version)
            for item in by_key.values():
                self._take(item)
            self._mark_synced()
        return version

    def _watch(self, version: str) -> str:
        began = time.monotonic()
        for kind, item in self._kube.watch(
            self._path, resource_version=version, timeout_s=_WATCH_S, cancel_token=self._cancel_token, **self._selectors
        ):
            version = str((item.get("metadata") or {}).get("resourceVersion") or version)
            with self._changed:
                if kind == "DELETED":
                    self._remove(_key(item), item, _version(item))
                elif kind in {"ADDED", "MODIFIED"}:
                    self._take(item)
                self._mark_synced()
            if self._stop.is_set():
                return version
        with self._changed:
            self._mark_synced()
        if time.monotonic() - began < 1.0:  # do not flood a server that ends watches at once
            self._stop.wait(_POLL_S)
        return version

    def _take(self, item: Unstructured) -> None:
        """Store an object's current state, unless it is older than the stored one."""
        key, version = _key(item), _version(item)
        gone = self._gone.get(key, "")
        if gone and (version == gone or _older(version, gone)):
            return
        if key not in self._objects or not _older(version, _version(self._objects[key])):
            self._objects[key] = item

    def _remove(self, key: str, item: Unstructured, version: str) -> None:
        """Keep the last state of a deleted object, bounded for namespaces with thousands of short-lived pods."""
        known = self._objects.pop(key, None)
        if known is not None and _older(_version(item), _version(known)):
            item = known
        self._departed[key], self._gone[key] = item, version
        while len(self._departed) > _MOST_DEPARTED:
            oldest = next(iter(self._departed))
            del self._departed[oldest], self._gone[oldest]

    def _mark_synced(self) -> None:
        self.synced = True
        self.error = None
        self._failing_since = None
        self._changed.notify_all()

    def _failed(self, error: ClusterError, *, if_unsynced: bool = False) -> None:
        with self._changed:
            if not (if_unsynced and self.synced) and not self._stop.is_set():
                self.error = error
                self._failing_since = self._failing_since or time.monotonic()
            self._changed.notify_all()


def _key(item: Unstructured) -> str:
    meta = item.get("metadata") or {}
    return str(meta.get("uid") or meta.get("name") or "")


def _version(item: Unstructured) -> str:
    return str((item.get("metadata") or {}).get("resourceVersion") or "")


def _older(one: str, other: str) -> bool:
    """Return whether a version is known to be older than another."""
    return _decimal(one) and _decimal(other) and int(one) < int(other)


def _decimal(version: str) -> bool:
    return version.isascii() and version.isdigit() and len(version) <= _LONGEST_VERSION
