"""The mounts of a container.

The host's root with private mounts over it: nothing is ever created on the host's file systems. The agent mounts one
overlay over every directory of the root, whose content is removed together with the cluster. A container adds its own
/dev, /proc, /sys, /tmp, /run and volumes. A directory that belongs to another user of the host cannot be written even
there, since a user namespace maps one user only: if it needs a mount point, it is covered first.
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
"""{source, target, readonly?} binds a path, {tmpfs: bytes, target} is a new file system in memory."""


def is_below(path: str, folder: str) -> bool:
    """Return whether `path` is `folder` or below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def bind_entry(source: str, target: str) -> None:
    """Bind a file, a directory or a symbolic link to a second place."""
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

    `keep`: folders that stay reachable as /.keep/<number>, the first of them without an overlay. Return the directories
    that had to be bound without one: they contain mounts, which an overlay would hide, or the kernel refused it.
    """
    mount(None, "/", None, REC | PRIVATE)
    with open("/proc/self/mountinfo") as file:
        mounted = [line.split()[4].replace(r"\040", " ") for line in file]
    kept = [os.path.realpath(path) for path in keep]
    stage = next(iter(EMPTY))
    mount("tmpfs", stage, "tmpfs", NOSUID | NODEV, "mode=755")
    for name in (".host", ".pod", ".keep", ".layers"):
        os.mkdir(f"{stage}/{name}")
    call("pivot_root", stage, f"{stage}/.host")
    os.chdir("/")
    bound = ["/" + name for name in KERNEL]
    for entry in os.scandir("/.host"):
        new = "/" + entry.name
        if new in EMPTY and not entry.is_symlink():
            os.mkdir(new)
        elif entry.name in KERNEL or not entry.is_dir(follow_symlinks=False):
            bind_entry(entry.path, new)
        elif _holds(new, mounted) or not _overlay(entry.path, new, f"/.layers{new}"):
            os.makedirs(new, exist_ok=True)
            mount(entry.path, new, None, BIND | REC)
            bound.append(new)
    for name in KERNEL:
        os.makedirs("/" + name, exist_ok=True)
    for number, path in enumerate(kept):
        place = f"/.keep/{number}"
        if number == 0 or _holds(path, mounted) or not _overlay("/.host" + path, place, f"/.layers/keep{number}"):
            os.makedirs(place, exist_ok=True)
            mount("/.host" + path, place, None, BIND | REC)
            bound.append(place)
    call("umount2", "/.host", DETACH)
    return bound


def _holds(folder: str, mounted: list[str]) -> bool:
    """Return whether anything is mounted below a directory."""
    return any(is_below(point, folder) and point != folder for point in mounted)


def _overlay(lower: str, target: str, layers: str) -> bool:
    """Mount an overlay; False if the kernel refuses it: before 5.11, or as a third one on top of each other.

    Also False for a folder that this user may not list: whatever the overlay's mode is, lookups in it fail.
    """
    if not os.access(lower, os.R_OK | os.X_OK):
        return False
    upper, work = layers + ".upper", layers + ".work"
    for folder in (upper, work, target):
        os.makedirs(folder, exist_ok=True)
    os.chmod(upper, os.stat(lower).st_mode & 0o7777)
    for sign in "\\", ":", ",":  # separators in mount options (Documentation/filesystems/overlayfs.rst)
        lower = lower.replace(sign, "\\" + sign)
    options = f"lowerdir={lower},upperdir={upper},workdir={work},userxattr"
    try:
        mount("overlay", target, "overlay", NOSUID, options)
    except OSError:
        return False
    return True


def agent_path(path: str, keep: list[str]) -> str:
    """Return the agent's path of a path on the host."""
    for number in sorted(range(len(keep)), key=lambda number: -len(keep[number])):
        if is_below(path, keep[number]):
            return f"/.keep/{number}{path[len(keep[number].rstrip('/')) :]}"
    return path


