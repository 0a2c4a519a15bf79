"""Name resolution: the queries of the C library, and the kinds of failure."""

from __future__ import annotations

import socket
import struct
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from jobs.pod.stages import dns, dnsquery, spec
from jobs.pod.stages.deadline import Watch
from jobs.pod.stages.run import Probe
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from pathlib import Path

KUBERNETES = "nameserver {server}\nsearch team.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"


class Server:
    """A DNS server that answers each question as the test specifies."""

    def __init__(self, answer) -> None:
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        self.asked: list[tuple[str, int]] = []
        self.answer = answer
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                packet, peer = self.sock.recvfrom(4096)
            except OSError:
                return
            position, labels = 12, []
            while packet[position]:
                labels.append(packet[position + 1 : position + 1 + packet[position]].decode())
                position += packet[position] + 1
            kind = struct.unpack(">H", packet[position + 1 : position + 3])[0]
            self.asked.append((".".join(labels), kind))
            result = self.answer(".".join(labels), kind)
            if result is None:
                continue
            code, answers = result
            header = packet[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, answers, 0, 0)
            self.sock.sendto(b"\x00\x00" + header[2:] + packet[12:], peer)  # of another question: must be ignored
            self.sock.sendto(header + packet[12:], peer)


@pytest.fixture
def serve():
    servers: list[Server] = []

    def make(answer) -> Server:
        servers.append(Server(answer))
        return servers[-1]

    yield make
    for server in servers:
        server.sock.close()


def resolver(*servers: str) -> dnsquery.Resolver:
    made = dnsquery.Resolver()
    made.nameservers, made.search, made.ndots = list(servers) or ["127.0.0.1"], ["team.svc.cluster.local"], 5
    return made


def test_resolv_conf_is_read_as_the_c_library_does(tmp_path: Path) -> None:
    """Three servers at most, the last search list, ndots; comments and unknown options are skipped."""
    path = tmp_path / "resolv.conf"
    path.write_text(
        "# comment\nnameserver 10.96.0.10\nnameserver fd00::a ; x\nnameserver 1.1.1.1\nnameserver 2.2.2.2\n"
        "search a b\nsearch team.svc.cluster.local svc.cluster.local\noptions timeout:1 ndots:5 rotate\nnonsense\n"
    )
    assert dnsquery.read_resolver(str(path)).to_dict() == {
        "nameservers": ["10.96.0.10", "fd00::a", "1.1.1.1"],
        "search": ["team.svc.cluster.local", "svc.cluster.local"],
        "ndots": 5,
    }
    assert dnsquery.read_resolver(str(tmp_path / "absent")).nameservers == ["127.0.0.1"]


def test_the_search_list_is_honoured() -> None:
    """A name with fewer dots than ndots is searched first; an absolute name is not searched."""
    made = resolver()
    assert dnsquery.candidates("job-0.svc", made) == ["job-0.svc.team.svc.cluster.local.", "job-0.svc."]
    assert dnsquery.candidates("job-0.svc.", made) == ["job-0.svc."]
    made.ndots = 1
    assert dnsquery.candidates("job-0.svc", made) == ["job-0.svc.", "job-0.svc.team.svc.cluster.local."]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda name, kind: (3, 0), "NXDOMAIN"),
        (lambda name, kind: (2, 0), "SERVFAIL"),
        (lambda name, kind: (5, 0), "REFUSED"),
        (lambda name, kind: (0, 0), "NODATA"),
        (lambda name, kind: (0, 1), "answered"),
        (lambda name, kind: (0, 1) if kind == 28 else (0, 0), "answered"),
        (lambda name, kind: (0, 1) if name.endswith("cluster.local") else (3, 0), "answered"),
        (lambda name, kind: (2, 0) if name.endswith("cluster.local") else (3, 0), "SERVFAIL"),
        (lambda name, kind: None, "timeout"),
    ],
    ids=[
        "nxdomain",
        "servfail",
        "refused",
        "nodata",
        "answered",
        "ipv6-only",
        "by-search",
        "search-servfail",
        "silent",
    ],
)
def test_failures_are_distinguished(serve, answer, reason: str) -> None:
    """NXDOMAIN, SERVFAIL, REFUSED, an empty answer and a timeout are different faults."""
    server = serve(answer)
    limit = time.monotonic() + HANG_S
    assert dnsquery.explain("job-0.svc", resolver(), limit, timeout_s=0.2, port=server.port) == reason


