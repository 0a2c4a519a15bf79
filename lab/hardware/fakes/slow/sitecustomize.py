"""Storage that is slow, full, or late to show a rename: Python programs of a pod meet it here.

`SIM_STORAGE` maps folders to what they are like: `write_mb_s` makes fsync take as long as a disk of that rate would,
and `rename_delay_s` lets a rename over an existing file be seen that much later, as a cache of attributes does; with
`corrupts` a renamed file has another byte, with `hang_s` the file system does not answer for that long, and with
`quota_bytes` the folder's files may be so large together, which no free space shows. With `rename_gap_s` a file that is
replaced is missing for that long, and `locks` is `local` where each node knows its own only, or the name of the error
that a lock gets. The files themselves are real.
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
    """Take as long as the bytes of the file need at the place's rate."""
    _fsync(descriptor)
    rate = _like(os.readlink(f"/proc/self/fd/{descriptor}")).get("write_mb_s")
    if rate:
        time.sleep(os.fstat(descriptor).st_size / (rate * 1e6))


def replace(source: str, target: str, **options: Any) -> None:
    """Rename at once to a new name, and late where a reader may have seen the old file."""
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
        except OSError:  # the folder was removed meanwhile
            return

    timer = threading.Timer(delay, later)
    timer.daemon = True
    timer.start()


def _locked(descriptor: int) -> bool:
    """Say whether a lock is to be taken for real; raises the error that the place has for locks."""
    kind = _like(os.readlink(f"/proc/self/fd/{descriptor}")).get("locks")
    if kind and kind != "local":
        raise OSError(getattr(errno, kind), os.strerror(getattr(errno, kind)))
    return kind is None


def flock(descriptor: int, operation: int) -> None:
    """Lock as the place does."""
    if _locked(descriptor):
        _flock(descriptor, operation)


def lockf(descriptor: int, operation: int, *part: int) -> None:
    """Lock as the place does."""
    if _locked(descriptor):
        _lockf(descriptor, operation, *part)


def statvfs(path: str) -> os.statvfs_result:
    """Answer as late as the server does."""
    time.sleep(_like(os.path.join(path, "x")).get("hang_s", 0))
    return _statvfs(path)


def write(descriptor: int, data: bytes) -> int:
    """Refuse what the quota of the place has no room for."""
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    quota = _like(path).get("quota_bytes")
    if quota and _used(path) + len(data) > quota:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
    return _write(descriptor, data)


def _used(path: str) -> int:
    """Count the bytes of all files of the place that holds a path."""
    place = max((place for place in _PLACES if path.startswith(place.rstrip("/") + "/")), key=len)
    names = [os.path.join(folder, name) for folder, _, files in os.walk(place) for name in files]
    return sum(map(_size, names))


def _size(name: str) -> int:
    """Return a file's bytes; 0 of one that another pod has removed since it was listed."""
    try:
        return os.lstat(name).st_size
    except FileNotFoundError:
        return 0


if _PLACES:
    os.write = write  # type: ignore[assignment]
    os.statvfs = statvfs  # type: ignore[assignment]
    os.fsync, os.replace = fsync, replace  # type: ignore[assignment]
    fcntl.flock, fcntl.lockf = flock, lockf  # type: ignore[assignment]
