"""Runs `seatrial` like users: each run is a separate process, forked from one that has imported the libraries.

Imports take two thirds of a short run's processor time, and the tests make hundreds of runs. Tests that depend on an
interpreter's start (streams, inherited signals, an installed program, the commands of the docs) start one.
"""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from multiprocessing import reduction
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any

import pytest

from checks.framework import simulation
from cli.__main__ import main
from lab.rehearse import trials
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[1]
SERVER, FORK = multiprocessing.get_context("forkserver"), multiprocessing.get_context("fork")
SERVER.set_forkserver_preload(["tests.preload"])
Stream = IO[Any] | int | None


class _Handed:
    """A file descriptor of this process: in the forked one, its number there."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        return _received, (reduction.DupFd(self.number),)


def _received(handed: Any) -> int:
    return int(handed.detach())


class Program:
    """A running `seatrial`: the part of subprocess.Popen used here, by `seatrial rehearse` and by signals.child.

    A stream is a file, its number, that of this process (None) or, for the outputs, a pipe; no input is an empty one.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path = ROOT,
        main: Callable[[list[str]], int] = main,
        stdin: Stream = subprocess.DEVNULL,
        stdout: Stream = None,
        stderr: Stream = None,
        **_: Any,
    ) -> None:
        pipes = [number for number, kind in ((1, stdout), (2, stderr)) if kind == subprocess.PIPE]
        self._outputs = {number: tempfile.TemporaryFile("r", encoding="utf-8") for number in pipes}  # noqa: SIM115
        arguments = list(command[command.index("checks") + 1 :])
        out = self._file(1, stdout)
        error = out if stderr == subprocess.STDOUT else self._file(2, stderr)
        with Path(os.devnull).open() as empty:
            inner = empty if stdin == subprocess.DEVNULL else self._file(0, stdin)
            streams = [_Handed(file if isinstance(file, int) else file.fileno()) for file in (inner, out, error)]
            # A daemon: processes left by a failed test end with this process, which would otherwise wait for them.
            given = (main, arguments, dict(env), cwd, streams)
            self._process = SERVER.Process(target=_run, args=given, daemon=True)
            self._process.start()

    def _file(self, number: int, stream: Stream) -> IO[Any] | int:
        return number if stream is None else self._outputs[number] if stream == subprocess.PIPE else stream

    @property
    def pid(self) -> int:
        """Return its process id."""
        return int(self._process.pid or 0)

    @property
    def returncode(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return its exit code."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("seatrial", timeout or 0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end; return its standard output and standard error, "" for one that is not a pipe."""
        self.wait(timeout)
        return self._read(1), self._read(2)

    def _read(self, number: int) -> str:
        if number not in self._outputs:
            return ""
        with self._outputs[number] as output:
            output.seek(0)
            return output.read()

    def send_signal(self, number: int) -> None:
        """Send it a signal if it is running."""
        if self.returncode is None and self._process.pid:
            os.kill(self._process.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()


def lab(arguments: list[str]) -> int:
    """Serve an embedded cluster in this process; its pods are forked."""
    from lab.__main__ import main as lab_main
    from tests import forkedpods

    forkedpods.install()
    return lab_main(arguments)


class Lab(Program):
    """A running embedded cluster with pipes as streams: the part of subprocess.Popen used by `simulation.Simulation`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path = ROOT,
        env: Mapping[str, str] = os.environ,
        main: Callable[[list[str]], int] = lab,
        **_: Any,
    ) -> None:
        (heard, self_in), (out, said), (err, complained) = (os.pipe() for _ in range(3))
        arguments = ["checks", *command[3:]]  # after python -m lab
        super().__init__(arguments, main=main, env=env, cwd=cwd, stdin=heard, stdout=said, stderr=complained)
        for end in (heard, said, complained):
            os.close(end)
        self.stdin, self.stdout, self.stderr = os.fdopen(self_in, "w"), os.fdopen(out), os.fdopen(err)


def seatrial(
    *arguments: str,
    env: Mapping[str, str] = os.environ,
    cwd: Path = ROOT,
    timeout: float = HANG_S,
    main: Callable[[list[str]], int] = main,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `main` may be that of a program other than `seatrial`."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    program = Program(["checks", *arguments], env=env, cwd=cwd, main=main, **pipes)
    try:
        out, err = program.communicate(timeout)
    except subprocess.TimeoutExpired:
        program.kill()
        raise
    assert program.returncode is not None
    return subprocess.CompletedProcess(arguments, program.returncode, out, err)


def rehearse_here(arguments: list[str], *, cwd: Path, env: Mapping[str, str]) -> int:
    """Rehearse in this process with forked trials; return the exit code."""
    forking = {name: getattr(subprocess, name) for name in ("run", "PIPE", "TimeoutExpired")}
    with pytest.MonkeyPatch.context() as here:
        here.chdir(cwd)
        here.setattr(os, "environ", dict(env))
        here.setattr(trials, "subprocess", SimpleNamespace(Popen=functools.partial(Program, cwd=cwd), **forking))
        return main(["rehearse", *arguments])


def run_pytest(*arguments: str, cwd: Path) -> pytest.RunResult:
    """Run pytest itself to its end on the tests in `cwd`; it loads no plugin that `seatrial` excludes."""
    done = seatrial(*arguments, cwd=cwd, main=own_pytest)
    return pytest.RunResult(done.returncode, done.stdout.splitlines(), done.stderr.splitlines(), 0)


def own_pytest(arguments: list[str]) -> int:
    """Run pytest in this process, without the plugins that `seatrial` excludes."""
    return int(pytest.main(["-p", "no:hypothesispytest", "-p", "no:unraisableexception", *arguments]))


class ForkedLab(FORK.Process):  # type: ignore[name-defined,misc]
    """The lab's process, forked from the run's: the part of subprocess.Popen that `simulation.Simulation` uses."""

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
    main: Callable[[list[str]], int], arguments: list[str], environment: dict[str, str], cwd: Path, streams: list[int]
) -> None:
    assert "tests.preload" in sys.modules, "nothing was imported ahead"
    vars(multiprocessing.current_process())["_config"]["daemon"] = False  # a non-daemon may fork its cluster
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    forking = SimpleNamespace(Popen=ForkedLab, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired)
    vars(simulation)["subprocess"] = forking
    _as_program(main, arguments, streams)


def _lab(arguments: list[str], streams: list[int]) -> None:
    _as_program(lab, arguments, streams)


def _as_program(program: Callable[[list[str]], int], arguments: list[str], streams: list[int]) -> None:
    """Run a command line's program as the leader of its session, with these standard streams and no other files."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    sys.argv = ["seatrial", *arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the server's own setting
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    atexit._clear()
    try:
        code = program(arguments)
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
    raise SystemExit(code)
