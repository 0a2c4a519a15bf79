"""Streams are grouped to jobs before any judgement.

Streams of one job share a communicator id, hold complementary ranks of equally large communicators, or name each
other's processes in a table's header. Every other stream is a separate job.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping

from ..reader.events.signals import TROUBLE
from ..reader.state.partial import Partial
from ..reader.state.process import Source
from .jobs import Job, merged


def group(
    partial: Partial, one_job: bool | Collection[str] = False, next_to_dumps: Iterable[Collection[str]] = ()
) -> list[Job]:
    """Return the jobs of a partial, in the order of their first stream; ``one_job`` treats all streams as one.

    If it has names, only those streams are one job. ``next_to_dumps``: for each job with dumps or similar files, the
    names of the streams in their folder.
    """
    several = len(partial.sources) > 1 and not one_job
    streams: dict[int, list[int]] = {}
    for index, first in enumerate(_first_streams(partial, next_to_dumps) if several else [0] * len(partial.sources)):
        if isinstance(one_job, bool) or partial.sources[index].name in one_job:
            streams.setdefault(first, []).append(index)
    jobs = []
    for members in streams.values():
        indices = set(members)
        procs = merged([(key, proc) for key, proc in sorted(partial.procs.items()) if key[0] in indices])
        jobs.append(Job({index: partial.sources[index] for index in members}, procs, partial.limited))
    return jobs


def _first_streams(partial: Partial, next_to_dumps: Iterable[Collection[str]]) -> list[int]:
    """Return for each stream the first one of the same job."""
    parent = list(range(len(partial.sources)))

    def find(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    def join(left: int, right: int) -> None:
        left, right = find(left), find(right)
        if left != right:
            parent[max(left, right)] = min(left, right)

    _join_by_comm_id(partial, join)
    _join_by_pid(partial, join)
    _join_complementary(partial, find, join)
    _join_by_stem(partial, find, join)
    _join_failures(partial, find, join)
    _join_related(partial, next_to_dumps, join)
    return [find(index) for index in range(len(parent))]


def _join_by_comm_id(partial: Partial, join: Callable[[int, int], None]) -> None:
    first: dict[str, int] = {}
    for (index, _, _), proc in partial.procs.items():
        for key, _rank in proc.comms:
            if key.startswith("0x"):
                join(first.setdefault(key, index), index)


def _join_by_pid(partial: Partial, join: Callable[[int, int], None]) -> None:
    """Join a table with (host, pid) in its header with the debug files of those processes."""
    where: dict[tuple[str, int], set[int]] = {}
    for index, host, pid in partial.procs:
        where.setdefault((host, pid), set()).add(index)
    for index, source in enumerate(partial.sources):
        own = {index for line in source.ranks.values() for index in where.get((str(line[0]), int(line[1])), ())}
        if source.ranks and index not in own and len(own) >= 1:
            named = [line for line in source.ranks.values() if (str(line[0]), int(line[1])) in where]
            if len(named) * 2 > len(source.ranks):
                for other in own:
                    join(index, other)


def _join_complementary(partial: Partial, find: Callable[[int], int], join: Callable[[int, int], None]) -> None:
    """Join streams of old versions (no communicator id): equal size and version, and no rank twice."""
    parts: dict[tuple[int, str], list[tuple[int, set[int]]]] = {}
    shapes: dict[int, tuple[int, set[int], set[str], bool]] = {}
    for (index, _, _), proc in sorted(partial.procs.items()):
        root = find(index)
        size, ranks, versions, named = shapes.get(root, (0, set(), set(), False))
        for (key, rank), comm in proc.comms.items():
            named = named or key.startswith("0x")
            if comm.nranks > size:
                size, ranks = comm.nranks, set()
            if comm.nranks == size:
                ranks.add(rank)
        shapes[root] = (size, ranks, versions | proc.facts.get("version", frozenset()), named)
    for root, (size, ranks, versions, named) in sorted(shapes.items()):
        if named or size < 2 or len(ranks) >= size:
            continue
        bucket = parts.setdefault((size, ""), [])
        for position, (other, taken) in enumerate(bucket):
            theirs = shapes[other][2]
            if not taken & ranks and (not versions or not theirs or versions & theirs):
                join(other, root)
                bucket[position] = (other, taken | ranks)
                break
        else:
            bucket.append((root, set(ranks)))


def _join_by_stem(partial: Partial, find: Callable[[int], int], join: Callable[[int, int], None]) -> None:
    """Join a stream that names no process with the only job whose files have its name.

    A launcher writes ``ring.out`` next to ``ring.HOST.PID.log``.
    """
    named = {index for (index, host, _) in partial.procs if not host.startswith("?")}
    stems: dict[tuple[str, str], set[int]] = {}
    for index in named:
        stems.setdefault(_stem(partial.sources[index].name), set()).add(find(index))
    for index, source in enumerate(partial.sources):
        roots = stems.get(_stem(source.name), set())
        if index not in named and len(roots) == 1:
            join(index, next(iter(roots)))


def _join_failures(partial: Partial, find: Callable[[int], int], join: Callable[[int, int], None]) -> None:
    """Join a stream that only reports a failure, such as a separate stderr file, with the only other job."""
    speaking = _of_nccl(partial)
    roots = {find(index) for index in speaking}
    for index, source in enumerate(partial.sources):
        diagnosed = any(name.startswith("dcgm ") for name in source.events)  # diagnostics of the job's GPUs
        if len(roots) == 1 and index not in speaking and (diagnosed or not TROUBLE.isdisjoint(source.events)):
            join(next(iter(roots)), index)
    _join_reports({index: source for index, source in enumerate(partial.sources) if index not in speaking}, join)


def _of_nccl(partial: Partial) -> set[int]:
    """Return the streams with NCCL lines, or an NCCL benchmark's."""
    spoken = {index for index, source in enumerate(partial.sources) if source.nccl_lines or source.tables}
    return spoken | {index for (index, _, _) in partial.procs}


