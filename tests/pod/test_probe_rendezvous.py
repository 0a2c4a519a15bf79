"""Rendezvous and agreement where only part of it works: one-way blocks, ranks that leave, ports given back."""

from __future__ import annotations

import json
import socket
import time

import pytest

from .conftest import together


def test_ranks_that_met_agree_and_give_the_port_back(sides) -> None:
    """After a yes MASTER_PORT can be bound at once on every rank, without SO_REUSEADDR on rank 0, as any program would."""
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
    """One rank that cannot go on stops all, with its reason."""
    a, b = sides(2)
    a.meet(None, "127.0.0.2")
    b.meet("127.0.0.1", None)
    together(a.agree, b.agree)
    answers = together(lambda: a.barrier.agree("ring", "", 5), lambda: b.barrier.agree("ring", "no torchrun", 5))
    assert answers == [(False, "rank 1: no torchrun"), (False, "no torchrun")]


@pytest.mark.parametrize("blocked", [0, 1])
def test_a_one_way_block_is_a_no_on_both_ranks(sides, blocked: int) -> None:
    """If only one direction works, both ranks know it within the port's time-out, and neither goes on."""
    a, b = sides(2, port_timeout_s=0.6, dns_timeout_s=1)
    a.meet(None, "127.0.0.77" if blocked == 0 else "127.0.0.2")
    b.meet("127.0.0.77" if blocked == 1 else "127.0.0.1", None)
    began = time.monotonic()
    (go_a, why_a), (go_b, why_b) = together(a.agree, b.agree)
    assert time.monotonic() - began < 5
    assert (go_a, go_b) == (False, False)
    victim, other = (a, b) if blocked == 0 else (b, a)
    assert victim.rendezvous.records[1 - blocked]["outbound_error"] == "connection refused"
    assert victim.rendezvous.records[1 - blocked]["inbound"] is True
    assert other.rendezvous.records[blocked]["outbound"] is True
    assert "127.0.0.77" in (why_a if blocked == 0 else why_b)
    assert why_a
    assert why_b


def test_a_rank_that_leaves_is_noticed(sides) -> None:
    """A rank whose pod is gone makes the next topic a no, and is trouble in a running collective."""
    a, b = sides(2)
    a.meet(None, "127.0.0.2")
    b.meet("127.0.0.1", None)
    together(a.agree, b.agree)
    together(a.rendezvous.keep_only_control, b.rendezvous.keep_only_control)
    assert a.barrier.trouble("ring") == ""
    b.rendezvous.leave()
    limit = time.monotonic() + 5
    while not a.barrier.trouble("ring") and time.monotonic() < limit:
        time.sleep(0.01)
    assert a.barrier.trouble("ring") == "rank 1: its pod is gone"
    assert a.barrier.agree("next", "", 5) == (False, "rank 1: its pod is gone")


def test_a_failure_is_relayed_to_every_rank(sides) -> None:
    """Rank 2 hears from rank 0 that rank 1 failed; a rank that ended well is no trouble, even after it left."""
    all_sides = sides(3)
    for rank, side in enumerate(all_sides):
        side.meet(*[None if index == rank else f"127.0.0.{index + 1}" for index in range(3)])
    together(*[side.agree for side in all_sides])
    together(*[side.rendezvous.keep_only_control for side in all_sides])
    a, b, c = all_sides
    c.barrier.announce_end("ring", "")
    b.barrier.announce_end("ring", "its command ended with exit code 1")
    limit = time.monotonic() + 5
    while not c.barrier.trouble("ring") and time.monotonic() < limit:
        time.sleep(0.01)
    assert c.barrier.trouble("ring") == "rank 1: its command ended with exit code 1"
    assert a.barrier.trouble("ring") == "rank 1: its command ended with exit code 1"
    c.rendezvous.leave()
    time.sleep(0.05)  # for a wrong word to come: none need come at all
    assert a.barrier.trouble("default") in ("", "rank 2: its pod is gone")


def test_a_message_that_never_ends_is_refused(sides) -> None:
    """An endless line from a stranger is cut off, and the peer is still welcome."""
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


def test_the_handshake_tells_identity_and_clock(sides) -> None:
    """A peer of the run is answered with this rank's run, rank, address and clock."""
    a, _ = sides(2)
    with socket.create_connection(("127.0.0.1", a.trial.master_port)) as line:
        hello = {
            "seatrial": 1,
            "kind": "hello",
            "run": a.trial.run,
            "rank": 1,
            "to": 0,
            "pod_ip": "127.0.0.2",
            "clock": time.time() + 60,
        }
        line.sendall(json.dumps(hello).encode() + b"\n")
        answer = json.loads(line.makefile().readline())
    assert (answer["run"], answer["rank"], answer["pod_ip"]) == (a.trial.run, 0, "127.0.0.1")
    assert abs(answer["clock"] - time.time()) < 5
    limit = time.monotonic() + 5
    while not a.rendezvous.records[1]["inbound"] and time.monotonic() < limit:
        time.sleep(0.01)
    assert 55 < a.rendezvous.records[1]["clock_skew_s"] < 61
