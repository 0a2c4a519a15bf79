"""Log faults that a user adds: their reports, and messages about an invalid file."""

import importlib
import json
import sys

import pytest

from checks.profiles.loader import load_profile
from tests import program

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


def anew(arguments):
    """Run a command with nothing of ours imported yet."""
    for name in list(sys.modules):
        if name.partition(".")[0] in {"checks", "cli", "jobs", "reports", "seatrial"}:
            del sys.modules[name]
    return importlib.import_module("cli.__main__").main(arguments)


@pytest.fixture
def seatrial(tmp_path):
    """Run a command in a separate process, since the reader loads such faults once, before it reads."""

    def run(*arguments, ours=OURS, log=FULL):
        (tmp_path / "ours.yaml").write_text(ours)
        (tmp_path / "t.log").write_text(log)
        return program.seatrial(*arguments, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, main=anew)

    return run


@pytest.mark.parametrize("place", ["ours.yaml", "."])
def test_a_message_of_the_users_own_has_its_fault_and_remedy(seatrial, place):
    done = seatrial("explain", "--faults", place, "t.log")
    assert done.returncode == 1, done.stderr
    assert "FATAL  ours.quota" in done.stdout
    assert "delete old checkpoints" in done.stdout
    assert "Failure class: program" in done.stdout


def test_without_it_or_with_it_the_log_says_what_it_did(seatrial):
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
        ("exceeded'", "exceeded('", "is not a regular expression"),
        ("our-io: quota of project \\S+ exceeded", "\\d+", "no word is in every match"),
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
    """A pattern may match every line: a no-go without it remains no-go."""
    broad = OURS.replace("our-io: quota of project \\S+ exceeded", "NCCL|our-io").replace("near_miss", "# near_miss")
    log = "n1:7:9 [0] misc/ibvwrap.cc:94 NCCL WARN Call to ibv_open_device failed\nn1:7:9 [0] NCCL WARN Cuda failure 700\n"
    alone = seatrial("explain", "t.log", log=log)
    done = seatrial("explain", "--faults", "ours.yaml", "t.log", ours=broad, log=log)
    assert done.returncode == alone.returncode == 1, done.stderr
    assert done.stdout == alone.stdout


# -------------------------------------------------------------------------------------------- faults named by a profile

GUARD = """
faults:
  ours.rail-guard:
    title: The rail guard closed a port
    meaning: The guard of the fabric takes a port away whose errors rise
    confirm: railctl status NODE
    remedy: ask the fabric team to open the port again
    lines:
      - pattern: 'our-guard: port \\d+ of \\S+ is closed'
        example: 'our-guard: port 3 of mlx5_1 is closed'
"""
CLOSED = """
name: guard
title: A guard of the organisation's closed a port
breaks: one port
faults: [ours.rail-guard]
outcome: no-go
world:
  collective:
    dies: {text: 'our-guard: port 3 of mlx5_1 is closed', ranks: [1]}
"""


