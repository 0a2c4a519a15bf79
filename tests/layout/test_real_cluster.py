"""Processes started by `python -m tests.real_cluster` end with it, whatever its end; the test needs no cluster."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.real_cluster import __main__ as real
from tests.real_cluster.__main__ import NEEDED, apart
from tests.real_cluster.programs import MissingToolError
from tests.waiting import until

STARTS = "import subprocess, sys; subprocess.run(sys.argv[1:])"


def started():
    """Return a process that has started another in separate namespaces, and that one's pid here."""
    process = subprocess.Popen(
        [sys.executable, "-c", STARTS, *apart(["sleep", "infinity"])], cwd=ROOT, start_new_session=True
    )
    return process, until(lambda: next(each for each in below(process.pid) if command(each) == "sleep"), "it runs")


def below(pid):
    """Return all descendants of this process."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield int(child)
        yield from below(int(child))


def command(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.fixture
def able():
    if missing := [name for name in NEEDED[:2] if shutil.which(name) is None]:
        pytest.skip(f"this machine has no {missing[0]}")
    tried = subprocess.run(apart(["true"]), check=False, capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"creating namespaces is not permitted here: {tried.stderr.strip()}")


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_what_runs_apart_ends_with_who_started_it(how):
    process, inner = started()
    os.kill(process.pid, how)
    process.wait()
    until(lambda: command(inner) != "sleep", "the end of what was started")


@pytest.mark.usefixtures("able")
def test_what_runs_apart_ends_with_its_group():
    process, inner = started()
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()
    until(lambda: command(inner) != "sleep", "the end of what was started")


def test_a_machine_without_inotify_instances_is_said_to_be_one(monkeypatch):
    """All clusters of a machine share them; without a free one no kubelet starts."""
    made = ctypes.CDLL(None).inotify_init()
    assert real.inotify_left() < int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    os.close(made)
    monkeypatch.setattr(real, "inotify_left", lambda: 31)
    with pytest.raises(MissingToolError, match="4 nodes need 32 inotify instances and 31 are left"):
        real.able((), kubelets=4)
    real.able((), kubelets=3)
