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
from multiprocessing import reduction
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


class _Handed:
    """A file descriptor of this process: in the forked one, its number there."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        return _received, (reduction.DupFd(self.number),)


def _received(handed: Any) -> int:
    return int(handed.detach())


class Program:
    """A running `seatrial`: of subprocess.Popen, what is used here, by `seatrial rehearse` and by signals.child."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path = ROOT,
        main: Callable[[list[str]], int] = main,
        stdout: int | None = None,
        stderr: int | None = None,
        **_: Any,
    ) -> None:
        pipes = [number for number, kind in ((1, stdout), (2, stderr)) if kind == subprocess.PIPE]
        self._outputs = {number: tempfile.TemporaryFile("r", encoding="utf-8") for number in pipes}  # noqa: SIM115
        arguments = list(command[command.index("checks") + 1 :])
        outputs = [_Handed(self._outputs[number].fileno() if number in pipes else number) for number in (1, 2)]
        self._process = SERVER.Process(target=_run, args=(main, arguments, dict(env), cwd, outputs))
        self._process.start()

    @property
    def returncode(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return its exit code."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("seatrial", timeout or 0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end; return what it wrote to standard output and standard error, which are pipes."""
        self.wait(timeout)
        with self._outputs[1] as out, self._outputs[2] as err:
            out.seek(0)
            err.seek(0)
            return out.read(), err.read()

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.returncode is None and self._process.pid:
            os.kill(self._process.pid, number)

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
    program = Program(["checks", *arguments], env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = program.communicate(timeout)
    except subprocess.TimeoutExpired:
        program.kill()
        raise
    assert program.returncode is not None
    return subprocess.CompletedProcess(arguments, program.returncode, out, err)


def run_pytest(*arguments: str, cwd: Path) -> pytest.RunResult:
    """Run pytest itself to its end, with tests of one's own in `cwd`."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    program = Program(["checks", *arguments], env=os.environ, cwd=cwd, main=_pytest, **pipes)
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
    main: Callable[[list[str]], int], arguments: list[str], environment: dict[str, str], cwd: Path, outputs: list[int]
) -> None:
    assert "tests.preload" in sys.modules, "nothing was imported ahead"
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    forking = SimpleNamespace(Popen=_Lab, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired)
    vars(simulation)["subprocess"] = forking
    _as_program(main, arguments, [os.open(os.devnull, os.O_RDONLY), *outputs])


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
