"""Run a command as an ordinary user, on a machine that lacks a feature: `machine.py CONDITION... -- COMMAND...`.

root becomes an unprivileged user with access to this Python and this checkout. Each condition is that of a real
machine, in namespaces of this process only. Exit code 77: this kernel grants no such namespaces.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NOBODY = 65534
NEWNS, NEWUSER = 0x20000, 0x10000000
RDONLY, REMOUNT, BIND, REC, PRIVATE = 1, 32, 4096, 16384, 1 << 18
NOT_HERE = 77
DUMPABLE, SECCOMP, NO_NEW_PRIVS = 4, 22, 38  # <linux/prctl.h>
CALLS = {"x86_64": {"mount": 165, "setns": 308}, "aarch64": {"mount": 40, "setns": 268}}  # <asm/unistd.h>

libc = ctypes.CDLL(None, use_errno=True)
libc.mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]


def call(name: str, *given: str | int | None) -> None:
    """Call a function of the C library; raise OSError if it fails."""
    if getattr(libc, name)(*(each.encode() if isinstance(each, str) else each for each in given)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)


def own_user_namespace(more: int = 0) -> None:
    """Enter a user namespace in which this user has the same id and all capabilities, until the next exec."""
    ids = os.getuid(), os.getgid()
    call("unshare", NEWUSER | more)
    for name, text in ("setgroups", "deny"), ("uid_map", f"{ids[0]} {ids[0]} 1"), ("gid_map", f"{ids[1]} {ids[1]} 1"):
        Path("/proc/self", name).write_text(text)


def show(folders: set[str]) -> None:
    """Give every user access to folders below folders that only root may enter; other content there is hidden."""
    closed: dict[str, list[tuple[str, int]]] = {}
    for folder in sorted(folders):
        for above in reversed(Path(folder).parents):
            if not above.stat().st_mode & 1:
                closed.setdefault(str(above), []).append((folder, os.open(folder, os.O_PATH)))
                break
    for shut, kept in closed.items():
        call("mount", "tmpfs", shut, "tmpfs", 0, "mode=755")
        for name, there in kept:
            Path(name).mkdir(parents=True, exist_ok=True)
            call("mount", f"/proc/self/fd/{there}", name, None, BIND | REC, None)


def without_shm() -> None:
    """Provide a /dev without shm, as in some containers."""
    names = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "fd", "stdin", "stdout", "stderr")
    there = {name: os.open(f"/dev/{name}", os.O_PATH) for name in names if Path("/dev", name).exists()}
    links = {name: Path("/dev", name).readlink() for name in names if Path("/dev", name).is_symlink()}
    call("mount", "tmpfs", "/dev", "tmpfs", 0, "mode=755")
    for name, number in there.items():
        point = Path("/dev", name)
        if name in links:
            point.symlink_to(links[name])
            continue
        point.mkdir() if name == "pts" else point.touch()
        call("mount", f"/proc/self/fd/{number}", str(point), None, BIND, None)


def read_only_home() -> None:
    """Provide a home that no user can write."""
    home = os.environ["HOME"]
    call("mount", home, home, None, BIND, None)
    call("mount", None, home, None, REMOUNT | BIND | RDONLY, None)


def refuse(name: str, flag: int = 0) -> None:
    """Make a system call fail with "Permission denied", like a security module or a container's filter.

    `flag`: only if its fourth argument, the flags of mount(2), contains it.
    """
    load, if_equal, if_at_least, if_set, answer = 0x20, 0x15, 0x35, 0x45, 0x06  # <linux/bpf_common.h>
    denied, allowed = 0x50000 | errno.EACCES, 0x7FFF0000  # <linux/seccomp.h>, which also documents the offsets
    rules = [
        (load, 0, 0, 0),
        (if_equal, 0, 3, CALLS[os.uname().machine][name]),
        (load, 0, 0, 40),
        (if_set if flag else if_at_least, 0, 1, flag),
        (answer, 0, 0, denied),
        (answer, 0, 0, allowed),
    ]
    kept = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
    program = struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(kept))
    call("prctl", NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p]
    if libc.prctl(SECCOMP, 2, program):
        raise OSError(ctypes.get_errno(), "seccomp")


def main(conditions: list[str], command: list[str]) -> None:
    """Set up the conditions and exec the command."""
    user = "root" not in conditions
    try:
        if os.getuid() == 0:
            call("unshare", NEWNS)
        else:
            own_user_namespace(NEWNS)
        call("mount", None, "/", None, REC | PRIVATE, None)
    except OSError as error:
        print(f"no namespaces here: {error}", file=sys.stderr)
        sys.exit(NOT_HERE)
    if "no-shm" in conditions:
        without_shm()
    if "read-only-home" in conditions:
        read_only_home()
    if os.getuid() == 0 and user:
        show({sys.prefix, sys.base_prefix, str(ROOT)})
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        call("prctl", DUMPABLE, 1, 0, 0, 0)  # otherwise /proc/self belongs to root until the next exec
    if "no-namespaces" in conditions:
        own_user_namespace()
        Path("/proc/sys/user/max_user_namespaces").write_text("0")
    for name in ("mount", "setns"):
        if f"no-{name}" in conditions:
            refuse(name)
    if "no-remount" in conditions:
        refuse("mount", REMOUNT)
    os.execv(command[0], command)


if __name__ == "__main__":
    end = sys.argv.index("--")
    main(sys.argv[1:end], sys.argv[end + 1 :])
