"""Finds any of many words at once, in one pass at the cost of a few rare letters.

``re`` stops at each place with an alternation's first bytes, so words that begin with common letters cost most. The
search for each word therefore starts at one of its bytes (its anchor), with a look-behind for the text before it. The
anchors are as few and as rare as possible for all words.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import Dict, Generic, Iterable, Iterator, List, Mapping, Optional, Pattern, Set, Tuple, TypeVar

# Two lines that differ in numbers alone have one shape: with these, digits become 0 (and those of pointers, too).
DIGITS = bytes(48 if 48 <= byte <= 57 else byte for byte in range(256))
HEX_DIGITS = bytes(48 if byte in b"0123456789abcdef" else byte for byte in range(256))

_COMMON = b" e0t1aoinsr2lhd.3:cum/fg456789pyw,b_-v=[]k"  # the most common bytes of logs; any other byte is rarer
_RARE = {byte: rank for rank, byte in enumerate(_COMMON)}

_SOME = 200  # texts up to which each word is searched separately: 0.1 ms each, while one pattern of all takes 30 ms
_SOME_BYTES = 1 << 16  # the same for text in which places are searched: 0.3 ms for each KiB
_FEW = 25  # texts up to which each word is searched separately: 1.2 ms each, while making an index by bytes takes 30 ms
_MANY = 1500  # texts from which an index pays, which takes 130 ms to make: 0.02 ms for each text instead of 0.10
_BEGIN = 3  # bytes that look up a word which may be part of another
_LARGE = 2048  # bytes from which separate patterns are faster than all at once

Owner = TypeVar("Owner")
Behind = Mapping[bytes, bytes]
"""By words: the following text with which they have no meaning."""
NOTHING: Behind = {}


def any_of(words: Iterable[bytes], unless: Behind = NOTHING) -> Pattern[bytes]:
    """Return a pattern that matches where any of the words is, ``unless`` certain text follows it.

    It begins at the word's anchor.
    """
    return re.compile(b"|".join(_by_anchor(words, unless)))


def _by_anchor(words: Iterable[bytes], unless: Behind) -> List[bytes]:
    """Return a pattern for each anchor: of all words with that anchor."""
    ends: Dict[bytes, List[Tuple[bytes, bytes]]] = {}
    for word, at in _anchored(words):
        ends.setdefault(word[at : at + 1], []).append((word[at + 1 :], word))
    return [re.escape(byte) + _tree(rest, byte, unless) for byte, rest in ends.items()]


def _least(words: Iterable[bytes], unless: Behind) -> List[bytes]:
    """Return the words without those that contain another one, which is found in the same places."""
    each = dict.fromkeys(words)
    begins: Dict[bytes, List[bytes]] = {}
    for word in each:
        if word not in unless:
            begins.setdefault(word[:_BEGIN], []).append(word)
    short = [begin for begin in begins if len(begin) < _BEGIN]  # short words, which are searched whole

    def holds_another(word: bytes) -> bool:
        for at in range(len(word)):
            for other in begins.get(word[at : at + _BEGIN], ()):
                if other != word and word.startswith(other, at):
                    return True
        return any(other != word and other in word for other in short)

    return [word for word in each if not holds_another(word)]


def _anchored(words: Iterable[bytes]) -> List[Tuple[bytes, int]]:
    """Return each word with the place of its anchor; a byte that no word needs is not an anchor."""
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
    """Return the place of a word's rarest anchor, if possible before another byte."""
    places = (at for at, byte in enumerate(word) if byte in anchors)
    return max(places, key=lambda at: (_RARE.get(word[at], 256), at + 1 < len(word)))


def _tree(ends: List[Tuple[bytes, bytes]], read: bytes, unless: Behind) -> bytes:
    """Return a pattern of the possible continuations of some words, with the text before that."""
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
    """Return a pattern of the text before the matched end of some words, the nearest byte first."""
    if len(words) == 1:
        (word,) = words
        behind = _but_not(word, unless)
        return behind if word == read else b"(?<=" + re.escape(word) + b")" + behind
    longer: Dict[bytes, List[bytes]] = {}
    for word in words:
        longer.setdefault(word[-len(read) - 1 :], []).append(word)
    return _either([b"(?<=" + re.escape(end) + b")" + _front(rest, end, unless) for end, rest in longer.items()])


