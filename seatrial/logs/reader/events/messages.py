"""Reads NCCL lines that are more than a head and a message: torn and doubled lines, warnings."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Callable, Set

from ..lines.patterns import HEX_DIGITS
from ..lines.prefix import torn_at
from ..state.channels import parse_channel
from ..tables.rows import TYPE
from .facts import QUOTE, effects_of, ring_order
from .kinds import CHANNEL_STARTS, KINDS, OPERATION
from .signals import MOST, fails_within
from .transports import quote_kind_of

if TYPE_CHECKING:
    from ..state.process import Source
    from ..tables.table import TableReader
    from .processes import Processes
    from .tracker import Tracker

INFO, WARN = b"NCCL INFO ", b"NCCL WARN "
MAX_TEXT = 8 * 1024  # bytes of a message; NCCL's own buffer is 1 KiB, 2 KiB for device lists
_PLACE = re.compile(rb"^\s*[\w/.-]{1,120}\.(?:cc?|cu|cpp|h):\d+\s*$")  # source location before a warning without a head

_effects_of_part = lru_cache(maxsize=256)(effects_of)  # cache for the beginnings of torn lines


class Messages:
    """Reads such lines of one stream."""

    def __init__(self, source: Source, processes: Processes, tables: TableReader) -> None:
        self.plain: Callable[[bytes, int], None]  # takes lines that turn out to be foreign
        self.source = source
        self.processes = processes
        self.tables = tables
        self._clean: Set[bytes] = set()  # shapes of lines without another process's failure in them

    def line(self, raw: bytes, number: int) -> None:
        """Read a line that holds NCCL INFO, and may hold several lines."""
        for piece in raw.split(b"\r") if b"\r" in raw else (raw,):
            if piece:
                self._piece(piece, number)

    def _piece(self, piece: bytes, number: int) -> None:
        at = piece.find(INFO)
        if len(piece) > MAX_TEXT:
            piece = piece[max(0, at - 1024) :][:MAX_TEXT]
            at = piece.find(INFO)
        warn = piece.find(WARN)
        if at < 0 and warn < 0:
            self.plain(piece, number)
            return
        if at < 0 or 0 <= warn < at:
            self.warn(piece, warn, number)
            return
        left, text = piece[:at], piece[at + len(INFO) :]
        tracker, front = self.processes.head(left)
        for part in (left, text):  # a line that lost its end, or has another process's text in it
            if fails_within(part[:MOST], part[:MOST].translate(HEX_DIGITS), self._clean):
                self.plain(part, number)
        if front and TYPE.search(front):
            self.tables.torn_left(front, number)
        bar = text.find(b" | ")
        second = torn_at(text)
        if bar > 0 and text.endswith(text[:bar]):  # CloudWatch's console writes a line twice
            text, second = text[:bar], None
        if second is None:
            self.message(tracker, text, number, piece)
            return
        first = text[:second].rstrip().rstrip(b"|").rstrip()
        if first[:4] not in CHANNEL_STARTS:  # its end may be lost, so no channel is taken from it
            tracker.apply(_effects_of_part(first), number, piece)
        self._piece(text[second:], number)

    def message(self, tracker: Tracker, text: bytes, number: int, raw: bytes) -> None:
        """Take one message of a process."""
        kind = KINDS.get(text[:4])
        if text[:4] in CHANNEL_STARTS:
            self._channel(tracker, text, number, raw)
        elif kind is None or (kind == OPERATION and b"> Algo " in text):
            tracker.apply(effects_of(text), number, raw)

    def _channel(self, tracker: Tracker, text: bytes, number: int, raw: bytes) -> None:
        channel_line = parse_channel(text)
        if channel_line is None:
            tracker.apply(ring_order(text), number, raw)
            return
        connection, channel, size = channel_line
        tracker.channels({connection: 1 << channel})
        if size:
            tracker.proc.add("nranks", size)
        quote_kind = quote_kind_of(connection[2])
        if quote_kind is not None:
            tracker.apply(((QUOTE, quote_kind),), number, raw)

    def warn(self, piece: bytes, at: int, number: int) -> None:
        """Read a line with ``NCCL WARN`` at any place."""
        self.source.nccl_lines += 1
        left = piece[:at]
        tracker, _ = self.processes.head(left)
        place = left[left.rfind(b"] ") + 2 :] if b"] " in left else left if _PLACE.search(left) else b""
        text = piece[at + len(WARN) :]
        second = torn_at(text)
        tracker.warn(place.strip()[-160:], text if second is None else text[:second], number, piece)
        if second is not None:
            self._piece(text[second:], number)