def test_a_dead_server_is_reported() -> None:
    """No process listens: unreachable or timed out, well before the limit."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    limit = time.monotonic() + HANG_S
    assert dnsquery.explain("a.b", resolver(), limit, timeout_s=0.2, port=port) in ("unreachable", "timeout")
    assert time.monotonic() < limit


@pytest.mark.parametrize("name", ["a" * 64, ".".join(["abc"] * 90), "a..b", ""])
def test_impossible_names_are_no_crash(name: str) -> None:
    """An invalid name yields an answer, too."""
    assert dnsquery.explain(name, resolver(), time.monotonic() + 1, timeout_s=0.05, port=9) in (
        "FORMERR",
        "unreachable",
        "timeout",
    )


def resolve(peers: list[str], lookup, timeout_s: float = HANG_S, tmp: Path | None = None) -> tuple[dict, list]:
    data: dict = {}
    heard: list = []
    limit = time.monotonic() + timeout_s
    dns.resolve_all(
        data,
        peers,
        until=lambda record: limit,
        watch=Watch(HANG_S, 1),
        on_resolved=lambda index, addresses: heard.append((index, addresses)),
        resolv_conf=str(tmp or "/nonexistent"),
        lookup=lookup,
    )
    return data, heard


def test_the_nxdomain_window_is_waited_out(monkeypatch) -> None:
    """A name that appears later is resolved; the first error and the time to the first answer are evidence."""
    monkeypatch.setattr(dnsquery, "explain", lambda *a, **k: "NXDOMAIN")
    asked: list[str] = []

    def lookup(name: str) -> list[str]:
        asked.append(name)
        if name == "late" and asked.count("late") < 3:
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return ["10.0.0.1"]

    data, heard = resolve(["early", "late"], lookup)
    early, late = data["peers"]
    assert (early["attempts"], early["first_error"], early["error"]) == (1, None, None)
    assert (late["first_error"], late["error"], late["addresses"]) == ("NXDOMAIN", None, ["10.0.0.1"])
    assert (late["attempts"], asked.count("late")) == (3, 3)
    assert late["seconds_to_first_answer"] > early["seconds_to_first_answer"]
    assert heard == [(0, ["10.0.0.1"]), (1, ["10.0.0.1"])]


def test_the_own_name_is_asked_first(monkeypatch) -> None:
    """A query before publication is cached as denied, so no rank asks too early."""
    monkeypatch.setattr(dnsquery, "explain", lambda *a, **k: "NXDOMAIN")
    asked: list[str] = []

    def lookup(name: str) -> list[str]:
        asked.append(name)
        if name == "own" and asked.count("own") < 4:
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return ["10.0.0.1"]

    data: dict = {}
    until = time.monotonic() + HANG_S
    dns.resolve_all(
        data,
        ["a", "own", "b"],
        until=lambda _: until,
        watch=Watch(HANG_S, 1),
        on_resolved=lambda *_: None,
        own=1,
        resolv_conf="/nonexistent",
        lookup=lookup,
    )
    assert asked[:4] == ["own"] * 4 and sorted(asked[4:]) == ["a", "b"]


def test_a_missing_own_name_keeps_no_one_from_asking_for_the_others(monkeypatch) -> None:
    """The peers' names may resolve without our own: that difference is evidence."""
    monkeypatch.setattr(dnsquery, "explain", lambda *a, **k: "NXDOMAIN")

    def lookup(name: str) -> list[str]:
        if name == "own":
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return ["10.0.0.1"]

    data: dict = {}
    began = time.monotonic()
    dns.resolve_all(
        data,
        ["own", "a"],
        until=lambda record: began + (1.0 if record["name"] == "own" else HANG_S),
        watch=Watch(HANG_S, 1),
        on_resolved=lambda *_: None,
        own=0,
        resolv_conf="/nonexistent",
        lookup=lookup,
    )
    assert [bool(peer["addresses"]) for peer in data["peers"]] == [False, True]


def test_a_name_that_never_comes_ends_in_time(monkeypatch) -> None:
    """The stage's time bounds the wait, and the record contains the reason."""
    monkeypatch.setattr(dnsquery, "explain", lambda *a, **k: "SERVFAIL")

    def lookup(name: str) -> list[str]:
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    data, heard = resolve(["never"], lookup, timeout_s=0.5)
    (peer,) = data["peers"]
    assert (peer["error"], peer["first_error"], peer["seconds_to_first_answer"]) == ("SERVFAIL", "SERVFAIL", None)
    assert heard == []


def test_a_resolver_that_hangs_does_not_hold_up_the_others() -> None:
    """One name that blocks in the C library delays only its own answer."""
    release = threading.Event()

    def lookup(name: str) -> list[str]:
        if name == "stuck":
            release.wait(HANG_S)
        return ["10.0.0.2"]

    data, _ = resolve(["stuck", "fine"], lookup, timeout_s=2)
    assert not release.is_set()
    release.set()
    stuck, fine = data["peers"]
    assert (stuck["error"], stuck["first_error"]) == ("timeout", "timeout")
    assert fine["addresses"] == ["10.0.0.2"]


