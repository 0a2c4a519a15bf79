"""Reduces a block of lines to what it says: one pass, the same result wherever it runs and whatever was read before.

Most lines of a real log say nothing, or add one more channel to an edge. A block becomes a short list of events in the
order of its lines: channels, summed up for each process; effects of messages; and the lines whose meaning depends on
what was read before (tables, torn lines, launchers), as they are. What applies them (scan.py) knows the blocks before.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from .events.comms import COMMUNICATORS, usual
from .events.facts import COMM, FACT, READ_BACK, SIGHT, TRACE, Effect, effects_of, keeps_line, ring_order
from .events.heads import Heads
from .events.kinds import KINDS, LANES, OPERATION
from .events.messages import MAX_TEXT
from .events.quiet import is_quiet, line_says
from .events.transports import sight_of
from .lines.clean import ESCAPES
from .lines.prefix import Head, Process
from .lines.words import DIGITS, HEX_DIGITS
from .state.lanes import BITS, Lane, named_lane, parse_channel

MARK = b"NCCL INFO "
MAX_LINE = 64 * 1024  # of a line without an end, this much is kept
_KNOWN = 20_000  # messages whose effects are known, shapes of lines that say nothing
_LONGEST = 400  # bytes of one of them
_HEADS = 65_536  # that are known

Spoken = Tuple[int, Any]
"""Number of a line in its block; a communicator's line (Said), or what was said up to here: channels by lane, facts."""
Event = Tuple[int, Optional[Process], Any, bytes]
"""Number of the line in its block; the process, None for a line that is passed on whole; what is said; the line, where
it is kept. What is said: effects; the head that first names the process; or what a process said up to here."""


class Digest(NamedTuple):
    """What a block of whole lines says."""

    lines: int
    marked: int  # lines with NCCL INFO
    events: List[Event]
    said: Dict[Process, List[Spoken]]  # what depends on the lines of its process alone, in their order


Message = Tuple[Tuple[Effect, ...], Tuple[Effect, ...], bool]
"""What a message says: facts, which count whenever they are said; effects of its line; whether the line is kept."""
_NOTHING: Message = (), (), False


class _Process:
    """A process in one block: its channels until its next line may speak of another communicator, and its facts."""

    __slots__ = ("channels", "facts", "heads", "key", "lanes", "said", "sights")

    def __init__(self, key: Optional[Process]) -> None:
        self.key = key  # None: there is more than a head in front of the message
        self.heads: Set[Head] = set()
        self.channels: Dict[bytes, int] = {}  # what names a lane -> its channels, as bits
        self.lanes: List[Lane] = []  # what is named, in the same order
        self.sights: Set[str] = set()  # what a fault may quote of them, and was passed on
        self.facts: List[Tuple[Effect, ...]] = []
        self.said: Optional[List[Spoken]] = None  # before its first line in a block

    def flush(self, number: int) -> List[Spoken]:
        """Put the channels to what is said, and return that."""
        said = self.said = [] if self.said is None else self.said
        if not self.lanes:
            return said
        lanes: Dict[Lane, int] = dict(zip(self.lanes, self.channels.values()))
        if len(lanes) < len(self.lanes):  # one lane under two names
            lanes = dict.fromkeys(lanes, 0)
            for lane, bits in zip(self.lanes, self.channels.values()):
                lanes[lane] |= bits
        said.append((number, lanes))
        self.channels, self.lanes = {}, []
        return said


