"""Small files and folder listings of a pod; a missing or unreadable one is empty.

Its content is then unknown, and every stage reports it as unknown.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterator, List, Optional


def content(path: str, most: int = 65536) -> bytes:
    """Return the first bytes of a file."""
    try:
        with open(path, "rb") as stream:
            return stream.read(most)
    except OSError:
        return b""


def first_line(path: str) -> Optional[str]:
    """Return a small file's first line; None if it is unreadable."""
    try:
        with open(path, "rb", buffering=0) as stream:  # sysfs has thousands; a text stream takes 3 times as long
            text = stream.read(4096)
    except OSError:
        return None
    return text.replace(b"\r", b"\n").partition(b"\n")[0].decode("utf-8", "replace").strip()


def names_in(folder: str) -> List[str]:
    """Return the names in a folder, sorted."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def whole(text: Optional[str]) -> Optional[int]:
    """Return the whole number in a text; None for anything but digits."""
    return int(text) if text is not None and text.isdigit() else None


def json_object(path: str, most: int = 1 << 18) -> Optional[Dict[str, Any]]:
    """Return the JSON object in the first bytes of a file; None without one."""
    try:
        held = json.loads(content(path, most).decode("ascii"))
    except ValueError:
        return None
    return held if isinstance(held, dict) else None


def replace(path: str, text: str) -> None:
    """Write a file atomically and sync it to its device; raises OSError."""
    with open(path + ".new", "w", encoding="ascii") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(path + ".new", path)


def pieces(path: str, size: int) -> Iterator[bytes]:
    """Yield a file's content in blocks, with the kernel's cached copy dropped first; raises OSError."""
    with open(path, "rb", buffering=0) as stream:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while True:
            piece = stream.read(size)
            if not piece:
                return
            yield piece
