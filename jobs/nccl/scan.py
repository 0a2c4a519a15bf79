"""How are bytes turned into state? One pass over a stream, line by line, in constant memory.

Most lines of a real log say nothing new (channels of the same edge, operations, progress). The loop recognises those by
four bytes behind ``NCCL INFO`` and by sets of what was seen; only the rest is parsed (platform.md, 4: a regex per line
is 5 times slower).
"""

from __future__ import annotations

import re
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple, Union

from . import events, signals
from .clean import ESCAPES, printable
from .partial import Partial
from .prefix import Head, parse_head, torn_at
from .repeats import Repeats
from .rows import TYPE
from .state import Proc, Source, shared
from .table import TableReader
from .transports import CHANNELS, channel_of
from .unwrap import unwrapper

MAX_LINE = 64 * 1024  # of a line without an end, this much is kept
MAX_TEXT = 8 * 1024  # of a message; NCCL's own buffer is 1 KiB, 2 KiB for device lists
MAX_PROCS = 65_536
PENDING = 512  # channel lines of a process that wait for their communicator
_TOKENS = 65_536
_REMEMBER = 100_000  # messages that are known to say nothing new
_PLAINS = 20_000
_SHAPE = bytes(48 if 48 <= byte <= 57 else byte for byte in range(256))  # every digit becomes a 0
_MANY = 256  # processes whose channels wait before they are settled

# First four bytes of a message that says nothing that is judged (GRAPH and TUNING dumps, proxy threads, affinities).
_SKIP = frozenset(
    (
        b"Tree",
        b"Sett",
        b"thre",
        b"Allo",
        b"CC O",
        b"RAS ",
        b"=== ",
        b"====",
        b"Patt",
        b"work",
        b"Mem ",
        b"[Pro",
        b"Max ",
        b"ID  ",
        b"NIC/",
        b"PCI/",
    )
)
# Operations (NCCL_DEBUG_SUBSYS=COLL): millions of lines that only say that the process exists.
_OPERATIONS = frozenset((b"AllR", b"AllG", b"Broa", b"Redu", b"Send", b"Recv", b"Gath", b"Scat", b"Allt", b"AllT"))
_CHANNELS = frozenset((b"Chan", b"Ring"))
_ENDS = frozenset(bytes((byte,)) for byte in b"0123456789A")  # of a row of numbers, or of its torn half
_COLLECTIVE_NETWORK = frozenset((b"Chan", b"Ring", b"Coll"))
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?\Z")
_BARE_VERSION = re.compile(rb"(?:^|[\s:>\]m])((?:NCCL|RCCL) version (?:: )?\d+\.\d+[^\s,;)]*)")
_CUT_HEAD = re.compile(rb"(?:^|[\s:>\])|])([A-Za-z0-9][A-Za-z0-9_.-]{0,254}):(\d{1,10}):\d{1,20}(?: \[\d*\]?)?$")


