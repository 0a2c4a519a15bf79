"""Read torch's output about a hang: its NCCL watchdog, the desync report (TORCH_NCCL_DESYNC_DEBUG), gloo's errors.

``[Rank 1]`` in them, and every rank of a desync report, is a rank within the process group that timed out. ``[rank2]:``
before the line is the process's rank in the world (torch 2.2 and later).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from . import ras_in_logs
from .model import Report

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from .model import Evidence, Reason

ANCHORS = (
    b"Watchdog caught collective",
    b"lagging",
    b"failure detected by watchdog",
    b"monitoredBarrier",
    b"]: RuntimeError: [",
    b"/gloo/transport/tcp/",
    b"Received data size doesn't match",
    b"Received a dump signal",
    b"watchdog got stuck for ",
)
MAX_KEPT = 20_000
MAX_LINE = 20_000
MAX_REPORTS = 100_000
MAX_BLOCK = 4 << 20
_TIMEOUT = re.compile(
    r"\[(?:PG[^\]]{0,80}?\(([^)]{1,60})\)\s)?[^\]]{0,60}Rank (\d{1,7})\]\s+"
    r"Watchdog caught collective operation timeout: "
    r"WorkNCCL\(SeqNum=(\d{1,15}), OpType=(\w+)(?:, (NumelIn=\d{1,15}, NumelOut=\d{1,15}))?"
)
_STATUS = re.compile(
    r"PG GUID ([^(]{0,40})\(([^)]{1,60})\) Rank (\d{1,7})\].{0,80}work sequence id: (\d{1,15}).{0,40}"
    r"last enqueued work: (-?\d{1,15}), last completed work: (-?\d{1,15})"
)
# torch 2.3 and 2.4 (ProcessGroupNCCL.cpp, watchdogHandler); an unset value is printed as a huge number
_EARLIER_STATUS = re.compile(
    r"\[PG (\d{1,9})(?: ?\(([^)]{1,60})\))? Rank (\d{1,7})\].{0,80}(?:NCCL work|watchdog at work): (\d{1,15}),"
    r" last enqueued NCCL work: (-?\d{1,20}), last completed NCCL work: (-?\d{1,20})"
)
# HeartbeatMonitor of the default group, on every rank that receives the signal of a time-out: also on the missing one
_SIGNAL = re.compile(
    r"\[PG (?:ID \d{1,9} PG GUID )?0(?: ?\([^)]{1,60}\))? Rank (\d{1,7})\] Received a dump signal"
    r".{0,200}Last enqueued NCCL work: (-?\d{1,15}),"
)
OWN_SIGNAL = "from this local rank"
_WORLD = re.compile(r"^.{0,200}?\[rank(\d{1,7})\]:")
# HeartbeatMonitor::runLoop (torch 2.2 and later)
_BLOCKED = re.compile(r"watchdog got stuck for (\d{1,6}) seconds")
_OF_WORLD = re.compile(r"\[PG (?:ID \d{1,9} PG GUID )?0(?: ?\([^)]{1,60}\))? Rank (\d{1,7})\]")
_OF_GROUP = re.compile(r"\[PG (?!(?:ID \d{1,9} PG GUID )?0[ (])[^\]]{1,120}\] Process group watchdog")
"""Repeats a smaller group's time-out, "terminated with exception", only with the rank in that group."""
_NEXT = re.compile(r"(?=\[rank\d{1,7}\]:)|(?<!\]:)(?=\[E(?:\d{4}| ProcessGroup))")
_FINISHED = re.compile(r"\[([\d, .]+)\] finished collective #(\d{1,15}), but didn't join collective #(\d{1,15})")
_JOINED = re.compile(r"\[([\d, .]+)\] joined but didn't finish collective #(\d{1,15})")
_RANKS = re.compile(r"ranks? \[([\d, .]+)\] (?:are|is) the lagging ranks?")
# gloo/transport/tcp/pair.cc and ProcessGroupGloo.cpp, behind torch's prefix of uncaught exceptions
_BROKEN = re.compile(
    r"\[rank(\d{1,7})\]:\s?\S{0,30}Error: .{0,160}?(?:(Connection (?:closed|reset) by peer)"
    r"|Timed out waiting|Application timeout caused"
    r"|successfully reached monitoredBarrier, but)"
)
_BARRIER = re.compile(r"\]: Ranks? ([\d, ]+) failed to pass monitoredBarrier")
_SNAPSHOT = re.compile(r"#(\d{1,15}) (?:started|finished) ranks:")
_CALLED = re.compile(r"\[([\d, ]+)\] (?:started|finished) ([A-Z_]+)\s*$")
_AT = re.compile(r"Timeout at collective: (\w+), #(\d{1,15})")


