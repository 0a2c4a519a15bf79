"""Separate the jobs with evidence in one place: one job's ranks do not describe another's.

A part is the files in one directory with one kind of name. Parts are joined if nothing distinguishes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .dump_times import same_process
from .model import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .model import Rank, Sample

_CALLS = 8
"""Complete collectives: two jobs have none in common, and ranks of one job have called most of theirs together."""
SECOND_LOOK = 2.0
"""Seconds between two dumps of a rank that are two samples, not one file twice."""

_JOINED = (
    "the dumps named {} are treated as one job's: their ranks complete one another, and a dump names neither host nor"
    " job. If there are two jobs, use a separate folder for each"
)


@dataclass(slots=True)
class Job:
    """The parts of one job: its evidence, its directories, and the ranks that its dumps list as all."""

    evidence: Evidence = field(default_factory=Evidence)
    folders: set[str] = field(default_factory=set)
    stems: set[str] = field(default_factory=set)
    """The names of its dumps, without their ranks."""
    world: tuple[int, ...] = ()


def apart(parts: Iterable[Job]) -> list[Job]:
    """Return each job among the parts of one place."""
    parts = list(parts)
    jobs: list[Job] = []
    for part in parts:
        if part.evidence.ranks:
            add(jobs, part)
    unplaced = Job()
    for part in parts:
        if not part.evidence.ranks:
            near = [job for job in jobs if part.folders & job.folders] if len(jobs) > 1 else jobs
            absorb(near[0] if len(near) == 1 else unplaced, part)
    if unplaced.evidence != Evidence():
        jobs.append(unplaced)
    return [own for job in jobs for own in _foreign(job)]


def absorb(job: Job, part: Job) -> None:
    """Add a part to a job."""
    one, other = job.evidence, part.evidence
    for name in ("files", "samples", "reports", "notes", "contradictions", "pods", "not_seen"):
        getattr(one, name).extend(getattr(other, name))
    for name in ("ranks", "groups", "calls", "performed", "times"):
        getattr(one, name).update(getattr(other, name))
    one.version = one.version or other.version
    for name in ("world", "listed", "logs", "named", "unread"):
        getattr(one, name).update(getattr(other, name))
    job.folders |= part.folders
    job.stems |= part.stems
    job.world = job.world or part.world


def said_in(evidence: Evidence, files: set[str]) -> Evidence:
    """Return the reports of some logs alone."""
    reports = [report for report in evidence.reports if report.where[0] in files]
    return Evidence(pods=evidence.pods, not_seen=evidence.not_seen, reports=reports)


def without(evidence: Evidence, files: set[str]) -> Evidence:
    """Return the evidence without the reports of these logs."""
    return replace(evidence, reports=[report for report in evidence.reports if report.where[0] not in files])


def same_job(one: Job, other: Job, *, surely: bool = False) -> bool:
    """Return whether dumps may be of one job's ranks, or ``surely`` are: each rank once, and one list of all ranks."""
    if one.evidence.ranks.keys() & other.evidence.ranks.keys():
        return False
    here, there = one.evidence.calls, other.evidence.calls
    shared = here.keys() & there.keys()
    if len(shared) >= _CALLS and all(here[call] != there[call] for call in shared):
        return False  # ranks of one job that are out of step called the same ones before
    if one.world and other.world:
        return one.world == other.world and (not surely or _meet(one, other))
    return not surely


def _meet(one: Job, other: Job) -> bool:
    spans = [[made.span for made in job.evidence.ranks.values() if made.span] for job in (one, other)]
    if not all(spans):
        return False
    (a, b), (c, d) = ((min(first for first, _ in each), max(last for _, last in each)) for each in spans)
    return a <= d and c <= b


def add(jobs: list[Job], part: Job, *, surely: bool = False) -> None:
    """Add a part to its job, or as a separate job; ``surely``: if unknown, it is separate."""
    for job in jobs:
        if same_job(job, part, surely=surely):
            if job.folders & part.folders and not job.stems & part.stems:
                stems = " and ".join(f"{stem}N" for stem in sorted(job.stems | part.stems)[:4])
                job.evidence.contradictions = [_JOINED.format(stems)]
            absorb(job, part)
            return
        if _again(job, part):
            _look_again(job, part)
            return
    jobs.append(part)


