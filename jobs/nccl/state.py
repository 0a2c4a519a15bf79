"""What has been seen of one process, of one communicator, in one stream?

Nothing here is a judgement. Everything is a set, a maximum, a sum or "the earliest line", so that the order in which
lines, files or pods arrive does not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, FrozenSet, Iterable, List, Optional, Set, Tuple

from .clean import printable

if TYPE_CHECKING:
    from .transports import Channel

MAX_EDGES = 4096  # distinct (communicator, edge, transport) per process; a rank of a healthy job has some dozens
MAX_NOTES = 64
MAX_ENV = 96
MAX_ITEMS = 256

EdgeKey = Tuple[
    str, int, int, str, int, str, str, int, int, int
]  # comm, src, dst, direction, conn, kind, net, dev, gdr, proxy

_NONE: FrozenSet[Any] = frozenset()


def channels_in(mask: int) -> int:
    """Count the channels of an edge's mask."""
    return bin(mask).count("1")  # noqa: FURB161 -- int.bit_count came with Python 3.10


_SHARED: Dict[FrozenSet[Any], FrozenSet[Any]] = {}


def shared(values: Iterable[Any]) -> FrozenSet[Any]:
    """Return the values as the one set that all processes with the same ones hold: jobs have many processes."""
    wanted = frozenset(values)
    if len(_SHARED) >= 20_000:
        _SHARED.clear()
    return _SHARED.setdefault(wanted, wanted)


class Note:
    """A line worth keeping: how often its kind was seen, and the first one."""

    __slots__ = ("count", "line", "source", "text")

    def __init__(self, source: int, line: int, text: str, count: int = 1) -> None:
        self.source = source
        self.line = line
        self.text = text
        self.count = count

    def merge(self, other: "Note") -> None:
        """Add another sighting; the earliest text stays."""
        self.count += other.count
        if (other.source, other.line) < (self.source, self.line):
            self.source, self.line, self.text = other.source, other.line, other.text

    def to_list(self) -> List[Any]:
        """Return the JSON form."""
        return [self.source, self.line, self.count, self.text]

    @classmethod
    def from_list(cls, data: List[Any], shift: int = 0) -> "Note":
        """Read the JSON form."""
        return cls(int(data[0]) + shift, int(data[1]), str(data[3]), int(data[2]))


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

    def merge(self, other: "Comm") -> None:
        """Add what another reading of the same communicator saw."""
        self.nnodes = max(self.nnodes, other.nnodes)
        self.local = max(self.local, other.local)
        self.mnnvl = max(self.mnnvl, other.mnnvl)
        self.started = self.started or other.started
        self.completed = self.completed or other.completed

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


class Proc:
    """One process: what it printed about itself, its network, its communicators and its channels."""

    __slots__ = (
        "comms",
        "devs",
        "edges",
        "env",
        "facts",
        "hcas",
        "host",
        "ibs",
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
        self.env: Dict[str, str] = {}
        self.hcas: Dict[int, str] = {}
        self.ibs: Dict[str, int] = {}  # what NET/IB said: "none", "empty", "list" -> first line
        self.comms: Dict[Tuple[str, int], Comm] = {}
        self.edges: Dict[EdgeKey, int] = {}
        self.notes: Dict[str, Note] = {}
        self.ranks: FrozenSet[int] = _NONE  # ranks of the largest ring order that was printed
        self.last_error: Optional[List[int]] = None  # [source, line, code] of an error trace that nothing followed

    def add(self, fact: str, value: str) -> None:
        """Remember a fact; a bounded set per name."""
        values = self.facts.get(fact, _NONE)
        if value not in values and len(values) < MAX_ITEMS:
            self.facts[fact] = shared((*values, value))

    def head(self, dev: Optional[int], tag: str) -> None:
        """Remember a device and a launcher's tag that stood in front of a line."""
        if dev is not None and dev not in self.devs and len(self.devs) < MAX_ITEMS:
            self.devs = shared((*self.devs, dev))
        if tag and tag not in self.tags and len(self.tags) < MAX_ITEMS:
            self.tags = shared((*self.tags, tag))

    def has(self, fact: str, value: str) -> bool:
        """Say whether a fact is known."""
        return value in self.facts.get(fact, ())

    def note(self, name: str, source: int, line: int, raw: bytes) -> None:
        """Count a kind of line and keep its first, as it may be shown."""
        seen = self.notes.get(name)
        if seen is not None:
            seen.count += 1
        elif len(self.notes) < MAX_NOTES:
            self.notes[name] = Note(source, line, printable(raw))

    def edge(self, comm: str, channel: Channel) -> bool:
        """Add one channel to an edge; False where the bound was reached."""
        key = (comm, *channel.key)
        old = self.edges.get(key)
        if old is None and len(self.edges) >= MAX_EDGES:
            return False
        self.edges[key] = (old or 0) | channel.bit
        return True

    def merge(self, other: "Proc") -> None:
        """Take over everything that another reading of the same process saw."""
        self.tags = shared(self.tags | other.tags)
        self.devs = shared(self.devs | other.devs)
        self.sources = shared(self.sources | other.sources)
        self.ranks = shared(self.ranks | other.ranks)
        for fact, values in other.facts.items():
            self.facts[fact] = shared(values | self.facts.get(fact, _NONE))
        for name, value in other.env.items():
            self.env.setdefault(name, value)
        for index, device in other.hcas.items():
            self.hcas.setdefault(index, device)
        for what, line in other.ibs.items():
            self.ibs[what] = min(line, self.ibs.get(what, line))
        for key, comm in other.comms.items():
            if key in self.comms:
                self.comms[key].merge(comm)
            else:
                self.comms[key] = comm
        for edge, mask in other.edges.items():
            self.edges[edge] = self.edges.get(edge, 0) | mask
        for name, note in other.notes.items():
            if name in self.notes:
                self.notes[name].merge(note)
            else:
                self.notes[name] = note
        self.last_error = self.last_error or other.last_error


class Source:
    """One stream: its name, what of it belongs to no process, its tables."""

    __slots__ = ("bytes", "cut", "events", "lines", "name", "nccl_lines", "ranks", "tables", "tags", "watch")

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines = 0
        self.bytes = 0
        self.nccl_lines = 0
        self.cut = False  # the last line has no end
        self.events: Dict[str, Note] = {}
        self.watch: Dict[str, List[int]] = {}  # rank -> sequence numbers its watchdog gave up on
        self.ranks: Dict[int, List[Any]] = {}  # table header: rank -> [host, pid, device, bus id, GPU]
        self.tables: List[Dict[str, Any]] = []
        self.tags: Set[str] = set()  # launcher tags of lines that are not NCCL's

    def note(self, name: str, index: int, line: int, raw: bytes) -> None:
        """Count a kind of line and keep its first, as it may be shown."""
        seen = self.events.get(name)
        if seen is not None:
            seen.count += 1
        elif len(self.events) < MAX_NOTES:
            self.events[name] = Note(index, line, printable(raw))
