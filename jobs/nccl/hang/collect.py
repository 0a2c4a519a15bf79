"""Find what a hung job left among files and folders: each file is told by its content, and read by its format."""

from __future__ import annotations

import mmap
import os
from dataclasses import replace
from pathlib import Path

from ...pod.nccl_reader.errors import NcclLogError
from ...pod.nccl_reader.lines.clean import printable
from ..sources import MAX_FILES, logs_below
from . import flight_recorder, inspector, ras, watchdog
from .model import Evidence
from .pickles import MAX_BYTES, PickleRefusedError

HEAD = 64 * 1024
MAX_TEXT = 64 << 20
MAX_LOG = 8 << 30
MAX_NOTES = 50
MAX_TAIL = 512 << 10


def collect(paths: list[str]) -> tuple[Evidence, list[str]]:
    """Return what was found, and the paths that remain to be read as logs.

    A folder is one job; its other files remain as logs. Raises NcclLogError where files look like evidence of a hang
    and none can be read.
    """
    evidence = Evidence()
    members: dict[str, tuple[int, ...]] = {}
    rest: list[str] = []
    for path in paths:
        if path == "-" or not os.path.exists(path):
            rest.append(path)
        elif os.path.isdir(path):
            rest += _folder(evidence, path, members)
        elif not os.path.isfile(path) or not _take(evidence, path, members):
            rest.append(path)
    if evidence.notes and not _any(evidence) and not rest:
        raise NcclLogError("; ".join(evidence.notes[:3]))
    return evidence, rest


def _folder(evidence: Evidence, path: str, members: dict[str, tuple[int, ...]]) -> list[str]:
    """Read a folder; return what remains as logs: those of NCCL, and without dumps those with torch's reports, too."""
    taken, reporting = set(), []
    for name in _files(path):
        before = len(evidence.timeouts) + len(evidence.lagging) + len(evidence.broken)
        if _take(evidence, name, members):
            taken.add(name)
        elif len(evidence.timeouts) + len(evidence.lagging) + len(evidence.broken) > before:
            reporting.append(name)
    if taken:
        return logs_below(path, taken)
    if not reporting:
        return [path]
    return sorted({*logs_below(path), *reporting})


def structured(evidence: Evidence) -> bool:
    """Say whether there is more than what a log says."""
    return bool(evidence.ranks or evidence.samples or evidence.performed or evidence.notes)


def tail_of(path: str) -> list[str]:
    """Return the last lines of a file, cut to half a megabyte; none where it is no plain file."""
    try:
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - MAX_TAIL))
            return file.read(MAX_TAIL).decode("utf-8", "replace").splitlines() if os.path.isfile(path) else []
    except OSError:
        return []


def _any(evidence: Evidence) -> bool:
    return bool(evidence.ranks or evidence.samples or evidence.performed or evidence.timeouts or evidence.lagging)


def _files(folder: str) -> list[str]:
    found: list[str] = []
    for parent, names, files in os.walk(folder):
        names[:] = sorted(name for name in names if not name.startswith("."))
        found += [os.path.join(parent, name) for name in sorted(files, key=_natural) if not name.startswith(".")]
        if len(found) > MAX_FILES:
            return found[:MAX_FILES]
    return [name for name in found if os.path.isfile(name)]


def _natural(name: str) -> tuple[int, str]:
    return flight_recorder.rank_of(name) or 0, name


def _take(evidence: Evidence, path: str, members: dict[str, tuple[int, ...]]) -> bool:
    """Read a file where it is evidence of a hang; say whether it is nothing but that (a log remains a log)."""
    shown = printable(path, 200)
    try:
        with Path(path).open("rb") as file:
            head = file.read(HEAD)
            status = os.fstat(file.fileno())
            size = status.st_size
            if flight_recorder.is_dump(head if size <= HEAD else head + _tail(file.fileno(), size)):
                if size > MAX_BYTES:
                    raise PickleRefusedError(f"larger than the {MAX_BYTES >> 20} MiB that are read of one dump")  # noqa: TRY301
                flight_recorder.read(evidence, path, head + file.read(MAX_BYTES), members, status.st_mtime)
                evidence.files.append(shown)
                return True
            return _take_text(evidence, path, shown, head.decode("utf-8", "replace"), size)
    except PickleRefusedError as error:
        if len(evidence.notes) < MAX_NOTES:
            evidence.notes.append(f"{shown}: {error}")
        return True
    except OSError:
        return False


def _tail(descriptor: int, size: int) -> bytes:
    return os.pread(descriptor, 8192, max(0, size - 8192))


def _take_text(evidence: Evidence, path: str, shown: str, head: str, size: int) -> bool:
    is_ras, is_json = ras.is_text(head) and "NCCL INFO" not in head, ras.is_json(head)
    if is_ras or is_json or '"coll_perf"' in head:
        if size > MAX_TEXT:
            evidence.notes.append(f"{shown}: larger than the {MAX_TEXT >> 20} MiB that are read of one answer")
            return True
        text = Path(path).read_bytes().decode("utf-8", "replace")
        evidence.files.append(shown)
        try:
            if is_json:
                ras.read_json(evidence, shown, text)
            elif is_ras:
                ras.read_text(evidence, shown, text)
                watchdog.read(evidence, shown, text.splitlines())
            elif strange := inspector.read(evidence, text.splitlines()):
                evidence.notes.append(f"{shown}: {strange} lines are no Inspector records (cut, or of something else)")
        except ValueError:
            evidence.files.pop()
            evidence.notes.append(f"{shown}: cut or damaged JSON of NCCL RAS")
        return True
    _scan_log(evidence, path, shown, size)
    return False


def _scan_log(evidence: Evidence, path: str, shown: str, size: int) -> None:
    """Look for a watchdog's words; a log without them costs one search."""
    if not 0 < size <= MAX_LOG:
        return
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        places = [place for anchor in watchdog.ANCHORS if (place := whole.find(anchor)) >= 0]
        if not places:
            return
        begin = whole.rfind(b"\n", 0, min(places)) + 1
        before = 0
        for at in range(0, begin, 1 << 20):
            before += whole[at : min(begin, at + (1 << 20))].count(b"\n")
        text = whole[begin : begin + MAX_TEXT].decode("utf-8", "replace")
    kept = len(evidence.timeouts), len(evidence.lagging)
    watchdog.read(evidence, shown, text.splitlines())
    if before:
        evidence.timeouts[kept[0] :] = [replace(e, line=e.line + before) for e in evidence.timeouts[kept[0] :]]
        evidence.lagging[kept[1] :] = [replace(e, line=e.line + before) for e in evidence.lagging[kept[1] :]]
