"""Runs the product on a real cluster, as a ServiceAccount with the printed permissions, and collects the result."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.waiting import HANG_S, KUBECTL_LIMIT, until

from . import image

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .cluster import Cluster

ROOT = Path(__file__).parents[2]
ACCOUNT = "seatrial"
LEFT = "jobs,pods,services,configmaps,leases,secrets"
# A node of this machine has two CPUs, and no test is about the length of a wait for room.
PROFILE: dict[str, Any] = {
    "extends": "h100-ib",
    "pod": {"cpu": "100m", "memory": "256Mi", "shm": "64Mi", "image": image.TRIAL},
    "deadlines": {"start_s": 60, "probe_s": 200, "job_s": 300},
}


@dataclass
class Outcome:
    """The result of a run: its exit code, its output, its record."""

    code: int
    text: str
    record: dict[str, Any]
    seconds: float

    @property
    def verdict(self) -> str:
        """go, no-go or inconclusive; empty without a record."""
        return str(self.record.get("verdict", ""))

    @property
    def faults(self) -> set[str]:
        """Return the ids of the faults found."""
        return set(self.record.get("faults", {}))


@dataclass
class Running:
    """A running command."""

    bench: Bench
    process: subprocess.Popen[str]
    out: Path
    started: float
    printed: Path

    def said(self) -> str:
        """Return its output so far."""
        return self.printed.read_text(encoding="utf-8", errors="replace")

    def end(self) -> Outcome:
        """Wait for its end."""
        code = self.process.wait(HANG_S)
        report = self.out / "report.json"
        record = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
        outcome = Outcome(code, self.said(), record, time.monotonic() - self.started)
        self.bench.properties += [("verdict", outcome.verdict), ("faults", sorted(outcome.faults))]
        return outcome


@dataclass
class Bench:
    """A namespace, an account with the printed permissions, a folder."""

    cluster: Cluster
    namespace: str
    folder: Path
    kubeconfig: Path
    properties: list[tuple[str, object]] = field(default_factory=list)
    runs: list[Running] = field(default_factory=list)
    profile: dict[str, Any] = field(default_factory=lambda: json.loads(json.dumps(PROFILE)))

    @classmethod
    @contextlib.contextmanager
    def opened(cls, cluster: Cluster, test: str, folder: Path, properties: list[tuple[str, object]]) -> Iterator[Bench]:
        """Create the namespace; afterwards restore everything: nodes, namespace, processes of the test."""
        name = re.sub(r"[^a-z0-9]+", "-", test.lower()).removeprefix("test-").strip("-")[:50].strip("-")
        namespace = f"t-{name}"
        cluster.kubectl("create", "namespace", namespace)
        bench = cls(cluster, namespace, folder, folder / "kubeconfig.yaml", properties)
        try:
            yield bench
        finally:
            for run in bench.runs:
                run.process.kill()
                run.process.wait()
                for each in (run.out / "recordings").glob("*"):  # for replay: python -m tests.real
                    kept = cluster.folder.parent / "timelines" / name
                    kept.mkdir(parents=True, exist_ok=True)
                    shutil.copy(each, kept)
            cluster.restore()
            cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", KUBECTL_LIMIT, check=False)
            rights = "clusterroles,clusterrolebindings"
            cluster.kubectl("delete", rights, f"{ACCOUNT}:{namespace}", "--ignore-not-found", check=False)

    def profile_file(self) -> Path:
        """Write the profile of the test to a file."""
        path = self.folder / "profile.yaml"
        path.write_text(yaml.safe_dump(self.profile), encoding="utf-8")
        return path

    def grant(self, *options: str) -> None:
        """Give the account exactly the output of `seatrial rbac` for this profile, and write its kubeconfig."""
        arguments = ["rbac", "--namespace", self.namespace, "--name", ACCOUNT, "--profile", str(self.profile_file())]
        done = self.command([*arguments, *(options or ["--cluster"])])
        assert done.returncode == 0, done.stdout + done.stderr
        self.cluster.kubectl("apply", "--validate=strict", "-f", "-", given=done.stdout)
        token = self.cluster.kubectl("-n", self.namespace, "create", "token", ACCOUNT, "--duration=2h").strip()
        self.cluster.write_kubeconfig(self.kubeconfig, token, self.namespace)

    def command(self, arguments: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run `seatrial` and return its output."""
        argv = [sys.executable, "-m", "checks", *arguments]
        return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=HANG_S, **options)

    def start(self, *arguments: str, rights: tuple[str, ...] = ("--cluster",)) -> Running:
        """Start a run (`accept` by default) as the account."""
        if not self.kubeconfig.exists():
            self.grant(*rights)
        number = len(self.runs)
        out, printed = self.folder / f"out-{number}", self.folder / f"printed-{number}.txt"
        words = list(arguments) or ["accept"]
        common = ["--kubeconfig", str(self.kubeconfig), "--namespace", self.namespace, "--out", str(out)]
        common += ["--profile", str(self.profile_file())]
        common += ["--record"] if words[0] == "accept" and "--detach" not in words else []
        argv = [sys.executable, "-m", "checks", words[0], *common, *words[1:]]
        with printed.open("w", encoding="utf-8") as file:
            environment = {**os.environ, "COLUMNS": "160"}
            process = subprocess.Popen(
                argv, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, text=True, env=environment
            )
        run = Running(self, process, out, time.monotonic(), printed)
        self.runs.append(run)
        return run

    def run(self, *arguments: str, rights: tuple[str, ...] = ("--cluster",)) -> Outcome:
        """Run to the end."""
        return self.start(*arguments, rights=rights).end()

    def kubectl(self, *arguments: str, given: str | None = None, check: bool = True) -> str:
        """Run `kubectl` as an administrator, in the namespace of the test."""
        return self.cluster.kubectl("-n", self.namespace, *arguments, given=given, check=check)

    def pods(self, phase: str = "") -> list[dict[str, Any]]:
        """Return the pods of the trial, of one phase or all."""
        chosen = ["get", "pods", "-l", "app.kubernetes.io/name=seatrial", "-o", "json"]
        items = json.loads(self.kubectl(*chosen))["items"]
        return [each for each in items if phase in ("", each["status"].get("phase"))]

    def running(self, count: int = 2) -> list[dict[str, Any]]:
        """Wait until this many pods of the trial run; return them."""

        def ready() -> list[dict[str, Any]]:
            found = self.pods("Running")
            return found if len(found) >= count else []

        found: list[dict[str, Any]] = until(ready, f"{count} pods of the trial run")
        return found

    def left(self) -> list[str]:
        """Return the leftovers of all runs in the namespace."""
        listed = self.kubectl("get", LEFT, "-l", "app.kubernetes.io/managed-by=seatrial", "-o", "name")
        return listed.split()

    def asked(self) -> list[dict[str, Any]]:
        """Return every request of the account, from the audit log."""
        user = f"system:serviceaccount:{self.namespace}:{ACCOUNT}"
        return [line for line in self.cluster.audit() if line["user"]["username"] == user]

    def refused(self) -> list[str]:
        """Return the account's refused requests."""
        return [
            f"{line['verb']} {line['requestURI']}"
            for line in self.asked()
            if line.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
        ]
