"""SIGINT and SIGTERM at any time: everything created is deleted or named; foreign objects are not touched."""

import functools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.onsim import Sim
from tests.program import Program, seatrial
from tests.waiting import HANG_S, until

ROOT = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": str(ROOT)}
OURS = "app.kubernetes.io/managed-by=seatrial"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Serve a simulated cluster in which the collective never ends, so that there is time to interrupt."""
    cluster = Sim(ROOT, tmp_path_factory.mktemp("served"), "nccl-hang")
    yield cluster.config
    cluster.close()


@pytest.fixture
def kube(served):
    from jobs.cluster.client.kube import Kube

    return Kube.connect(kubeconfig=str(served))


def labelled(kube):
    """Return all our objects in the namespace, by kind and name."""
    names = []
    for path in (
        "/apis/batch/v1/namespaces/default/jobs",
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/services",
        "/api/v1/namespaces/default/configmaps",
    ):
        items, _ = kube.list(path, labelSelector=OURS)
        names += [f"{path.rsplit('/', 1)[1]}/{i['metadata']['name']}" for i in items]
    return names


def start(served, out, profile="h100-ib", starts=Program):
    arguments = ["accept", "--kubeconfig", str(served), "--profile", str(profile), "--out", str(out)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return starts([sys.executable, "-m", "checks", *arguments], cwd=ROOT, env=ENV, **streams)


def gone(kube):
    """Wait for foreground deletion; objects that remain after it are leftovers."""
    until(lambda: not labelled(kube), "an empty namespace", lambda: labelled(kube))
    return True


def reached(kube, process, moment):
    """Wait until a run reaches a stage: it loads its program, prints, has created an object, or its pods run."""
    if moment == "output":
        assert process.stdout.read(1)
        return

    def here():
        if moment == "imports":
            return "_socket" in Path(f"/proc/{process.pid}/maps").read_text() or process.poll() is not None
        if moment == "Running":
            pods, _ = kube.list("/api/v1/namespaces/default/pods", labelSelector=OURS)
            return pods and all(pod["status"].get("phase") == moment for pod in pods)
        return any(name.startswith(moment) for name in labelled(kube))

    until(here, moment)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "imports"),
        (signal.SIGTERM, "output"),
        (signal.SIGTERM, "configmaps/"),
        (signal.SIGINT, "jobs/"),
        (signal.SIGTERM, "pods/"),
        (signal.SIGQUIT, "Running"),
        (signal.SIGHUP, "Running"),
    ],
    ids=lambda v: getattr(v, "name", str(v)),
)
def test_an_interrupted_run_leaves_nothing_and_says_what_ended_it(served, kube, tmp_path, number, moment):
    """The run ends with exit code 2, a report that names the signal, and an empty namespace."""
    starts = functools.partial(subprocess.Popen, text=True) if moment in ("imports", "output") else Program
    process = start(served, tmp_path / "out", starts=starts)
    reached(kube, process, moment)
    process.send_signal(number)
    said, _ = process.communicate(timeout=HANG_S)
    assert process.returncode in (2, -number), said  # before the program runs, the signal ends Python itself
    assert "!!!" not in said
    if process.returncode == 2 and (tmp_path / "out" / "report.json").exists():
        record = json.loads((tmp_path / "out" / "report.json").read_text())
        assert record["verdict"] == "inconclusive"
        assert number.name in record["interrupted"]
    assert gone(kube)


def test_a_served_lab_says_simulated_however_one_comes_to_it(served, tmp_path):
    """A report of a rehearsal must not be mistaken for a cluster's, so the server itself reports it."""
    where = ["--kubeconfig", str(served), "--profile", "h100-ib"]
    done = seatrial("preflight", *where, "--out", str(tmp_path / "out"))
    assert "SIMULATED" in done.stdout
    assert json.loads((tmp_path / "out" / "report.json").read_text())["simulated"] is True


def pending(pid, number):
    """Say whether a process has an undelivered signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it has ended
        return False
    masks = re.findall(r"(?:Sig|Shd)Pnd:\s*([0-9a-f]+)", status)
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


@pytest.mark.slow
def test_two_signals_do_not_cut_the_cleanup_short(served, kube, tmp_path):
    """A second Ctrl-C must not leave a Job behind."""
    process = start(served, tmp_path / "out")
    reached(kube, process, "configmaps/")
    process.send_signal(signal.SIGINT)
    until(lambda: not pending(process.pid, signal.SIGINT), "the first is taken")  # the kernel merges two at once
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=HANG_S)
    assert gone(kube)


@pytest.mark.slow
def test_cleanup_keeps_a_living_run_deletes_a_killed_one_and_touches_nothing_foreign(served, kube, tmp_path):
    """The clean-up watches whether the run's lease is renewed; a foreign object stays, whatever its name."""
    from jobs.cluster.client.errors import NotFound

    foreign = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "seatrial-of-somebody", "namespace": "default"},
    }
    kube.create("/api/v1/namespaces/default/configmaps", foreign)
    profile = tmp_path / "short.yaml"
    profile.write_text("{extends: h100-ib, name: short, deadlines: {lease_s: 10}}")
    process = start(served, tmp_path / "out", profile)
    reached(kube, process, "Running")
    done = seatrial("cleanup", "--kubeconfig", str(served))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("kept job/seatrial-")
    assert "its run is in progress" in done.stdout
    assert len(labelled(kube)) == 5
    process.kill()
    process.communicate()
    assert labelled(kube)
    done = seatrial("cleanup", "--kubeconfig", str(served))
    assert done.returncode == 0, done.stdout + done.stderr
    assert gone(kube)
    path = "/api/v1/namespaces/default/configmaps/seatrial-of-somebody"
    assert kube.get(path)["metadata"]["name"] == "seatrial-of-somebody"
    kube.delete(path)
    with pytest.raises(NotFound):
        kube.get(path)