class View:
    """One container's file systems, built in its own mount namespace below the agent's root."""

    def __init__(self, keep: list[str], bound: list[str]) -> None:
        self.keep = keep
        self.hosts = dict.fromkeys(bound, True) | dict.fromkeys((*EMPTY, "/dev"), False)
        """Whether a directory is the host's: nothing may be created in it. Others are removed together with the
        cluster."""

    def build(self, mounts: list[Mount], cwd: str) -> None:
        """Mount everything, ordered by depth, so that volumes may be inside volumes.

        This Python and this program are mounted as well, so that pods find them even below other mounts.
        """
        kept = [{"source": path, "target": path} for path in self.keep[1:]]  # the first is the kubelet's own
        resolved = [dict(m, target=os.path.realpath(m["target"])) for m in (*kept, *mounts)]
        for number, m in enumerate(resolved, 1):  # opened first, since later mounts may hide the path
            if "source" in m:
                source = f"/.keep/{number}" if number <= len(kept) else agent_path(m["source"], self.keep)
                m["readonly"] = m.get("readonly") or (number <= len(kept) and source in self.hosts)
                m["directory"] = os.path.isdir(source)
                m["source"] = f"/proc/self/fd/{os.open(source, os.O_PATH)}"
        mount("tmpfs", "/.pod", "tmpfs", NOSUID, "mode=755")
        _devices()
        mount_fresh("proc", "/proc")
        mount_fresh("sysfs", "/sys", RDONLY)
        for folder, mode in EMPTY.items():
            if os.path.isdir(folder) and not os.path.islink(folder):
                mount("tmpfs", folder, "tmpfs", NOSUID | NODEV, mode)
        for m in sorted(resolved, key=lambda m: m["target"].count("/")):
            self._attach(m)
        if not os.path.isdir(cwd):
            self._make_point(os.path.realpath(cwd), is_dir=True)
        call("umount2", "/.pod", DETACH)

    def _attach(self, m: Mount) -> None:
        target, is_dir = m["target"], "tmpfs" in m or m["directory"]
        if not os.path.lexists(target):
            self._make_point(target, is_dir)
        self.hosts[target] = False
        if "tmpfs" in m:
            mount("tmpfs", target, "tmpfs", NOSUID | NODEV, f"mode=1777,size={m['tmpfs']}")
            return
        mount(m["source"], target, None, BIND | REC)
        if m.get("readonly"):  # a user namespace may not clear nosuid, nodev or noexec
            held = os.statvfs(target).f_flag & (NOSUID | NODEV | NOEXEC)
            mount(None, target, None, REMOUNT | BIND | RDONLY | held)

    def _make_point(self, target: str, is_dir: bool) -> None:
        """Create a missing mount point, in a private layer if the directory must not or cannot be written."""
        parent = os.path.dirname(target)
        while not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        if self._is_hosts(parent) or not os.access(parent, os.W_OK | os.X_OK):
            self._cover(parent)
        os.makedirs(target if is_dir else os.path.dirname(target), exist_ok=True)
        if not is_dir:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))

    def _is_hosts(self, folder: str) -> bool:
        while folder != "/" and folder not in self.hosts:
            folder = os.path.dirname(folder)
        return self.hosts.get(folder, False)

    def _cover(self, folder: str) -> None:
        """Cover a directory that stays visible: by an overlay, or by a tmpfs with all its entries bound.

        The kernel's directories and those that contain mounts allow no overlay. A directory that cannot be listed is
        empty then.
        """
        hosts, stage = self._is_hosts(folder), f"/.pod/cover{len(self.hosts)}"
        if hosts or any(is_below(place, folder) for place in self.hosts) or not _overlay(folder, folder, stage):
            os.makedirs(stage)
            with contextlib.suppress(PermissionError):
                for entry in os.scandir(folder):
                    bind_entry(entry.path, f"{stage}/{entry.name}")
                    self.hosts.setdefault(entry.path, hosts)
            mount(stage, folder, None, BIND | REC)
        self.hosts[folder] = False


def _devices() -> None:
    os.mkdir("/.pod/dev")
    for path in itertools.chain.from_iterable(glob.glob("/dev/" + name) for name in DEVICES):
        bind_entry(path, "/.pod" + path)
    for name, target in ("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2"):
        os.symlink("/proc/self/fd" + target, "/.pod/dev/" + name)
    os.mkdir("/.pod/dev/pts")
    os.symlink("pts/ptmx", "/.pod/dev/ptmx")
    with contextlib.suppress(OSError):  # without terminals, which are not needed here
        mount("devpts", "/.pod/dev/pts", "devpts", NOSUID | NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    mount("/.pod/dev", "/dev", None, BIND | REC)
