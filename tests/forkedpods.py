"""Python programs of the tests' pods, forked from a process that has imported the standard library.

The agent of an embedded cluster is a fork of the cluster's process here. The agent forks for a container that runs
`python3 FILE` or a stand-in (tests/forkedscripts.py). The child starts no interpreter but continues as one, with only
the standard library of the earlier imports. Any other command is executed as usual. That halves the start time of a
pod's program, since the patterns that it compiles are also kept (`re`).
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from pathlib import Path
from typing import NoReturn, Self

from lab.node.network import client, launcher, process, syscalls
from tests import forkedscripts, interpreter

STATEFUL = ("asyncio", "concurrent", "logging", "multiprocessing", "warnings", "__main__")
_execute, _launch = process.Child.become, client.launch


def install() -> None:
    """Make the cluster of this process start such pods, before any threads start, which a fork does not inherit."""
    vars(client)["launch"] = _Launcher().launch


class _Launcher:
    """The launcher of a cluster's agent, which waits for orders: the part of subprocess.Popen that the cluster uses."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair()
        self._launched = False
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._line.close()
                _lead(theirs)
            finally:
                os._exit(1)
        theirs.close()

    def launch(self, control: int, mode: str, keep: list[str]) -> Self | subprocess.Popen[bytes]:
        """Start the launcher; a second network of this process has an ordinary launcher."""
        if self._launched:
            return _launch(control, mode, keep)
        self._launched = True
        socket.send_fds(self._line, [json.dumps([mode, keep]).encode()], [control])
        return self

    def wait(self) -> None:
        """Wait for its end."""
        os.waitpid(self._pid, 0)

    def kill(self) -> None:
        """Send SIGKILL."""
        os.kill(self._pid, signal.SIGKILL)


def _lead(line: socket.socket) -> None:
    parent = os.getppid()
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    order, descriptors, _, _ = socket.recv_fds(line, syscalls.MAX_MESSAGE, 1)
    if not descriptors:  # the cluster has no network, or has ended
        os._exit(0)
    os.closerange(3, descriptors[0])
    os.closerange(descriptors[0] + 1, os.sysconf("SC_OPEN_MAX"))
    only_the_library()
    vars(process)["Child"].become = become
    mode, keep = json.loads(order)
    launcher.main(descriptors[0], parent, mode, keep)


def only_the_library() -> None:
    """Remove all modules of this process except for the standard library."""
    faulthandler.disable()  # enabled by pytest
    interpreter.restore_signals()
    sys.excepthook, threading.excepthook = sys.__excepthook__, threading.__excepthook__
    sys.unraisablehook = sys.__unraisablehook__
    sys.meta_path[:] = [BuiltinImporter, FrozenImporter, PathFinder]
    atexit._clear()
    interpreter.keep(sys.stdin, sys.stdout, sys.stderr, *sys.modules.values())
    for name in list(sys.modules):
        package = name.partition(".")[0]
        if package not in sys.stdlib_module_names or package in STATEFUL:
            del sys.modules[name]
    gc.freeze()


def become(child: process.Child, argv: list[str], env: dict[str, str]) -> NoReturn:
    """Continue as the command of a container, after `only_the_library`."""
    path = shutil.which(argv[0], path=env.get("PATH"))
    stand_in = bool(path) and forkedscripts.is_stand_in(Path(path or ""))
    forkable = stand_in or interpreter.runs_file(path or "", argv, env)
    if not path or not forkable or interpreter.memory_is_limited():
        _execute(child, argv, env)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # including the status pipe: the container has started
    try:
        _keep_rights_of_an_exec()
        vars(subprocess)["_fork_exec"] = forkedscripts.start
        vars(subprocess)["_USE_POSIX_SPAWN"] = False  # preferred since 3.13, but cannot be replaced
        forkedscripts.go_on(path, argv, env, stand_in=stand_in)
    finally:
        os._exit(1)


def _keep_rights_of_an_exec() -> None:
    """Keep the capabilities of an exec: root's bounding set, none for any other user (capabilities(7), capset(2))."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    capabilities = int(status["CapBnd"], 16) & int(status["CapPrm"], 16) if os.geteuid() == 0 else 0
    low, high = capabilities & 0xFFFFFFFF, capabilities >> 32
    version = 0x20080522  # _LINUX_CAPABILITY_VERSION_3
    syscalls.call("capset", struct.pack("Ii", version, 0), struct.pack("6I", low, low, 0, high, high, 0))
