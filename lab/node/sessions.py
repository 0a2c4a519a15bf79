"""`exec` and `attach`: streams between a client and a process in a container.

A session has output by stream, an input that can be closed, a terminal size, and a result after the process has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
from collections.abc import AsyncIterator
from typing import Any

from .network.interface import Process, StartError
from .pod_context import ContainerContext

STDOUT, STDERR = 1, 2
CHUNK = 32 * 1024
MOST_CHUNKS = 64
"""Maximum number of chunks that are buffered for a slow client; then the process waits, as on a full pipe."""


class Session:
    """Output comes as (stream, bytes); `result` is the exit code, None without one."""

    def __init__(self) -> None:
        self._chunks: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue(MOST_CHUNKS)
        self._tasks: list[asyncio.Task[None]] = []
        self._input: asyncio.StreamWriter | None = None
        self.result: int | None = None

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield output until the process has ended and everything is read."""
        while True:
            stream, data = await self._chunks.get()
            if not data:
                return
            yield stream, data

    async def feed(self, data: bytes) -> None:
        """Write to the input; data without a reader is dropped."""
        if self._input is not None:
            with contextlib.suppress(ConnectionError, OSError):
                self._input.write(data)
                await self._input.drain()

    def end_input(self) -> None:
        """Close the input."""
        if self._input is not None:
            self._input.close()

    def resize(self, columns: int, rows: int) -> None:
        """Set the terminal's size; nothing happens without a terminal."""

    def close(self) -> None:
        """Release everything after the client disconnected. The process continues, as on a real node."""
        for task in self._tasks:
            task.cancel()
        self.end_input()


class Execution(Session):
    """An additional command in a running container."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal
        self._master = -1

    async def start(self, container: ContainerContext, argv: list[str], *, stdin: bool) -> None:
        """Start the command; StartError if it cannot run."""
        ours: list[tuple[int, int]] = []  # stream, descriptor to read from
        if self._terminal:
            self._master, slave = os.openpty()
            theirs = [slave, os.dup(slave), os.dup(slave)]
            ours.append((STDOUT, os.dup(self._master)))
            writing = os.dup(self._master)
        else:
            pipes = [os.pipe(), os.pipe()]
            theirs = [pipes[0][1], pipes[1][1]]
            ours = [(STDOUT, pipes[0][0]), (STDERR, pipes[1][0])]
            writing = -1
            if stdin:
                reading, writing = os.pipe()
                theirs.append(reading)
        try:
            process = await container.spawn(argv, theirs, terminal=self._terminal)
        except StartError:
            for _, fd in ours:
                os.close(fd)
            if writing >= 0:
                os.close(writing)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        if writing >= 0:
            self._input = await writer(writing)
        readers = [asyncio.create_task(self._read(stream, fd)) for stream, fd in ours]
        self._tasks = [*readers, asyncio.create_task(self._finish(process, readers))]

    async def _read(self, stream: int, fd: int) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=CHUNK, loop=loop)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader, loop=loop), os.fdopen(fd, "rb", buffering=0)
        )
        try:
            with contextlib.suppress(OSError):  # a terminal returns EIO if its other end is closed
                while data := await reader.read(CHUNK):
                    await self._chunks.put((stream, data))
        finally:
            transport.close()

    async def _finish(self, process: Process, readers: list[asyncio.Task[None]]) -> None:
        code = await asyncio.shield(process.exited)
        await asyncio.wait(readers, timeout=1)  # a child that continues holds the pipe
        self.result = code if code >= 0 else 128 - code
        await self._chunks.put((0, b""))

    def resize(self, columns: int, rows: int) -> None:
        """Set the terminal's size."""
        if self._master >= 0:
            with contextlib.suppress(OSError, struct.error):
                fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self) -> None:
        """Disconnect."""
        super().close()
        if self._master >= 0:
            os.close(self._master)
            self._master = -1


class Attachment(Session):
    """The container's own process: its output from now on, and its input if the pod requests one."""

    def __init__(self, container: ContainerContext) -> None:
        super().__init__()
        self._container = container
        self._log = container.log
        if self._log is not None:
            self._log.taps.add(self._tapped)

    def _tapped(self, stream: str, data: bytes) -> None:
        with contextlib.suppress(asyncio.QueueFull):  # output is dropped for a client that does not read
            self._chunks.put_nowait((STDERR if stream == "stderr" else STDOUT, data))

    async def feed(self, data: bytes) -> None:
        """Write to the container's input."""
        if self._container.input is not None:
            with contextlib.suppress(ConnectionError, OSError):
                self._container.input.write(data)
                await self._container.input.drain()

    def end_input(self) -> None:
        """Close the container's input if the pod allows one client only (stdinOnce)."""
        if self._container.input is not None and self._container.spec.get("stdinOnce"):
            self._container.input.close()

    def close(self) -> None:
        """Detach."""
        if self._log is not None:
            self._log.taps.discard(self._tapped)
        self.end_input()


async def writer(fd: int) -> asyncio.StreamWriter:
    """Return a writer on a pipe or a terminal."""
    loop = asyncio.get_running_loop()
    flow: Any = asyncio.streams.FlowControlMixin(loop)  # what asyncio's own subprocess uses
    transport, protocol = await loop.connect_write_pipe(lambda: flow, os.fdopen(fd, "wb", buffering=0))
    return asyncio.StreamWriter(transport, protocol, None, loop)
