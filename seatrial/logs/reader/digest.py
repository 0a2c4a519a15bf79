"""Reduces a block of lines to its content: one pass, with a result that is independent of place and earlier blocks.

Most lines of a real log have no content, or add one more channel to an edge. A block becomes a short list of events in
the order of its lines: channels, summed up for each process; effects of messages; and, unchanged, the lines whose
meaning depends on earlier ones (tables, torn lines, launchers). scan.py, which applies them, has the state of the
earlier blocks.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Set, Tuple

from .events.comms import COMMUNICATORS, RANKS, parse_common_form
from .events.facts import COMM, FACT, HEAD, QUOTE, READ_BACK, TRACE, Effect, effects_of, keeps_line, ring_order
from .events.heads import ALONE, Heads
from .events.kinds import CHANNEL_STARTS, KINDS, OPERATION, SILENT
from .events.long_lines import bounded, far
from .events.messages import MAX_TEXT
from .events.quiet import GATE, has_content, is_quiet, left_out, line_is_quiet
from .events.signals import MOST, fails_within
from .events.transports import quote_kind_of
from .lines.clean import name, plain_lines
from .lines.patterns import DIGITS, HEX_DIGITS
from .state.channels import BITS, CONNECTION, Connection, parse_channel, parse_connector

if TYPE_CHECKING:
    from .lines.prefix import Process

MARK = b"NCCL INFO "
_KNOWN = 20_000  # messages with known effects, shapes of lines without content
_LONGEST = 400  # bytes of one message or shape
_LONGEST_NAME = 170  # bytes after a channel; longer text is something else
_HEADS = 65_536  # known heads
_NUMBERS = b"0123456789 []/->|"  # the whole text after the first word of these messages
_OF_NUMBERS = frozenset((b"Trees\n", b"threadThresholds\n"))
_STRETCH = 16 * 1024  # bytes of foreign lines that are searched together

OwnEvent = Tuple[int, Any]
"""Number of a line in its block; a communicator's line (CommLine), or its process's content so far: channels by
connection, facts."""
Event = Tuple[int, int, Any, bytes]
"""Number of the line in its block; the index of its process in the digest; the content; the line, if it is kept.