def _join_related(partial: Partial, next_to_dumps: Iterable[Collection[str]], join: Callable[[int, int], None]) -> None:
    """Join streams without NCCL lines in the folder of only one job's dumps: the outputs of its ranks."""
    speaking = _of_nccl(partial)
    next_to_dumps = list(next_to_dumps)
    for names in next_to_dumps:
        alone = not any(other is not names and not set(names).isdisjoint(other) for other in next_to_dumps)
        own = [i for i, source in enumerate(partial.sources) if alone and i not in speaking and source.name in names]
        for index in own[1:]:
            join(own[0], index)


def _join_reports(silent: Mapping[int, Source], join: Callable[[int, int], None]) -> None:
    """Join streams of torch and programs only, each of other ranks, whose names differ in a number."""
    ranks: dict[str, set[str]] = {}
    first: dict[str, int] = {}
    for index, source in silent.items():
        name = re.sub(r"\d+(?=\D*$)", "#", source.name)
        taken, own = ranks.setdefault(name, set()), _speaking(source)
        if own and name != source.name and not taken & own:
            taken |= own
            join(first.setdefault(name, index), index)


def _speaking(source: Source) -> set[str]:
    """Return the ranks with a watchdog's line or an uncaught exception in a stream."""
    said = [_OF_RANK.search(note.text) for name, note in source.events.items() if name in TROUBLE]
    return {key.partition(" ")[0] for key in source.watch} | {match[1] for match in said if match}


_OF_RANK = re.compile(r"\[rank(\d{1,7})\]:")  # torch/distributed/distributed_c10d.py (_distributed_excepthook)


def _stem(path: str) -> tuple[str, str]:
    folder, base = os.path.split(path)
    return folder, base.split(".", 1)[0]
