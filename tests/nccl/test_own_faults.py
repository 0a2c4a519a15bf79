"""Faults that a user brings for logs: what they tell, and what is said of a file that is wrong."""

import subprocess
import sys

import pytest

from tests.waiting import HANG_S

OURS = """
faults:
  ours.quota:
    title: The project's quota is used up
    meaning: Writes are refused
    confirm: mmlsquota -j PROJECT gpfs0
    remedy: delete old checkpoints
    failure: program
    lines:
      - pattern: 'our-io: quota of project \\S+ exceeded'
        example: 'our-io: quota of project llm-7 exceeded (500 TB)'
        near_miss: 'our-io: quota of project llm-7 at 80 %'
"""
FULL = "our-io: quota of project llm-9 exceeded (1 TB)\nOSError: [Errno 122] Disk quota exceeded\n"


@pytest.fixture
def seatrial(root, tmp_path):
    """Run a command in a process of its own: the reader takes in such faults once, before it reads."""

    def run(*arguments, ours=OURS, log=FULL):
        (tmp_path / "ours.yaml").write_text(ours)
        (tmp_path / "t.log").write_text(log)
        command = [sys.executable, "-m", "checks", *arguments]
        env = {"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"}
        return subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=HANG_S, check=False
        )

    return run


@pytest.mark.parametrize("place", ["ours.yaml", "."])
def test_a_message_of_the_users_own_has_its_fault_and_remedy(seatrial, place):
    done = seatrial("explain", "--faults", place, "t.log")
    assert done.returncode == 1, done.stderr
    assert "FATAL  ours.quota" in done.stdout
    assert "delete old checkpoints" in done.stdout
    assert "Failure class: program" in done.stdout


def test_without_it_or_beside_it_the_log_says_what_it_did(seatrial):
    assert "ours.quota" not in seatrial("explain", "t.log").stdout
    near = seatrial("explain", "--faults", "ours.yaml", "t.log", log=FULL.replace("exceeded (1 TB)", "at 80 %"))
    assert "ours.quota" not in near.stdout
    assert "nccl.storage" in near.stdout


def test_a_file_that_is_right_is_said_to_be(seatrial):
    done = seatrial("faults", "--lint", "ours.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 faults and 1 kinds of lines, nothing is wrong" in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("title:", "titel:", "ours.quota: title must be there"),
        ("failure: program", "failure: user", "failure is 'user', not one of infrastructure, program, unknown"),
        ("ours.quota:", "nccl.hang:", "nccl.hang: is in the catalogue already"),
        ("ours.quota:", "Quota:", "an id is OURS.WHAT"),
        ("project llm-7 exceeded", "project exceeded", "its example 'our-io: quota of project exceeded (500 TB)'"),
        ("project llm-7 at 80 %", "project llm-7 exceeded", "its near miss"),
        ("exceeded'", "exceeded('", "is no regular expression"),
        ("our-io: quota of project \\S+ exceeded", "\\d+", "no word stands in every match"),
        ("near_miss", "nearmiss", "nearmiss"),
        ("faults:", "fault:", "no catalogue: KeyError: 'faults'"),
        (OURS, "faults: {}", "no fault is in it"),
        (
            "our-io: quota of project llm-7 exceeded (500 TB)",
            "NCCL WARN Cuda failure 2 out of memory",
            "is a line of nccl.",
        ),
        ("  ours", "\tours", "no catalogue: ScannerError"),
    ],
)
def test_what_is_wrong_is_said_by_lint_and_before_any_log_is_judged(seatrial, old, new, said):
    assert old in OURS
    wrong = OURS.replace(old, new, 1)
    lint = seatrial("faults", "--lint", "ours.yaml", ours=wrong)
    assert lint.returncode == 1
    assert said in lint.stderr
    judged = seatrial("explain", "--faults", "ours.yaml", "t.log", ours=wrong)
    assert judged.returncode == 4
    assert said in judged.stderr
    assert "Traceback" not in lint.stderr + judged.stderr


def test_a_file_that_is_not_there_is_a_usage_error(seatrial):
    done = seatrial("explain", "--faults", "nowhere.yaml", "t.log")
    assert done.returncode == 4
    assert "nowhere.yaml" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broad_pattern_hides_no_fault_of_the_catalogue(seatrial):
    """It may fit every line: what was no go without it is none with it."""
    broad = OURS.replace("our-io: quota of project \\S+ exceeded", "NCCL|our-io").replace("near_miss", "# near_miss")
    log = "n1:7:9 [0] misc/ibvwrap.cc:94 NCCL WARN Call to ibv_open_device failed\nn1:7:9 [0] NCCL WARN Cuda failure 700\n"
    alone = seatrial("explain", "t.log", log=log)
    done = seatrial("explain", "--faults", "ours.yaml", "t.log", ours=broad, log=log)
    assert done.returncode == alone.returncode == 1, done.stderr
    assert done.stdout == alone.stdout
