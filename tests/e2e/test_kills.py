"""Runs are killed at random moments, and the next one finds nothing of theirs."""

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("seed", [20260, 20261, 20262])
def test_kills_leave_nothing_and_touch_nothing_foreign(root, seed):
    """A dozen, a few at a time; of the campaign in benchmarks/, with seeds of their own."""
    command = [sys.executable, "benchmarks/kills.py", "--kills", "4", "--seed", str(seed), "--neighbours", "0.25"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"4 kills (seed {seed}): 0 wrong" in done.stdout
