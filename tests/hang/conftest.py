"""What tests of hangs share: explain, called as on the command line."""

import json
import os
from pathlib import Path

import pytest

from cli.explain import main

DATA = Path(__file__).parent / "data"
LATER = 2_000_000_000
"""Seconds since 1970: after all that is recorded, and after its time-outs."""


@pytest.fixture(scope="session", autouse=True)
def _recorded_long_ago():
    """A file is as old as its clone; one made soon after the recording would read as written before its time-out."""
    for path in DATA.rglob("*rank_*"):
        os.utime(path, (LATER, LATER))


@pytest.fixture
def explain(capsys):
    """Return a function: paths to (exit code, the first job's document)."""

    def run(*paths):
        code = main(["--format", "json", *map(str, paths)])
        out = capsys.readouterr()
        return code, (json.loads(out.out)["jobs"][0] if out.out else out.err)

    return run
