"""Read torch's output about a hang: its NCCL watchdog, the desync report (TORCH_NCCL_DESYNC_DEBUG), gloo's errors.

``[Rank 1]`` in them, and every rank of a desync report, is a rank within the process group that timed out;
``[rank2]:`` before the line is the process's rank in the world (torch 2.2 and later).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from . import ras_in_logs
from .model import Blocked, Broken, Evidence, Lagging, Queued, Timeout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
MAX_BLOCK = 4 << 20
_TIMEOUT = re.compile(
    r"\[(?:PG[^\]]{0,80}?\(([^)]{1,60})\)\s)?[^\]]{0,60}Rank (\d{1,7})\]\s+"
    r"Watchdog caught collective operation timeout: "
    r"WorkNCCL\(SeqNum=(\d{1,15}), OpType=(\w+)"
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
"""Says a smaller group's time-out once more, "terminated with exception", with the rank in that group alone."""
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
    """Pass a log's chunks on, and add its time-outs and reports at its end, with ``answers`` those of RAS, too."""
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
    read_numbered(evidence, file, matched_lines)
    if ras_text:
        ras_in_logs.read(evidence, file, ras_text[: ras_in_logs.MAX_SPAN].decode("utf-8", "replace"))


def read(evidence: Evidence, file: str, lines: Iterable[str]) -> None:
    """Add the time-outs and reports of a log."""
    read_numbered(evidence, file, enumerate(lines, 1))


def read_numbered(evidence: Evidence, file: str, lines: Iterable[tuple[int, str]]) -> None:
    """Add the time-outs and reports of some lines, each with its number."""
    at, snapshot = "", 0
    for number, line in ((number, piece) for number, whole in lines for piece in _reports(whole)):
        if len(line) > 20_000 or len(evidence.timeouts) > MAX_KEPT or len(evidence.lagging) > MAX_KEPT:
            continue
        text = line.strip()[:300]
        world = int(match[1]) if "[rank" in line and (match := _WORLD.match(line)) else None
        again = world is None and _OF_GROUP.search(line)
        if "Watchdog caught" in line and not again and (match := _TIMEOUT.search(line)):
            rank = int(match[2]) if world is None else world
            evidence.timeouts.append(Timeout(rank, int(match[3]), match[4], file, number, text, match[1] or ""))
        elif "ast enqueued " in line:
            _counters(evidence, file, number, line, world)
        elif "#" in line and (match := _AT.search(line)):
            at = match[1]
        elif "ranks:" in line and (match := _SNAPSHOT.search(line)):
            snapshot = int(match[1])
        elif "ed " in line and len(evidence.called) < MAX_KEPT and (match := _CALLED.search(line)):
            evidence.called.append(Lagging(_ranks(match[1]), True, snapshot, match[2], file, number, text))
        elif "didn't join" in line and (match := _FINISHED.search(line)):
            evidence.lagging.append(Lagging(_ranks(match[1]), False, int(match[3]), at, file, number, text))
        elif "didn't finish" in line and (match := _JOINED.search(line)):
            evidence.lagging.append(Lagging(_ranks(match[1]), True, int(match[2]), at, file, number, text))
        elif "lagging" in line and (match := _RANKS.search(line)):
            evidence.lagging.append(Lagging(_ranks(match[1]), False, None, at, file, number, text))
        else:
            _stuck(evidence, file, number, line, world)
            _of_gloo(evidence, file, number, line)


def _stuck(evidence: Evidence, file: str, number: int, line: str, world: int | None) -> None:
    """Add a watchdog that is blocked itself."""
    if "got stuck" in line and (match := _BLOCKED.search(line)) and len(evidence.blocked) < MAX_KEPT:
        own = _OF_WORLD.search(line)
        rank = int(own[1]) if world is None and own is not None else world
        evidence.blocked.append(Blocked(rank, int(match[1]), (file, number, line.strip()[:300])))


