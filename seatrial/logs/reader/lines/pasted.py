r"""Restores logs that a web page, a mail or a terminal rewrote.

Issue trackers escape (``-&gt;``, ``\[0\]``, ``NCCL\_DEBUG``), word processors insert their own blanks and minus signs,
terminals break lines at their width. The changes are recognised in the first block of a stream and then reverted in all
of it; a log that was not pasted is passed on unchanged after one check.
"""

from __future__ import annotations

import re
from typing import Any, List, NamedTuple, Optional

LOOK = 1 << 16  # examined bytes of the first block
_ENTITIES = ((b"&lt;", b"<"), (b"&gt;", b">"), (b"&#91;", b"["), (b"&#93;", b"]"), (b"&quot;", b'"'), (b"&#39;", b"'"))
_ESCAPED = re.compile(rb"\\([\[\]_*#<>|`~:-])")
_SIGNS = (
    (b"\xc2\xa0", b" "),  # no-break space
    (b"\xe2\x80\xaf", b" "),  # narrow no-break space
    (b"\xe2\x80\x89", b" "),  # thin space
    (b"\xe2\x88\x92", b"-"),  # minus sign
    (b"\xe2\x80\x93", b"-"),  # en dash
    (b"\xe2\x86\x92", b"->"),  # arrow, which some fonts and editors make of "->"
)
_HEADED = re.compile(
    rb"NCCL (?:INFO|WARN|TRACE|CALL|version)|RCCL version|:\d+:\d+ \[\d|^\s*#|^\s*$|^\s{0,12}\d+\s+\d+\s+[a-z]"
    rb"|^\[?\d{4}-\d\d-\d\d"
)
# Lines that a user reduced to their message.
_BARE = re.compile(
    rb"(?m)^([ \t]*(?:[>|*-] ?)?)(?=(?:Channel|Ring) \d{2,3}(?:/\d)? : \d+(?:\[\w+\])? -> "
    rb"|NET/(?:IB|Socket) ?: (?:Using (?:\[|[a-z][\w.@-]{1,15}\s*$)|No device)"
    rb"|Using network |Connected all rings, use ring |Bootstrap ?: Using "
    rb"|NET/Plugin ?: |NET/OFI |(?:Initialized|Assigned|Failed to initialize) NET plugin "
    rb"|NCCL_[A-Z_]+ set (?:by environment )?to )"
)
_NARROWEST, _WIDEST = 60, 400  # bounds of a terminal's width
_CUT_LINES = 4  # least number of lines of exactly that width, with none longer


class Done(NamedTuple):
    """The changes to the lines of a stream."""

    entities: bool
    escaped: bool
    signs: bool
    width: int  # width at which a terminal broke them; 0: none
    bare: bool  # whether the messages lack even "NCCL INFO"


def found(first: bytes) -> Optional[Done]:
    """Return the changes to a stream, by its first block; None without any."""
    head = first[:LOOK]
    entities = b"-&gt;" in head or b"&lt;0&gt;" in head or b"&#91;" in head
    escaped = b"NCCL" in head and (b"\\[" in head or b"NCCL\\_" in head)
    signs = not head.isascii() and (b"NCCL" in head or b"busbw" in head) and any(sign in head for sign, _ in _SIGNS)
    bare = b"NCCL INFO" not in head and (
        b" via NET/" in head or b"NET/IB : Using [" in head or b"NET/Socket : Using " in head
    )
    done = Done(entities, escaped, signs, cut_width(head), bare)
    return done if any(done) else None


def cut_width(head: bytes) -> int:
    """Return the width at which a terminal broke the lines; 0 without evidence of it.

    The evidence: many lines have exactly that width, none is longer, they begin with a head, and the next lines do not.
    A single repeated long line does not count, nor does a program's output of fixed width.
    """
    lines = [line.rstrip(b"\r") for line in head.split(b"\n")[:-1]]
    if len(lines) < 2 * _CUT_LINES or b"NCCL INFO" not in head:
        return 0
    width = max(len(line) for line in lines)
    if not _NARROWEST <= width <= _WIDEST:
        return 0
    full = [at for at in range(len(lines) - 1) if len(lines[at]) == width]
    if len({lines[at] for at in full}) < _CUT_LINES:
        return 0
    first = [at for at in full if at == 0 or len(lines[at - 1]) != width]
    headed = sum(_HEADED.search(lines[at]) is not None for at in first)
    loose = sum(_HEADED.search(lines[at + 1]) is None for at in full)
    return width if loose * 10 >= len(full) * 9 and headed * 2 >= len(first) else 0


class Pasted:
    """Restores the lines of one stream."""

    def __init__(self, done: Done, reader: Any) -> None:
        self._done = done
        self._reader = reader
        self._tail = b""
        self._joined = b""
        self._missing = 0  # lines that were joined to those before them

    def feed(self, chunk: bytes) -> None:
        """Restore the next bytes, whole lines at a time."""
        whole, cut, rest = (self._tail + chunk).rpartition(b"\n")
        self._tail = rest[: 1 << 16] if cut else rest
        if len(self._tail) > 1 << 16:  # the reader handles a line without an end
            whole, cut, self._tail = self._tail, b"", b""
        if whole or cut:
            self._reader.feed(self._restored(whole + cut))

    def finish(self) -> None:
        """Restore the text after the last line end."""
        rest = self._joined + self._restored(self._tail) if self._tail else self._joined
        self._joined = b""
        if rest:
            self._reader.feed(rest)
        self._reader.finish()

    def _restored(self, data: bytes) -> bytes:
        if self._done.signs:
            for sign, plain in _SIGNS:
                data = data.replace(sign, plain)
        if self._done.width:
            data = self._join(data)
        if self._done.entities:
            for entity, plain in _ENTITIES:
                data = data.replace(entity, plain)
            data = data.replace(b"&amp;", b"&")
        data = _ESCAPED.sub(rb"\1", data) if self._done.escaped else data
        return _BARE.sub(rb"\1NCCL INFO ", data) if self._done.bare else data

    def _join(self, data: bytes) -> bytes:
        """Join broken lines: a line of the full width continues in the next one."""
        out: List[bytes] = []
        for line in data.split(b"\n")[:-1] if data.endswith(b"\n") else data.split(b"\n"):
            text = line.rstrip(b"\r")
            if len(text) == self._done.width and len(self._joined) < 1 << 14:
                self._joined += text
                self._missing += 1
            else:
                out += [self._joined + text, *[b""] * self._missing]  # empty lines keep the line numbers of the file
                self._joined, self._missing = b"", 0
        return b"".join(line + b"\n" for line in out)