_ANY = re.compile(
    rb"[^\n]*(?:Watchdog caught|last enqueued (?:NCCL )?work|Received a dump signal|Timeout at collective|lagging"
    rb"|didn't (?:join|finish)|monitoredBarrier|Received data size|\]: RuntimeError: \[|/gloo/transport/tcp/"
    rb"|(?:started|finished) (?:ranks:|[A-Z_])|watchdog got stuck)[^\n]*"
)


def watched(evidence: Evidence, file: str, chunks: Iterable[bytes], *, answers: bool = False) -> Iterator[bytes]:
    """Pass a log's chunks on, and add its reports at its end; with ``answers`` also those of RAS."""
    ras_text = bytearray()
    matched_lines: list[tuple[int, str]] = []
    rest, before = b"", 0
    for chunk in chunks:
        yield chunk
        rest = (rest + chunk)[-MAX_BLOCK:]
        if answers and len(ras_text) < ras_in_logs.MAX_SPAN:
            ras_text += chunk if ras_text else rest if any(anchor in rest for anchor in ras_in_logs.ANCHORS) else b""
        end = rest.rfind(b"\n") + 1
        if any(anchor in rest for anchor in ANCHORS) or matched_lines:
            for match in _ANY.finditer(rest, 0, end):
                if len(matched_lines) < MAX_KEPT:
                    matched_lines.append(
                        (before + rest.count(b"\n", 0, match.start()) + 1, match[0].decode("utf-8", "replace"))
                    )
        before += rest.count(b"\n", 0, end)
        rest = rest[end:]
    read(evidence, file, matched_lines)
    if ras_text:
        ras_in_logs.read(evidence, file, ras_text[: ras_in_logs.MAX_SPAN].decode("utf-8", "replace"))


def read(evidence: Evidence, file: str, lines: Iterable[tuple[int, str]]) -> None:
    """Add the reports of a log's lines, each with its number."""
    log = _Log(file)
    for number, whole in lines:
        for line in _reports(whole):
            if len(line) <= MAX_LINE:
                log.take(number, line)
    evidence.reports += list(log.reports.values())[: MAX_REPORTS - len(evidence.reports)]


