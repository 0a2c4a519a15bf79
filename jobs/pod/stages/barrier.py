"""The barrier: all ranks continue together; rank 0 collects every rank's message and decides for all.

A collective that only some ranks start hangs until its deadline. So no rank starts one before rank 0 has received the
consent of every rank. A missing, objecting or disconnected rank makes the decision no for all, with the reason.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar

from .rendezvous import Rendezvous

MAX_REASON = 300
PARTING_S = 1.0  # for a terminating rank to wait for the others, and for the last message of a lost rank 0
T = TypeVar("T")


class Barrier:
    """Agreement of all ranks over the rendezvous's channels (a star around rank 0)."""

    def __init__(self, rendezvous: Rendezvous) -> None:
        self.rendezvous = rendezvous
        self.rank = rendezvous.me.rank
        self.peers = sorted(rendezvous.records)
        self._messages: Dict[Tuple[str, int], Dict[str, Any]] = {}
        self._decisions: Dict[str, Tuple[bool, str]] = {}
        self._ends: Dict[Tuple[str, int], str] = {}
        self._posts: Dict[Tuple[str, int], Dict[str, Any]] = {}
        self._lock = threading.Lock()
        rendezvous.heard = self._hear

    def agree(self, topic: str, objection: str, limit_s: float) -> Tuple[bool, str]:
        """Vote on a topic; return the decision for all ranks, and the reason for a no."""
        if not self.peers:
            return not objection, objection
        word = {"seatrial": 1, "kind": "ready", "topic": topic, "objection": objection[:MAX_REASON]}
        if self.rank == 0:
            go, why = self._collect(topic, objection, limit_s)
            for rank in self.peers:
                self._send(rank, {"seatrial": 1, "kind": "decision", "topic": topic, "go": go, "why": why[:MAX_REASON]})
            return go, why
        reached = self._send(0, word)
        if objection:
            return False, objection
        # Rank 0 may have decided before it disconnected.
        answer = self._wait(lambda: self._decision(topic), limit_s if reached else min(limit_s, PARTING_S))
        if answer is None:  # this rank continues alone: its earlier yes must be withdrawn
            stopped = self.rendezvous.watch.stopped() and "it was stopped: %s" % self.rendezvous.watch.reason
            self._send(0, dict(word, objection=stopped or "it did not wait for rank 0 any longer"))
            answer = False, "rank 0 did not decide in time" if reached else "no connection with rank 0"
        return answer

    def through(self, topic: str, limit_s: float) -> bool:
        """Report that this rank no longer uses a shared resource; return whether no rank uses it.

        Then it may be removed. A disconnected rank uses nothing. Unlike `agree`, this does not end early at a refusal,
        nor at once when the probe is terminating: the pods of one job are terminated at the same time.
        """
        limit_s = max(PARTING_S, limit_s)
        if self.rank:
            self._send(0, {"seatrial": 1, "kind": "ready", "topic": topic, "objection": ""})
            decision = self._wait(lambda: self._decision(topic), limit_s, PARTING_S) or (False, "")
            # Without rank 0, other ranks may remain that do not know of each other.
            return decision[0] or (len(self.peers) == 1 and not self.rendezvous.channels(0))
        through = bool(self._wait(lambda: self._all_through(topic) or None, limit_s, PARTING_S))
        for rank in self.peers:
            self._send(rank, {"seatrial": 1, "kind": "decision", "topic": topic, "go": through, "why": ""})
        return through

    def decided(self, topic: str) -> bool:
        """Return whether a rank has already objected, so that further measurement is useless."""
        with self._lock:
            if topic in self._decisions:
                return not self._decisions[topic][0]
            return any(word["objection"] for (about, _), word in self._messages.items() if about == topic)

    def post(self, rank: int, topic: str, body: Dict[str, Any]) -> bool:
        """Send a message to one peer; only while the rendezvous's connections with it are open."""
        return self._send(rank, {"seatrial": 1, "kind": "post", "topic": topic, "body": body})

    def posted(self, topic: str, rank: int, limit_s: float) -> Optional[Dict[str, Any]]:
        """Wait for a peer's message; return None if it did not send one, or disconnected."""

        def look() -> Optional[Dict[str, Any]]:
            here = self.rendezvous.channels(rank)  # read first: the last message precedes the end
            with self._lock:
                post = self._posts.get((topic, rank))
            return post if post is not None or here else {}

        return self._wait(look, limit_s) or None

    def announce_end(self, topic: str, failure: str) -> None:
        """Report to all ranks that this one's part of a collective has ended; `failure` is empty on success."""
        message = {"seatrial": 1, "kind": "ended", "topic": topic, "rank": self.rank, "failure": failure[:MAX_REASON]}
        for rank in self.peers if self.rank == 0 else [0] * bool(self.peers):
            self._send(rank, message)

    def ended(self, topic: str, rank: int) -> Optional[str]:
        """Return how a rank's part of a collective failed, "" on success, None while it runs."""
        with self._lock:
            return self._ends.get((topic, rank))

    def trouble(self, topic: str) -> str:
        """Return a rank that failed or disconnected during this collective, with the reason; '' if none is known."""
        with self._lock:
            for (about, rank), failure in self._ends.items():
                if about == topic and failure:
                    return "rank %d: %s" % (rank, failure)
            for rank in self.peers if self.rank == 0 else [0] * bool(self.peers):
                if (topic, rank) not in self._ends and not self.rendezvous.channels(rank):
                    return "rank %d: its pod is gone" % rank
        return ""

    def _collect(self, topic: str, objection: str, limit_s: float) -> Tuple[bool, str]:
        decision = self._wait(lambda: self._tally(topic, objection), limit_s)
        if decision is not None:
            return decision
        missing = [str(rank) for rank in self.peers if (topic, rank) not in self._messages]
        return False, "rank %s did not get ready in time" % ", ".join(missing[:8])

    def _tally(self, topic: str, objection: str) -> Optional[Tuple[bool, str]]:
        """Return the decision by the messages so far; None if some are missing."""
        if objection:
            return False, "rank 0: %s" % objection
        gone = self._gone()
        with self._lock:
            said = {rank: self._messages[(topic, rank)] for rank in self.peers if (topic, rank) in self._messages}
        for rank, word in said.items():
            if word["objection"]:
                return False, "rank %d: %s" % (rank, word["objection"])
        for rank in self.peers:
            if rank not in said and rank in gone:
                return False, "rank %d: its pod is gone" % rank
        return (True, "") if len(said) == len(self.peers) else None

    def _all_through(self, topic: str) -> bool:
        gone = self._gone()
        with self._lock:
            return all(rank in gone or (topic, rank) in self._messages for rank in self.peers)

    def _gone(self) -> List[int]:
        """Return the disconnected peers.

        Call it before reading their messages: a peer's last message precedes its disconnection.
        """
        return [rank for rank in self.peers if not self.rendezvous.channels(rank)]

    def _decision(self, topic: str) -> Optional[Tuple[bool, str]]:
        gone = None if self.rendezvous.channels(0) else (False, "rank 0: its pod is gone")
        with self._lock:
            return self._decisions.get(topic) or gone

    def _wait(self, look: Callable[[], Optional[T]], limit_s: float, grace_s: float = 0.0) -> Optional[T]:
        """Return the result of `look`, repeated at every change; None after the time limit.

        The limit is `grace_s` once the probe is terminating.
        """
        limit, stops = time.monotonic() + limit_s, False
        while True:
            result = look()
            if not stops and self.rendezvous.watch.stopped():
                limit, stops = min(limit, time.monotonic() + grace_s), True
            if result is not None or time.monotonic() >= limit:
                return result
            with self.rendezvous.changed:
                self.rendezvous.changed.wait(0.05)

    def _send(self, rank: int, message: Dict[str, Any]) -> bool:
        """Send on every connection with that rank: with a block in one direction, only one of them works."""
        return sum(channel.send(message) for channel in self.rendezvous.channels(rank)) > 0

    def _hear(self, rank: int, message: Dict[str, Any]) -> None:
        kind, topic = message.get("kind"), str(message.get("topic"))[:100]
        with self._lock:
            if kind == "ready":
                self._messages[(topic, rank)] = {"objection": str(message.get("objection") or "")[:MAX_REASON]}
            elif kind == "decision" and rank == 0:
                self._decisions[topic] = (message.get("go") is True, str(message.get("why") or "")[:MAX_REASON])
            elif kind == "post" and isinstance(message.get("body"), dict):
                self._posts[(topic, rank)] = message["body"]
            elif kind == "ended":
                about = message.get("rank") if rank == 0 else rank
                if isinstance(about, int) and (about in self.peers):
                    self._ends[(topic, about)] = str(message.get("failure") or "")[:MAX_REASON]
        if kind == "ended" and self.rank == 0:
            relay = dict(message, rank=rank)
            for other in self.peers:
                if other != rank:
                    self._send(other, relay)
        with self.rendezvous.changed:
            self.rendezvous.changed.notify_all()
