"""Compare the counts of launched operations that NCCL RAS reports, within a sample and between samples."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from . import subcommunicators
from .model import At, Decision
from .ras_text import MAX_RANKS
from .split_jobs import SECOND_LOOK

if TYPE_CHECKING:
    from .model import Evidence, Process, Sample

_Counts = tuple[dict[int, int], list[tuple[int, int]]]
"""Rank to count, and (number of ranks, count) of ranks that are not named."""
_GONE = frozenset(("NOCOMM", "FINALIZE"))
"""It answers and does not know the communicator, or has called ncclCommFinalize or ncclCommDestroy."""
_THERE = frozenset(("RUNNING", "INIT"))
ONE_SAMPLE = "RAS: nothing wrong in its one answer"


def _series(evidence: Evidence) -> dict[tuple[str, str], list[_Counts]]:
    """Return (communicator, operation) to the counts of all samples."""
    series: dict[tuple[str, str], list[_Counts]] = defaultdict(list)
    for sample in evidence.samples:
        for key in dict.fromkeys((*sample.counts, *sample.unnamed)):  # in the order of the answer
            series[key].append((sample.counts.get(key, {}), sample.unnamed.get(key, [])))
    return series


def looks(samples: list[Sample]) -> list[Sample]:
    """Return the samples without copies of one: the same answer with the same time, or in a file of the same time.

    Answers of a job that hangs are equal: those that were written seconds apart, or into one file, are several.
    """
    chosen: list[Sample] = []
    for sample in samples:
        if not any(_copy(sample, other) for other in chosen):
            chosen.append(sample)
    return chosen


def _copy(one: Sample, other: Sample) -> bool:
    if replace(one, file=other.file) != other:
        return False
    if one.stamp:
        return True
    together = one.written is not None and other.written is not None and abs(one.written - other.written) < SECOND_LOOK
    return one.file != other.file and together


def of_the_dumps(evidence: Evidence) -> bool:
    """Return whether RAS may mention the job of the dumps: it has as many ranks, where the dumps list them all."""
    listed = [group.members for group in evidence.groups.values() if group.name == "default_pg" and group.members]
    size = evidence.samples[-1].size if evidence.samples else 0
    return not (evidence.ranks and listed and size) or size == len(listed[0])


def advanced(evidence: Evidence) -> bool:
    """Return whether some count of RAS differs between its samples."""
    return any(one != other for each in _series(evidence).values() for one, other in itertools.pairwise(each))


def counted_equal(evidence: Evidence) -> bool:
    """Return whether RAS counts the same on all ranks, and does not count on.

    They are in their last launched operation.
    """
    return bool(evidence.samples) and all(sample.ok for sample in evidence.samples) and not advanced(evidence)


def still(evidence: Evidence) -> bool:
    """Return whether several samples of RAS show the same counts."""
    series, samples = _series(evidence), len(evidence.samples)
    states = [sample.states for sample in evidence.samples]
    same = all(one == other for one, other in itertools.pairwise(states)) and not advanced(evidence)
    return samples > 1 and bool(series or states[0]) and same and all(len(v) == samples for v in series.values())


def from_counts(made: Decision, evidence: Evidence) -> Decision | None:  # noqa: ARG001 -- as every rule
    """Compare the counts of launched operations: one sample shows a difference, only several show that it lasts."""
    if not evidence.samples or not of_the_dumps(evidence):
        return None
    last, frozen = evidence.samples[-1], still(evidence)
    if advanced(evidence) and not evidence.timeouts:
        because = ((last.file, 0, "RAS: the counts of operations advance"),)
        return Decision(kind="alive", because=because) + (_pace(evidence) or Decision())
    found = (
        _called_otherwise(evidence, frozen)
        or _departed(evidence, frozen=frozen)
        or _from_world(evidence, frozen)
        or _from_parts(evidence, frozen)
        or subcommunicators.from_smaller(evidence, frozen=frozen)
    )
    if found is not None:
        return found
    if frozen and (last.counts or last.unnamed):
        text = "RAS: all ranks launched equally many operations, in every sample the same"
        return Decision(kind="" if evidence.timeouts else "undecided", because=((last.file, 0, text),))
    alone = len(evidence.samples) == 1 and last.ok and not evidence.timeouts
    return Decision(because=((last.file, 0, ONE_SAMPLE),)) if alone else None


def _from_world(evidence: Evidence, frozen: bool) -> Decision | None:
    """Name the ranks that are behind in the job's communicator."""
    series = _series(evidence)
    worlds = [sample.world for sample in evidence.samples]
    last, proven = evidence.samples[-1], frozen or bool(evidence.timeouts)
    for (comm, operation), values in sorted(series.items(), key=lambda item: worlds.count(item[0][0]), reverse=True):
        counts, unnamed_counts = values[-1]
        levels = set(counts.values()) | {count for _, count in unnamed_counts}
        if len(levels) < 2 or comm not in worlds:
            continue
        low = min(levels)
        behind = {rank for rank, count in counts.items() if count == low}
        size = len(counts) + sum(number for number, _ in unnamed_counts)
        unnamed_levels, unnamed = {count for _, count in unnamed_counts}, 0
        if unnamed_levels == {low}:  # those that RAS does not name are behind, it names the others
            rest = _everyone(last) - set(counts)
            behind = rest if len(rest) == size - len(counts) else set()
            unnamed = 0 if behind else size - len(counts)
        elif low in unnamed_levels:  # two sides of one size: it names neither
            behind = set()
            unnamed = sum(number for number, count in unnamed_counts if count == low)
        text = (
            f"RAS: {unnamed or len(behind)} of {size} ranks launched {operation} up to {low},"
            f" the furthest up to {max(levels)}, {subcommunicators.lasts(frozen=frozen)}"
        )
        # a rank ahead in a part of the job waits there, and comes late to all others only for that
        behind = behind - _sides_of_parts(last)[1] or behind
        root = subcommunicators.root_of(last, comm, behind)
        late = root if proven or 2 * len(behind) < size else set()
        inside, inside_of = subcommunicators.together(last, root) if proven else (set(), "")
        late = late - inside
        return Decision(
            kind="late" if proven else "undecided",
            proven=proven,
            late=late,
            # only JSON shows which of them wait in a smaller communicator
            suspects=behind if not root else root if inside and not late else set(),
            unsure="" if root else f": {subcommunicators.UNCLEAR}",
            unknown=inside,
            inside_of=inside_of,
            waiting=set() if unnamed else _everyone(last) - (root or behind),
            unnamed=unnamed,
            at=At(f"communicator {comm}", operation, low + 1),
            because=((last.file, 0, text),),
        )
    return None


