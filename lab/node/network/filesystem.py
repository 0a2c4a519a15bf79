"""The mounts of a container.

The host's root with private mounts over it: nothing is ever created on the host's file systems.  The agent lays
one overlay over every directory of the root (what a container writes there goes with the cluster); a container
adds its own /dev, /proc, /sys, /tmp, /run and volumes.
"""

# ruff: noqa: PTH101, PTH102, PTH103, PTH112, PTH114, PTH115, PTH116, PTH120, PTH123, PTH207, PTH211
# (importing pathlib would double the time in which the agent starts)
from __future__ import annotations

import contextlib
import glob
import itertools
import os
from typing import Any

from .syscalls import BIND, DETACH, NODEV, NOEXEC, NOSUID, PRIVATE, RDONLY, REC, REMOUNT, call, mount, mount_fresh

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
KERNEL = ("dev", "proc", "sys")
EMPTY = {"/tmp": "mode=1777", "/run": "mode=755"}  # noqa: S108 - mount points: what the host has there is hidden
Mount = dict[str, Any]
"""{source, target, readonly?} binds a path, {tmpfs: bytes, target} is a fresh file system in memory."""


def is_below(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def bind_entry(source: str, target: str) -> None:
    """Show a file, a directory or a symbolic link at a second place."""
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
        return
    if os.path.isdir(source):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(source, target, None, BIND | REC)


def private_root(keep: list[str]) -> list[str]:
    """Make a small tmpfs the root, with every directory of the host's root under a private overlay.

    `keep`: folders that stay reachable as /.keep/<number>, without an overlay.  Answers the directories that had to
    be bound as they are: they hold other mounts, which an overlay would hide, or refused one.
    """
    mount(None, "/", None, REC | PRIVATE)
    with open("/proc/self/mountinfo") as file:
        mounted = [line.split()[4] for line in file]
    stage = next(iter(EMPTY))
    mount("tmpfs", stage, "tmpfs", NOSUID | NODEV, "mode=755")
    for name in (".host", ".pod", ".keep", ".layers"):
        os.mkdir(f"{stage}/{name}")
    call("pivot_root", stage, f"{stage}/.host")
    os.chdir("/")
    bound = ["/" + name for name in KERNEL]
    for number, entry in enumerate(os.scandir("/.host")):
        new = "/" + entry.name
        if new in EMPTY and not entry.is_symlink():
            os.mkdir(new)
        elif entry.name in KERNEL or not entry.is_dir(follow_symlinks=False):
            bind_entry(entry.path, new)
        elif any(is_below(point, new) and point != new for point in mounted) or not _overlay(entry.path, new, number):
            os.makedirs(new, exist_ok=True)
            mount(entry.path, new, None, BIND | REC)
            bound.append(new)
    for number, path in enumerate(keep):
        os.mkdir(f"/.keep/{number}")
        mount("/.host" + path, f"/.keep/{number}", None, BIND | REC)
    call("umount2", "/.host", DETACH)
    return bound


def _overlay(lower: str, target: str, number: int) -> bool:
    """Lay an overlay; False where it is refused (a kernel before 5.11, a third overlay on top of each other)."""
    layers = [f"/.layers/{kind}{number}" for kind in ("upper", "work")]
    for layer in (*layers, target):
        os.mkdir(layer)
    os.chmod(layers[0], os.stat(lower).st_mode & 0o7777)
    options = f"lowerdir={lower},upperdir={layers[0]},workdir={layers[1]},userxattr"
    try:
        mount("overlay", target, "overlay", NOSUID, options)
    except OSError:
        return False
    return True


def agent_path(path: str, keep: list[str]) -> str:
    """Where the agent reaches a path of the host."""
    for number, folder in enumerate(keep):
        if is_below(path, folder):
            return f"/.keep/{number}{path[len(folder.rstrip('/')) :]}"
    return path


class View:
    """One container's file systems, built in a mount namespace of its own below the agent's root."""

    def __init__(self, keep: list[str], bound: list[str]) -> None:
        self.keep, self.bound = keep, bound
        self.own: list[str] = [*EMPTY, "/dev"]

    def build(self, mounts: list[Mount]) -> None:
        """Mount everything; the order is by depth, so that volumes may lie in volumes."""
        resolved = [dict(m, target=os.path.realpath(m["target"])) for m in mounts]
        for m in resolved:  # opened first: later mounts may hide the path
            if "source" in m:
                source = agent_path(m["source"], self.keep)
                m["directory"] = os.path.isdir(source)
                m["source"] = f"/proc/self/fd/{os.open(source, os.O_PATH)}"
        mount("tmpfs", "/.pod", "tmpfs", NOSUID, "mode=755")
        _devices()
        mount_fresh("proc", "/proc")
        mount_fresh("sysfs", "/sys", RDONLY)
        for folder, mode in EMPTY.items():
            if os.path.isdir(folder) and not os.path.islink(folder):
                mount("tmpfs", folder, "tmpfs", NOSUID | NODEV, mode)
        for number, path in enumerate(self.keep[1:], 1):  # the first is the kubelet's own folder: not to be seen
            if any(is_below(path, folder) for folder in EMPTY):
                os.makedirs(path, exist_ok=True)
                mount(f"/.keep/{number}", path, None, BIND | REC)
        for m in sorted(resolved, key=lambda m: m["target"].count("/")):
            self._attach(m)
        call("umount2", "/.pod", DETACH)

    def _attach(self, m: Mount) -> None:
        target, is_dir = m["target"], "tmpfs" in m or m["directory"]
        if not os.path.lexists(target):
            self._make_point(target, is_dir)
        self.own.append(target)
        if "tmpfs" in m:
            mount("tmpfs", target, "tmpfs", NOSUID | NODEV, f"mode=1777,size={m['tmpfs']}")
            return
        mount(m["source"], target, None, BIND | REC)
        if m.get("readonly"):  # a user namespace may not clear nosuid, nodev or noexec
            held = os.statvfs(target).f_flag & (NOSUID | NODEV | NOEXEC)
            mount(None, target, None, REMOUNT | BIND | RDONLY | held)

    def _make_point(self, target: str, is_dir: bool) -> None:
        """Make a mount point that does not exist: privately where the directory is the host's or the kernel's."""
        parent = os.path.dirname(target)
        while not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        foreign = any(is_below(parent, folder) for folder in self.bound)
        if foreign and not any(is_below(parent, folder) for folder in self.own):
            self._shadow(parent)
        os.makedirs(target if is_dir else os.path.dirname(target), exist_ok=True)
        if not is_dir:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))

    def _shadow(self, folder: str) -> None:
        """Put a tmpfs over a directory that we must not or cannot write, with all its entries bound into it."""
        stage = f"/.pod/shadow{len(self.own)}"
        os.mkdir(stage)
        for entry in os.scandir(folder):
            bind_entry(entry.path, f"{stage}/{entry.name}")
        mount(stage, folder, None, BIND | REC)
        self.own.append(folder)


def _devices() -> None:
    os.mkdir("/.pod/dev")
    for path in itertools.chain.from_iterable(glob.glob("/dev/" + name) for name in DEVICES):
        bind_entry(path, "/.pod" + path)
    for name, target in ("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2"):
        os.symlink("/proc/self/fd" + target, "/.pod/dev/" + name)
    os.mkdir("/.pod/dev/pts")
    os.symlink("pts/ptmx", "/.pod/dev/ptmx")
    with contextlib.suppress(OSError):  # no terminals then; nothing here needs one
        mount("devpts", "/.pod/dev/pts", "devpts", NOSUID | NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    mount("/.pod/dev", "/dev", None, BIND | REC)
