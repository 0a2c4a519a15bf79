"""Reads large logs on several cores: blocks are digested by worker processes and applied here, in their order.

A block's digest depends on nothing but the block (digest.py), so that the state is the same, to the byte, however many
workers there are: none for small logs, one for each core but this process's else, which digests what they have no room
for. Where no process can be started, or one dies or is late, the blocks are digested here.
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
from mmap import mmap
from typing import TYPE_CHECKING, Any

from ..pod.nccl_reader.digest import Digest, Digester
from ..pod.nccl_reader.scan import Reader, chunks
from ..pod.nccl_reader.scan import read as read_alone
from .json_reports import spelled_out

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from ..pod.nccl_reader.state.partial import Partial

START = 4 << 20
"""Bytes after which workers are started: they cost some 10 ms each, which is what half a megabyte takes to be read."""
MOST = 4
"""Workers: what they digest is applied here, at a third of the work, so that more would wait."""
PATIENCE_S = 0.5
"""Seconds that a worker is waited for; a block takes 0.1. Who is later has no core of its own, and is dismissed."""
_BLOCK = 4 << 20  # bytes that a worker is given at a time: less than is read at once, so that all end together
_ROOM = _BLOCK + (1 << 18)  # bytes of a block, or of its digest, in the memory that is shared with a worker
_DEPTH = 2  # blocks that a worker has at a time, so that it has the next one when it ends one


def read(sources: Iterable[tuple[str, Any]], limit: int | None = None) -> Partial:
    """Read streams and return what was seen in them, as the pods' reader does, on the cores that there are."""
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
    """A process that digests blocks, one after the other. Blocks and digests are handed over in shared memory."""

    def __init__(self, earlier: list[_Worker]) -> None:
        context = multiprocessing.get_context("fork")  # pipes alone: no semaphores, which need /dev/shm
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

    def send(self, stream: int, data: bytes) -> None:
        """Hand over a block; raises OSError where the worker is gone."""
        at = self._next * _ROOM
        self._memory[at : at + len(data)] = data
        self.pipe.send((stream, at, len(data)))
        self._next = (self._next + 1) % _DEPTH
        self.queued += 1

    def ready(self, seconds: float = 0) -> bool:
        """Say whether the oldest block that it has is digested, within a time."""
        return self.pipe.poll(seconds)

    def receive(self) -> Digest:
        """Return the digest of the oldest block that it has; raises EOFError or OSError where it is gone or late."""
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
    """Digest what is handed over until the pipe's other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who reads the log decides what an interrupt means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:
        other.close()
    stream, digester = -1, Digester()
    try:
        while True:
            index, at, size = pipe.recv()
            if index != stream:  # what a digester has named and quoted, it has of one stream
                stream, digester = index, Digester()
            digest = marshal.dumps(tuple(digester.digest(memory[at : at + size])))
            if len(digest) <= _ROOM:
                memory[at : at + len(digest)] = digest
                pipe.send((at, len(digest)))
            else:
                pipe.send((at, 0))
                pipe.send_bytes(digest)
    except (EOFError, OSError):
        return


@dataclass
class _Crew:
    """The workers, and what was taken of the logs and not applied, in their order."""

    most: int  # workers that may be hired
    read: int = 0  # bytes that were taken
    workers: list[_Worker] = field(default_factory=list)
    taken: deque[tuple[_Shared, bytes | None, _Worker | Digest | None]] = field(default_factory=deque)

    def take(self, reader: _Shared, data: bytes) -> None:
        """Take what was read next, in blocks."""
        reader.settle()
        reader.see(data)
        if not self.workers:
            self.hire()
        at = 0
        while len(data) - at > _BLOCK and (end := data.rfind(b"\n", at, at + _BLOCK) + 1):
            self.share(reader, data[at:end])
            at = end
        self.share(reader, data[at:])

    def share(self, reader: _Shared, data: bytes) -> None:
        """Take the next block: a worker's, or, while all have enough, this process's own."""
        while self.taken and (self._ready() or len(self.taken) > 2 * _DEPTH * len(self.workers)):
            self.apply()
        worker = min(self.workers, key=lambda worker: worker.queued, default=None)
        if worker is not None and worker.queued < _DEPTH and len(data) <= _ROOM:
            try:
                worker.send(reader.index, data)
            except OSError:
                self.dismiss(worker)
            else:
                self.taken.append((reader, data, worker))
                return
        digest = reader.digester.digest(data)
        if self.taken:
            self.taken.append((reader, data, digest))
        else:
            reader.take(digest, data)

    def _ready(self) -> bool:
        """Say whether the oldest block that was taken can be applied without waiting."""
        what = self.taken[0][2]
        return not isinstance(what, _Worker) or what not in self.workers or what.ready()

    def hire(self) -> None:
        """Start the workers."""
        try:
            while len(self.workers) < self.most:
                self.workers.append(_Worker(self.workers))
        except (OSError, ValueError):  # no fork here, or no more
            self.most = 0

    def dismiss(self, worker: _Worker) -> None:
        """End a worker; none is hired again."""
        self.workers.remove(worker)
        self.most = 0
        worker.end()

    def apply(self) -> None:
        """Apply the oldest block that was taken."""
        reader, data, what = self.taken.popleft()
        if data is None:
            Reader.close(reader)
            return
        digest = what if isinstance(what, Digest) else None
        if isinstance(what, _Worker) and what in self.workers:
            try:
                digest = what.receive()
            except (EOFError, OSError):
                self.dismiss(what)
        # In place of a worker that is gone: a digester of its own, for later blocks may have been digested already.
        reader.take(digest or Digester().digest(data), data)


class _Shared(Reader):
    """A reader whose blocks are digested by a crew, once there is much to read."""

    def __init__(self, partial: Partial, name: str, crew: _Crew) -> None:
        super().__init__(partial, name)
        self._crew = crew

    def block(self, data: bytes) -> None:
        self._crew.read += len(data)
        if self._crew.taken or (self._crew.most and self._crew.read > START):
            self._crew.take(self, data)
        else:
            super().block(data)

    def close(self) -> None:
        if self._crew.taken:
            self._crew.taken.append((self, None, None))
        else:
            super().close()