def _departed(evidence: Evidence, *, frozen: bool) -> Decision | None:
    """Name the ranks that left the job's communicator, or never created it; ``frozen``: samples show that it lasts.

    Where a rank aborts, its watchdog has given up: that one waited, and the rank that left is not reported.
    """
    last = evidence.samples[-1] if evidence.samples else None
    states = last.states.get(last.world or "", {}) if last else {}
    gone = {rank for rank, state in states.items() if state in _GONE} - evidence.waiting
    there = {rank for rank, state in states.items() if state in _THERE}
    if last is None or not gone or not there or "ABORT" in states.values():
        return None
    proven, minority = frozen or bool(evidence.timeouts), len(gone) <= len(there)
    shown = ", ".join(f"{rank} ({states[rank]})" for rank in sorted(gone)[:8])
    text = f"RAS: ranks {shown} left communicator {last.world} or never created it; {len(there)} are in it"
    return Decision(
        kind="late" if proven else "undecided",
        proven=proven,
        late=gone if minority else set(),
        suspects=set() if minority else gone,
        ahead=set() if minority else there,
        waiting=there,
        at=At(f"communicator {last.world}"),
        departed=True,
        because=((last.file, 0, text),),
    )


def unresponsive(made: Decision, evidence: Evidence) -> Decision:
    """Call processes dead that do not answer in the last sample; an earlier INCOMPLETE that answers later is not."""
    last = evidence.samples[-1] if evidence.samples else None
    gone = [process for process in last.processes if process.dead or process.silent] if last else []
    if last is None or not gone:
        return made
    if evidence.ranks and last.size and last.size != len(evidence.world):
        text = (
            f"NCCL RAS reports a communicator of {last.size} ranks, the dumps of a job of {len(evidence.world)}: its"
            " ranks are not theirs"
        )
        made += Decision(contradictions=(text,))
        if made.kind:
            return made
        gone = [replace(process, rank=None) for process in gone]
    dead = {process.rank for process in gone if process.rank is not None}
    ranked = {(process.host, process.pid) for process in gone if process.rank is not None}
    each = {(p.host, p.pid): p for p in gone}
    nameless = tuple(p for key, p in each.items() if key not in ranked and (p.pid is not None or len(each) == 1))
    reasons = [
        (last.file, 0, _gone_in_words(process)) for process in {(p.pid, p.host, p.rank): p for p in gone}.values()
    ]
    found = Decision(dead=dead, nameless=nameless, because=tuple(reasons[:4]))
    if not made.kind or made.late <= dead:
        listed = {process.rank for process in last.processes if process.rank is not None}
        everyone = listed if last.comms else set(range(min(last.size, MAX_RANKS)))  # JSON lists them
        waiting = everyone - dead if last.size and dead and not made.waiting else set()
        found += Decision(kind="dead", proven=True, waiting=waiting)
    return made + found


