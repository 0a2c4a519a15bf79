"""A `seatrial` for shells and scripts whose runs are forked, as in tests/program.py.

A separate interpreter would import the libraries, which takes most of a short run's time.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tests.program import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENT = """
import json, os, socket, struct, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect({address!r})
    socket.send_fds(line, [b"."], [0, 1, 2])
    told = json.dumps({{"arguments": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}}).encode()
    line.sendall(struct.pack("I", len(told)) + told)
    (code,) = struct.unpack("i", line.recv(4, socket.MSG_WAITALL))
os._exit(code if code >= 0 else 128 - code)
"""
"""Passes on its streams, arguments, environment and folder, and ends like the run: by a signal as a shell reports it.
"""


@contextlib.contextmanager
def installed() -> Iterator[list[str]]:
    """Yield the arguments with which a shell runs `seatrial` during the block."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as door:
        address, client = str(Path(folder, "door")), Path(folder, "client.py")
        client.write_text(CLIENT.format(address=address), encoding="utf-8")
        door.bind(address)
        door.listen()
        threading.Thread(target=_let_in, args=(door,)).start()
        try:
            yield [sys.executable, "-I", "-S", str(client)]
        finally:
            door.shutdown(socket.SHUT_RD)  # which ends the thread


def _let_in(door: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            line, _ = door.accept()
            threading.Thread(target=_run, args=(line,), daemon=True).start()


def _run(line: socket.socket) -> None:
    with line:
        _, streams, _, _ = socket.recv_fds(line, 1, 3)
        (size,) = struct.unpack("I", line.recv(4, socket.MSG_WAITALL))
        asked = json.loads(line.recv(size, socket.MSG_WAITALL))
        stdin, stdout, stderr = streams
        arguments, folder = ["checks", *asked["arguments"]], Path(asked["cwd"])
        run = Program(arguments, env=asked["env"], cwd=folder, stdin=stdin, stdout=stdout, stderr=stderr)
        for stream in streams:
            os.close(stream)
        with contextlib.suppress(OSError):  # the caller has ended
            line.sendall(struct.pack("i", run.wait()))
