"""System calls for building a container that Python has no wrappers for.

Only calls that the kernel allows an unprivileged user inside their own user namespace (namespaces(7),
user_namespaces(7)); numbers are those of <sched.h>, <sys/mount.h> and <linux/prctl.h>, equal on all 64-bit Linux.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
DETACH = 2
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38
MAX_MESSAGE = 1 << 20

libc = ctypes.CDLL(None, use_errno=True)
libc.mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]


def call(name: str, *args: str | bytes | int | None) -> None:
    """Call a C library function that returns -1 on failure; raise OSError naming the call and its paths."""
    native = [os.fsencode(arg) if isinstance(arg, str) else arg for arg in args]
    if getattr(libc, name)(*native) < 0:
        number = ctypes.get_errno()
        what = " ".join(os.fsdecode(arg) for arg in native if isinstance(arg, bytes))
        raise OSError(number, os.strerror(number), f"{name} {what}".strip())


def mount(source: str | None, target: str, fstype: str | None = None, flags: int = 0, data: str | None = None) -> None:
    """Mount; for binds `fstype` is None."""
    call("mount", source, target, fstype, flags, data)


def mount_fresh(fstype: str, target: str, flags: int = 0) -> None:
    """Mount a new kernel file system; if a container's masked /proc forbids it, the old one stays."""
    try:
        mount(fstype, target, fstype, flags | NOSUID | NODEV | NOEXEC)
    except OSError as error:
        if error.errno != errno.EPERM:
            raise


def prctl(option: int, argument: int) -> int:
    """Change an attribute of this process; 0 on success."""
    return int(libc.prctl(option, argument, 0, 0, 0))


def receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """Read a message and its descriptors, which containers must not inherit (recv_fds drops MSG_CMSG_CLOEXEC)."""
    data, fds, _, _ = socket.recv_fds(sock, MAX_MESSAGE, 4)
    for fd in fds:
        os.set_inheritable(fd, False)
    return data, fds
