"""Endpoint evidence: which of the trial's named hosts are reachable from this pod, directly or through its proxy.

An open connection alone does not prove it: a service mesh's sidecar accepts all of them, and closes those that it may
not forward. So TLS must answer its first message, HTTP a request, and any other connection must stay open.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
import urllib.parse
import urllib.request
from typing import Any, Dict, List, Mapping, Optional

from .deadline import Watch

TIMEOUT_S = 5.0
PATIENCE_S = 12.0  # a network policy, or a route, may be applied seconds after the pod starts
CLOSED_S = 0.5  # within this time a proxy closes connections that it may not forward
AGAIN_S = 1.0
WANTS_PASSWORD = 407


class RefusedError(Exception):
    """There was no answer; the text has the reason."""


class NotToldError(Exception):
    """It cannot be determined whether there would be an answer."""


def run(data: Dict[str, Any], asked: List[Dict[str, Any]], watch: Watch) -> str:
    """Try all endpoints in parallel."""
    data["tried"] = [
        {"endpoint": each["text"], "forbidden": each["forbidden"], "reached": None, "by": None, "error": None}
        for each in asked
    ]
    workers = [
        threading.Thread(target=attempt, args=(each, record, watch), daemon=True)
        for each, record in zip(asked, data["tried"])
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        while worker.is_alive() and not watch.stopped():
            worker.join(timeout=0.25)
    return "ok" if all(record["reached"] is not record["forbidden"] for record in data["tried"]) else "failed"


def attempt(asked: Mapping[str, Any], record: Dict[str, Any], watch: Watch) -> None:
    """Try one: an allowed endpoint for some seconds, as programs would; a forbidden one in every way, and twice."""
    until = time.monotonic() + (0.0 if asked["forbidden"] else PATIENCE_S)
    proxy = proxy_of(asked)
    ways: List[Optional[str]] = [proxy] if proxy else [None]
    if asked["forbidden"] and proxy:
        ways.append(None)
    while True:
        for way in ways:
            _once(asked, record, way)
            if record["reached"] and asked["forbidden"]:
                time.sleep(AGAIN_S)
                _once(asked, record, way)
            if record["reached"] is not False:
                return
        if time.monotonic() >= until or watch.stopped():
            return
        time.sleep(0.5)


def _once(asked: Mapping[str, Any], record: Dict[str, Any], way: Optional[str]) -> None:
    try:
        record["by"] = "proxy" if way else "direct"
        exchange(asked, way)
        record.update(reached=True, error=None)
    except NotToldError as problem:
        record.update(reached=None, error=str(problem))
    except (RefusedError, OSError, ValueError) as problem:
        record.update(reached=False, error=_words(problem))


def _words(problem: Exception) -> str:
    text = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
    return "no answer within %.0f s" % TIMEOUT_S if isinstance(problem, socket.timeout) else str(text)[:200]


def proxy_of(asked: Mapping[str, Any]) -> Optional[str]:
    """Return the proxy that programs of this pod would use; none for protocols other than HTTP and TLS."""
    scheme = {"tls": "https", "http": "http"}.get(str(asked["kind"]))
    proxies = urllib.request.getproxies_environment()
    if scheme is None or urllib.request.proxy_bypass(str(asked["host"])):
        return None
    return proxies.get(scheme) or proxies.get("all")


def exchange(asked: Mapping[str, Any], way: Optional[str]) -> None:
    """Connect and wait for an answer. Raises RefusedError or OSError without one."""
    host, port = str(asked["host"]), int(asked["port"])
    with _tunnel(host, port, way) if way else socket.create_connection((host, port), timeout=TIMEOUT_S) as sock:
        sock.settimeout(TIMEOUT_S)
        if asked["kind"] == "tls":
            _greet(sock, host)
        elif asked["kind"] == "http":
            sock.sendall(b"HEAD / HTTP/1.0\r\nHost: %s\r\n\r\n" % host.encode("idna"))
            _answered(sock)
        else:
            _stays(sock)


def _greet(sock: socket.socket, host: str) -> None:
    """Begin TLS; the certificate and the result of the handshake do not matter: the server answered."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        context.wrap_socket(sock, server_hostname=host).close()
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
        raise RefusedError("the connection was closed at once") from error
    except ssl.SSLError as error:
        if isinstance(error, socket.timeout) or "timed out" in str(error):
            raise socket.timeout from error


def _answered(sock: socket.socket) -> bytes:
    answer = sock.recv(256)
    if not answer:
        raise RefusedError("the connection was closed at once")
    return answer


def _stays(sock: socket.socket) -> None:
    sock.settimeout(CLOSED_S)
    try:
        _answered(sock)
    except socket.timeout:  # the server waits for the client's first message
        return


def _tunnel(host: str, port: int, proxy: str) -> socket.socket:
    """Request a connection from the proxy. Proxy credentials are never read."""
    parts = urllib.parse.urlsplit(proxy if "://" in proxy else "http://" + proxy)
    if not parts.hostname or parts.scheme not in ("http", ""):
        raise NotToldError("the pod's proxy uses %s, which is not tried" % (parts.scheme or "nothing known"))
    sock = socket.create_connection((parts.hostname, parts.port or 80), timeout=TIMEOUT_S)
    try:
        _connected(sock, host, port)
    except BaseException:
        sock.close()
        raise
    return sock


def _connected(sock: socket.socket, host: str, port: int) -> None:
    target = (b"[%s]" % host.encode("ascii") if ":" in host else host.encode("idna")) + b":%d" % port
    sock.sendall(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, target))
    head = b""
    while b"\r\n\r\n" not in head and len(head) < 1 << 14:
        head += _answered(sock)
    words = head.split(None, 2)
    status = int(words[1]) if len(words) > 1 else 0
    if status == WANTS_PASSWORD:
        raise NotToldError("the pod's proxy requires credentials, which are not read")
    if status // 100 != 2:
        raise RefusedError("the proxy answers %d" % status)
