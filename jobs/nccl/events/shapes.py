"""Which lines say nothing, whatever numbers stand in them? Known by shape, so that millions of them cost one look each.

No rule depends on which digits stand where, except in tables: with every digit a 0, lines that differ in numbers only
are one. Pointers and ids have letters, too. With every hexadecimal digit a 0 words are garbled, but the words that
matter are garbled alike, and a shape that does not hold the garbled word belongs to no line that holds the word.
"""

from __future__ import annotations

import re
from itertools import count
from typing import Any, Dict, List, Set, Tuple

from . import facts as events
from . import signals

MARK = b"NCCL INFO "
DIGITS = bytes(48 if 48 <= byte <= 57 else byte for byte in range(256))
HEX = signals.HEX
_MEMORY = 3 * 1024 * 1024  # bytes of the shapes of one kind
LONGEST = 2048  # bytes of a line whose shape is kept
_NUMBERS = re.compile(rb"\s*0+\s+0+\s")  # may be a row of a table
_NONE: Set[bytes] = set()


class Shapes:
    """The shapes of one stream's lines that say nothing."""

    def __init__(self) -> None:
        self.digits: Set[bytes] = set()  # by DIGITS, of lines that are not NCCL's
        self._hexes: Set[bytes] = set()  # the same, by HEX
        self._named: Set[bytes] = set()  # by HEX, of NCCL's lines that only say that their process exists
        self._sizes = [0, 0, 0]

    def add(self, shape: bytes) -> None:
        """Remember the shape, by DIGITS, of a line that is not NCCL's."""
        self._remember(0, self.digits, shape)

    def _remember(self, which: int, known: Set[bytes], shape: bytes) -> None:
        self._sizes[which] += len(shape) + 64
        if self._sizes[which] > _MEMORY:
            known.clear()
            self._sizes[which] = len(shape)
        known.add(shape)

    def learn(self, raw: bytes) -> bool:
        """Remember a line if no line of its shape, by HEX, says anything but who wrote it; say whether that is so."""
        shape = raw.translate(HEX)
        if shape in self._hexes or shape in self._named:
            return True
        if len(raw) >= LONGEST or b"\r" in raw:
            return False
        _, mark, text = shape.partition(MARK)
        if mark and events.idle(text):
            self._remember(2, self._named, shape)
        elif mark or b"  " in shape or _NUMBERS.match(shape) or signals.may_matter(shape):
            return raw.translate(DIGITS) in self.digits
        else:
            self._remember(1, self._hexes, shape)
        return True

    def fresh(
        self, data: bytes, start: int, tokens: Dict[bytes, Any], width: int, named_only: bool
    ) -> Tuple[List[Tuple[int, bytes]], int, int]:
        """Return the lines that may say something, each with its number; how many of NCCL's do not; how many there are.

        ``start`` is the number of the first; ``tokens`` holds what stands in front of the messages of known processes,
        behind ``width`` bytes; ``named_only``: no line but NCCL's is passed over.
        """
        known, hexes, named = (_NONE, _NONE, self._named) if named_only else (self.digits, self._hexes, self._named)
        digits = data.translate(DIGITS).split(b"\n")
        digits.pop()
        if known.issuperset(digits):
            return [], 0, len(digits)
        shapes = data.translate(HEX).split(b"\n")
        rest = [
            (number, raw)
            for number, raw, digit, shape in zip(count(start), data.split(b"\n"), digits, shapes)
            if digit not in known
            and shape not in hexes
            and (shape not in named or raw.partition(MARK)[0][width:] not in tokens)
        ]
        passed = sum(map(named.__contains__, shapes)) - sum(raw.translate(HEX) in named for _, raw in rest)
        return rest, passed, len(digits)
