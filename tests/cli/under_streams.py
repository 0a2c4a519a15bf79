"""An interpreter started by Python with certain streams, from which commands are forked.

A command gets the streams as Python set them up at its start, and ends like an interpreter. Only the imports, most of a
short command's time, are done once. A simulated run's cluster is forked, as in tests/program.py.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import runpy
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 1 << 16
"""Size in bytes of a command's arguments."""
IMPORTED = ("cli", "jobs.run", "checks.rules", "reports", "lab")


class Interpreter:
    """A started interpreter. Its commands run one after the other."""

    def __init__(self, redirected: str, environment: Mapping[str, str], *, stdout: int) -> None:
        """Start it with streams redirected by a shell; `stdout` is a file, or subprocess.PIPE for a separate one per
        command."""
        self._line, theirs = socket.socketpair()
        self._line.settimeout(HANG_S)
        own = {
            1: stdout == subprocess.PIPE and not {">&-", ">/dev/full"} & {*redirected.split()},
            2: "2>" not in redirected,
        }
        self._own = [number for number, is_own in own.items() if is_own]
        arguments = [sys.executable, "-m", __name__, str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                ["sh", "-c", f'exec "$@" {redirected}', "sh", *arguments],
                cwd=ROOT,
                env={**os.environ, **environment},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if stdout == subprocess.PIPE else stdout,
            )

    def run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        outputs = {number: tempfile.TemporaryFile() for number in self._own}  # noqa: SIM115
        told = json.dumps([arguments, self._own]).encode()
        assert len(told) < LONGEST
        socket.send_fds(self._line, [told], [file.fileno() for file in outputs.values()])
        code = self._line.recv(LONGEST)
        assert code, "the interpreter has ended"
        said = {}
        for number, file in outputs.items():
            with file:
                file.seek(0)
                said[number] = file.read().decode("utf-8", "replace")
        return subprocess.CompletedProcess([*arguments], int(code), said.get(1, ""), said.get(2, ""))

    def close(self) -> None:
        """End it."""
        self._line.close()
        self._process.wait(HANG_S)


def _lead(line: socket.socket) -> None:
    """Fork a command for each order, until there is no reader."""
    while True:
        told, outputs, _, _ = socket.recv_fds(line, LONGEST, 2)
        if not told:
            return
        arguments, numbers = json.loads(told)
        pid = os.fork()
        if pid == 0:
            line.close()
            for given, number in zip(outputs, numbers, strict=True):
                os.dup2(given, number)
                os.close(given)
            sys.argv = ["checks", *arguments]
            runpy.run_module("checks", run_name="__main__", alter_sys=True)
            return
        for given in outputs:
            os.close(given)
        _, status = os.waitpid(pid, 0)
        line.send(str(os.waitstatus_to_exitcode(status)).encode())


def _import() -> None:
    """Import the modules of commands and the cluster."""
    for package in map(importlib.import_module, IMPORTED):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "fakes" not in module.name.split("."):
                importlib.import_module(module.name)
    importlib.import_module("tests.forkedpods")
    program = importlib.import_module("tests.program")
    simulation = importlib.import_module("checks.framework.simulation")
    forked = {"Popen": program.ForkedLab, "PIPE": subprocess.PIPE, "TimeoutExpired": subprocess.TimeoutExpired}
    vars(simulation)["subprocess"] = SimpleNamespace(**forked)
    gc.freeze()  # objects that a command need not finalise at its end


if __name__ == "__main__":
    given = int(sys.argv[1])
    # No file of the interpreter may get the number of a closed stream.
    number = os.dup2(given, 100, inheritable=False)
    os.close(given)
    _import()
    _lead(socket.socket(fileno=number))
