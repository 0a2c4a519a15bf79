"""Redaction of text that leaves the cluster: no secrets, no control characters, bounded length.

Logs, annotations, environment and API messages are untrusted. All text for a file, a terminal or a report passes
through `safe` (one line of prose), `redact` (a line of a log) or `redact_value` (decoded JSON). The patterns of
credentials are in seatrial/logs/reader/redact.py, which the pods and the reader of logs use, too.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from seatrial.logs.reader.redact import MASK, redact, secret_name

__all__ = ["MASK", "LineRedactor", "clean", "redact", "redact_value", "safe", "secret_name"]

LINE_LIMIT = 16_384
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_KEY_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----")
_KEY_END = re.compile(r"-----END [A-Z0-9 ]*PRIVATE KEY-----")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


class LineRedactor:
    """A line-by-line redactor of a log; a private key that spans lines is masked as a whole."""

    _MOST_KEY_LINES = 200

    def __init__(self) -> None:
        self._key_lines_left = 0

    def line(self, text: str) -> str:
        """Redact and bound one line of a log."""
        if self._key_lines_left:
            self._key_lines_left = 0 if _KEY_END.search(text) else self._key_lines_left - 1
            return MASK
        if _KEY_BEGIN.search(text) and not _KEY_END.search(text):
            self._key_lines_left = self._MOST_KEY_LINES
        return redact(clean(text))


def clean(text: str, limit: int = LINE_LIMIT) -> str:
    """Remove terminal escapes, control, bidirectional and invisible characters; truncate at `limit` with a note."""
    cut = len(text) > limit
    text = _CONTROL.sub("", _ANSI.sub("", text[: limit * 2])).replace("\t", " ")
    if len(text) > limit or cut:
        text = text[: max(0, limit - 15)] + "... [truncated]"[: min(limit, 15)]
    return text


def safe(text: object, limit: int = 1000) -> str:
    """Make one bounded, printable, redacted line of any foreign text."""
    whole = str(text)[: max(limit * 4, 65_536)]
    return _known_line(whole, limit) if len(whole) <= _KNOWN_LENGTH else _line(whole, limit)


def _line(text: str, limit: int) -> str:
    if "\n" in text:  # a variable's value ends at the end of the line
        text = "\n".join(map(LineRedactor().line, text.splitlines()))
    # Redact before truncating: half a secret is still a secret, and its name may precede the cut.
    return clean(redact(clean(" ".join(text.split()), max(limit * 4, 65_536))), limit)


# A watcher reads the same events and conditions at every poll; the cache holds at most some MB.
_KNOWN_LENGTH = 2000
_known_line = lru_cache(maxsize=1000)(_line)


def redact_value(value: Any, *, limit: int = 262_144) -> Any:
    """Redact every string of decoded JSON; values under a secret-looking key are masked whole."""
    if isinstance(value, str):
        return redact(value[:limit])
    if isinstance(value, list):
        return [redact_value(item, limit=limit) for item in value]
    if isinstance(value, dict):
        return {
            str(key): MASK
            if secret_name(str(key)) and isinstance(item, str) and item
            else redact_value(item, limit=limit)
            for key, item in value.items()
        }
    return value