def _gone_in_words(process: Process) -> str:
    state = "is dead" if process.dead else "does not answer"
    name = f"rank {process.rank}" if process.rank is not None else "a process"
    what = f"process {process.pid}, GPU {process.gpu} of {process.host}" if process.pid else "RAS does not know which"
    return f"RAS: {name} ({what}) {state}"


def _everyone(sample: Sample) -> set[int]:
    """Return the ranks of the job's communicator that answered."""
    if sample.size > MAX_RANKS:
        return set()
    gone = {process.rank for process in sample.processes if process.dead or process.silent}
    return set(range(sample.size)) - gone


def _called_otherwise(evidence: Evidence, frozen: bool) -> Decision | None:
    """Name the ranks that called as many operations as the others of the job's communicator, and not the same ones.

    All ranks call in one order: a rank behind in one operation and ahead in another called it in the first one's place.
    """
    last = evidence.samples[-1]
    counts = {key[1]: each for key, each in last.counts.items() if key[0] == last.world}
    if len(counts) < 2 or any(len(each) != last.size for each in counts.values()):
        return None
    calls = {rank: tuple(counts[name].get(rank, 0) for name in sorted(counts)) for rank in next(iter(counts.values()))}
    kinds = Counter(calls.values())
    (common, most), *rarer = kinds.most_common()
    if not rarer or len({sum(each) for each in kinds}) > 1 or 2 * most <= last.size:
        return None
    late = {rank for rank, each in calls.items() if each != common}
    ahead = [name for place, name in enumerate(sorted(counts)) if common[place] > min(each[place] for each in kinds)]
    text = f"RAS: {last.size - most} of {last.size} ranks launched as many operations as the others, but not the same"
    return Decision(
        kind="mismatch",
        proven=frozen or bool(evidence.timeouts),
        late=late,
        waiting=set(calls) - late,
        at=At(f"communicator {last.world}", ahead[0], max(counts[ahead[0]].values())),
        because=((last.file, 0, text),),
    )


def _from_parts(evidence: Evidence, frozen: bool) -> Decision | None:
    """Name the ranks that are behind in a smaller communicator and ahead in no other.

    A rank that waits in one communicator comes late to the next, and is ahead in the first: it waits for the others
    there.
    """
    last = evidence.samples[-1]
    behind, ahead = _sides_of_parts(last)
    late = set(behind) - ahead
    if not late:
        return None
    inside, inside_of = subcommunicators.together(last, late)
    shown = f"RAS: ranks {', '.join(map(str, sorted(late)[:8]))} launched less than others"
    if inside == late:
        text = f"{shown}, and may wait together in a separate communicator"
        kind = "" if evidence.timeouts else "undecided"
        return Decision(kind=kind, inside_of=inside_of, because=((last.file, 0, text),))
    proven = frozen or bool(evidence.timeouts)
    comm, operation, count = behind[min(late - inside)]
    text = f"{shown} of their communicators, {subcommunicators.lasts(frozen=frozen)}, and are ahead nowhere"
    return Decision(
        kind="late" if proven else "undecided",
        proven=proven,
        late=late - inside,
        unknown=inside,
        inside_of=inside_of,
        waiting=(set(range(last.size)) if proven and last.size <= MAX_RANKS else ahead) - late,
        at=At(f"communicator {comm}", operation, count + 1),
        because=((last.file, 0, text),),
    )


def _sides_of_parts(sample: Sample) -> tuple[dict[int, tuple[str, str, int]], set[int]]:
    """Return the ranks behind in smaller communicators (communicator, operation, count), and those ahead in one."""
    behind: dict[int, tuple[str, str, int]] = {}
    ahead: set[int] = set()
    for (comm, operation), counts in sorted(sample.counts.items()):
        if comm not in sample.parts or len(set(counts.values())) < 2:
            continue
        most = max(counts.values())
        for rank, count in counts.items():
            if count == most:
                ahead.add(rank)
            else:
                behind.setdefault(rank, (comm, operation, count))
    return behind, ahead


def _pace(evidence: Evidence) -> Decision | None:
    """Name a minority of ranks that is behind in all of three or more samples of a progressing job: stragglers."""
    behind: list[set[int]] = []
    for sample in evidence.samples:
        last = max(
            (
                counts
                for (comm, _), counts in sample.counts.items()
                if comm == sample.world and len(counts) == sample.size
            ),
            key=lambda counts: max(counts.values()),
            default={},
        )
        low = min(last.values(), default=0)
        behind.append({rank for rank, count in last.items() if count == low} if len(set(last.values())) > 1 else set())
    size = evidence.samples[-1].size
    if (
        len(behind) < 3
        or not behind[0]
        or any(ranks_behind != behind[0] for ranks_behind in behind)
        or 2 * len(behind[0]) >= size
    ):
        return None
    text = f"RAS: ranks {sorted(behind[0])[:8]} are behind in every sample"
    return Decision(kind="slow", late=behind[0], because=((evidence.samples[-1].file, 0, text),))
