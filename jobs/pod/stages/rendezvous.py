"""Rendezvous evidence: every pair of ranks connects to MASTER_PORT, both ways, and the right pod must answer.

Every rank listens from its start and connects to each peer as soon as its name resolves. The listening socket is closed
for good before this rank reports success to the others: torchrun uses the same port immediately afterwards.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from functools import partial
from typing import Any, Callable, Dict, List, Optional

from .deadline import Watch
from .messages import HELLO_TIMEOUT_S, REFUSED, NoAnswerError, Peer, connect, serve
from .spec import Identity, Trial

CONNECT_TIMEOUT_S = 3.0  # a dropped SYN is retransmitted after 1 s: two attempts
UNKNOWN = "its name did not resolve"


class Rendezvous:
    """All connections of this rank: outgoing, incoming, and the channels that stay open."""

    def __init__(self, trial: Trial, me: Identity, watch: Watch) -> None:
        self.trial, self.me, self.watch = trial, me, watch
        self.changed = threading.Condition()
        self.outgoing: Dict[int, Peer] = {}
        self.incoming: Dict[int, Peer] = {}
        self.heard: Callable[[int, Dict[str, Any]], None] = _ignore
        self.listening = False
        self.listen_error: Optional[str] = None
        self.records = {index: self._blank(index) for index in range(trial.nodes) if index != me.rank}
        self._met: Dict[int, float] = {}  # when a peer was first connected
        self._closing = threading.Event()
        self._wake = socket.socketpair()
        self._acceptor: Optional[threading.Thread] = None
        self._room = threading.Semaphore(3 * trial.nodes + 32)

    def _blank(self, index: int) -> Dict[str, Any]:
        unknown = dict.fromkeys(("address", "outbound_seconds", "clock_skew_s", "pod_ip"))
        known = {"index": index, "name": self.trial.peers[index], "outbound_error": UNKNOWN}
        return dict(unknown, outbound=False, inbound=False, **known)

    # -- listening -------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Listen on MASTER_PORT: on the pod's own address, or on all if that is unknown."""
        problem: Optional[OSError] = None
        for host in [self.me.pod_ip] * bool(self.me.pod_ip) + [""]:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.socket(family, socket.SOCK_STREAM)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((host, self.trial.master_port))
                listener.listen(min(4096, 16 + 4 * self.trial.nodes))
            except OSError as error:
                problem = problem or error
                listener.close()
                if error.errno == errno.EADDRINUSE:
                    break  # another process uses the port: listening on the wildcard address would hide that
                continue
            self.listening = True
            serving = (listener, self._welcome, self._room, self._closing, self._wake[0])
            self._acceptor = threading.Thread(target=serve, args=serving, daemon=True)
            self._acceptor.start()
            return
        self.listen_error = "cannot listen on port %d: %s" % (self.trial.master_port, problem and problem.strerror)

    def _welcome(self, line: socket.socket) -> None:
        """Read the hello of an incoming connection; keep that of a peer, close any other without an answer."""
        try:
            peer = Peer(line)
            try:
                hello = peer.next(HELLO_TIMEOUT_S)
                rank = self._known(hello)
                peer.say(self._hello(rank if rank is not None else -1))
            except (NoAnswerError, OSError):
                rank = None
            if rank is None or hello.get("to") != self.me.rank:
                peer.close()
                return
            peer.known(HELLO_TIMEOUT_S)
            record = self.records[rank]
            with self.changed:
                self.incoming[rank] = peer
                self._met.setdefault(rank, time.monotonic())
                record["inbound"] = True
                record["pod_ip"] = record["pod_ip"] or _text(hello.get("pod_ip"))
                if record["clock_skew_s"] is None:
                    record["clock_skew_s"] = _skew(hello.get("clock"), time.time())
                self.changed.notify_all()
            peer.listen(partial(self.heard, rank), self._notify)
        finally:
            self._room.release()

    def close_port(self) -> None:
        """Stop listening; return when the port is free."""
        self._closing.set()
        if self._acceptor is not None and self._acceptor.is_alive():
            self._wake[1].send(b"!")
            self._acceptor.join(timeout=5)

    # -- dialling --------------------------------------------------------------------------------------------------

    def dial(self, index: int, addresses: List[str]) -> None:
        """Start connecting to a peer; retry until it answers or the port is closed."""
        if index == self.me.rank:
            return
        with self.changed:
            self.records[index]["address"] = addresses[0]
            self.records[index]["outbound_error"] = "not tried yet"
        threading.Thread(target=self._dial, args=(index, list(addresses)), daemon=True).start()

    def _dial(self, index: int, addresses: List[str]) -> None:
        record, pause = self.records[index], 0.05
        while not self._closing.is_set() and not self.watch.stopped():
            for address in addresses:
                error = self._greet(index, address)
                if error is None:
                    return
                with self.changed:
                    record["address"], record["outbound_error"] = address, error
                    self.changed.notify_all()
            self._closing.wait(pause)
            pause = min(1.0, pause * 1.5)

    def _greet(self, index: int, address: str) -> Optional[str]:
        """Connect and shake hands once; return None or the error."""
        began, sent = time.monotonic(), time.time()
        try:
            peer = connect(address, self.trial.master_port, CONNECT_TIMEOUT_S)
        except NoAnswerError as error:
            return str(error)
        connected = time.monotonic() - began
        try:
            sent = time.time()
            peer.say(self._hello(index))
            hello = peer.next(HELLO_TIMEOUT_S)
            self._require(hello, index)
        except (NoAnswerError, OSError) as error:
            peer.close()
            return str(error)
        peer.known(HELLO_TIMEOUT_S)
        with self.changed:
            self.outgoing[index] = peer
            self._met.setdefault(index, time.monotonic())
            self.records[index].update(
                address=address,
                outbound=True,
                outbound_seconds=round(connected, 4),
                outbound_error=None,
                pod_ip=_text(hello.get("pod_ip")) or self.records[index]["pod_ip"],
                clock_skew_s=_skew(hello.get("clock"), (sent + time.time()) / 2),
            )
            self.changed.notify_all()
        threading.Thread(target=peer.listen, args=(partial(self.heard, index), self._notify), daemon=True).start()
        return None

    # -- the outcome -----------------------------------------------------------------------------------------------

    def wait(self, settled: Callable[[], bool]) -> None:
        """Wait until every pair has connected or can no longer connect, or `settled` ends the wait."""
        began = time.monotonic()
        with self.changed:
            while not self.watch.stopped() and not settled():
                if not any(self._hopeful(record, began) for record in self.records.values()):
                    return
                self.changed.wait(0.1)

    def _hopeful(self, record: Dict[str, Any], began: float) -> bool:
        """Return whether this pair may still connect; `began` is when this rank started to wait."""
        trial, now = self.trial, time.monotonic()
        met = self._met.get(record["index"])
        waited = now - began
        if record["outbound"] and record["inbound"]:
            return False
        if met is not None and record["outbound"]:
            # The peer runs but has not connected to us: its DNS may be slow. It reports when it gives up.
            return bool(self.channels(record["index"])) and now - met < trial.dns_timeout_s + 2 * trial.port_timeout_s
        if met is not None:
            return min(waited, now - met) < trial.port_timeout_s
        if record["outbound_error"] == UNKNOWN:
            return waited < min(2.0, trial.port_timeout_s)  # the peer may still connect to us
        if record["outbound_error"] == REFUSED:
            return waited < trial.peer_wait_s  # its address exists, its container not yet: an image is pulled
        return waited < trial.port_timeout_s

    def met(self, index: int) -> Optional[float]:
        """Return when (monotonic) a peer first connected; None if it did not."""
        with self.changed:
            return self._met.get(index)

    def complaint(self) -> str:
        """Describe the first failed connection; '' when every pair has connected."""
        if self.listen_error:
            return self.listen_error
        for record in self.records.values():
            if not record["outbound"]:
                where = record["address"] or record["name"]
                return "rank %d at %s: %s" % (record["index"], where, record["outbound_error"])
        late = [str(index) for index, record in self.records.items() if not record["inbound"]]
        return "rank %s did not connect to port %d here" % (", ".join(late[:8]), self.trial.master_port) if late else ""

    def channels(self, rank: int) -> List[Peer]:
        """Return the open connections with a peer."""
        both = (self.outgoing.get(rank), self.incoming.get(rank))
        return [channel for channel in both if channel is not None and channel.open]

    def keep_only_control(self) -> None:
        """Close all connections except rank 0's outgoing ones.

        The local port of those is not MASTER_PORT, on which torchrun will listen. The connecting side closes first, so
        that the port's owner keeps no TIME_WAIT on it.
        """
        if self.me.rank:
            for channel in self.outgoing.values():
                channel.close()
            return
        limit = time.monotonic() + 2
        with self.changed:
            while any(channel.open for channel in self.incoming.values()) and time.monotonic() < limit:
                self.changed.wait(0.05)
        for channel in self.incoming.values():
            channel.close(abort=True)

    def leave(self) -> None:
        """Close everything."""
        self.close_port()
        for end in self._wake:
            end.close()
        for channel in list(self.outgoing.values()) + list(self.incoming.values()):
            channel.close()

    def _hello(self, to: int) -> Dict[str, Any]:
        return {
            "seatrial": 1,
            "kind": "hello",
            "run": self.trial.run,
            "rank": self.me.rank,
            "to": to,
            "pod_ip": self.me.pod_ip,
            "clock": time.time(),
        }

    def _known(self, hello: Dict[str, Any]) -> Optional[int]:
        """Return the peer's rank; raise NoAnswerError for another run."""
        rank = hello.get("rank")
        if hello.get("run") != self.trial.run or hello.get("kind") != "hello":
            raise NoAnswerError("another run")
        return rank if isinstance(rank, int) and rank in self.records else None

    def _require(self, hello: Dict[str, Any], index: int) -> None:
        """Raise NoAnswerError unless this peer answered."""
        if hello.get("run") != self.trial.run:
            raise NoAnswerError("another run answers on this port")
        if hello.get("rank") != index:
            raise NoAnswerError("answered by rank %s of this run, not by rank %d" % (hello.get("rank"), index))

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()


def _ignore(_rank: int, _message: Dict[str, Any]) -> None:
    """Ignore messages until a barrier handles them."""


def _text(value: Any) -> Optional[str]:
    return value[:64] if isinstance(value, str) and value else None


def _skew(theirs: Any, ours: float) -> Optional[float]:
    """Return the peer's clock minus ours, in seconds."""
    return round(theirs - ours, 3) if isinstance(theirs, (int, float)) and abs(theirs) < 1e11 else None
