"""What is told of a user's own job mentions that job: no text of the catalogue that may be is about a trial there."""

import re
from pathlib import Path

import pytest

from seatrial.faults.advice import explain
from seatrial.faults.catalogue import catalogue
from seatrial.faults.variants import named, told_of
from tests.table import table

JOBS = Path(__file__).resolve().parents[2] / "jobs"
SAID_BY = frozenset(
    "api kueue kubelet volumes admission eviction oom mpirun registry runtime scheduler exit".split()  # noqa: SIM905
)
NAMES = {"POD": "train-0", "NODE": "gpu-node-1", "IMAGE": "registry.example.com/train:1", "JOB": "train"}
OF_TRIALS = re.compile(
    r"\btrials?\b|(?<!seccomp )(?<!AppArmor )(?<!the )\bprofile\b|in the profile|report's|\blogs/|\bdeadlines\.|\bpod\.[a-z_]+"
    r"|\blaunch\.[a-z]|(?<![\w-])--(?:nodes|image|registry|on|launcher)\b(?!=)|seatrial accept|acceptance|\bevidence\b|\[\[|\|\|"
)
UNFILLED = re.compile(
    r"\bNAMESPACE\b|\b(?:POD|NODE|IMAGE|JOB)\b(?![:=.])|\{(?:subject|node|namespace|pair|rail|right)\}"
)


def told_of_jobs():
    """The faults that the diagnosis of a job can name: its own words for them, and what the cluster's parts say."""
    places = (*JOBS.glob("diagnosis/*.py"), *JOBS.glob("run/*.py"), *JOBS.glob("trial/launchers/*.py"))
    quoted = {word for place in places for word in re.findall(r'"([a-z-]+\.[a-z-]+)"', place.read_text("utf-8"))}
    texts = {name for name, fault in catalogue().items() if any(each.who in SAID_BY for each in fault.variants)}
    of_trials = {"job.incomplete", "job.not-together", "trial.failed"}  # what only a run's own watcher finds
    return sorted((quoted & {*catalogue()} | texts) - of_trials)


FAULTS = told_of_jobs()


def test_the_faults_of_a_job_are_found():
    """By the code that names them and by the texts that tell them."""
    assert len(FAULTS) > 45
    assert {"job.unschedulable", "job.canceled", "queue.unnamed", "dns.service-missing", "queue.quota-short"} <= {
        *FAULTS
    }
    assert {"mpi.sshd-missing", "container.oom", "volume.mount", "image.pull", "node.lost", "gang.partial"} <= {*FAULTS}


def texts_of(fault, *, trial):
    entry = explain(fault, "subject", "team", names=NAMES, trial=trial)
    yield from (entry[key] for key in ("title", "meaning", "confirm", "remedy"))
    for each in catalogue()[fault].variants:
        advice = {"confirm": each.confirm, "remedy": each.remedy}
        told = explain(fault, "subject", "team", advice=advice, names=NAMES, trial=trial)
        yield from (told["confirm"], told["remedy"], each.cause or "")


@table("fault", FAULTS)
def test_no_text_of_a_users_job_speaks_of_a_trial_or_leaves_out_a_name(fault):
    """Title, meaning, confirm and remedy of the fault and of all that its texts tell."""
    for text in texts_of(fault, trial=False):
        assert not (found := OF_TRIALS.search(text)), (found, text)
        assert not (found := UNFILLED.search(text)), (found, text)
        assert not re.search(r" [,;)]| \.(?!\.)|  |\( ", text), text


@table("fault", FAULTS)
def test_a_trial_is_told_of_its_profile_still(fault):
    """The other half of each text, and no mark of the choice in either."""
    for text in texts_of(fault, trial=True):
        assert "[[" not in text and "||" not in text, text


def test_some_texts_of_a_trial_are_the_trials_own():
    """Else nothing would be chosen."""
    both = [(explain(f, "s", "n", trial=True), explain(f, "s", "n", trial=False)) for f in FAULTS]
    assert sum(of_trial["remedy"] != of_job["remedy"] for of_trial, of_job in both) > 15


@pytest.mark.parametrize(
    ("text", "trial", "job"),
    [
        ("raise it[[ in the profile]], or wait", "raise it in the profile, or wait", "raise it, or wait"),
        ("the [[trial's||job's]] pod", "the trial's pod", "the job's pod"),
        ("wait [[(--nodes)]].", "wait (--nodes).", "wait."),
        ("[[a||b]] and [[c||d]]", "a and c", "b and d"),
        ("head -n 1 | grep '[x]'", "head -n 1 | grep '[x]'", "head -n 1 | grep '[x]'"),
    ],
)
def test_a_text_is_chosen_by_its_subject(text, trial, job):
    assert (told_of(text, trial=True), told_of(text, trial=False)) == (trial, job)


def test_a_name_goes_quoted_into_a_command_and_a_column_keeps_its_head():
    """The names come from a cluster, and the command goes into a shell."""
    text = "kubectl describe pod POD; kubectl get nodes -o custom-columns='NODE:.metadata.name' NODE"
    assert named(text, {"POD": "a; rm -rf b", "NODE": "n"}) == (
        "kubectl describe pod 'a; rm -rf b'; kubectl get nodes -o custom-columns='NODE:.metadata.name' n"
    )
    assert named("logs POD", {}) == "logs POD"
