"""The facts about a job that may hang, in one form for all formats: ranks, groups, operations, counts."""

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
    """The world ranks at the other ends of sends and receives that were launched together, if known."""
    started: bool = False
    """The GPU has started it; known only if the recorder times operations (TORCH_NCCL_DESYNC_DEBUG and the like)."""
    ended: bool = False
    """NCCL's watchdog retired it incomplete: it timed out, or was aborted."""
    created: int = 0
    """Its queue time, nanoseconds since 1970; 0 if unknown."""
    timeout_ms: int = 0
    """The time after which the watchdog ends it; 0 if unknown."""
    marked: bool = True
    """Its recorder distinguishes failed from completed operations, and dumps at a time-out: NCCL's does, gloo's does
    not."""


@dataclass(frozen=True)
class Rank:
    """The content of one rank's Flight Recorder dump."""

    pending: tuple[Operation, ...] = ()
    """The incomplete operations, in the program's order."""
    enqueued: Mapping[str, int] = field(default_factory=dict)
    """Group to the last collective that was queued there."""
    completed: Mapping[str, int] = field(default_factory=dict)
    """Group to the last collective that is complete there, if the dump has it."""
    finished: Mapping[str, Operation] = field(default_factory=dict)
    """Group to the complete collective with the highest number."""
    last: Operation | None = None
    """The last queued operation."""
    written: float | None = None
    """The time of the file, in seconds since 1970; for a copy, the time of the copy."""
    taken: float | None = None
    """The time at which the dump was taken, by its recorder's time stamps, in seconds since 1970; None if unknown."""
    latest: float = 0.0
    """The latest time in the dump, in seconds since 1970: it was taken no earlier."""
    active: bool = False
    """It contains no completed operation."""
    cut: bool = False
    """Its first entries were overwritten, and the first remaining one is pending: its current operation may be lost,
    too."""
    lost: bool | None = None
    """The same by the counters of its groups, which show the progress of each; None without counters."""
    marks: frozenset[int] = frozenset()
    """Queue times of its latest operations: two dumps of one process share some."""
    span: tuple[int, int] | None = None
    """Queue times of the first and the last operation that it recorded, nanoseconds since 1970."""
    queued_at: Mapping[tuple[str, int], Operation] = field(default_factory=dict)
    """(group, number) of its last collectives, if its recorder does not distinguish failed from completed ones."""
    sends: bool = False
    """It counted more operations than it recorded: its recorder omits sends and receives."""
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
    """The duration of RAS's collection: the only difference in text between two samples of waiting ranks."""
    world: str | None = None
    """The communicator of all ranks, whose ranks are used as world ranks; empty if no communicator has all."""
    size: int = 0
    """The number of ranks of the job, by its largest communicator and its number of GPUs."""
    ok: bool = False
    counts: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    """(communicator, operation) to rank to count."""
    unnamed: dict[tuple[str, str], list[tuple[int, int]]] = field(default_factory=dict)
    """(communicator, operation) to (number of ranks, count) of ranks that are not named."""
    states: dict[str, dict[int, str]] = field(default_factory=dict)
    """Communicator to the state of those ranks that RAS names, if states differ: NOCOMM, INIT, RUNNING and so on."""
    errors: list[str] = field(default_factory=list)
    """Errors that ranks reported in their initialization or operations, in RAS's text."""
    members: dict[str, dict[int, Process]] = field(default_factory=dict)
    """Communicator to the processes of the ranks that RAS names; these ranks count within the communicator."""
    processes: list[Process] = field(default_factory=list)
    comms: set[str] = field(default_factory=set)
    """The hashes of all its communicators; empty for text, which names only those with differences."""
    number: int = 0
    """The number of communicators, by the table of the text."""
    parts: set[str] = field(default_factory=set)
    """Smaller communicators with counts by world rank, since host and process identify the ranks."""
    written: float | None = field(default=None, compare=False)
    """The time of its file, in seconds since 1970; None if it was requested from a running job."""


State = Literal["timed out", "absent", "inside", "called", "broken", "left", "unlike", "queued", "failed", "blocked"]
"""The meaning of a report for its ranks:

``timed out``: torch's watchdog saw the operation exceed its time-out. ``absent``, ``inside``, ``called``: a desync
report lists ranks that did not join the operation, joined and did not finish it, or started or finished it (its
snapshot). ``broken``, ``left``: an operation failed because another rank did not answer, or closed its connection; that
other rank is at fault. ``unlike``: gloo ended the process because it received more data than it expected. ``queued``:
the last operation in the default group, printed when a rank receives the signal of a time-out. ``failed``: the rank's
watchdog saw an operation fail or time out. ``blocked``: the heartbeat monitor found the watchdog's thread blocked.
"""
Reason = tuple[str, int, str]
"""Evidence: file, line (0 for none), text."""


