"""Follows one process through one stream: applies its messages, and finds the communicator of its channels."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple

from ..state.process import MAX_EDGES, Comm, Proc, alone
from .facts import CHOSE, COMM, DEVICES, ENV, FACT, HEAD, IB, NOTE, RING, TRACE, Effect
from .symptoms import BENIGN, classify

if TYPE_CHECKING:
    from ..state.channels import Connection
    from ..state.process import Source
    from .comms import CommLine

_GLOBAL = re.compile(rb"\b(?:localGid|remoteGids?|GID index)\b")
_CALL, _CALL_OVER_MNNVL = "nccl.cuda-failure", "nccl.mnnvl-failed"  # the purpose of a failed CUDA call
_MAX_TURNS = 8  # communicators of one size and rank that have no id (before 2.16.2), distinguished by their order
_MAX_POINTERS = 64
_UNUSED: Dict[Any, int] = {}  # never written to: most processes of a large job have nothing pending at any time

Key = Tuple[str, int]  # a communicator's name, and this process's rank in it
_NEVER: Tuple[bytes, Key] = b"", ("", -1)


class Tracker:
    """Follows one process through one stream."""

    __slots__ = ("_current", "_ordinals", "_pointers", "_waiting", "announced", "pending", "proc", "source", "stream")

    def __init__(self, proc: Proc, source: int, stream: Source, waiting: List[Tracker]) -> None:
        self.proc = proc
        self.source = source
        self.stream = stream
        self._waiting = waiting  # all trackers with waiting channels
        self._current: Optional[Key] = next(reversed(list(proc.comms)), None)
        self.announced = bool(proc.comms)  # this version prints the start of a set-up: channels belong to it
        self._pointers: Tuple[Tuple[bytes, Key], ...] = ()  # pointers, the latest last
        self._ordinals: Dict[Tuple[int, int], int] = _UNUSED
        self.pending: Dict[Connection, int] = (
            _UNUSED  # connections that wait for their communicator -> channels, as bits
        )

    # -- channels ------------------------------------------------------------------------------------------------------
    def channels(self, connections: Dict[Connection, int]) -> None:
        """Take channels, which wait until their owner is clear."""
        if not self.pending:
            self.pending = connections
            self._waiting.append(self)
            return
        pending = self.pending
        for connection, bits in connections.items():
            if connection in pending:
                pending[connection] |= bits
            elif len(pending) < MAX_EDGES:
                pending[connection] = bits
            elif self.proc.intern_pool is not None:
                self.proc.intern_pool.full = True

    def connections(self) -> Iterator[Connection]:
        """Yield the connections of the process, including waiting ones."""
        yield from self.pending
        for connections in self.proc.edges.values():
            yield from connections

    def settle(self) -> None:
        """Add the waiting channels to their communicator."""
        connections, self.pending = self.pending, _UNUSED
        comms, name = self.proc.comms, "" if self._current is None else self._current[0]
        if (len(comms) <= 1 and (not comms or self._current in comms)) or all(key[0] == name for key in comms):
            self.proc.channels(name, connections)
            return
        latest = {rank: comm for comm, rank in comms}  # the communicator that each of its ranks began last
        owned: Dict[str, Dict[Connection, int]] = {}
        for connection, bits in connections.items():
            rank = connection[1] if connection[2][:1] == "r" else connection[0]  # the ranks that printed them
            comm = name if (name, rank) in comms else latest.get(rank, name)
            owned.setdefault(comm, {})[connection] = bits
        for comm, connections in owned.items():
            self.proc.channels(comm, connections)

    # -- messages ------------------------------------------------------------------------------------------------------
    def apply(self, effects: Tuple[Effect, ...], line: int, raw: bytes) -> None:
        """Take the content of one INFO message."""
        proc = self.proc
        for effect in effects:
            what = effect[0]
            if what == FACT:
                proc.add(effect[1], effect[2])
            elif what == NOTE:
                proc.note(effect[1], self.source, line, raw, effect[2] if len(effect) > 2 else "")
            elif what == COMM:
                self.communicator(effect[1], line)
            elif what == ENV:
                proc.set_env(effect[1], effect[2])
            elif what == DEVICES:
                proc.list_devices(effect[1])
            elif what == IB:
                proc.ibs.setdefault(effect[1], line)
            elif what == CHOSE:  # earlier failures are recovered
                proc.add("net", effect[1])
                proc.last_error = None
            elif what == TRACE:
                self._trace(effect, line, raw)
            elif what == RING:
                proc.ranks = effect[1] if len(effect[1]) > len(proc.ranks) else proc.ranks
            elif effect[1] not in proc.notes:
                proc.note(effect[1], self.source, line, raw)

    def facts(self, facts: List[Tuple[Effect, ...]]) -> None:
        """Take facts, devices and tags, which always count."""
        proc = self.proc
        known = proc.facts
        for said in facts:
            for kind, fact, value in said:
                if kind == HEAD:
                    proc.head(fact, value)
                elif fact not in known:
                    known[fact] = alone(value)
                elif value not in known[fact]:
                    proc.add(fact, value)

    def _trace(self, effect: Effect, line: int, raw: bytes) -> None:
        if effect[2] and self.proc.has("flag", "no-pci-path"):
            return  # up to 2.5: a NIC without a PCI path only counts as far away
        self.proc.note("trace", self.source, line, raw)
        if self.proc.last_error is None:
            self.proc.last_error = [self.source, line, effect[1]]

    def warn(self, place: bytes, text: bytes, line: int, raw: bytes) -> None:
        """Read one WARN message; ``place`` is the place in the code, or a plugin's text instead."""
        text = text.rstrip()
        if b"NET/IB" in text and _GLOBAL.search(text):
            self.proc.add("link", "RoCE")
        if b"net_ib" in place or b"NET/IB" in text or b"ib_plugin" in place:
            self.proc.add("flag", "verbs-used")
        symptom = classify(place + b" NCCL WARN " + text if place else text)
        if symptom is None or symptom.lasting:
            self.proc.note("warn", self.source, line, raw, "" if symptom is None else symptom.shows)
        if symptom is not None and symptom.role != BENIGN:
            if symptom.fault == _CALL and place.startswith(b"transport/p2p.cc") and self.proc.has("flag", "mnnvl"):
                symptom = symptom._replace(fault=_CALL_OVER_MNNVL)
            self.proc.note(symptom.fault, self.source, line, raw, symptom.shows)

    # -- communicators -------------------------------------------------------------------------------------------------
    def communicator(self, said: CommLine, line: int) -> None:
        """Take a line of a communicator."""
        rank, pointer, (nranks, what, done, ident, nodes, _, part) = said
        init, proc = what == b"Init", self.proc
        if self.pending and (self.announced or (init and not done)):
            self.settle()  # channels before this line belong to the communicator current there
        latest, key = self._pointers[-1] if self._pointers else _NEVER  # the communicator of most of its lines
        if pointer != latest or rank != key[1] or part or (ident != key[0] if ident else init and done):
            key = self._key(said)
        comm = proc.comms.get(key)
        span = self.stream.spans.get(key[0])
        if span is None or not span[0] <= line <= span[1]:
            self.stream.span(key[0], line)
        ending = not init and what != b""  # an excerpt may show only this of a communicator
        if ending and done and what != b"Revoke":
            proc.add("aborted" if what == b"Abort" else "destroyed", key[0])
        if comm is None:
            if (ending and proc.comms) or not proc.joins():
                return
            comm = proc.comms[key] = Comm(rank, nranks)
        if init:
            comm.started = True
            self._current = key
            if done:
                comm.completed, proc.last_error = True, None
            else:
                self.announced = True
        if nodes is not None:
            comm.nnodes = max(comm.nnodes, nodes[0])
            comm.local = max(comm.local, nodes[1])
            comm.mnnvl = max(comm.mnnvl, nodes[2])

    def _key(self, said: CommLine) -> Key:
        """Name a communicator.

        The name is its id, which all ranks share (2.16.2+), else its size and its order in this process.
        """
        rank, pointer, (nranks, what, done, ident, _, whole, part) = said
        parent = self._pointed(whole) if part else None
        if parent is not None:
            ident = sys.intern("%s/%s" % (parent[0], part))
        if ident:
            key = (ident, rank)
            if self._pointers[-1:] != ((pointer, key),):
                self._named(pointer, key)
            return key
        completes = what == b"Init" and done
        known = self._pointed(pointer) or self._with_id(rank, nranks)
        if known is not None and not completes and known[1] == rank:
            return known
        turn = self._ordinals.get((nranks, rank), 0)
        if completes and pointer:
            if known is not None and known in self.proc.comms and not self.proc.comms[known].completed:
                return known
        key = ("n%d.%d" % (nranks, turn), rank)
        if completes and turn < _MAX_TURNS:
            self._ordinals = {**self._ordinals, (nranks, rank): turn + 1}
        self._named(pointer, key)
        return key

    def _named(self, pointer: bytes, key: Key) -> None:
        """Record which communicator a pointer names; a freed pointer may return for another one."""
        if pointer and (pointer, key) not in self._pointers:
            remaining = tuple(item for item in self._pointers if item[0] != pointer)
            self._pointers = (*remaining[-_MAX_POINTERS:], (pointer, key))

    def _with_id(self, rank: int, nranks: int) -> Optional[Key]:
        """Return the latest communicator with an id, of this rank and size: lines after its START omit the id."""
        for key in reversed(list(self.proc.comms)):
            if key[1] == rank and key[0].startswith("0x") and self.proc.comms[key].nranks == nranks:
                return key
        return None

    def _pointed(self, pointer: bytes) -> Optional[Key]:
        """Return the communicator that a pointer names."""
        for known, key in self._pointers:
            if known == pointer and pointer:
                return key
        return None
