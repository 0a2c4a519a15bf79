"""The Pushgateway: scheduled runs replace their group, a manual run adds to it, and neither prints the address."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reports.metrics import PushError, push
from reports.schema import completed
from tests.program import seatrial

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
RECORD: Any = completed({"verdict": "go", "scope": "full", "cluster": {"namespace": "gpu"}})


class Gateway(HTTPServer):
    """Accepts metrics like a Pushgateway (github.com/prometheus/pushgateway): PUT replaces a group, POST its families."""

    answer = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.pushed: list[tuple[str, str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """Keeps the received requests."""

    server: Gateway

    def _take(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.pushed.append((self.command, self.path, body))
        self.send_response(self.server.answer)
        self.end_headers()

    do_PUT = do_POST = _take  # noqa: N815 -- http.server calls them so

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    """Return a Pushgateway that responds."""
    made = Gateway()
    thread = threading.Thread(target=made.serve_forever, args=(0.02,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def test_a_scheduled_run_replaces_its_group_and_a_run_by_hand_adds_to_it(gateway: Gateway) -> None:
    """A manual run keeps the metrics of scheduled runs, but not the faults of the previous run."""
    push(gateway.url, RECORD, last_success=5.0, bad={"n": True})
    push(gateway.url, RECORD | {"verdict": "no-go"})
    (method, place, whole), (added, again, body) = gateway.pushed
    assert (method, added) == ("PUT", "POST")
    assert place == again == "/metrics/job/seatrial/namespace/gpu"
    assert "seatrial_last_success_timestamp_seconds 5.0" in whole
    assert 'seatrial_node_bad{node="n"} 1.0' in whole
    assert "seatrial_last_success_timestamp_seconds" not in body
    assert "seatrial_node_bad" not in body
    assert 'seatrial_fault_subjects{fault="none"} 0.0' in body  # a family without a sample would replace nothing


def test_what_goes_wrong_is_reported_without_the_address(gateway: Gateway) -> None:
    """The address may contain a password."""
    gateway.answer = 503
    with pytest.raises(PushError, match="answered 503"):
        push(gateway.url, RECORD)
    for url in (
        "http://u:swordfish@127.0.0.1:9",
        "http://u:swordfish",
        "http://[swordfish",
        "swordfish://x",
        "swordfish",
        "",
    ):
        with pytest.raises(PushError) as error:
            push(url, RECORD)
        assert "u:swordfish" not in str(error.value)


@pytest.mark.parametrize("up", [True, False])
def test_a_run_pushes_and_its_verdict_stands_whatever_comes_of_it(up: bool, gateway: Gateway, tmp_path: Path) -> None:
    """seatrial accept --push URL runs here with the checks that start no pod."""
    url = gateway.url if up else "http://127.0.0.1:9"
    done = seatrial("preflight", "--cluster", "sim:healthy", "--push", url, "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout
    assert ("could not be pushed" in done.stdout) == (not up)
    if up:
        ((method, _, body),) = gateway.pushed
        assert (method, body) == ("POST", (tmp_path / "metrics.prom").read_text())
