"""Reduces a block of lines to what it says: one pass, the same result wherever it runs and whatever was read before.

Most lines of a real log say nothing, or add one more channel to an edge. A block becomes a short list of events in the
order of its lines: channels, summed up for each process; effects of messages; and the lines whose meaning depends on
what was read before (tables, torn lines, launchers), as they are. What applies them (scan.py) knows the blocks before.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from .events import signals
from .events.facts import COMM, NOTE, SIGHT, STARTS, TRACE, Effect, effects_of, ring_order
from .events.heads import Heads
from .events.kinds import CHANNEL, KINDS, OPERATION
from .events.symptoms import GATE
from .events.transports import Lane, parse_channel, sight_of
from .lines.clean import ESCAPES
from .lines.prefix import Head, Process
from .lines.words import any_of
from .tables.rows import TYPE

MARK = b"NCCL INFO "
MAX_TEXT = 8 * 1024  # of a message; NCCL's own buffer is 1 KiB, 2 KiB for device lists
MAX_LINE = 64 * 1024  # of a line without an end, this much is kept
_KNOWN = 20_000  # messages whose effects are known
_LONGEST = 400  # bytes of one of them
_HEADS = 65_536  # that are known
_QUOTED = frozenset((NOTE, TRACE, SIGHT))  # effects that keep their line
_ROW = re.compile(rb"\s{0,32}\d{1,19}\s+\d{1,19}\s+[a-z]\w+\s")  # a row whose blanks a copy has squeezed
# What messages of NCCL that say something hold, unless they begin with one of STARTS.
_SAYS = any_of((b" nranks ", b" nRanks ", b" nvls channels", b" -> ", b"> Algo ", b"+ NET["))

Event = Tuple[int, Optional[Process], Any, bytes]
"""Number of the line in its block; the process, None for a line that is passed on whole; what is said: effects,
channels by lane, or the head that first names the process; the line, where it is kept."""


class Digest(NamedTuple):
    """What a block of whole lines says."""

    lines: int
    marked: int  # lines with NCCL INFO
    events: List[Event]


class _Process:
    """A process and its channels in one block, summed up until its next line may speak of another communicator."""

    __slots__ = ("firsts", "key", "masks")

    def __init__(self, key: Optional[Process]) -> None:
        self.key = key
        self.masks: Dict[bytes, int] = {}  # what names a lane -> its channels, as bits
        self.firsts: List[int] = []  # the number of its first line

    def flush(self, lines: List[bytes], number: int, events: List[Event]) -> None:
        """Pass on the channels, and the first line of those that a fault may quote."""
        found: Dict[Lane, int] = {}
        sights: List[str] = []
        for bits, first in zip(self.masks.values(), self.firsts):
            text = lines[first].partition(MARK)[2]
            read = parse_channel(text)
            if read is None:  # a ring's order, or torn
                ring = ring_order(text)
                if ring:
                    events.append((number, self.key, ring, b""))
                continue
            lane = read[0]
            found[lane] = found.get(lane, 0) | bits
            sight = sight_of(lane)
            if sight is not None and sight not in sights:
                sights.append(sight)
                events.append((number, self.key, ((SIGHT, sight, number - first),), lines[first]))
        if found:
            events.append((number, self.key, found, b""))
        self.masks, self.firsts = {}, []


_TORN = _Process(None)


class Digester:
    """Digests blocks; what it remembers of one makes the next one faster, and never different."""

    def __init__(self) -> None:
        self._heads = Heads()
        self._known: Dict[bytes, Tuple[Tuple[Effect, ...], bool]] = {}  # message -> effects, whether the line is kept
        self._fronts: Dict[bytes, Tuple[bytes, int]] = {}  # "Channel 07/0" -> without the number, its bit
        self._named: Set[Head] = set()
        self._here: Dict[bytes, _Process] = {}  # by what stands left of their messages
        self._processes: Dict[Process, _Process] = {}

    def digest(self, data: bytes) -> Digest:  # noqa: C901, PLR0912 -- the hot loop: calls cost more than work
        """Return what a block of whole lines says."""
        if b"\x1b" in data or b"\r" in data:
            data = ESCAPES.sub(b"", data.replace(b"\r\n", b"\n"))
        returns = b"\r" in data
        events: List[Event] = []
        if len(self._here) > _HEADS:
            self._here, self._processes = {}, {}
        full: List[_Process] = []  # that have channels
        here, kinds, fronts, known = self._here, KINDS, self._fronts, self._known
        marked = 0
        lines = data.split(b"\n")
        lines.pop()
        for number, raw in enumerate(lines):
            left, mark, text = raw.partition(MARK)
            if not mark:
                if _says(raw) or (returns and b"\r" in raw):
                    events.append((number, None, None, raw[:MAX_LINE]))
                continue
            marked += 1
            process = here.get(left)
            if process is None:
                process = here[left] = self._process(left, number, events)
            kind = kinds.get(text[:4])
            split = None
            if kind == CHANNEL:
                front, _, rest = text.partition(b" : ")
                split = fronts.get(front) or self._front(front)
                rest = split[0] + rest
                masks = process.masks
                if rest in masks:
                    masks[rest] |= split[1]
                    continue
            if process.key is None or b" NCCL " in text or len(text) > MAX_TEXT or (returns and b"\r" in raw):
                events.append((number, None, None, raw[:MAX_LINE]))
            elif split is not None:
                if split[1]:
                    if not masks:
                        full.append(process)
                    masks[rest] = split[1]
                    process.firsts.append(number)
            elif kind is None or (kind == OPERATION and b"> Algo " in text):
                effects, quoted = known.get(text) or self._effects(text)
                if effects:
                    if effects[0][0] == COMM and process.masks:
                        process.flush(lines, number, events)
                    events.append((number, process.key, effects, raw if quoted else b""))
        for process in full:
            process.flush(lines, len(lines), events)
        return Digest(len(lines), marked, events)

    def _process(self, left: bytes, number: int, events: List[Event]) -> _Process:
        """Return the process that a head names; one without a key where there is more than a head."""
        seen = self._heads.find(left)
        if seen is None:
            return _TORN
        process = self._processes.get(seen.process)
        if process is None:
            process = self._processes[seen.process] = _Process(seen.process)
        if seen.head not in self._named:
            if len(self._named) >= _HEADS:
                self._named.clear()
            self._named.add(seen.head)
            events.append((number, seen.process, seen.head, b""))
        return process

    def _front(self, front: bytes) -> Tuple[bytes, int]:
        """Split what is in front of a channel's colon: all but the channel, and its bit; 0 where that is none."""
        word, _, number = front.partition(b" ")
        channel, slash, conn = number.partition(b"/")
        found = (front, 0)
        if channel.isdigit() and len(channel) <= 4 and (not slash or (conn.isdigit() and len(conn) <= 3)):
            found = (b"" if word + slash + conn == b"Channel/0" else word + b"/" + conn + b" ", 1 << int(channel))
        if len(self._fronts) >= _KNOWN:
            self._fronts.clear()
        self._fronts[front] = found
        return found

    def _effects(self, text: bytes) -> Tuple[Tuple[Effect, ...], bool]:
        """Return what a message says that was not read before."""
        if text[:4] not in STARTS and _SAYS.search(text) is None and GATE.search(text) is None:
            return (), False
        effects = effects_of(text)
        found = effects, any(effect[0] in _QUOTED for effect in effects)
        if len(text) <= _LONGEST and not (effects and effects[0][0] == COMM):
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[text] = found
        return found


def _says(raw: bytes) -> bool:
    """Say whether a line that is not NCCL's holds one of the words that matter, or looks like a table's row."""
    if signals.matters(raw):
        return True
    return (b"  " in raw or (raw[:1] in b"0123456789 \t" and _ROW.match(raw) is not None)) and TYPE.search(
        raw
    ) is not None
