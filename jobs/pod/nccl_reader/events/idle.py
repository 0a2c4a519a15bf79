"""Lines that say nothing whatever numbers stand in them, known by their words.

No rule depends on which digits stand where, except in tables. With every hexadecimal digit a 0, lines that differ in
numbers, ids and pointers only are one. Words are garbled by that, but the words that matter are garbled alike: a
garbled line that does not hold the garbled word stands for no line that holds the word.
"""

from __future__ import annotations

import re
from typing import Set

from ..tables.rows import TYPE
from . import signals
from .facts import STARTS
from .heads import DIGITS
from .symptoms import SUSPICIOUS

HEX = bytes(48 if chr(byte) in "0123456789abcdef" else byte for byte in range(256))
_LONGEST = 2048  # bytes of a line that is remembered
_KEPT = 20_000
# What messages of NCCL that say something hold, or begin with.
_WORDS = (b" NCCL ", b" nranks ", b" nRanks ", b" nvls channels", b" -> ", b"> Algo ", *SUSPICIOUS)
_GARBLED = tuple(word.translate(HEX) for word in _WORDS)
_GARBLED_STARTS = frozenset(start.translate(HEX) for start in (*STARTS, b"Chan", b"Ring"))
_GARBLED_SIGNALS = tuple(word.translate(HEX) for word in signals.WORDS)
_GARBLED_CALL = signals.CALL.translate(HEX)
_NUMBERS = re.compile(rb"\s*0+\s+0+\s")  # may be a row of a table
_ROW = re.compile(rb"\s{0,32}\d{1,19}\s+\d{1,19}\s+[a-z]\w+\s")  # a row whose blanks a copy has squeezed
_COLUMN = re.compile(rb"\s(?:u?int|u?char|b?float|half|double|bf|fp|f)[0-9]")  # a data type, whatever its digits


class Idle:
    """Remembers the lines of one stream, numbers aside, that say nothing."""

    def __init__(self) -> None:
        self._messages: Set[bytes] = set()  # garbled
        self._lines: Set[bytes] = set()  # garbled
        self._spaced: Set[bytes] = set()  # lines with columns of blanks: every digit a 0

    def message(self, text: bytes) -> bool:
        """Say whether no INFO message of these words says more than that its process exists."""
        garbled = text.translate(HEX)
        if garbled in self._messages:
            return True
        if garbled[:4] in _GARBLED_STARTS or any(word in garbled for word in _GARBLED):
            return False
        _keep(self._messages, garbled)
        return True

    def line(self, raw: bytes) -> bool:
        """Say whether a line that is not NCCL's says nothing where nothing is open that any line may belong to."""
        garbled = raw.translate(HEX)
        if garbled in self._lines or (b"  " in raw and raw.translate(DIGITS) in self._spaced):
            return True
        if b"\r" in raw or len(raw) > _LONGEST:
            return not raw
        spaced = b"  " in raw or _ROW.match(raw) is not None
        if not spaced and not _NUMBERS.match(garbled):
            bare = garbled.replace(_GARBLED_CALL, b"")
            if not any(word in bare for word in _GARBLED_SIGNALS):
                _keep(self._lines, garbled)
                return True
        if (spaced and TYPE.search(raw)) or signals.matters(raw):
            return False
        if spaced and not _COLUMN.search(raw):
            _keep(self._spaced, raw.translate(DIGITS))
        return True


def _keep(known: Set[bytes], text: bytes) -> None:
    if len(known) >= _KEPT:
        known.clear()
    if len(text) <= _LONGEST:
        known.add(text)
