"""Reads streams of bytes into a state: blocks of whole lines are digested, and their events applied in order.

One pass in constant memory. The digest of a block (digest.py) does nearly all of the work and is independent of other
blocks. This module has the parts that depend on earlier lines: the communicators of processes, and the open table.
"""

from __future__ import annotations

import gc
import re
from contextlib import contextmanager
from io import BytesIO
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from .digest import MARK, Digest, Digester
from .events.endings import last_words
from .events.foreign import ForeignLines
from .events.long_lines import MAX_LINE, bounded, far
from .events.messages import Messages
from .events.processes import Processes
from .events.signals import MOST, SignalReader
from .halves import is_half_row, says_half, says_more
from .lines.clean import ESCAPES, plain_lines, printable
from .state.partial import Partial
from .state.process import Source
from .tables.table import TableReader
from .unwrap import unwrapper

BLOCK = 1 << 20  # bytes that are digested at a time
HELD = (
    1 << 25
)  # most bytes whose digests are applied together: a process writes in many blocks, with the same connections
_LAST = 8 * 1024  # bytes of the end of a stream that are kept
_FIRST = 256 * 1024  # bytes of the beginning of a stream
_MANY = 100_000  # objects from which it pays to mark them as old for the collector: three scans of them take 0.1 s
_SIZES = {
    "operations of": re.compile(rb"\[nranks=((\d{1,7}))\] "),  # form of ncclEnqueueCheck (enqueue.cc)
    # 'Channel 03/0 : 7[3] -> 0[0] [receive] via': the index of each GPU (2.19 and later; before, its PCI address)
    "gpu": re.compile(rb" : \d{1,7}\[(\d)\] -> \d{1,7}\[(\d)\] \[(?:send|receive)\] via NET/"),
}
_CUT_HEAD = re.compile(
    rb"^(?:[^\n]{0,300}[\s:>\])|])?([A-Za-z0-9][A-Za-z0-9_.-]{0,254}):(\d{1,10}):\d{1,20}(?: \[\d*\]?)?\s*?$",
    re.MULTILINE,
)
_CUT_END = re.compile(rb":\d{1,20}(?: \[\d*\]?)?\s*?$", re.MULTILINE)  # the end of such a head: few streams hold one
_NUMBER = re.compile(r"[0-9a-f]+")


def _named_like(host: str) -> Tuple[str, int]:
    """Return the common form of a cluster's host names; a time of day matches none of them."""
    shape = _NUMBER.sub("0", host.lower())
    return shape, len(host) if shape == "0" else 0


