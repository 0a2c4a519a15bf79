"""A cluster in a separate process: its sockets, its leftovers, and anonymous access."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.waiting import HANG_S, until

MARK = 987_654
BUSY = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "busy"},
    "spec": {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "c",
                "image": "a",
                "command": ["sh", "-c", f"trap '' TERM HUP; setsid sleep {MARK} & setsid sleep {MARK} & wait"],
            }
        ],
    },
}


class Box:
    """`python -m lab healthy` and a client."""

    def __init__(self, root: Path, folder: Path):
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        self.config = folder / "config"
        command = [
            sys.executable,
            "-m",
            "lab",
            "healthy",
            "--json",
            "--until-stdin-closes",
            "--write-kubeconfig",
            str(self.config),
        ]
        self.process = subprocess.Popen(
            command,
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(self.temporary)},
        )
        self.ready = json.loads(self.process.stdout.readline())
        text = yaml.safe_load(self.config.read_text())
        self.token = text["users"][0]["user"]["token"]
        import base64

        self.context = ssl.create_default_context(
            cadata=base64.b64decode(text["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        )

    def ask(self, method: str, path: str, body=None, *, token: str | None = None) -> tuple[int, object]:
        headers = {"Content-Type": "application/json"}
        token = self.token if token is None else token
        if token:
            headers["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(
            self.ready["server"] + path, json.dumps(body).encode() if body else None, headers, method=method
        )
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=HANG_S) as answer:
                code, raw = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            code, raw = error.code, error.read()
            error.close()
        try:
            return code, json.loads(raw)
        except ValueError:
            return code, raw.decode()

    def run_pod(self, pod: dict, phase: str) -> None:
        assert self.ask("POST", "/api/v1/namespaces/default/pods", pod)[0] == 201
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"

        def live() -> dict:
            return self.ask("GET", path)[1]["status"]

        until(lambda: live()["phase"] == phase, phase, lambda: (live(), self.ask("GET", f"{path}/log")))

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(HANG_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()


@pytest.fixture
def box(root, tmp_path):
    started = Box(root, tmp_path / "box")
    yield started
    started.stop()


def family(pid: int) -> set[int]:
    """Return the process and all its descendants."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
    pids = {pid}
    while more := {child for child, parent in parents.items() if parent in pids} - pids:
        pids |= more
    return pids


def listening(pids: set[int]) -> set[str]:
    """Return the addresses on which these processes listen, in the network namespace of this test."""
    own = Path("/proc/self/ns/net").readlink()
    sockets = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # a process that ends
            if Path(f"/proc/{pid}/ns/net").readlink() == own:
                for link in Path(f"/proc/{pid}/fd").iterdir():
                    with contextlib.suppress(OSError):  # a file that is closed
                        sockets.add(str(link.readlink()))
    addresses = set()
    for name in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] in ("0A", "07") and f"socket:[{fields[9]}]" in sockets:
                addresses.add(f"{name} {fields[1]}")
    return addresses


def sleepers() -> list[int]:
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (
                str(MARK).encode() in (folder / "cmdline").read_bytes()
                and (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            ):
                pids.append(int(folder.name))
        except OSError:
            continue
    return pids


def wait_until_gone() -> None:
    until(lambda: not sleepers(), "their end", sleepers)


def test_nothing_listens_beyond_loopback(box):
    """Every listening socket of the cluster and its pods is on 127.0.0.0/8."""
    box.run_pod(BUSY, "Running")
    addresses = listening(family(box.process.pid))
    assert addresses, "the API server listens somewhere"
    for place in addresses:
        protocol, _, address = place.partition(" ")
        assert protocol in ("tcp", "udp"), place
        assert address.partition(":")[0].endswith("7F"), place  # little endian: the last byte is the first of 127.x.y.z


def test_no_process_and_no_file_outlives_a_stop(box):
    """Pods end even if they ignore SIGTERM and left their session."""
    box.run_pod(BUSY, "Running")
    assert sleepers()
    box.stop()
    wait_until_gone()
    assert list(box.temporary.iterdir()) == []


def test_no_process_and_no_file_outlives_a_killed_parent(box):
    """SIGKILL leaves no time to clean up, so the agent does it."""
    box.run_pod(BUSY, "Running")
    members = family(box.process.pid) - {box.process.pid}
    box.process.send_signal(signal.SIGKILL)
    box.process.wait(HANG_S)
    wait_until_gone()
    until(lambda: not list(box.temporary.iterdir()), "an empty folder", lambda: list(box.temporary.iterdir()))
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in members), "the end of all processes")


