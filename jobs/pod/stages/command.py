"""Execution of a short command with a deadline and bounded output.

A process stuck in the driver (state D) cannot be killed: so nothing here waits without a limit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from typing import IO, Callable, List, Mapping, Optional, Sequence

STEP_S = 0.05


class Answer:
    """The result of a command: `exit` is None if it could not be started or did not end."""

    def __init__(self) -> None:
        self.exit: Optional[int] = None
        self.out = b""
        self.err = b""
        self.error = ""


def run(
    argv: Sequence[str],
    timeout_s: float,
    limit: int,
    env: Optional[Mapping[str, str]] = None,
    over: Optional[Callable[[], bool]] = None,
) -> Answer:
    """Run `argv`; keep at most `limit` bytes of each stream, and kill its process group at the deadline.

    `over` is polled; once it is true, the command is killed before its deadline.
    """
    answer = Answer()
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=None if env is None else dict(env),
        )
    except (OSError, ValueError) as error:
        answer.error = "cannot start %s: %s" % (argv[0], getattr(error, "strerror", None) or error)
        return answer
    buffers: List[bytearray] = [bytearray(), bytearray()]
    readers = []
    for stream, buffer in zip((process.stdout, process.stderr), buffers):
        reader = threading.Thread(target=_drain, args=(stream, buffer, limit), daemon=True)
        reader.start()
        readers.append(reader)
    ends = time.monotonic() + timeout_s
    try:
        answer.exit = process.wait(timeout_s) if over is None else _wait(process, ends, over)
    except subprocess.TimeoutExpired:
        early = over is not None and time.monotonic() < ends  # killed by us: it shows nothing about the program
        answer.error = "%s %s" % (argv[0], "was stopped" if early else "did not end within %.0f s" % timeout_s)
        _kill(process)
    for reader in readers:
        reader.join(timeout=2)
    answer.out, answer.err = bytes(buffers[0]), bytes(buffers[1])
    if len(answer.out) >= limit:
        answer.error = answer.error or "%s printed more than %d bytes" % (argv[0], limit)
    return answer


def _wait(process: subprocess.Popen[bytes], ends: float, over: Callable[[], bool]) -> int:
    """Return the exit code; raise TimeoutExpired at the deadline, or when `over` is true."""
    while True:
        try:
            return process.wait(timeout=STEP_S)
        except subprocess.TimeoutExpired:
            if over() or time.monotonic() >= ends:
                raise


def _drain(stream: Optional[IO[bytes]], buffer: bytearray, limit: int) -> None:
    """Read to the end and keep the beginning: a full pipe would block the command."""
    if stream is None:
        return
    with stream:
        while True:
            block = os.read(stream.fileno(), 65536)
            if not block:
                return
            buffer.extend(block[: max(0, limit - len(buffer))])


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:  # the process group is empty
        pass
    try:
        process.wait(timeout=2)
    except subprocess.TimeoutExpired:  # uninterruptible in the kernel: leave it
        return
