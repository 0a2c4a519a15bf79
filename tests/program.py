"""Runs `seatrial` as users do: each run is a process of its own, forked from one that has imported the libraries.

Imports take two thirds of a short run's processor time, and the tests make hundreds of runs. What depends on how an
interpreter starts (streams, inherited signals, an installed program, the commands of the docs) starts one.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from checks.framework import simulation
from cli.__main__ import main
from tests.compiled import lay_beside

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[1]
SERVER, FORK = multiprocessing.get_context("forkserver"), multiprocessing.get_context("fork")
SERVER.set_forkserver_preload(["tests.preload"])


class Program:
    """A running `seatrial`: of subprocess.Popen, what `seatrial rehearse` uses."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path = ROOT,
        main: Callable[[list[str]], int] = main,
        **_: Any,
    ) -> None:
        self._outputs = [tempfile.NamedTemporaryFile("r", encoding="utf-8") for _ in range(2)]  # noqa: SIM115
        arguments = list(command[command.index("checks") + 1 :])
        names = [each.name for each in self._outputs]
        self._process = SERVER.Process(target=_run, args=(main, arguments, dict(env), cwd, names))
        self._process.start()

    @property
    def returncode(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end; return what it wrote to standard output and standard error."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("seatrial", timeout or 0)
        with self._outputs[0] as out, self._outputs[1] as err:
            return out.read(), err.read()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()


def seatrial(
    *arguments: str, env: Mapping[str, str] = os.environ, cwd: Path = ROOT, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    program = Program(["checks", *arguments], env=env, cwd=cwd)
    try:
        out, err = program.communicate(timeout)
    except subprocess.TimeoutExpired:
        program.kill()
        raise
    assert program.returncode is not None
    return subprocess.CompletedProcess(arguments, program.returncode, out, err)


def run_pytest(*arguments: str, cwd: Path) -> pytest.RunResult:
    """Run pytest itself to its end, with tests of one's own in `cwd`."""
    program = Program(["checks", *arguments], env=os.environ, cwd=cwd, main=_pytest)
    out, err = program.communicate(300)
    assert program.returncode is not None
    return pytest.RunResult(program.returncode, out.splitlines(), err.splitlines(), 0)


def _pytest(arguments: list[str]) -> int:
    return int(pytest.main(arguments))


class _Lab(FORK.Process):  # type: ignore[name-defined,misc]
    """The lab's process, forked from the run's: of subprocess.Popen, what `simulation.Simulation` uses."""

    def __init__(self, command: list[str], **_: Any) -> None:
        (heard, self_in), (out, said), (err, complained) = (os.pipe() for _ in range(3))
        super().__init__(target=_lab, args=(command[3:], [heard, said, complained]))
        self.start()
        for end in (heard, said, complained):
            os.close(end)
        self.stdin, self.stdout, self.stderr = os.fdopen(self_in, "w"), os.fdopen(out), os.fdopen(err)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code."""
        self.join(timeout)
        if self.exitcode is None:
            raise subprocess.TimeoutExpired("lab", timeout or 0)
        return int(self.exitcode)


def _run(
    main: Callable[[list[str]], int], arguments: list[str], environment: dict[str, str], cwd: Path, outputs: list[str]
) -> None:
    assert "tests.preload" in sys.modules, "nothing was imported ahead"
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    forking = SimpleNamespace(Popen=_Lab, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired)
    vars(simulation)["subprocess"] = forking
    streams = [os.open(os.devnull, os.O_RDONLY), *(os.open(name, os.O_WRONLY) for name in outputs)]
    _as_program(main, arguments, streams)


def _lab(arguments: list[str], streams: list[int]) -> None:
    from lab.__main__ import main as lab_main
    from lab.node import volumes

    write = volumes._write

    def with_what_is_compiled(folder: Path, path: str, data: bytes, mode: int) -> None:
        write(folder, path, data, mode)
        lay_beside(folder / path, data.decode(errors="replace"))

    vars(volumes)["_write"] = with_what_is_compiled
    _as_program(lab_main, arguments, streams)


def _as_program(program: Callable[[list[str]], int], arguments: list[str], streams: list[int]) -> None:
    """Run what a command line starts, as the leader of its session, with these standard streams and no other files."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    sys.argv = ["seatrial", *arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the server was started with
    atexit._clear()
    try:
        code = program(arguments)
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
    raise SystemExit(code)
