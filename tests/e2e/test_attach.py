"""A trial that its runner left, or that outlived it, gets the verdict of an undisturbed run from another process."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from cli.job import main
from jobs.cluster.client.errors import NotFound
from jobs.cluster.client.kube import Kube, path
from tests import program
from tests.onsim import Sim, left_over
from tests.waiting import until

DOCS = Path(__file__).resolve().parents[2] / "docs"
PROFILE = {"extends": "h100-ib", "name": "mine", "deadlines": {"lease_s": 3}}


@pytest.fixture(scope="module")
def healthy(root, tmp_path_factory):
    sim = Sim(root, tmp_path_factory.mktemp("attach"), "healthy")
    yield sim.config
    sim.close()


@pytest.fixture
def seatrial(tmp_path):
    """Run a seatrial command; return its exit code and all its output."""
    (tmp_path / "mine.yaml").write_text(json.dumps(PROFILE))

    def run(*arguments, kubeconfig):
        done = program.seatrial(*arguments, cwd=tmp_path, env={**os.environ, "KUBECONFIG": str(kubeconfig)})
        return done.returncode, done.stdout + done.stderr

    return run


def record(folder):
    return json.loads((folder / "report.json").read_text())


def without_times(accepted):
    """Return the record as text without run id, numbers, the choice among equal nodes, and pull times."""
    accepted["trial"].pop("timeline", None)
    text = json.dumps(accepted, indent=1, sort_keys=True).replace(accepted["run_id"], "RUN")
    text = re.sub(r"(RUN-\d)-\w{5}\b", r"\1-xxxxx", re.sub(r"gpu-node-\d", "NODE", text))
    text = re.sub(r"was pulled in [\d.]+ s", "was there already", text)
    return re.sub(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", "#", text).splitlines()


def detached(seatrial, config, out, *more):
    code, said = seatrial("accept", "--profile", "h100-ib", "--detach", "--out", str(out), *more, kubeconfig=config)
    assert code == 10, said
    job = record(out)["trial"]["job"]
    assert f"{job} continues in the cluster and is not judged yet" in re.sub(r"\s+", " ", said)
    assert "ERROR" not in said and "BLOCKED" not in said and "blocked" not in said, said
    assert f"  Next: {record(out)['trial']['attach']}\n" in said
    return job


@pytest.mark.slow
def test_a_detached_trial_is_judged_as_an_undisturbed_one(seatrial, healthy, tmp_path):
    """A detached trial has the same checks, evidence and verdict; until then cleanup and other runs do not touch it."""
    code, said = seatrial("accept", "--profile", "h100-ib", "--out", "alone", kubeconfig=healthy)
    assert code == 0, said
    job = detached(seatrial, healthy, tmp_path / "begun")
    code, said = seatrial("cleanup", kubeconfig=healthy)
    assert code == 0 and f"kept job/{job}: it was detached, and waits for seatrial job attach {job}" in said
    code, said = seatrial("preflight", "--profile", "h100-ib", kubeconfig=healthy)
    assert code in (0, 1, 10) and f"job/{job}" not in said  # 1: while its pods run, they use the GPUs
    code, said = seatrial("job", "attach", job, "--out", "attached", kubeconfig=healthy)
    assert code == 0, said
    attached = record(tmp_path / "attached")
    assert attached["run_id"] == record(tmp_path / "begun")["run_id"]
    assert without_times(attached) == without_times(record(tmp_path / "alone"))
    code, said = seatrial("policy", "--record", "attached", kubeconfig=healthy)
    assert code == 0 and "rdma/hca_shared_devices_a" in said
    for word in ("attach", "status", "logs", "cancel"):
        code, said = seatrial("job", word, job, kubeconfig=healthy)
        assert code == 4 and f"there is no job {job} in namespace default any more" in said and "Completed" in said
    assert left_over(Kube.connect(kubeconfig=str(healthy))) == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--cluster", "sim:healthy"), "the embedded cluster ends with this command"),
        (("--record", "--out", "x"), "--detach cannot be combined with --record"),
        (("--launcher", "trainjob"), "a TrainJob has no TTL"),
        (("--partner", "a=b", "--nodes", "c=d"), "omit --detach"),
    ],
)
def test_what_cannot_be_left_alone_is_refused_at_once(seatrial, healthy, options, reason):
    """The refusal is one line, before anything is created."""
    code, said = seatrial("accept", "--profile", "h100-ib", "--detach", *options, kubeconfig=healthy)
    assert code == 4 and reason in said and "Traceback" not in said


def test_who_may_not_judge_it_hears_why(seatrial, healthy, tmp_path, root):
    """Another namespace, another profile, no permissions, a foreign job; the trial keeps waiting."""
    job = detached(seatrial, healthy, tmp_path / "begun")
    for arguments, expected, reason in (
        (("-n", "kube-system", job), 4, "in namespace kube-system, and no event of it"),
        (("--profile", "mine.yaml", job), 4, "their requirements differ"),
        (("training",), 4, "there is no job training"),
    ):
        code, said = seatrial("job", "attach", *arguments, kubeconfig=healthy)
        assert code == expected and reason in said, (arguments, said)
        assert "Traceback" not in said
    kube = Kube.connect(kubeconfig=str(healthy))
    place = path("configmaps", job, namespace="default")
    stored = kube.get(place)
    kube.delete(place)
    for damage in ("bm90IHpsaWI=", ""):
        kube.create(
            path("configmaps", namespace="default"),
            {
                "metadata": {"name": job, "labels": stored["metadata"]["labels"]},
                "data": {"trial.json": stored["data"]["trial.json"]},
                "binaryData": {"begun": damage},
            },
        )
        code, said = seatrial("job", "attach", job, kubeconfig=healthy)
        assert code == 4 and f"the state of the run of {job} in its ConfigMap is damaged" in said
        kube.delete(place)
    code, said = seatrial("job", "cancel", job, kubeconfig=healthy)
    assert code == 0, said
    until(lambda: not left_over(kube), "nothing left", lambda: left_over(kube))  # pods get their time to end


def test_a_user_without_rights_learns_which_are_missing(seatrial, root, tmp_path):
    """The result is undetermined (exit code 10) and names the missing permission."""
    config, nobody = tmp_path / "admin", tmp_path / "nobody"
    command = [sys.executable, "-m", "lab", "healthy", "--json", "--until-stdin-closes"]
    command += ["--write-kubeconfig", str(config), "--write-nobody-kubeconfig", str(nobody)]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout.readline()
        job = detached(seatrial, config, tmp_path / "begun")
        code, said = seatrial("job", "attach", job, kubeconfig=nobody)
        assert code == 10 and "configmaps" in said and "forbidden" in said.lower(), said
        served.stdin.close()


def test_what_a_detached_run_leaves_is_no_result_of_it(seatrial, healthy, tmp_path):
    """The detached run's record has only the checks that it judged; the command that judges the others names a custom
    profile."""
    code, said = seatrial("accept", "--profile", "mine.yaml", "--detach", "--out", "begun", "-q", kubeconfig=healthy)
    begun = record(tmp_path / "begun")
    job = begun["trial"]["job"]
    assert (code, begun["verdict"], begun["exit_code"], begun["failure_class"]) == (10, "inconclusive", 10, None)
    assert {check["outcome"] for check in begun["checks"]} == {"passed", "skipped"}
    assert "job.started" not in {check["id"] for check in begun["checks"]}
    command = f"seatrial job attach -n default {job} --profile mine.yaml"
    assert begun["trial"]["attach"] == command and command in said and len(said.strip().splitlines()) == 1
    jsonschema.validate(begun, json.loads((DOCS / "record.schema.json").read_text()))
    code, said = seatrial(*command.split()[1:], "--out", "attached", kubeconfig=healthy)
    assert code == 0 and "attach" not in record(tmp_path / "attached")["trial"], said


@pytest.mark.slow
def test_what_preflight_found_fails_with_a_trial_that_goes_on(seatrial, root, tmp_path):
    """Exit code 1, as documented; the trial is still named."""
    sim = Sim(root, tmp_path, "kubelet-skew")
    try:
        options = ("--profile", "h100-ib", "--detach", "--out", "begun")
        code, said = seatrial("accept", *options, kubeconfig=sim.config)
        attach = record(tmp_path / "begun")["trial"]["attach"]
        seatrial("job", "cancel", attach.split()[-1], kubeconfig=sim.config)
    finally:
        sim.close()
    assert code == 1 and f"  Next: {attach}\n" in said and "continues in the cluster" in said


@pytest.mark.slow
def test_a_fault_is_found_by_who_attaches(seatrial, root, tmp_path):
    """The verdict is the trial's, not that of the command that started it."""
    sim = Sim(root, tmp_path, "gdr-off")
    try:
        job = detached(seatrial, sim.config, tmp_path / "begun")
        code, said = seatrial("job", "attach", job, "--out", "attached", kubeconfig=sim.config)
    finally:
        sim.close()
    assert code == 1, said
    assert "nccl.gdr-off" in record(tmp_path / "attached")["faults"]


