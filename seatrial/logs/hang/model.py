"""The facts about a job that may hang, the same for all formats: ranks, groups, operations, counts."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Literal, NamedTuple


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation as one rank queued it."""

    group: str
    sequence: int
    name: str
    sizes: str = ""
    p2p: bool = False
    peers: tuple[int, ...] = ()
    """The world ranks at the other ends of sends and receives that were launched together, where they are known."""
    started: bool = False
    """The GPU has started it; known only if the recorder times operations (TORCH_NCCL_DESYNC_DEBUG and the like)."""
    ended: bool = False
    """NCCL's watchdog has done with it, and it is not complete: it timed out, or was aborted."""
    created: int = 0
    """When it was queued, nanoseconds since 1970; 0 where unknown."""
    timeout_ms: int = 0
    """After how long the watchdog ends it; 0 where unknown."""
    marked: bool = True
    """Its recorder distinguishes broken from completed operations, and dumps at a time-out: NCCL's does, not gloo's."""


@dataclass(frozen=True)
class Rank:
    """The content of one rank's Flight Recorder dump."""

    pending: tuple[Operation, ...] = ()
    """The incomplete operations, in the program's order."""
    enqueued: Mapping[str, int] = field(default_factory=dict)
    """Group to the last collective that was queued there."""
    completed: Mapping[str, int] = field(default_factory=dict)
    """Group to the last collective that is complete there, where the dump says it."""
    finished: Mapping[str, Operation] = field(default_factory=dict)
    """Group to the collective that is complete there and has the highest number."""
    last: Operation | None = None
    """The last queued operation."""
    written: float | None = None
    """When the file was written, by its own time, in seconds since 1970; of a copy, when it was copied."""
    taken: float | None = None
    """When the dump was taken, by its recorder's time stamps, in seconds since 1970; None where unknown."""
    latest: float = 0.0
    """The latest time in the dump, in seconds since 1970: it was not taken before."""
    active: bool = False
    """It holds nothing that is complete."""
    cut: bool = False
    """What it recorded first is gone, and the first that is left is pending: what it is at may be gone, too."""
    lost: bool | None = None
    """The same by the counters of its groups, which show the progress of each; None without counters."""
    marks: frozenset[int] = frozenset()
    """When its latest operations were queued: two dumps of one process share some."""
    span: tuple[int, int] | None = None
    """When the first and the last operation that it recorded were queued, nanoseconds since 1970."""
    queued_at: Mapping[tuple[str, int], Operation] = field(default_factory=dict)
    """(group, number) of its last collectives, where its recorder does not distinguish broken from completed ones."""
    sends: bool = False
    """It counted more operations than it recorded: its recorder leaves out sends and receives."""
    recorded: int = 0

    @cached_property
    def first_pending(self) -> dict[str, int]:
        """Return group to the first collective that is pending there."""
        return {each.group: each.sequence for each in reversed(self.pending) if not each.p2p}


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: its description and the world ranks in it."""

    key: str
    name: str
    members: tuple[int, ...]


@dataclass(slots=True)
class Process:
    """A process as RAS names it; the rank is that in the communicator."""

    rank: int | None
    host: str = ""
    gpu: str = ""
    pid: int | None = None
    silent: bool = False
    """It does not answer (INCOMPLETE)."""
    dead: bool = False


@dataclass(slots=True)
class Sample:
    """One answer of NCCL RAS: communicators, the operations that their ranks launched, and the missing ranks."""

    file: str
    stamp: str = ""
    took: str = ""
    """How long RAS says that it collected: the one thing that differs in text between two looks at ranks that wait."""
    world: str | None = None
    """The communicator of all ranks, its ranks are taken for world ranks; none if no communicator has them all."""
    size: int = 0
    """How many ranks the job has, by its largest communicator and its number of GPUs."""
    ok: bool = False
    counts: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    """(communicator, operation) to rank to count."""
    unnamed: dict[tuple[str, str], list[tuple[int, int]]] = field(default_factory=dict)
    """(communicator, operation) to (number of ranks, count) of ranks that are not named."""
    states: dict[str, dict[int, str]] = field(default_factory=dict)
    """Communicator to the state of those ranks that RAS names, where states differ: NOCOMM, INIT, RUNNING and so on."""
    errors: list[str] = field(default_factory=list)
    """Errors that ranks reported in their initialization or operations, in RAS's words."""
    members: dict[str, dict[int, Process]] = field(default_factory=dict)
    """Communicator to the processes of the ranks that RAS names; these ranks count within the communicator."""
    processes: list[Process] = field(default_factory=list)
    comms: set[str] = field(default_factory=set)
    """The hashes of all its communicators; text names only those in trouble, and leaves it empty."""
    number: int = 0
    """How many communicators there are, by the table of the text."""
    parts: set[str] = field(default_factory=set)
    """Smaller communicators with counts by world rank, since host and process identify the ranks."""
    written: float | None = field(default=None, compare=False)
    """When its file was written, in seconds of the epoch; None where it was requested just now."""


