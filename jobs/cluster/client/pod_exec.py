"""Execution of a command in a container through the API server's WebSocket (pods/exec).

Each message begins with its channel number, as in k8s.io/apimachinery remotecommand (v4, v5). The package
websocket-client is a dependency of the official client. The upgrade is a GET. An API server before 1.35 requires the
verb `get` on pods/exec, later versions `create`, too (feature gate AuthorizePodWebsocketUpgradeCreatePermission).
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from ..redact import safe
from ..unstructured import as_list, as_map
from .errors import Unreachable
from .http_client import CONNECT_S
from .kube import Kube, path
from .reading import transport

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _ERROR = 0, 1, 2, 3
_PIECE = 32 << 10
_MAX_ERRORS = 64 << 10


@dataclass(slots=True)
class Executed:
    """A command's output and exit code; `code` is None if it did not complete, `message` is the server's."""

    out: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    code: int | None = None
    message: str = ""
    cut: bool = False
    """It exceeded the size limit or the deadline."""


def execute(
    kube: Kube,
    pod: str,
    container: str,
    command: list[str],
    *,
    stdin: bytes = b"",
    deadline_s: float = 60.0,
    most_bytes: int = 64 << 20,
) -> Executed:
    """Run a command to its end, within `deadline_s` seconds and `most_bytes` of output.

    Raises ApiError for a refusal (Forbidden without the permission), Unreachable without a response.
    """
    import websocket  # noqa: PLC0415 -- comes with kubernetes; most commands never execute anything in a pod

    end = time.monotonic() + deadline_s
    parameters = [("container", container)] * bool(container) + [("command", word) for word in command]
    parameters += [("stdin", "true")] * bool(stdin) + [("stdout", "true"), ("stderr", "true")]
    socket = _connected(kube, pod, parameters, deadline_s)
    done = Executed()
    try:
        for at in range(0, len(stdin), _PIECE):
            socket.send_binary(bytes([_STDIN]) + stdin[at : at + _PIECE])
        _converse(socket, done, end, most_bytes)
    except (websocket.WebSocketTimeoutException, TimeoutError):
        done.cut, done.message = True, "it did not end in time"
    except (websocket.WebSocketException, OSError, ValueError) as error:
        done.message = done.message or transport(error)
    finally:
        with contextlib.suppress(Exception):  # errors of the peer no longer matter on an abandoned connection
            socket.close(timeout=1)
    return done


def _connected(kube: Kube, pod: str, parameters: list[tuple[str, str]], deadline_s: float) -> Any:
    """Open a WebSocket to the pod's exec. Raises as execute does."""
    import websocket  # noqa: PLC0415

    url_path = path("pods", pod, namespace=kube.namespace, sub="exec")
    try:
        return websocket.create_connection(
            "ws" + kube.server.removeprefix("http") + url_path + "?" + urlencode(parameters),
            timeout=min(CONNECT_S * 3, deadline_s),
            subprotocols=list(PROTOCOLS),
            suppress_origin=True,
            redirect_limit=0,
            **kube.upgrade_options("GET", url_path),
        )
    except websocket.WebSocketBadStatusException as error:
        body = error.resp_body or b""
        raise kube.refusal(
            "GET", url_path, error.status_code, _decoded(body if isinstance(body, bytes) else body.encode())
        ) from error
    except (websocket.WebSocketException, OSError, ValueError) as error:
        raise Unreachable(f"{kube.where('GET', url_path)}: {transport(error)}") from error


def _converse(socket: Any, done: Executed, end: float, most_bytes: int) -> None:
    """Read until the command's status, the size limit or the deadline."""
    while True:
        left = end - time.monotonic()
        if left <= 0 or len(done.out) > most_bytes:
            done.cut = True
            done.message = "it did not end in time" if left <= 0 else f"it wrote more than {most_bytes >> 20} MiB"
            return
        socket.settimeout(left)
        data = socket.recv()
        data = data.encode() if isinstance(data, str) else data
        if not data:  # closed without a status
            return
        channel, content = data[0], data[1:]
        if channel == _STDOUT:
            done.out += content
        elif channel == _STDERR:
            done.errors += content[: max(0, _MAX_ERRORS - len(done.errors))]
        elif channel == _ERROR and content:
            _status(done, _decoded(content))
            return


def _status(done: Executed, status: Any) -> None:
    answer = as_map(status)
    if answer.get("status") == "Success":
        done.code = 0
        return
    done.message = safe(answer.get("message") or "the server gave no reason", 600)
    for cause in as_list(as_map(answer.get("details")).get("causes")):
        number = str(cause.get("message") or "")
        if cause.get("reason") == "ExitCode" and number.isdigit():
            done.code = int(number)


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return {"message": body[:300].decode("utf-8", "replace")}
