"""Counts of communicators of a part of the job, if RAS does not show their ranks.

Its text names only the smaller set of ranks, by their number within the communicator, with host, process and GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .model import At, Decision

if TYPE_CHECKING:
    from .model import Evidence, Process, Sample

UNCLEAR = (
    "some of them may only wait in a smaller communicator, for which the text of NCCL RAS does not name the ranks that"
    " are ahead: ask it for JSON (ncclras -f json)"
)
SMALLER = "a smaller communicator"
_Identity = tuple[str, int | None, str]


@dataclass(slots=True)
class _Trouble:
    """A communicator with ranks that launched different numbers of operations."""

    comm: str
    operation: str
    low: int
    behind: dict[_Identity, Process] = field(default_factory=dict)
    ahead: set[_Identity] = field(default_factory=set)
    unnamed_behind: int = 0
    unnamed_ahead: int = 0


def _troubles(sample: Sample) -> list[_Trouble]:
    troubles = []
    for (comm, operation), counts in sorted(sample.counts.items()):
        unnamed = sample.unnamed.get((comm, operation), [])
        levels = set(counts.values()) | {count for _, count in unnamed}
        if comm == sample.world or comm in sample.parts or len(levels) < 2:
            continue
        made = _Trouble(comm, operation, min(levels))
        for rank, count in counts.items():
            process = sample.members.get(comm, {}).get(rank)
            if process is None or process.pid is None:
                made.unnamed_behind += count == made.low
                made.unnamed_ahead += count > made.low
            elif count == made.low:
                made.behind[process.host, process.pid, process.gpu] = process
            else:
                made.ahead.add((process.host, process.pid, process.gpu))
        made.unnamed_behind += sum(number for number, count in unnamed if count == made.low)
        made.unnamed_ahead += sum(number for number, count in unnamed if count > made.low)
        troubles.append(made)
    return troubles


def _may_be_ahead(identity: _Identity, troubles: list[_Trouble]) -> bool:
    """Return whether a process may be ahead somewhere without being named; a process named as behind is not."""
    return any(trouble.unnamed_ahead and identity not in trouble.behind for trouble in troubles)


def root_of(sample: Sample, world: str, behind: set[int]) -> set[int]:
    """Return the ranks that others wait for among those behind in the job's communicator; empty if unclear.

    Ranks that wait in a smaller communicator are late to the whole job's for that reason.
    """
    troubles = _troubles(sample) if sample.world == world else []
    if not troubles or len(behind) < 2:
        return behind
    cleared = {p.rank for p in sample.members.get(world, {}).values() for t in troubles if _identity(p) in t.ahead}
    left = behind - cleared
    low = {process.rank for trouble in troubles for process in trouble.behind.values()}
    if len(troubles) == 1 and low <= left and len(low) + troubles[0].unnamed_ahead == len(left):
        return {rank for rank in low if rank is not None}
    return left if len(left) < 2 or not any(trouble.unnamed_ahead for trouble in troubles) else set()


def _identity(process: Process) -> _Identity:
    return process.host, process.pid, process.gpu


def together(sample: Sample, behind: set[int]) -> tuple[set[int], str]:
    """Return the ranks that may wait together inside an operation of a smaller communicator, and its name.

    A rank that waits there reaches the whole job's operation as late as one at fault. JSON shows the members of each
    communicator. One without counts may have sends and receives, which need two of its ranks and are not counted. Text
    omits communicators with equal counts on all ranks.
    """
    if len(behind) < 2:
        return set(), ""
    counted = {comm for (comm, _), counts in sample.counts.items() if any(counts.values())}
    inside: dict[str, set[int]] = {comm: set(sample.members.get(comm, ())) for comm in sorted(sample.parts)}
    for (comm, _), counts in sample.counts.items():
        if comm in inside:
            inside[comm] |= set(counts)
    inside = {comm: members if comm in counted else members & behind for comm, members in inside.items()}
    inside = {comm: members for comm, members in inside.items() if len(members) > 1 and members <= behind}
    if inside:
        return set().union(*inside.values()), f"communicator {next(iter(inside))}" if len(inside) == 1 else SMALLER
    listed = {comm for comm, _ in sample.counts.keys() | sample.unnamed.keys()} | sample.states.keys()
    return (behind, SMALLER) if sample.number > len(listed) else (set(), "")


def lasts(*, frozen: bool) -> str:
    """Return whether samples show that a difference lasts, as text."""
    return "in every sample" if frozen else "in one sample, which may be a temporary difference"


def from_smaller(evidence: Evidence, *, frozen: bool) -> Decision | None:
    """Name the processes that are behind in a smaller communicator and ahead in none."""
    last = evidence.samples[-1]
    troubles = _troubles(last)
    if not troubles:
        return None
    ahead = set().union(*(trouble.ahead for trouble in troubles))
    late = {identity: p for trouble in troubles for identity, p in trouble.behind.items() if identity not in ahead}
    comms = {trouble.comm for trouble in troubles}
    sure = {key: process for key, process in late.items() if len(comms) == 1 or not _may_be_ahead(key, troubles)}
    hidden = last.number > len(comms)
    unclear = bool(late) and (not sure or (len(sure) > 1 and hidden))  # several may wait together, with equal counts
    late = sure or late
    first = next((trouble for trouble in troubles if trouble.behind.keys() & late.keys()), troubles[0])
    unnamed = first.unnamed_behind if not late and len(troubles) == 1 else 0
    proven = bool(late or unnamed) and not unclear and (frozen or bool(evidence.timeouts))
    ranks = {process.rank for process in late.values() if process.rank is not None}
    texts = [
        f"RAS: {len(trouble.behind) + trouble.unnamed_behind} ranks of communicator {trouble.comm} launched"
        f" {trouble.operation} up to {trouble.low}, the other ranks later ones, {lasts(frozen=frozen)}"
        for trouble in troubles[:3]
    ]
    return Decision(
        kind="late" if proven else "undecided",
        proven=proven,
        late=set() if unclear else ranks,
        suspects=ranks if unclear else set(),
        nameless=tuple(process for process in late.values() if process.rank is None),
        unnamed=unnamed,
        at=At(f"communicator {first.comm}", first.operation, first.low + 1),
        because=tuple((last.file, 0, text) for text in texts),
    )
