"""A sweep whose runner was killed: what it began with stands in its folder, and its rounds in the coordinator's log.

Where a run ends by itself, its record has all of it and this file goes. The log is foreign text: what does not read as
rounds, one after the other, is left out, and is tested again.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from checks.framework.outfolder import BEGUN, LOGS
from checks.rules.sweep_reading import done_of, numbered
from jobs.run.evidence import EvidenceReader
from reports.record import write_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from jobs.pod.sweep.model import Done
    from reports.record import Run

LARGEST = 64 << 20
KEYS = ("run_id", "started", "simulated", "cluster", "profile_digest")


def begin(folder: Path, run: Run, sweep: dict[str, Any], resumed: Any) -> None:
    """Write what a sweep goes on from if nobody is left to write its record; its `rounds` are those it goes on with."""
    facts = {key: getattr(run, key) for key in KEYS}
    text = json.dumps({**facts, "sweep": {**sweep, "resumed": resumed}}, allow_nan=False)
    write_atomically(folder / BEGUN, text + "\n")


def end(folder: Path) -> None:
    """Take it away: the run has come to its own end."""
    (folder / BEGUN).unlink(missing_ok=True)


def begun(folder: Path) -> tuple[dict[str, Any], list[Done]] | None:
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
    try:
        history = [done_of(row) for row in content["sweep"]["rounds"]]
        run = str(content["run_id"])
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError) as error:
        raise ValueError(f"{BEGUN} is damaged: {error}") from error
    return content, _contiguous([*history, *_logged(folder, run)])


def how_on(folder: Path) -> str:
    """Say how a sweep that was begun in a folder, and not ended, goes on; '' where it has no round."""
    try:
        killed = begun(folder)
    except ValueError:
        return ""
    if killed is None or not killed[1]:
        return ""
    count = len(killed[1])
    kept = f"{count} round{' of it is' if count == 1 else 's of it are'} kept"
    return f"; {kept}: seatrial sweep --resume {shlex.quote(str(folder))} goes on from there"


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
