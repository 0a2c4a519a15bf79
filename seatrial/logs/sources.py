"""Files, gz, directories, FIFOs and standard input become named streams of byte chunks.

A named file must be a log: a missing file, an empty one, a binary or a directory without logs is a one-line error.
Files in a directory that are not NCCL logs are skipped. A growing file is read up to its size when it was opened. A
stream that never ends (a FIFO, standard input) is read until a user interrupts it, or up to a bound; the bytes until
then are the log.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import chain, islice
from typing import Any, BinaryIO

from .exports import opened
from .reader import dcgm
from .reader.errors import NcclLogError
from .reader.events.signals import shows_trouble
from .reader.lines.clean import printable
from .unread_files import ANCHORS, ARCHIVE, PACKED, is_binary, unread_below

CHUNK = 1 << 17  # a block and its lines stay in the processor's cache
SNIFF = 256 * 1024
MAX_FILES = 20_000
# A log compresses 20 to 100 times; deflate's own limit is about 1030. Beyond this the input is a bomb, not a log.
MAX_INFLATE_RATIO = 400
INFLATE_GRACE = 256 * 1024 * 1024
PATIENCE_S = 5.0  # between two progress messages about a stream that has no end yet
MAX_ENDLESS = 4 * 1024 * 1024 * 1024  # bytes taken from files without a size (FIFO, device, socket)
# The text at the place where reading of a stream stopped: a separate last line without an end, so that it counts as
# torn.
CUT = b"\n(not read: the compressed data end here, before their end)"
ENOUGH = b"\n(not read: what comes behind the first %d MB)" % (MAX_ENDLESS // 1_000_000)
_JSON = re.compile(rb"\s*(?:\{|\[\s*[{\[\"])")

# Files next to logs that quote errors without reporting one.
_NO_LOG = (
    ".py",
    ".sh",
    ".md",
    ".rst",
    ".yaml",
    ".yml",
    ".json",
    ".toml",
    ".html",
    ".js",
    ".css",
    ".ipynb",
    ".c",
    ".cc",
)

Source = tuple[str, Iterator[bytes]]
Text = str | bytes | Iterable[str] | Iterable[bytes]
"""A whole log, or its lines."""


def open_sources(
    paths: list[str], tell: Callable[[str], None] | None = None, progress: bool = False
) -> Iterator[Source]:
    """Open every path and yield (name, chunks); ``-`` is standard input.

    Every path is checked before the first stream is read, so that a wrong one fails early. With ``tell`` an interrupt
    (Ctrl-C) ends a stream that has no end, and is reported to it instead of raised. With ``progress`` it also gets the
    number of bytes read every few seconds. Raises NcclLogError.
    """
    if not paths:
        raise NcclLogError("no log was given: name files, directories, or - for standard input")
    plan: list[tuple[str, str | None]] = []
    for path in paths:
        plan.extend([("(standard input)", None)] if path == "-" else _plan(path))
    return ((name, opened(_file(path, name, tell, progress), name)) for name, path in plan)


def open_text(text: Text, name: str) -> Iterator[bytes]:
    """Yield the chunks of a log that is in memory, or whose lines are generated one by one. Raises NcclLogError."""
    whole = text.encode("utf-8", "replace") if isinstance(text, str) else text
    return opened(_chunks(io.BytesIO(whole) if isinstance(whole, bytes) else _Lines(whole), name, None), name)


class _Lines:
    """Lines as a stream; a missing line end is added."""

    def __init__(self, lines: Iterable[str] | Iterable[bytes]) -> None:
        self._lines = (line.encode("utf-8", "replace") if isinstance(line, str) else line for line in lines)

    def read(self, _: int) -> bytes:
        """Return some of the lines, nothing at the end."""
        return b"".join(line if line.endswith(b"\n") else line + b"\n" for line in islice(self._lines, 1000))


class _Endless:
    """A stream without its own end: an interrupt ends it, and progress is reported to the user."""

    def __init__(self, file: BinaryIO, name: str, tell: Callable[[str], None], progress: bool) -> None:
        self._read = getattr(file, "read1", file.read)  # the bytes available now, so that a growing pipe is followed
        self._name = name
        self._tell = tell
        self._progress = progress
        self._taken = 0
        self._reported_at = time.monotonic()

    def read(self, size: int) -> bytes:
        """Return the available bytes, nothing at the end or after an interrupt."""
        try:
            chunk: bytes = self._read(size)
        except KeyboardInterrupt:
            self._tell("%s: interrupted after %d bytes; these are judged" % (self._name, self._taken))
            return b""
        self._taken += len(chunk)
        if self._progress and time.monotonic() - self._reported_at > PATIENCE_S:
            self._reported_at = time.monotonic()
            self._tell("%s: %d MB so far; Ctrl-C judges the part read so far" % (self._name, self._taken // 1_000_000))
        return chunk


def _endless(file: BinaryIO, name: str, tell: Callable[[str], None] | None, progress: bool) -> Any:
    return file if tell is None else _Endless(file, name, tell, progress)


def _plan(path: str) -> list[tuple[str, str | None]]:
    """List the logs that one argument names."""
    shown = printable(path, 200)
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        raise NcclLogError("%s: %s" % (shown, _why(error))) from error
    if stat.S_ISDIR(status.st_mode):
        logs = logs_below(path)
        if not logs:
            unread = unread_below(path)[:3]
            raise NcclLogError(
                "%s: a directory without NCCL logs; name the log files, or the directory that holds them%s"
                % (shown, "; not read: " + ", ".join(unread) if unread else "")
            )
        return [(printable(item, 200), item) for item in logs]
    if stat.S_ISREG(status.st_mode):
        head = _head(path)
        if not head.strip():
            raise NcclLogError("%s: the log is empty; was NCCL_DEBUG=INFO set, and did the job write here?" % shown)
        if is_binary(head) or ARCHIVE.match(head):
            raise NcclLogError(_why_no_log(head, shown))
    elif stat.S_ISBLK(status.st_mode) or stat.S_ISSOCK(status.st_mode):
        raise NcclLogError("%s: neither a file nor a stream" % shown)
    return [(shown, path)]


def _why(error: Exception) -> str:
    reason = getattr(error, "strerror", None) or str(error)
    return {"No such file or directory": "no such file"}.get(reason, printable(reason.lower(), 120))


def logs_below(folder: str, without: AbstractSet[str] = frozenset()) -> list[str]:
    """List the files below a directory that hold NCCL lines or a benchmark's table, in a stable order.

    With such a log, and next to dumps (``without``), files that report a failure belong to the job, too: a separate
    stderr file, a launcher's output.
    """
    logs: dict[str, bool] = {}
    for parent, names, files in os.walk(folder):
        names[:] = sorted(item for item in names if not item.startswith("."))
        for item in sorted(files):
            path = os.path.join(parent, item)
            if path in without or item.startswith(".") or not os.path.isfile(path):
                continue
            try:
                head = _head(path)
            except NcclLogError:
                continue  # an unreadable file is skipped in a directory, not when it is named
            if not head or is_binary(head) or (_other_json(head) and not _diagnosed(head)):
                continue
            of_nccl = any(anchor in head for anchor in ANCHORS)
            report = _diagnosed(head) and (item.endswith(".json") or not item.endswith(_NO_LOG))
            if of_nccl or report or (not item.endswith(_NO_LOG) and _shows_trouble(path, head)):
                logs[path] = of_nccl
            if len(logs) >= MAX_FILES:
                break
    return list(logs) if any(logs.values()) or without else []


def _shows_trouble(path: str, head: bytes) -> bool:
    """Return whether the first or the last lines of a file report a failure."""
    lines = head.splitlines()
    with open(path, "rb") as file:
        if len(head) == SNIFF and file.seek(0, os.SEEK_END) > SNIFF:
            file.seek(-SNIFF, os.SEEK_END)
            lines += file.read(SNIFF).splitlines()
    return any(map(shows_trouble, lines))


def _diagnosed(head: bytes) -> bool:
    """Return whether these bytes hold a report of `dcgmi diag`."""
    return any(mark in head for mark in dcgm.MARKS)


def _other_json(head: bytes) -> bool:
    """Return whether these bytes are a JSON document that is neither nccl-tests' own nor a container's log."""
    return (
        _JSON.match(head) is not None  # '[rank0]: ' and '[1,0]<stdout>' begin lines of logs
        and b'"log":' not in head
        and b'"bus_bw"' not in head
        and b'"busBw"' not in head
        and b"NCCL INFO" not in head
        and not head.lstrip().startswith(b'{"seatrial"')  # the log of a trial's pod
    )


def _head(path: str) -> bytes:
    """Return the first bytes of a file, decompressed if necessary."""
    try:
        with open(path, "rb") as file:
            head = file.read(SNIFF)
    except OSError as error:
        raise NcclLogError("%s: %s" % (printable(path, 200), _why(error))) from error
    if head[:2] == b"\x1f\x8b":
        try:
            return zlib.decompressobj(31).decompress(head, SNIFF)
        except zlib.error as error:
            raise NcclLogError("%s: damaged gzip data" % printable(path, 200)) from error
    return head


def _why_no_log(head: bytes, name: str) -> str:
    """Describe an input that is not text; for compression other than gzip, name the command that unpacks it."""
    for magic, what, command in PACKED:
        if head.startswith(magic):
            return "%s: packed by %s, which is not supported: unpack it, %s FILE | seatrial explain -" % (
                name,
                what,
                command,
            )
    if ARCHIVE.match(head):
        return "%s: a tar archive: unpack it, and name the folder" % name
    return "%s: not a log: this looks like binary data" % name


def _file(path: str | None, name: str, tell: Callable[[str], None] | None, progress: bool) -> Iterator[bytes]:
    """Yield the chunks of a file, or of standard input without a path."""
    if path is None:
        yield from _chunks(_endless(sys.stdin.buffer, "standard input", tell, progress), "standard input", None, tell)
        return
    opened = False
    try:
        with open(path, "rb") as file:  # a FIFO opens when a process writes to it
            opened = True
            status = os.fstat(file.fileno())
            size = status.st_size if stat.S_ISREG(status.st_mode) else 0  # /proc's files report size 0 but have content
            yield from _chunks(file if size else _endless(file, name, tell, progress), name, size or None, tell)
    except KeyboardInterrupt:
        if tell is None or opened:
            raise
        raise NcclLogError("%s: interrupted; this pipe received no data" % name) from None
    except OSError as error:
        raise NcclLogError("%s: %s" % (name, _why(error))) from error


def _chunks(file: Any, name: str, size: int | None, tell: Callable[[str], None] | None = None) -> Iterator[bytes]:
    """Yield chunks of one stream, unpacked and as UTF-8; raise for an empty or a binary stream.

    ``size`` is the file's size when it was opened, None for a stream without one.
    """
    pieces = _pieces(file, size)
    first = b""
    while len(first) < 4 and (more := next(pieces, b"")):
        first += more
    pieces = chain([first] if first else [], pieces)
    if first[:2] == b"\x1f\x8b":
        pieces = _whole_lines(_inflate(pieces, name))
    elif size is None:
        pieces = _bounded(pieces, name, tell)
    taken = 0
    decoder = None
    for chunk in pieces:
        if not taken:
            if is_binary(chunk) or ARCHIVE.match(chunk):
                raise NcclLogError(_why_no_log(chunk, name))
            if chunk[:4] in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE):
                decoder = codecs.getincrementaldecoder("utf-32")("replace")
            elif chunk[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):  # PowerShell's ">" writes UTF-16
                decoder = codecs.getincrementaldecoder("utf-16")("replace")
        taken += len(chunk)
        yield decoder.decode(chunk).encode("utf-8", "replace") if decoder else chunk
    if not taken:
        raise NcclLogError("%s: the log is empty; was NCCL_DEBUG=INFO set, and did the job write here?" % name)


def _pieces(file: Any, size: int | None) -> Iterator[bytes]:
    """Yield the bytes of a stream; of a file no more than its size when opened, since its job may write faster."""
    read = getattr(file, "read1", file.read)  # the bytes available now, so that a growing pipe is followed
    left = CHUNK if size is None else size
    while chunk := read(min(CHUNK, left)):
        left -= 0 if size is None else len(chunk)
        yield chunk


def _bounded(pieces: Iterator[bytes], name: str, tell: Callable[[str], None] | None) -> Iterator[bytes]:
    """Yield the chunks of a stream that may have no end, up to a bound and the end of a line."""
    taken = 0
    for chunk in pieces:
        taken += len(chunk)
        yield chunk if taken < MAX_ENDLESS else chunk[: chunk.rfind(b"\n") + 1]
        if taken >= MAX_ENDLESS:
            if tell is not None:
                tell("%s: %d MB were read of an input that continues; these are judged" % (name, taken // 1_000_000))
            yield ENOUGH
            return


def _whole_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield chunks without the half line of truncated data: 2.28.9 truncated to 2.2 is another version."""
    held = b""
    for chunk in chunks:
        if held:
            yield held[: held.rfind(b"\n") + 1] if chunk == CUT else held
        held = chunk
    if held:
        yield held


def _inflate(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Decompress gzip, including consecutive members, and reject a bomb."""
    packed = produced = 0
    member = 0  # bytes of the present member
    begun = True  # a member has begun and not ended
    unpacker = zlib.decompressobj(31)
    for piece in pieces:
        chunk = piece
        packed += len(chunk)
        begun = True
        while chunk:
            try:
                out = unpacker.decompress(chunk, CHUNK)
            except zlib.error:
                if not produced:
                    raise NcclLogError("%s: damaged gzip data" % name) from None
                if member:
                    yield CUT  # damaged: the bytes before are still a log
                return  # damaged, or padded after its end
            produced += len(out)
            member += len(out)
            if produced > INFLATE_GRACE and produced > packed * MAX_INFLATE_RATIO:
                raise NcclLogError(
                    "%s: unpacks to more than %d times its size; unpack it yourself if it is a log"
                    % (name, MAX_INFLATE_RATIO)
                )
            if out:
                yield out
            chunk = unpacker.unconsumed_tail
            if unpacker.eof:
                chunk = unpacker.unused_data.lstrip(b"\x00")
                unpacker, member, begun = zlib.decompressobj(31), 0, bool(chunk)
    if begun:  # a file truncated during a copy: its last line counts as torn
        yield CUT
