"""What do NCCL's own lines say, and which process do they belong to? Heads, torn lines, channels, messages, warnings.

Also keeps what decides how the next lines are read: as long as that is the same, the same line says the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Callable, Dict, List

from ..lines.prefix import torn_at
from ..tables.rows import TYPE
from .lanes import lane_of

if TYPE_CHECKING:
    from ..state.seen import Source
    from ..tables.table import TableReader
    from .facts import Tracker
    from .processes import Processes

MAX_TEXT = 8 * 1024  # of a message; NCCL's own buffer is 1 KiB, 2 KiB for device lists
PENDING = 512  # lanes of a process that wait for their communicator
_REMEMBER = 10_000  # messages that are known to say nothing new
_MOST_MOVED = 2048  # a piece has fewer lines; where pieces are not kept, nobody asks
_MANY = 256  # processes whose channels wait before they are settled
_PLACE = re.compile(rb"^\s*[\w/.-]{1,120}\.(?:cc?|cu|cpp|h):\d+\s*$")  # in front of a warning whose head was left out
_COLLECTIVE_NETWORK = frozenset((b"Chan", b"Ring", b"Coll"))

# What a message is, by its first four bytes.
CHANNEL, SILENT, OPERATION = 1, 2, 3
KINDS: Dict[bytes, int] = dict.fromkeys((b"Chan", b"Ring"), CHANNEL)
# Says nothing that is judged (GRAPH and TUNING dumps, proxy threads, affinities).
KINDS.update(
    dict.fromkeys(
        (
            b"Tree",
            b"Sett",
            b"thre",
            b"Allo",
            b"CC O",
            b"RAS ",
            b"=== ",
            b"====",
            b"Patt",
            b"work",
            b"Mem ",
            b"[Pro",
            b"Max ",
            b"ID  ",
            b"NIC/",
            b"PCI/",
        ),
        SILENT,
    )
)
# Operations (NCCL_DEBUG_SUBSYS=COLL): millions of lines that only say that the process exists.
KINDS.update(
    dict.fromkeys((b"AllR", b"AllG", b"Broa", b"Redu", b"Send", b"Recv", b"Gath", b"Scat", b"Allt", b"AllT"), OPERATION)
)


class Messages:
    """Reads NCCL's lines of one stream."""

    def __init__(self, source: Source, processes: Processes, tables: TableReader) -> None:
        self.plain: Callable[[bytes, int], None]  # takes what turns out to be no line of NCCL's
        self.source = source
        self.processes = processes
        self.tables = tables
        self.state = 0  # sums up what all processes are in the middle of
        self.turned = False  # a process turned to something else
        self.moved: Dict[Tracker, None] = {}  # those that did
        self.lasting = False  # something was done that would be done again
        self._remembered = 0
        self._waiting: List[Tracker] = []  # processes with channels that wait

    # -- channels ------------------------------------------------------------------------------------------------------
    def wait(self, tracker: Tracker) -> None:
        """Let a process wait for its communicator with one more lane."""
        if not tracker.pending:
            self._waiting.append(tracker)
        elif len(tracker.pending) >= PENDING:
            self._settle(tracker)

    def channel(self, tracker: Tracker, text: bytes, number: int, raw: bytes) -> None:
        """Take one channel, or the order of a ring."""
        found = lane_of(text)
        if found is None:
            tracker.ring_order(text)
            return
        lane, bit = found
        if lane not in tracker.pending:
            self.wait(tracker)
            tracker.first_sight(lane, number, raw)
        tracker.wait()[lane] = tracker.pending.get(lane, 0) | bit

    def _settle(self, tracker: Tracker) -> None:
        """Add the channels that wait for a process, now that their communicator is known."""
        if tracker.pending:
            tracker.settle()

    def settle(self) -> None:
        """Keep the channels of many processes as edges, which is far less."""
        if len(self._waiting) > _MANY:
            for tracker in self._waiting:
                if tracker.announced:
                    self._settle(tracker)
            self._waiting = []
            if self.processes.partial.crowd.loose():
                self.processes.pack()

    def finish(self) -> None:
        """Settle what waits for more."""
        for tracker in self.processes.all():
            self._settle(tracker)
        self._waiting = []
        self.moved = {}

    # -- lines ---------------------------------------------------------------------------------------------------------
    def line(self, raw: bytes, number: int) -> None:
        """Read a line whose head is new, or which holds several lines."""
        for piece in raw.split(b"\r") if b"\r" in raw else (raw,):
            if piece:
                self._piece(piece, number)

    def _piece(self, piece: bytes, number: int) -> None:
        at = piece.find(b"NCCL INFO ")
        if len(piece) > MAX_TEXT:
            piece = piece[max(0, at - 1024) :][:MAX_TEXT]
            at = piece.find(b"NCCL INFO ")
        warn = piece.find(b"NCCL WARN ")
        if at < 0 and warn < 0:
            self.plain(piece, number)
            return
        if at < 0 or 0 <= warn < at:
            self.warn(piece, warn, number)
            return
        text = piece[at + 10 :]
        tracker, front = self.processes.head(piece[:at])
        if front and TYPE.search(front):
            self.lasting = True
            self.tables.torn_left(front, number)
        bar = text.find(b" | ")
        second = torn_at(text)
        if bar > 0 and text.endswith(text[:bar]):  # CloudWatch's console writes a line twice
            text, second = text[:bar], None
        if second is not None:
            self._torn(tracker, text[:second], number, piece)
            self._piece(text[second:], number)
            return
        kind = KINDS.get(text[:4])
        if kind == CHANNEL:
            self.channel(tracker, text, number, piece)
        elif kind is None or (kind == OPERATION and b"> Algo " in text):
            self.message(tracker, text, number, piece)

    def _torn(self, tracker: Tracker, text: bytes, number: int, raw: bytes) -> None:
        """Read the first of two lines that were written into one.

        Its end may be lost, so no channel is taken from it.
        """
        text = text.rstrip().rstrip(b"|").rstrip()
        if text[:4] not in _COLLECTIVE_NETWORK:
            self.message(tracker, text, number, raw)

    def warn(self, piece: bytes, at: int, number: int) -> None:
        """Read a line with ``NCCL WARN `` at some place."""
        self.source.nccl_lines += 1
        left = piece[:at]
        tracker, _ = self.processes.head(left)
        place = left[left.rfind(b"] ") + 2 :] if b"] " in left else left if _PLACE.search(left) else b""
        text = piece[at + 10 :]
        second = torn_at(text)
        tracker.warn(place.strip()[-160:], text if second is None else text[:second], number, piece)
        if second is not None:
            self._piece(text[second:], number)

    def message(self, tracker: Tracker, text: bytes, number: int, raw: bytes) -> bool:
        """Read a message; say whether it left the process in the middle of what it was in the middle of."""
        if text.endswith(b"across cluster]"):  # Ray's de-duplication mark
            text = text[: text.rfind(b"[repeated ")].rstrip()
        if tracker.changes_communicator(text):
            self._settle(tracker)
        before = tracker.state()
        silent = tracker.info(text.rstrip(), number, raw)
        after = tracker.state()
        if before != after:
            self.state ^= hash((tracker, before)) ^ hash((tracker, after))
            if len(self.moved) < _MOST_MOVED:
                self.moved[tracker] = None
            self.lasting = self.lasting or before[3] != after[3]
            self.turned = True
            self._remembered -= len(tracker.same)
            tracker.forget(always=False)
            return False
        if self._remembered >= _REMEMBER:
            for other in self.processes.all():
                other.forget()
            self._remembered = 0
        tracker.remember(text, silent)
        self._remembered += 1
        return True
