"""Reads large logs on several cores: worker processes digest spans of blocks, which are applied here in order.

A span's digest depends only on the span (digest.py), so that the state is bitwise identical for any number of workers.
Small logs have none; others have one for each core except this process's own, which digests spans while all workers are
busy. If no process can be started, or one dies or is late, the spans are digested here.
"""

from __future__ import annotations

import marshal
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from mmap import mmap
from typing import TYPE_CHECKING, Any

from .json_reports import spelled_out
from .reader.digest import Digest, Digester
from .reader.scan import Reader, chunks
from .reader.scan import read as read_alone

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from .reader.state.partial import Partial

START = 16 << 20
"""Bytes after which workers are started. Separate digests are applied in several parts, as copied lists: three
processes read logs of 20 MB no faster than one, and one of 75 MB in 0.6 of the time."""
MOST = 4
"""Maximum number of workers: their digests are applied here, at a third of the work, so that more would wait."""
PATIENCE_S = 1.0
"""The longest wait for a worker, in seconds; a span takes 0.1. A later one has no core to itself, and is dismissed."""
_SPAN = 8 << 20  # maximum number of bytes of the blocks in one span: applying each digest has a cost
_SHARE = 4  # and at most this part of the bytes read so far, so that all end together
_ROOM = _SPAN + (1 << 18)  # bytes of a span, or of its digest, in the memory that is shared with a worker
_DEPTH = 2  # spans of a worker at a time, so that the next one waits when it ends one


def read(sources: Iterable[tuple[str, Any]], limit: int | None = None) -> Partial:
    """Read streams and return their content, as the pods' reader does, on the available cores."""
    sources = ((name, spelled_out(chunks(stream))) for name, stream in sources)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if cores < 2 or threading.active_count() > 1:
        return read_alone(sources, limit)
    crew = _Crew(min(cores - 1, MOST))
    try:
        partial = read_alone(sources, limit, lambda partial, name: _Shared(partial, name, crew))
        while crew.taken:
            crew.apply()
    finally:
        for worker in list(crew.workers):
            crew.dismiss(worker)
    return partial


