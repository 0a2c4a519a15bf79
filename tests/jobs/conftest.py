"""A minimal HTTP server with a test's answers, and the recordings of a real cluster."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from jobs.cluster.client.answers import resource_of
from jobs.cluster.client.kube import Kube
from tests.waiting import LOOK_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DATA = Path(__file__).parent / "data"


class Asked:
    """One request as the server received it."""

    def __init__(self, verb: str, target: str, headers: dict[str, str], body: Any) -> None:
        parts = urlsplit(target)
        self.verb, self.path, self.headers, self.body = verb, parts.path, headers, body
        self.query = {key: values[-1] for key, values in parse_qs(parts.query).items()}


class FakeApi:
    """A server that answers with `answer(asked) -> (status, headers, body)`; body is JSON, bytes, or an iterator of
    chunks."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answer: Callable[[Asked], tuple[int, dict[str, str], Any]] = lambda _: (200, {}, {})
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else the body waits for the acknowledgement of the head, 40 ms

            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                raw = self.rfile.read(length)
                asked = Asked(
                    self.command,
                    self.path,
                    {key.lower(): value for key, value in self.headers.items()},
                    json.loads(raw) if raw else None,
                )
                outer.asked.append(asked)
                status, headers, body = outer.answer(asked)
                body = with_kind(body, asked) if status < 300 and isinstance(body, dict) else body
                if body is DROP:
                    self.close_connection = True
                    return
                data = body if isinstance(body, bytes) else None
                if data is None and not hasattr(body, "__next__"):
                    data = json.dumps(body).encode()
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                if data is not None:
                    if "Content-Length" not in headers:
                        self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                    if "Content-Length" in headers:
                        self.close_connection = True
                    return
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                try:
                    chunks: Any = body
                    for chunk in chunks:
                        if chunk is DROP:
                            self.close_connection = True
                            return
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                        self.wfile.flush()
                    self.wfile.write(b"0\r\n\r\n")
                except OSError:
                    self.close_connection = True

            do_POST = do_PATCH = do_DELETE = do_PUT = do_GET  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def drips(byte: bytes = b"\n") -> Iterator[bytes]:
    """Yield an endless body without content, while the client listens."""
    while True:
        yield byte
        time.sleep(LOOK_S)


def with_kind(body: dict[str, Any], asked: Asked) -> dict[str, Any]:
    """Return an answer with the kind that an API server would write: that of the sent object, else by the path."""
    resource, _ = resource_of(asked.path)
    if not resource or "kind" in body:
        return body
    if asked.verb == "POST" and isinstance(asked.body, dict) and asked.body.get("kind"):
        return {"kind": asked.body["kind"], **body}
    singular = resource.removesuffix("es") if resource.endswith("sses") else resource.removesuffix("s").replace("-", "")
    kind = KINDS.get(resource, singular)
    return {"kind": f"{kind}List" if "items" in body else kind, **body}


KINDS = {"nodes": "Node", "pods": "Pod", "jobs": "Job", "events": "Event", "resourcequotas": "ResourceQuota"}


class _Drop:
    """Break the connection at this point."""


DROP = _Drop()


@pytest.fixture
def drop() -> Any:
    """A fake's answer that breaks the connection."""
    return DROP


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A fake API server."""
    server = FakeApi()
    yield server
    server.close()


@pytest.fixture
def kube(api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kube]:
    """A client of the fake API server, with a token; a proxy in the environment must not interfere."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    client = Kube.connect(str(write_kubeconfig(tmp_path / "config", api.url)))
    yield client
    client.close()


def write_kubeconfig(file: Path, server: str, **user: Any) -> Path:
    """Write a kubeconfig with one context, in JSON (which is YAML)."""
    file.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": user or {"token": "secret-token"}}],
            }
        )
    )
    return file


@pytest.fixture
def kubeconfig() -> Callable[..., Path]:
    """Return a function that writes kubeconfigs."""
    return write_kubeconfig


@pytest.fixture
def recording() -> Callable[[str, str], dict[str, list[Any]]]:
    """Load one state of a scenario recorded from a real Kubernetes 1.36 cluster."""

    def load(scenario: str, moment: str) -> dict[str, list[Any]]:
        moments = json.loads((DATA / "recordings" / f"{scenario}.json").read_text())["moments"]
        return next(value for key, value in moments.items() if key.startswith(moment))

    return load
