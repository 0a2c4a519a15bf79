"""Find the evidence of a hung job in files and folders, each recognised by its content."""

from __future__ import annotations

import mmap
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from ..reader.errors import NcclLogError
from ..reader.lines.clean import printable
from ..reader.lines.patterns import AnyOf, Gate
from ..sources import MAX_FILES, logs_below
from . import flight_recorder, inspector, ras, ras_in_logs, ras_text, watchdog
from .model import Evidence
from .pickles import MAX_BYTES, PickleRefusedError
from .split_jobs import Job, absorb, add, apart

HEAD = 64 * 1024
MAX_TEXT = 64 << 20
MAX_LOG = 8 << 30
MAX_NOTES = 50
MAX_TAIL = 512 << 10
_OF_RANKS = frozenset(("timed out", "absent", "inside", "broken", "left"))
_RECORDING = re.compile(r"\.jsonl?$|(?:^|[^A-Za-z])(?:nccl)?ras[^/]*$|(?:rank|dump|trace)_?\d+$")
"""File names that RAS, Inspector or a recorder writes; other empty files (standard error) are no loss."""


@dataclass(slots=True)
class _Place:
    """The files of one folder, or the files that were named, by directory, kind of name, and ranks of the job."""

    members: flight_recorder.Members
    parts: dict[tuple[str, str, tuple[int, ...]], Job] = field(default_factory=dict)

    def part(self, path: str, kind: str = "", world: tuple[int, ...] = ()) -> Evidence:
        """Return the evidence that a file is part of."""
        folder = os.path.dirname(os.path.abspath(path))
        stems = {kind} if kind else set()
        return self.parts.setdefault((folder, kind, world), Job(folders={folder}, stems=stems, world=world)).evidence


def collect(paths: list[str]) -> tuple[list[Evidence], list[str]]:
    """Return the evidence of each job, and the paths that remain to be read as logs.

    A folder is one job, unless its content shows several. Files that are named next to it belong to it; if there are
    several folders, to none. The cluster's logs are added to the first job. Raises NcclLogError if files look like
    evidence of a hang and none can be read.
    """
    rest: list[str] = []
    members: flight_recorder.Members = {}
    folders = [path for path in paths if os.path.isdir(path)]
    named = _Place(members)
    places = {path: named if len(folders) == 1 else _Place(members) for path in folders}
    logs: dict[int, set[str]] = {}
    for path in paths:
        if path in places:
            folder_logs = _folder(places[path], path)
            rest += folder_logs
            logs.setdefault(id(places[path]), set()).update(printable(name, 200) for name in folder_logs)
        elif path == "-" or not os.path.exists(path) or not os.path.isfile(path) or not _take(named, path):
            rest.append(path)
            logs.setdefault(id(named), set()).add(printable(path, 200))
    jobs: list[Job] = []
    if all(part.evidence == Evidence() for place in (named, *places.values()) for part in place.parts.values()):
        return [Evidence()], rest
    for place in [named, *(place for place in places.values() if place is not named)]:
        parts = apart(place.parts.values())
        for job in parts:
            near = logs.get(id(place), set())
            if len(parts) > 1:
                near = {name for name in near if os.path.dirname(os.path.abspath(name)) in job.folders}
            job.evidence.logs |= near
            job.evidence.named |= {printable(path, 200) for path in folders if places[path] is place}
            add(jobs, job, surely=True)
    notes = [note for job in jobs for note in job.evidence.notes]
    if notes and not any(_any(job.evidence) for job in jobs) and not rest:
        raise NcclLogError("; ".join(notes[:3]))
    return _spoken_first([job.evidence for job in jobs]), rest


def _spoken_first(parts: list[Evidence]) -> list[Evidence]:
    """Return the jobs; evidence that consists of logs only becomes one job, since reports are assigned by log."""
    whole = [each for each in parts if structured(each)]
    unstructured = Job()
    for each in parts:
        if not structured(each):
            absorb(unstructured, Job(each))
    return [*whole, unstructured.evidence] if not whole or unstructured.evidence != Evidence() else whole


def _folder(place: _Place, path: str) -> list[str]:
    """Read a folder; return the remaining logs: those of NCCL, and without dumps those with torch's reports, too."""
    taken, reporting = set(), []
    for name in _files(path):
        reports = place.part(name).reports
        before = len(reports)
        if _take(place, name):
            taken.add(name)
        elif any(each.state == "blocked" or (each.ranks and each.state in _OF_RANKS) for each in reports[before:]):
            reporting.append(name)
    if taken:
        return logs_below(path, taken)
    if not reporting:
        return [path]
    return sorted({*logs_below(path), *reporting})


def structured(evidence: Evidence) -> bool:
    """Return whether evidence other than logs exists."""
    recorded = evidence.ranks or evidence.samples or evidence.performed or evidence.notes
    return bool(recorded)