def _again(job: Job, part: Job) -> bool:
    """Return whether these are other dumps of the same processes."""
    first, second = job.evidence.ranks, part.evidence.ranks
    both = first.keys() & second.keys()
    empty = bool(both) and not any(first[rank].recorded or second[rank].recorded for rank in both)
    return any(same_process(first[rank], second[rank]) for rank in both) or (empty and job.world == part.world)


def _look_again(job: Job, part: Job) -> None:
    """Keep the later of two samples of a job, and the changes between them."""
    first, second = job.evidence.ranks, part.evidence.ranks
    both = sorted(first.keys() & second.keys())
    if sum(_last(second[rank].span) - _last(first[rank].span) for rank in both) < 0 or _between(first, second) < 0:
        first, second = second, first
    for rank in both:
        before, after = first[rank].pending[:1], second[rank].pending[:1]
        if (before and before != after) or _last(first[rank].span) != _last(second[rank].span):
            position = f"{before[0].name.rpartition(':')[2]} {before[0].sequence}" if before else "no operation"
            went_on = job.evidence.went_on
            job.evidence.went_on = went_on or f"rank {rank} was at {position} in the first dump and made progress"
    lasted = _between(first, second) >= SECOND_LOOK and len(both) == len(first) == len(second)
    if job.evidence.went_on is None and lasted:
        job.evidence.went_on = ""
    looked = {**first, **second}
    for rank in both:  # the original of a copied file is the older one
        times = [time for time in (first[rank].written, second[rank].written) if time is not None]
        if first[rank].marks == second[rank].marks:
            looked[rank] = replace(second[rank], written=min(times, default=None))
    part.evidence.ranks = {}
    absorb(job, part)
    job.evidence.ranks = looked


def _last(span: tuple[int, int] | None) -> int:
    return span[1] if span else 0


def _between(first: dict[int, Rank], second: dict[int, Rank]) -> float:
    """Return the seconds between two samples: by the dumps' own times if both have some, otherwise by the files'."""
    own, by_file = (
        [max((getattr(made, name) or 0.0 for made in look.values()), default=0.0) for look in (first, second)]
        for name in ("taken", "written")
    )
    before, after = own if all(own) else by_file
    return after - before


def _foreign(job: Job) -> list[Job]:
    """Return the job, and evidence with another number of ranks or other communicators as separate jobs."""
    evidence, made = job.evidence, [job]
    groups: list[list[Sample]] = []
    for sample in evidence.samples:
        group = next((group for group in groups if _one_job(group[0], sample)), None)
        groups.append([sample]) if group is None else group.append(sample)
    if len(groups) > 1:
        fit = [group for group in groups if group[0].size == len(job.world)]
        fitting_samples = fit[0] if len(fit) == 1 else []
        evidence.samples = fitting_samples
        made += [
            Job(Evidence(samples=group, files=sorted({sample.file for sample in group})))
            for group in groups
            if group is not fitting_samples
        ]
        known_elsewhere = {sample.file for each in made[1:] for sample in each.evidence.samples}
        evidence.files = [name for name in evidence.files if name not in known_elsewhere]
    if job.world:
        errors = evidence.said("timed out", "broken", "left")
        foreign = {item.where[0] for item in errors if item.rank > max(job.world)}
        if foreign:
            kept = [each for each in evidence.reports if each.where[0] not in foreign or each.state == "blocked"]
            kept = [each for each in kept if each.state != "failed"]  # the job of these logs is uncertain, too
            job.evidence = replace(evidence, reports=kept)
            made.append(Job(said_in(evidence, foreign)))
    return [each for each in made if each.evidence != Evidence()]


def _one_job(one: Sample, other: Sample) -> bool:
    if one.comms and other.comms:
        return bool(one.comms & other.comms)
    return one.size == other.size or not one.size or not other.size