class Reader:
    """Reads one stream into a partial."""

    def __init__(self, partial: Partial, name: str) -> None:
        self.partial = partial
        self.index = len(partial.sources)
        self.source = Source(printable(name, 300))
        partial.sources.append(self.source)
        self.tables = TableReader(self.source)
        self.signals = signals.SignalReader(self.source, self.index)
        self.line = 0
        self._tokens: Dict[bytes, events.Tracker] = {}
        self._trackers: Dict[Proc, events.Tracker] = {}
        self._tail = b""
        self._skipping = False  # inside a line longer than MAX_LINE
        self._last = b""
        self._remembered = 0
        self._tagging = True
        self._short = False  # heads are known by what stands behind the last blank
        self._own = shared((self.index,))
        self._beyond = Proc(None, None)
        self._width = 0  # of what stands in front of the last head
        self._plains: Set[bytes] = set()  # lines that say nothing, their digits made equal
        self._repeats = Repeats()
        self._waiting: List[events.Tracker] = []  # processes with channels that wait

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
        lines = data.split(b"\n")
        self._tail = lines.pop()
        if len(self._tail) > MAX_LINE:
            self._tail, self._skipping = self._tail[:MAX_LINE], True
        if lines:
            if b"\x1b" in data or b"\r" in data:
                data = ESCAPES.sub(b"", data[: data.rfind(b"\n")].replace(b"\r\n", b"\n"))
                lines = data.split(b"\n")
            self._lines(lines)

    def finish(self) -> None:
        """Read what stands behind the last line end, and settle what waits for more."""
        if self._tail:
            tail, self._tail = self._tail, b""
            # A log that was cut has an unfinished last line: half of "/GDRDMA" must not read as "without" (row "torn
            # lines").
            self.source.cut = True
            self._lines([ESCAPES.sub(b"", tail)])
        cut = _CUT_HEAD.search(self._last.strip()[-400:])
        if cut and self.source.nccl_lines:  # the log ends inside a head: that process exists, and said no more
            self._identify(Head(cut.group(1).decode("ascii"), int(cut.group(2)), None, ""))
        for tracker in self._trackers.values():
            self._settle(tracker)
        self.signals.finish()
        self.tables.finish()
        self.source.lines = self.line
        self._repeats.forget()

    def _lines(self, lines: List[bytes]) -> None:
        """Read whole lines; those that were read before and would say nothing new are passed over first."""
        start, self.line = self.line + 1, self.line + len(lines)
        self._last = next((raw for raw in reversed(lines[-8:]) if raw.strip()), self._last)
        nothing = self._each(self._repeats.fresh(lines, start))
        if nothing and self._repeats.learns():
            self._repeats.learn(nothing)
        if len(self._waiting) > _MANY:  # with many ranks, their channels are kept as edges, which is far less
            for tracker in self._waiting:
                if tracker.announced:
                    self._settle(tracker)
            self._waiting = []

    def _each(self, lines: Iterable[Tuple[int, bytes]]) -> List[bytes]:  # noqa: C901, PLR0912 -- calls cost more than work
        """Read line by line, and return the lines that would say nothing if they came again: the hot loop."""
        tokens, channels, empty = self._tokens, CHANNELS, events.NOTHING
        busy, learns = self._busy(), self._repeats.learns()
        plains, full, width, nccl = self._plains, self.tables.full, self._width, 0
        nothing: List[bytes] = []
        for number, raw in lines:
            left, mark, text = raw.partition(b"NCCL INFO ")
            if not mark:
                shape = raw.translate(_SHAPE)
                if shape in plains and not busy:
                    pass
                elif busy or b"  " in raw or b"\r" in raw or signals.matters(raw):
                    self._other(raw, number)
                    busy = self._busy()
                    if not full or busy or b"NCCL" in raw:
                        continue
                elif len(plains) < _PLAINS and len(raw) < 1000:
                    plains.add(shape)
                if learns and (full or raw[-1:] not in _ENDS):
                    nothing.append(raw)
                continue
            nccl += 1
            tracker = tokens.get(left[width:])
            if tracker is None and self._short:
                tracker = self._known(left)
                width = self._width
            if tracker is None:  # also where the left half of a table's row stands in front of a head
                self._slow(raw, number)
                if not full and b"  " in left:
                    continue
            elif text in channels:
                pending = tracker.pending
                if not pending:
                    self._waiting.append(tracker)
                elif len(pending) >= PENDING:
                    self._settle(tracker)
                pending.add(channels[text])
            elif text in empty or text in tracker.seen:
                pass
            elif len(raw) > MAX_TEXT or b"\r" in raw or b" NCCL " in text:
                self._slow(raw, number)
            else:
                key = text[:4]
                if key in _CHANNELS:
                    self._channel(tracker, text)
                elif key not in _SKIP and (key not in _OPERATIONS or b"> Algo " in text):
                    self._message(tracker, text, number, raw)
            if learns:
                nothing.append(raw)
        self.source.nccl_lines += nccl
        return nothing

    def _known(self, left: bytes) -> Optional[events.Tracker]:
        """Return the process of a head behind something that never comes twice, as a time does."""
        width = left.rfind(b" ", 0, left.rfind(b" [")) + 1
        tracker = self._tokens.get(left[width:])
        if tracker is None or (b"  " in left[:width] and TYPE.search(left[:width])):
            return None  # the left half of a table's row stands in front
        self._width = width
        return tracker

    def _channel(self, tracker: events.Tracker, text: bytes) -> None:
        """Take one channel, or the order of a ring."""
        channel = channel_of(text)
        if channel is None:
            tracker.ring_order(text)
            return
        if not tracker.pending:
            self._waiting.append(tracker)
        elif len(tracker.pending) >= PENDING:
            self._settle(tracker)
        tracker.pending.add(channel)

    def _settle(self, tracker: events.Tracker) -> None:
        """Add the channels that wait for a process, now that their communicator is known."""
        if tracker.pending and not tracker.settle():
            self.partial.limited = True

    def _busy(self) -> bool:
        """Say whether something is open that the next line without NCCL INFO may belong to."""
        tables = self.tables
        return self._tagging or tables.open_left is not None or tables.is_open() or self.signals.expects()

    # -- NCCL's lines --------------------------------------------------------------------------------------------------
    def _slow(self, raw: bytes, number: int) -> None:
        """Read a line whose head is new, or which holds several lines."""
        for piece in raw.split(b"\r") if b"\r" in raw else (raw,):
            if piece:
                self._piece(piece, number)

    def _piece(self, piece: bytes, number: int) -> None:
        at = piece.find(b"NCCL INFO ")
        if len(piece) > MAX_TEXT:
            piece = piece[max(0, at - 1024) :][:MAX_TEXT]
            at = piece.find(b"NCCL INFO ")
        warn = piece.find(b"NCCL WARN ")
        if at < 0 and warn < 0:
            self._plain(piece, number)
            return
        if at < 0 or 0 <= warn < at:
            self._warn(piece, warn, number)
            return
        text = piece[at + 10 :]
        tracker, front = self._head(piece[:at])
        if front:
            self.tables.torn_left(front, number)
        bar = text.find(b" | ")
        second = torn_at(text)
        if bar > 0 and text.endswith(text[:bar]):  # CloudWatch's console writes a line twice
            text, second = text[:bar], None
        if second is not None:
            self._torn(tracker, text[:second], number, piece)
            self._piece(text[second:], number)
        elif text[:4] in _CHANNELS:
            self._channel(tracker, text)
        elif text[:4] not in _OPERATIONS or b"> Algo " in text:
            self._message(tracker, text, number, piece)

    def _torn(self, tracker: events.Tracker, text: bytes, number: int, raw: bytes) -> None:
        """Read the first of two lines that were written into one.

        Its end may be lost, so no channel is taken from it.
        """
        text = text.rstrip().rstrip(b"|").rstrip()
        if text[:4] not in _COLLECTIVE_NETWORK:
            self._message(tracker, text, number, raw)

    def _warn(self, piece: bytes, at: int, number: int) -> None:
        self.source.nccl_lines += 1
        left = piece[:at]
        tracker, _ = self._head(left)
        place = left[left.rfind(b"] ") + 2 :] if b"] " in left else b""
        text = piece[at + 10 :]
        second = torn_at(text)
        tracker.warn(place.strip()[-160:], text if second is None else text[:second], number, piece)
        if second is not None:
            self._piece(text[second:], number)

    def _message(self, tracker: events.Tracker, text: bytes, number: int, raw: bytes) -> None:
        if text.endswith(b"across cluster]"):  # Ray's de-duplication mark
            text = text[: text.rfind(b"[repeated ")].rstrip()
        if tracker.changes_communicator(text):
            self._settle(tracker)
        if tracker.info(text.rstrip(), number, raw) and self._remembered < _REMEMBER:
            tracker.seen.add(text)
            self._remembered += 1

    def _head(self, left: bytes) -> Tuple[events.Tracker, bytes]:
        """Return the process that a line's head names, and what stands in front of that head."""
        blank = left.rfind(b" ", 0, left.rfind(b" [")) if len(left) > 3 else -1
        head = parse_head(left)
        tracker = self._identify(head)
        tracker.proc.head(head.dev, head.tag)
        front = b""
        if head.host is not None:
            mark = left.rfind(head.host.encode("utf-8", "replace") + b":")
            front = left[:mark] if mark > 8 else b""
        if len(left) < 300 and b"NCCL" not in left:
            if len(self._tokens) >= _TOKENS:
                self._tokens.clear()
            # Without what stands in front of the last blank, a token must still hold the whole head.
            token = left[blank + 1 :] if head.host is not None else left
            self._short = self._short or (blank >= 0 and token in self._tokens)
            self._tokens[token] = tracker
        return tracker, front

    def _identify(self, head: Head) -> events.Tracker:
        if head.host is not None and head.pid is not None:
            key = (self.index, head.host, head.pid)
        else:
            mark = head.tag or ("" if head.dev is None else "dev:%d" % head.dev)
            key = (self.index, "?" + mark, -1)
        proc = self.partial.procs.get(key) or self._glued(key)
        if proc is None:
            if len(self.partial.procs) >= MAX_PROCS:
                self.partial.limited = True
                proc = self._beyond  # read, and kept by nobody: its ranks would be taken for another's
            else:
                proc = self.partial.procs[key] = Proc(head.host, head.pid)
                proc.sources = self._own
        tracker = self._trackers.get(proc)
        if tracker is None:
            tracker = self._trackers[proc] = events.Tracker(proc, self.index)
        return tracker

    # -- everything else -----------------------------------------------------------------------------------------------
    def _glued(self, key: Tuple[int, str, int]) -> Optional[Proc]:
        """Find the process whose host name a number was glued to: a torn table row ends in '-1' or '0.12'."""
        _, host, pid = key
        if pid < 0 or host[:1] not in "-0123456789":
            return None
        for (index, known, other), proc in self.partial.procs.items():
            if index == key[0] and other == pid and host.endswith(known) and _NUMBER.match(host[: -len(known)]):
                return proc
        return None

    def _other(self, raw: bytes, number: int) -> None:
        """Read a line without NCCL INFO; progress bars rewrite theirs with carriage returns, and Windows ends it so.

        A string literal that holds a whole table (Ansible's stdout, Python's repr) spells its line ends.
        """
        if b"\\n" in raw and b"busbw" in raw:
            raw = raw.replace(b"\\r", b"").replace(b"\\n", b"\r").replace(b"\\t", b"\t")
        for piece in raw.split(b"\r") if b"\r" in raw else (raw,):
            if piece:
                self._plain(piece[:MAX_TEXT], number)

    def _plain(self, raw: bytes, number: int) -> None:
        """Read one line without NCCL INFO: warnings, tables, launchers, PyTorch."""
        if self._tagging:
            self._tagging = self.signals.tag(raw)
        # A row has columns of blanks; a copy may have squeezed them, and then only a table that is open makes it one.
        if (b"  " in raw or self.tables.squeezed(raw)) and not self.tables.full and TYPE.search(raw):
            if self.tables.row(raw, number):
                return
        if self.tables.open_left is not None and self.tables.fragment(raw):
            return
        if signals.matters(raw) or self.signals.expects():
            self._marked(raw, number)

    def _marked(self, raw: bytes, number: int) -> None:
        """Read a line that holds one of the words that matter."""
        if b"CCL" in raw:
            warn = raw.find(b"NCCL WARN ")
            if warn >= 0:
                self._warn(raw, warn, number)
                return
            version = _BARE_VERSION.search(raw)
            if version:
                self.signals.version(version.group(1), number, raw)
        if not self.tables.full:
            if b"#" in raw and self.tables.header(raw, number):
                return
            if b"Avg bus" in raw and self.tables.footer(raw, number):
                return
        if b"_perf" in raw:
            self.tables.command(raw)
        if b"] INFO " in raw or b" WARN " in raw:
            self._old(raw, number)
        self.signals.line(raw, number)

    def _old(self, raw: bytes, number: int) -> None:
        """Read NCCL 2.2's head, which has no "NCCL" in it (catalogue 1.0)."""
        for level in (b"] INFO ", b" WARN "):
            at = raw.find(level)
            if at < 0:
                continue
            head = parse_head(raw[: at + 2])
            if head.host is None:
                continue
            tracker = self._identify(head)
            text = raw[at + len(level) :]
            if level == b"] INFO ":
                self._message(tracker, text.rstrip(), number, raw)
            else:
                tracker.warn(b"", text, number, raw)
            return


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
    for chunk in stream:  # type: ignore[attr-defined]
        if chunk:
            yield bytes(chunk) if not isinstance(chunk, str) else chunk.encode("utf-8", "replace")