def _but_not(word: bytes, unless: Behind) -> bytes:
    """Return a pattern of the text that may not follow a word."""
    return b"(?!" + re.escape(unless[word]) + b")" if word in unless else b""


def _either(parts: List[bytes]) -> bytes:
    return parts[0] if len(parts) == 1 else b"(?:" + b"|".join(parts) + b")"


class AnyOf:
    """Tests whether a text has any of many words, ``unless`` certain text follows it.

    Its pattern is compiled only when that pays: most logs need it for few texts.
    """

    def __init__(self, words: Iterable[bytes], unless: Behind = NOTHING) -> None:
        self.words, self.unless = tuple(dict.fromkeys(words)), unless
        self._sure = tuple(word for word in self.words if word not in unless)
        self._unsure = [re.compile(re.escape(word) + _but_not(word, unless)) for word in self.words if word in unless]
        self._asked = 0
        self._pattern: Optional[Pattern[bytes]] = None

    def contained_in(self, text: bytes) -> bool:
        """Return whether any of the words is in a text."""
        if self._pattern is not None:
            return self._pattern.search(text) is not None
        self._asked += 1
        if self._asked > _SOME:
            return self.pattern().search(text) is not None
        return any(map(text.__contains__, self._sure)) or any(each.search(text) for each in self._unsure)

    def pattern(self) -> Pattern[bytes]:
        """Return a pattern that matches where any of the words is."""
        if self._pattern is None:
            self._pattern = any_of(_least(self.words, self.unless), self.unless)
        return self._pattern


class Gate:
    """Finds lines with any of many words: in a large text one anchor after the other, as fast as memchr."""

    def __init__(self, words: Iterable[bytes], few: Iterable[AnyOf], unless: Behind = NOTHING) -> None:
        self._words, self._unless = tuple(words), unless
        self._few = tuple(few)  # patterns that find the same words, for small texts
        self._each: List[Pattern[bytes]] = []  # patterns by anchor, once requested
        self._read = 0  # bytes in which places were searched

    def places(self, text: bytes, start: int, end: int) -> List[int]:
        """Return at least one place in each such line, in order."""
        self._read += end - start
        if self._read < _SOME_BYTES:
            return sorted(self._by_word(text, start, end))
        patterns: Iterable[Pattern[bytes]] = (words.pattern() for words in self._few)
        if end - start > _LARGE:
            if not self._each:  # each word once in a line, and the line may end within the word
                parts = _by_anchor(_least(self._words, self._unless), self._unless)
                self._each = [re.compile(part + rb"(?:(?<!\n)[^\n]*)?") for part in parts]
            patterns = self._each
        return sorted([match.start() for pattern in patterns for match in pattern.finditer(text, start, end)])

    def _by_word(self, text: bytes, start: int, end: int) -> Iterator[int]:
        """Yield each word's places, once in a line."""
        for word in self._words:
            behind, at = self._unless.get(word), text.find(word, start, end)
            while at >= 0:
                rest = at + 1
                if behind is None or not text.startswith(behind, at + len(word), end):
                    yield at
                    rest = text.find(b"\n", rest, end)
                at = text.find(word, rest, end) if rest >= 0 else -1