@pytest.mark.slow
def test_the_trial_of_a_killed_runner_is_judged(seatrial, healthy, root, tmp_path):
    """The killed runner's lease expires; before that no other process takes it, and one of two simultaneous attaches is
    refused."""
    kube = Kube.connect(kubeconfig=str(healthy))
    command = [sys.executable, "-m", "checks", "accept", "--profile", str(tmp_path / "mine.yaml")]
    env = {**os.environ, "PYTHONPATH": str(root), "KUBECONFIG": str(healthy)}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL) as runner:
        place = path("jobs", namespace="default", group="batch")
        job = until(lambda: next(j for j in kube.list(place)[0] if not j["spec"]["suspend"]), "a job")["metadata"][
            "name"
        ]
        runner.send_signal(signal.SIGSTOP)  # it neither renews nor deletes
        runner.kill()
    arguments = ("job", "attach", job, "--profile", "mine.yaml")
    code, said = seatrial(*arguments[:3], kubeconfig=healthy)
    assert code == 4 and "started with a custom profile" in said
    code, said = seatrial(*arguments, "--out", "attached", kubeconfig=healthy)
    assert code == 0 and "watching for 3 s whether its runner is alive" in said, said
    assert record(tmp_path / "attached")["verdict"] == "go" and left_over(kube) == []


def test_a_trial_that_is_judged_while_its_lease_is_watched_is_reported_as_gone(monkeypatch, capsys):
    """Of two simultaneous attaches one judges the trial; the other reports its state instead of an API error."""

    @contextlib.contextmanager
    def taken(_kube, place, _tell):
        raise NotFound(place, status=404, reason="NotFound", message="jobs.batch not found")
        yield

    lookup = SimpleNamespace(place=str, absent=lambda name: f"there is no job {name} any more: it was judged")
    monkeypatch.setattr("cli.job.connect", lambda _: SimpleNamespace(namespace="default"))
    monkeypatch.setattr("jobs.run.begun.read", lambda *_: None)
    monkeypatch.setattr("checks.framework.attaching.arguments", lambda *_: [])
    monkeypatch.setattr("jobs.run.job_lookup.JobLookup", lambda _: lookup)
    monkeypatch.setattr("jobs.cluster.renewal.taken", taken)
    assert main(["attach", "seatrial-abc"]) == 4
    assert capsys.readouterr().err.strip() == (
        "seatrial job attach: there is no job seatrial-abc any more: it was judged"
    )
