"""The facts about a job that may hang, the same for all formats: ranks, groups, operations, counts."""

from __future__ import annotations

from dataclasses import dataclass, field


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


def by_gloo(operation: Operation | None) -> bool:
    """Return whether gloo's recorder wrote an operation."""
    return operation is not None and operation.name.startswith("gloo:")


@dataclass(slots=True)
class Rank:
    """The content of one rank's Flight Recorder dump."""

    rank: int
    pending: list[Operation] = field(default_factory=list)
    """The incomplete operations, in the program's order."""
    first_pending: dict[str, int] = field(default_factory=dict)
    """Group to the lowest collective that is pending there."""
    enqueued: dict[str, int] = field(default_factory=dict)
    """Group to the last collective that was queued there."""
    completed: dict[str, int] = field(default_factory=dict)
    """Group to the last collective that is complete there, where the dump says it."""
    finished: dict[str, Operation] = field(default_factory=dict)
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
    queued_at: dict[tuple[str, int], Operation] = field(default_factory=dict)
    """(group, number) of its last collectives by gloo; its recorder does not distinguish broken from completed ones."""
    sends: bool = False
    """It counted more operations than it recorded: gloo leaves out sends and receives."""
    recorded: int = 0


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


@dataclass(frozen=True, slots=True)
class Timeout:
    """A collective that torch's watchdog saw running for too long; ``sequence`` counts as SeqNum does."""

    rank: int
    sequence: int
    operation: str
    file: str
    line: int
    text: str
    group: str = ""
    number: str = ""
    """Of the process group, if the log shows it: many have the same name."""
    enqueued: int | None = None
    completed: int | None = None


@dataclass(frozen=True, slots=True)
class Lagging:
    """A desync report's entry about ranks; ``sequence`` counts from 1, which is SeqNum plus one before torch 2.4."""

    ranks: tuple[int, ...]
    """As the report numbers them: within the process group that timed out."""
    joined: bool
    sequence: int | None
    operation: str
    file: str
    line: int
    text: str
    group: tuple[str, str] = ("", "")
    """Number and description of the process group, if the log shows it."""
    reporter: tuple[int, int] = (-1, -1)
    """The world rank that printed the report, and its rank in the group."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A rank with an operation that failed because another one disconnected or never connected.

    The other is at fault.
    """

    rank: int
    gone: bool
    """A peer closed its connection, as a process that ends does."""
    file: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Queued:
    """A rank's last operation in the default group, as printed when it is notified of a timeout."""

    rank: int
    sequence: int
    """Of the last operation that it queued, as SeqNum counts; -1 for none."""
    file: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """A watchdog thread that its process's heartbeat monitor found standing still."""

    rank: int | None
    """Of the world; None if the line does not show it."""
    seconds: int
    where: tuple[str, int, str]
    """File, line, text."""


@dataclass(frozen=True, slots=True)
class Performed:
    """The last collective of a rank that NCCL Inspector recorded as done."""

    rank: int
    size: int
    sequence: int
    microseconds: float
    host: str
    version: str


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
    timeouts: list[Timeout] = field(default_factory=list)
    lagging: list[Lagging] = field(default_factory=list)
    called: list[Lagging] = field(default_factory=list)
    """The snapshots of desync reports: the operation that ranks started or finished under a number."""
    broken: dict[int, Broken] = field(default_factory=dict)
    queued: dict[int, Queued] = field(default_factory=dict)
    blocked: list[Blocked] = field(default_factory=list)
    gave_up: tuple[str, int, str] | None = None
    """File, line and text of a time-out of gloo's that the program caught and wrote, without the rank."""
    closed: tuple[str, int, str] | None = None
    """The same of a connection that a peer closed."""
    unlike: tuple[str, int, str] | None = None
    """File, line and text where a process ends because it received more than it expected."""
    named: set[str] = field(default_factory=set)
    """The folders in which it lies, as they were named."""
    logs: set[str] = field(default_factory=set)
    """Logs that lie next to it, by the names under which they are read."""
    joined: str = ""
    """Names of its dumps in one folder, if only the unique ranks show that they are one job's."""
    standing: float | None = None
    """Seconds between two dumps of each rank that show it at the same operation."""
    moved: str = ""
    """The actions of a rank between two dumps of it."""
    failed: set[int] = field(default_factory=set)
    """World ranks with a watchdog that saw an operation fail or time out."""
    performed: dict[tuple[str, str, int], Performed] = field(default_factory=dict)
    """(communicator, operation, rank) to its latest record."""
    times: dict[tuple[str, str], dict[int, dict[int, float]]] = field(default_factory=dict)
    """(communicator, operation) to sequence to rank to the microseconds that its kernel ran."""
    notes: list[str] = field(default_factory=list)
    """The unread parts, in words."""
    pods: list[Pod] = field(default_factory=list)
    not_seen: list[str] = field(default_factory=list)
    """Facts that the cluster did not report, with the permission or the setting that they need."""


@dataclass(slots=True)
class Decision:
    """The document of the hang; ranks are world ranks."""

    kind: str = "undecided"
    """late, stalled, inside, dead, mismatch, order, watchdog, or undecided, alive, slow."""
    proven: bool = False
    late: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    group: str | None = None
    operation: str | None = None
    sequence: int | None = None
    passing: float | None = None
    """Seconds that the longest pending operation had waited when the dumps were taken, where that is not a hang yet."""
    undated: str = ""
    """Why the time of the dumps is unknown: the files' times may be those of copies."""
    moved: str = ""
    """How the dumps show that the job went on while they were written."""
    called: str = ""
    """The operations that ranks called in the same place, if they differ."""
    because: list[tuple[str, int, str]] = field(default_factory=list)
    """Evidence: file, line (0 for none), text."""
    uneven: str = ""
    """Sizes that differ between ranks where they may, in words."""
    contradictions: list[str] = field(default_factory=list)
    places: dict[int, Process] = field(default_factory=dict)
    suspects: set[int] = field(default_factory=set)
    """Ranks of which some are late, unless those that are ahead called one operation more."""
    uncounted: bool = False
    """All ranks with dumps are inside an operation, and it is unknown whether these are all ranks."""
    unsure: str = ""
    """Why none of the suspects is called late."""
    departed: bool = False
    """The late ranks left the communicator in which others are, or never created it."""
    inside_of: str = ""
    """The smaller communicator in which suspects, or unknown ranks, may wait together inside an operation."""
    ahead: set[int] = field(default_factory=set)
    """The minority, which may be wrong."""
    unnamed: int = 0
    """How many ranks are late where the evidence counts them and names none."""
    unrecorded: bool = False
    """A late rank may be in a send or a receive, which its backend's recorder leaves out."""
    reported: list[str] = field(default_factory=list)
    """Errors of ranks in RAS's words, those that name a cause on the rank itself first."""
    seconds: float = 0
    """How long a watchdog was blocked, or how much later than the others a rank came after their time-out."""
    nameless: list[Process] = field(default_factory=list)
    """Late or dead processes of unknown rank."""
