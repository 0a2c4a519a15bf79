"""The state of one process, of one communicator, in one stream.

It holds no judgement. Everything is a set, a maximum, a sum or "the earliest line", so that the order in which lines,
files or pods arrive does not matter.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Callable, Dict, FrozenSet, Iterable, List, Optional, Set, Tuple, Union

from ..lines.clean import printable

if TYPE_CHECKING:
    from .channels import Connection

MAX_EDGES = 4096  # distinct (communicator, edge, transport) per process; a rank of a healthy job has some dozens
MAX_NOTES = 64
MAX_ENV = 96
MAX_ITEMS = 256

_MAX_RAW = 640  # maximum number of bytes of a line that are kept for display
_MAX_SHOWS = 100
_MAX_STEPS = 8192
_MAX_MADE = 300_000  # maximum number of shared dicts that are created
_MAX_ALL_EDGES = 300_000
_MAX_ALL_COMMS = 200_000  # bound for all processes
MAX_COMMS = 1024  # bound for one process
_MANY = 256  # processes that keep a separate line for one kind of note

_NONE: FrozenSet[Any] = frozenset()


channels_in: Callable[[int], int] = getattr(int, "bit_count", lambda mask: bin(mask).count("1"))  # noqa: FURB161
"""Count the channels of an edge's mask."""


_SHARED: Dict[FrozenSet[Any], FrozenSet[Any]] = {}


def shared(values: Iterable[Any]) -> FrozenSet[Any]:
    """Return the values as one set shared by all processes with the same ones: jobs have many processes."""
    members = frozenset(values)
    if len(members) > 32:  # such values are not shared between ranks
        return members
    if len(_SHARED) >= 8_000:
        _SHARED.clear()
    return _SHARED.setdefault(members, members)


@lru_cache(maxsize=8192)
def alone(value: Any) -> FrozenSet[Any]:
    """Return the set of one value, shared by all processes with it."""
    return shared((value,))


class Note:
    """A kept line: the least number of its kind, the first one, and the place of the last one in its stream.

    ``shows`` is the symptom that the line shows (events.symptoms): its role and its fault, "" for none.
    """

    __slots__ = ("_text", "count", "is_cause", "last", "line", "shows", "source")

    def __init__(
        self, source: int, line: int, text: Union[bytes, str], count: int = 1, last: int = 0, shows: str = ""
    ) -> None:
        self.source = source
        self.line = line
        self.last = max(line, last)
        self._text = text[:_MAX_RAW]  # the text as in the log; most notes are never shown
        self.count = count
        self.shows = shows
        self.is_cause = not shows or shows.startswith("cause")  # by itself the reason of a failure

    @property
    def role(self) -> str:
        """The role of the symptom that the line shows, "" for none."""
        return self.shows.partition(" ")[0]

    def order(self, name: str) -> Tuple[bool, int, int]:
        """Return the sort key of lines of one kind: a fault's causes precede lines that only explain it."""
        return not self.is_cause and name.endswith(self.shows.partition(" ")[2] or " "), self.source, self.line

    @property
    def text(self) -> str:
        """The line in the form that may be shown."""
        if isinstance(self._text, bytes):
            self._text = printable(self._text)
        return self._text

    @text.setter
    def text(self, text: str) -> None:
        self._text = text

    def joined(self, other: "Note", name: str) -> "Note":
        """Merge two occurrences of a kind; the earliest text is kept."""
        first = min(self, other, key=lambda note: note.order(name))
        last = max(note.last for note in (self, other) if note.source == first.source)
        return Note(first.source, first.line, first.text, self.count + other.count, last, first.shows)

    def to_list(self) -> List[Any]:
        """Return the JSON form."""
        return [self.source, self.line, self.count, self.text, self.last, self.shows]

    @classmethod
    def from_list(cls, data: List[Any]) -> "Note":
        """Read the JSON form."""
        last, shows = int(data[4]) if len(data) > 4 else 0, str(data[5])[:_MAX_SHOWS] if len(data) > 5 else ""
        return cls(int(data[0]), int(data[1]), str(data[3]), int(data[2]), last, shows)


