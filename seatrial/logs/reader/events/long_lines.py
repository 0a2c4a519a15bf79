"""The part of a long line that is not parsed: a failure in it counts, and an NCCL line in it is reported.

NCCL prints no such lines. A program prints its configuration, a sample or dots without a line end, and an error after
them.
"""

from __future__ import annotations

from typing import Callable, Iterator, List

from .messages import INFO, MAX_TEXT, WARN
from .signals import MOST, matters, shows_event, shows_trouble
from .trouble import without_samples

MAX_LINE = 64 * 1024  # maximum number of bytes of a line that are kept
_STEP, _OVERLAP = MOST - 512, 512
_CONTEXT = 128  # bytes of a line's beginning: its level, or a model's prompt
_QUOTED = 512
_MOST_SIGNS = 4  # maximum signs of one line
_BEFORE = 1024  # bytes before the first NCCL message that are searched with it
_LINES = b"(not read: lines of NCCL that are joined with others)"


def bounded(line: bytes) -> bytes:
    """Return the kept part of a line: the end of a progress bar, where an error may follow, else the beginning."""
    return line if len(line) <= MAX_LINE else line[-MAX_LINE:] if b"\r" in line else line[:MAX_LINE]


def far(line: bytes) -> List[bytes]:
    """Return the signs of a failure in the part of a line that is not parsed.

    Each sign begins at its first word; only the first few are returned.
    """
    signs: List[bytes] = []
    if len(line) <= MOST or not matters(line):
        return signs
    line = without_samples(line)
    end = 0  # end of the segment, at a carriage return
    for segment in line.split(b"\r") if b"\r" in line else (line,):
        end += len(segment) + 1
        looked_at = MOST if len(line) <= MAX_LINE or segment is line or len(line) - end < MAX_LINE else 0
        for text in _signs(segment, looked_at):
            signs.append(text)
            if len(signs) >= _MOST_SIGNS:
                return signs
    return signs


def _signs(line: bytes, looked_at: int) -> Iterator[bytes]:
    first = line.find(INFO, 0, MAX_LINE) if looked_at else -1
    read = first - _BEFORE + MAX_TEXT if first >= 0 else MAX_LINE if looked_at else 0  # the part that Messages reads
    for at in range(looked_at, len(line), _STEP):
        window = line[max(0, at - _OVERLAP) : at + _STEP]
        if not matters(window):
            continue
        warning = window.find(WARN)
        if warning >= 0:
            yield window[warning : warning + _QUOTED]
        elif INFO in window and line.find(INFO, read) >= 0:
            yield _LINES
        elif shows_trouble(window) and (not at or shows_trouble(line[:_CONTEXT] + b" " + window)):
            text = _from_first_word(window)[:_QUOTED]
            if shows_trouble(text):
                yield text


def _from_first_word(window: bytes) -> bytes:
    """Return the sign of the first failure without the words before it, which may include half a secret."""
    shows = shows_event if shows_event(window) else shows_trouble
    words = [0] + [at + 1 for at, byte in enumerate(window) if byte == 0x20] + [len(window)]
    end = _first(lambda index: shows(window[: words[index]]), len(words) - 1)
    begin = _first(lambda index: not shows(window[words[index] : words[end]]), end) - 1
    return window[words[max(0, begin)] :]


def _first(holds: Callable[[int], bool], most: int) -> int:
    """Return the first number for which a monotonic property holds, or the last, by bisection."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