class _Worker:
    """A process that digests blocks sequentially. Blocks and digests are passed in shared memory."""

    def __init__(self, earlier: list[_Worker]) -> None:
        context = multiprocessing.get_context("fork")  # only pipes: no semaphores, which need /dev/shm
        self.queued = 0
        self._next = 0
        self._memory = mmap(-1, _DEPTH * _ROOM)
        self.pipe, end = context.Pipe()
        inherited = [self.pipe, *(other.pipe for other in earlier)]
        self.process = context.Process(target=_digest_all, args=(end, self._memory, inherited), daemon=True)
        try:
            self.process.start()
        except BaseException:
            self.pipe.close()
            raise
        finally:
            end.close()

    def send(self, stream: int, blocks: list[bytes]) -> None:
        """Send a span; raises OSError if the worker is gone."""
        at = self._next * _ROOM
        data = b"".join(blocks)
        self._memory[at : at + len(data)] = data
        self.pipe.send((stream, at, [len(block) for block in blocks]))
        self._next = (self._next + 1) % _DEPTH
        self.queued += 1

    def ready(self, seconds: float = 0) -> bool:
        """Return whether its oldest span is digested within a time."""
        return self.pipe.poll(seconds)

    def receive(self) -> Digest:
        """Return the digest of its oldest span; raises EOFError or OSError if it is gone or late."""
        if not self.ready(PATIENCE_S):
            raise TimeoutError("a worker is late")
        at, size = self.pipe.recv()
        self.queued -= 1
        digest = self._memory[at : at + size] if size else self.pipe.recv_bytes()
        return Digest(*marshal.loads(digest))  # noqa: S302 -- of a process that was forked from this one

    def end(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.kill()
        self.process.join()
        self._memory.close()


def _digest_all(pipe: Connection, memory: mmap, inherited: list[Connection]) -> None:
    """Digest the blocks until the pipe's other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the reader of the log handles interrupts
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:
        other.close()
    stream, digester = -1, Digester()
    try:
        while True:
            index, at, sizes = pipe.recv()
            if index != stream:  # a digester's names and quotes are of one stream
                stream, digester = index, Digester()
            ends = [at, *(at + size for size in accumulate(sizes))]
            digest = marshal.dumps(tuple(_digested(digester, (memory[a:b] for a, b in pairwise(ends)))))
            if len(digest) <= _ROOM:
                memory[at : at + len(digest)] = digest
                pipe.send((at, len(digest)))
            else:
                pipe.send((at, 0))
                pipe.send_bytes(digest)
    except (EOFError, OSError):
        return


def _digested(digester: Digester, blocks: Iterable[bytes]) -> Digest:
    """Digest a span block by block: a block fits a core's cache."""
    for block in blocks:
        digester.read(block)
    return digester.take()


@dataclass
class _Crew:
    """The workers, and the blocks that were taken and not applied, in order."""

    most: int  # workers that may be hired
    read: int = 0  # bytes that were taken
    workers: list[_Worker] = field(default_factory=list)
    taken: deque[tuple[_Shared, list[bytes] | None, _Worker | Digest | None]] = field(default_factory=deque)

    def share(self, reader: _Shared, blocks: list[bytes]) -> None:
        """Take the next span: by a worker, or by this process while all are busy."""
        if not self.workers:
            self.hire()
        while self.taken and (self._ready() or len(self.taken) > _DEPTH * (len(self.workers) + 1)):
            self.apply()
        worker = min(self.workers, key=lambda worker: worker.queued, default=None)
        if worker is not None and worker.queued < _DEPTH and sum(map(len, blocks)) <= _ROOM:
            try:
                worker.send(reader.index, blocks)
            except OSError:
                self.dismiss(worker)
            else:
                self.taken.append((reader, blocks, worker))
                return
        digest = _digested(reader.digester, blocks)
        if self.taken:
            self.taken.append((reader, blocks, digest))
        else:
            reader.take(digest, b"".join(blocks))

    def _ready(self) -> bool:
        """Return whether the oldest span can be applied without waiting."""
        what = self.taken[0][2]
        return not isinstance(what, _Worker) or what not in self.workers or what.ready()

    def hire(self) -> None:
        """Start the workers."""
        try:
            while len(self.workers) < self.most:
                self.workers.append(_Worker(self.workers))
        except (OSError, ValueError):  # no fork on this system, or no more processes
            self.most = 0

    def dismiss(self, worker: _Worker) -> None:
        """End a worker without a replacement."""
        self.workers.remove(worker)
        self.most = 0
        worker.end()

    def apply(self) -> None:
        """Apply the oldest span."""
        reader, blocks, what = self.taken.popleft()
        if blocks is None:
            Reader.close(reader)
            return
        digest = what if isinstance(what, Digest) else None
        if isinstance(what, _Worker) and what in self.workers:
            try:
                digest = what.receive()
            except (EOFError, OSError):
                self.dismiss(what)
        # For a worker that is gone: a new digester, since later spans may already have been digested.
        reader.take(digest or _digested(Digester(), blocks), b"".join(blocks))


class _Shared(Reader):
    """A reader whose blocks a crew digests once the log is large."""

    def __init__(self, partial: Partial, name: str, crew: _Crew) -> None:
        super().__init__(partial, name)
        self._crew = crew
        self._blocks: list[bytes] = []  # blocks of the next span

    def block(self, data: bytes) -> None:
        crew = self._crew
        crew.read += len(data)
        if not (crew.taken or self._blocks or (crew.most and crew.read > START)):
            super().block(data)
            return
        self.settle()
        self.see(data)
        span = min(_SPAN, crew.read // _SHARE)
        if self._blocks and sum(map(len, self._blocks)) + len(data) > span:
            self._share()
        self._blocks.append(data)

    def _share(self) -> None:
        self._crew.share(self, self._blocks)
        self._blocks = []

    def close(self) -> None:
        if self._blocks:
            self._share()
        if self._crew.taken:
            self._crew.taken.append((self, None, None))
        else:
            super().close()
