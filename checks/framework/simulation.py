"""The embedded cluster of a simulated run: a separate process that ends with the run in any case."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

import pytest

from jobs.cluster.client.errors import ConfigError
from reports.schema import Cluster

START_DEADLINE_S = 60.0
"""Start timeout in seconds, far above the usual second: a busy two-core machine must not make a run inconclusive."""
ROOT = Path(__file__).resolve().parents[2]
MISSING = "the simulated cluster is not installed: pip install 'seatrial[lab]' (in a clone: pip install . ./lab)"


def lab_package() -> tuple[str, Path]:
    """Return the name of the embedded cluster's package and the folder to import it from.

    That is `lab` in a clone, else `seatrial_lab`. Raises pytest.UsageError in one line if neither is installed.
    """
    if (ROOT / "lab" / "__init__.py").is_file():
        return "lab", ROOT
    package = find_spec("seatrial_lab")
    if package is None or package.origin is None:
        raise pytest.UsageError(MISSING)
    return "seatrial_lab", Path(package.origin).parents[1]


class Asked(TypedDict):
    """The options that a scenario needs to show its fault."""

    profile: bool  # a user's own scenario
    options: list[str]


class Simulation:
    """A process that serves a scenario, and the kubeconfig it wrote."""

    def __init__(self, scenario: str, cwd: Path) -> None:
        package, folder = lab_package()
        self._folder = tempfile.TemporaryDirectory(prefix="seatrial-sim-")
        self.kubeconfig = str(Path(self._folder.name) / "kubeconfig")
        command = [
            sys.executable,
            "-m",
            package,
            scenario,
            "--write-kubeconfig",
            self.kubeconfig,
            "--json",
            "--until-stdin-closes",
        ]
        path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
        # In its own session, so that Ctrl-C reaches only this process, which cleans up in the cluster and then stops
        # it.
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            self.facts = self._ready()
        except BaseException:
            self.close()
            raise

    def _ready(self) -> Cluster:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        if not select.select([self._process.stdout], [], [], START_DEADLINE_S)[0]:
            raise RuntimeError(f"the simulated cluster was not ready after {START_DEADLINE_S:.0f} s")
        if line := self._process.stdout.readline():
            ready = json.loads(line)
            self.asked: Asked = ready.pop("run", {"profile": False, "options": []})
            facts: Cluster = ready
            return facts
        code = self._process.wait(timeout=START_DEADLINE_S)  # it closed its output: it is terminating
        said = self._process.stderr.read().strip().splitlines()
        if code == pytest.ExitCode.USAGE_ERROR and said:
            raise pytest.UsageError(said[-1].removeprefix("seatrial sim: "))
        raise RuntimeError(f"the simulated cluster ended with exit code {code}: {' | '.join(said[-3:])}")

    def lacks(self, arguments: Sequence[str]) -> str:
        """Name the options that a scenario requires and these arguments lack; '' if there are none."""
        run = self.asked
        lacking = ["its own profile"] * (run["profile"] and not any(a.startswith("--profile") for a in arguments))
        lacking += [option for option in run["options"] if option not in arguments]
        scenario = self.facts["scenario"]
        return f"{scenario} is meant to run with {' '.join(lacking)}: seatrial rehearse {scenario}" if lacking else ""

    def close(self) -> None:
        """Stop the cluster and everything that runs in it."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._folder.cleanup()


@contextlib.contextmanager
def simulated(scenario: str) -> Iterator[Simulation]:
    """Serve a scenario for the duration of the block, for commands that are not a pytest run.

    Raises ConfigError in one line for a scenario that cannot be served.
    """
    try:
        made = Simulation(scenario or "healthy", Path.cwd())
    except (pytest.UsageError, RuntimeError) as error:
        raise ConfigError(str(error)) from error
    try:
        yield made
    finally:
        made.close()