State = Literal["timed out", "absent", "inside", "called", "broken", "left", "unlike", "queued", "failed", "blocked"]
"""What a report shows of its ranks:

``timed out``: torch's watchdog saw the operation run for too long.
``absent``, ``inside``, ``called``: a desync report lists ranks that did not join the operation, joined and did not
finish it, or started or finished it (its snapshot).
``broken``, ``left``: an operation failed because another rank did not answer, or closed its connection; that other rank
is at fault. ``unlike``: gloo ended the process because it received more data than it expected.
``queued``: the last operation in the default group, printed when a rank receives the signal of a time-out.
``failed``: the rank's watchdog saw an operation fail or time out.
``blocked``: the heartbeat monitor found the watchdog's thread blocked.
"""
Reason = tuple[str, int, str]
"""Evidence: file, line (0 for none), text."""


@dataclass(frozen=True, slots=True)
class Report:
    """One report of torch or gloo about ranks, the same for all versions."""

    state: State
    where: Reason
    ranks: tuple[int, ...] = ()
    """World ranks; in a desync report those of its process group until ``prepare``. Empty where no rank is shown."""
    operation: str = ""
    sequence: int = -1
    """As SeqNum counts; -1 where unknown. A desync report counts from 1: SeqNum plus one before torch 2.4."""
    group: str = ""
    """The description of the process group."""
    number: str = ""
    """The number of the process group: many have the same description."""
    enqueued: int | None = None
    completed: int | None = None
    reporter: tuple[int, int] = (-1, -1)
    """The world rank that printed a time-out or a desync report, and its rank in the group."""
    sizes: str = ""
    """How many elements the operation takes and gives, if the log shows it."""
    seconds: int = 0
    """How long a watchdog was blocked."""

    @property
    def rank(self) -> int:
        """Return the one rank of a report that each rank prints about itself; -1 where it is not shown."""
        return self.ranks[0] if self.ranks else -1

    @property
    def place(self) -> tuple[str, str, int]:
        """Return group and number of the operation."""
        return self.group, self.number, self.sequence


@dataclass(frozen=True, slots=True)
class Performed:
    """A rank with a collective that NCCL Inspector recorded, and the size of its communicator."""

    rank: int
    size: int
    host: str


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of the job as the API shows it; the fault of it or its node in words, empty without one."""

    name: str
    node: str = ""
    addresses: tuple[str, ...] = ()
    trouble: str = ""
    node_trouble: str = ""
    namespace: str = ""


@dataclass(slots=True)
class Evidence:
    """All that was read of one job."""

    files: list[str] = field(default_factory=list)
    version: str = field(default="", compare=False)
    """Of NCCL, as a dump or RAS reports it."""
    ranks: dict[int, Rank] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    world: set[int] = field(default_factory=set)
    listed: set[int] = field(default_factory=set)
    """The ranks in the lists of members that the dumps hold; gloo's hold none where there are several groups."""
    calls: dict[tuple[str, int], str] = field(default_factory=dict)
    """(group, number) of a complete collective to its name and sizes, where all ranks must call it in the same way."""
    samples: list[Sample] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    """The folders in which it lies, as they were named."""
    logs: set[str] = field(default_factory=set)
    """Logs that lie next to it, by the names under which they are read."""
    contradictions: list[str] = field(default_factory=list)
    """Parts of the evidence that do not fit each other, and the part that counts, in words."""
    went_on: str | None = None
    """What a rank did between two dumps of it; empty where they show all ranks at the same operations."""
    performed: dict[tuple[str, int], Performed] = field(default_factory=dict)
    """(communicator, rank) to a record of NCCL Inspector."""
    times: dict[tuple[str, str], dict[int, dict[int, float]]] = field(default_factory=dict)
    """(communicator, operation) to sequence to rank to the microseconds that its kernel ran."""
    notes: list[str] = field(default_factory=list)
    """The unread parts, in words."""
    unread: set[int] = field(default_factory=set)
    """The ranks whose dumps cannot be read: they wrote one."""
    pods: list[Pod] = field(default_factory=list)
    not_seen: list[str] = field(default_factory=list)
    """Facts that the cluster did not report, with the permission or the setting that they need."""

    def said(self, *states: State) -> list[Report]:
        """Return the reports of these states, in the order in which they were read."""
        return [report for report in self.reports if report.state in states]

    @property
    def timeouts(self) -> list[Report]:
        """Return the time-outs that watchdogs reported."""
        return self.said("timed out")

    @property
    def lagging(self) -> list[Report]:
        """Return the desync reports of ranks that others wait for, or that wait."""
        return self.said("absent", "inside")

    @property
    def broken(self) -> dict[int, Report]:
        """Return the first error of each rank with an operation that failed because of another rank."""
        first: dict[int, Report] = {}
        for report in self.said("broken", "left"):
            if report.ranks:
                first.setdefault(report.rank, report)
        return first

    @property
    def queued(self) -> dict[int, Report]:
        """Return each rank's last report of what it queued in the default group."""
        return {report.rank: report for report in self.said("queued")}

    @property
    def failed(self) -> set[int]:
        """Return the ranks with a watchdog that saw an operation fail or time out, by its counters."""
        return {report.rank for report in self.said("failed")}

    @property
    def waiting(self) -> set[int]:
        """Return the ranks with a watchdog that saw an operation fail or time out: they waited."""
        return {report.rank for report in self.timeouts} | self.failed


