"""What tests of hangs share: explain, called as on the command line."""

import json
import os
from pathlib import Path

import pytest

from cli.explain import main
from jobs.nccl.hang.pickles import loads

DATA = Path(__file__).parent / "data"


def written_at_timeout(folder, later=1.0):
    """Give the dumps of a folder the time at which the last of what they wait for ended, some seconds later.

    A file is as old as its clone, which is no time at which a recorder wrote it.
    """
    paths = [path for path in folder.glob("*rank_*") if path.is_file()]
    entries = [entry for path in paths for entry in loads(path.read_bytes())["entries"]]
    waits = [entry for entry in entries if entry["state"] != "completed" and not entry["retired"]] or entries
    when = max((entry["time_created_ns"] / 1e9 + entry["timeout_ms"] / 1e3 for entry in waits), default=0) + later
    for path in paths:
        os.utime(path, (when, when))


@pytest.fixture(scope="session", autouse=True)
def _recorded_dumps():
    for folder in {path.parent for path in DATA.rglob("*rank_*")}:
        written_at_timeout(folder)


@pytest.fixture
def explain(capsys):
    """Return a function: paths to (exit code, the first job's document)."""

    def run(*paths):
        code = main(["--format", "json", *map(str, paths)])
        out = capsys.readouterr()
        return code, (json.loads(out.out)["jobs"][0] if out.out else out.err)

    return run
