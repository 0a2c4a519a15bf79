"""The processes of one stream, known by the text before their messages.

Processes of one host and pid are one, whichever thread wrote.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from ..lines.prefix import Process, parse_head, process_of
from ..state.process import InternPool, Proc, alone
from .tracker import Tracker

if TYPE_CHECKING:
    from ..state.partial import Partial

MAX_ALONE = 2048  # processes of one stream that are distinguished
MAX_HOSTS = 12_288  # hosts with further processes kept as one
_FOLLOWED = 65_536  # processes that are followed at a time
_MANY = 256  # processes with channels that wait before they are settled
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?\Z")


class Processes:
    """The processes of one stream, and the tracker of each."""

    def __init__(self, partial: Partial, index: int) -> None:
        self.partial = partial
        self.index = index
        self._waiting: List[Tracker] = []  # trackers with channels that wait for their communicator
        self.trackers: Dict[Process, Tracker] = {}
        self._named: List[Process] = []  # processes in the present block
        self._said: List[List[Tuple[int, Any]]] = []  # their messages that are not yet taken
        self.here: List[Optional[Tracker]] = []  # the tracker of each, if it was looked up
        self._places: Dict[Process, int] = {}
        self._met = 0  # how many of them were found
        self.at = 0  # the current line of that block
        self.start = 1  # the number of its first line in the stream
        self._by_pid: Dict[int, List[str]] = {}
        self._own = alone(index)
        self._beyond = Proc(None, None)
        self._beyond.intern_pool = InternPool(edges=False)

    def take(self, tracker: Tracker, said: List[Tuple[int, Any]]) -> None:
        """Take the lines of a process: communicators, channels, facts."""
        for number, what in said:
            if type(what) is dict:
                tracker.channels(what)
            elif type(what) is list:
                tracker.facts(what)
            else:
                tracker.communicator(what, self.start + number)

    def begin(self, named: List[Process], said: List[List[Tuple[int, Any]]], start: int) -> None:
        """Begin a block: its processes in the order of their first lines, their messages, and its first line."""
        self.start = start
        self._named, self._said, self.here, self._places, self._met = named, said, [None] * len(named), {}, 0

    def meet(self, count: int) -> None:
        """Find the first processes of the present block, in order: if the bound is reached, the first are kept."""
        for place in range(self._met, count):
            self.here[place] = self.find(self._named[place])
        self._met = max(self._met, count)

    def follow(self, place: int) -> Tracker:
        """Return the tracker of a process of the present block."""
        self.meet(place + 1)
        tracker = self.here[place]
        if tracker is None:  # the tracker was dropped
            tracker = self.here[place] = self.find(self._named[place])
        return tracker

    def end(self) -> None:
        """End a block: take its content, and settle the channels of many processes, which saves memory.

        They are settled only if their owner is clear.
        """
        self.meet(len(self._named))
        for place, said in enumerate(self._said):
            if said:
                self.take(self.here[place] or self.follow(place), said)
        if len(self._waiting) > _MANY:
            for tracker in self._waiting:
                if tracker.announced and tracker.pending:
                    tracker.settle()
            self._waiting[:] = [tracker for tracker in self._waiting if tracker.pending]

    def head(self, left: bytes) -> Tuple[Tracker, bytes]:
        """Return the process that a line's head names, and the text before that head."""
        head = parse_head(left)
        process = process_of(head)
        tracker = self.find(process)
        self._places = self._places or {name: place for place, name in enumerate(self._named)}
        said = self._said[self._places[process]] if process in self._places else []
        before = [item for item in said if item[0] < self.at]  # otherwise it is taken at the block's end
        if before:
            del said[: len(before)]
            self.take(tracker, before)
        tracker.proc.head(head.dev, head.tag)
        front = b""
        if head.host is not None:
            mark = left.rfind(head.host.encode("utf-8", "replace") + b":")
            front = left[:mark] if mark > 8 else b""
        return tracker, front

    def find(self, process: Process) -> Tracker:
        """Return the tracker of a process."""
        tracker = self.trackers.get(process)
        if tracker is None:
            if len(self.trackers) >= _FOLLOWED:
                self.let_go()
            host, pid, mark = process
            key = (self.index, "?" + mark, -1) if host is None or pid is None else (self.index, host, pid)
            proc = self.partial.procs.get(key)
            if proc is None and key[2] in self._by_pid:
                proc = self._glued(key)
            proc = proc or self._new(key, host, pid)
            stream = self.partial.sources[self.index]
            tracker = self.trackers[process] = Tracker(proc, self.index, stream, self._waiting)
        return tracker

    def _new(self, key: Tuple[int, str, int], host: Optional[str], pid: Optional[int]) -> Proc:
        """Return a separate process, or the one that represents all further processes of its host.

        The judgement is about hosts: the ranks, edges to other hosts, devices and warnings are all kept.
        """
        intern_pool = self.partial.intern_pool
        if intern_pool.alone >= MAX_ALONE:
            key = (self.index, key[1], -2) if key[2] >= 0 else (self.index, "?", -1)
            known = self.partial.procs.get(key)
            if known is not None:
                return known
            if intern_pool.hosts >= MAX_HOSTS:
                intern_pool.full = True
                return self._beyond  # read, but not kept: its ranks would be attributed to another
            intern_pool.hosts += 1
        else:
            intern_pool.alone += 1
        proc = self.partial.procs[key] = Proc(host, pid if key[2] >= 0 else None)
        proc.sources, proc.intern_pool = self._own, intern_pool
        if key[2] >= 0 and len(self._by_pid) < MAX_ALONE:
            self._by_pid.setdefault(key[2], []).append(key[1])
        return proc

    def let_go(self) -> None:
        """Stop following all processes; one that prints again continues with its latest communicator."""
        for tracker in self.trackers.values():
            tracker.settle()
        self._waiting.clear()
        self.here[:] = [None] * len(self.here)
        self.trackers.clear()

    def _glued(self, key: Tuple[int, str, int]) -> Optional[Proc]:
        """Find the process with a number glued to its host name: a torn table row ends in '-1' or '0.12'."""
        _, host, pid = key
        if host[:1] not in "-0123456789":
            return None
        for known in self._by_pid[pid]:
            if known != host and host.endswith(known) and _NUMBER.match(host[: -len(known)]):
                return self.partial.procs[(self.index, known, pid)]
        return None
