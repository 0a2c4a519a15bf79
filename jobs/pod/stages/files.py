"""Small files of a pod and what is in its folders; one that is not there, or may not be read, is empty.

What a file would have said is then unknown, which every stage reports as that.
"""

from __future__ import annotations

import os
from typing import List, Optional

__all__ = ["content", "first_line", "names_in"]


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
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.readline(4096).strip()
    except OSError:
        return None


def names_in(folder: str) -> List[str]:
    """Return the names in a folder, sorted."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