class Reader:
    """Reads one stream into a partial."""

    def __init__(self, partial: Partial, name: str) -> None:
        self.partial = partial
        self.index = len(partial.sources)
        self.source = Source(printable(name, 300))
        partial.sources.append(self.source)
        self.tables = TableReader(self.source, self.index)
        self.signals = SignalReader(self.source, self.index)
        self.processes = Processes(partial, self.index)
        self.messages = Messages(self.source, self.processes, self.tables)
        self.foreign = ForeignLines(self.messages, self.signals, self.tables)
        self.messages.plain = self.foreign.plain
        self.line = 0
        self.digester = Digester()
        self.parts: List[bytes] = []  # the bytes of the next block so far
        self._size = 0
        self._held = 0  # bytes that were digested, and not applied
        self._skipping = False  # whether the stream is inside a line longer than MAX_LINE
        self._skipped = b""  # the end of its skipped part
        self._tail = b""  # the text after the last line end
        self._last = b""  # the end of the bytes read so far
        self._looked = 0  # bytes of the beginning that were searched
        self._most: Dict[str, int] = {}  # the highest numbers in the beginning, by name

    # -- bytes to blocks -----------------------------------------------------------------------------------------------
    def feed(self, chunk: bytes) -> None:
        """Read the next bytes of the stream."""
        self.source.bytes += len(chunk)
        if self._skipping:
            cut = chunk.find(b"\n")
            self._skip(chunk if cut < 0 else chunk[:cut])
            if cut < 0:
                return
            chunk = chunk[cut:]
            self._skipping, self._skipped = False, b""
        self.parts.append(chunk)
        self._size += len(chunk)
        if self._size < BLOCK:
            return
        end = chunk.rfind(b"\n") + 1
        if not end:  # a line in very small chunks or without an end
            chunk = b"".join(self.parts)
            end = chunk.rfind(b"\n") + 1
            self.parts = [chunk]
        tail, self.parts[-1] = chunk[end:], chunk[:end]
        if end:
            self.block(b"".join(self.parts))
        if len(tail) > MAX_LINE:
            self._skipping = b"\r" not in tail
            tail = b" ".join((bounded(tail), *far(tail))) if self._skipping else b"\r".join((*far(tail), bounded(tail)))
        self.parts, self._size = [tail], len(tail)

    def _skip(self, data: bytes) -> None:
        """Skip the part of a line beyond the limit, except signs of a failure."""
        self._skipped = (self._skipped or b" " * MOST) + data
        if self._size < 2 * MAX_LINE:
            self.parts += [b" " + text for text in far(self._skipped)]
            self._size = sum(map(len, self.parts))
        self._skipped = self._skipped[-MOST:]

    def block(self, data: bytes) -> None:
        """Read a block of whole lines; it is applied with earlier ones unless single lines are observed."""
        self.see(data)
        before = self.digester.lines
        listens = not before and (self.line < self.foreign.TAGGED or self.foreign.listens())
        self._held += len(data)
        if self.digester.read(data) or listens or self._held >= HELD:
            self.take(self.digester.take(), data, before)
            self._held = 0

    def finish(self) -> None:
        """Read the text after the last line end, and settle what waits for more."""
        whole, end, tail = b"".join(self.parts).rpartition(b"\n")
        self.parts, self._size = [], 0
        if end:
            self.block(whole + end)
        if tail:
            self.source.cut = True
            self._tail = bounded(tail) + b"\n"
        self.close()

    def close(self) -> None:
        """End the stream: settle what waits for more."""
        if self._held:
            self.settle()
        if self._tail:
            self._end_within_line()
        last = ESCAPES.sub(b"", self._last)
        cuts = list(_CUT_HEAD.finditer(last)) if _CUT_END.search(last) else []
        known = {_named_like(host) for index, host, _ in self.partial.procs if cuts and index == self.index}
        for cut in cuts:
            host = cut.group(1).decode("ascii")
            if _named_like(host) in known:  # a head without more, near the end: the process exists
                self.processes.find((host, int(cut.group(2)), ""))
        words = last_words(last, any(table["complete"] for table in self.source.tables))
        if words:
            self.source.note("ending", self.index, self.line, words)
        for what, number in self._most.items():
            if number >= 0:
                self.source.note("%s %d" % (what, number), self.index, 1, b"")
        self.processes.let_go()
        self.partial.limited = self.partial.limited or self.partial.intern_pool.full
        self.tables.finish()
        self.source.lines = self.line

    def _end_within_line(self) -> None:
        """Read the text after the last line end: a whole line in a paste, half of one in a truncated log."""
        before = self._last.rstrip(b"\r\n").rpartition(b"\n")[2]
        self.see(self._tail)
        line = Reader(Partial(), "")
        line.block(self._tail)
        line.close()
        connections = (each for tracker in self.processes.trackers.values() for each in tracker.connections())
        half = is_half_row(self._tail, before, self.tables.table) or says_half(line.partial, self.partial, connections)
        if half and not says_more(line.partial):
            self.line += 1
        else:
            self.take(self.digester.digest(self._tail), self._tail)

    # -- blocks to state -----------------------------------------------------------------------------------------------
    def settle(self) -> None:
        """Take the content of the digested blocks."""
        if self._held:
            self.take(self.digester.take(), b"")
            self._held = 0

    def see(self, data: bytes) -> None:
        """Keep the parts of the next block that are needed for the beginning and the end of a stream."""
        if self._looked < _FIRST:
            for what, pattern in _SIZES.items():  # sizes of communicators (subsystem COLL), and of hosts by GPUs
                numbers_seen = [
                    int(number) for numbers in pattern.findall(data[: _FIRST - self._looked]) for number in numbers
                ]
                self._most[what] = max([self._most.get(what, -1), *numbers_seen])
            self._looked += len(data)
        self._last = (self._last + data if len(data) < _LAST else data)[-_LAST:]

    def take(self, digest: Digest, data: bytes, before: int = 0) -> None:
        """Take the content of blocks of whole lines; ``data`` is the last one, after so many lines of the others."""
        start, self.line = self.line + 1, self.line + digest.lines
        self.source.nccl_lines += digest.marked
        processes, foreign = self.processes, self.foreign
        processes.begin(digest.processes, digest.own_events, start)
        here, follow = processes.here, processes.follow
        lines = enumerate(BytesIO(data), before)
        at = 0  # the line after the last event
        listens = start <= foreign.TAGGED or foreign.listens()
        for number, process, what, raw in digest.events:
            if listens and at < number:
                listens = self._hear(lines, at, number, start)
            at = number + 1
            if process < 0:
                processes.meet(-1 - process)
                processes.at = number
                if MARK in raw:
                    self.messages.line(raw, start + number)
                else:
                    foreign.line(raw, start + number)
                listens = start + number < foreign.TAGGED or foreign.listens()
            elif type(what) is tuple:
                (here[process] or follow(process)).apply(what, start + number, raw)
            else:
                processes.take(follow(process), what)
        if listens and at < digest.lines:
            self._hear(lines, at, digest.lines, start)
        processes.end()

    def _hear(self, lines: Iterator[Tuple[int, bytes]], at: int, end: int, start: int) -> bool:
        """Read the lines without content of their own, as long as something is open that they may belong to."""
        foreign = self.foreign
        for number, raw in lines:  # the iterator continues where it ended
            if number >= end:
                break
            if number < at:
                continue
            plain = plain_lines(raw)
            if MARK not in plain:
                foreign.hear(plain[:-1], start + number)
            if not (start + number < foreign.TAGGED or foreign.listens()):
                return False
        return True


