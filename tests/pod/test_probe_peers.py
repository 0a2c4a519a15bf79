"""The probe with its peers: late, missing, wrong and unknown ones; two pods on two loopback addresses."""

from __future__ import annotations

import json
import socket
import threading

from tests.waiting import HANG_S, LOOK_S


def test_a_missing_peer_means_no_collective(pods) -> None:
    """A rank whose peer never arrives says so and ends; it does not hang in torchrun."""
    pods.trial.update(peer_wait_s=2)
    pods.start(0)
    stages = pods.stages(0)
    (peer,) = stages["port"]["peers"]
    assert peer["outbound"] is False
    assert peer["outbound_error"] == "connection refused"
    assert "rank 1 at 127.0.0.2: connection refused" in stages["collective.ring"]["skipped"]
    assert stages["collective.default"]["skipped"] == stages["collective.ring"]["skipped"]


def test_a_name_that_does_not_resolve_stops_all_ranks(pods) -> None:
    """If one rank cannot resolve a peer, every rank skips the collective and names that rank."""
    pods.trial.update(dns_timeout_s=1, port_timeout_s=3, peers=["127.0.0.1", "no-such-host.invalid"])
    stages_of = pods.run()
    record = stages_of[0]["dns"]["peers"][1]
    assert record["addresses"] == []
    assert record["error"]
    assert record["attempts"] >= 1
    assert "no-such-host.invalid" in stages_of[0]["collective.ring"]["skipped"]
    assert "do not resolve" in stages_of[1]["collective.ring"]["skipped"]


def test_a_wrong_address_is_recognised(pods) -> None:
    """A peer's name that leads to another rank is detected in the handshake."""
    pods.trial.update(peers=["127.0.0.1", "127.0.0.1"], port_timeout_s=3)
    pods.start(0)
    stages = pods.stages(0)
    assert stages["port"]["peers"][0]["outbound_error"] == "answered by rank 0 of this run, not by rank 1"


def test_strangers_on_the_port_change_nothing(pods) -> None:
    """Port scanners, other runs and garbage on MASTER_PORT are ignored during the rendezvous."""
    pods.trial.update(collectives=[])
    stop = threading.Event()
    other = {"seatrial": 1, "kind": "hello", "run": "another", "rank": 1, "to": 0, "pod_ip": "127.0.0.9", "clock": 0}
    noises = [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00" * 9000,
        b"[]\n",
        b'{"seatrial":1}\n',
        json.dumps(other).encode() + b"\n",
    ]

    heard, knocked = [], threading.Event()

    def knock() -> None:
        while not stop.is_set():
            for noise in noises:
                try:
                    with socket.create_connection(("127.0.0.1", pods.trial["master_port"]), timeout=HANG_S) as line:
                        line.sendall(noise)
                        heard.append(noise)
                except OSError:
                    stop.wait(LOOK_S)
            if len(heard) >= 2 * len(noises):
                knocked.set()

    knocker = threading.Thread(target=knock)
    knocker.start()
    try:
        pods.start(0)
        assert knocked.wait(HANG_S)
        pods.start(1)
        stages_of = {rank: pods.stages(rank) for rank in (0, 1)}
    finally:
        stop.set()
        knocker.join()
    for rank in (0, 1):
        (peer,) = stages_of[rank]["port"]["peers"]
        assert (peer["outbound"], peer["inbound"], peer["pod_ip"]) == (True, True, f"127.0.0.{2 - rank}")


def test_a_port_that_is_taken_is_reported(pods) -> None:
    """MASTER_PORT in use by another program in the pod: not listening, and no collective."""
    pods.trial.update(port_timeout_s=1, peer_wait_s=1)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", pods.trial["master_port"]))
        holder.listen()
        stages_of = pods.run()
    assert stages_of[0]["port"]["listening"] is False
    assert "in use" in stages_of[0]["port"]["error"]
    assert "rank 0" in stages_of[1]["collective.ring"]["skipped"]


def test_three_ranks_agree(pods) -> None:
    """The full mesh and the agreement around rank 0 work with more than two pods."""
    pods.trial.update(nodes=3, peers=["127.0.0.1", "127.0.0.2", "127.0.0.3"])
    stages_of = pods.run()
    for rank in range(3):
        assert [peer["inbound"] and peer["outbound"] for peer in stages_of[rank]["port"]["peers"]] == [True, True]
        assert stages_of[rank]["collective.default"]["exit"] == 0


def test_a_single_pod_needs_no_port(pods) -> None:
    """With one node there is no rendezvous, and the collective runs inside the node."""
    pods.trial.update(nodes=1, peers=["127.0.0.1"], collectives=[{"name": "default", "env": {}}])
    stages_of = pods.run()
    assert "port" not in stages_of[0]
    assert stages_of[0]["collective.default"]["exit"] == 0
