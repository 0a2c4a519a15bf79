"""Finds any of many words at once, in one pass at the cost of a few rare letters.

``re`` looks at each place where an alternation's first bytes stand, so that words which begin with common letters cost
most. Each word is therefore looked for from one byte on (its anchor), with a look back at what stands in front of that,
and the anchors are as few and as rare as will do for all of the words.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from functools import lru_cache
from importlib import import_module
from typing import Any, Dict, Generic, Iterable, Iterator, List, Mapping, Optional, Pattern, Set, Tuple, TypeVar

# Two lines that differ in numbers alone have one shape: with these, digits become 0 (and those of pointers, too).
DIGITS = bytes(48 if 48 <= byte <= 57 else byte for byte in range(256))
HEX_DIGITS = bytes(48 if byte in b"0123456789abcdef" else byte for byte in range(256))

_COMMON = b" e0t1aoinsr2lhd.3:cum/fg456789pyw,b_-v=[]k"  # of logs, the most common first; any other byte is rarer
_RARE = {byte: rank for rank, byte in enumerate(_COMMON)}

_FEW = 60  # texts up to which each word is looked for: 0.1 ms for each, where an index by bytes takes 6 ms to be made
_MANY = 1000  # texts from which on an index pays, which takes 30 to 60 ms to be made: 0.05 ms for each text
_LARGE = 2048  # bytes from which on one pattern after the other is faster than all at once

Owner = TypeVar("Owner")
Behind = Mapping[bytes, bytes]
"""By words, what stands behind them where they mean nothing."""
NOTHING: Behind = {}


def any_of(words: Iterable[bytes], unless: Behind = NOTHING) -> Pattern[bytes]:
    """Return a pattern that is found where any of the words is; ``unless`` something stands behind it.

    It begins at the word's anchor.
    """
    return re.compile(b"|".join(_by_anchor(words, unless)))


def _by_anchor(words: Iterable[bytes], unless: Behind) -> List[bytes]:
    """Return a pattern for each anchor: of all words that are looked for from it on."""
    ends: Dict[bytes, List[Tuple[bytes, bytes]]] = {}
    for word, at in _anchored(words):
        ends.setdefault(word[at : at + 1], []).append((word[at + 1 :], word))
    return [re.escape(byte) + _tree(rest, byte, unless) for byte, rest in ends.items()]


def _anchored(words: Iterable[bytes]) -> List[Tuple[bytes, int]]:
    """Return each word with the place of its anchor: every byte that all words can do without is none."""
    unlike = dict.fromkeys(words)
    left = {word: set(word) for word in unlike}  # bytes of each that may be its anchor
    holding: Dict[int, List[Set[int]]] = {}
    for letters in left.values():
        for byte in letters:
            holding.setdefault(byte, []).append(letters)
    for byte in sorted(holding, key=lambda byte: (_RARE.get(byte, 256), byte)):
        if all(len(letters) > 1 for letters in holding[byte]):
            for letters in holding[byte]:
                letters.discard(byte)
    return [(word, _place(word, letters)) for word, letters in left.items()]


def _place(word: bytes, anchors: Set[int]) -> int:
    """Return where in a word its rarest anchor stands, if possible in front of another byte."""
    places = (at for at, byte in enumerate(word) if byte in anchors)
    return max(places, key=lambda at: (_RARE.get(word[at], 256), at + 1 < len(word)))


def _tree(ends: List[Tuple[bytes, bytes]], read: bytes, unless: Behind) -> bytes:
    """Return a pattern of what may follow what was read of some words, with what stands in front of that."""
    following: Dict[bytes, List[Tuple[bytes, bytes]]] = {}
    for end, word in ends:
        if word == read and word not in unless:
            return b""
        following.setdefault(end[:1], []).append((end[1:], word))
    parts = []
    for byte, rest in following.items():
        if not byte:
            parts.append(_front([word for _, word in rest], read, unless))
        elif len(rest) > 1:
            parts.append(re.escape(byte) + _tree(rest, read + byte, unless))
        else:
            ((end, word),) = rest
            parts.append(re.escape(byte + end) + _front([word], read + byte + end, unless))
    return _either(parts)


def _front(words: List[bytes], read: bytes, unless: Behind) -> bytes:
    """Return a pattern of what stands in front of the end that was read of some words: the byte before that first."""
    if len(words) == 1:
        (word,) = words
        behind = b"(?!" + re.escape(unless[word]) + b")" if word in unless else b""
        return behind if word == read else b"(?<=" + re.escape(word) + b")" + behind
    longer: Dict[bytes, List[bytes]] = {}
    for word in words:
        longer.setdefault(word[-len(read) - 1 :], []).append(word)
    return _either([b"(?<=" + re.escape(end) + b")" + _front(rest, end, unless) for end, rest in longer.items()])


def _either(parts: List[bytes]) -> bytes:
    return parts[0] if len(parts) == 1 else b"(?:" + b"|".join(parts) + b")"


class Gate:
    """Finds lines that hold any of many words: in a large text one anchor after the other, as fast as memchr."""

    def __init__(self, words: Iterable[bytes], few: Iterable[Pattern[bytes]], unless: Behind = NOTHING) -> None:
        self._words, self._unless = words, unless
        self._few = tuple(few)  # that find the same words, for little text
        self._each: List[Pattern[bytes]] = []  # by anchor, once asked

    def places(self, text: bytes, start: int, end: int) -> List[int]:
        """Return at least one place in each such line, in order."""
        patterns: Iterable[Pattern[bytes]] = self._few
        if end - start > _LARGE:
            if not self._each:  # each once in a line, whose end may be a word's
                parts = _by_anchor(self._words, self._unless)
                self._each = [re.compile(part + rb"(?:(?<!\n)[^\n]*)?") for part in parts]
            patterns = self._each
        return sorted([match.start() for pattern in patterns for match in pattern.finditer(text, start, end)])


class Index:
    """Says whose words a text holds, in one pass of a pattern of all words."""

    def __init__(self, words: Iterable[Tuple[bytes, int]]) -> None:
        owners: Dict[bytes, Set[int]] = {}
        for word, owner in words:
            owners.setdefault(word, set()).add(owner)
        self._any = any_of(owners)
        self._near: Dict[bytes, List[Tuple[int, bytes, Set[int]]]] = {}  # by the anchor and the byte behind it
        for word, at in _anchored(owners):
            self._near.setdefault(word[at : at + 2], []).append((at, word, owners[word]))

    def owners(self, text: bytes) -> Set[int]:
        """Return whose words stand in a text."""
        found: Set[int] = set()
        match = self._any.search(text)
        while match is not None:
            at = match.start()
            for near in {text[at : at + 1], text[at : at + 2]}:
                for before, word, owners in self._near.get(near, ()):
                    if before <= at and text.startswith(word, at - before):
                        found |= owners
            match = self._any.search(text, at + 1)
        return found


class Patterns(Generic[Owner]):
    """Patterns, each with its owner and in parts that ``|`` joins; of a text those are tried whose words it holds."""

    def __init__(self, patterns: Iterable[Tuple[Owner, bytes]]) -> None:
        self._parts = [(owner, part) for owner, pattern in patterns for part in parts_of(pattern)]
        self._compiled: Dict[int, Pattern[bytes]] = {}  # on their first use: a log shows few
        self._index: Optional[Index] = None
        self._asked = 0
        self._words: List[Tuple[bytes, int]] = []  # of parts, once asked
        self._near: Dict[bytes, List[Tuple[bytes, int]]] = {}  # by two of their bytes, once asked for more than a few

    def matches(self, text: bytes) -> Iterator[Owner]:
        """Yield the owners of the patterns that match somewhere in a text, in the order of the patterns."""
        for at in sorted(self._holding(text)):
            pattern = self._compiled.get(at)
            if pattern is None:
                pattern = self._compiled[at] = re.compile(self._parts[at][1])
            if pattern.search(text) is not None:
                yield self._parts[at][0]

    def _holding(self, text: bytes) -> Set[int]:
        """Return the parts whose words a text holds."""
        if self._index is not None:
            return self._index.owners(text)
        if not self._words:
            self._words = [(word, at) for at, (_, part) in enumerate(self._parts) for word in _of_part(part)]
        self._asked += 1
        if self._asked <= _FEW:
            return {part for word, part in self._words if word in text}
        if self._asked > _MANY:
            self._index = Index(self._words)
        if not self._near:
            often = Counter(pair for word, _ in self._words for pair in _pairs(word))
            for word, at in self._words:
                self._near.setdefault(min(_pairs(word), key=often.__getitem__, default=b""), []).append((word, at))
        found = self._near.keys() & {b"", *_pairs(text)}
        return {part for pair in found for word, part in self._near[pair] if word in text}


def _pairs(text: bytes) -> List[bytes]:
    """Return every two bytes that stand side by side."""
    return [text[at : at + 2] for at in range(len(text) - 1)]


def parts_of(pattern: bytes) -> List[bytes]:
    """Return the alternatives of which a pattern is made; itself where it is one."""
    parts, depth, begin, at = [], 0, 0, 0
    in_set = -1  # where the set of bytes began that is open
    while at < len(pattern):
        byte = pattern[at : at + 1]
        if byte == b"\\":
            at += 1
        elif in_set >= 0:
            if byte == b"]" and at > in_set:
                in_set = -1
        elif byte == b"[":
            in_set = at + (2 if pattern[at + 1 : at + 2] == b"^" else 1)
        elif byte in b"()":
            depth += 1 if byte == b"(" else -1
        elif byte == b"|" and not depth:
            parts.append(pattern[begin:at])
            begin = at + 1
        at += 1
    return [*parts, pattern[begin:]]


_parser = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")


_MEANS = re.compile(rb"[\\.^$*+?{}\[\]|()]")  # any byte that is not itself in a pattern


def needed(pattern: bytes) -> Tuple[bytes, ...]:
    """Return words of which every match of a pattern holds at least one; raises ValueError where there are none."""
    return tuple(dict.fromkeys(word for part in parts_of(pattern) for word in _of_part(part)))


@lru_cache(maxsize=None)
def _of_part(part: bytes) -> Tuple[bytes, ...]:
    if part and _MEANS.search(part) is None:
        return (part,)
    parsed = _parser.parse(part)
    words = None if parsed.state.flags & re.IGNORECASE else _needed(parsed)
    if words is None:
        raise ValueError("no word stands in every match of %r" % part)
    return tuple(words)


def _needed(items: Any) -> Optional[List[bytes]]:
    """Return words of which any match of a parsed pattern holds at least one; None where it may hold none."""
    found: List[List[bytes]] = []
    run = b""
    for operation, value in [*items.data, (None, None)]:
        if operation is _parser.LITERAL:
            run += bytes((value,))
            continue
        if run:
            found.append([run])
        run = b""
        inner: Optional[List[bytes]] = None
        if operation is _parser.SUBPATTERN and not value[1]:  # no flags of its own
            inner = _needed(value[3])
        elif operation is _parser.MAX_REPEAT and value[0] > 0:
            inner = _needed(value[2])
        elif operation is _parser.BRANCH:
            parts = [_needed(part) for part in value[1]]
            inner = None if None in parts else [word for part in parts for word in part or ()]
        if inner:
            found.append(inner)
    return max(found, key=lambda words: min(map(len, words)), default=None)
