"""``seatrial job run`` as a user runs it, and the program on the documentation page."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from checks.profiles.loader import load_profile
from cli import job
from jobs.cluster.client.kube import Kube, path
from tests.onsim import SLEEPS, Sim
from tests.program import seatrial
from tests.waiting import HANG_S, until

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "nvcr.io/nvidia/pytorch:25.08-py3"


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    sim = Sim(ROOT, tmp_path_factory.mktemp("served"), "healthy")
    yield str(sim.config)
    sim.close()


def run(config, *arguments):
    return seatrial("job", arguments[0], "--kubeconfig", config, *arguments[1:])


def test_the_program_on_the_page_does_what_the_documents_describe(config, tmp_path):
    """The page's program runs unchanged except for the package's name in a clone; it has twelve lines."""
    page = (ROOT / "docs" / "launcher.md").read_text(encoding="utf-8")
    program = re.search(r"```python\n# launch.py\n(.*?)```", page, re.DOTALL)[1]
    assert len([line for line in program.splitlines() if line.strip()]) <= 12
    file = tmp_path / "launch.py"
    file.write_text(program.replace("from seatrial.jobs import", "from jobs import"))
    env = {**os.environ, "KUBECONFIG": config, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(file)], env=env, cwd=tmp_path, text=True, capture_output=True, timeout=HANG_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Complete ") and done.stdout.endswith(" None\n")
    assert re.search(r"node 1 finds job-\w+-0\.job-\w+:29500", done.stdout)


def test_the_program_by_a_profile_asks_for_what_the_profile_does(config, tmp_path):
    """The page's program runs unchanged except for the packages' names in a clone."""
    page = (ROOT / "docs" / "launcher.md").read_text(encoding="utf-8")
    program = re.search(r"```python\n# by_profile.py\n(.*?)```", page, re.DOTALL)[1].replace("from seatrial.", "from ")
    file = tmp_path / "by_profile.py"
    file.write_text(program + "print(job.name, job.wait())\njob.cancel()\n")
    env = {**os.environ, "KUBECONFIG": config, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(file)], env=env, cwd=tmp_path, text=True, capture_output=True, timeout=HANG_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(" Complete\n")


@pytest.mark.parametrize(
    ("options", "gpus", "resources"),
    [
        ([], "8", {"rdma/hca_shared_devices_a": "1"}),
        (["--gpus", "4", "--rdma", "rdma/other=2"], "4", {"rdma/other": "2"}),
        (["--gpus", "0"], None, {}),
    ],
    ids=["the profile's", "given", "none"],
)
def test_options_win_over_the_profile(options, gpus, resources, capsys):
    """Missing options come from the profile."""
    words = ["run", "--profile", "h100-ib", "--nodes", "2", "--env", "A=b", *options, "--print-manifests", "--", "true"]
    assert job.main(words) == 0
    manifest, service = yaml.safe_load_all(capsys.readouterr().out)
    pod = manifest["spec"]["template"]["spec"]["containers"][0]
    limits = {key: value for key, value in pod["resources"].get("limits", {}).items() if "/" in key}
    assert limits == ({"nvidia.com/gpu": gpus} if gpus else {}) | resources
    assert pod["image"] == load_profile("h100-ib").pod.image and {"name": "A", "value": "b"} in pod["env"]
    assert service["spec"]["clusterIP"] == "None"
    assert ("IPC_LOCK" in str(pod["securityContext"])) == bool(gpus)


@pytest.mark.parametrize(
    ("options", "words"),
    [(["--profile", "nope", "--", "true"], "nope"), (["--", "true"], "--image"), (["--profile", "h100-ib"], "command")],
)
def test_what_is_missing_or_unknown_is_said_in_one_line(options, words, capsys):
    """The error comes before any request to a cluster."""
    assert job.main(["run", *options]) == 4
    said = capsys.readouterr()
    assert said.out == "" and words in said.err and said.err.count("\n") == 1


def test_a_job_that_completes_is_reported_with_its_last_words(config):
    """Progress is on standard error, the end on standard output."""
    done = run(
        config, "run", "--image", IMAGE, "--gpus", "0", "--nodes", "2", "--env", "WHO=me", "--", "echo $WHO $NODE_RANK"
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert told.count("me 0") == 1 and told.count("  me 1") == 1 and ": Complete\n" in done.stdout
    assert "creating job" in done.stderr and "creating job" not in done.stdout


def test_the_exit_code_says_whose_error_it_was(config):
    """The exit code is the program's own, also as JSON, and afterwards in status."""
    program = ["python3", "-c", "raise SystemExit('no such shard')"]
    done = run(config, "run", "--image", IMAGE, "--gpus", "8", "--name", "torn", "--json", "--", *program)
    assert done.returncode == 11, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert (document["state"], document["failure_analysis"]["err_class"]) == ("Error", "ERR_PROGRAM")
    assert document["last_words"] == {document["replicas"][0]["pod"]: ["no such shard"]}
    looked = run(config, "status", "torn", "--json")
    assert looked.returncode == 11 and json.loads(looked.stdout)["state"] == "Error"
    logs = run(config, "logs", "torn", "--json")
    assert list(json.loads(logs.stdout)["logs"].values()) == [["no such shard"]]
    assert run(config, "cancel", "torn").returncode == 0


