"""Descendant processes and their termination: no rank of a dead collective keeps a GPU busy.

torchrun starts its workers in their own sessions: killing its process group misses them. The probe adopts orphans
(PR_SET_CHILD_SUBREAPER, or as PID 1), so that walking /proc finds every descendant. Each is terminated by its id.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Dict, List, Optional

from .files import content

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def adopt_orphans() -> bool:
    """Make orphaned grandchildren children of this process; return False if the platform cannot."""
    if os.getpid() == 1:
        return True
    try:
        import ctypes  # noqa: PLC0415  (some minimal Pythons are built without it)

        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def descendants(root: int) -> List[int]:
    """Return the ids of all processes below `root`, children before grandchildren."""
    below: Dict[int, List[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            below.setdefault(_parent(int(name)), []).append(int(name))
    pids: List[int] = []
    rest = [root]
    while rest:
        children = below.get(rest.pop(), [])
        pids += children
        rest += children
    return pids


def end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Terminate a process and all descendants of this one: SIGTERM, SIGKILL after `grace_s`, then reap them."""
    if process.poll() is None:
        _signal([process.pid], signal.SIGTERM)  # torchrun terminates its workers itself on SIGTERM
        try:
            process.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            pass
    kill_all(5, process)


def kill_all(limit_s: float, process: Optional[subprocess.Popen[bytes]] = None) -> None:
    """Kill every descendant and reap it; after `limit_s` leave those that cannot be killed (stuck in the kernel)."""
    limit = time.monotonic() + limit_s
    while True:
        running = [pid for pid in descendants(os.getpid()) if not _reap(pid, process)]
        if not running or time.monotonic() >= limit:
            return
        _signal(running, signal.SIGKILL)
        time.sleep(0.02)


def _signal(pids: List[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:  # it has exited by itself
            continue


def _reap(pid: int, process: Optional[subprocess.Popen[bytes]]) -> bool:
    """Reap a dead child; return True if it is dead (or not our child)."""
    if process is not None and pid == process.pid:
        return process.poll() is not None
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # a grandchild with a living parent: a zombie is dead, any other state is running
        return _state(pid) in ("Z", "")


def _stat(pid: int) -> List[str]:
    """Return the fields of /proc/PID/stat after the name, which may contain blanks and brackets."""
    return content("/proc/%d/stat" % pid, 4096).decode("utf-8", "replace").rpartition(")")[2].split()


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 else -1


def _state(pid: int) -> str:
    return (_stat(pid) or [""])[0]
