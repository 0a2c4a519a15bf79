"""A watch: the history of one resource, filtered, streamed as lines until the client disconnects.

A watch reads the shared history independently, so that fifty slow clients cost one encoded line per change. Objects
that start or stop matching a selector appear as ADDED or DELETED.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from aiohttp import web

from .answers import dumps
from .schema.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .schema.kinds import Kind
    from .store import Change, Store, Stored

    Filter = Callable[[Stored], bool]
    Encode = Callable[[str, Stored], bytes]

MIN_TIMEOUT_S = 1800  # --min-request-timeout of the API server: watches without timeoutSeconds live 30-60 minutes
BOOKMARK_EVERY_S = 60  # the watch cache's bookmark frequency
BOOKMARK_BEFORE_END_S = 2  # ... and one bookmark two seconds before a watch ends
DELIVERY: Any = web.RequestKey("sim.delivery", object) if hasattr(web, "RequestKey") else "sim.delivery"
"""The request key of the Delivery of its watch's lines; without it they are sent at once and in order."""


class Delivery:
    """A writer of one watch's lines, in order."""

    def __init__(self, response: web.StreamResponse) -> None:
        self.response = response

    async def write(self, lines: list[bytes]) -> None:
        """Send these lines."""
        await self.response.write(b"".join(lines))

    async def finish(self) -> None:
        """Send the lines that were held back."""


class Watch:
    """One open watch."""

    def __init__(
        self,
        store: Store,
        kind: Kind,
        selected: Filter,
        *,
        form: str,
        encode: Encode,
        bookmark: Callable[[int], bytes] | None,
    ) -> None:
        self.store = store
        self.kind = kind
        self.selected = selected
        self.form = form  # changes are encoded once per form
        self.encode = encode
        self.bookmark = bookmark
        self.history = store.history(kind.key)

    def lines(self, changes: list[Change]) -> Iterator[bytes]:
        """Yield the encoded events for this watch."""
        for change in changes:
            now = change.type != "DELETED" and self.selected(change.new)
            before = change.old is not None and self.selected(change.old)
            if now:
                yield self._line(change, "MODIFIED" if before else "ADDED", change.new)
            elif before:
                yield self._line(change, "DELETED", change.new)

    def _line(self, change: Change, name: str, stored: Stored) -> bytes:
        form = f"{self.form}:{name}"
        line = change.lines.get(form)
        if line is None:
            line = change.lines[form] = self.encode(name, stored)
        return line

    async def serve(
        self,
        request: web.BaseRequest,
        revision: int | None,
        *,
        initial: bool,
        send_initial_end: bool,
        seconds: float | None,
    ) -> web.StreamResponse:
        """Stream until the timeout, or until the client disconnects.

        `revision` None means: from now; with `initial`, existing objects are sent as ADDED first.
        """
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
        )
        response.enable_chunked_encoding()
        await response.prepare(request)
        loop = asyncio.get_running_loop()
        end = loop.time() + (seconds or random.uniform(MIN_TIMEOUT_S, 2 * MIN_TIMEOUT_S))  # noqa: S311
        try:
            delivery: Delivery = request.get(DELIVERY, Delivery)(response)
            at = await self._start(response, revision, initial=initial, send_initial_end=send_initial_end)
            await self._follow(delivery, at, end)
            await delivery.finish()
        except ApiError as error:
            await response.write(dumps({"type": "ERROR", "object": error.status()}) + b"\n")
        except ConnectionError:
            return response  # the client disconnected
        await response.write_eof()
        return response

    async def _start(
        self, response: web.StreamResponse, revision: int | None, *, initial: bool, send_initial_end: bool
    ) -> int:
        at = self.store.revision if revision is None else revision
        if initial:
            at = self.store.revision
            batch = [self.encode("ADDED", stored) for stored in self.store.scan(self.kind.key) if self.selected(stored)]
            if batch:
                await response.write(b"".join(batch))
        if send_initial_end and self.bookmark:
            await response.write(self.bookmark(-at))
        return at

    async def _follow(self, delivery: Delivery, at: int, end: float) -> None:
        loop = asyncio.get_running_loop()
        wake = asyncio.Event()
        self.history.waiters.add(wake)
        bookmarks = iter(self._bookmark_times(loop.time(), end))
        due = next(bookmarks, end)
        try:
            while loop.time() < end:
                wake.clear()
                changes = self.history.since(at)
                if changes:
                    at = changes[-1].revision
                    batch = list(self.lines(changes))
                    if batch:
                        await delivery.write(batch)
                        continue
                try:
                    async with asyncio.timeout_at(min(due, end)):
                        await wake.wait()
                except TimeoutError:
                    if self.bookmark and loop.time() < end:
                        await delivery.write([self.bookmark(max(self.store.revision, at))])
                    due = next(bookmarks, end)
        finally:
            self.history.waiters.discard(wake)

    def _bookmark_times(self, start: float, end: float) -> Iterator[float]:
        if self.bookmark is None:
            return
        at = start + BOOKMARK_EVERY_S
        while at < end - BOOKMARK_BEFORE_END_S:
            yield at
            at += BOOKMARK_EVERY_S
        if end - BOOKMARK_BEFORE_END_S > start:
            yield end - BOOKMARK_BEFORE_END_S


def event_line(name: str, head: bytes, stored: Stored) -> bytes:
    """Encode an event with the object's cached bytes; `head` is its kind and apiVersion."""
    return b'{"type":"' + name.encode() + b'","object":' + head + stored.raw[1:] + b"}\n"


def object_head(kind: Kind) -> bytes:
    """Return the leading bytes of an object of this kind."""
    return b'{"kind":"' + kind.kind.encode() + b'","apiVersion":"' + kind.api_version.encode() + b'",'


def bookmark_line(kind: Kind, revision: int, shaped: tuple[str, str] | None = None) -> bytes:
    """Encode a BOOKMARK; a negative revision marks the end of the initial events."""
    meta: dict[str, Any] = {"resourceVersion": str(abs(revision))}
    if revision < 0:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    name, version = shaped or (kind.kind, kind.api_version)
    return dumps({"type": "BOOKMARK", "object": {"kind": name, "apiVersion": version, "metadata": meta}}) + b"\n"