class Comm:
    """One communicator as one process (and one of its ranks) sees it."""

    __slots__ = ("completed", "local", "mnnvl", "nnodes", "nranks", "rank", "started")

    def __init__(self, rank: int, nranks: int) -> None:
        self.rank = rank
        self.nranks = nranks
        self.nnodes = 0  # 0: not printed
        self.local = 0  # ranks on this node, as printed
        self.mnnvl = 0
        self.started = False
        self.completed = False

    def joined(self, other: "Comm") -> "Comm":
        """Return the union of two readings of the same communicator."""
        comm = Comm(self.rank, self.nranks)
        comm.nnodes = max(self.nnodes, other.nnodes)
        comm.local = max(self.local, other.local)
        comm.mnnvl = max(self.mnnvl, other.mnnvl)
        comm.started = self.started or other.started
        comm.completed = self.completed or other.completed
        return comm

    def to_list(self) -> List[int]:
        """Return the JSON form."""
        return [self.rank, self.nranks, self.nnodes, self.local, self.mnnvl, int(self.started), int(self.completed)]

    @classmethod
    def from_list(cls, data: List[int]) -> "Comm":
        """Read the JSON form."""
        comm = cls(int(data[0]), int(data[1]))
        comm.nnodes, comm.local, comm.mnnvl = int(data[2]), int(data[3]), int(data[4])
        comm.started, comm.completed = bool(data[5]), bool(data[6])
        return comm


class Shared(Dict[Any, Any]):
    """A dict that several processes hold: never changed, only extended into another one."""

    __slots__ = ()


_EMPTY = Shared()


class InternPool:
    """The shared state of the processes of all streams, so that thousands of equal ones cost little.

    It also has the bounds of their number.
    """

    def __init__(self, edges: bool = True) -> None:
        self.full = False  # whether a bound was reached and a fact was not kept
        self.alone = self.hosts = 0  # processes that are distinguished, hosts with further processes that are not
        self._steps: Dict[Tuple[int, Any, Any], Tuple[Dict[Any, Any], Dict[Any, Any]]] = {}
        self._made = self._comms = 0
        self._edges = 0 if edges else _MAX_ALL_EDGES
        self._seen: Dict[str, int] = {}
        self._notes: Dict[str, Note] = {}

    def extended(self, base: Dict[Any, Any], key: Any, value: Any) -> Dict[Any, Any]:
        """Return a dict with one more item, shared by all that add the same to the same."""
        if not isinstance(base, Shared):
            return {**base, key: value}
        step = (id(base), key, value)
        known = self._steps.get(step)
        if known is None:
            if self._made >= _MAX_MADE:
                self.full = True
                return base
            if len(self._steps) >= _MAX_STEPS:
                self._steps.clear()
            self._made += 1
            fresh = Shared(base)
            fresh[key] = value
            known = self._steps[step] = (base, fresh)  # holds the base, so that no other object can get its id
        return known[1]

    def note(
        self, notes: Dict[str, Note], name: str, place: Tuple[int, int], raw: bytes, shows: str
    ) -> Dict[str, Note]:
        """Return notes with one more; beyond the first processes, those of one kind share one line."""
        seen = self._seen[name] = self._seen.get(name, 0) + 1
        if seen <= _MANY:
            return {**notes, name: Note(*place, raw, shows=shows)}
        if name not in self._notes:
            self._notes[name] = Note(*place, raw, shows=shows)
        return self.extended(notes, name, self._notes[name])

    def room(self, edges: int, more: int) -> int:
        """Return how many more edges a process may keep, given its present number."""
        if edges + more > MAX_EDGES or self._edges + more > _MAX_ALL_EDGES:
            self.full = True
            more = max(0, min(MAX_EDGES - edges, _MAX_ALL_EDGES - self._edges))
        self._edges += more
        return more

    def joins(self) -> bool:
        """Return whether a process may keep one more communicator."""
        self._comms += 1
        self.full = self.full or self._comms > _MAX_ALL_COMMS
        return self._comms <= _MAX_ALL_COMMS