def _counters(evidence: Evidence, file: str, number: int, line: str, world: int | None) -> None:
    """Add how far a rank came in a group: that of a time-out, or the default one if it received a time-out's signal."""
    if match := _STATUS.search(line):
        _status(evidence, match, int(match[3]) if world is None else world)
        _group(evidence, match, file, world)
    elif match := _EARLIER_STATUS.search(line):
        rank = int(match[3]) if world is None else world
        _status(evidence, match, rank)
        evidence.failed.add(rank)
    elif match := _SIGNAL.search(line):
        evidence.queued[int(match[1])] = Queued(int(match[1]), int(match[2]), file, number, line.strip()[:300])


def _of_gloo(evidence: Evidence, file: str, number: int, line: str) -> None:
    """Add gloo's message about a failed operation."""
    text = line.strip()[:300]
    if "RuntimeError" in line and (match := _BROKEN.search(line)) and len(evidence.broken) < MAX_KEPT:
        rank = int(match[1])
        evidence.broken.setdefault(rank, Broken(rank, bool(match[2]), file, number, text))
    elif "Timed out waiting" in line and "/gloo/transport/tcp/" in line:  # unbound_buffer.cc
        evidence.gave_up = evidence.gave_up or (file, number, text)
    elif " by peer" in line and "/gloo/transport/tcp/" in line:  # pair.cc
        evidence.closed = evidence.closed or (file, number, text)
    elif "Received data size doesn't match" in line:  # gloo/transport/tcp/pair.cc
        evidence.unlike = evidence.unlike or (file, number, text)
    elif "monitoredBarrier" in line and (match := _BARRIER.search(line)):
        evidence.lagging.append(Lagging(_ranks(match[1]), False, None, "monitored_barrier", file, number, text))


def _reports(line: str) -> list[str]:
    """Return the reports of a line: processes that write to one pipe lose line ends between theirs."""
    several = line.count("Watchdog caught") + line.count("last enqueued work") > 1
    return _NEXT.split(line) if several and len(line) <= 20_000 else [line]


def _status(evidence: Evidence, match: re.Match[str], rank: int) -> None:
    for index, known in enumerate(evidence.timeouts):
        if known.rank == rank and known.sequence == int(match[4]) and known.enqueued is None:
            number = match[1].strip()
            group = match[2] or ("default_pg" if number == "0" else "")
            evidence.timeouts[index] = replace(
                known, group=group, number=number, enqueued=int(match[5]), completed=int(match[6])
            )
            return


def _group(evidence: Evidence, match: re.Match[str], file: str, world: int | None) -> None:
    """Give a report the group that this line, which follows it, is about."""
    if world is None:
        return
    group = match[1].strip(), match[2]
    evidence.failed.add(world)
    for reports in (evidence.lagging, evidence.called):
        for index in range(len(reports) - 1, -1, -1):
            known = reports[index]
            if known.file != file or known.reporter != (-1, -1):
                break
            reports[index] = replace(known, group=group, reporter=(world, int(match[3])))


def in_world(evidence: Evidence, reported: list[Lagging]) -> list[Lagging]:
    """Return the desync reports with ranks of the world; without ranks if they are unknown.

    A rank that itself reports a time-out or a failure waits for a rank, too: it is not among the missing.
    """
    world_ranks: dict[tuple[tuple[str, str], int], int] = {}
    for item in reported:
        world_ranks[item.group, item.reporter[1]] = item.reporter[0]
    waiting = evidence.failed | {event.rank for event in evidence.timeouts}
    translated = []
    for item in reported:
        ranks = _of_world(item, evidence, world_ranks)
        if not item.joined:
            ranks = tuple(rank for rank in ranks if rank not in waiting)
        translated.append(replace(item, ranks=ranks))
    return translated


def _of_world(
    item: Lagging, evidence: Evidence, world_ranks: dict[tuple[tuple[str, str], int], int]
) -> tuple[int, ...]:
    number, name = item.group
    if name in ("", "default_pg") or number == "0":
        return item.ranks
    world, own = item.reporter
    for group in evidence.groups.values():
        if group.name == name and own < len(group.members) and group.members[own] == world:
            return tuple(group.members[rank] for rank in item.ranks if rank < len(group.members))
    ranks = [world_ranks.get((item.group, rank)) for rank in item.ranks]
    return () if None in ranks else tuple(rank for rank in ranks if rank is not None)


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(int(item) for item in re.findall(r"\d{1,7}", text))
