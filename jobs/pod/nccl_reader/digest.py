"""Reduces a block of lines to what it says: one pass, the same result wherever it runs and whatever was read before.

Most lines of a real log say nothing, or add one more channel to an edge. A block becomes a short list of events in the
order of its lines: channels, summed up for each process; effects of messages; and the lines whose meaning depends on
what was read before (tables, torn lines, launchers), as they are. What applies them (scan.py) knows the blocks before.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from .events.comms import usual
from .events.facts import COMM, NOTE, SIGHT, TRACE, Effect, effects_of, ring_order
from .events.heads import Heads
from .events.kinds import KINDS, LANES, OPERATION
from .events.messages import MAX_TEXT
from .events.quiet import is_quiet, line_says
from .events.transports import sight_of
from .lines.clean import ESCAPES
from .lines.prefix import Head, Process
from .lines.words import DIGITS, HEX_DIGITS
from .state.lanes import BITS, bit_of, parse_channel

MARK = b"NCCL INFO "
MAX_LINE = 64 * 1024  # of a line without an end, this much is kept
_KNOWN = 20_000  # messages whose effects are known, shapes of lines that say nothing
_LONGEST = 400  # bytes of one of them
_HEADS = 65_536  # that are known
_QUOTED = frozenset((NOTE, TRACE, SIGHT))  # effects that keep their line

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

    __slots__ = ("heads", "key", "lanes", "sights")

    def __init__(self, key: Optional[Process]) -> None:
        self.key = key  # None: there is more than a head in front of the message
        self.heads: Set[Head] = set()
        self.lanes: Dict[bytes, int] = {}  # what names a lane -> its channels, as bits
        self.sights: Dict[str, Tuple[int, bytes]] = {}  # what a fault may quote of them: its first line

    def flush(self, number: int, events: List[Event]) -> None:
        """Pass on the channels."""
        for sight, (first, raw) in self.sights.items():
            events.append((number, self.key, ((SIGHT, sight, number - first),), raw))
        events.append((number, self.key, self.lanes, b""))
        self.lanes, self.sights = {}, {}


class Digester:
    """Digests blocks; what it remembers of one makes the next one faster, and never different."""

    def __init__(self) -> None:
        self._heads = Heads()
        self._known: Dict[bytes, Tuple[Tuple[Effect, ...], bool]] = {}  # message -> effects, whether the line is kept
        self._quiet: Set[bytes] = set()  # messages that say nothing, whatever their numbers
        self._quiet_lines: Set[bytes] = set()  # the same of lines that are not NCCL's
        self._here: Dict[bytes, _Process] = {}  # by what stands left of their messages
        self._processes: Dict[Optional[Process], _Process] = {}

    def digest(self, data: bytes) -> Digest:  # noqa: C901, PLR0912 -- the hot loop: calls cost more than work
        """Return what a block of whole lines says."""
        if b"\x1b" in data or b"\r" in data:
            data = ESCAPES.sub(b"", data.replace(b"\r\n", b"\n"))
        returns = b"\r" in data
        events: List[Event] = []
        if len(self._here) > _HEADS:
            self._here, self._processes = {}, {}
        full: List[_Process] = []  # that have channels
        here, known, quiet, quiet_lines = self._here, self._known, self._quiet, self._quiet_lines
        marked = 0
        number = -1
        for number, line in enumerate(BytesIO(data)):  # not split(): so a line's memory is the next one's
            left, mark, text = line[:-1].partition(MARK)
            if not mark:
                if (returns and b"\r" in line) or (line.translate(DIGITS) not in quiet_lines and self._says(line)):
                    events.append((number, None, None, line[:-1][:MAX_LINE]))
                continue
            marked += 1
            process = here.get(left) or self._process(left, number, events)
            bit = BITS.get(text[:10])
            if bit is not None:
                lanes, lane = process.lanes, text[10:]
                if lane in lanes:
                    lanes[lane] |= bit
                    continue
            if process.key is None or (returns and b"\r" in line):
                events.append((number, None, None, line[:-1][:MAX_LINE]))
                continue
            found = known.get(text)
            if found is None:
                if text.translate(HEX_DIGITS) in quiet:
                    continue
                if b" NCCL " in text or len(text) > MAX_TEXT:
                    events.append((number, None, None, line[:-1][:MAX_LINE]))
                    continue
                if text[:4] in LANES:
                    if not process.lanes:
                        full.append(process)
                    self._channel(process, line, text, number, events)
                    continue
                found = self._effects(text)
            effects, quoted = found
            if effects:
                if effects[0][0] == COMM and process.lanes:
                    process.flush(number, events)
                events.append((number, process.key, effects, line[:-1] if quoted else b""))
        for process in full:
            if process.lanes:
                process.flush(number + 1, events)
        return Digest(number + 1, marked, events)

    def _process(self, left: bytes, number: int, events: List[Event]) -> _Process:
        """Return the process that a head names; one without a key where there is more than a head."""
        seen = self._heads.find(left)
        key = None if seen is None else seen.process
        process = self._processes.get(key)
        if process is None:
            process = self._processes[key] = _Process(key)
        if seen is not None and seen.head not in process.heads:
            process.heads.add(seen.head)
            events.append((number, key, seen.head, b""))
        self._here[left] = process
        return process

    def _channel(self, process: _Process, line: bytes, text: bytes, number: int, events: List[Event]) -> None:
        """Take a line of a lane that the process did not name before."""
        bit, lane = bit_of(text), text[10:]
        if bit is None:
            found = parse_channel(text)
            if found is None:
                ring = ring_order(text)
                if ring:
                    events.append((number, process.key, ring, b""))
                return
            bit, lane = 1 << found[1], found[2]
        process.lanes[lane] = process.lanes.get(lane, 0) | bit
        sight = sight_of(lane)
        if sight is not None and sight not in process.sights:
            process.sights[sight] = number, line[:-1]

    def _effects(self, text: bytes) -> Tuple[Tuple[Effect, ...], bool]:
        """Return what a message says that was not read before, and whether its line is kept."""
        said = usual(text)
        if said is not None:
            return ((COMM, said),), False
        shape = text.translate(HEX_DIGITS)
        if is_quiet(shape):
            if len(self._quiet) >= _KNOWN:
                self._quiet.clear()
            self._quiet.add(shape)
            return (), False
        kind = KINDS.get(text[:4])
        effects = effects_of(text) if kind is None or (kind == OPERATION and b"> Algo " in text) else ()
        found = effects, any(effect[0] in _QUOTED for effect in effects)
        if len(text) <= _LONGEST and not (effects and effects[0][0] == COMM):
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[text] = found
        return found

    def _says(self, line: bytes) -> bool:
        """Say whether a line that is not NCCL's holds one of the words that matter, or looks like a table's row."""
        said = line_says(line)
        if said is None:
            if len(self._quiet_lines) >= _KNOWN:
                self._quiet_lines.clear()
            self._quiet_lines.add(line.translate(DIGITS))
        return bool(said)