def test_two_clusters_live_side_by_side(root, box, tmp_path):
    """Neither cluster sees the other's objects; the same pod runs in both."""
    other = Box(root, tmp_path / "other")
    try:
        assert other.ready["server"] != box.ready["server"]
        for one in (box, other):
            one.run_pod(
                {**BUSY, "spec": {**BUSY["spec"], "containers": [{"name": "c", "image": "a", "command": ["true"]}]}},
                "Succeeded",
            )
        assert box.ask("GET", "/api/v1/nodes", token=other.token)[0] == 401
    finally:
        other.stop()


def test_anonymous_may_what_strangers_may_on_a_real_cluster(box):
    """Health and version (system:public-info-viewer) only; a wrong token is not anonymous."""
    for path in ("/healthz", "/livez", "/readyz", "/version"):
        assert box.ask("GET", path, token="")[0] == 200, path
    for path in (
        "/",
        "/api",
        "/apis",
        "/api/v1",
        "/openapi/v3",
        "/api/v1/namespaces",
        "/api/v1/nodes",
        "/metrics",
        "/.well-known/openid-configuration",
        "/openid/v1/jwks",
    ):
        code, status = box.ask("GET", path, token="")
        assert code == 403, path
        assert 'User "system:anonymous" cannot' in status["message"]
    assert box.ask("POST", "/api/v1/namespaces/default/pods", BUSY, token="")[0] == 403
    assert box.ask("GET", "/healthz", token="wrong")[0] == 401


POD_SCRIPT = """
import json, ssl, urllib.request, urllib.error, os
folder = "/var/run/secrets/kubernetes.io/serviceaccount"
token = open(folder + "/token").read()
context = ssl.create_default_context(cafile=folder + "/ca.crt")
def ask(host, path):
    request = urllib.request.Request(f"https://{host}{path}", headers={"Authorization": "Bearer " + token})
    try:
        with urllib.request.urlopen(request, context=context, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
namespace = open(folder + "/namespace").read()
host = os.environ["KUBERNETES_SERVICE_HOST"] + ":" + os.environ["KUBERNETES_SERVICE_PORT"]
print(json.dumps({"namespace": namespace, "host": host, "version": ask("10.96.0.1:443", "/version"),
                  "named": ask("kubernetes.default.svc", "/version")[0], "pods": ask(host, f"/api/v1/namespaces/{namespace}/pods")}))
"""


def test_a_pod_reaches_the_api_server_with_its_token(box):
    """The API server is reachable at 10.96.0.1:443 and by name, trusting the mounted CA; the token has the service
    account's permissions."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "inside"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "a", "command": [sys.executable, "-c", POD_SCRIPT]}],
        },
    }
    box.run_pod(pod, "Succeeded")
    said = box.ask("GET", "/api/v1/namespaces/default/pods/inside/log")[1]
    assert said["namespace"] == "default"
    assert said["host"] == "10.96.0.1:443"
    assert said["version"][1]["gitVersion"].startswith("v1.36")
    assert said["named"] == 200
    code, status = said["pods"]
    assert code == 403
    assert 'User "system:serviceaccount:default:default" cannot list resource "pods"' in status["message"]


def test_a_token_dies_with_its_pod_and_names_its_audience(box):
    """A bound token of a deleted pod is refused, and so is one for another audience."""
    box.run_pod({**BUSY, "metadata": {"name": "holder"}}, "Running")
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "holder"}},
    }
    token = box.ask("POST", path, body)[1]["status"]["token"]
    assert box.ask("GET", "/version", token=token)[0] == 200
    other = box.ask("POST", path, {**body, "spec": {"audiences": ["elsewhere"]}})[1]["status"]["token"]
    assert box.ask("GET", "/version", token=other)[0] == 401
    box.ask("DELETE", "/api/v1/namespaces/default/pods/holder?gracePeriodSeconds=0")
    assert box.ask("GET", "/version", token=token)[0] == 401
