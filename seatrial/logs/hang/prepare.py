"""Prepare the evidence of one job for the rules: no copies, one run, world ranks, and one meaning for all recorders."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .counts import looks
from .dump_times import beginning_lost, of_another_run
from .gloo import settled
from .model import Process
from .watchdog import in_world

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .model import Evidence, Sample


def prepare(evidence: Evidence) -> Evidence:
    """Return the evidence as rules read it; excluded parts are noted in its contradictions."""
    samples = looks(evidence.samples)
    old, cut = of_another_run(evidence), beginning_lost(evidence)
    notes = list(evidence.contradictions)
    if len(samples) < len(evidence.samples):
        copies = len(evidence.samples) - len(samples)
        text = (
            f"{copies} of the answers of RAS are no further samples: copies of another one, or taken at the same time."
            " Ask again, some seconds later"
        )
        notes.insert(0, text)
    if old:
        notes.append(
            f"the dumps of ranks {sorted(old)[:8]} are of an earlier run: the others queued, later than its time-out"
            " allows, operations that these ranks have completed. They are not counted"
        )
    if cut:
        notes.append(
            f"the recorders of ranks {sorted(cut)[:8]} hold pending operations only, and earlier ones are lost: their"
            " position is not known. A larger TORCH_FR_BUFFER_SIZE keeps it"
        )
    kept = {rank: made for rank, made in evidence.ranks.items() if rank not in old | cut}
    world = evidence.world | set(evidence.broken) if evidence.ranks else evidence.world
    made = replace(evidence, reports=in_world(evidence), ranks=kept, world=world, contradictions=notes)
    return settled(replace(made, samples=_identified(samples, _size(made))))


def _size(evidence: Evidence) -> int:
    """Return the number of ranks by the dumps; RAS of more ranks is another job's. 0 without dumps."""
    return len(evidence.world) if evidence.ranks else 0


def _identified(samples: list[Sample], size: int) -> list[Sample]:
    """Return the samples with the rank of each process that some sample shows, by host and process."""
    own = [sample for sample in samples if not size or sample.size <= size]
    ranks: dict[tuple[str, int | None], int] = {
        (p.host, p.pid): p.rank for sample in own for p in sample.processes if p.rank is not None and p.pid
    }

    def identified(process: Process) -> Process:
        rank = ranks.get((process.host, process.pid)) if process.rank is None else None
        return process if rank is None else replace(process, rank=rank)

    return [
        replace(
            sample,
            processes=[identified(process) for process in sample.processes],
            members={
                comm: {rank: identified(process) for rank, process in members.items()}
                for comm, members in sample.members.items()
            },
        )
        if sample in own
        else sample
        for sample in samples
    ]


def places(evidence: Evidence) -> Mapping[int, Process]:
    """Return the place of each rank, by RAS, otherwise by NCCL Inspector's records of communicators of all ranks."""
    size = _size(evidence)
    found = {
        process.rank: process
        for sample in evidence.samples
        for process in sample.processes
        if (not size or sample.size <= size) and process.rank is not None and process.host
    }
    for done in evidence.performed.values():
        if done.host and done.size >= len(evidence.world):
            found.setdefault(done.rank, Process(done.rank, done.host))
    return found
