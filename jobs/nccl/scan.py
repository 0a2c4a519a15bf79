"""How are bytes turned into state? One pass over a stream, a piece of some lines at a time, in constant memory.

Most lines of a real log say nothing new (channels of the same edge, operations, progress). Pieces and lines that were
read before are passed over in bulk; of the others most are settled by a look into a table of heads, lanes or shapes;
only the rest is parsed (platform.md, 4: a regex per line is 5 times slower).
"""

from __future__ import annotations

import re
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple, Union

from .events import facts as events
from .events import signals
from .events.lanes import HEADS
from .events.messages import CHANNEL, KINDS, MAX_TEXT, OPERATION, Messages
from .events.others import Others
from .events.processes import Processes
from .events.shapes import DIGITS, MARK
from .lines.clean import ESCAPES, printable
from .lines.prefix import Head
from .lines.repeats import SIZE, Lines, Pieces
from .state.partial import Partial
from .state.seen import Source
from .tables.table import TableReader
from .unwrap import unwrapper

MAX_LINE = 64 * 1024  # of a line without an end, this much is kept
_SHAPELY = 3  # blocks in a row of lines that say nothing, after which these are told in bulk
_SAMPLE = 8  # lines of a block that are asked whether they do
_ENDS = frozenset(bytes((byte,)) for byte in b"0123456789A \t\r")  # of a row of numbers, or of its torn half
_CUT_HEAD = re.compile(rb"(?:^|[\s:>\])|])([A-Za-z0-9][A-Za-z0-9_.-]{0,254}):(\d{1,10}):\d{1,20}(?: \[\d*\]?)?$")

Numbered = Iterable[Tuple[int, bytes]]