class Proc:
    """One process: its own output about itself, its network, its communicators and its channels."""

    __slots__ = (
        "comms",
        "devs",
        "edges",
        "env",
        "facts",
        "hcas",
        "host",
        "ibs",
        "intern_pool",
        "last_error",
        "notes",
        "pid",
        "ranks",
        "sources",
        "tags",
    )

    # facts: name -> set of texts. Names in use: version, driver, hostid, boot, oob, net, loaded, provider, listed,
    # flag, ring, git
    def __init__(self, host: Optional[str], pid: Optional[int]) -> None:
        self.host = host
        self.pid = pid
        self.tags: FrozenSet[str] = _NONE
        self.devs: FrozenSet[int] = _NONE
        self.sources: FrozenSet[int] = _NONE
        self.facts: Dict[str, FrozenSet[str]] = {}
        self.env: Dict[str, str] = _EMPTY
        self.hcas: Dict[int, str] = _EMPTY
        self.ibs: Dict[str, int] = {}  # NET/IB's result: "none", "empty", "list" -> first line
        self.comms: Dict[Tuple[str, int], Comm] = {}
        self.edges: Dict[str, Dict[Connection, int]] = {}  # communicator -> connection -> its channels, as a mask
        self.notes: Dict[str, Note] = _EMPTY
        self.intern_pool: Optional[InternPool] = None
        self.ranks: FrozenSet[int] = _NONE  # ranks of the largest ring order that was printed
        self.last_error: Optional[List[int]] = None  # [source, line, code] of an error trace without a later success

    def add(self, fact: str, value: str) -> None:
        """Record a fact; each name has a bounded set."""
        values = self.facts.get(fact, _NONE)
        if value not in values and len(values) < MAX_ITEMS:
            self.facts[fact] = shared((*values, value)) if values else alone(value)

    def _extended(self, base: Dict[Any, Any], key: Any, value: Any) -> Dict[Any, Any]:
        return {**base, key: value} if self.intern_pool is None else self.intern_pool.extended(base, key, value)

    def set_env(self, variable: str, value: str) -> None:
        """Record the first printed value of a setting."""
        if variable not in self.env and len(self.env) < MAX_ENV:
            self.env = self._extended(self.env, variable, value)

    def list_devices(self, devices: Dict[int, str]) -> None:
        """Record the first list of network devices."""
        if not self.hcas and len(devices) <= MAX_ITEMS:
            self.hcas = devices
            return
        for index, device in devices.items():
            if index not in self.hcas and len(self.hcas) < MAX_ITEMS:
                self.hcas = self._extended(self.hcas, index, device)

    def head(self, dev: Optional[int], tag: str) -> None:
        """Record a device and a launcher's tag in a line's prefix."""
        if dev is not None and dev not in self.devs and len(self.devs) < MAX_ITEMS:
            self.devs = shared((*self.devs, dev)) if self.devs else alone(dev)
        if tag and tag not in self.tags and len(self.tags) < MAX_ITEMS:
            self.tags = shared((*self.tags, tag)) if self.tags else alone(tag)

    def has(self, fact: str, value: str) -> bool:
        """Return whether a fact is known."""
        return value in self.facts.get(fact, ())

    def note(self, name: str, source: int, line: int, raw: bytes, shows: str = "") -> None:
        """Count a kind of line and keep its first, in the form that may be shown."""
        seen = self.notes.get(name)
        if seen is not None and shows != seen.shows:
            self.notes = {**self.notes, name: seen.joined(Note(source, line, raw, shows=shows), name)}
        elif seen is not None:
            seen.count += 1
            seen.last = max(seen.last, line) if seen.source == source else seen.last
        elif len(self.notes) < MAX_NOTES:
            if self.intern_pool is None:
                self.notes = {**self.notes, name: Note(source, line, raw, shows=shows)}
            else:
                self.notes = self.intern_pool.note(self.notes, name, (source, line), raw, shows)

    def channels(self, comm: str, connections: Dict[Connection, int]) -> None:
        """Add channels of a communicator, up to a bound; this process then owns the connections."""
        edges = self.edges.get(comm)
        if edges and not edges.keys().isdisjoint(connections):
            fresh: Dict[Connection, int] = {}
            for connection, mask in connections.items():
                if connection in edges:
                    edges[connection] |= mask
                else:
                    fresh[connection] = mask
            connections = fresh
        if self.intern_pool is not None and connections:
            room = self.intern_pool.room(sum(map(len, self.edges.values())) if self.edges else 0, len(connections))
            for connection in list(connections)[room:] if room < len(connections) else ():
                del connections[connection]
        if edges:
            edges.update(connections)
        elif connections:
            self.edges[comm] = connections

    def joins(self) -> bool:
        """Return whether one more communicator may be kept."""
        return len(self.comms) < MAX_COMMS and (self.intern_pool is None or self.intern_pool.joins())

    def merge(self, other: "Proc") -> None:
        """Merge another reading of the same process."""
        self.tags = shared(self.tags | other.tags)
        self.devs = shared(self.devs | other.devs)
        self.sources = shared(self.sources | other.sources)
        self.ranks = shared(self.ranks | other.ranks)
        facts = dict(self.facts)
        for fact, values in other.facts.items():
            facts[fact] = shared(values | facts.get(fact, _NONE))
        self.facts = facts
        self.env = {**other.env, **self.env}
        self.hcas = {**other.hcas, **self.hcas}
        for what, line in other.ibs.items():
            self.ibs[what] = min(line, self.ibs.get(what, line))
        for key, comm in other.comms.items():
            self.comms[key] = self.comms[key].joined(comm) if key in self.comms else comm
        for name, connections in other.edges.items():
            mine = self.edges.setdefault(name, {})
            for connection, mask in connections.items():
                mine[connection] = mine.get(connection, 0) | mask
        notes = dict(self.notes)
        for name, note in other.notes.items():
            notes[name] = notes[name].joined(note, name) if name in notes else note
        self.notes = notes
        self.last_error = self.last_error or other.last_error


