"""The output of the pod's evidence: numbered JSON lines on stdout and one short termination message.

The kubelet rotates and may truncate container logs, and splits lines longer than 16 KiB. So no line is longer than 8
KiB, every line has its number, and larger data is split into numbered parts.
"""

from __future__ import annotations

import json
import os
import threading
from typing import Any, Dict, List

MAX_LINE_BYTES = 8192  # with its newline; half of the 16 KiB at which containerd's CRI log splits a line
MAX_MESSAGE_BYTES = 4096  # the kubelet truncates here (kubernetes.io, "Customizing the termination message")
TERMINATION_LOG = "/dev/termination-log"


class Writer:
    """A writer that numbers, splits and flushes evidence lines; safe to use from several threads."""

    def __init__(self, run: str, rank: int, descriptor: int = 1, message_path: str = TERMINATION_LOG) -> None:
        self.run = run
        self.rank = rank
        self.count = 0
        self.stages: Dict[str, str] = {}
        self._descriptor = descriptor
        self._message_path = message_path
        self._lock = threading.Lock()

    def stage(self, name: str, seconds: float, data: Dict[str, Any], status: str) -> None:
        """Print one stage's data, in parts if it is large, and remember its status for the termination message."""
        text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), default=str)
        with self._lock:
            self.stages[name] = status
            head = {"seatrial": 1, "run": self.run, "rank": self.rank, "n": self.count + 1, "stage": name}
            head["seconds"] = round(seconds, 3)
            whole = json.dumps(head, separators=(",", ":"))[:-1] + ',"data":' + text + "}\n"
            if len(whole) <= MAX_LINE_BYTES:
                self.count += 1
                self._write(whole)
                return
            for part, parts, chunk in _cut(text, MAX_LINE_BYTES - len(json.dumps(head)) - 64):
                self.count += 1
                head.update({"n": self.count, "part": part, "parts": parts})
                self._write(json.dumps(head, separators=(",", ":"))[:-1] + ',"chunk":"' + chunk + '"}\n')

    def say(self, text: str) -> None:
        """Print one human-readable progress line (never in the form of evidence)."""
        plain = "".join(char if char.isprintable() else " " for char in text)[:400]
        with self._lock:
            self._write("seatrial rank %d: %s\n" % (self.rank, plain.encode("ascii", "replace").decode("ascii")))

    def message(self) -> None:
        """Write the termination message; a missing (or full) file is not a failure."""
        stages = dict(self.stages)
        while True:
            document = {"seatrial": 1, "run": self.run, "rank": self.rank, "lines": self.count, "stages": stages}
            text = json.dumps(document, separators=(",", ":"))
            if len(text) <= MAX_MESSAGE_BYTES or not stages:
                break
            stages.popitem()
        try:  # the kubelet creates it; creating it here would leave a file on a machine without a kubelet
            descriptor = os.open(self._message_path, os.O_WRONLY | os.O_TRUNC)
        except OSError:
            return
        try:
            os.write(descriptor, text.encode("ascii"))
        except OSError:  # the log has the same content, line by line
            pass
        finally:
            os.close(descriptor)

    def _write(self, text: str) -> None:
        rest = text.encode("ascii")
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:  # the reader is gone; the termination message may still be written
            return


def _cut(text: str, room: int) -> List[Any]:
    """Split ASCII JSON text into (part, parts, escaped chunk), each chunk at most `room` bytes once escaped."""
    escaped = json.dumps(text)[1:-1]  # in ASCII JSON text only '"' and '\\' are escaped, each to two characters
    pieces = []
    start = 0
    while start < len(escaped):
        end = min(start + room, len(escaped))
        trailing = len(escaped[start:end]) - len(escaped[start:end].rstrip("\\"))
        if trailing % 2 and end < len(escaped):
            end -= 1  # never between a backslash and the escaped character
        pieces.append(escaped[start:end])
        start = end
    return [(index + 1, len(pieces), piece) for index, piece in enumerate(pieces)]
