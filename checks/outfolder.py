"""Where do the reports go? The folder of ``--out``: it holds the reports of one run, or none.

Rule: a run that ends before it can report leaves no report of an earlier one behind, for a gate would believe it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

REPORTS = ("report.json", "report.html", "junit.xml", "metrics.prom")


def clear(folder: Path) -> None:
    """Remove the reports of an earlier run; raises pytest.UsageError where the folder cannot be one for reports."""
    try:
        for name in REPORTS:
            (folder / name).unlink(missing_ok=True)
    except NotADirectoryError:
        raise pytest.UsageError(f"--out {folder}: this is a file, or lies below one; a folder is needed") from None
    except OSError as error:
        raise pytest.UsageError(f"--out {folder}: an old {name} cannot be removed: {error.strerror}") from error


def make(folder: Path) -> None:
    """Create the folder and write to it: a long trial whose report finds no place is time lost on both sides."""
    proof = folder / ".writable"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        proof.write_bytes(b"")
        proof.unlink()
    except OSError as error:
        raise pytest.UsageError(f"--out {folder}: cannot be written: {error.strerror}") from error
