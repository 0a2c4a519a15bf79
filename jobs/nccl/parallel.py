"""Reads large logs on several cores: blocks are digested by worker processes and applied here, in their order.

A block's digest depends on nothing but the block (digest.py), so that the state is the same, to the byte, however many
workers there are: none for small logs, one for each core but this process's else. Where no process can be started, or
one dies, the blocks are digested here.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from ..pod.nccl_reader.digest import Digest, Digester
from ..pod.nccl_reader.scan import Reader
from ..pod.nccl_reader.scan import read as read_alone

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.connection import Connection

    from ..pod.nccl_reader.state.partial import Partial

START = 16 << 20
"""Bytes after which workers are started: they cost some 10 ms each, which is what half a megabyte takes to be read."""
FEWEST = 4
"""Cores from which on workers pay: on two, sending blocks and taking digests apart costs what the second one gives."""
MOST = 16


def read(sources: Iterable[tuple[str, Any]], limit: int | None = None) -> Partial:
    """Read streams and return what was seen in them, as the pods' reader does, on the cores that there are."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if cores < FEWEST or threading.active_count() > 1:
        return read_alone(sources, limit)
    crew = _Crew(min(cores - 1, MOST))
    try:
        partial = read_alone(sources, limit, lambda partial, name: _Shared(partial, name, crew))
        crew.finish()
    finally:
        crew.stop()
    return partial


class _Worker:
    """A process that digests one block at a time."""

    def __init__(self, others: list[_Worker]) -> None:
        context = multiprocessing.get_context("fork")  # pipes alone: no semaphores, which need /dev/shm
        self.pipe, end = context.Pipe()
        inherited = [self.pipe, *(other.pipe for other in others)]
        self.process = context.Process(target=_digest_all, args=(end, inherited), daemon=True)
        try:
            self.process.start()
        except BaseException:
            self.pipe.close()
            raise
        finally:
            end.close()


def _digest_all(pipe: Connection, inherited: list[Connection]) -> None:
    """Digest what comes through a pipe until its other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who reads the log decides what an interrupt means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:
        other.close()
    stream, digester = -1, Digester()
    try:
        while True:
            index, data = pipe.recv(), pipe.recv_bytes()
            if index != stream:  # what a digester has named and quoted, it has of one stream
                stream, digester = index, Digester()
            pipe.send(digester.digest(data))
    except (EOFError, OSError):
        return


class _Crew:
    """The workers, and the blocks that are with them, in the order of the logs."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._read = 0
        self._workers: list[_Worker] = []
        self._free: list[_Worker] = []
        self._sent: deque[tuple[_Shared, bytes | None, _Worker | Digest | None]] = deque()

    def take(self, reader: _Shared, data: bytes) -> None:
        """Take the next block: a free worker's, or, while all are busy, this process's own."""
        self._read += len(data)
        if self._most and self._read > START and not self._workers:
            self._hire()
        while self._sent and (self._ready() or len(self._sent) > 2 * len(self._workers)):
            self._apply()
        if self._free:
            worker = self._free.pop()
            try:
                worker.pipe.send(reader.index)
                worker.pipe.send_bytes(data)
            except OSError:
                self._dismiss(worker)
            else:
                self._sent.append((reader, data, worker))
                return
        digest = reader.digester.digest(data)
        if self._sent:
            self._sent.append((reader, data, digest))
        else:
            reader.apply(digest, data)

    def _ready(self) -> bool:
        """Say whether the oldest block that was taken can be applied without waiting."""
        what = self._sent[0][2]
        return not isinstance(what, _Worker) or what.pipe.poll()

    def end(self, reader: _Shared) -> None:
        """Take the end of a stream."""
        if self._sent:
            self._sent.append((reader, None, None))
        else:
            Reader.close(reader)

    def finish(self) -> None:
        """Apply everything that was taken."""
        while self._sent:
            self._apply()

    def stop(self) -> None:
        """End the workers."""
        for worker in list(self._workers):
            self._dismiss(worker)

    def _hire(self) -> None:
        try:
            while len(self._workers) < self._most:
                self._workers.append(_Worker(self._workers))
        except (OSError, ValueError):  # no fork here, or no more
            self._most = 0
        self._free = list(self._workers)

    def _dismiss(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        self._free = [other for other in self._free if other is not worker]
        self._most = 0  # none is hired again
        worker.pipe.close()
        worker.process.kill()
        worker.process.join()

    def _apply(self) -> None:
        """Apply the oldest block that was taken."""
        reader, data, what = self._sent.popleft()
        if data is None:
            Reader.close(reader)
            return
        digest = what if isinstance(what, Digest) else None
        if isinstance(what, _Worker):
            try:
                digest = what.pipe.recv()
                self._free.append(what)
            except (EOFError, OSError):
                self._dismiss(what)
        # In place of a worker that died: a digester of its own, since later blocks may have been digested here already.
        reader.apply(digest or Digester().digest(data), data)


class _Shared(Reader):
    """A reader whose blocks are digested by a crew."""

    def __init__(self, partial: Partial, name: str, crew: _Crew) -> None:
        super().__init__(partial, name)
        self._crew = crew

    def block(self, data: bytes) -> None:
        self._crew.take(self, data)

    def close(self) -> None:
        self._crew.end(self)
