"""Objects at one revision, and the recent changes of a resource, from which watches read independently."""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from .errors import expired

if TYPE_CHECKING:
    import asyncio

    from .values import Object

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]
FIRST_REVISION = 1000  # as in a used cluster: older revisions are compacted, so a watch from 1 is too old


class Stored:
    """An object at one revision, with its JSON encoded at most once."""

    __slots__ = ("_raw", "name", "namespace", "obj", "revision")

    def __init__(self, obj: Object, revision: int) -> None:
        self.obj = obj
        self.revision = revision
        self.namespace: str = obj["metadata"].get("namespace", "")
        self.name: str = obj["metadata"]["name"]
        self._raw: bytes | None = None

    @property
    def raw(self) -> bytes:
        """The JSON without kind and apiVersion, as in an item of a list."""
        if self._raw is None:
            body = {key: value for key, value in self.obj.items() if key not in ("kind", "apiVersion")}
            self._raw = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
        return self._raw


@dataclass(slots=True)
class Change:
    """One entry of the history, for watches and subscribers."""

    revision: int
    type: ChangeType
    new: Stored  # for DELETED: the last state, with the revision of the deletion
    old: Stored | None
    lines: dict[str, bytes] = field(default_factory=dict)  # encoded watch events, by form, shared by all watchers


class History:
    """The recent changes of one resource, from which watches read independently."""

    def __init__(self, floor: int, window: int) -> None:
        self.changes: list[Change] = []
        self.floor = floor  # changes up to this revision may have been dropped
        self.window = window
        self.latest = floor  # the revision of the last change
        self.waiters: set[asyncio.Event] = set()

    def append(self, change: Change) -> None:
        """Append a change, drop the oldest ones, wake the watches."""
        self.changes.append(change)
        self.latest = change.revision
        if len(self.changes) > self.window + self.window // 4:
            cut = len(self.changes) - self.window
            self.floor = self.changes[cut - 1].revision
            del self.changes[:cut]
        for waiter in self.waiters:
            waiter.set()

    def since(self, revision: int) -> list[Change]:
        """Return the changes after a revision; 410 Expired if some of them were dropped."""
        if revision < self.floor:
            raise expired(f"too old resource version: {revision} ({self.floor})")
        return self.changes[bisect_right(self.changes, revision, key=lambda change: change.revision) :]