def read(
    sources: Iterable[Tuple[str, Union[Iterable[bytes], object]]],
    limit: Optional[int] = None,
    reader: Callable[[Partial, str], Reader] = Reader,
) -> Partial:
    """Read streams and return their content.

    ``sources`` yields (name, stream); a stream is a binary file or an iterable of byte chunks. ``limit`` bounds the
    bytes that are taken of each stream; a longer one is marked, and its rest is never guessed. Memory does not grow
    with length. ``reader`` creates the reader of one stream.
    """
    partial = Partial()
    with uncollected():
        for name, stream in sources:
            read_one(reader(partial, name), stream, limit)
    return partial


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the cycle collector: a log creates many objects without cycles, and scans cost a quarter of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            if gc.get_count()[0] > _MANY and not gc.get_freeze_count():  # objects that a program froze remain frozen
                gc.freeze()
                gc.unfreeze()  # new objects count as old, so that the next collection skips them
            gc.enable()


def read_one(reader: Reader, stream: object, limit: Optional[int] = None) -> None:
    """Read one stream."""
    taken = 0
    taker: Any = None
    for whole in chunks(stream):
        chunk = whole
        if limit is not None and taken + len(chunk) > limit:
            chunk = chunk[: limit - taken]
            reader.partial.limited = True
        taken += len(chunk)
        if taker is None:
            taker = unwrapper(chunk, reader)
        if chunk:
            taker.feed(chunk)
        if limit is not None and taken >= limit:
            break
    (taker or reader).finish()


def chunks(stream: object) -> Iterator[bytes]:
    """Yield the bytes of a binary file or of an iterable of chunks."""
    read_some = getattr(stream, "read", None)
    if read_some is not None:
        chunk = read_some(1 << 17)
        while chunk:
            yield chunk if isinstance(chunk, bytes) else chunk.encode("utf-8", "replace")
            chunk = read_some(1 << 17)
        return
    for chunk in stream:  # type: ignore[attr-defined]  # no read(): an iterable
        if chunk:
            yield bytes(chunk) if not isinstance(chunk, str) else chunk.encode("utf-8", "replace")