@pytest.fixture
def site(tmp_path):
    """Create a profile that extends one in a parent folder, which names faults next to it."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "guard.yaml").write_text(GUARD)
    (tmp_path / "site.yaml").write_text("extends: h100-ib\nfaults: own\n")
    (tmp_path / "pools").mkdir()
    (tmp_path / "pools" / "new.yaml").write_text("extends: ../site.yaml\n")
    (tmp_path / "closed.yaml").write_text(CLOSED)
    return tmp_path


@pytest.mark.slow
def test_a_line_that_only_a_profiles_faults_know_has_their_remedy_in_a_trial(seatrial, site):
    """The reader with these faults runs in the pods, and the host gets its results."""
    cluster = ("--cluster", "sim:closed.yaml")
    done = seatrial("accept", "--profile", "pools/new.yaml", *cluster, "--out", "own-run")
    assert done.returncode == 1, done.stderr
    record = json.loads((site / "own-run" / "report.json").read_text())
    faults = {f["fault"] for check in record["checks"] for f in check["findings"] if f["fault"]}
    assert faults == {"ours.rail-guard"}
    assert record["faults"]["ours.rail-guard"]["remedy"] == "ask the fabric team to open the port again"
    assert record["faults"]["ours.rail-guard"]["confirm"] == "railctl status NODE", "the log names the node"
    assert record["failure_class"] == "infrastructure"
    seatrial("accept", "--profile", "h100-ib", *cluster, "--out", "plain-run")
    without = json.loads((site / "plain-run" / "report.json").read_text())
    assert set(without["faults"]) == {"nccl.crash"}
    assert without["profile_digest"] != record["profile_digest"]
    assert without["bom"]["trial"]["probe"].keys().isdisjoint(record["bom"]["trial"]["probe"]), (
        "the pods ran other sources"
    )


def test_the_manifests_show_what_the_pods_are_given_of_them(seatrial, site):
    asked = ("preflight", "--cluster", "sim:healthy", "--print-manifests", "--with-files", "--profile")
    given = seatrial(*asked, "site.yaml").stdout.splitlines()
    (shown,) = (number for number, line in enumerate(given) if "our-guard: port" in line)
    assert given[shown].startswith('# {"fault": "ours.rail-guard"')
    assert given[shown + 1] == "# ]", "it is tried after the whole catalogue"
    assert "our-guard" not in seatrial(*asked, "h100-ib").stdout


def test_explain_judges_by_a_profiles_faults_and_by_those_of_a_file(seatrial, site):
    log = "our-guard: port 1 of mlx5_0 is closed\n"
    named = seatrial("explain", "--profile", "pools/new.yaml", "--faults", "ours.yaml", "t.log", log=log)
    assert "FATAL  ours.rail-guard" in named.stdout, named.stderr
    twice = seatrial("explain", "--profile", "site.yaml", "--faults", "own/guard.yaml", "t.log", log=log)
    assert twice.stdout.count("FATAL") == 1, twice.stderr
    assert "ours.rail-guard" not in seatrial("explain", "--profile", "h100-ib", "t.log", log=log).stdout


@pytest.mark.parametrize(
    ("old", "new", "said", "lint"),
    [
        ("    title: ", "    titel: ", "own/guard.yaml: ours.rail-guard: title must be there", 1),
        ("example: 'our-guard: port 3", "example: 'our-guard: port", "no line shows it in its example", 0),
        ("closed'\n        example", "c?+losed'\n        example", "may know no possessive", 1),
        ("closed'\n        example", "(?:closed|{})'\n        example", "for each pod, more than", 1),
        (GUARD, "", "own: no *.yaml is in it", 1),
    ],
)
def test_faults_that_are_wrong_are_refused_before_anything_is_created(seatrial, site, old, new, said, lint):
    assert old in GUARD
    text = GUARD.replace(old, new.replace("{}", "x" * 70_000), 1)
    (site / "own" / "guard.yaml").write_text(text) if text else (site / "own" / "guard.yaml").unlink()
    done = seatrial("accept", "--profile", "pools/new.yaml", "--cluster", "sim:healthy")
    assert done.returncode == 4
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "run " not in done.stdout
    assert seatrial("profile", "lint", "site.yaml").returncode == lint
    assert seatrial("explain", "--profile", "site.yaml", "t.log").returncode == 4


def test_a_profiles_digest_is_that_of_what_its_faults_say_and_not_of_where(tmp_path):
    digests = []
    for folder, text in (("a", GUARD), ("b", GUARD), ("c", GUARD.replace("open the port", "look"))):
        place = tmp_path / folder
        place.mkdir()
        (place / "guard.yaml").write_text(text)
        (place / "mine.yaml").write_text("extends: h100-ib\nfaults: guard.yaml\n")
        digests.append(load_profile(str(place / "mine.yaml")).digest)
    assert digests[0] == digests[1] != digests[2]
    assert digests[0] != load_profile("h100-ib").digest
