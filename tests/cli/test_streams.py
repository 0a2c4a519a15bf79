"""Every command with broken streams: it keeps its exit code, and never ends with 1 by accident.

1 means a cluster fault, but Python itself ends with it if a character or a byte cannot be written.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.__main__ import COMMANDS
from tests.cli.under_streams import Interpreter
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "checks"]
LOG = "tests/logs/data/recorded/ib-disabled.log"
CALLS: dict[str, tuple[list[str], int]] = {
    "preflight": (["--help"], 0),
    "accept": (["--clutser", "sim"], 4),
    "explain": ([LOG], 1),
    "checks": (["nccl.transport"], 0),
    "faults": ([], 0),
    "job": (["status", "x", "--kubeconfig", "no-such-file"], 4),
    "cleanup": (["--kubeconfig", "no-such-file"], 4),
    "lint": (["no-such-file"], 4),
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
"""By command: arguments that end at once, and their exit code."""
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
"""One of each way to lose output, since commands write differently."""
WITH_A_TRIAL = ("ascii", "nothing", "full stdout", "closed pipe")
"""Other output of a trial uses the same streams: one of each way to lose it."""
RUNS = (("preflight", "healthy", "go", 0), ("accept", "gpu-missing", "no-go", 1), ("accept", "healthy", "go", 0))
"""Command, scenario and expected result: the first in each way, all of them in those with a trial."""
LOST = {"full stdout": 3, "closed pipe": 141}
"""The exit code in place of 0 if the output was lost."""


def stream(how: str) -> int:
    """Return the initial standard output: a pipe without a reader, or one per command."""
    if how != "closed pipe":
        return subprocess.PIPE
    reader, output = os.pipe()
    os.close(reader)
    return output


def start(arguments: list[str], how: str) -> subprocess.Popen[str]:
    """Start a command with the streams of REDIRECTED."""
    redirected, environment = REDIRECTED[how]
    output = stream(how)
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
    if output != subprocess.PIPE:
        os.close(output)
    return started


@pytest.fixture(scope="module")
def under(request: pytest.FixtureRequest) -> Iterator[tuple[str, Interpreter]]:
    """Return the state of the streams, and an interpreter that was started with them."""
    output = stream(request.param)
    interpreter = Interpreter(*REDIRECTED[request.param], stdout=output)
    if output != subprocess.PIPE:
        os.close(output)
    yield request.param, interpreter
    interpreter.close()


IN_EACH_WAY = pytest.mark.parametrize("under", REDIRECTED, indirect=True)
"""Tests of one way follow each other, so that they share its interpreter."""


def test_every_command_is_tried() -> None:
    """A new command must be added here."""
    assert CALLS.keys() >= COMMANDS.keys()


QUICK = {"explain": BY_COMMAND, "help": tuple(REDIRECTED)}
"""One with exit code 1 and one with 0, and the ways in which they are tried."""
SLOW = {name: tuple(REDIRECTED) if name in ("explain", "faults") else BY_COMMAND for name in CALLS if name != "help"}


def arguments_of(command: str, folder: Path) -> list[str]:
    """Return its arguments; its input is written to the folder."""
    record = folder / "report.json"
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
    return [command, *(word.replace("{record}", str(record)) for word in CALLS[command][0])]


def its_own(command: str, how: str) -> int:
    """Return its own exit code; if the output was lost, it is not 0."""
    expected = CALLS[command][1]
    return LOST.get(how, 0) if expected == 0 else expected


def is_well_said(how: str, out: str, err: str) -> None:
    """Assert that its output has no error."""
    assert "Traceback" not in err, (how, err)
    assert "UnicodeEncodeError" not in f"{out}{err}", (how, err)


@pytest.mark.parametrize(("command", "ways"), QUICK.items(), ids=QUICK)
def test_the_exit_code_is_the_commands_own(command: str, ways: tuple[str, ...], tmp_path: Path) -> None:
    """The exit code does not depend on the output, each time in a newly started interpreter."""
    ended = {}
    for batch in (ways[:6], ways[6:]):
        running = {how: start(arguments_of(command, tmp_path), how) for how in batch}
        for how, process in running.items():
            is_well_said(how, *process.communicate(timeout=HANG_S))
            ended[how] = process.returncode
    assert ended == {how: its_own(command, how) for how in ways}


@pytest.mark.slow
@IN_EACH_WAY
def test_each_commands_exit_code_is_its_own(under: tuple[str, Interpreter], tmp_path: Path) -> None:
    """Commands of one way to lose output run one after the other."""
    how, interpreter = under
    ended = {}
    commands = [name for name, ways in SLOW.items() if how in ways]
    for command in commands:
        done = interpreter.run(arguments_of(command, tmp_path))
        is_well_said(f"{command}, {how}", done.stdout, done.stderr)
        ended[command] = done.returncode
    assert ended == {command: its_own(command, how) for command in commands}


@pytest.mark.slow
@IN_EACH_WAY
def test_a_run_is_judged_and_reported_whatever_becomes_of_its_output(
    under: tuple[str, Interpreter], tmp_path: Path
) -> None:
    """The report is complete, no object is left, and the exit code is that of the report's verdict."""
    how, interpreter = under
    for command, scenario, verdict, code in RUNS if how in WITH_A_TRIAL else RUNS[:1]:
        folder = tmp_path / f"{command}-{scenario}"
        done = interpreter.run([command, "--cluster", f"sim:{scenario}", "--out", str(folder)])
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), (command, scenario, done.stderr)
        record = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        judged = record["verdict"], record["exit_code"], record["interrupted"], record["leftovers"]
        assert judged == (verdict, code, "", []), (command, scenario)
        assert {path.name for path in folder.iterdir()} >= {"report.html", "junit.xml", "metrics.prom"}


def test_signs_that_an_encoding_does_not_know_are_written_in_ascii() -> None:
    """Our own characters are transliterated, all others escaped, so a finding remains readable."""
    process = start(["explain", LOG], "ascii")
    out, _ = process.communicate(timeout=HANG_S)
    assert out.isascii()
    assert "\\u" not in out
    assert "\\x" not in out