class Digester:
    """Digests blocks; what it remembers of one makes the next one faster, and never different."""

    def __init__(self) -> None:
        self._heads = Heads()
        self._known: Dict[bytes, Message] = {}
        self._quiet: Set[bytes] = set()  # messages that say nothing, whatever their numbers
        self._quiet_lines: Set[bytes] = set()  # the same of lines that are not NCCL's
        self._here: Dict[bytes, _Process] = {}  # by what stands left of their messages
        self._processes: Dict[Optional[Process], _Process] = {}

    def digest(self, data: bytes) -> Digest:  # noqa: C901, PLR0912, PLR0915 -- the hot loop: calls cost more than work
        """Return what a block of whole lines says."""
        if b"\x1b" in data or b"\r" in data:
            data = ESCAPES.sub(b"", data.replace(b"\r\n", b"\n"))
        returns = b"\r" in data
        events: List[Event] = []
        if len(self._here) + len(self._processes) > _HEADS:
            self._here, self._processes, self._heads = {}, {}, Heads()
        here, known, quiet, quiet_lines, bits = self._here, self._known, self._quiet, self._quiet_lines, BITS
        number, others = -1, 0
        active: List[_Process] = []  # that say something
        for number, line in enumerate(BytesIO(data)):  # not split(): so a line's memory is the next one's
            left, mark, text = line.partition(MARK)
            if not mark:
                others += 1
                if (returns and b"\r" in line) or (line.translate(DIGITS) not in quiet_lines and self._says(line)):
                    events.append((number, None, None, line[:-1][:MAX_LINE]))
                continue
            process = here.get(left) or self._process(left, number, events)
            bit = bits.get(text[:10])
            if bit is not None:
                channels, name = process.channels, text[10:]
                if name in channels:
                    channels[name] |= bit
                    continue
                found = None
                lane = None if process.key is None or returns else named_lane(name)
                if lane is not None:
                    if process.said is None:
                        process.said = []
                        active.append(process)
                    channels[name] = bit
                    process.lanes.append(lane)
                    sight = sight_of(lane[2])
                    if sight is not None and sight not in process.sights:
                        process.sights.add(sight)
                        events.append((number, process.key, ((SIGHT, sight),), line[:-1]))
                    continue
            else:
                found = known.get(text)
                if found is None and text.translate(HEX_DIGITS) in quiet:
                    if process.key is not None and not returns:
                        continue
                    found = _NOTHING
            if process.key is None or (returns and b"\r" in line):
                found = None
            else:
                if process.said is None:
                    process.said = []
                    active.append(process)
                if found is None:
                    found = self._channel(process, line, text, number, events) if bit else None
                    found = found or self._read(process, line, text, number, events)
            if found is None:
                events.append((number, None, None, line[:-1][:MAX_LINE]))
                continue
            facts, effects, quoted = found
            if facts:
                process.facts.append(facts)
            if effects:
                what = effects[0][0]
                if what == COMM:
                    process.flush(number).append((number, effects[0][1]))
                    continue
                if what == TRACE:  # an error counts unless a communicator comes up behind it
                    events.append((number, process.key, process.flush(number), b""))
                    process.said = []
                events.append((number, process.key, effects, line[:-1] if quoted else b""))
        number += 1
        said: Dict[Process, List[Spoken]] = {}
        for process in active:
            spoken = process.flush(number)
            if process.facts:
                spoken.append((number, process.facts))
                process.facts = []
            if spoken and process.key is not None:
                said[process.key] = spoken
            process.said = None
            if process.sights:
                process.sights = set()
        return Digest(number, number - others, events, said)

    def _process(self, left: bytes, number: int, events: List[Event]) -> _Process:
        """Return the process that a head names; one without a key where there is more than a head."""
        seen, again = self._heads.find(left)
        process: Optional[_Process] = None if seen is None else seen.owner
        if process is None:
            key = None if seen is None else seen.process
            process = self._processes.get(key)
            if process is None:
                process = self._processes[key] = _Process(key)
            if seen is not None:
                seen.owner = process
                if seen.head not in process.heads:
                    process.heads.add(seen.head)
                    events.append((number, key, seen.head, b""))
        if again:
            self._here[left] = process
        return process

    def _read(self, process: _Process, line: bytes, text: bytes, number: int, events: List[Event]) -> Optional[Message]:
        """Return what a message says that is not known; None where the line has to be taken apart."""
        start, message = text[:4], text[:-1]
        said = usual(message) if start in COMMUNICATORS else None
        if said is not None:
            process.flush(number).append((number, said))
            return _NOTHING
        if b" NCCL " in text or len(message) > MAX_TEXT:
            return None
        if start in LANES:
            return self._channel(process, line, text, number, events) or ((), ring_order(message), False)
        shape = text.translate(HEX_DIGITS)
        if is_quiet(shape):
            if len(self._quiet) >= _KNOWN:
                self._quiet.clear()
            self._quiet.add(shape)
            return _NOTHING
        kind = KINDS.get(start)
        effects = effects_of(message) if kind is None or (kind == OPERATION and b"> Algo " in text) else ()
        if effects and effects[0][0] == COMM:
            return (), effects, False
        facts = tuple(effect for effect in effects if effect[0] == FACT and effect[1:] not in READ_BACK)
        rest = tuple(effect for effect in effects if effect not in facts)
        found = facts, rest, keeps_line(rest)
        if len(text) <= _LONGEST:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[text] = found
        return found

    def _channel(
        self, process: _Process, line: bytes, text: bytes, number: int, events: List[Event]
    ) -> Optional[Message]:
        """Take a line of a lane that the process did not name before; None where it is none, or torn."""
        found = parse_channel(text[:-1])
        if found is None:
            return None
        lane, channel, size = found
        bit = 1 << channel
        process.channels[text[10:] if BITS.get(text[:10]) == bit else text] = bit
        process.lanes.append(lane)
        sight = sight_of(lane[2])
        if sight is not None and sight not in process.sights:
            process.sights.add(sight)
            events.append((number, process.key, ((SIGHT, sight),), line[:-1]))
        return (((FACT, "nranks", size),), (), False) if size else _NOTHING

    def _says(self, line: bytes) -> bool:
        """Say whether a line that is not NCCL's holds one of the words that matter, or looks like a table's row."""
        said = line_says(line)
        if said is None:
            if len(self._quiet_lines) >= _KNOWN:
                self._quiet_lines.clear()
            self._quiet_lines.add(line.translate(DIGITS))
        return bool(said)