class Source:
    """One stream: its name, the lines that belong to no process, its tables."""

    __slots__ = ("bytes", "cut", "events", "lines", "name", "nccl_lines", "ranks", "spans", "tables", "tags", "watch")

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines = 0
        self.bytes = 0
        self.nccl_lines = 0
        self.cut = False  # whether the last line has no end
        self.events: Dict[str, Note] = {}
        self.spans: Dict[str, List[int]] = {}  # communicator with an id -> first and last line that mentions it
        self.watch: Dict[str, List[int]] = {}  # rank -> sequence numbers its watchdog gave up on; and rank in group
        self.ranks: Dict[int, List[Any]] = {}  # table header: rank -> [host, pid, device, bus id, GPU]
        self.tables: List[Dict[str, Any]] = []
        self.tags: Set[str] = set()  # launcher tags of lines that are not NCCL's

    def note(self, name: str, index: int, line: int, raw: bytes, shows: str = "") -> None:
        """Count a kind of line and keep its first, in the form that may be shown."""
        seen = self.events.get(name)
        if seen is not None and shows != seen.shows:
            self.events[name] = seen.joined(Note(index, line, raw, shows=shows), name)
        elif seen is not None:
            seen.count += 1
            seen.last = max(seen.last, line)
        elif len(self.events) < MAX_NOTES:
            self.events[name] = Note(index, line, raw, shows=shows)

    def span(self, comm: str, line: int) -> None:
        """Take a line that mentions a communicator."""
        known = self.spans.get(comm)
        if known is not None:
            if line > known[1]:
                known[1] = line
            elif line < known[0]:
                known[0] = line
        elif comm.startswith("0x") and len(self.spans) < MAX_COMMS:
            self.spans[comm] = [line, line]
