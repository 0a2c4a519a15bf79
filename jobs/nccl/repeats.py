"""Which lines say nothing because the same line was read before?

A program that sets up many communicators, a test suite, a log that was pasted twice: they repeat themselves line by
line, and a set finds that out at a gigabyte per second. Where lines do not repeat, the set is given up for a while.
"""

from __future__ import annotations

from itertools import filterfalse
from typing import Iterable, Iterator, List, Set, Tuple

_LIMIT = 100_000  # lines that are kept
_WORTH = 64  # blocks after which is decided whether it pays
_PAUSE = 2048  # blocks until it is tried again


class Repeats:
    """Remembers whole lines that would say nothing if they came again."""

    def __init__(self) -> None:
        self._known: Set[bytes] = set()
        self._blocks = self._lines = self._hits = 0
        self._on = True

    def fresh(self, lines: List[bytes], start: int) -> Iterable[Tuple[int, bytes]]:
        """Return the lines that are not known, each with its number; the first has the number ``start``."""
        self._blocks += 1
        if not self._on:
            if self._blocks < _PAUSE:
                return enumerate(lines, start)
            self._on, self._blocks = True, 0
        rest = list(filterfalse(self._known.__contains__, lines))
        self._lines += len(lines)
        self._hits += len(lines) - len(rest)
        if self._blocks >= _WORTH:
            self._on = self._hits * 4 > self._lines
            self._blocks = self._lines = self._hits = 0
            if not self._on:
                self._known = set()
        return enumerate(lines, start) if len(rest) == len(lines) else _numbered(lines, rest, start)

    def learns(self) -> bool:
        """Say whether it is worth telling what says nothing."""
        return self._on

    def learn(self, lines: Iterable[bytes]) -> None:
        """Remember lines that would say nothing if they came again."""
        if len(self._known) >= _LIMIT:
            self._known = set()
        self._known.update(lines)

    def forget(self) -> None:
        """Give the memory back."""
        self._known = set()


def _numbered(lines: List[bytes], rest: List[bytes], start: int) -> Iterator[Tuple[int, bytes]]:
    """Find the number of each line of ``rest``, which are those of ``lines`` without some, in the same order."""
    at = 0
    for raw in rest:
        at = lines.index(raw, at)
        yield start + at, raw
        at += 1
