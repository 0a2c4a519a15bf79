"""The processes below this one, and how all of them are ended: no rank of a dead collective keeps a GPU busy.

torchrun starts its workers in sessions of their own: killing its process group misses them. The probe adopts orphans
(PR_SET_CHILD_SUBREAPER, or being PID 1), so that walking /proc finds every descendant, and each is ended by its id.
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
    """Make orphaned grandchildren children of this process; False where the platform cannot."""
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
    """End the process and all that this one has below it: asked first, killed after `grace_s`, reaped at last."""
    if process.poll() is None:
        _signal([process.pid], signal.SIGTERM)  # torchrun ends its workers itself when asked
        try:
            process.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            pass
    kill_all(5, process)


def kill_all(limit_s: float, process: Optional[subprocess.Popen[bytes]] = None) -> None:
    """Kill every descendant and reap it; what cannot be killed (stuck in the kernel) is left after `limit_s`."""
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
        except OSError:  # it ended by itself
            continue


def _reap(pid: int, process: Optional[subprocess.Popen[bytes]]) -> bool:
    """Take a dead child off the table; True when it is dead (or not ours to take)."""
    if process is not None and pid == process.pid:
        return process.poll() is not None
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # a grandchild with a living parent: zombies are dead, the rest is running
        return _state(pid) in ("Z", "")


def _stat(pid: int) -> List[str]:
    """Return the fields of /proc/PID/stat after the name, which may itself hold blanks and brackets."""
    return content("/proc/%d/stat" % pid, 4096).decode("utf-8", "replace").rpartition(")")[2].split()


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 else -1


def _state(pid: int) -> str:
    return (_stat(pid) or [""])[0]
