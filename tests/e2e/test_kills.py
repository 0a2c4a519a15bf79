"""Runs are killed at random moments, and the next one finds nothing of theirs."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_a_dozen_kills_leave_nothing_and_touch_nothing_foreign(root):
    """Of the campaign in benchmarks/, with a seed of its own."""
    command = [sys.executable, "benchmarks/kills.py", "--kills", "12", "--seed", "20260", "--neighbours", "0.25"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 kills (seed 20260): 0 wrong" in done.stdout
