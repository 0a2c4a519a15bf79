"""Container logs: their format, and the parts that a request can select.

Files in the container runtime's format, one line `<RFC 3339 nanoseconds> <stream> <F|P> <text>`, rotated at
containerLogMaxSize; a reader sees only the current file, as through the API.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

MAX_BYTES = 10 * 1024 * 1024
"""containerLogMaxSize's default (https://kubernetes.io/docs/concepts/cluster-administration/logging/)."""
MAX_FILES = 5
"""containerLogMaxFiles' default."""
PART = 16 * 1024
"""The size in bytes at which containerd splits long lines."""
CHUNK = 64 * 1024
MESSAGE_BYTES, FALLBACK_BYTES, FALLBACK_LINES = 4096, 2048, 80
"""Limits of termination messages (https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/)."""


def stamp(nanoseconds: int) -> str:
    """Format an epoch time as the runtime does."""
    whole, nanos = divmod(nanoseconds, 10**9)
    return datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{nanos:09d}Z"


class Log:
    """One container's log: streams are copied into it, readers follow it."""

    def __init__(self, path: str, max_bytes: int = MAX_BYTES) -> None:
        self.path, self._max = Path(path), max_bytes
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = self.path.open("ab", buffering=0)
        self._size = self._file.tell()
        self.generation = 0
        self.ended = False
        self._waiters: set[asyncio.Event] = set()
        self.taps: set[Callable[[str, bytes], None]] = set()
        """Listeners for (stream, bytes); empty bytes at the end."""

    def write(self, stream: str, lines: list[bytes], *, partial: bool = False) -> None:
        """Append lines without their newlines; `partial`: the last one has none."""
        if not lines or self.ended:
            return
        prefix = f"{stamp(time.time_ns())} {stream} ".encode()
        full, last = (lines[:-1], lines[-1:]) if partial else (lines, [])
        text = b"".join(prefix + b"F " + line + b"\n" for line in full)
        text += b"".join(prefix + b"P " + line + b"\n" for line in last)
        self._file.write(text)
        self._size += len(text)
        if self._size > self._max:
            self._rotate()
        self._wake()

    def _rotate(self) -> None:
        self._file.close()
        self.generation += 1
        self.path.rename(f"{self.path}.{self.generation}")
        with contextlib.suppress(FileNotFoundError):
            Path(f"{self.path}.{self.generation - MAX_FILES + 1}").unlink()
        self._file, self._size = self.path.open("ab", buffering=0), 0

    def end(self) -> None:
        """Mark the end of the log."""
        self.ended = True
        self._file.close()
        self.tap("", b"")
        self._wake()

    def tap(self, stream: str, data: bytes) -> None:
        """Send data to the attached listeners."""
        for listener in tuple(self.taps):
            listener(stream, data)

    def _wake(self) -> None:
        for waiter in self._waiters:
            waiter.set()

    async def changed(self) -> None:
        """Wait until something was written or the log ended."""
        waiter = asyncio.Event()
        self._waiters.add(waiter)
        try:
            await waiter.wait()
        finally:
            self._waiters.discard(waiter)


def _write_parts(line: bytes, stream: str, log: Log) -> bytes:
    """Write all parts of a long line but the last; return the last part."""
    while len(line) > PART:
        log.write(stream, [line[:PART]], partial=True)
        line = line[PART:]
    return line


async def pump(fd: int, stream: str, log: Log) -> None:
    """Copy a pipe into the log until all its writers have closed it."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=CHUNK, loop=loop)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader, loop=loop), os.fdopen(fd, "rb", buffering=0)
    )
    rest = b""
    try:
        while data := await reader.read(CHUNK):
            log.tap(stream, data)
            *lines, rest = (rest + data).split(b"\n")
            if max(map(len, lines), default=0) <= PART:
                log.write(stream, lines)
            else:
                for line in lines:
                    log.write(stream, [_write_parts(line, stream, log)])
            rest = _write_parts(rest, stream, log)
    finally:
        if rest:
            log.write(stream, [rest], partial=True)
        transport.close()


@dataclass(slots=True, frozen=True)
class Options:
    """The options of a request; times in seconds of the epoch."""

    follow: bool = False
    tail: int | None = None
    since: float | None = None
    timestamps: bool = False
    limit: int | None = None


def _render(line: bytes, options: Options, *, continued: bool) -> tuple[bytes, bool]:
    """Return one line as the reader gets it, and whether the next line continues it."""
    moment, _, rest = line.partition(b" ")
    _, _, rest = rest.partition(b" ")
    tag, _, text = rest.partition(b" ")
    if options.since is not None and epoch(moment[:26].decode() + "+00:00") < options.since:
        return b"", False
    head = moment + b" " if options.timestamps and not continued else b""
    return head + text + (b"" if tag == b"P" else b"\n"), tag == b"P"


def _start_of_tail(data: bytes, count: int) -> int:
    """Return the offset in the file at which the last `count` whole lines begin."""
    if count == 0:
        return len(data)
    ends = [i for i, line in enumerate(data.splitlines()) if line.split(b" ", 3)[2:3] == [b"F"]]
    lines = data.splitlines(keepends=True)
    if ends and ends[-1] != len(lines) - 1:
        ends.append(len(lines) - 1)  # an unfinished last line counts
    elif not ends and lines:
        ends = [len(lines) - 1]
    if len(ends) <= count:
        return 0
    return sum(len(line) for line in lines[: ends[-count - 1] + 1])


async def read(log: Log, options: Options) -> AsyncIterator[bytes]:
    """Yield the current file, then, with `follow`, additions until the container ends."""
    left, tail, continued = options.limit, options.tail, False
    while True:
        generation = log.generation
        with log.path.open("rb") as file:
            if tail is not None:
                file.seek(_start_of_tail(file.read(), tail))
                tail = None
            async for lines in _lines(log, file, generation, follow=options.follow):
                out = b""
                for line in lines:
                    piece, continued = _render(line, options, continued=continued)
                    out += piece
                if left is not None:
                    out, left = out[:left], left - len(out[:left])
                if out:
                    yield out
                if left == 0:
                    return
        if generation == log.generation:
            return


async def _lines(log: Log, file: IO[bytes], generation: int, *, follow: bool) -> AsyncIterator[list[bytes]]:
    """Yield the lines of one file until it is rotated and read completely, or the container has ended."""
    rest = b""
    while True:
        data = file.read(CHUNK)
        if data:
            *lines, rest = (rest + data).split(b"\n")
            yield lines
        elif generation != log.generation or not follow or log.ended:
            return
        else:
            await log.changed()


def epoch(text: str) -> float:
    """Parse an RFC 3339 time to seconds of the epoch; ValueError for anything else."""
    return datetime.fromisoformat(text).timestamp()


def termination_message(file: Path, log: Log | None) -> str:
    """Return a container's termination message, else the end of its ``log`` if the policy falls back to it."""
    with contextlib.suppress(OSError):
        with file.open("rb") as opened:
            text = opened.read(MESSAGE_BYTES)
        if text:
            return str(text, errors="replace")
    if log is None:
        return ""
    lines = re.sub(rb"(?m)^\S+ \S+ [FP] ", b"", log.path.read_bytes()).splitlines()
    return str(b"\n".join(lines[-FALLBACK_LINES:])[-FALLBACK_BYTES:], errors="replace")
