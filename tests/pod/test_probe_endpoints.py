"""The endpoints stage: real and apparent answers to a pod, directly or through its proxy."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from jobs.pod.stages import endpoints
from jobs.pod.stages.deadline import Watch
from jobs.trial.names import SpecError
from jobs.trial.parts import Endpoint
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Answer every connection on a local port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = listener.accept()
                    with contextlib.suppress(OSError), sock:
                        sock.settimeout(HANG_S)
                        answer(sock)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]


def http(sock: socket.socket) -> None:
    sock.recv(1000)
    sock.sendall(b"HTTP/1.0 403 Forbidden\r\n\r\n")


def waits(sock: socket.socket) -> None:
    """Wait like a server that expects the client to send first."""
    sock.recv(1000)


def closes(_sock: socket.socket) -> None:
    """Close like a mesh's proxy for forbidden traffic."""


def no_tls(sock: socket.socket) -> None:
    sock.recv(1000)
    sock.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "PATIENCE_S", 0.0)
    monkeypatch.setattr(endpoints, "AGAIN_S", 0.0)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def tried(text: str, *, forbidden: bool = False) -> dict[str, Any]:
    data = {}
    asked: Any = Endpoint(text, forbidden).parsed()
    outcome = endpoints.run(data, [asked], Watch(60, 1))
    (record,) = data["tried"]
    assert outcome == ("ok" if record["reached"] is not forbidden else "failed")
    return record


@pytest.mark.parametrize(
    ("scheme", "answer", "reached"),
    [
        ("http://", http, True),
        ("http://", closes, False),
        ("https://", closes, False),
        ("https://", no_tls, True),  # another protocol, but reachable
        ("", waits, True),
        ("", http, True),
        ("", closes, False),
    ],
)
def test_an_answer_is_more_than_a_connection(scheme, answer, reached) -> None:
    with server(answer) as port:
        found = tried(f"{scheme}127.0.0.1:{port}")
        assert (found["reached"], found["by"]) == (reached, "direct"), found
        assert tried(f"{scheme}127.0.0.1:{port}", forbidden=True)["reached"] is reached


def test_what_no_one_serves_and_what_has_no_name_do_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert (tried(f"127.0.0.1:{port}")["reached"], tried("https://nobody.invalid")["reached"]) == (False, False)
    assert "refused" in tried(f"127.0.0.1:{port}")["error"]


def proxy(status: str, then: Callable[[socket.socket], None]) -> Callable[[socket.socket], None]:
    def answer(sock: socket.socket) -> None:
        assert sock.recv(1000).startswith(b"CONNECT mirror.invalid:80 HTTP/1.1\r\n")
        sock.sendall(f"HTTP/1.1 {status}\r\n\r\n".encode())
        then(sock)

    return answer


@pytest.mark.parametrize(
    ("status", "then", "reached"),
    [
        ("200 Connection established", http, True),
        ("200 Connection established", closes, False),
        ("403 Forbidden", closes, False),
        ("407 Proxy Authentication Required", closes, None),  # the proxy's password is not read: undetermined
    ],
)
def test_programs_of_the_pod_go_through_its_proxy(monkeypatch, status, then, reached) -> None:
    with server(proxy(status, then)) as port:
        monkeypatch.setenv("HTTP_PROXY", f"http://user:password@127.0.0.1:{port}")
        monkeypatch.setenv("http_proxy", f"http://user:password@127.0.0.1:{port}")
        found = tried("http://mirror.invalid")
        assert (found["reached"], found["by"]) == (reached, "proxy"), found
        assert "password" not in str(found["error"]).lower()


def test_what_must_not_answer_is_tried_with_the_proxy_too(monkeypatch) -> None:
    """A proxy's refusal does not show that the direct path is closed."""
    with server(http) as port, server(lambda sock: (sock.recv(1000), sock.sendall(b"HTTP/1.1 403 no\r\n\r\n"))) as gate:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{gate}")
        found = tried(f"http://127.0.0.1:{port}", forbidden=True)
        assert (found["reached"], found["by"]) == (True, "direct")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert tried(f"http://127.0.0.1:{port}")["by"] == "direct"


@pytest.mark.parametrize(
    ("text", "host", "port", "kind"),
    [
        ("https://pypi.org/simple", "pypi.org", 443, "tls"),
        ("http://mirror", "mirror", 80, "http"),
        ("registry:5000", "registry", 5000, "tcp"),
        ("registry:443", "registry", 443, "tls"),
        ("[fd00::1]:8080", "fd00::1", 8080, "tcp"),
        ("https://mirror:8443", "mirror", 8443, "tls"),
    ],
)
def test_an_endpoint_is_a_host_and_a_port_or_a_url(text, host, port, kind) -> None:
    parsed = Endpoint(text).parsed()
    assert (parsed["host"], parsed["port"], parsed["kind"]) == (host, port, kind)


@pytest.mark.parametrize(
    "text", ["", "mirror", "ftp://mirror", "https://user:secret@mirror", "mirror:0", "mirror:99999", "a b:80", ":80"]
)
def test_what_is_none_is_refused(text) -> None:
    with pytest.raises(SpecError):
        Endpoint(text)
