"""The client for a pod, with a stand-in of each version: its output, and its handling of the answers."""

import base64
import json
import os
import socket
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from jobs.pod import ras_client
from seatrial.logs.hang.live import take_sample
from seatrial.logs.hang.model import Evidence
from tests.hang.ras_standin import Server
from tests.waiting import HANG_S

SOURCE = Path(ras_client.__file__).read_text()


@pytest.fixture
def served():
    """Return a function: version and manner to a server."""
    made = []

    def serve(version, manner):
        made.append(Server(version, manner))
        return made[-1]

    yield serve
    for server in made:
        server.close()


def ask(address, *, samples=3, prefix="", most=1 << 20, answer_s=None, **env):
    """Run the client like a pod, without this process's environment."""
    text = SOURCE if answer_s is None else SOURCE.replace("_ANSWER_S = 30.0", f"_ANSWER_S = {answer_s}")
    text += f"\nmain({samples}, 0.0, {prefix!r}, {most})\n"
    code = f"import sys; exec(sys.stdin.buffer.read({len(text.encode())}))"
    done = subprocess.run(
        [sys.executable, "-IB", "-c", code],
        input=text,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
        env={"NCCL_RAS_ADDR": address, "HOME": "/nowhere", **env},
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def evidence_of(lines):
    evidence = Evidence()
    for line in lines:
        if "sample" in line:
            take_sample(evidence, "test", line["sample"])
    return evidence


@pytest.mark.parametrize("version", ["2.24.3", "2.26.2", "2.28.3", "2.28.7", "2.29.1", "2.30.7", "2.31.1"])
@pytest.mark.parametrize("manner", ["late", "slow"])
def test_each_version_is_asked_in_its_own_words(served, version, manner):
    """SET FORMAT is sent only to versions with it, and the handshake comes first on every connection."""
    server = served(version, manner)
    evidence = evidence_of(ask(f"127.0.0.1:{server.port}"))
    assert len(evidence.samples) == 3
    assert all(sample.counts for sample in evidence.samples)
    new = tuple(map(int, version.split("."))) >= (2, 28, 7)
    assert ("SET FORMAT json" in server.heard) == new
    assert set(server.heard) <= {"CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT json", "VERBOSE STATUS"}
    assert server.heard.count("CLIENT PROTOCOL 2") == server.heard.count("VERBOSE STATUS") == 3 + new


def test_garbage_is_named_and_nothing_more_is_sent(served):
    server = served("2.28.9", "garbage")
    lines = ask(f"127.0.0.1:{server.port}")
    assert not evidence_of(lines).samples
    assert any("not NCCL RAS" in line.get("note", "") for line in lines)


@pytest.mark.parametrize("version", ["2.26.2", "2.28.9"])
def test_half_an_answer_proves_nothing(served, version):
    server = served(version, "half")
    evidence = evidence_of(ask(f"127.0.0.1:{server.port}"))
    assert not evidence.samples
    assert any("truncated" in note for note in evidence.not_seen)


def test_a_silent_server_ends_in_a_word(served):
    server = served("2.28.9", "silent")
    lines = ask(f"127.0.0.1:{server.port}", answer_s=0.3)
    assert any("no answer in time" in line.get("note", "") for line in lines)


def test_where_nothing_listens_no_connection_is_made():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    lines = ask(f"127.0.0.1:{port}")
    assert any("nothing listens" in line.get("note", "") for line in lines)
    assert any("RAS is off" in line.get("note", "") for line in ask("127.0.0.1:1", NCCL_RAS_ENABLE="0"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("localhost", 28028)),
        ("localhost", ("localhost", 28028)),
        ("10.0.0.1:9000", ("10.0.0.1", 9000)),
        ("0.0.0.0:28028", ("127.0.0.1", 28028)),
        ("[::1]:7", ("::1", 7)),
        ("node-1:x", ("node-1", 28028)),
    ],
)
def test_the_address_is_read_as_nccl_reads_it(text, expected):
    assert ras_client.place(text) == expected


def test_dumps_are_found_bounded_and_of_this_container_only(tmp_path):
    for number in (0, 12):
        (tmp_path / f"rank_{number}").write_bytes(b"\x80\x02}." + bytes([number]))
    (tmp_path / "rank_3.bak").write_bytes(b"x")
    (tmp_path / "rank_4").write_bytes(b"old")
    os.utime(tmp_path / "rank_4", (1, 1))
    (tmp_path / "rank_5").write_bytes(b"x" * 2000)
    lines = ask("", samples=0, prefix=str(tmp_path / "rank_"), most=1000)
    dumps = {line["dump"]: zlib.decompress(base64.b64decode(line["data"])) for line in lines if "dump" in line}
    assert dumps == {str(tmp_path / f"rank_{n}"): b"\x80\x02}." + bytes([n]) for n in (0, 12)}
    notes = [line["note"] for line in lines if "note" in line]
    assert [("older" in note, "larger" in note) for note in notes] == [(True, False), (False, True)]
