"""Lines without content, recognised by their shape: the line with every number replaced by 0.

A shape has no content if no line of that shape can have any. The searched words are masked like the line, so a shape
without content may count as one with content, but never the other way round.
"""

from __future__ import annotations

import re
from typing import List

from ..lines.patterns import DIGITS, HEX_DIGITS, AnyOf, Gate
from ..tables.rows import TYPE, TYPE_WORDS
from .facts import STARTS
from .foreign import says
from .kinds import CHANNEL_STARTS
from .left_out import MARK, MARKED
from .messages import MAX_TEXT
from .signals import MATTER, MATTERS, UNLESS, matters
from .symptoms import may_show

_MASKED_STARTS = frozenset(start.translate(HEX_DIGITS) for start in (*STARTS, *CHANNEL_STARTS))
_SAYING = (b" nranks ", b" nRanks ", b" nvls channels", b"> Algo ", b"+ NET[", b"+ NVL[")
_CONTENT = AnyOf(word.translate(HEX_DIGITS) for word in _SAYING)
_TRACE = re.compile(rb"\S{1,160}:0+ (?:\([^()]{1,120}\) )?-> 0")  # facts._TRACE, masked
_TIMINGS = b"Init timings"  # no letter of it is masked
_ROW = re.compile(rb"\s{0,32}\d{1,19}\s+\d{1,19}\s+[a-z]\w+\s")  # a row with blanks that a copy has squeezed


def is_quiet(shape: bytes) -> bool:
    """Return whether no NCCL message of this shape, hexadecimal digits made 0, has relevant content."""
    if b" NCCL " in shape or len(shape) > MAX_TEXT:
        return False
    if shape.startswith(_TIMINGS):
        return True
    if shape[:4] in _MASKED_STARTS or _CONTENT.contained_in(shape):
        return False
    return _TRACE.match(shape) is None and not may_show(shape)


# Every foreign line with content has one of these: significant words, and the types of rows.
_WORDS = (*MATTERS, *TYPE_WORDS)
GATE = Gate(_WORDS, (MATTER, AnyOf(TYPE_WORDS)), UNLESS)
_NUMBERED = AnyOf(word.translate(DIGITS) for word in _WORDS if re.search(rb"\d", word))  # masked words


_DOTS = re.compile(rb"\n" + MARK + rb"(?=\r?\n)")  # an indented line is an array, as a program prints it


def left_out(data: bytes, start: int, end: int) -> List[int]:
    """Return the beginnings of lines by which a person marks an omission; dots in the gate would be too slow."""
    if start == 0:
        first = MARKED.fullmatch(data[: data.find(b"\n")].rstrip(b"\r"))
        return [0, *left_out(data, 1, end)] if first else left_out(data, 1, end)
    return [match.start() + 1 for match in _DOTS.finditer(data, start - 1, end)]


def line_is_quiet(shape: bytes) -> bool:
    """Return whether no line of this shape (digits made 0) passes the gate, given that one did not."""
    return not _NUMBERED.contained_in(shape)


def has_content(raw: bytes) -> bool:
    """Return whether a foreign line has content, whatever was read before, or may be a row."""
    if matters(raw) and says(raw):
        return True
    wide = b"  " in raw or b"\r" in raw or _ROW.match(raw) is not None
    return wide and TYPE.search(raw) is not None
