"""Formats untrusted texts and numbers in reports: names, messages and lines of logs."""

from __future__ import annotations

import re


def plain(text: object, longest: int | None = None) -> str:
    """Return a text as one line without control or direction characters, truncated to ``longest``."""
    line = str(text)
    if not line.isprintable():
        line = "".join(character if character.isprintable() else " " for character in line)
    return line if longest is None or len(line) <= longest else line[: longest - 1] + "…"


def with_unit(text: str, unit: str) -> str:
    """Return a value with its unit, which follows the number, not the explanation: ``125 GB/s (median of 3)``."""
    if not unit or not text:
        return text
    number = re.match(r"[\d.]+(?= \()", text)
    return f"{number[0]} {unit}{text[number.end() :]}" if number else f"{text} {unit}"


NAMES = frozenset(
    (
        *("chmod", "gdrdrv", "kubectl", "kured", "libfabric", "libibverbs", "ln", "modprobe", "mpirun", "nan", "ninja"),
        *("peermem", "pip", "slurmctld", "slurmd", "ssh", "sysfs", "systemd", "torchrun", "umount"),
    )
)
"""Commands and programs, which begin a sentence in lower case."""


def sentence(text: str) -> str:
    """Return a text with a capital first letter, unless it begins with a name or a command."""
    first = text.split(" ", 1)[0].rstrip(",.;:").removesuffix("'s")
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() and first not in NAMES else text


def format_size(size: int) -> str:
    """Return a size as nccl-tests writes it on its command line: 8G, 512M, 1000."""
    for unit, power in (("G", 3), ("M", 2), ("K", 1)):
        if size and size % 1024**power == 0:
            return f"{size // 1024**power}{unit}"
    return "unlimited" if size == -1 else str(size)