@dataclass(frozen=True, slots=True)
class Report:
    """One report of torch or gloo about ranks, the same for all versions."""

    state: State
    where: Reason
    ranks: tuple[int, ...] = ()
    """World ranks; in a desync report those of its process group until ``prepare``. Empty if no rank is shown."""
    operation: str = ""
    sequence: int = -1
    """As SeqNum counts; -1 if unknown. A desync report counts from 1: SeqNum plus one before torch 2.4."""
    group: str = ""
    """The description of the process group."""
    number: str = ""
    """The number of the process group: many have the same description."""
    enqueued: int | None = None
    completed: int | None = None
    reporter: tuple[int, int] = (-1, -1)
    """The world rank that printed a time-out or a desync report, and its rank in the group."""
    sizes: str = ""
    """Numbers of input and output elements of the operation, if the log shows them."""
    seconds: int = 0
    """The time for which a watchdog was blocked."""

    @property
    def rank(self) -> int:
        """Return the one rank of a report that each rank prints about itself; -1 if it is not shown."""
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
    """A pod of the job as the API shows it, and the fault of it or its node as text; empty without one."""

    name: str
    node: str = ""
    addresses: tuple[str, ...] = ()
    trouble: str = ""
    node_trouble: str = ""
    namespace: str = ""


@dataclass(slots=True)
class Evidence:
    """All evidence of one job."""

    files: list[str] = field(default_factory=list)
    version: str = field(default="", compare=False)
    """NCCL's version, as a dump or RAS reports it."""
    ranks: dict[int, Rank] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    world: set[int] = field(default_factory=set)
    listed: set[int] = field(default_factory=set)
    """The ranks in the dumps' lists of members; gloo's have none if there are several groups."""
    calls: dict[tuple[str, int], str] = field(default_factory=dict)
    """(group, number) of a complete collective to its name and sizes, if all ranks must call it in the same way."""
    samples: list[Sample] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    """The folders that contain it, as they were named."""
    logs: set[str] = field(default_factory=set)
    """Logs next to it, by the names under which they are read."""
    contradictions: list[str] = field(default_factory=list)
    """Contradictory parts of the evidence, and the part that counts, as text."""
    went_on: str | None = None
    """Progress of a rank between two of its dumps; empty if they show all ranks at the same operations."""
    performed: dict[tuple[str, int], Performed] = field(default_factory=dict)
    """(communicator, rank) to a record of NCCL Inspector."""
    times: dict[tuple[str, str], dict[int, dict[int, float]]] = field(default_factory=dict)
    """(communicator, operation) to sequence to rank to the duration of its kernel in microseconds."""
    notes: list[str] = field(default_factory=list)
    """The unread parts, as text."""
    unread: set[int] = field(default_factory=set)
    """The ranks with a written but unreadable dump."""
    pods: list[Pod] = field(default_factory=list)
    not_seen: list[str] = field(default_factory=list)
    """Facts that the cluster did not report, with the required permission or setting."""

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
        """Return each rank's last report of its operation in the default group."""
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
    """The reason why dumps alone prove no hang."""

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
    """All ranks with dumps are inside an operation; it is unknown whether other ranks exist."""
    unsure: str = ""
    """The reason why none of the suspects is called late, or a possible unrecorded wait of a late rank."""
    departed: bool = False
    """The late ranks left the communicator in which others are, or never created it."""
    inside_of: str = ""
    """The smaller communicator in which suspects, or unknown ranks, may wait together inside an operation."""
    ahead: Ranks = frozenset()
    """The minority, which may be wrong."""
    unnamed: int = 0
    """The number of late ranks if the evidence counts them and names none."""
    reported: tuple[str, ...] = ()
    """Errors of ranks in RAS's text; those with a cause on the rank itself first."""
    seconds: float = 0
    """Seconds for which a watchdog was blocked, or by which a rank entered later than the others, after their time-out.
    """
    nameless: tuple[Process, ...] = ()
    """Late or dead processes of unknown rank."""

    def __add__(self, part: Decision) -> Decision:
        """Return the decision with the results of a weaker rule.

        Its reasons and its waiting and unknown ranks are added. Its late ranks count if it decides; other fields
        replace existing ones.
        """
        shown = {item.name: getattr(part, item.name) or getattr(self, item.name) for item in fields(self)}
        if part.kind:
            shown |= {"proven": part.proven, "late": part.late}
        shown |= {"at": self.at if part.at == _NOWHERE else part.at}
        shown |= {name: getattr(self, name) | getattr(part, name) for name in ("waiting", "unknown")}
        shown |= {name: (*getattr(self, name), *getattr(part, name)) for name in ("because", "contradictions")}
        return Decision(**shown)

    def suspecting(self, ahead: Ranks) -> Decision:
        """Return the decision with suspects in place of late ranks; ``ahead``: the minority, which may be wrong."""
        return replace(self, late=frozenset(), suspects=self.late, ahead=ahead)
