"""Lines that are not NCCL's: tables, warnings without a head, launchers, PyTorch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Iterator, Tuple

from ..lines.patterns import DIGITS
from ..lines.prefix import Head, parse_head, process_of
from ..tables.headings import PERF, may_head
from ..tables.rows import TYPE
from . import left_out, signals
from .messages import MAX_TEXT
from .trouble import without_samples

if TYPE_CHECKING:
    from ..tables.table import TableReader
    from .messages import Messages

_BARE_VERSION = re.compile(rb"(?:^|[\s:>\]m])((?:NCCL|RCCL) version (?:: )?\d+\.\d+[^\s,;)]*)")
_ROW = re.compile(rb"\s{0,32}\d{1,19}\s+\d{1,19}\s+[a-z]\w+\s")  # a row with blanks that a copy has squeezed
_POINTER = re.compile(rb"\b0x[0-9a-f]{4,16}\b")
_KNOWN = 20_000  # shapes of lines that only name NCCL
_ENDS = frozenset(b"0123456789A \t\r")  # the last bytes of a row of numbers, or of its torn half


def says(raw: bytes) -> bool:
    """Return whether a line with significant words has content, whatever was read before."""
    if (
        b"CCL" in raw
        or (b"iag" in raw and _diagnoses(raw))
        or may_head(raw)
        or signals.says(raw)
        or next(_old_heads(raw), None) is not None
    ):
        return True
    return b"_perf" in raw and PERF.search(raw) is not None


def _diagnoses(raw: bytes) -> bool:
    """Return whether a line has a result of DCGM's diagnostics, or begins their report."""
    return raw.startswith(signals.DCGM) or signals.DIAGNOSIS.search(raw) is not None


def _old_heads(raw: bytes) -> Iterator[Tuple[Head, bytes, int]]:
    """Yield NCCL 2.2's heads, which do not contain "NCCL", with the level and its place."""
    for level in (b"] INFO ", b" WARN "):
        at = raw.find(level)
        head = parse_head(raw[: at + 2]) if at >= 0 else None
        if head is not None and head.host is not None:
            yield head, level, at


class ForeignLines:
    """Reads the lines of one stream that are not NCCL's."""

    TAGGED = 5000  # first lines of a stream that are checked for their launcher's process

    def __init__(self, messages: Messages, reader: signals.SignalReader, tables: TableReader) -> None:
        self.messages = messages
        self.signals = reader
        self.tables = tables
        self._named: Dict[bytes, bool] = {}

    def waits(self) -> bool:
        """Return whether any foreign line may have content."""
        return self.tables.open_left is not None or self.signals.expects()

    def listens(self) -> bool:
        """Return whether a line may have content that is not complete by itself."""
        return self.waits() or self.tables.is_open()

    def hear(self, raw: bytes, number: int) -> None:
        """Read a line without content of its own while something is open that it may belong to."""
        if raw and (raw[-1] in _ENDS or b"\r" in raw or number <= self.TAGGED or self.waits() or self.tables.piped()):
            self.line(raw, number)

    def line(self, raw: bytes, number: int) -> None:
        """Read a line without NCCL INFO; progress bars and Windows line ends contain carriage returns.

        A string literal with a whole table (Ansible's stdout, Python's repr) has escaped line ends.
        """
        if b"\\n" in raw and (b"busbw" in raw or b"nThread " in raw):
            raw = raw.replace(b"\\r", b"").replace(b"\\n", b"\r").replace(b"\\t", b"\t")
        for piece in raw.split(b"\r") if b"\r" in raw else (raw,):
            if piece:
                self.plain(piece[:MAX_TEXT], number)

    def plain(self, raw: bytes, number: int) -> None:
        """Read one line without NCCL INFO: warnings, tables, launchers, PyTorch."""
        if b"iag" in raw and _diagnoses(raw):
            self.signals.diagnosed(raw, number)
            return
        if number <= self.TAGGED:
            self.signals.tag(raw)
        # A row has columns of blanks; if a copy has squeezed them, only an open table makes it a row.
        wide = b"  " in raw or _ROW.match(raw) is not None or self.tables.squeezed(raw)
        if wide and not self.tables.full and (TYPE.search(raw) is not None or self.tables.typeless()):
            if self.tables.row(raw, number):
                if signals.matters(raw) and signals.shows_event(raw):  # a benchmark that failed within its row
                    self.signals.line(raw, number)
                return
        if self.tables.open_left is not None and self.tables.fragment(raw):
            return
        if left_out.MARKED.fullmatch(raw) is not None:
            self.signals.left_out(raw, number)
        elif signals.matters(raw) or self.signals.expects():
            self._marked(raw, number)

    def _marked(self, raw: bytes, number: int) -> None:
        """Read a line with one of the significant words."""
        raw = without_samples(raw)
        if b"CCL" in raw:
            if not self.signals.expects() and self._names_only(raw):
                self.signals.mention(raw, number)
                return
            warn = raw.find(b"NCCL WARN ")
            if warn >= 0:
                self.messages.warn(raw, warn, number)
                return
            version = _BARE_VERSION.search(raw)
            if version:
                self.signals.version(version.group(1), number, raw)
        if not self.tables.full and may_head(raw):
            if self.tables.header(raw, number) or (b"Avg bus" in raw and self.tables.footer(raw, number)):
                if signals.shows_event(raw):  # another process's event within the line
                    self.signals.line(raw, number)
                return
        if b"_perf" in raw and not self.tables.full:
            self.tables.command(raw)
        for head, level, at in _old_heads(raw):
            self._old(head, level, raw[at + len(level) :], raw, number)
            break
        self.signals.line(raw, number)

    def _names_only(self, raw: bytes) -> bool:
        """Return whether NCCL's name is the only significant word of a line's shape, as in most of NCCL_DEBUG=TRACE."""
        shape = _POINTER.sub(b"0x", raw).translate(DIGITS)
        known = self._named.get(shape)
        if known is None:
            if len(self._named) >= _KNOWN:
                self._named.clear()
            known = self._named[shape] = not (b" WARN " in raw or _BARE_VERSION.search(raw) or signals.tells(raw))
        return known

    def _old(self, head: Head, level: bytes, text: bytes, raw: bytes, number: int) -> None:
        """Read a message of NCCL 2.2."""
        tracker = self.messages.processes.find(process_of(head))
        if level == b"] INFO ":
            self.messages.message(tracker, text, number, raw)
        else:
            tracker.warn(b"", text, number, raw)
