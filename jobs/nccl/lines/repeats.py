"""What of a stream was read before, and would say nothing if it were read again?

Two memories. ``Pieces`` knows stretches of some KiB, whole lines each, that were read in the same state before: what
they would do is known, and they are passed over unopened (a test suite, a log that was pasted twice, a program that
repeats itself). ``Lines`` knows single lines. Both compare bytes, never a digest of them, and both rest while they do
not pay.
"""

from __future__ import annotations

import zlib
from itertools import filterfalse
from typing import Any, Dict, Iterable, Iterator, List, Optional, Set, Tuple

SIZE = 8192  # of a piece, at least
_MEMORY = 12 * 1024 * 1024  # bytes of pieces, and of lines, that are kept
_TRIAL = 12 * 1024 * 1024  # bytes after which is decided whether pieces pay
_REST = 32 * 1024 * 1024  # bytes until they are tried again, twice as many each time
_TRIES = 12  # line ends that are looked at
_MARK = 48  # bytes in front of a line's end that decide whether a piece ends there
_LIMIT = 50_000  # lines that are kept
_BLOCKS = 64  # blocks after which is decided whether lines pay
_PAUSE = 2048  # blocks until they are tried again
_STAMP = bytes(48 if 48 <= byte <= 57 else byte for byte in range(256))
_STAMPS = (
    b"0000-00-00T00:00:00.000000000Z ",  # kubectl logs --timestamps
    b"0000-00-00T00:00:00.0000000Z ",  # GitHub Actions
    b"0000-00-00T00:00:00.000000Z ",
    b"0000-00-00T00:00:00.000Z ",
    b"0000-00-00T00:00:00Z ",
    b"[0000-00-00 00:00:00] ",  # NCCL_DEBUG_TIMESTAMP_LEVELS=ALL, and platforms
    b"[0000-00-00 00:00:00.000] ",
    b"[0000-00-00 00:00:00.000000] ",
    b"0000-00-00 00:00:00 ",
    b"0000-00-00 00:00:00,000 ",
    b"0000-00-00 00:00:00.000 ",
    b"0000-00-00 00:00:00.000000 ",
)


class Pieces:
    """Remembers stretches of whole lines, each together with the state in which it was read."""

    def __init__(self) -> None:
        self.on = True
        self._known: Dict[Tuple[bytes, Any], Tuple[int, Any]] = {}
        self._kept = self._seen = self._hits = 0
        self._rest = _REST

    def cut(self, data: bytes, start: int, end: int) -> int:
        """Return where the piece that begins at ``start`` ends; -1 where the data end first.

        The bytes in front of a line's end decide, so that the same log falls into the same pieces wherever it begins.
        """
        at = data.find(b"\n", start + SIZE - 1, end)
        for _ in range(_TRIES):
            if at < 0 or zlib.crc32(data[at - _MARK : at]) & 3 == 0:
                break
            at = data.find(b"\n", at + 1, end)
        return at + 1 if at >= 0 else -1

    def find(self, piece: bytes, state: Any) -> Optional[Tuple[int, Any]]:
        """Return how many lines a known piece holds and what it changes; None where it is not known in this state."""
        found = self._known.get((piece, state))
        self._seen += len(piece)
        if found is not None:
            self._hits += len(piece)
        if self._seen >= _TRIAL:
            if self._hits * 8 < self._seen:
                self.rest()
            self._seen = self._hits = 0
        return found

    def keep(self, piece: bytes, state: Any, lines: int, change: Any) -> None:
        """Remember what a piece did that is never to be opened again in this state."""
        if not self.on:
            return
        if self._kept + len(piece) > _MEMORY:
            self._known, self._kept = {}, 0
        self._known[(piece, state)] = (lines, change)
        self._kept += len(piece)

    def rest(self) -> None:
        """Forget everything and stop for a while."""
        self.on = False
        self._known, self._kept = {}, 0

    def pass_by(self, size: int) -> None:
        """Count bytes that were read without a look, and begin again after enough of them."""
        self._seen += size
        if self._seen >= self._rest:
            self.on, self._seen, self._rest = True, 0, 2 * self._rest


class Lines:
    """Remembers whole lines that would say nothing if they came again; a stamp in front of them does not count."""

    def __init__(self) -> None:
        self._known: Set[bytes] = set()
        self._blocks = self._lines = self._hits = self._size = 0
        self._on = True
        self._stamp = b""

    def fresh(self, lines: List[bytes], start: int) -> Iterable[Tuple[int, bytes]]:
        """Return the lines that are not known, each with its number; the first has the number ``start``."""
        self._blocks += 1
        if not self._on:
            if self._blocks < _PAUSE:
                return enumerate(lines, start)
            self._on, self._blocks = True, 0
        bare = lines if not self._stamp else _without(lines, self._stamp)
        rest = list(filterfalse(self._known.__contains__, bare))
        self._lines += len(lines)
        self._hits += len(lines) - len(rest)
        if self._blocks >= _BLOCKS:
            self._decide(lines)
        if len(rest) == len(lines):
            return enumerate(lines, start)
        return _numbered(lines, bare, rest, start)

    def _decide(self, lines: List[bytes]) -> None:
        """Go on where a quarter of the lines was known; else try without a stamp, or stop."""
        pays = self._hits * 4 > self._lines
        self._blocks = self._lines = self._hits = 0
        if pays:
            return
        stamp = b"" if self._stamp else _stamp_of(lines)
        self._known, self._stamp, self._on = set(), stamp, bool(stamp)

    def learns(self) -> bool:
        """Say whether it is worth telling what says nothing."""
        return self._on

    def learn(self, lines: List[bytes]) -> None:
        """Remember lines that would say nothing if they came again."""
        size = sum(map(len, lines))
        if len(self._known) >= _LIMIT or self._size + size > _MEMORY:
            self.forget()
        self._size += size
        self._known.update(_without(lines, self._stamp) if self._stamp else lines)

    def forget(self) -> None:
        """Forget the lines: what they would say has changed, or the stream has ended."""
        self._known = set()
        self._size = 0


def _stamp_of(lines: List[bytes]) -> bytes:
    """Return the shape of the stamp in front of most lines; empty without one."""
    some = lines[:: max(1, len(lines) // 64)]
    for stamp in _STAMPS:
        if sum(line[: len(stamp)].translate(_STAMP) == stamp for line in some) * 2 > len(some):
            return stamp
    return b""


def _without(lines: List[bytes], stamp: bytes) -> List[bytes]:
    """Take a stamp off the lines that have it."""
    width = len(stamp)
    stamps = b"".join([line[:width] for line in lines])
    if stamps.translate(_STAMP) == stamp * len(lines):
        return [line[width:] for line in lines]
    return [line[width:] if line[:width].translate(_STAMP) == stamp else line for line in lines]


def _numbered(lines: List[bytes], bare: List[bytes], rest: List[bytes], start: int) -> Iterator[Tuple[int, bytes]]:
    """Find the number of each line of ``rest``, which are those of ``bare`` without some, in the same order."""
    at = 0
    for raw in rest:
        at = bare.index(raw, at)
        yield start + at, lines[at]
        at += 1
