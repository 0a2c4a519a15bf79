"""What do the lines say that are not NCCL's? Tables, warnings without a head, launchers, PyTorch, a program's output.

A line that says nothing is known by its shape (shapes.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..lines.prefix import parse_head
from ..tables.rows import TYPE
from . import signals
from .messages import MAX_TEXT
from .shapes import DIGITS, LONGEST, Shapes

if TYPE_CHECKING:
    from ..tables.table import TableReader
    from .messages import Messages

_BARE_VERSION = re.compile(rb"(?:^|[\s:>\]m])((?:NCCL|RCCL) version (?:: )?\d+\.\d+[^\s,;)]*)")
_ROW = re.compile(rb"\s{0,32}\d{1,19}\s+\d{1,19}\s+[a-z]\w+\s")  # a row whose blanks a copy has squeezed
# What matters for tables only, and no more once no more of them are kept.
_OF_TABLES = re.compile(
    rb"#|Avg bus|Out of bounds|us(?:bw|Bw|BW)|algbw: |average bandwidth of |---- Performance of |nThread | Pid "
    rb"|Collective test|_perf"
)
_COLUMN = re.compile(rb"\s(?:u?int|u?char|b?float|half|double|bf|fp|f)[0-9]")  # a data type, whatever its digits


class Others:
    """Reads the lines of one stream that are not NCCL's."""

    def __init__(self, messages: Messages, reader: signals.SignalReader, tables: TableReader) -> None:
        self.messages = messages
        self.signals = reader
        self.tables = tables
        self.shapes = Shapes()
        self.tagging = True  # the first lines are asked who wrote them

    def busy(self) -> bool:
        """Say whether any line that is not NCCL's may say something."""
        return self.tagging or self.tables.open_left is not None or self.signals.expects()

    def line(self, raw: bytes, shape: bytes, number: int, alike: bool) -> None:
        """Read a line without NCCL INFO; progress bars rewrite theirs with carriage returns, and Windows ends it so.

        A string literal that holds a whole table (Ansible's stdout, Python's repr) spells its line ends. ``alike``:
        nothing is open that the line may belong to, so that its shape may be remembered.
        """
        if b"\\n" in raw and (b"busbw" in raw or b"nThread " in raw):
            raw = raw.replace(b"\\r", b"").replace(b"\\n", b"\r").replace(b"\\t", b"\t")
        if b"\r" not in raw:
            if raw:
                self._shaped(raw[:MAX_TEXT], shape, number, alike)
            return
        for piece in raw.split(b"\r"):
            shape = piece.translate(DIGITS)
            if piece and not (alike and shape in self.shapes.digits):
                self._shaped(piece[:MAX_TEXT], shape, number, alike)
                alike = alike and not self.busy() and not self.tables.is_open()

    def _shaped(self, raw: bytes, shape: bytes, number: int, alike: bool) -> None:
        """Read a line, and remember its shape if no line of that shape can say anything, whatever its digits."""
        alike = alike and len(raw) < LONGEST and not self.tables.piped()
        spaced = b"  " in raw or _ROW.match(raw) is not None
        if alike and (self.tables.full or not (spaced and (TYPE.search(raw) or _COLUMN.search(raw)))):
            if not signals.matters(raw):
                self.shapes.add(shape)
                return
            bare = _OF_TABLES.sub(b"\n", raw) if self.tables.full else raw.replace(b"#", b"")
            if bare != raw and not signals.matters(bare):  # a header's, or a bar's
                lasting, self.messages.lasting = self.messages.lasting, False
                self.plain(raw, number)
                if not self.messages.lasting:
                    self.shapes.add(shape)
                self.messages.lasting = lasting or self.messages.lasting
                return
        self.plain(raw, number)

    def plain(self, raw: bytes, number: int) -> None:
        """Read one line without NCCL INFO: warnings, tables, launchers, PyTorch."""
        if self.tagging:
            self.tagging = self.signals.tag(raw)
        # A row has columns of blanks; a copy may have squeezed them, and then only a table that is open makes it one.
        row = TYPE.search(raw) is not None or self.tables.typeless()
        if row and not self.tables.full and (_ROW.match(raw) or b"  " in raw or self.tables.squeezed(raw)):
            if self.tables.row(raw, number):
                self.messages.lasting = True
                return
        if self.tables.open_left is not None and self.tables.fragment(raw):
            self.messages.lasting = True
            return
        if signals.matters(raw) or self.signals.expects():
            self._marked(raw, number)

    def _marked(self, raw: bytes, number: int) -> None:
        """Read a line that holds one of the words that matter."""
        if b"CCL" in raw:
            warn = raw.find(b"NCCL WARN ")
            if warn >= 0:
                self.messages.warn(raw, warn, number)
                return
            version = _BARE_VERSION.search(raw)
            if version:
                self.signals.version(version.group(1), number, raw)
        if not self.tables.full:
            if self.tables.header(raw, number) or (b"Avg bus" in raw and self.tables.footer(raw, number)):
                self.messages.lasting = True
                return
        if b"_perf" in raw and not self.tables.full:
            before = self.tables.collective
            self.tables.command(raw)
            self.messages.lasting = self.messages.lasting or self.tables.collective != before
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
            tracker = self.messages.processes.identify(head)
            text = raw[at + len(level) :]
            if level == b"] INFO ":
                self.messages.message(tracker, text.rstrip(), number, raw)
            else:
                tracker.warn(b"", text, number, raw)
            return
