"""seatrial rehearse: the matrix, the exit codes, and refusals."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.rehearse.trials import Rehearsal, command_of
from tests.program import rehearse_here, seatrial
from tests.waiting import HANG_S, until

ROOT = Path(__file__).resolve().parents[2]
WRONG = "name: liar\ntitle: A scenario that lies\nbreaks: nothing\nfaults: [gpu.missing]\noutcome: no-go\n"


def rehearse(*arguments, cwd=ROOT, **env):
    return subprocess.run(
        [sys.executable, "-m", "checks", "rehearse", *map(str, arguments)],
        cwd=cwd,
        text=True,
        capture_output=True,
        timeout=HANG_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["heathy"], "did you mean 'healthy'"),
        (["healthy", "no-such-thing-at-all"], "unknown scenario"),
        (["healthy", "--api-faults", "strom"], "did you mean 'storm'"),
        (["healthy", "--api-faults", "storm:x"], "whole number"),
        (["healthy", "--wether", "storm"], "unrecognized arguments"),
        (["./no-file.yaml"], "no scenario file"),
    ],
)
def test_what_cannot_be_rehearsed_is_refused_before_anything_starts(arguments, message):
    """The refusal is one line with the nearest name and exit code 4."""
    done = seatrial("rehearse", *arguments)
    assert done.returncode == 4
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert message in done.stderr


@pytest.mark.parametrize(
    ("faults", "verdict", "trouble", "right"),
    [
        (["a", "b"], "no-go", "", True),
        (["b", "a"], "no-go", "", True),
        (["a"], "no-go", "", False),
        (["a", "b", "c"], "no-go", "", False),
        (["a", "b"], "go", "", False),
        (["a", "b"], "no-go", "left behind: job/x", False),
    ],
)
def test_recognised_means_exactly_the_stated_faults_and_verdict(faults, verdict, trouble, right):
    """An extra fault is as wrong as a missing one; leftovers are always wrong."""
    each = Rehearsal("n", "n", ["a", "b"], {}, ["no-go"], faults=faults, verdict=verdict, trouble=trouble)
    assert each.recognised is right


@pytest.mark.parametrize(
    ("subjects", "phrases", "accused", "mistaken"),
    [
        (["node-1"], [], ["node-1"], ""),
        (["node-1*"], [], ["node-1 mlx5_3"], ""),
        (["node-0", "node-1"], [], ["node-1", "node-0"], ""),
        (["node-1"], [], ["node-0"], "a wrongly names node-0"),
        (["node-1"], [], ["node-1", "node-0"], "a wrongly names node-0"),
        (["node-0", "node-1"], [], ["node-1"], "a does not name node-0"),
        ([], ["mlx5_3"], ["node-1"], "a does not say mlx5_3"),
        ([], ["is DOWN"], ["node-1"], ""),
    ],
)
def test_recognised_means_on_the_stated_subjects_with_the_stated_words(subjects, phrases, accused, mistaken):
    """A right fault on a wrong node is a false attribution; a missed broken node is a false negative."""
    each = Rehearsal(
        "n",
        "n",
        ["a"],
        {"a": subjects} if subjects else {},
        ["no-go"],
        {"a": phrases},
        faults=["a"],
        verdict="no-go",
        accused={"a": accused},
        observed={"a": "node-1: the port is DOWN"},
    )
    assert (each.mistaken, each.recognised) == (mistaken, not mistaken)


def test_the_scenarios_own_profile_and_options_start_the_trial(tmp_path):
    """A profile in the scenario becomes a file with the scenario's name; options are passed unchanged."""
    each = Rehearsal("mine", "mine", [], {}, ["go"], run={"profile": {"extends": "h100-ib"}, "options": ["--tenant"]})
    command = command_of(each, tmp_path / "out", tmp_path)
    assert command[command.index("--profile") + 1] == str(tmp_path / "mine.yaml")
    assert (tmp_path / "mine.yaml").read_text() == "extends: h100-ib\n"
    assert "--tenant" in command


@pytest.mark.slow
def test_a_matrix_names_what_was_found_and_what_was_not(tmp_path, capsys):
    """The matrix has a row each in the requested order; a scenario with a false expectation leads to exit code 1."""
    (tmp_path / "liar.yaml").write_text(WRONG)
    env = os.environ | {"TAO_K8S_NAMESPACE": "mine"}
    code = rehearse_here(["gpu-missing", "liar.yaml", "--out", "kept"], cwd=tmp_path, env=env)
    said = capsys.readouterr().out
    rows = [re.split(r"  +", line) for line in said.splitlines()]
    assert rows[0] == ["scenario", "expected", "found", "verdict", "seconds", "recognised"]
    assert rows[1][:4] + rows[1][5:] == ["gpu-missing", "gpu.missing", "gpu.missing", "no-go", "yes"]
    assert rows[2][:4] + rows[2][5:] == ["liar", "gpu.missing", "-", "go", "NO"]
    assert "1 of 2 recognised; not: liar" in said
    assert code == 1
    matrix = json.loads((tmp_path / "kept" / "rehearsal.json").read_text())
    assert [(each["name"], each["recognised"]) for each in matrix] == [("gpu-missing", True), ("liar", False)]
    assert {path.parent.name for path in (tmp_path / "kept").glob("*/report.json")} == {"gpu-missing", "liar"}


@pytest.mark.slow
def test_two_at_once_under_api_faults(tmp_path, capsys):
    """--jobs and --api-faults; exit code 0 if all were recognised, and the user's folder is unchanged."""
    arguments = ["allocatable-zero", "gpu-missing", "--jobs", "2", "--api-faults", "slow:3"]
    code, said = rehearse_here(arguments, cwd=tmp_path, env=os.environ), capsys.readouterr().out
    assert code == 0, said
    assert "2 of 2 recognised" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM"])
def test_an_interrupt_ends_the_trials_too(how, tmp_path):
    """Exit code 2; the running trial is interrupted, ends its cluster and records the interruption."""
    command = [
        sys.executable,
        "-m",
        "checks",
        "rehearse",
        "nccl-hang",
        "healthy",
        "--jobs",
        "1",
        "--out",
        str(tmp_path / "kept"),
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        until(lambda: list((tmp_path / "kept").glob("nccl-hang/logs/*")), "a log")
        os.kill(process.pid, getattr(signal, how))
        assert process.wait(HANG_S) == 2
    record = json.loads((tmp_path / "kept" / "nccl-hang" / "report.json").read_text())
    assert record["interrupted"] and record["leftovers"] == []
    assert not (tmp_path / "kept" / "healthy").exists()
