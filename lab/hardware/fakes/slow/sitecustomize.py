"""Simulated storage faults (slow, full, late renames) for the Python programs of a pod.

`SIM_STORAGE` maps folders to their properties: `write_mb_s` makes fsync take as long as with a disk of that rate;
`rename_delay_s` delays the visibility of a rename over an existing file, as a cache of attributes does; with `corrupts`
a renamed file has a changed byte; with `hang_s` the file system does not respond for that time; `quota_bytes` limits
the total size of the folder's files, which free space does not show. With `rename_gap_s` a replaced file is missing for
that time. `locks` is `local` if each node has only its own locks, or the name of the error that a lock gets. The files
themselves are real.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import threading
import time
from typing import Any

_PLACES: dict[str, dict[str, Any]] = json.loads(os.environ.get("SIM_STORAGE", "{}"))
_fsync, _replace, _statvfs, _write = os.fsync, os.replace, os.statvfs, os.write
_flock, _lockf = fcntl.flock, fcntl.lockf


def _like(path: str) -> dict[str, Any]:
    real = os.path.abspath(path)
    matching = [place for place in _PLACES if real.startswith(place.rstrip("/") + "/")]
    return _PLACES[max(matching, key=len)] if matching else {}


def fsync(descriptor: int) -> None:
    """Wait as long as the bytes of the file take at the folder's rate."""
    _fsync(descriptor)
    rate = _like(os.readlink(f"/proc/self/fd/{descriptor}")).get("write_mb_s")
    if rate:
        time.sleep(os.fstat(descriptor).st_size / (rate * 1e6))


def replace(source: str, target: str, **options: Any) -> None:
    """Rename at once to a new name, and with a delay if a reader may have seen the old file."""
    delay = _like(target).get("rename_delay_s")
    if _like(target).get("rename_gap_s") and os.path.exists(target):
        os.unlink(target)
        time.sleep(_like(target)["rename_gap_s"])
    if not delay or not os.path.exists(target):
        _replace(source, target, **options)
        if _like(target).get("corrupts") and os.path.getsize(target):
            with open(target, "r+b") as file:
                byte = file.read(1)[0] ^ 1
                file.seek(0)
                file.write(bytes([byte]))
        return
    aside = f"{target}.late"
    shutil.copyfile(source, aside)
    os.unlink(source)

    def later() -> None:
        try:
            _replace(aside, target)
        except OSError:  # the folder was removed in the meantime
            return

    timer = threading.Timer(delay, later)
    timer.daemon = True
    timer.start()


def _locked(descriptor: int) -> bool:
    """Return whether to take a real lock; raise the error that the folder has for locks."""
    kind = _like(os.readlink(f"/proc/self/fd/{descriptor}")).get("locks")
    if kind and kind != "local":
        raise OSError(getattr(errno, kind), os.strerror(getattr(errno, kind)))
    return kind is None


def flock(descriptor: int, operation: int) -> None:
    """Take a flock as the folder does."""
    if _locked(descriptor):
        _flock(descriptor, operation)


def lockf(descriptor: int, operation: int, *part: int) -> None:
    """Take a lockf lock as the folder does."""
    if _locked(descriptor):
        _lockf(descriptor, operation, *part)


def statvfs(path: str) -> os.statvfs_result:
    """Respond with the server's delay."""
    time.sleep(_like(os.path.join(path, "x")).get("hang_s", 0))
    return _statvfs(path)


def write(descriptor: int, data: bytes) -> int:
    """Reject a write that exceeds the folder's quota."""
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    quota = _like(path).get("quota_bytes")
    if quota and _used(path) + len(data) > quota:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
    return _write(descriptor, data)


def _used(path: str) -> int:
    """Sum up the bytes of all files in the folder of a path."""
    place = max((place for place in _PLACES if path.startswith(place.rstrip("/") + "/")), key=len)
    names = [os.path.join(folder, name) for folder, _, files in os.walk(place) for name in files]
    return sum(map(_size, names))


def _size(name: str) -> int:
    """Return a file's bytes; 0 if another pod has removed it since it was listed."""
    try:
        return os.lstat(name).st_size
    except FileNotFoundError:
        return 0


if _PLACES:
    os.write = write  # type: ignore[assignment]
    os.statvfs = statvfs  # type: ignore[assignment]
    os.fsync, os.replace = fsync, replace  # type: ignore[assignment]
    fcntl.flock, fcntl.lockf = flock, lockf  # type: ignore[assignment]
