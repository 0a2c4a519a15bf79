"""The parts of a log line that may be shown: control sequences and secrets never leave this module.

A log is untrusted input: it can hold terminal escapes, and dumped environments with keys and tokens.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Optional, Union

from ..redact import redact

# CSI and OSC sequences of ECMA-48, and the literal "[0m" that remains if a copy lost the escape byte.
_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|\[(?:\d{1,2}(?:;\d{1,3})*)?m(?=\s|$|\S)"
)
ANSI_BYTES = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|\[(?:\d{1,2}(?:;\d{1,3})*)m"
)
ESCAPES = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
# All Unicode characters that move the cursor, reorder text, or are not characters at all.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")

_LOOK = 1024
_PIECE = 64 * 1024  # bytes of a piece
_SIMPLE = re.compile(r"[A-Za-z0-9._+-]{1,15}\Z")  # no secret is that short, and none has a name and a value in it


def plain_lines(data: bytes) -> bytes:
    """Return whole lines without control sequences, each ended by a line feed alone."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    if b"\x1b" not in data:
        return data
    out, at = [], 0
    while at < len(data):  # split in pieces, since a coloured log has many sequences
        end = data.find(b"\n", at + _PIECE) + 1 or len(data)
        out.append(ESCAPES.sub(b"", data[at:end]))
        at = end
    return b"".join(out)


def printable(raw: Union[bytes, str], limit: int = 320) -> str:
    """Return one line of a log as it may be shown.

    No escapes, no control characters, no secrets, at most ``limit`` long.
    """
    look = max(limit * 2, _LOOK)  # a secret is recognised by the text around it, even if that is not shown
    text = raw[:look].decode("utf-8", "replace") if isinstance(raw, bytes) else raw[:look]
    if len(text) <= limit and _SIMPLE.match(text):
        return text
    if len(raw) > look:
        text = text.rpartition(" ")[0] or text  # half a secret would not be recognised
    text = _CONTROL.sub("", _ANSI.sub("", text.replace("\t", " ").replace("\n", " ").replace("\r", " ")))
    text = redact(text).strip()
    return text if len(text) <= limit else text[: limit - 1] + "\u2026"


@lru_cache(maxsize=16_384)  # the hosts and addresses of a large job
def name(raw: Union[bytes, str, None], limit: int = 64) -> Optional[str]:
    """Return a name from a log (a host, a device, an interface) without unprintable characters; None for None."""
    return None if raw is None else printable(raw, limit)
