"""Reads the recordings of `jobs/run/recorder.py`, which documents the format."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.run.recorder import RESOURCES, Line

if TYPE_CHECKING:
    from pathlib import Path

LARGEST_BYTES = 256 << 20
"""A trial of some minutes on a few nodes is a few hundred KiB; a larger file is not the recording of one trial."""


class RecordingError(Exception):
    """A file is not a recording; the message is one line."""


def is_change(line: Line) -> bool:
    """Say whether it is a watch event of a recorded kind."""
    known = line.type in ("ADDED", "MODIFIED", "DELETED") and line.kind in RESOURCES.values()
    return known and isinstance(line.object, dict)


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording: the server's version, the trial's namespace, the time of day at t = 0, and all lines."""

    server: str
    namespace: str
    wall: str
    lines: tuple[Line, ...]


def read(path: Path) -> Recording:
    """Read a recording; RecordingError names the invalid line."""
    try:
        with gzip.open(path, "rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except (OSError, EOFError) as error:
        raise RecordingError(f"{path.name} cannot be read: {error}") from error
    if len(data) > LARGEST_BYTES:
        raise RecordingError(f"{path.name} is larger than {LARGEST_BYTES >> 20} MiB")
    head, *rest = data.decode("utf-8", "replace").splitlines() or [""]
    first = _object(path, 1, head)
    lines = tuple(_line(path, number, text) for number, text in enumerate(rest, 2) if text.strip())
    return Recording(
        server=str(first.get("server") or ""),
        namespace=str(first.get("namespace") or ""),
        wall=str(first.get("wall") or ""),
        lines=lines,
    )


def _line(path: Path, number: int, text: str) -> Line:
    item = _object(path, number, text)
    moment = item.get("t")
    if isinstance(moment, bool) or not isinstance(moment, int | float):
        raise RecordingError(f"{path.name}, line {number}: t is not a number of seconds")
    return Line(float(moment), str(item.get("kind") or ""), str(item.get("type") or ""), item.get("object"))


def _object(path: Path, number: int, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise RecordingError(f"{path.name}, line {number}: not a JSON object")
    return value
