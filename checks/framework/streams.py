"""Standard output and standard error of a command: any encoding, closed, on a full disk, a pipe without a reader.

Failed writes never end a run before its clean-up and report. The exit code is not 0 if output was lost: that would be a
pass without a readable report.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

INTERNAL = 3
"""pytest's exit code for an error of the program itself."""
BROKEN_PIPE = 141
"""128 + SIGPIPE: a shell's exit code for a program whose pipe was closed, as in `seatrial checks | head -1`."""
PLAIN = {"·": "-", "…": "...", "→": "->", "←": "<-", "≥": ">=", "≤": "<=", "±": "+-", "\u00d7": "x", "µ": "u"}
"""ASCII replacements of the characters in our own texts, for terminals that support ASCII only."""
ERRORS = "seatrial-plain"


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Encode characters outside an encoding as ASCII: replacements for our own characters, escapes for all others."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(PLAIN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in text), error.end


def begins(scenario: str) -> str:
    """Return the commands of a first run on the embedded cluster."""
    return f"starting the embedded cluster ({scenario})"


class Tolerant(io.FileIO):
    """A file descriptor that accepts all writes: output after the first failure is discarded."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self.failed: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        """Write the bytes, or store the error."""
        if self.failed is None:
            try:
                return super().write(data) or 0
            except BlockingIOError:
                raise
            except OSError as error:
                self.failed = error
        return memoryview(data).nbytes


class Output:
    """The state of the two streams of a command."""

    def __init__(self) -> None:
        self.raw: dict[int, Tolerant] = {}

    def code(self, code: int, *, reported: bool = False) -> int:
        """Return the exit code: that of the command, unless it is 0 and its output was lost.

        ``reported``: the command also writes its result to a folder, which is complete.
        """
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        failed = self.raw[1].failed if 1 in self.raw else None
        if failed is None:
            return code
        if reported:
            print(f"seatrial: standard output was lost ({failed.strerror}); the report is complete", file=sys.stderr)
            return code
        if failed.errno != errno.EPIPE:
            print(f"seatrial: standard output could not be written: {failed.strerror}", file=sys.stderr, flush=True)
        return code or (BROKEN_PIPE if failed.errno == errno.EPIPE else INTERNAL)


@contextlib.contextmanager
def tolerant() -> Iterator[Output]:
    """Make this process's own streams tolerant; streams that a caller replaced are left unchanged."""
    output = Output()
    _fill()
    before = sys.stdout, sys.stderr
    codecs.register_error(ERRORS, _plain)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is not getattr(sys, f"__{name}__"):
            continue
        raw = output.raw[number] = Tolerant(number)
        with contextlib.suppress(OSError):
            stream.flush()
        setattr(
            sys,
            name,
            io.TextIOWrapper(
                cast("Any", io.BufferedWriter(raw)),
                encoding=stream.encoding,
                errors=ERRORS,
                line_buffering=number == 2 or raw.isatty() or stream.write_through,
            ),
        )
    try:
        yield output
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        sys.stdout, sys.stderr = before


def _fill() -> None:
    """Open those of the descriptors 0, 1 and 2 that are closed: the next file or socket would take that number.

    Python has no stream for a descriptor that was closed at its start, not even in ``sys.__stdout__``, which pytest
    uses.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, f"__{name}__") is None:
            stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, f"__{name}__", stream)
            setattr(sys, name, getattr(sys, name) or stream)
