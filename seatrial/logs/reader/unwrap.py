"""Unwraps container logs (CRI, docker, JSON lines).

The wrapping is recognised by the first line of a stream and then applies to all of it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Iterator, Optional

from .events.signals import matters, shows_trouble
from .lines.pasted import Pasted, found

_CRI = re.compile(rb"^\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|[+-]\d\d:\d\d) (stdout|stderr) ([FP]) ?")
_KEYS = ("log", "message", "msg", "textPayload", "line", "text", "MESSAGE")
MAX_PART = 64 * 1024
_CUT_BY_DOCKER = 16 * 1024  # bytes after which a line continues in the next record (daemon/logger/copier.go)


def unwrapper(first: bytes, reader: Any) -> Any:
    """Return the consumer of the stream's chunks, finished at its end; the reader itself if nothing is wrapped."""
    head = first[:65536].lstrip(b"\xef\xbb\xbf \r\n\t")
    line = head.split(b"\n", 1)[0]
    if head[:1] == b"{" and text_of(line) is not None:
        return _Lines(reader, _JsonLines())
    if _CRI.match(line):
        return _Lines(reader, _CriLines())
    done = found(first)
    return reader if done is None else Pasted(done, reader)


def text_of(line: bytes) -> Optional[str]:
    """Return the text inside a JSON line, and the trouble in its other fields; None for any other line."""
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
            return with_trouble(str(record[key]), record)
    coded = record.get("MESSAGE")  # journald writes text with control characters, such as colours, as bytes
    try:
        return with_trouble(bytes(coded).decode("utf-8", "replace"), record) if isinstance(coded, list) else None
    except (TypeError, ValueError):
        return None


_LEVELS = ("level", "levelname", "severity")
_FATAL = ("fatal", "critical", "panic", "emergency", "alert")
_ABOUT = ("kubernetes", "labels", "annotations", "metadata", "resource")  # a store's facts about the writer of a record
_DOCKERS = {"log", "stream", "time"}
_DEEP = 5


def with_trouble(text: str, record: Dict[str, Any]) -> str:
    """Return a record's text and, on further lines, its other signs of trouble: an error, a stack, its level.

    A severity of ERROR does not count: Cloud Logging gives it to everything on stderr.
    """
    if record.keys() <= _DOCKERS:
        return text
    troubles = list(_troubles_of(text.strip(), record, _DEEP))
    if "NCCL INFO" not in text:
        words = " ".join(text.split())[:200]
        for key in _LEVELS:
            level = str(record.get(key)).lower()
            if level in _FATAL or (level == "error" and key != "severity"):
                troubles.append('{"level": "%s", "message": "%s"}' % (level, words))
    return "\n".join([text.rstrip("\n"), *troubles]) + "\n" * text.endswith("\n") if troubles else text


def _troubles_of(text: str, value: Any, deep: int) -> Iterator[str]:
    """Yield the parts of a record, other than its text, that report trouble."""
    if isinstance(value, dict) and deep:
        for key, inner in value.items():
            if not (key in _ABOUT or key[:1] == "_"):
                yield from _troubles_of(text, inner, deep - 1)
    elif isinstance(value, list) and deep:
        for inner in value[:1000]:
            yield from _troubles_of(text, inner, deep - 1)
    elif isinstance(value, str) and " " in value:  # a text with a space, so neither a name nor a time
        rest = value.strip()
        if text and rest.endswith(text):  # another field often repeats the text before parsing
            rest = rest[: -len(text)]
        lines = [line for line in rest[:MAX_PART].splitlines() if line not in text]
        if any(map(trouble_in, lines)):
            yield "\n".join(lines)


def trouble_in(line: str) -> bool:
    """Return whether the fields next to a text report trouble."""
    raw = line.encode("utf-8", "replace")
    return matters(raw) and (b"NCCL WARN" in raw or shows_trouble(raw))


class _JsonLines:
    """docker's json-file driver and structured log exports: one JSON object per line."""

    def __init__(self) -> None:
        self._part = ""

    def text(self, line: bytes) -> bytes:
        text = text_of(line)
        if text is None:
            return line + b"\n"
        if len(line) > _CUT_BY_DOCKER and not text.endswith("\n") and b'"log"' in line[:8]:
            self._part = (self._part + text)[:MAX_PART]
            return b""
        text, self._part = self._part + text.rstrip("\n"), ""
        return text.replace("\n", "\r").encode("utf-8", "replace") + b"\n"

    def end(self) -> bytes:
        return self._part.encode("utf-8", "replace")


class _CriLines:
    """The kubelet's format on disk: time, stream, P for a part and F for the end of a line."""

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
    """Splits chunks into lines for an unwrapper, and passes their content to the reader."""

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