def test_a_server_that_answers_while_the_library_does_not_is_said(monkeypatch) -> None:
    """The evidence states the contradiction, which comes from nsswitch without dns, or from a race."""
    monkeypatch.setattr(dnsquery, "explain", lambda *a, **k: dnsquery.ANSWERED)

    def lookup(name: str) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "not known")

    data, _ = resolve(["odd"], lookup, timeout_s=0.3)
    assert data["peers"][0]["error"] == "EAI_NONAME (but the DNS server answers)"


@pytest.fixture
def waiting(tmp_path: Path):
    """Return rank 0 of two of a probe that does not run, its dns results, and its time limit per name."""
    raw = {"schema": 1, "run": "r", "job": "j", "nodes": 2, "peers": ["j-0.j", "j-1.j"], "dns_timeout_s": 10}
    trial = spec.Trial({**raw, "peer_wait_s": 900})
    probe = Probe(trial, spec.Identity(0, "10.0.0.1", "n", "p"), str(tmp_path))
    own, peer = ({"index": i, "name": f"j-{i}.j", "addresses": [], "error": "NXDOMAIN"} for i in (0, 1))
    yield probe, own, peer, probe.patience({"peers": [own, peer]}, 1000.0)
    probe.rendezvous.leave()


def test_the_name_of_a_pod_that_has_not_started_is_waited_for(waiting) -> None:
    """A kubelet reports a pod's address after its image was pulled: if our own name resolves, a missing one is only
    late."""
    _, own, peer, until = waiting
    assert (until(own), until(peer)) == (1010.0, 1010.0)  # no name resolves: DNS itself may be broken
    own["addresses"] = ["10.0.0.1"]
    assert until(peer) == 1900.0
    peer["error"] = "SERVFAIL"  # no information about the pod
    assert until(peer) == 1010.0


def test_a_wait_for_a_name_is_reported(waiting, capfd) -> None:
    """The name, the waiting time, and a possible stale cache entry are reported; also for its own name."""
    _, own, peer, _ = waiting
    probe = waiting[0]
    probe.patience({"peers": [own, peer]}, time.monotonic() - 7.0)(own)
    said = capfd.readouterr().out
    assert "seatrial rank 0: dns: waits for j-0.j, NXDOMAIN for 7 s" in said and "CoreDNS: 30 s" in said


def test_a_pod_that_came_in_must_have_a_name_soon(waiting) -> None:
    """A peer that connected to us is running: from then on its name has the usual time, without an image pull."""
    probe, own, peer, until = waiting
    own["addresses"] = ["10.0.0.1"]
    probe.rendezvous._met[1] = 1200.0
    assert until(peer) == 1210.0


def test_no_one_waits_for_a_late_pod_once_another_has_given_up(waiting) -> None:
    """Another rank's objection settles the result, so further waiting is pointless."""
    probe, own, peer, until = waiting
    own["addresses"] = ["10.0.0.1"]
    probe.rendezvous.heard(1, {"kind": "ready", "topic": "port", "objection": "names that do not resolve"})
    assert until(peer) == 1010.0


def test_the_wait_for_a_name_may_become_longer(monkeypatch) -> None:
    """The limit is read again while waiting, so that a name may appear after the usual time."""
    monkeypatch.setattr(dnsquery, "explain", lambda *a, **k: "NXDOMAIN")
    passed, began = [0.0], time.monotonic()
    monkeypatch.setattr(dns, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0]))

    def lookup(name: str) -> list[str]:
        if name == "late" and not passed[0]:
            if data["peers"][0]["addresses"]:
                passed[0] = usual + 1  # while the name is looked up
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return ["10.0.0.1"]

    data: dict = {}
    usual = HANG_S / 10
    dns.resolve_all(
        data,
        ["own", "late"],
        until=lambda _: began + (HANG_S / 2 if data["peers"][0]["addresses"] else usual),
        watch=Watch(HANG_S, 1),
        on_resolved=lambda *_: None,
        resolv_conf="/nonexistent",
        lookup=lookup,
    )
    assert data["peers"][1]["addresses"] == ["10.0.0.1"]


def test_the_deadline_counts_from_the_ranks_meeting() -> None:
    """The time for late pods is neither subtracted from the work nor added to it."""
    watch = Watch(60, 5, before_s=900)
    assert 950 < watch.left() <= 955
    watch.all_met()
    assert 54 < watch.left() <= 55
    other = Watch(60, 5)
    other.all_met()
    assert 54 < other.left() <= 55