class Reader:
    """Reads one stream into a partial."""

    def __init__(self, partial: Partial, name: str) -> None:
        self.partial = partial
        self.index = len(partial.sources)
        self.source = Source(printable(name, 300))
        partial.sources.append(self.source)
        self.tables = TableReader(self.source, self.index)
        self.signals = signals.SignalReader(self.source, self.index)
        self.processes = Processes(partial, self.index)
        self.line = 0
        self._tail = b""
        self._skipping = False  # inside a line longer than MAX_LINE
        self._last = b""  # the end of what was read
        self._shapely = 0  # blocks in a row most of whose lines say nothing, whatever numbers stand in them
        self._pieces = Pieces()
        self._repeats = Lines()
        self.messages = Messages(self.source, self.processes, self.tables)
        self.others = Others(self.messages, self.signals, self.tables)
        self.messages.plain = self.others.plain

    # -- bytes to lines ------------------------------------------------------------------------------------------------
    def feed(self, chunk: bytes) -> None:
        """Read the next bytes of the stream."""
        self.source.bytes += len(chunk)
        if self._skipping:
            cut = chunk.find(b"\n")
            if cut < 0:
                return
            chunk = chunk[cut:]
            self._skipping = False
        data = self._tail + chunk if self._tail else chunk
        end = data.rfind(b"\n") + 1
        start = self._known_pieces(data, end) if self._pieces.on else 0
        if not self._pieces.on or end - start > 4 * SIZE:
            if end > start:
                self._read(data[start:end])
                if not self._pieces.on:
                    self._pieces.pass_by(end - start)
            start = end
        self._tail = data[start:]
        if len(data) - end > MAX_LINE:
            if end > start:
                self._read(data[start:end])
            self._tail, self._skipping = data[end : end + MAX_LINE], True

    def _known_pieces(self, data: bytes, end: int) -> int:
        """Pass over the pieces that are known in the present state, read the others; return where the rest begins."""
        pieces, start = self._pieces, 0
        while pieces.on:
            cut = pieces.cut(data, start, end)
            if cut < 0:
                break
            piece, start = data[start:cut], cut
            state = self._context()
            found = pieces.find(piece, state) if state is not None else None
            if found is None:
                self._new_piece(piece, state)
                continue
            self.line += found[0]
            nccl, after, moved = found[1]
            self.source.nccl_lines += nccl
            self._last = piece
            if moved:
                self.messages.state = after
                self._repeats.forget()
                for tracker, (current, error) in moved.items():
                    tracker.resume(current, error)
        return start

    def _new_piece(self, piece: bytes, state: Any) -> None:
        """Read a piece, and remember it if reading it again would change nothing."""
        self.messages.moved, self.messages.lasting = {}, False
        line, nccl = self.line, self.source.nccl_lines
        self._read(piece)
        if state is None or self.messages.lasting or self._context() is None:
            return
        moved = {tracker: (tracker.state()[0], tracker.proc.last_error) for tracker in self.messages.moved}
        self._pieces.keep(piece, state, self.line - line, (self.source.nccl_lines - nccl, self.messages.state, moved))

    def _context(self) -> Any:
        """Return all that decides how a piece is read, besides what was seen before; None where it cannot be told."""
        tables = self.tables
        if tables.open_left is not None or self.signals.expects() or tables.piped():
            return None
        table = tables.table
        if table is None or tables.full:
            return self.messages.state, self.processes.round, tables.collective, tables.full
        return (
            self.messages.state,
            self.processes.round,
            tables.collective,
            table["complete"],
            bool(table["rows"]),
            tuple(table["columns"]),
            tuple(table.get("left", ())),
        )

    def finish(self) -> None:
        """Read what stands behind the last line end, and settle what waits for more."""
        end = self._tail.rfind(b"\n") + 1
        if end:
            self._read(self._tail[:end])
        if self._tail[end:]:
            tail, self._tail = self._tail[end:], b""
            # A log that was cut has an unfinished last line: half of "/GDRDMA" must not read as "without" (row "torn
            # lines").
            self.source.cut = True
            self._lines([ESCAPES.sub(b"", tail)])
            self._last = tail
        last = next((raw for raw in reversed(self._last[-MAX_TEXT:].split(b"\n")) if raw.strip()), b"")
        cut = _CUT_HEAD.search(ESCAPES.sub(b"", last).strip()[-400:])
        if cut and self.source.nccl_lines:  # the log ends inside a head: that process exists, and said no more
            self.processes.identify(Head(cut.group(1).decode("ascii"), int(cut.group(2)), None, ""))
        self.messages.finish()
        self.processes.pack()
        self.processes.close()
        self.partial.limited = self.partial.limited or self.partial.crowd.full
        self.signals.finish()
        self.tables.finish()
        self.source.lines = self.line
        self._repeats.forget()
        self._pieces.rest()

    def _read(self, data: bytes) -> None:
        """Read whole lines."""
        self._last = data
        if b"\x1b" in data or b"\r" in data:
            data = ESCAPES.sub(b"", data.replace(b"\r\n", b"\n"))
        if self._shapely >= _SHAPELY and not self._listens():
            self._shapes(data)
            return
        lines = data.split(b"\n")
        lines.pop()
        self._lines(lines)
        sample = lines[:: len(lines) // _SAMPLE + 1]
        idle = sum(map(self.others.shapes.learn, sample)) * 2 > len(sample)
        self._shapely = self._shapely + 1 if idle else 0

    def _listens(self) -> bool:
        """Say whether something is open that any line may belong to."""
        return self.tables.open_left is not None or self.signals.expects() or self.tables.is_open()

    def _shapes(self, data: bytes) -> None:
        """Read whole lines most of which say nothing: those are told by their shapes, in bulk."""
        shapes, start = self.others.shapes, self.line + 1
        heads = self.processes.tokens, self.processes.width
        fresh, passed, lines = shapes.fresh(data, start, *heads, named_only=self.others.tagging)
        self.line += lines
        self.source.nccl_lines += passed
        if not fresh:
            return
        self.messages.turned = False
        self._each(self._unless_listening(fresh, data, start), to_the_end=True)
        if self.messages.turned:
            self._repeats.forget()
        self.messages.settle()
        for _, raw in fresh[:: len(fresh) // _SAMPLE + 1]:
            shapes.learn(raw)
        if len(fresh) * 2 > lines:
            self._shapely = 0

    def _unless_listening(self, fresh: List[Tuple[int, bytes]], data: bytes, start: int) -> Iterator[Tuple[int, bytes]]:
        """Yield the fresh lines; behind one that opens what any line may belong to, every line."""
        for number, raw in fresh:
            yield number, raw
            if self._listens():
                rest = list(enumerate(data.split(b"\n")[number - start + 1 : -1], number + 1))
                unread = rest if number == fresh[-1][0] else set(rest).difference(fresh)
                self.source.nccl_lines -= sum(MARK in line for _, line in unread)  # counted as passed
                yield from rest
                return

    def _lines(self, lines: List[bytes]) -> None:
        """Read whole lines; those that were read before and would say nothing new are passed over first."""
        start, self.line = self.line + 1, self.line + len(lines)
        learns, self.messages.turned = self._repeats.learns(), False
        nothing, stopped = self._each(self._repeats.fresh(lines, start))
        if stopped:  # what the lines behind it say, they say of another communicator
            self._repeats.forget()
            nothing, _ = self._each(enumerate(lines[stopped - start + 1 :], stopped + 1), to_the_end=True)
        if learns and nothing and not self.messages.turned:
            self._repeats.learn(nothing)
        self.messages.settle()

    def _each(self, lines: Numbered, to_the_end: bool = False) -> Tuple[List[bytes], int]:  # noqa: C901, PLR0912, PLR0915 -- calls cost more than work
        """Read line by line: the hot loop.

        Return the lines that would say nothing if they came again, and the number of the line at which a process turned
        to another communicator, 0 where none did.
        """
        processes, messages = self.processes, self.messages
        heads, kinds, empty = HEADS, KINDS, events.NOTHING
        tokens, width, shapes = processes.tokens, processes.width, self.others.shapes.digits
        busy, learns, full = self.others.busy(), self._repeats.learns(), self.tables.full
        open_ = self.tables.is_open()
        nccl = 0
        nothing: List[bytes] = []
        stopped = 0
        for number, raw in lines:
            left, mark, text = raw.partition(MARK)
            if not mark:
                shape = raw.translate(DIGITS)
                if busy or shape not in shapes or (open_ and raw[-1:] in _ENDS):
                    self.others.line(raw, shape, number, not busy and not (open_ and raw[-1:] in _ENDS))
                    busy, open_, full = self.others.busy(), self.tables.is_open(), self.tables.full
                    if messages.turned and not to_the_end:
                        stopped = number
                        break
                    if not full or busy or b"NCCL" in raw:
                        continue
                if learns and (full or raw[-1:] not in _ENDS):
                    nothing.append(raw)
                continue
            nccl += 1
            tracker = tokens.get(left[width:])
            if tracker is None and processes.short:
                tracker = processes.stamped(left)
                width = processes.width
            if tracker is None:  # also where the left half of a table's row stands in front of a head
                messages.line(raw, number)
                busy, open_ = self.others.busy(), self.tables.is_open()
                if messages.turned and not to_the_end:
                    stopped = number
                    break
                continue
            kind = kinds.get(text[:4])
            if kind == CHANNEL:
                head, _, rest = text.partition(b" : ")
                known = heads.get(head)
                lane = known[0].get(rest) if known is not None else None
                if lane is None or known is None:
                    if len(raw) > MAX_TEXT or b"\r" in raw or b" NCCL " in text:
                        messages.line(raw, number)
                    else:
                        messages.channel(tracker, text, number, raw)
                    continue
                pending = tracker.pending
                if lane in pending:
                    pending[lane] |= known[1]
                else:
                    messages.wait(tracker)
                    tracker.wait()[lane] = known[1]
                    tracker.first_sight(lane, number, raw)
            elif kind is None and (text in tracker.seen or text in tracker.same or text in empty):
                pass
            elif b" NCCL " in text or b"\r" in raw or len(raw) > MAX_TEXT:
                messages.line(raw, number)
                busy, open_ = self.others.busy(), self.tables.is_open()
                if messages.turned and not to_the_end:
                    stopped = number
                    break
                continue
            elif kind is None or (kind == OPERATION and b"> Algo " in text):
                if not messages.message(tracker, text, number, raw) and not to_the_end:
                    stopped = number
                    break
            if learns:
                nothing.append(raw)
        self.source.nccl_lines += nccl
        return nothing, stopped


def read(sources: Iterable[Tuple[str, Union[Iterable[bytes], object]]], limit: Optional[int] = None) -> Partial:
    """Read streams and return what was seen in them.

    ``sources`` yields (name, stream); a stream is a binary file or an iterable of byte chunks. ``limit`` bounds the
    bytes that are taken of each stream; a longer one is marked, and what was not read is never guessed. Memory does not
    grow with length.
    """
    partial = Partial()
    for name, stream in sources:
        read_one(partial, name, stream, limit)
    return partial


def read_one(partial: Partial, name: str, stream: object, limit: Optional[int] = None) -> None:
    """Read one stream into a partial."""
    reader = Reader(partial, name)
    taken = 0
    feed: Optional[Callable[[bytes], None]] = None
    close: Optional[Callable[[], None]] = None
    for whole in chunks(stream):
        chunk = whole
        if limit is not None and taken + len(chunk) > limit:
            chunk = chunk[: limit - taken]
            partial.limited = True
        taken += len(chunk)
        if feed is None:
            feed, close = unwrapper(chunk, reader)
        if chunk:
            feed(chunk)
        if limit is not None and taken >= limit:
            break
    if close is not None:
        close()
    reader.finish()


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
