"""The descendants of a process, and their termination."""
# ruff: noqa: PTH208, PTH123
# (importing pathlib would double the time in which the agent starts)

from __future__ import annotations

import contextlib
import os
import signal
import time


def processes() -> list[tuple[int, int, int]]:
    """Return (pid, parent, session) of every visible process."""
    running = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{entry}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
            running.append((int(entry), int(fields[1]), int(fields[3])))
    return running


def resident(pid: int) -> int:
    """Return the resident bytes of a process; 0 after its end."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def kill_descendants() -> None:
    """Kill all descendants of this process, repeatedly until there are none: they may be forking."""
    while True:
        family = {os.getpid()}
        table = processes()
        for _ in range(len(table)):
            grown = family | {pid for pid, parent, _ in table if parent in family}
            if grown == family:
                break
            family = grown
        family.discard(os.getpid())
        if not family:
            return
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.001)  # ends when there are none: SIGKILL cannot be blocked
