"""The unmodified kubectl with one served `sim healthy`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.lab.serving import serving
from tests.waiting import HANG_S, KUBECTL_LIMIT, until

if TYPE_CHECKING:
    from pathlib import Path

OLDEST = (1, 30)


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


class Kubectl:
    """Runs kubectl in one namespace."""

    def __init__(
        self, program: str, version: tuple[int, int], kubeconfig: Path, folder: Path, namespace: str = "default"
    ):
        self.program, self.version, self.kubeconfig, self.folder, self.namespace = (
            program,
            version,
            kubeconfig,
            folder,
            namespace,
        )

    def command(self, *arguments: str) -> list[str]:
        return [
            self.program,
            "--kubeconfig",
            str(self.kubeconfig),
            "--cache-dir",
            str(self.folder / "cache"),
            "-n",
            self.namespace,
            *arguments,
        ]

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.folder), "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "true"}

    def run(self, *arguments: str, text: str | None = None) -> Result:
        stdin = {"input": text} if text is not None else {"stdin": subprocess.DEVNULL}
        done = subprocess.run(
            self.command(*arguments),
            capture_output=True,
            text=True,
            timeout=2 * HANG_S,
            check=False,
            env=self.env,
            **stdin,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def __call__(self, *arguments: str, text: str | None = None) -> str:
        """Return standard output of a command that must succeed."""
        done = self.run(*arguments, text=text)
        assert done.code == 0, f"kubectl {' '.join(arguments)}: {done.err}{done.out}"
        return done.out

    def refused(self, *arguments: str, text: str | None = None) -> str:
        """Return standard error of a command that must fail."""
        done = self.run(*arguments, text=text)
        assert done.code != 0, done.out
        return done.err

    def background(self, *arguments: str) -> subprocess.Popen:
        return subprocess.Popen(
            self.command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
            stdin=subprocess.DEVNULL,
        )

    def eventually(self, expected: str, *arguments: str) -> None:
        until(lambda: re.search(expected, self.run(*arguments).out), repr(expected), lambda: self.run(*arguments).out)

    def awaited(self, what: str, thing: str) -> str:
        """Return the output of `kubectl wait`; on failure the object's state is reported."""
        done = self.run("wait", f"--for={what}", thing, KUBECTL_LIMIT)
        assert done.code == 0, f"{done.err}{self.run('describe', thing).out}{self.run('logs', thing).out}"
        return done.out


@pytest.fixture(scope="session")
def program() -> tuple[str, tuple[int, int]]:
    path = shutil.which("kubectl")
    if path is None:
        pytest.skip("kubectl is not installed here")
    shown = subprocess.run(
        [path, "version", "--client", "-o", "json"], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    version = json.loads(shown.stdout)["clientVersion"]
    numbers = int(version["major"]), int(re.findall(r"\d+", version["minor"])[0])
    if numbers < OLDEST:
        pytest.skip(f"kubectl {version['gitVersion']} is older than {OLDEST[0]}.{OLDEST[1]}")
    return path, numbers


@pytest.fixture(scope="session")
def served(root, tmp_path_factory):
    """Serve one `sim healthy` in a separate process."""
    with serving(root, tmp_path_factory.mktemp("sim")) as folder:
        yield folder


@pytest.fixture(scope="module")
def kubectl(served, program, tmp_path_factory, request):
    """Return kubectl in a namespace of the module."""
    name = request.module.__name__.rpartition("test_")[2].replace("_", "-")
    path, version = program
    client = Kubectl(path, version, served / "admin", tmp_path_factory.mktemp("home"))
    client("create", "namespace", name)
    client.namespace = name
    client.eventually("default", "get", "serviceaccounts", "-o", "name")
    yield client
    client.namespace = "default"
    client("delete", "namespace", name, "--wait=false")
