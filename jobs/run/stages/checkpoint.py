"""The stage of a checkpoint: saved, flushed, verified, and found again after a crash."""

from __future__ import annotations

from typing import TypedDict

from .kinds import Count


class CheckpointPlace(TypedDict, total=False):
    """A path that takes a checkpoint: ``path`` must outlive the job, ``local`` is where it is saved first."""

    role: str
    path: str
    kind: str
    fs: str
    device: str
    readonly: bool
    mounted: bool
    sticky: bool
    shared: bool
    mode: Count


class CheckpointSave(TypedDict, total=False):
    """One rank's part of saving a step: ``at`` by its node's clock."""

    step: Count
    bytes: Count
    at: float
    pause_s: float
    write_s: float


class CheckpointRank(TypedDict, total=False):
    """What one rank told."""

    rank: Count
    torch: str
    saves: list[CheckpointSave]


class CheckpointState(TypedDict, total=False):
    """writing, local, flushing, durable or verified, and since when."""

    step: Count
    state: str
    at: float


class CheckpointFlush(TypedDict, total=False):
    """The files of one node on their way to the path that outlives the job."""

    seconds: float
    mb_s: float
    bytes: Count


class CheckpointVerified(TypedDict, total=False):
    """The next node's files, read back here; ``elsewhere`` is false where there is one node."""

    peer: Count
    files: Count
    bytes: Count
    elsewhere: bool
    seen: bool
    ok: bool
    error: str
    bad: list[str]
    seconds: float
    mb_s: float


class CheckpointCrash(TypedDict, total=False):
    """The step in which a rank was killed; ``torn``: it has no index."""

    step: Count
    rank: Count
    exit: float
    torn: bool


class CheckpointResume(TypedDict, total=False):
    """The step from which the job went on, and the newer ones that it passed over; ``wrong`` counts values."""

    step: Count
    wrong: Count
    seconds: float
    error: str
    passed_over: list[CheckpointState]


class CheckpointRun(TypedDict, total=False):
    """A checkpoint of all ranks, from writing to verified, a crash in the next one, and the way back."""

    skipped: str
    error: str
    where: str
    bytes: Count
    memory_free: Count
    places: list[CheckpointPlace]
    ranks: list[CheckpointRank]
    states: list[CheckpointState]
    flush: CheckpointFlush
    verified: CheckpointVerified
    crash: CheckpointCrash
    resume: CheckpointResume
    cleaned: list[str]
