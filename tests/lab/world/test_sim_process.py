"""`python -m lab`: the process that serves a scenario, as its users start and stop it."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.waiting import HANG_S, until

PODS = "/api/v1/namespaces/default/pods"


class Sim:
    """A running `python -m lab`."""

    def __init__(self, root: Path, folder: Path, *arguments: str, env: dict | None = None):
        self.kubeconfig = folder / "kubeconfig"
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "lab",
                *arguments,
                "--write-kubeconfig",
                str(self.kubeconfig),
                "--json",
                "--until-stdin-closes",
            ],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        line = self.process.stdout.readline()
        self.ready = json.loads(line) if line else {}

    def ask(self, path: str, body: dict | None = None, kubeconfig: Path | None = None):
        config = yaml.safe_load((kubeconfig or self.kubeconfig).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        import base64

        context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        request = urllib.request.Request(cluster["server"] + path, method="POST" if body else "GET")
        request.add_header("Authorization", f"Bearer {user['token']}")
        data = None
        if body:
            request.add_header("Content-Type", "application/json")
            data = json.dumps(body).encode()
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(request, data, timeout=HANG_S) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return json.loads(error.read())

    def end(self, how: str = "stdin") -> int:
        if how == "stdin":
            self.process.stdin.close()
        else:
            self.process.send_signal(getattr(signal, how))
        code = self.process.wait(HANG_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()
        return code


@pytest.fixture
def sim(root, tmp_path):
    started = []

    def start(*arguments: str, **more) -> Sim:
        started.append(Sim(root, tmp_path, *arguments, **more))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.end()


def processes_with(text: str) -> list[str]:
    pids = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in entry.read_bytes():
                pids.append(entry.parent.name)
        except OSError:
            continue
    return pids


def test_it_says_when_it_is_ready_and_serves(sim):
    """The process prints one JSON line, then serves two nodes of a healthy world by HTTPS with the CA of the
    kubeconfig."""
    cluster = sim("healthy")
    assert cluster.ready["ready"] is True
    assert cluster.ready["scenario"] == "healthy"
    assert cluster.ready["platform"] == "h100-ib"
    assert cluster.ready["namespace"] == "default"
    assert cluster.ready["network"] in ("namespaces", "shared", "plain")
    nodes = cluster.ask("/api/v1/nodes")["items"]
    assert [node["metadata"]["name"] for node in nodes] == ["gpu-node-0", "gpu-node-1"]
    assert oct(cluster.kubeconfig.stat().st_mode)[-3:] == "600"
    assert cluster.ready["server"].startswith("https://127.0.0.1:")


def test_a_user_without_rights_gets_a_kubeconfig_too(sim, tmp_path):
    """--write-nobody-kubeconfig: authenticated, without permissions."""
    nobody = tmp_path / "nobody"
    cluster = sim("healthy", "--write-nobody-kubeconfig", str(nobody))
    assert cluster.ask(PODS, kubeconfig=nobody)["reason"] == "Forbidden"


@pytest.mark.parametrize("how", ["stdin", "SIGTERM", "SIGINT", "SIGKILL"])
def test_however_it_ends_nothing_is_left(sim, tmp_path, how):
    """Closed stdin, a signal, even SIGKILL: every pod's process ends, and no folder remains."""
    own = tmp_path / "tmp"
    own.mkdir()
    cluster = sim("healthy", env={"TMPDIR": str(own)})
    mark = f"{7000 + os.getpid() % 1000}.{time.monotonic_ns() % 10**6}"
    cluster.ask(
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "sleeper"},
            "spec": {"containers": [{"name": "main", "image": "busybox", "command": ["sleep", mark]}]},
        },
    )
    until(lambda: processes_with(mark), "the pod's process")
    code = cluster.end(how)
    assert code == (-9 if how == "SIGKILL" else 0)
    until(lambda: not processes_with(mark), "its end", lambda: processes_with(mark))
    until(lambda: not list(own.iterdir()), "an empty folder", lambda: list(own.iterdir()))


def test_api_down_points_where_nothing_listens(sim):
    """api-down has a valid kubeconfig and refuses connections."""
    cluster = sim("api-down")
    host, port = cluster.ready["server"].removeprefix("https://").split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=HANG_S)


def run(root, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "lab", *arguments], cwd=root, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["heathy", "--write-kubeconfig", "x"], "did you mean 'healthy'"),
        (["replay=/no/such", "--write-kubeconfig", "x"], "no such file"),
        (["healthy"], "--write-kubeconfig FILE is needed"),
        ([], "--write-kubeconfig FILE is needed"),
        (["healthy", "--write-kubeconfig"], "expected one argument"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_4(root, arguments, message):
    """An unknown scenario or a missing option yields one line on standard error, exit code 4, and no file."""
    answer = run(root, *arguments)
    assert answer.returncode == 4
    assert message in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert not (root / "x").exists()


def test_the_list_is_for_people_and_for_programs(root):
    """--list shows name and title; with --json also the broken part and the expected findings."""
    assert "dns-slow" in run(root, "--list").stdout
    listed = {each["name"]: each for each in json.loads(run(root, "--list", "--json").stdout)}
    assert listed["gpu-missing"]["faults"] == ["gpu.missing"]
    assert listed["healthy"]["outcomes"] == ["go"]


def test_the_list_is_by_family_and_may_be_narrowed_by_a_word(root):
    """The family is that of the expected fault; a word is searched in names, titles and faults."""
    whole = run(root, "--list").stdout
    assert whole.startswith("nothing is broken (")
    heads = [line for line in whole.splitlines() if line and not line.startswith((" ", "*", "replay="))]
    assert heads[1:] == sorted(heads[1:])
    counts = [int(re.search(r"\((\d+)\)$", head)[1]) for head in heads]
    assert sum(counts) == len(json.loads(run(root, "--list", "--json").stdout))
    words = run(root, "--list", "socket-fall").stdout
    assert re.match(r"nccl \(\d+\)\n  ", words)
    assert "  socket-fallback " in words
    assert run(root, "--list", "gpu-missing").stdout == "gpu (1)\n  gpu-missing  One node offers 7 of its 8 GPUs\n"
    none = run(root, "--list", "sokcet-fallback")
    assert none.returncode == 4
    assert "socket-fallback" in none.stderr


def test_a_scenario_says_what_it_is_to_be_run_with(root, tmp_path):
    """The ready line has the required profile and options."""
    sim = Sim(root, tmp_path, "acs-on")
    assert sim.ready["run"] == {"profile": True, "options": []}
    assert sim.end() == 0


def test_a_cluster_is_served_under_api_faults(root, tmp_path):
    """--api-faults NAME[:SEED], repeated in the ready line; an unknown one is a usage error."""
    sim = Sim(root, tmp_path, "healthy", "--api-faults", "slow:3")
    assert sim.ready["api_faults"] == "slow:3"
    assert len(sim.ask("/api/v1/nodes")["items"]) == 2
    assert sim.end() == 0
    wrong = subprocess.run(
        [sys.executable, "-m", "lab", "healthy", "--api-faults", "strom", "--write-kubeconfig", str(tmp_path / "k")],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (wrong.returncode, wrong.stdout, wrong.stderr) == (
        4,
        "",
        "seatrial sim: unknown API faults 'strom' (did you mean 'storm'?)\n",
    )
