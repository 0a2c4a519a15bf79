"""The agent of a sweep: one in each pod, which runs the tests that the coordinator in rank 0's pod assigns.

It connects to the coordinator, proves knowledge of the run's token, and keeps that one connection. A test is a process
with its own time limit; it is killed when the coordinator orders it, or disconnects.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import dns, dnsquery, fleettest, rdmaprogram
from .deadline import Watch
from .files import names_in
from .messages import NoAnswerError, Peer, connect
from .proof import code, nonce, same
from .spec import Identity, Trial

DIAL_S = 5.0
HELLO_S = 10.0
LOST_S = 45.0
"""Seconds for which to reconnect to a lost coordinator; a pod that returns does so within this time."""
TELL_S = 5.0
"""Seconds without the coordinator before the reason is reported; before that its pod may not exist yet."""
MOST_REPORTED = 8
INFINIBAND = "/sys/class/infiniband"


class Agent:
    """One pod's part in a sweep."""

    def __init__(
        self,
        trial: Trial,
        me: Identity,
        watch: Watch,
        place: str,
        archive: str,
        report: Callable[[int, str, str], None],
    ) -> None:
        """Prepare; ``report`` receives why the coordinator was not reached.

        Its arguments are the number of reasons, the address, and the text.
        """
        assert trial.sweep is not None
        self.trial, self.me, self.watch, self.sweep = trial, me, watch, trial.sweep
        self.place, self.archive = place, archive
        self._report = report
        self._orders: "queue.Queue[Optional[Dict[str, Any]]]" = queue.Queue()
        self._stopped = threading.Event()  # the coordinator has finished, or this pod is terminating
        self._current: Optional[fleettest.Link] = None
        self._peer: Optional[Peer] = None  # the coordinator
        self._where = ""
        self._said: List[Tuple[str, str]] = []  # why and at which address the coordinator was not reached

    def run(self) -> None:
        """Serve the coordinator until it ends the sweep, is lost for good, or the pod is terminating."""
        worker = threading.Thread(target=self._work, daemon=True)
        worker.start()
        since = time.monotonic()
        lost = since + self.trial.peer_wait_s + LOST_S
        while not self._over() and time.monotonic() < lost:
            try:
                if self._serve():
                    break
                since = time.monotonic()
                lost = since + LOST_S  # after the first connection, a lost coordinator returns soon or never
                self._abandon("the coordinator is gone")
            except (NoAnswerError, OSError) as problem:  # not ready yet, or a foreign service: retried until `lost`
                self._tell_why(str(problem), time.monotonic() - since)
            self._stopped.wait(0.5)
        self.stop()
        worker.join(timeout=fleettest.ENDING_S)

    def stop(self) -> None:
        """Stop the running test and the agent."""
        self._stopped.set()
        self._abandon("the sweep has ended")
        self._orders.put(None)

    def _over(self) -> bool:
        return self._stopped.is_set() or self.watch.stopped()

    def _abandon(self, why: str) -> None:
        current = self._current
        if current is not None:
            current.stopped = current.stopped or why

    # -- the connection to the coordinator

    def _tell_why(self, problem: str, waited_s: float) -> None:
        """Report why the coordinator was not reached, each reason once: its log shows nothing about this pod."""
        why = (self._where, problem)
        if waited_s >= TELL_S and why not in self._said and len(self._said) < MOST_REPORTED:
            self._said.append(why)
            self._report(len(self._said), *why)

    def _dial(self) -> Peer:
        """Connect to the coordinator; raise NoAnswerError with the reason, and keep the address."""
        own = self.me.rank == 0
        name = (self.me.pod_ip or "127.0.0.1") if own else self.trial.peers[0]
        self._where = "%s:%d" % (name, self.trial.master_port)
        try:
            found = dns.addresses(name)
        except socket.gaierror as problem:
            answer = dns.reason(name, problem, dnsquery.read_resolver(), time.monotonic() + DIAL_S)
            raise NoAnswerError("its name does not resolve (%s)" % answer) from None
        for address in found[:-1]:
            try:
                return connect(address, self.trial.master_port, DIAL_S)
            except NoAnswerError:  # may be of another address family: only the last address's error is raised
                pass
        if found[-1] != name:
            self._where += " (%s)" % found[-1]
        return connect(found[-1], self.trial.master_port, DIAL_S)

    def _serve(self) -> bool:
        """Serve one connection until its end; return True if the coordinator ended the sweep.

        Raises if the coordinator was not reached.
        """
        peer = self._dial()
        try:
            self._introduce(peer)
            self.watch.all_met()
            peer.known()
            self._peer = peer
            return self._listen(peer)
        finally:
            self._peer = None
            peer.close()

    def _introduce(self, peer: Peer) -> None:
        """Answer the coordinator's challenge and send our own; raise NoAnswerError for a peer without the token."""
        challenge = peer.next(HELLO_S)
        if challenge.get("kind") != "challenge" or challenge.get("run") != self.trial.run:
            raise NoAnswerError("another run answers on this port")
        token, mine = self.sweep["token"], nonce()
        about = "%d %s %s" % (self.me.rank, self.me.node, self.me.pod_ip)
        hello = {
            "seatrial": 1,
            "kind": "hello",
            "rank": self.me.rank,
            "node": self.me.node,
            "pod_ip": self.me.pod_ip,
            "rails": _rails(),
            "writes": rdmaprogram.Program(asked, os.environ, self.watch).labels
            if (asked := self.trial.perftest)
            else [],
            "diagnoses": self._diagnoses(),
            "nonce": mine,
            "proof": code(token, "agent", str(challenge.get("nonce")), about),
        }
        peer.say(hello)
        answer = peer.next(HELLO_S)
        if answer.get("kind") != "welcome" or not same(answer.get("proof"), code(token, "coordinator", mine, about)):
            raise NoAnswerError("the peer does not know the token of this run")

    def _diagnoses(self) -> bool:
        """Return whether this pod can run DCGM's diagnostics, if the trial requests them."""
        if not self.trial.dcgm:
            return False
        from . import dcgm  # noqa: PLC0415

        return None not in dcgm.tools_of(os.environ)

    def _listen(self, peer: Peer) -> bool:
        threading.Thread(target=self._hang_up, args=(peer,), daemon=True).start()
        try:
            while not self._over():
                message = peer.next(None)
                if message.get("kind") == "bye":
                    return True
                if message.get("kind") == "test":
                    self._orders.put(message)
                elif message.get("kind") == "stop" and self._current is not None:
                    if self._current.number == message.get("id"):
                        self._current.stopped = str(message.get("why") or "stopped")[:200]
        except NoAnswerError:
            pass
        return self._over()

    def _hang_up(self, peer: Peer) -> None:
        """Stop reading from a connection when this pod is terminating."""
        while not self._over():
            if self._peer is not peer:
                return
            self._stopped.wait(0.5)
        peer.close()

    # -- the tests

    def _work(self) -> None:
        while True:
            order = self._orders.get()
            if order is None or self._over():
                return
            link = self._current = fleettest.Link(order.get("id"))
            try:
                result = fleettest.run(self.trial, self.me, self.watch, self.place, self.archive, order, link)
            except Exception as problem:  # noqa: BLE001  (a test's bug must not cost the pod)
                result = fleettest.nothing("%s: %s" % (type(problem).__name__, problem))
            self._current = None
            interrupted = self.watch.stopped() and self.watch.interrupted()  # pod is terminating: drain, preemption
            if (peer := self._peer) is not None:  # the reader of this connection detects its loss
                peer.send(dict(result, seatrial=1, kind="result", id=order.get("id"), interrupted=interrupted))


def _rails() -> List[str]:
    """Return the names of this node's RDMA devices in natural order, as NCCL numbers them."""
    return sorted(names_in(INFINIBAND), key=lambda name: (len(name), name))[:64]
