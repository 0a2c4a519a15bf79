"""Message and memory sizes, written as nccl-tests writes them."""

from __future__ import annotations


def format_size(size: int) -> str:
    """Return a size as nccl-tests writes it on its command line: 8G, 512M, 1000."""
    for unit, power in (("G", 3), ("M", 2), ("K", 1)):
        if size and size % 1024**power == 0:
            return f"{size // 1024**power}{unit}"
    return "unlimited" if size == -1 else str(size)
