"""Capture of a command's output in a file of bounded size; the middle of longer output is dropped.

A full pipe never blocks the command, and endless output fills neither memory nor disk.
"""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from io import RawIOBase
from typing import IO, Deque, Dict, List

HEAD_BYTES = 32 << 20
TAIL_BYTES = 4 << 20
# Patterns of lines with the cause of an exit: our bench, Python (torch prefixes the rank), nccl-tests, the loader.
# torchrun's own ChildFailedError and table of exit codes are consequences.
_CAUSE = re.compile(
    r"# seatrial bench: rank \S+ failed: .*"
    r"|^(?:\[rank\d+\]: )?(?!\S*ChildFailedError)(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): .*"
    r"|Test (?:NCCL|CUDA) failure .*|\bNCCL WARN .*|^Fatal Python error.*|.*error while loading shared libraries.*",
    re.MULTILINE,
)
_FEW, _SHOWN = 8, 300


class Capture:
    """A thread that copies a pipe into a file."""

    def __init__(self, pipe: IO[bytes], path: str, head: int = HEAD_BYTES, tail: int = TAIL_BYTES) -> None:
        self.path = path
        self.bytes = 0
        self._pipe, self._head, self._tail = pipe, head, tail
        self._recent: Deque[bytes] = deque()  # the latest blocks, for progress, for the evidence and for the file's end
        self._recent_bytes = 0
        self._ignoring = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def last(self, size: int) -> str:
        """Return the end of the output."""
        with self._lock:
            return self._end(size).decode("utf-8", "replace")

    def tail(self, size: int) -> str:
        """Return the end of the output, with earlier lines that show a cause if a launcher's messages follow them."""
        end = self.last(size)
        try:
            with open(self.path, "rb") as file:
                said = causes(file.read(TAIL_BYTES).decode("utf-8", "replace"))
        except OSError:
            said = []
        earlier = "\n".join(line for line in said if line not in end)
        return "%s\n[...]\n%s" % (earlier, end[-max(0, size - len(earlier)) :]) if earlier else end

    def last_line(self) -> str:
        """Return the last non-empty line."""
        lines = [line for line in self.last(2000).splitlines() if line.strip()]
        return lines[-1].strip()[:160] if lines else ""

    def ignore_rest(self) -> None:
        """Drain the pipe without keeping the output: messages during termination are not the command's results."""
        self._ignoring = True

    def finish(self, timeout_s: float) -> None:
        """Wait until the output has ended and the file is complete."""
        self._thread.join(timeout=timeout_s)

    def _copy(self) -> None:
        written = 0
        with self._pipe, open(self.path, "wb", buffering=0) as file:
            while True:
                block = os.read(self._pipe.fileno(), 65536)
                if not block:
                    break
                if self._ignoring:
                    continue
                written += _write(file, block[: max(0, self._head - written)])
                with self._lock:
                    self.bytes += len(block)
                    self._remember(block)
            missing = self.bytes - written
            if missing:
                end = self._end(min(missing, self._tail))
                if missing > len(end):
                    _write(file, b"\n# seatrial left out %d bytes of output here\n" % (missing - len(end)))
                _write(file, end)

    def _remember(self, block: bytes) -> None:
        self._recent.append(block)
        self._recent_bytes += len(block)
        while self._recent_bytes - len(self._recent[0]) >= self._tail:
            self._recent_bytes -= len(self._recent.popleft())

    def _end(self, size: int) -> bytes:
        blocks, read = [], 0
        for block in reversed(self._recent):
            if read >= size:
                break
            blocks.append(block)
            read += len(block)
        return b"".join(reversed(blocks))[-size:]


def causes(text: str) -> List[str]:
    """Return the lines with the cause of an exit, the first of each kind: other ranks' differ only in numbers."""
    by_form: Dict[str, str] = {}
    for match in _CAUSE.finditer(text):
        line = match.group().strip()[:_SHOWN]
        by_form.setdefault(re.sub(r"\d+", "0", line), line)
        if len(by_form) == _FEW:
            break
    return list(by_form.values())


def _write(file: RawIOBase, block: bytes) -> int:
    """Write as much as the disk holds; when it is full, still drain the output and keep its end."""
    try:
        return file.write(block) or 0
    except OSError:
        return 0