Ranks = AbstractSet[int]


class At(NamedTuple):
    """An operation as a decision names it."""

    group: str | None = None
    operation: str | None = None
    sequence: int | None = None


_NOWHERE = At()


class Doubt(NamedTuple):
    """Why dumps alone prove no hang."""

    kind: Literal["moved", "undated", "passing"]
    text: str
    """The observation: progress of a rank, reason why the time is unknown, or the seconds of the longest wait."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The result about a hang, or a part of it that one rule found; ranks are world ranks."""

    kind: str = ""
    """late, stalled, inside, dead, mismatch, order, watchdog, or undecided, alive, slow; empty: weaker rules decide."""
    proven: bool = False
    late: Ranks = frozenset()
    waiting: Ranks = frozenset()
    dead: Ranks = frozenset()
    unknown: Ranks = frozenset()
    at: At = _NOWHERE
    doubt: Doubt | None = None
    called: str = ""
    """The operations that ranks called in the same place, or the sizes, if they differ."""
    because: tuple[Reason, ...] = ()
    contradictions: tuple[str, ...] = ()
    places: Mapping[int, Process] = field(default_factory=dict)
    suspects: Ranks = frozenset()
    """Ranks of which some are late, unless those that are ahead called one operation more."""
    uncounted: bool = False
    """All ranks with dumps are inside an operation, and it is unknown whether these are all ranks."""
    unsure: str = ""
    """Why none of the suspects is called late, or what a late rank may wait for, unrecorded."""
    departed: bool = False
    """The late ranks left the communicator in which others are, or never created it."""
    inside_of: str = ""
    """The smaller communicator in which suspects, or unknown ranks, may wait together inside an operation."""
    ahead: Ranks = frozenset()
    """The minority, which may be wrong."""
    unnamed: int = 0
    """How many ranks are late where the evidence counts them and names none."""
    reported: tuple[str, ...] = ()
    """Errors of ranks in RAS's words, those that name a cause on the rank itself first."""
    seconds: float = 0
    """How long a watchdog was blocked, or how much later than the others a rank came after their time-out."""
    nameless: tuple[Process, ...] = ()
    """Late or dead processes of unknown rank."""

    def __add__(self, part: Decision) -> Decision:
        """Return the decision with what a weaker rule found.

        Its reasons and its waiting and unknown ranks are added; its late ranks count where it decides; other fields
        replace those that it has.
        """
        shown = {item.name: getattr(part, item.name) or getattr(self, item.name) for item in fields(self)}
        if part.kind:
            shown |= {"proven": part.proven, "late": part.late}
        shown |= {"at": self.at if part.at == _NOWHERE else part.at}
        shown |= {name: getattr(self, name) | getattr(part, name) for name in ("waiting", "unknown")}
        shown |= {name: (*getattr(self, name), *getattr(part, name)) for name in ("because", "contradictions")}
        return Decision(**shown)

    def suspecting(self, ahead: Ranks) -> Decision:
        """Return the decision with suspects in place of late ranks; ``ahead``: the fewer, which may be wrong."""
        return replace(self, late=frozenset(), suspects=self.late, ahead=ahead)
