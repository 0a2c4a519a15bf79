"""Texts generated from a pattern: every alternative, with the fewest repetitions."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

_parser = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
_BYTES = b"abcdefghABCXYZ0123456789_ .:-/=(x"
_LIKE = {
    _parser.CATEGORY_DIGIT: rb"\d",
    _parser.CATEGORY_NOT_DIGIT: rb"\D",
    _parser.CATEGORY_SPACE: rb"\s",
    _parser.CATEGORY_NOT_SPACE: rb"\S",
    _parser.CATEGORY_WORD: rb"\w",
    _parser.CATEGORY_NOT_WORD: rb"\W",
}


def samples(pattern: bytes, rng: random.Random, tries: int = 30) -> Iterator[bytes]:
    """Yield texts that a pattern matches."""
    parsed = _parser.parse(pattern)
    for _ in range(tries):
        text = _text(parsed, rng)
        if re.search(pattern, text):
            yield text


def _text(items: Any, rng: random.Random) -> bytes:
    return b"".join(_item(str(operation), value, rng) for operation, value in items)


def _item(operation: str, value: Any, rng: random.Random) -> bytes:
    made = {
        "LITERAL": lambda: bytes((value,)),
        "NOT_LITERAL": lambda: _one(_BYTES.replace(bytes((value,)), b""), rng),
        "ANY": lambda: _one(_BYTES, rng),
        "IN": lambda: _one(_in(value), rng),
        "SUBPATTERN": lambda: _text(value[3], rng),
        "BRANCH": lambda: _text(rng.choice(value[1]), rng),
        "ASSERT": lambda: _text(value[1], rng) if value[0] > 0 and rng.random() < 0.5 else b"",  # like the text after
        "ASSERT_NOT": lambda: b"",
        "AT": lambda: b"",
        "MAX_REPEAT": lambda: b"".join(
            _text(value[2], rng) for _ in range(rng.randint(value[0], min(value[0] + 3, int(value[1]))))
        ),
    }
    return made[operation]()


def _one(of: bytes, rng: random.Random) -> bytes:
    return bytes((rng.choice(of),))


def _in(choices: Any) -> bytes:
    """Return the bytes of a set."""
    named: set[int] = set()
    for operation, value in choices:
        if str(operation) == "LITERAL":
            named.add(value)
        elif str(operation) == "RANGE":
            named |= set(range(value[0], value[1] + 1))
        elif str(operation) == "CATEGORY":
            named |= {byte for byte in _BYTES if re.match(_LIKE[value], bytes((byte,)))}
    negated = str(choices[0][0]) == "NEGATE"
    return bytes(byte for byte in _BYTES if byte not in named) if negated else bytes(sorted(named))