def test_what_does_not_fit_is_refused_in_one_line(config):
    """The request is at fault, and no object is created."""
    done = run(
        config, "run", "--image", IMAGE, "--gpus", "8", "--nodes", "3", "--name", "big", "--", "torchrun", "train.py"
    )
    assert done.returncode == 11 and done.stdout == ""
    assert "there is room for 2" in done.stderr and done.stderr.count("\n") == 1
    kube = Kube.connect(config)
    assert "big" not in [
        each["metadata"]["name"] for each in kube.list(path("jobs", namespace="default", group="batch"))[0]
    ]
    kube.close()


@pytest.mark.slow
def test_gpus_that_others_hold_are_nobodys_fault(config):
    """The exit code is 10, as for every undetermined result."""
    held = run(
        config,
        "run",
        "--image",
        IMAGE,
        "--gpus",
        "8",
        "--nodes",
        "2",
        "--name",
        "held",
        "--detach",
        "--",
        "sleep",
        "600",
    )
    assert held.returncode == 0
    until(lambda: "Running" in run(config, "status", "held").stdout, "Running")
    done = run(config, "run", "--image", IMAGE, "--gpus", "1", "--", "true")
    assert done.returncode == 10 and "in use by other workloads: Job/held in default (8)" in done.stderr
    swept = seatrial("cleanup", "--all", "--kubeconfig", config)
    assert "kept job held, not a trial: seatrial job cancel held deletes it" in swept.stdout
    assert run(config, "cancel", "held").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_is_interrupted_cancels_the_job(config, number):
    """The job's pods are deleted before the command ends."""
    name = f"cut-{number}"
    command = [
        "job",
        "run",
        "--kubeconfig",
        config,
        "--image",
        IMAGE,
        "--gpus",
        "0",
        "--name",
        name,
        "--",
        "sh",
        "-c",
        SLEEPS,
    ]
    started = subprocess.Popen(
        [sys.executable, "-m", "checks", *command], cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert any("Running" in line for line in started.stderr)
    started.send_signal(number)
    assert started.wait(HANG_S) == 2
    started.stdout.close()
    started.stderr.close()
    assert run(config, "status", name).returncode == 4


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--"], "the command is missing"),
        (["--env", "A", "--", "x"], "--env 'A' is not of the form KEY=VALUE"),
        (["--rdma", "rdma/hca=two", "--", "x"], "is not a whole number"),
        (["--env", "A=1", "--env", "A=2", "--", "x"], "given twice"),
        (["--env", "MASTER_ADDR=x", "--", "x"], "MASTER_ADDR is set by seatrial"),
        (["--queue", "trial", "--", "x"], "is not kueue:NAME"),
        (["--name", "Train", "--", "x"], "lower-case letters"),
    ],
)
def test_what_was_typed_wrong_is_one_line(config, capsys, options, text):
    """The exit code is 4."""
    assert job.main(["run", "--kubeconfig", config, "--image", IMAGE, *options]) == 4
    said = capsys.readouterr()
    assert text in said.err and said.err.count("\n") == 1 and said.out == ""
