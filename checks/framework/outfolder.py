"""The folder of ``--out``: it holds the reports of one run, or none.

Rule: a run that ends before it can report leaves no report of an earlier run behind, since a gate would read it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPORTS = ("report.json", "report.html", "report.md", "junit.xml", "metrics.prom")
LOGS = "logs"
BEGUN = "sweep.json"
"""The file with a sweep's start parameters, kept until its record is written."""
_SUFFIX = "[bcdfghjklmnpqrstvwxz2456789]{5}"  # alphabet of generated names: apimachinery, pkg/util/rand
_LOG = re.compile(rf"seatrial-[a-z0-9.-]+(?:-\d+-{_SUFFIX}|-launcher(?:-{_SUFFIX})?|-(?:worker|master)-\d+)\.log")
"""The log of a trial's pod, whose name its controller chose: Indexed Job, TrainJob; MPIJob; PyTorchJob."""


def clear(folder: Path) -> None:
    """Remove the reports of an earlier run and the logs of its pods, and nothing else.

    Raises pytest.UsageError for a folder that cannot hold reports.
    """
    name = ""
    try:
        for name in (*REPORTS, BEGUN):
            (folder / name).unlink(missing_ok=True)
        # A symbolic link may lead to files of others: its target must not be removed.
        logs = folder / LOGS
        for old in sorted(logs.iterdir()) if logs.is_dir() and not logs.is_symlink() else ():
            if _LOG.fullmatch(name := old.name) and old.is_file() and not old.is_symlink():
                old.unlink(missing_ok=True)
    except NotADirectoryError:
        raise pytest.UsageError(f"--out {folder}: this is a file, or is below one; a folder is needed") from None
    except OSError as error:
        raise pytest.UsageError(f"--out {folder}: an old {name} cannot be removed: {error.strerror}") from error


def make(folder: Path) -> None:
    """Create the folder and write to it: without a writable report a trial is wasted."""
    proof = folder / ".writable"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        proof.write_bytes(b"")
        proof.unlink()
    except OSError as error:
        raise pytest.UsageError(f"--out {folder}: cannot be written: {error.strerror}") from error
