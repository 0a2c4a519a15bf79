"""Every command under streams that do not work as usual: the exit code is the one it has, and never 1 by accident.

1 says that the cluster is at fault; Python itself ends with it where a character or a byte cannot be written.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "checks"]
LOG = "tests/nccl/data/recorded/ib-disabled.log"
CALLS: dict[str, tuple[list[str], int]] = {
    "preflight": (["--help"], 0),
    "accept": (["--clutser", "sim"], 4),
    "explain": ([LOG], 1),
    "checks": (["nccl.transport"], 0),
    "faults": ([], 0),
    "job": (["status", "x", "--kubeconfig", "no-such-file"], 4),
    "cleanup": (["--kubeconfig", "no-such-file"], 4),
    "compare": (["{record}", "{record}"], 10),
    "mark": (["no-such-folder", "--label-nodes"], 4),
    "cron": (["--help"], 0),
    "policy": (["--profile", "h100-ib", "--namespace", "default"], 0),
    "serve": (["no-such-folder"], 4),
    "profile": (["lint", "h100-ib"], 0),
    "rbac": (["--help"], 0),
    "sweep": (["--plan", "--nodes", "16"], 0),
    "sim": (["--list"], 0),
    "rehearse": (["--help"], 0),
    "completion": (["--help"], 0),
    "help": ([], 0),
    "--version": ([], 0),
    "no-such-command": ([], 4),
}
"""By command: words that end at once, and the exit code that they have."""
REDIRECTED = {
    "plain": ("", {}),
    "ascii": ("", {"PYTHONIOENCODING": "ascii"}),
    "latin-1": ("", {"PYTHONIOENCODING": "latin-1"}),
    "C locale": ("", {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}),
    "no stdout": (">&-", {}),
    "no stderr": ("2>&-", {}),
    "nothing": ("<&- >&- 2>&-", {}),
    "no stdin": ("<&-", {}),
    "full stderr": ("2>/dev/full", {}),
    "full stdout": (">/dev/full", {}),
    "closed pipe": ("", {}),
}
BY_COMMAND = ("ascii", "no stdout", "no stderr", "full stderr", "full stdout", "closed pipe")
"""A command may write in a way of its own: one of each way to lose what it says."""
WITH_A_TRIAL = ("ascii", "nothing", "full stdout", "closed pipe")
"""Whatever a trial prints meanwhile goes through the same streams: one of each way to lose it."""
LOST = {"full stdout": 3, "closed pipe": 141}
"""What 0 becomes where the output was lost."""


def start(arguments: list[str], how: str) -> subprocess.Popen[str]:
    """Start a command with its streams as REDIRECTED says."""
    redirected, environment = REDIRECTED[how]
    output: Any = subprocess.PIPE
    if how == "closed pipe":
        reader, output = os.pipe()
        os.close(reader)
    started = subprocess.Popen(
        ["sh", "-c", f'exec "$@" {redirected}', "sh", *PROGRAM, *arguments],
        cwd=ROOT,
        text=True,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    if how == "closed pipe":
        os.close(output)
    return started


def test_every_command_is_tried() -> None:
    """A new one is added here."""
    assert CALLS.keys() >= COMMANDS.keys()


QUICK = {"explain": BY_COMMAND, "help": tuple(REDIRECTED)}
"""One that ends with 1 of its own and one that ends with 0, and the ways in which they are tried."""
SLOW = {name: tuple(REDIRECTED) if name in ("explain", "faults") else BY_COMMAND for name in CALLS if name != "help"}


@pytest.mark.parametrize(
    ("command", "ways"),
    [
        *(pytest.param(name, ways, id=f"{name} in {len(ways)}") for name, ways in QUICK.items()),
        *(pytest.param(name, ways, id=f"{name} in {len(ways)}", marks=pytest.mark.slow) for name, ways in SLOW.items()),
    ],
)
def test_the_exit_code_is_the_commands_own(command: str, ways: tuple[str, ...], tmp_path: Path) -> None:
    """Whatever becomes of the output; where it was lost, 0 is not given."""
    arguments, expected = CALLS[command]
    record = tmp_path / "report.json"
    record.write_text(
        json.dumps(
            {
                "schema": 1,
                "run_id": "·→\u2713é",
                "verdict": "go",
                "scope": "full",
                "checks": [{"id": "a.b", "outcome": "passed"}],
                "collectives": {},
            }
        )
    )
    arguments = [word.replace("{record}", str(record)) for word in arguments]
    ended = {}
    for batch in (ways[:6], ways[6:]):
        running = {how: start([command, *arguments], how) for how in batch}
        for how, process in running.items():
            out, err = process.communicate(timeout=120)
            ended[how] = process.returncode
            assert "Traceback" not in err, (how, err)
            assert "UnicodeEncodeError" not in f"{out}{err}", (how, err)
    assert ended == {how: LOST.get(how, 0) if expected == 0 else expected for how in ways}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "scenario", "verdict", "code", "how"),
    [
        *(("accept", "gpu-missing", "no-go", 1, how) for how in WITH_A_TRIAL),
        *(("preflight", "healthy", "go", 0, how) for how in REDIRECTED if how != "plain"),
        *(("accept", "healthy", "go", 0, how) for how in WITH_A_TRIAL),
    ],
)
def test_a_run_is_judged_and_reported_whatever_becomes_of_its_output(
    command: str, scenario: str, verdict: str, code: int, how: str, tmp_path: Path
) -> None:
    """The report is whole, nothing is left behind, and the exit code is the verdict's: it is in the report, too."""
    process = start([command, "--cluster", f"sim:{scenario}", "--out", str(tmp_path / "out")], how)
    _, err = process.communicate(timeout=300)
    assert (process.returncode, "Traceback" in err) == (code, False), err
    record = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert (record["verdict"], record["exit_code"], record["interrupted"], record["leftovers"]) == (
        verdict,
        code,
        "",
        [],
    )
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"report.html", "junit.xml", "metrics.prom"}


def test_signs_that_an_encoding_does_not_know_are_written_in_ascii() -> None:
    """Our own as such, all others as escapes: a finding is still read."""
    process = start(["explain", LOG], "ascii")
    out, _ = process.communicate(timeout=120)
    assert out.isascii()
    assert "\\u" not in out
    assert "\\x" not in out