@dataclass(slots=True)
class _Log:
    """The reports of one log."""

    file: str
    reports: dict[Hashable, Report] = field(default_factory=dict)
    """By subject: of errors only the first of each rank, of the last queued operations only the latest."""
    uncounted: dict[tuple[int, int], list[Hashable]] = field(default_factory=dict)
    """Rank and number to time-outs without counters, which a later line has."""
    unplaced: list[Hashable] = field(default_factory=list)
    """Desync reports without a group, which a later line has."""
    at: str = ""
    snapshot: int = 0

    def take(self, number: int, line: str) -> None:
        """Read one line."""
        where = (self.file, number, line.strip()[:300])
        world = int(match[1]) if "[rank" in line and (match := _WORLD.match(line)) else None
        again = world is None and _OF_GROUP.search(line)
        if "Watchdog caught" in line and not again and (match := _TIMEOUT.search(line)):
            rank = int(match[2]) if world is None else world
            event = Report("timed out", where, (rank,), match[4], int(match[3]), match[1] or "", sizes=match[5] or "")
            key = self._add(replace(event, reporter=(rank, int(match[2]))))
            self.uncounted.setdefault((rank, int(match[3])), []).append(key)
        elif "ast enqueued " in line:
            self._counters(where, line, world)
        elif "#" in line and (match := _AT.search(line)):
            self.at = match[1]
        elif "ranks:" in line and (match := _SNAPSHOT.search(line)):
            self.snapshot = int(match[1])
        elif "ed " in line and (match := _CALLED.search(line)):
            self._desync(Report("called", where, _ranks(match[1]), match[2], self.snapshot))
        elif "didn't join" in line and (match := _FINISHED.search(line)):
            self._desync(Report("absent", where, _ranks(match[1]), self.at, int(match[3])))
        elif "didn't finish" in line and (match := _JOINED.search(line)):
            self._desync(Report("inside", where, _ranks(match[1]), self.at, int(match[2])))
        elif "lagging" in line and (match := _RANKS.search(line)):
            self._desync(Report("absent", where, _ranks(match[1]), self.at))
        elif "got stuck" in line and (match := _BLOCKED.search(line)):
            own = _OF_WORLD.search(line)
            blocked = int(own[1]) if world is None and own is not None else world
            self._add(Report("blocked", where, () if blocked is None else (blocked,), seconds=int(match[1])))
        else:
            self._of_gloo(where, line)

    def _add(self, report: Report, *about: Hashable) -> Hashable:
        key = (report.state, *about) if about else len(self.reports)
        if len(self.reports) < MAX_REPORTS and (key not in self.reports or report.state == "queued"):
            self.reports[key] = report
        return key

    def _desync(self, report: Report) -> None:
        self.unplaced.append(self._add(report))

    def _counters(self, where: Reason, line: str, world: int | None) -> None:
        """Add the progress of a rank in a group: that of a time-out, or the default one at a time-out's signal."""
        if match := _STATUS.search(line):
            self._status(match, int(match[3]) if world is None else world)
            if world is not None:
                self._add(Report("failed", where, (world,)), world)
                for key in self.unplaced:
                    self._amend(key, number=match[1].strip(), group=match[2], reporter=(world, int(match[3])))
                self.unplaced = []
        elif match := _EARLIER_STATUS.search(line):
            rank = int(match[3]) if world is None else world
            self._status(match, rank)
            self._add(Report("failed", where, (rank,)), rank)
        elif match := _SIGNAL.search(line):
            self._add(Report("queued", where, (int(match[1]),), sequence=int(match[2])), int(match[1]))

    def _status(self, match: re.Match[str], rank: int) -> None:
        """Add group and counters to the time-out in a line."""
        if keys := self.uncounted.get((rank, int(match[4]))):
            number = match[1].strip()
            group = match[2] or ("default_pg" if number == "0" else "")
            self._amend(keys.pop(0), group=group, number=number, enqueued=int(match[5]), completed=int(match[6]))

    def _amend(self, key: Hashable, **shown: Any) -> None:
        if key in self.reports:
            self.reports[key] = replace(self.reports[key], **shown)

    def _of_gloo(self, where: Reason, line: str) -> None:
        """Add gloo's message about a failed operation."""
        if "RuntimeError" in line and (match := _BROKEN.search(line)):
            self._add(Report("left" if match[2] else "broken", where, (int(match[1]),)), int(match[1]))
        elif "Timed out waiting" in line and "/gloo/transport/tcp/" in line:  # unbound_buffer.cc
            self._add(Report("broken", where), None)
        elif " by peer" in line and "/gloo/transport/tcp/" in line:  # pair.cc
            self._add(Report("left", where), None)
        elif "Received data size doesn't match" in line:  # gloo/transport/tcp/pair.cc
            self._add(Report("unlike", where), None)
        elif "monitoredBarrier" in line and (match := _BARRIER.search(line)):
            self._desync(Report("absent", where, _ranks(match[1]), "monitored_barrier"))


def _reports(line: str) -> list[str]:
    """Return the reports of a line: processes that write to one pipe may lose line ends between their reports."""
    several = line.count("Watchdog caught") + line.count("last enqueued work") > 1
    return _NEXT.split(line) if several and len(line) <= MAX_LINE else [line]


def in_world(evidence: Evidence) -> list[Report]:
    """Return the reports with the world ranks of each desync report; without ranks if these are unknown.

    A rank that itself reports a time-out or a failure waits for a rank, too: it is not one of the missing ranks.
    """
    desync = evidence.said("absent", "inside", "called")
    known = {(item.group, item.number, item.reporter[1]): item.reporter[0] for item in desync}
    waiting = evidence.waiting
    translated = []
    for item in evidence.reports:
        ranks = _of_world(item, evidence, known) if item.state in ("absent", "inside", "called") else item.ranks
        if item.state == "absent":
            ranks = tuple(rank for rank in ranks if rank not in waiting)
        translated.append(item if ranks == item.ranks else replace(item, ranks=ranks))
    return translated


def _of_world(item: Report, evidence: Evidence, known: Mapping[tuple[str, str, int], int]) -> tuple[int, ...]:
    """Return the world ranks of a report; ``known``: group, number and rank there to the world rank."""
    if item.group in ("", "default_pg") or item.number == "0":
        return item.ranks
    world, own = item.reporter
    for group in evidence.groups.values():
        if group.name == item.group and own < len(group.members) and group.members[own] == world:
            return tuple(group.members[rank] for rank in item.ranks if rank < len(group.members))
    ranks = [known.get((item.group, item.number, rank)) for rank in item.ranks]
    return () if None in ranks else tuple(rank for rank in ranks if rank is not None)


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(int(item) for item in re.findall(r"\d{1,7}", text))
