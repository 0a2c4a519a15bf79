"""API fault injection for one request: a wrapper around the API server's handler.

The fault of a request depends on the seed, its kind (verb, resource, subresource) and the number of earlier requests of
that kind, and never on the time, on names or on other kinds. So a client with the same order of requests gets the same
faults.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import hashlib
import random
from typing import TYPE_CHECKING

from aiohttp import web

from ..apiserver.answers import dumps, refuse
from ..apiserver.bodies import read
from ..apiserver.paths import route
from ..apiserver.schema.errors import ApiError
from ..apiserver.watches import DELIVERY, Delivery

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..apiserver.paths import Route
    from .api_faults import ApiFaults

    Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

SPARED = ("/healthz", "/livez", "/readyz")
# Error responses of the API server and of a proxy in front of it.
ERRORS = (
    (500, "InternalError", "Internal error occurred: etcdserver: leader changed"),
    (503, "ServiceUnavailable", "the server is currently unable to handle the request"),
)
_PIECES, _PAUSE_S = 6, 0.05
_TORN_BYTES = (200, 6000)


class FaultInjection:
    """The API faults of one server."""

    def __init__(self, api_faults: ApiFaults, revision: Callable[[], int]) -> None:
        """`revision`: the store's current one; no list ever shows a state from before this call."""
        self.api_faults, self.revision, self.oldest = api_faults, revision, revision()
        self.happened: collections.Counter[str] = collections.Counter()
        self._asked: collections.Counter[str] = collections.Counter()
        self._refused: collections.Counter[bytes] = collections.Counter()
        self._bursts: dict[str, list[tuple[int, str, str]]] = {}

    def over(self, handler: Handler) -> Handler:
        """Return a handler that calls `handler` unless a fault replaces its response."""

        async def disturbed(request: web.BaseRequest) -> web.StreamResponse:
            if request.path.startswith(SPARED):
                return await handler(request)
            asked = route(request.method, request.path, request.rel_url.query)
            kind = f"{asked.verb} {asked.group}/{asked.resource or asked.path}/{asked.subresource}"
            self._asked[kind] += 1
            seed = f"{self.api_faults.seed} {kind} {self._asked[kind]}"
            chance = random.Random(hashlib.sha256(seed.encode()).digest())  # noqa: S311 - faults are not secret
            try:
                return await self._respond(handler, request, asked, kind, chance)
            except ApiError as error:  # raised for a body that is too large; the handler returns its own errors
                return refuse(error)

        return disturbed

    async def _respond(
        self, handler: Handler, request: web.BaseRequest, asked: Route, kind: str, chance: random.Random
    ) -> web.StreamResponse:
        faults = self.api_faults
        if self.disturbs(chance, faults.latency, "latency"):
            await asyncio.sleep(chance.uniform(0.2, 1.0) * faults.latency_s)
        same = await _same(request)
        if self._refused[same] < faults.patience:
            self._refused[same] += 1
            refusal = self._refusal(kind, chance)
            if refusal is not None:
                return refusal
            if self.disturbs(chance, faults.reset, "reset"):
                return await self._reset(handler, request, asked, chance)
        del self._refused[same]
        if asked.verb == "watch" and self.disturbs(chance, faults.watch_gone, "watch_gone"):
            return await self._gone(request)
        if asked.subresource == "log" and self.disturbs(chance, faults.log_cut, "log_cut"):
            return await self._torn(handler, request, chance)
        return await self._spoilt(handler, request, asked, chance)

    async def _spoilt(
        self, handler: Handler, request: web.BaseRequest, asked: Route, chance: random.Random
    ) -> web.StreamResponse:
        """Return a response with a fault: an older state, out of order, in pieces, or in part."""
        faults = self.api_faults
        changed = self._changed(request, asked, chance)
        if asked.verb == "watch":
            lag = chance.uniform(0.1, faults.late_s) if self.disturbs(chance, faults.watch_lag, "watch_lag") else 0.0
            changed[DELIVERY] = functools.partial(_Disorder, injected=self, chance=chance, lag_s=lag)
        answer = await handler(changed)
        if not isinstance(answer, web.Response):
            return answer
        if self.disturbs(chance, faults.drip, "drip"):
            return await _drip(request, answer)
        # A lost response of a write is the fault `reset`.
        if asked.verb in ("get", "list") and self.disturbs(chance, faults.cut, "cut"):
            return await _cut(request, answer, chance)
        return answer

    def disturbs(self, chance: random.Random, probability: float, what: str) -> bool:
        """Draw whether this fault occurs now, and count it."""
        drawn = chance.random() < probability
        if drawn:
            self.happened[what] += 1
        return drawn

    def _refusal(self, kind: str, chance: random.Random) -> web.StreamResponse | None:
        """Return a 429, or an error of a burst that is in progress or starts now."""
        if self.disturbs(chance, self.api_faults.throttle, "throttle"):
            wait = self.api_faults.retry_after_s
            return refuse(
                ApiError(
                    429,
                    "TooManyRequests",
                    "the server has received too many requests and has asked us to try again later",
                    {"retryAfterSeconds": wait},
                )
            )
        burst = self._bursts.setdefault(kind, [])
        if not burst and self.disturbs(chance, self.api_faults.error, "error"):
            burst += [chance.choice(ERRORS)] * chance.randint(1, max(1, self.api_faults.burst))
        return refuse(ApiError(*burst.pop())) if burst else None

    async def _reset(
        self, handler: Handler, request: web.BaseRequest, asked: Route, chance: random.Random
    ) -> web.StreamResponse:
        """Break the connection: before the request is processed, or after it, so that only the response is lost."""
        if asked.verb in ("create", "update", "patch", "delete") and chance.random() < 0.5:
            await handler(request)
        return _broken(request)

    async def _gone(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = request.rel_url.query.get("resourceVersion") or "0"
        status = ApiError(410, "Expired", f"too old resource version: {asked} ({self.revision()})").status()
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(dumps({"type": "ERROR", "object": status}) + b"\n")
        await response.write_eof()
        return response

    async def _torn(self, handler: Handler, request: web.BaseRequest, chance: random.Random) -> web.StreamResponse:
        """End a log in the middle: either as a regular end, as with an unhealthy kubelet, or by a broken connection."""
        if chance.random() < 0.5:
            return await handler(_with(request, limitBytes=chance.randint(*_TORN_BYTES)))
        task = asyncio.ensure_future(handler(request))
        done, _ = await asyncio.wait([task], timeout=chance.uniform(0.05, 1.0))
        if done:
            return task.result()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return _broken(request)

    def _changed(self, request: web.BaseRequest, asked: Route, chance: random.Random) -> web.BaseRequest:
        """Return the request with a weaker query: a watch of a second or two, or a list of an older state."""
        faults, query = self.api_faults, request.rel_url.query
        if asked.verb == "watch" and self.disturbs(chance, faults.watch_end, "watch_end"):
            return _with(request, timeoutSeconds=chance.randint(1, 2))
        plain = asked.verb == "list" and request.method == "GET" and not {"continue", "resourceVersion"} & set(query)
        if plain and self.disturbs(chance, faults.stale, "stale"):
            older = max(self.oldest, self.revision() - chance.randint(1, max(1, faults.stale_revisions)))
            return _with(request, resourceVersion=older, resourceVersionMatch="Exact")
        return request


async def _same(request: web.BaseRequest) -> bytes:
    """Return a hash that identifies a retry of the same request."""
    body = await read(request) if request.method in ("POST", "PUT", "PATCH", "DELETE") else b""
    return hashlib.sha256(f"{request.method} {request.path_qs}\n".encode() + body).digest()


def _with(request: web.BaseRequest, **query: object) -> web.BaseRequest:
    return request.clone(rel_url=request.rel_url.update_query({name: str(value) for name, value in query.items()}))


def _broken(request: web.BaseRequest) -> web.StreamResponse:
    """A response that is never sent: the connection is closed."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def _drip(request: web.BaseRequest, answer: web.Response) -> web.StreamResponse:
    """Send the same response in pieces."""
    body = answer.body if isinstance(answer.body, bytes) else b""
    slow = web.StreamResponse(status=answer.status, headers=answer.headers)
    await slow.prepare(request)
    size = max(1, -(-len(body) // _PIECES))
    for start in range(0, len(body), size):
        await slow.write(body[start : start + size])
        await asyncio.sleep(_PAUSE_S)
    await slow.write_eof()
    return slow


async def _cut(request: web.BaseRequest, answer: web.Response, chance: random.Random) -> web.StreamResponse:
    """Send the beginning of the same response, then break the connection or end the response."""
    body = answer.body if isinstance(answer.body, bytes) else b""
    half = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
    half.enable_chunked_encoding()
    await half.prepare(request)
    await half.write(body[: chance.randrange(1, max(2, len(body)))])
    if chance.random() < 0.5:
        return _broken(request)
    await half.write_eof()
    return half


class _Disorder(Delivery):
    """A delivery that sends events of one watch twice, after later ones, or all of them late."""

    def __init__(
        self, response: web.StreamResponse, *, injected: FaultInjection, chance: random.Random, lag_s: float
    ) -> None:
        super().__init__(response)
        self._injection, self._chance, self._lag_s = injected, chance, lag_s
        self._held: set[asyncio.Task[None]] = set()

    async def write(self, lines: list[bytes]) -> None:
        faults = self._injection.api_faults
        await asyncio.sleep(self._lag_s)
        for line in lines:
            if self._injection.disturbs(self._chance, faults.watch_late, "watch_late"):
                self._hold(line, self._chance.uniform(0.05, faults.late_s))
            else:
                await self.response.write(line)
            if self._injection.disturbs(self._chance, faults.watch_twice, "watch_twice"):
                self._hold(line, self._chance.choice((0.0, self._chance.uniform(0.0, faults.late_s))))

    async def finish(self) -> None:
        """Send the events that were held back."""
        await asyncio.gather(*self._held)

    def _hold(self, line: bytes, seconds: float) -> None:
        async def send() -> None:
            await asyncio.sleep(seconds)
            with contextlib.suppress(ConnectionError):  # the client disconnected
                await self.response.write(line)

        task = asyncio.create_task(send())
        self._held.add(task)
        task.add_done_callback(self._held.discard)
