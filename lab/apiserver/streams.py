"""`exec` and `attach`: several streams over one WebSocket.

The protocol is that of k8s.io/apimachinery remotecommand: each message starts with the number of its channel; v5 adds a
message that closes a channel (https://kubernetes.io/docs/reference/using-api/ and KEP-4006). SPDY and port forwarding
are rejected with a message that kubectl shows.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Protocol

from aiohttp import WSMsgType, web

from .access import Attributes, check
from .answers import dumps
from .paths import is_true
from .podparts import chosen_container
from .schema.errors import ApiError, bad_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .call import Call
    from .schema.values import Object

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
PING_S = 30


class Session(Protocol):
    """A session with a process in a container."""

    result: int | None

    def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield (stream, bytes)."""

    async def feed(self, data: bytes) -> None:
        """Write to its input."""

    def end_input(self) -> None:
        """Close its input."""

    def resize(self, columns: int, rows: int) -> None:
        """Set the size of its terminal."""

    def close(self) -> None:
        """End the session."""


class Terminals(Protocol):
    """Operations on containers that nodes offer to the API server."""

    def running(self, ns: str, pod: str, container: str) -> object:
        """Raise ApiError with the kubelet's text unless the container runs."""

    async def execute(
        self, ns: str, pod: str, container: str, command: list[str], *, stdin: bool, tty: bool
    ) -> Session:
        """Start a command in a running container; ApiError with the kubelet's text if that fails."""

    def attach(self, ns: str, pod: str, container: str) -> Session:
        """Attach to a running container."""


async def converse(call: Call, kubelet: object) -> web.StreamResponse:
    """Serve exec, attach or portforward."""
    check(
        call.store,
        call.user,
        Attributes(
            "create", call.kind.group, call.kind.plural, call.route.subresource, call.route.namespace, call.route.name
        ),
    )
    pod = call.current()
    if not pod["spec"].get("nodeName"):
        raise bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
    if call.route.subresource == "portforward":
        raise ApiError(
            501,
            "NotImplemented",
            "the simulated cluster does not forward ports: its pods can be reached "
            "from other pods, and from here with kubectl exec",
        )
    options = {name: name in call.query and is_true(call.query[name]) for name in ("stdin", "stdout", "stderr", "tty")}
    if not (options["stdin"] or options["stdout"] or options["stderr"]):
        raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
    container = chosen_container(pod, call.query.get("container", ""))
    if not hasattr(kubelet, "attach"):
        raise ApiError(500, "InternalError", f'unable to upgrade connection: container not found ("{container}")')
    nodes: Terminals = kubelet  # type: ignore[assignment]
    place = (pod["metadata"]["namespace"], pod["metadata"]["name"], container)
    nodes.running(*place)
    _upgradable(call)
    return await _Channels(call, nodes, place, options).serve()


def _upgradable(call: Call) -> None:
    upgrade = call.request.headers.get("Upgrade", "").lower()
    if upgrade == "websocket":
        return
    if upgrade.startswith("spdy"):
        raise bad_request(
            "the simulated cluster supports WebSocket here and not SPDY: use kubectl 1.31 or newer, "
            "or set KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true"
        )
    raise bad_request("Upgrade request required")


class _Channels:
    """One upgraded connection."""

    def __init__(self, call: Call, nodes: Terminals, place: tuple[str, str, str], options: dict[str, bool]) -> None:
        self._call, self._nodes, self._place, self._options = call, nodes, place, options
        self._command: list[str] = call.query.getall("command", [])
        self._socket = web.WebSocketResponse(protocols=PROTOCOLS, heartbeat=PING_S, max_msg_size=0)

    async def serve(self) -> web.StreamResponse:
        """Copy bytes both ways until the process or the client ends."""
        socket = self._socket
        await socket.prepare(self._call.request)
        if socket.ws_protocol is None:
            await socket.close(code=1002)
            return socket
        ready = STDOUT if self._options["stdout"] else STDERR if self._options["stderr"] else ERROR
        await socket.send_bytes(bytes([ready]))  # an empty message shows the client that it is connected
        with contextlib.suppress(ConnectionError):  # the client disconnected
            try:
                status = await self._carry(await self._open())
            except ApiError as error:
                status = error.status()
            await socket.send_bytes(bytes([ERROR]) + dumps(status))
            await socket.close()
        return socket

    async def _open(self) -> Session:
        if self._call.route.subresource == "attach":
            return self._nodes.attach(*self._place)
        stdin, tty = self._options["stdin"], self._options["tty"]
        return await self._nodes.execute(*self._place, self._command, stdin=stdin, tty=tty)

    async def _carry(self, session: Session) -> Object:
        typing = asyncio.create_task(self._type(session))
        enabled = {STDOUT: self._options["stdout"], STDERR: self._options["stderr"]}
        try:
            async for stream, data in session.output():
                if enabled[stream]:
                    await self._socket.send_bytes(bytes([stream]) + data)
        finally:
            typing.cancel()
            session.close()
        return self._status(session.result)

    async def _type(self, session: Session) -> None:
        async for message in self._socket:
            data = message.data.encode() if message.type is WSMsgType.TEXT else message.data
            if not data:
                continue
            channel, content = data[0], data[1:]
            if channel == STDIN and self._options["stdin"] and content:
                await session.feed(content)
            elif channel == CLOSE and content[:1] == bytes([STDIN]):
                session.end_input()
            elif channel == RESIZE:
                _resize(session, content)
        session.close()

    def _status(self, code: int | None) -> Object:
        if not code:
            return {"metadata": {}, "status": "Success"}
        command = " ".join(self._command)
        text = f"command terminated with non-zero exit code: error executing command [{command}], exit code {code}"
        causes = [{"reason": "ExitCode", "message": str(code)}]
        return {
            "metadata": {},
            "status": "Failure",
            "message": text,
            "reason": "NonZeroExitCode",
            "details": {"causes": causes},
        }


def _resize(session: Session, content: bytes) -> None:
    with contextlib.suppress(ValueError, TypeError, AttributeError):  # ignored, since any client input is possible
        size = json.loads(content)
        session.resize(int(size.get("Width", 0)), int(size.get("Height", 0)))
