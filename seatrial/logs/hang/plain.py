"""Extract texts, numbers and sizes from foreign data: values of another shape are ignored.

A pickle may contain a list many times over, and itself: nothing of unknown shape is ever turned into text.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import Any

from ..reader.lines.clean import printable

_MOST_TENSORS, _MOST_DIMENSIONS = 64, 16  # more than the 200 characters of sizes that are kept and compared


def word(value: Any, most: int = 120) -> str:
    """Return a text without control characters, or a number as text; empty for anything else."""
    if isinstance(value, str):
        return _printable(value[:most], most)
    return str(value) if isinstance(value, int) and abs(value) < 1 << 62 else ""


@lru_cache(maxsize=4096)
def _printable(text: str, most: int) -> str:
    return printable(text, most)


def number(value: Any) -> int:
    """Return a whole number, also one that is written as text; -1 for anything else."""
    if isinstance(value, str) and value.isdecimal() and value.isascii() and len(value) < 16:
        return int(value)
    return value if isinstance(value, int) and abs(value) < 1 << 62 else -1


def sizes(tensors: Any, types: Any) -> str:
    """Return the sizes and types of an operation's tensors as text; empty if they are not readable."""
    types = [] if types is None else types
    if not _is_list(tensors) or not _is_list(types) or not all(isinstance(each, str) for each in types):
        return ""
    shapes = list(islice(tensors, _MOST_TENSORS))
    if not all(_is_list(shape) and all(type(each) is int for each in shape) for shape in shapes):
        return ""
    shown = ", ".join(f"[{', '.join(map(str, shape[:_MOST_DIMENSIONS]))}]" for shape in shapes)
    named = [word(each, 40) for each in islice(types, _MOST_DIMENSIONS)]
    return f"[{shown}] {named or ''}".rstrip()


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
