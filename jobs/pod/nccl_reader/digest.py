"""Reduces a block of lines to what it says: one pass, the same result wherever it runs and whatever was read before.

Most lines of a real log say nothing, or add one more channel to an edge. A block becomes a short list of events in the
order of its lines: channels, summed up for each process; effects of messages; and the lines whose meaning depends on
what was read before (tables, torn lines, launchers), as they are. What applies them (scan.py) knows the blocks before.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from .events.facts import COMM, NOTE, SIGHT, TRACE, Effect, effects_of, ring_order
from .events.heads import Heads, Process
from .events.idle import Idle
from .events.kinds import CHANNEL, KINDS, OPERATION
from .events.transports import Lane, parse_channel, sight_of
from .lines.clean import ESCAPES

MARK = b"NCCL INFO "
MAX_TEXT = 8 * 1024  # of a message; NCCL's own buffer is 1 KiB, 2 KiB for device lists
MAX_LINE = 64 * 1024  # of a line without an end, this much is kept
_KNOWN = 20_000  # messages whose effects are known
_LONGEST = 400  # bytes of one of them
_LANES = 65_536  # that are known
_HEADS = 65_536  # that are known
_QUOTED = frozenset((NOTE, TRACE, SIGHT))  # effects that keep their line

_UNKNOWN: Any = object()

Event = Tuple[int, Optional[bytes], Any, bytes]
"""Number of the line in its block; the head of the process, None for a line that is passed on whole; effects, or
channels by lane, or nothing; the line, where it is kept."""


class Digest(NamedTuple):
    """What a block of whole lines says."""

    lines: int
    marked: int  # lines with NCCL INFO
    events: List[Event]


class _Process:
    """What a digester knows of a process: its head, its lanes by the text that names them, what of it was quoted."""

    __slots__ = ("head", "here", "lanes", "quoted")

    def __init__(self, head: bytes) -> None:
        self.head = head
        self.lanes: Dict[bytes, Optional[Lane]] = {}
        self.quoted: List[str] = []
        self.here: List[Tuple[bytes, bytes, int]] = []  # lanes that the present block shows, with their first lines


class Digester:
    """Digests blocks; what it remembers of one makes the next one faster, and never different."""

    def __init__(self) -> None:
        self._heads = Heads()
        self._idle = Idle()
        self._known: Dict[bytes, Tuple[Effect, ...]] = {}
        self._fronts: Dict[bytes, Optional[Tuple[bytes, int]]] = {}  # "Channel 07/0" -> without the number, its bit
        self._processes: Dict[Process, _Process] = {}
        self._named: Set[bytes] = set()  # heads that were named
        self._lanes = 0

    def digest(self, data: bytes) -> Digest:  # noqa: C901, PLR0912, PLR0915 -- the hot loop: calls cost more than work
        """Return what a block of whole lines says."""
        if b"\x1b" in data or b"\r" in data:
            data = ESCAPES.sub(b"", data.replace(b"\r\n", b"\n"))
        returns = b"\r" in data
        if self._lanes > _LANES or len(self._named) > _HEADS:
            self._processes, self._named, self._lanes = {}, set(), 0
        events: List[Event] = []
        add = events.append
        here: Dict[bytes, Optional[_Process]] = {}  # by what stands left of NCCL INFO
        masks: Dict[bytes, int] = {}  # a channel's line, less the channel -> channels, as bits
        kinds, fronts, known, idle = KINDS, self._fronts, self._known, self._idle
        marked = 0
        lines = data.split(b"\n")
        lines.pop()
        for number, raw in enumerate(lines):
            left, mark, text = raw.partition(MARK)
            if not mark:
                if not idle.line(raw):
                    add((number, None, None, raw[:MAX_LINE]))
                continue
            marked += 1
            kind = kinds.get(text[:4])
            split = None
            if kind == CHANNEL:
                front, _, rest = text.partition(b" : ")
                split = fronts[front] if front in fronts else self._front(front)
                if split is not None:
                    rest = split[0] + rest
                    lane = left + rest
                    bits = masks.get(lane)
                    if bits is not None:
                        masks[lane] = bits | split[1]
                        continue
            process = here.get(left, _UNKNOWN)
            if process is _UNKNOWN:
                process = here[left] = self._process(left, number, events)
            if process is None or len(raw) > MAX_TEXT or b" NCCL " in text or (returns and b"\r" in raw):
                add((number, None, None, raw[:MAX_LINE]))
                continue
            if kind == CHANNEL:
                if split is not None:
                    masks[lane] = split[1]
                    process.here.append((lane, rest, number))
                continue
            if kind is not None and (kind != OPERATION or b"> Algo " not in text):
                continue
            effects = known.get(text)
            if effects is None:
                effects = self._effects(text)
            if effects:
                if effects[0][0] == COMM:
                    self._flush(process, masks, lines, number, events)
                quoted = raw if any(effect[0] in _QUOTED for effect in effects) else b""
                add((number, process.head, effects, quoted))
        for process in here.values():
            if process is not None and process.here:
                self._flush(process, masks, lines, len(lines), events)
        return Digest(len(lines), marked, events)

    def _process(self, left: bytes, number: int, events: List[Event]) -> Optional[_Process]:
        """Return the process that a head names; None where there is more than a head."""
        seen = self._heads.find(left)
        if seen is None:
            return None
        process = self._processes.get(seen.process)
        if process is None:
            process = self._processes[seen.process] = _Process(seen.head)
        if seen.head not in self._named:
            self._named.add(seen.head)
            events.append((number, seen.head, None, b""))
        return process

    def _flush(
        self, process: _Process, masks: Dict[bytes, int], lines: List[bytes], number: int, events: List[Event]
    ) -> None:
        """Pass on the channels of a process: its next line may speak of another communicator."""
        found: Dict[Lane, int] = {}
        for line, rest, first in process.here:
            bits = masks.pop(line)
            if rest in process.lanes:
                lane = process.lanes[rest]
            else:
                lane = self._lane(process, rest, lines, first, number, events)
            if lane is not None:
                found[lane] = found.get(lane, 0) | bits
        process.here = []
        if found:
            events.append((number, process.head, found, b""))

    def _lane(
        self, process: _Process, rest: bytes, lines: List[bytes], first: int, number: int, events: List[Event]
    ) -> Optional[Lane]:
        """Read the first line of a lane; None for a ring's order, and what is torn."""
        text = lines[first].partition(MARK)[2]
        read = parse_channel(text)
        self._lanes += 1
        if read is None:
            process.lanes[rest] = None
            ring = ring_order(text)
            if ring:
                events.append((number, process.head, ring, b""))
            return None
        lane = process.lanes[rest] = read[0]
        sight = sight_of(lane)
        if sight is not None and sight not in process.quoted:
            process.quoted.append(sight)
            events.append((number, process.head, ((SIGHT, sight, number - first),), lines[first]))
        return lane

    def _front(self, front: bytes) -> Optional[Tuple[bytes, int]]:
        """Split what is in front of a channel's colon: all but the channel, and its bit; None where that is none."""
        word, _, number = front.partition(b" ")
        channel, slash, conn = number.partition(b"/")
        found = None
        if channel.isdigit() and len(channel) <= 4 and (not slash or (conn.isdigit() and len(conn) <= 3)):
            found = (b"" if word + slash + conn == b"Channel/0" else word + b"/" + conn + b" ", 1 << int(channel))
        if len(self._fronts) >= _KNOWN:
            self._fronts.clear()
        self._fronts[front] = found
        return found

    def _effects(self, text: bytes) -> Tuple[Effect, ...]:
        """Return what a message says that was not read before."""
        if self._idle.message(text):
            return ()
        effects = effects_of(text)
        if len(text) <= _LONGEST and not (effects and effects[0][0] == COMM):
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[text] = effects
        return effects
