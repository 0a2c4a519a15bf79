"""Rendezvous and agreement with partial failures: one-way blocks, ranks that leave, released ports."""

from __future__ import annotations

import json
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from jobs.pod.stages import rendezvous
from tests.waiting import HANG_S, until

from .conftest import together


def test_ranks_that_met_agree_and_give_the_port_back(sides) -> None:
    """After a yes MASTER_PORT can be bound at once on every rank, without SO_REUSEADDR on rank 0, as by any program."""
    a, b = sides(2)
    a.meet(None, "127.0.0.2")
    b.meet("127.0.0.1", None)
    assert together(a.agree, b.agree) == [(True, ""), (True, "")]
    together(a.rendezvous.keep_only_control, b.rendezvous.keep_only_control)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", a.trial.master_port))
        sock.listen()
    assert together(lambda: a.barrier.agree("next", "", 5), lambda: b.barrier.agree("next", "", 5)) == [(True, "")] * 2


def test_an_objection_is_everybodys_no(sides) -> None:
    """One rank that cannot continue stops all, with its reason."""
    a, b = sides(2)
    a.meet(None, "127.0.0.2")
    b.meet("127.0.0.1", None)
    together(a.agree, b.agree)
    answers = together(
        lambda: a.barrier.agree("ring", "", HANG_S), lambda: b.barrier.agree("ring", "no torchrun", HANG_S)
    )
    assert answers == [(False, "rank 1: no torchrun"), (False, "no torchrun")]


def test_a_late_peer_is_waited_for(sides, monkeypatch) -> None:
    """A peer whose container starts later (its image is being pulled) is waited for beyond the port's time-out."""
    passed, looks = [0.0], []
    clock = SimpleNamespace(time=time.time, monotonic=lambda: time.monotonic() + passed[0])
    monkeypatch.setattr(rendezvous, "time", clock)
    (a,) = sides(2, come=1)
    a.meet(None, "127.0.0.2")
    until(lambda: a.rendezvous.records[1]["outbound_error"] == "connection refused", "the port has no listener yet")
    waiting = threading.Thread(target=a.rendezvous.wait, args=(lambda: looks.append(passed[0]),))
    waiting.start()
    until(lambda: looks, "it waits")
    passed[0] = 2 * a.trial.port_timeout_s
    until(lambda: looks.count(passed[0]) > 1 or not waiting.is_alive(), "its action after the timeout")
    assert waiting.is_alive()
    _, b = sides(2)
    b.meet("127.0.0.1", None)
    waiting.join()
    b.rendezvous.wait(lambda: False)
    for side, other in ((a, 1), (b, 0)):
        assert (side.rendezvous.records[other]["outbound"], side.rendezvous.records[other]["inbound"]) == (True, True)


@pytest.mark.parametrize("blocked", [0, 1])
def test_a_one_way_block_is_a_no_on_both_ranks(sides, blocked: int) -> None:
    """If only one direction works, both ranks know it after the port's time-out, and neither continues."""
    a, b = sides(2, port_timeout_s=0.6, dns_timeout_s=1)
    a.meet(None, "127.0.0.77" if blocked == 0 else "127.0.0.2")
    b.meet("127.0.0.77" if blocked == 1 else "127.0.0.1", None)
    (go_a, why_a), (go_b, why_b) = together(a.agree, b.agree)
    assert (go_a, go_b) == (False, False)
    victim, other = (a, b) if blocked == 0 else (b, a)
    assert victim.rendezvous.records[1 - blocked]["outbound_error"] == "connection refused"
    assert victim.rendezvous.records[1 - blocked]["inbound"] is True
    assert other.rendezvous.records[blocked]["outbound"] is True
    assert "127.0.0.77" in (why_a if blocked == 0 else why_b)
    assert why_a
    assert why_b


def test_a_rank_that_leaves_is_noticed(sides) -> None:
    """A rank whose pod is gone makes the next topic a no, and is a failure in a running collective."""
    a, b = sides(2)
    a.meet(None, "127.0.0.2")
    b.meet("127.0.0.1", None)
    together(a.agree, b.agree)
    together(a.rendezvous.keep_only_control, b.rendezvous.keep_only_control)
    assert a.barrier.trouble("ring") == ""
    b.rendezvous.leave()
    assert until(lambda: a.barrier.trouble("ring"), "trouble") == "rank 1: its pod is gone"
    assert a.barrier.agree("next", "", HANG_S) == (False, "rank 1: its pod is gone")


def test_a_failure_is_relayed_to_every_rank(sides) -> None:
    """Rank 0 informs rank 2 that rank 1 failed; a completed rank that left is not a failure."""
    all_sides = sides(3)
    for rank, side in enumerate(all_sides):
        side.meet(*[None if index == rank else f"127.0.0.{index + 1}" for index in range(3)])
    together(*[side.agree for side in all_sides])
    together(*[side.rendezvous.keep_only_control for side in all_sides])
    a, b, c = all_sides
    c.barrier.announce_end("ring", "")
    b.barrier.announce_end("ring", "its command ended with exit code 1")
    assert until(lambda: c.barrier.trouble("ring"), "trouble") == "rank 1: its command ended with exit code 1"
    assert a.barrier.trouble("ring") == "rank 1: its command ended with exit code 1"
    c.rendezvous.leave()
    assert until(lambda: a.barrier.trouble("default"), "its departure is detected") == "rank 2: its pod is gone"
    assert a.barrier.trouble("ring") == "rank 1: its command ended with exit code 1"


def test_a_message_that_never_ends_is_refused(sides) -> None:
    """An endless line from an unknown sender is cut off, and the peer is still accepted."""
    a, b = sides(2)
    with socket.create_connection(("127.0.0.1", a.trial.master_port)) as line:
        try:
            for _ in range(100):
                line.sendall(b"x" * 65536)
        except OSError:
            pass
    a.meet(None, "127.0.0.2")
    b.meet("127.0.0.1", None)
    assert together(a.agree, b.agree) == [(True, ""), (True, "")]


def test_the_handshake_shows_identity_and_clock(sides) -> None:
    """A peer of the run receives this rank's run, rank, address and clock."""
    a, _ = sides(2)
    before = time.time()
    with socket.create_connection(("127.0.0.1", a.trial.master_port)) as line:
        hello = {
            "seatrial": 1,
            "kind": "hello",
            "run": a.trial.run,
            "rank": 1,
            "to": 0,
            "pod_ip": "127.0.0.2",
            "clock": before + 60,
        }
        line.sendall(json.dumps(hello).encode() + b"\n")
        answer = json.loads(line.makefile().readline())
    assert (answer["run"], answer["rank"], answer["pod_ip"]) == (a.trial.run, 0, "127.0.0.1")
    assert before <= answer["clock"] <= time.time()
    until(lambda: a.rendezvous.records[1]["inbound"], "its message is received")
    assert 59.99 - (time.time() - before) < a.rendezvous.records[1]["clock_skew_s"] <= 60
