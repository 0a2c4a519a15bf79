"""The embedded cluster runs a healthy cluster on every machine and for every user, or reports that it cannot:
lab.machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.lab.box import machine

MACHINE = machine.__file__
REFUSALS = ("no-namespaces", "no-mount", "no-setns")
"""Machines on which pods can only be plain processes: forbidden entirely, by a security module, or at the last step."""
CONDITIONS = ("user", "no-shm", "read-only-home", "no-shm no-namespaces", *REFUSALS)
AS_ROOT = ("root", "root no-shm", "root no-namespaces")
EVERYWHERE = [
    *CONDITIONS,
    *(pytest.param(each, marks=pytest.mark.skipif(os.getuid() != 0, reason="needs root")) for each in AS_ROOT),
]

TARGETS = (
    "/usr/sbin/seatrial-file",  # a file among files of another owner, like sshd
    "/usr/share/seatrial-new/deep",
    "/usr/share",  # over existing content
    "/etc/seatrial-new",
    "/seatrial-new/place",
    "/root/seatrial-new",  # in a folder that only root may list
    "/dev/seatrial-new",
    "/tmp/seatrial-new",
    "/run/seatrial-new",
    "/sys/class/infiniband/mlx5_0",
    "/proc/driver/nvidia/gpus",
)
POD = """
import asyncio, contextlib, json, sys
from tests.lab.node.running import build
targets, made = json.loads(sys.argv[1]), []
READ = "import os, sys\\nfor each in sys.argv[1:]: print(open(each).read(), end=' ')\\nprint(os.uname().nodename)"
async def main():
    async with contextlib.AsyncExitStack() as ends:
        lab = await build("auto", ends)
        lab.store.create("configmaps", {"metadata": {"name": "m"}, "data": {"k": "v"}}, "default")
        mounts = [{"name": "v", "mountPath": each, **({"subPath": "k"} if each.endswith("-file") else {})} for each in targets]
        files = [each if each.endswith("-file") else each + "/k" for each in targets]
        spec = {"volumeMounts": mounts, "workingDir": "/usr/lib/seatrial-new/here"}
        lab.pod("p", [sys.executable, "-c", READ, *files], container=spec, volumes=[{"name": "v", "configMap": {"name": "m"}}])
        ended = await lab.ended("p")
        print(json.dumps({"mode": lab.network.mode, "ended": ended, "said": await lab.log("p")}))
asyncio.run(main())
"""


def run(
    condition: str, *command: str, cwd: Path = machine.ROOT, timeout_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run a command on such a machine; skip if the condition is not possible here."""
    with tempfile.TemporaryDirectory(prefix="seatrial-home-") as home:
        Path(home).chmod(0o777)
        given = {"HOME": home, "PYTHONPATH": str(cwd), "PYTHONDONTWRITEBYTECODE": "1"}
        kept = {name: value for name, value in os.environ.items() if name not in ("TMPDIR", "XDG_CACHE_HOME")}
        done = subprocess.run(
            [sys.executable, MACHINE, *condition.split(), "--", *command],
            cwd=cwd,
            env=kept | given,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    if done.returncode == machine.NOT_HERE:
        pytest.skip(done.stderr)
    return done


@pytest.mark.parametrize("condition", EVERYWHERE)
def test_whatever_a_pod_mounts_is_there(condition: str) -> None:
    """Mounts in folders of another owner, of the kernel, and in folders that contain this Python; none is on the
    machine."""
    done = run(condition, sys.executable, "-c", POD, json.dumps(TARGETS))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["ended"]["exitCode"] == 0, told
    assert told["said"].split() == ["v"] * len(TARGETS) + ["p"]
    assert (told["mode"] == "plain") is any(each in condition for each in REFUSALS)
    assert not [each for each in TARGETS if "seatrial-new" in each and os.path.exists(each)]  # noqa: PTH110 - or closed


def accepted(done: subprocess.CompletedProcess[str]) -> None:
    """Assert that the trial is go for both nodes."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert "VERDICT: go (SIMULATED) · 2 of 2 nodes tried" in done.stdout, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("condition", EVERYWHERE)
def test_the_trial_of_a_healthy_cluster_is_go(condition: str) -> None:
    """The README's first command passes for any user and machine."""
    accepted(run(condition, sys.executable, "-m", "checks", "accept", "--cluster", "sim:healthy"))


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["user", "no-namespaces"])
@pytest.mark.parametrize("below", ["/tmp", "/var/tmp", "/dev/shm"])
def test_the_trial_is_go_from_any_folder(condition: str, below: str) -> None:
    """The trial passes in a clone with a space in its path, whose .venv is a link, below a folder that pods replace."""
    if not os.access(below, os.W_OK):
        pytest.skip(f"{below} does not exist here")
    with tempfile.TemporaryDirectory(prefix="seatrial clone ", dir=below) as folder:
        Path(folder).chmod(0o755)
        for part in ("checks", "cli", "jobs", "lab", "reports", "seatrial", "conftest.py", "pyproject.toml"):
            source = machine.ROOT / part
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, Path(folder, part))
        Path(folder, ".venv").symlink_to(sys.prefix)
        python = Path(folder, ".venv", "bin", Path(sys.executable).name)
        accepted(run(condition, str(python), "-m", "checks", "accept", "--cluster", "sim:healthy", cwd=Path(folder)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "checked", [(), ("--launcher", "mpijob", "--image", "registry.example.com/training/pytorch-mpi:25.08")]
)
def test_what_this_machine_refuses_a_pod_is_no_fault_of_a_cluster(checked: tuple[str, ...]) -> None:
    """With read-only mounts impossible the run is inconclusive (lab.machine), without a mention of a GPU runtime."""
    cluster = "sim:healthy-mpijob" if checked else "sim:healthy"
    done = run("no-remount", sys.executable, "-m", "checks", "accept", "--cluster", cluster, *checked)
    said = " ".join(done.stdout.split())
    assert done.returncode == 10, done.stdout + done.stderr
    assert "VERDICT: inconclusive" in said
    assert (
        "the embedded cluster could not set up this pod on this machine: mounts: [Errno 13] Permission denied" in said
    )
    assert "lab.machine: The embedded cluster cannot run the pod" in said
    assert "FAILED" not in said
    assert "GPU runtime" not in said


@pytest.mark.parametrize("condition", ["user", "root"])
def test_a_kubeconfig_never_takes_the_place_of_a_device(condition: str) -> None:
    """root could replace /dev/null by a file; a user who writes the kubeconfig there wants none."""
    if condition == "root" and os.getuid() != 0:
        pytest.skip("needs root")
    ends = ["--until-stdin-closes", "--write-kubeconfig", "/dev/null"]
    done = run(condition + " no-shm", sys.executable, "-m", "lab", "api-down", *ends)  # with a separate /dev
    assert done.returncode == 0, done.stderr
