"""A sweep whose runner was killed: what it began with stands in its folder, and its rounds in the coordinator's log.

Where a run ends by itself, its record has all of it and this file goes. The log is foreign text: what does not read as
rounds, one after the other, is left out, and is tested again.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypedDict

from checks.framework.outfolder import BEGUN, LOGS
from checks.rules.sweep_reading import done_of, numbered
from jobs.cluster.json_types import checker
from jobs.pod.sweep.model import Done
from jobs.run.evidence import EvidenceReader
from jobs.run.stages.sweep import SweepRound
from reports.record import Run, write_atomically
from reports.schema import Cluster

LARGEST = 64 << 20


class SweepShape(TypedDict):
    """What a sweep is of: boot ids tell whether a node is still the machine that was tested."""

    gpus_per_node: int
    image: str
    training: bool
    boots: dict[str, str]


class BegunSweep(SweepShape):
    """With the rounds that it goes on with, and when the run ended that they are of."""

    rounds: list[SweepRound]
    resumed: str | None


class BegunRun(TypedDict):
    """What a sweep goes on from if nobody is left to write its record."""

    run_id: str
    started: str
    simulated: bool
    cluster: Cluster
    profile_digest: str
    sweep: BegunSweep


_check = cache(lambda: checker(BegunRun))


def begin(folder: Path, run: Run, sweep: BegunSweep) -> None:
    """Write what a sweep goes on from."""
    begun: BegunRun = {
        "run_id": run.run_id,
        "started": run.started,
        "simulated": run.simulated,
        "cluster": run.cluster,
        "profile_digest": run.profile_digest,
        "sweep": sweep,
    }
    write_atomically(folder / BEGUN, json.dumps(begun, allow_nan=False) + "\n")


def end(folder: Path) -> None:
    """Take it away: the run has come to its own end."""
    (folder / BEGUN).unlink(missing_ok=True)


def begun(folder: Path) -> tuple[BegunRun, list[Done]] | None:
    """Return what was written at the beginning, and the rounds; None where no sweep was begun in a folder.

    Raises ValueError for a file that no sweep wrote.
    """
    try:
        with (folder / BEGUN).open("rb") as file:
            content = json.loads(file.read(LARGEST))  # a ValueError, where it is none
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ValueError(f"{BEGUN}: {error.strerror}") from error
    except RecursionError as error:
        raise ValueError(f"{BEGUN} is damaged: {error}") from error
    if problem := _check()(content):
        raise ValueError(f"{BEGUN} is damaged: {problem.strip()}")
    run: BegunRun = content
    history = [done_of(row) for row in run["sweep"]["rounds"]]
    return run, _contiguous([*history, *_logged(folder, run["run_id"])])


def how_on(folder: Path) -> str:
    """Say how a sweep that was begun in a folder, and not ended, goes on; '' where it has no round."""
    try:
        killed = begun(folder)
    except ValueError:
        return ""
    if killed is None or not killed[1]:
        return ""
    count = len(killed[1])
    rounds_kept = f"{count} round{' of it is' if count == 1 else 's of it are'} kept"
    return f"; {rounds_kept}: seatrial sweep --resume {shlex.quote(str(folder))} goes on from there"


def _logged(folder: Path, run_id: str) -> list[Done]:
    """Return the rounds of the coordinator's log: the first pod of rank 0 that has told any."""
    for place in sorted((folder / LOGS).glob("*.log")):
        reader = EvidenceReader(run_id)
        with place.open("rb") as file:
            for line in file:
                reader.feed(line)
        if rows := numbered(reader.result().stages, "round"):
            return sorted(map(done_of, rows), key=lambda done: done.round.number)
    return []


def _contiguous(history: Sequence[Done]) -> list[Done]:
    """Return the rounds up to the first that is missing: what came after it was planned with it."""
    numbered = {done.round.number: done for done in reversed(history)}
    rounds: list[Done] = []
    while (each := numbered.get(len(rounds) + 1)) is not None:
        rounds.append(each)
    return rounds