class Index:
    """Finds the owners of the words in a text, in one pass of a pattern of all words."""

    def __init__(self, words: Iterable[Tuple[bytes, int]]) -> None:
        owners: Dict[bytes, Set[int]] = {}
        for word, owner in words:
            owners.setdefault(word, set()).add(owner)
        self._any = any_of(owners)
        self._near: Dict[bytes, List[Tuple[int, bytes, Set[int]]]] = {}  # by the anchor and the next byte
        for word, at in _anchored(owners):
            self._near.setdefault(word[at : at + 2], []).append((at, word, owners[word]))

    def owners(self, text: bytes) -> Set[int]:
        """Return the owners of the words in a text."""
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
    """Patterns, each with its owner and in parts that ``|`` joins; only those with a word in the text are tried."""

    def __init__(self, patterns: Iterable[Tuple[Owner, bytes]]) -> None:
        each = [(owner, part, words) for owner, pattern in patterns for part, words in _worded(pattern)]
        self._parts = [(owner, part) for owner, part, _ in each]
        self._words = [(word, at) for at, (_, _, words) in enumerate(each) for word in words]  # words of parts
        self._compiled: Dict[int, Pattern[bytes]] = {}  # compiled on their first use: a log needs few
        self._index: Optional[Index] = None
        self._asked = 0
        self._near: Dict[bytes, List[Tuple[bytes, int]]] = {}  # by two of their bytes, after more than a few requests

    def matches(self, text: bytes) -> Iterator[Owner]:
        """Yield the owners of the patterns that match somewhere in a text, in the order of the patterns."""
        for at in sorted(self._holding(text)):
            pattern = self._compiled.get(at)
            if pattern is None:
                pattern = self._compiled[at] = re.compile(self._parts[at][1])
            if pattern.search(text) is not None:
                yield self._parts[at][0]

    def _holding(self, text: bytes) -> Set[int]:
        """Return the parts whose words a text has."""
        if self._index is not None:
            return self._index.owners(text)
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
    """Return every two adjacent bytes."""
    return [text[at : at + 2] for at in range(len(text) - 1)]


def parts_of(pattern: bytes) -> List[bytes]:
    """Return the alternatives of a pattern; the pattern itself if it is only one."""
    return [part for part, _ in _alternatives(pattern)]


def needed(pattern: bytes) -> Tuple[bytes, ...]:
    """Return words of which every match of a pattern has at least one; raises ValueError if there are none."""
    return tuple(dict.fromkeys(word for _, words in _worded(pattern) for word in words))


def _worded(pattern: bytes) -> Iterator[Tuple[bytes, List[bytes]]]:
    for part, words in _alternatives(pattern):
        if words is None:
            raise ValueError("no word is in every match of %r" % part)
        yield part, words


_TOKEN = re.compile(
    rb"((?:[^\\.^$*+?{}\[\]|()]|\\[^0-9A-Za-z])+)(?![*+?{])"  # literal letters, none repeated
    rb"|(\((?:\?(?:[:=!]|<[=!]|P<\w+>)|(?!\?)))"  # characters that open a group
    rb"|(\|)"
    rb"|(?:(\))|\[\^?\]?(?:[^\]\\]|\\.)*\]|\\(?:x..|[0-9]{1,3}|.)|[^()|\\])"  # those that close it, or match a byte,
    rb"([*+?]|\{[\d,]+\})?[+?]?",  # and their quantifier
    re.DOTALL,
)
_OPTIONAL = re.compile(rb"[*?]|\{0*[,}]")


@lru_cache(maxsize=None)
def _alternatives(pattern: bytes) -> List[Tuple[bytes, Optional[List[bytes]]]]:
    """Return the alternatives of a pattern, each with words of which every match has one.

    None instead of the words if a match may have none. Raises ValueError for a group with flags and the like.
    """
    parts: List[Tuple[bytes, Optional[List[bytes]]]] = []
    groups: List[Tuple[bytes, List[Optional[List[bytes]]], Optional[List[bytes]]]] = []  # open groups
    either: List[Optional[List[bytes]]] = []  # the words of a group's alternatives
    words: Optional[List[bytes]] = None  # words of the current alternative
    begin = at = 0
    for token in _TOKEN.finditer(pattern + b"|"):
        if token.start() != at:
            raise ValueError("no word to search for in %r" % pattern)
        at = token.end()
        letters, opening, bar, closing, times = token.groups()
        if letters:
            words = _rarer(words, [_ESCAPED.sub(rb"\1", letters)])
        elif opening:
            groups.append((opening, either, words))
            either, words = [], None
        elif bar and groups:
            either.append(words)
            words = None
        elif bar:
            parts.append((pattern[begin : token.start()], words))
            begin, words = at, None
        elif closing:
            inner = [*either, words]
            opening, either, words = groups.pop()
            if opening[-1:] not in b"=!" and not (times and _OPTIONAL.match(times)) and None not in inner:
                words = _rarer(words, [word for each in inner for word in each or ()])
    return parts


_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)


def _rarer(words: Optional[List[bytes]], others: List[bytes]) -> List[bytes]:
    """Return the list whose shortest word is longer."""
    return others if words is None or min(map(len, others)) > min(map(len, words)) else words
