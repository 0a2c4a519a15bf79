"""Small files of a pod and what is in its folders; one that is missing, or may not be read, is empty.

What a file would have said is then unknown, which every stage reports as that.
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
    """Return a small file's first line, or None where it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as stream:  # sysfs has thousands, a text stream takes 3 times as long
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
    """Return the whole number in a text, None for any other: digits only, no sign."""
    return int(text) if text is not None and text.isdigit() else None


def json_object(path: str, most: int = 1 << 18) -> Optional[Dict[str, Any]]:
    """Return the JSON object in the first bytes of a file; None without one."""
    try:
        held = json.loads(content(path, most).decode("ascii"))
    except ValueError:
        return None
    return held if isinstance(held, dict) else None


def replace(path: str, text: str) -> None:
    """Write a file whole or not at all, and have it on its device; raises OSError."""
    with open(path + ".new", "w", encoding="ascii") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(path + ".new", path)


def pieces(path: str, size: int) -> Iterator[bytes]:
    """Yield a file's content in pieces, with the kernel asked to forget its own copy first; raises OSError."""
    with open(path, "rb", buffering=0) as stream:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while True:
            piece = stream.read(size)
            if not piece:
                return
            yield piece