The content is effects, or a list of the process's own events so far. A line that is passed on whole has no content; its
index is -1 minus the number of processes that wrote before it.
"""


def _whole(number: int, place: int, line: bytes) -> List[Event]:
    """Return a line that is passed on whole, and the signs of a failure in parts that the reader does not parse."""
    if len(line) <= MOST:
        return [(number, place, None, line)]
    return [(number, place, None, text) for text in (bounded(line), *far(line))]


class Digest(NamedTuple):
    """The content of a block of whole lines, in types that marshal writes."""

    lines: int
    marked: int  # lines with NCCL INFO
    processes: List[Process]  # processes in the order of their first lines
    events: List[Event]
    own_events: List[List[OwnEvent]]  # events of each process that depend only on its own lines, in order


Message = Tuple[Tuple[Effect, ...], Tuple[Effect, ...], bool]
"""The content of a message: facts, which always count; effects of its line; whether the line is kept."""
_NOTHING: Message = (), (), False


class _Process:
    """A process in one block: its channels until its next line may mention another communicator, and its facts."""

    __slots__ = ("channels", "connections", "devices", "facts", "index", "key", "own_events", "quote_kinds", "speaks")

    def __init__(self, key: Optional[Process]) -> None:
        self.key = key  # None: the text before the message is more than a head
        self.speaks = False  # whether it prints in the digested part; never without a key
        self.index = -1  # its index in the digest
        self.devices: Tuple[bytes, ...] = ()  # devices in heads that begin their lines, as printed
        self.channels: Dict[bytes, int] = {}  # a connection, as printed -> its channels, as bits
        self.connections: Dict[Connection, int] = {}  # read, from channels or from a rare form
        self.quote_kinds: Tuple[str, ...] = ()  # lines that a fault may quote, and that were passed on
        self.facts: List[Tuple[Effect, ...]] = []
        self.own_events: List[OwnEvent] = []

    def flush(self, number: int) -> List[OwnEvent]:
        """Add the channels to the content so far, and return it."""
        connections, ranks = self.connections, RANKS
        for (conn, src, dst, how), bits in zip(CONNECTION.findall(b"".join(self.channels)), self.channels.values()):
            end = parse_connector(how, conn, False)
            if end is not None:
                connection = ranks[src], ranks[dst], end[0]
                connections[connection] = connections[connection] | bits if connection in connections else bits
        if connections:
            self.own_events.append((number, connections))
            self.channels, self.connections = {}, {}
        return self.own_events


class Digester:
    """Digests blocks; its caches of earlier blocks change the speed, never the result."""

    def __init__(self) -> None:
        self._known: Dict[bytes, Message] = {}
        self._quiet: Set[bytes] = set()  # messages without content, whatever their numbers
        self._clean: Set[bytes] = set()  # shapes of messages without another process's failure in them
        self._quiet_lines: Set[bytes] = set()  # the same for foreign lines
        self._quote_kinds: Dict[bytes, Optional[str]] = {}  # a connection, every digit a 0 -> its kind (QUOTE)
        self._active: List[_Process] = []  # processes that write into the digested part
        self.lines = self._marked = 0
        self._events: List[Event] = []
        self._heads = Heads()
        self._by_head: Dict[bytes, _Process] = {}  # processes by the text left of their messages
        self._by_address: Dict[bytes, _Process] = {}  # processes by host and pid, as printed
        self._processes: Dict[Optional[Process], _Process] = {}

    def digest(self, data: bytes) -> Digest:
        """Return the content of a block of whole lines."""
        self.read(data)
        return self.take()

    def read(self, data: bytes) -> bool:  # noqa: C901, PLR0912, PLR0915 -- the hot loop: calls cost more than work
        """Digest a block of whole lines together with those before; return whether to take the result now.

        That is so if later lines may depend on a whole line, or many processes write.
        """
        data = plain_lines(data)
        returns = b"\r" in data
        by_head, known, quiet, quiet_lines, bits = self._by_head, self._known, self._quiet, self._quiet_lines, BITS
        active, events, shapes, named = self._active, self._events, self._quote_kinds, CONNECTION.fullmatch
        number, marked, before = self.lines - 1, 0, len(events)
        lines = BytesIO(data)  # not split(), so that each line reuses the memory of the last one
        for line in lines:
            number += 1
            left, mark, text = line.partition(MARK)
            if not mark:
                if line.translate(DIGITS) in quiet_lines:
                    continue
                next_one = lines.tell()
                number, next_one = self._pass(data, next_one - len(line), next_one, number, -1 - len(active))
                lines.seek(next_one)
                continue
            marked += 1
            process = by_head.get(left) or self._process(left)
            if not process.speaks and process.key is not None:
                process.index, process.speaks = len(active), True
                active.append(process)
            if not process.speaks or (returns and b"\r" in line):
                events.extend(_whole(number, -1 - len(active), line[:-1]))
                continue
            bit = bits.get(text[:10])
            if bit is not None:
                channels, connection = process.channels, text[10:]
                if connection in channels:
                    channels[connection] |= bit
                    continue
                shape = connection.translate(DIGITS)
                quote_kind = shapes.get(shape, "")
                match = named(connection) if quote_kind == "" and len(connection) < _LONGEST_NAME else None
                end = parse_connector(match.group(4), match.group(1), False) if match is not None else None
                # Whatever its digits: only P2P's form has its own, and nothing follows the carrier.
                if end is not None and connection.count(b" ", connection.find(b"via ") + 4) == end[0].count(" "):
                    if len(shapes) >= _KNOWN:
                        shapes.clear()
                    quote_kind = shapes[shape] = quote_kind_of(end[0])
                if quote_kind != "":
                    channels[connection] = bit
                    if quote_kind is not None and quote_kind not in process.quote_kinds:
                        process.quote_kinds += (quote_kind,)
                        events.append((number, process.index, ((QUOTE, quote_kind),), line[:-1]))
                    continue
                reading = self._read(process, line, text, number)
            else:
                reading = known.get(text)
                if reading is None:
                    start = text[:4]
                    if start in COMMUNICATORS:
                        step = parse_common_form(text[:-1])
                        if step is not None:
                            if process.channels or process.connections:
                                process.flush(number)
                            process.own_events.append((number, step))
                            continue
                    elif start in SILENT and text.translate(None, _NUMBERS) in _OF_NUMBERS:
                        continue
                    if text.translate(HEX_DIGITS) in quiet:
                        continue
                    reading = self._read(process, line, text, number)
            if reading is None:
                events.extend(_whole(number, -1 - len(active), line[:-1]))
                continue
            facts, effects, quoted = reading
            if facts:
                process.facts.append(facts)
            if effects:
                what = effects[0][0]
                if what == COMM:
                    process.flush(number).append((number, effects[0][1]))
                    continue
                if what == TRACE:  # an error counts unless a communicator comes up after it
                    events.append((number, process.index, process.flush(number), b""))
                    process.own_events = []
                events.append((number, process.index, effects, line[:-1] if quoted else b""))
        self._marked += marked
        self.lines = number + 1
        return len(by_head) + len(self._processes) > _HEADS or any(event[1] < 0 for event in events[before:])

    def take(self) -> Digest:
        """Return the content of the blocks since the last call."""
        number = self.lines
        digest = Digest(number, self._marked, [], self._events, [])
        for process in self._active:
            own_events = process.flush(number)
            if process.facts:
                own_events.append((number, process.facts))
                process.facts = []
            process.quote_kinds = ()
            assert process.key is not None  # a process without a key passes its lines on whole
            digest.processes.append(process.key)
            digest.own_events.append(own_events)
            process.own_events, process.speaks = [], False
        self._events, self._active, self.lines, self._marked = [], [], 0, 0
        if len(self._by_head) + len(self._processes) > _HEADS:
            self._by_head, self._by_address, self._processes, self._heads = {}, {}, {}, Heads()
        return digest

    def _process(self, left: bytes) -> _Process:
        """Return the process that a head names; one without a key if the text is more than a head."""
        place, _, rest = left.rpartition(b":")
        process = self._by_address.get(place)
        if process is not None:
            thread, _, device = rest.partition(b" ")  # the head of a known process
            if device in process.devices and thread.isdigit() and len(thread) <= 20:
                self._by_head[left] = process
                return process
        alone = ALONE.fullmatch(left)  # most heads have no prefix
        if alone is not None and b"NCCL" not in left:
            host, pid, dev = alone.groups()
            if process is None:
                key: Optional[Process] = (name(host, 255), int(pid), "")
                process = self._by_address[place] = self._processes.setdefault(key, _Process(key))
            process.devices += (b"[%s] " % dev,)
            process.facts.append(((HEAD, int(dev), ""),))
            again = True
        else:
            read_head, again = self._heads.find(left)
            if read_head is None:
                process = self._processes.setdefault(None, _Process(None))
                if again:
                    self._by_head[left] = process
                return process
            if read_head.owner is None:
                read_head.owner = self._processes.setdefault(read_head.process, _Process(read_head.process))
                read_head.owner.facts.append(((HEAD, read_head.head.dev, read_head.head.tag),))
            process = read_head.owner
        if again:
            self._by_head[left] = process
        return process

    def _read(self, process: _Process, line: bytes, text: bytes, number: int) -> Optional[Message]:
        """Return the content of an unknown message; None if the line has to be parsed."""
        start, message, shape = text[:4], text[:-1], text.translate(HEX_DIGITS)
        if b" NCCL " in text or len(message) > MAX_TEXT or fails_within(message, shape, self._clean):
            return None
        if start in CHANNEL_STARTS:
            reading = self._channel(process, line, text, number)
            order = ring_order(message) if reading is None else ()
            return reading or ((), order, keeps_line(order))
        if start in SILENT or is_quiet(shape):  # other beginnings have none of these shapes, except made-up words
            if len(self._quiet) >= _KNOWN:
                self._quiet.clear()
            self._quiet.add(shape)
            return _NOTHING
        kind = KINDS.get(start)
        effects = effects_of(message) if kind is None or (kind == OPERATION and b"> Algo " in text) else ()
        if effects and effects[0][0] == COMM:
            return (), effects, False
        facts: Tuple[Effect, ...] = ()
        rest: Tuple[Effect, ...] = ()
        for effect in effects:
            if effect[0] == FACT and effect[1:] not in READ_BACK:
                facts += (effect,)
            else:
                rest += (effect,)
        reading = facts, rest, keeps_line(rest)
        if len(text) <= _LONGEST:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[text] = reading
        return reading

    def _channel(self, process: _Process, line: bytes, text: bytes, number: int) -> Optional[Message]:
        """Take a line of a connection that is new for the process; None if it is not one, or torn."""
        channel_line = parse_channel(text[:-1])
        if channel_line is None:
            return None
        connection, channel, size = channel_line
        quote_kind = quote_kind_of(connection[2])
        process.connections[connection] = process.connections.get(connection, 0) | 1 << channel
        if quote_kind is not None and quote_kind not in process.quote_kinds:
            process.quote_kinds += (quote_kind,)
            self._events.append((number, process.index, ((QUOTE, quote_kind),), line[:-1]))
        return (((FACT, "nranks", size),), (), False) if size else _NOTHING

    def _pass(self, data: bytes, start: int, end: int, number: int, place: int) -> Tuple[int, int]:
        """Pass on the content of a foreign line, and of further ones that directly follow.

        Return the number and the end of the last one; ``place`` replaces the process's index for them.
        """
        last = data.rfind(b"\n", end, start + _STRETCH) + 1 or end
        mark = data.find(MARK, end, last)
        if mark >= 0:
            last = data.rfind(b"\n", end - 1, mark) + 1
        places = GATE.places(data, start, last)
        dots = left_out(data, start, last)
        places = sorted((*places, *dots)) if dots else places
        if end - start <= _LONGEST and not (places and places[0] < end):
            self._remember(data[start:end].translate(DIGITS))
        for position in places:
            if position < start:  # part of a line that was read
                continue
            begin = data.rfind(b"\n", start, position) + 1 or start
            number += data.count(b"\n", start, begin)
            start = data.find(b"\n", position) + 1
            line = data[begin : start - 1]
            if has_content(line) or position in dots:
                self._events.extend(_whole(number, place, line))
            number += 1
        return number + data.count(b"\n", start, last) - 1, last

    def _remember(self, shape: bytes) -> None:
        """Record the shape of a foreign line without significant words."""
        if line_is_quiet(shape):
            if len(self._quiet_lines) >= _KNOWN:
                self._quiet_lines.clear()
            self._quiet_lines.add(shape)