def tail_of(path: str) -> list[str]:
    """Return the last lines of a file, cut to half a megabyte; empty if it is not a regular file."""
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
    paths: list[str] = []
    for parent, names, files in os.walk(folder):
        names[:] = sorted(name for name in names if not name.startswith("."))
        paths += [os.path.join(parent, name) for name in sorted(files, key=_natural) if not name.startswith(".")]
        if len(paths) > MAX_FILES:
            return paths[:MAX_FILES]
    return [name for name in paths if os.path.isfile(name)]


def _natural(name: str) -> tuple[int, str]:
    return flight_recorder.rank_of(name) or 0, name


def _take(place: _Place, path: str) -> bool:
    """Read a file if it is evidence of a hang; return whether it is only that (a log also remains a log)."""
    shown = printable(path, 200)
    try:
        with Path(path).open("rb") as file:
            head = file.read(HEAD)
            status = os.fstat(file.fileno())
            size = status.st_size
            if not size and os.path.isfile(path) and _RECORDING.search(path):
                raise PickleRefusedError("an empty file: nothing was recorded in it")  # noqa: TRY301
            if flight_recorder.is_dump(head if size <= HEAD else head + _tail(file.fileno(), size)):
                if size > MAX_BYTES:
                    raise PickleRefusedError(f"larger than the {MAX_BYTES >> 20} MiB that are read of one dump")  # noqa: TRY301
                rank, content = flight_recorder.parse(path, head + file.read(MAX_BYTES), place.members)
                world = flight_recorder.world_of(content, place.members)
                evidence = place.part(path, flight_recorder.stem_of(path) or "dump", world)
                flight_recorder.add(evidence, rank, content, place.members, status.st_mtime)
                evidence.files.append(shown)
                return True
            evidence, text = place.part(path), head.decode("utf-8", "replace")
            form = ras.form_of(text)
            if form == "text" and "NCCL INFO" in text:
                form = None  # a log that contains an answer
            known, only = len(evidence.samples), bool(form) or '"coll_perf"' in text
            if only:
                _take_text(evidence, path, shown, form, size)
            elif 0 < size <= MAX_LOG:
                _scan_log(evidence, shown, file)
            for sample in evidence.samples[known:]:
                sample.written = status.st_mtime
            return only
    except PickleRefusedError as error:
        evidence, named = place.part(path), flight_recorder.rank_of(path)
        if len(evidence.notes) < MAX_NOTES:
            evidence.notes.append(f"{shown}: {error}")
        if named is not None:
            evidence.unread.add(named)
        return True
    except OSError:
        return False


def _tail(descriptor: int, size: int) -> bytes:
    return os.pread(descriptor, 8192, max(0, size - 8192))


def _take_text(evidence: Evidence, path: str, shown: str, form: str | None, size: int) -> None:
    """Read answers of RAS in one of its forms, or the Inspector's records."""
    if size > MAX_TEXT:
        evidence.notes.append(f"{shown}: larger than the {MAX_TEXT >> 20} MiB that are read of one answer")
        return
    text = Path(path).read_bytes().decode("utf-8", "replace")
    evidence.files.append(shown)
    try:
        if form == "json":
            ras.read_json(evidence, shown, text)
        elif form == "text":
            ras_text.read_text(evidence, shown, text)
            watchdog.read(evidence, shown, enumerate(text.splitlines(), 1))
        elif strange := inspector.read(evidence, text.splitlines()):
            evidence.notes.append(f"{shown}: {strange} lines are not Inspector records (cut, or of another kind)")
    except ValueError:
        evidence.files.pop()
        evidence.notes.append(f"{shown}: cut or damaged JSON of NCCL RAS")


_ANCHORS = (*ras_in_logs.ANCHORS, *watchdog.ANCHORS)
_GATE = Gate(_ANCHORS, (AnyOf(_ANCHORS),))
_BLOCK = 256 << 10  # stays in a core's cache while it is searched


def _scan_log(evidence: Evidence, shown: str, file: BinaryIO) -> None:
    """Search for reports of a watchdog; a log without them costs one search."""
    overlap = max(map(len, _ANCHORS))
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        for at in range(0, len(whole), _BLOCK):
            block = whole[at : at + _BLOCK + overlap]
            if _GATE.places(block, 0, len(block)):
                _read_log(evidence, shown, whole, at)
                return


def _read_log(evidence: Evidence, shown: str, whole: mmap.mmap, first: int) -> None:
    """Read RAS's answers and watchdog reports in a log, none of which begins before the given position."""
    if answers := [place for anchor in ras_in_logs.ANCHORS if (place := whole.find(anchor, first)) >= 0]:
        begin = max(0, min(answers) - HEAD)
        ras_in_logs.read(evidence, shown, whole[begin : begin + ras_in_logs.MAX_SPAN].decode("utf-8", "replace"))
    places = [place for anchor in watchdog.ANCHORS if (place := whole.find(anchor, first)) >= 0]
    if not places:
        return
    begin = whole.rfind(b"\n", 0, min(places)) + 1
    before = 0
    for at in range(0, begin, 1 << 20):
        before += whole[at : min(begin, at + (1 << 20))].count(b"\n")
    text = whole[begin : begin + MAX_TEXT].decode("utf-8", "replace")
    watchdog.read(evidence, shown, enumerate(text.splitlines(), before + 1))
