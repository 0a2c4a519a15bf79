"""Wrapped streams: container logs (CRI, docker, JSON lines) are taken apart.

The wrapping is recognised by the first line of a stream and then applies to all of it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Optional

from .lines.pasted import Pasted, found

_CRI = re.compile(rb"^\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|[+-]\d\d:\d\d) (stdout|stderr) ([FP]) ?")
_KEYS = ("log", "message", "msg", "textPayload", "line", "text", "MESSAGE")
MAX_PART = 64 * 1024


def unwrapper(first: bytes, reader: Any) -> Any:
    """Return what is fed the stream's chunks and finished at its end: the reader itself where nothing is wrapped."""
    head = first[:65536].lstrip(b"\xef\xbb\xbf \r\n\t")
    line = head.split(b"\n", 1)[0]
    if head[:1] == b"{" and text_of(line) is not None:
        return _Lines(reader, _JsonLines())
    if _CRI.match(line):
        return _Lines(reader, _CriLines())
    done = found(first)
    return reader if done is None else Pasted(done, reader)


def text_of(line: bytes) -> Optional[str]:
    """Return the text inside a JSON line; None where it is no such line."""
    if line[:1] != b"{" or len(line) > 1 << 20:
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    for key in _KEYS:
        if isinstance(record.get(key), str):
            return str(record[key])
    coded = record.get("MESSAGE")  # journald writes what holds control characters, such as colours, as bytes
    try:
        return bytes(coded).decode("utf-8", "replace") if isinstance(coded, list) else None
    except (TypeError, ValueError):
        return None


class _JsonLines:
    """docker's json-file driver and structured log exports: one JSON object per line."""

    def __init__(self) -> None:
        self._part = ""

    def text(self, line: bytes) -> bytes:
        text = text_of(line)
        if text is None:
            return line + b"\n"
        if not text.endswith("\n") and b'"log"' in line[:8]:  # docker cuts long lines at 16 KiB
            self._part = (self._part + text)[:MAX_PART]
            return b""
        text, self._part = self._part + text.rstrip("\n"), ""
        return text.replace("\n", "\r").encode("utf-8", "replace") + b"\n"

    def end(self) -> bytes:
        return self._part.encode("utf-8", "replace")


class _CriLines:
    """What the kubelet keeps on disk: time, stream, P for a part and F for the end of a line."""

    def __init__(self) -> None:
        self._parts: Dict[bytes, bytes] = {}

    def text(self, line: bytes) -> bytes:
        match = _CRI.match(line)
        if match is None:
            return line + b"\n"
        stream, kind = match.groups()
        text = self._parts.pop(stream, b"") + line[match.end() :]
        if kind == b"P":
            self._parts[stream] = text[:MAX_PART]
            return b""
        return text + b"\n"

    def end(self) -> bytes:
        return b"\n".join(self._parts.values())


class _Lines:
    """Cuts chunks into lines for an unwrapper, and hands the reader what is inside."""

    def __init__(self, reader: Any, unwrap: Any) -> None:
        self._reader = reader
        self._unwrap = unwrap
        self._tail = b""

    def feed(self, chunk: bytes) -> None:
        lines = (self._tail + chunk).split(b"\n")
        self._tail = lines.pop()[: 1 << 20]
        out = b"".join([self._unwrap.text(line) for line in lines])
        if out:
            self._reader.feed(out)

    def finish(self) -> None:
        tail = self._unwrap.text(self._tail) if self._tail else b""
        tail += self._unwrap.end()
        if tail:
            self._reader.feed(tail)
        self._reader.finish()
