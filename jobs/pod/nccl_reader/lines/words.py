"""Finds any of many words at once, in one pass at the cost of their rarest letters.

``re`` looks at each place where an alternation's first bytes stand, so that words which begin with common letters cost
most. Each word is therefore looked for from its rarest byte on, with a look back at what stands in front of that.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from importlib import import_module
from typing import Any, Dict, Iterable, List, Optional, Pattern, Tuple

# Two lines that differ in numbers alone have one shape: with these, digits become 0 (and those of pointers, too).
DIGITS = bytes(48 if 48 <= byte <= 57 else byte for byte in range(256))
HEX_DIGITS = bytes(48 if byte in b"0123456789abcdef" else byte for byte in range(256))

_COMMON = b" e0t1aoinsr2lhd.3:cum/fg456789pyw,b_-v=[]k"  # of logs, the most common first; any other byte is rarer
_RARITY = [_COMMON.find(byte) % 256 for byte in range(256)]


def any_of(words: Iterable[bytes]) -> Pattern[bytes]:
    """Return a pattern that is found where any of the words is."""
    by_byte: Dict[int, List[bytes]] = {}
    for word in words:
        at = word.index(max(word, key=_RARITY.__getitem__))
        front, back = re.escape(word[: at + 1]), re.escape(word[at + 1 :])
        by_byte.setdefault(word[at], []).append((b"(?<=" + front + b")" if at else b"") + back)
    return re.compile(
        b"|".join(re.escape(bytes((byte,))) + b"(?:" + b"|".join(rests) + b")" for byte, rests in by_byte.items())
    )


_parser = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")


@lru_cache(maxsize=None)
def needed(pattern: bytes, flags: int = 0) -> Tuple[bytes, ...]:
    """Return words of which every match of a pattern holds at least one; raises ValueError where there are none."""
    parsed = _parser.parse(pattern, flags)
    words = None if parsed.state.flags & re.IGNORECASE else _needed(parsed)
    if words is None:
        raise ValueError("no word stands in every match of %r" % pattern)
    return tuple(dict.fromkeys(words))


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
