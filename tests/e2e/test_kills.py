"""Runs are killed at random times, and the next one finds none of their objects."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from benchmarks import kills
from tests.program import Program, seatrial


def start(command, **streams):
    """Fork a run but not its cluster, which kills its pods by the environment that they started with."""
    return (Program if "checks" in command else subprocess.Popen)(command, **streams)


def run(command, **_):
    return seatrial(*command[command.index("checks") + 1 :])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [20260, 20261, 20262])
def test_kills_leave_nothing_and_touch_nothing_foreign(monkeypatch, capsys, seed):
    """A dozen kills of the campaign in benchmarks/ run a few at a time, with separate seeds."""
    same = {name: getattr(subprocess, name) for name in ("PIPE", "STDOUT", "TimeoutExpired")}
    monkeypatch.setattr(kills, "subprocess", SimpleNamespace(Popen=start, run=run, **same))
    monkeypatch.setattr(sys, "argv", ["kills.py", "--kills", "4", "--seed", str(seed), "--neighbours", "0.25"])
    code, said = kills.main(), capsys.readouterr().out
    assert code == 0, said
    assert f"4 kills (seed {seed}): 0 wrong" in said
