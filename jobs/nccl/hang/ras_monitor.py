"""Read the events that NCCL RAS's monitor prints (``ncclras -m``, NCCL 2.29 and later), as text or JSON.

NCCL src/ras/peers.cc and rasnet.cc: PEER_DEAD is final. What the other events say of a peer's silence ends with
PEER_RECOVERED or PEER_CONNECTED; a connection that was closed proves nothing by itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .model import Process, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Evidence

ANCHORS = (b"] PEER_", b'"event": "PEER_')
_DEAD = frozenset(("PEER_DEAD", "PEER_TIMEOUT_DEAD"))
_SILENT = frozenset(("PEER_UNRESPONSIVE", "PEER_KEEPALIVE_TIMEOUT", "PEER_SEND_STUCK"))
_BACK = frozenset(("PEER_RECOVERED", "PEER_CONNECTED"))
MAX_PEERS = 100_000
_LINE = re.compile(
    r"^.{0,200}?\[([\d-]{8,12} [\d:]{8,12})\] (PEER_[A-Z_]{2,30}):"
    r" Process (\d{1,9}) on node (\S{1,100}) managing GPUs? (\d[\d,]{0,200})",
    re.MULTILINE,
)
_OBJECT = re.compile(
    r'(?:"timestamp": "([\d-]{8,12} [\d:]{8,12})",\s{0,80}"group": "\w{1,30}",\s{0,80})?'
    r'"event": "(PEER_[A-Z_]{2,30})",\s{0,80}"peer": \{\s{0,80}"host": "([^"\s]{1,100})",\s{0,80}"pid": (\d{1,9}),'
    r'\s{0,80}"cuda_devs": \[([\d,]{0,200})\]'
)


def is_stream(text: str) -> bool:
    """Say whether a file's beginning is what the monitor prints."""
    return _LINE.search(text) is not None or _OBJECT.search(text) is not None


def read(evidence: Evidence, file: str, text: str) -> None:
    """Add who is dead, or silent at the end of the events."""
    for event, process in _events(text):
        evidence.monitored = file
        who = process.host, process.pid
        known = evidence.gone.get(who)
        process.dead, process.silent = event in _DEAD, event in _SILENT
        if event in _BACK and known is not None and not known.dead:
            del evidence.gone[who]
        elif process.dead or (process.silent and known is None and len(evidence.gone) < MAX_PEERS):
            evidence.gone[who] = process


def _events(text: str) -> Iterator[tuple[str, Process]]:
    for match in _LINE.finditer(text):
        yield match[2], Process(None, match[4], match[5], int(match[3]), since=match[1])
    for match in _OBJECT.finditer(text):
        yield match[2], Process(None, match[3], match[5], int(match[4]), since=match[1] or "")


def add_gone(evidence: Evidence) -> None:
    """Tell the last answer of RAS who is dead by the monitor; where there is none, what the monitor saw is one."""
    if not evidence.monitored:
        return
    if not evidence.samples:
        evidence.samples = [Sample(evidence.monitored, processes=list(evidence.gone.values()))]
        return
    last = evidence.samples[-1]
    known = {(process.host, process.pid) for process in last.processes if process.dead or process.silent}
    back = {(process.host, process.pid) for process in answers_again(evidence)}
    dead = {who: process for who, process in evidence.gone.items() if process.dead}
    last.processes += [process for who, process in dead.items() if who not in known | back]


def answers_again(evidence: Evidence) -> list[Process]:
    """Return the dead ones whose host and number a later answer has: PEER_DEAD is final, so that is another process."""
    last = evidence.samples[-1] if evidence.samples else None
    if last is None or not last.stamp:
        return []
    there = {(process.host, process.pid) for process in last.processes if not (process.dead or process.silent)}
    gone = evidence.gone.items()
    return [process for who, process in gone if who in there and process.dead and "" < process.since < last.stamp]
