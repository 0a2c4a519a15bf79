"""The fakes that a forked pod is or starts, such as `torchrun` and `nvidia-smi`, are also forked.

Each is a script of a few lines for the pod's own interpreter. It spends two thirds of its time on starting it and on
imports, and a trial has dozens. `start` replaces the function with which `subprocess.Popen` forks and executes.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from lab import hardware
from tests import interpreter, podmodules

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

FOLDER = str(Path(hardware.__file__).parent)
FIRST_LINE = f"#!{interpreter.INTERPRETER} -IS\n"
_start = vars(subprocess)["_fork_exec"]


def _stand_ins() -> dict[str, ModuleType]:
    """Import the stand-ins under the names that their scripts use."""
    sys.path.append(FOLDER)
    try:
        package = importlib.import_module("fakes")
        names = ["fakes", *(module.name for module in pkgutil.iter_modules(package.__path__, "fakes."))]
        for name in names:
            importlib.import_module(name)
        return {name: sys.modules.pop(name) for name in names}
    finally:
        sys.path.remove(FOLDER)


STAND_INS = _stand_ins()


def start(
    args: Sequence[str | bytes],
    candidates: Sequence[bytes],
    close_fds: bool,
    pass_fds: tuple[int, ...],
    cwd: str | None,
    env: Sequence[bytes] | None,
    *rest: int | None,
) -> int:
    """Start a program like _posixsubprocess.fork_exec; return its process id.

    `rest` begins with both ends of the pipes of the three streams and of the one that reports a failed exec. Then
    follow whether signals are restored, whether it starts a session, and options that no caller here uses.
    """
    session, credentials = rest[9], rest[10:16]  # the latter: a process group, other users, a umask, a function
    given = dict(os.environ) if env is None else dict(os.fsdecode(each).split("=", 1) for each in env)
    path, words = _executed(candidates), [*map(os.fsdecode, args)]
    stand_in = path is not None and is_stand_in(path)
    plain = close_fds and len(pass_fds) == 1 and (cwd is None or Path(cwd).is_dir())
    plain = plain and credentials == (-1, None, None, None, -1, None)
    forkable = stand_in or (path is not None and _is_program(path, words, given))
    if not plain or not forkable or interpreter.memory_is_limited():
        return int(_start(args, candidates, close_fds, pass_fds, cwd, env, *rest))
    pid = os.fork()
    if pid == 0:
        try:
            gc.disable()  # a collection would close files of the parent's other threads, whose numbers are reused here
            _leave(cwd, bool(session), (rest[0], rest[3], rest[5]))
            go_on(str(path), words, given, stand_in=stand_in)
        finally:
            os._exit(1)
    return pid


def is_stand_in(path: Path) -> bool:
    """Say whether this is the script of a stand-in that is imported here."""
    try:
        with path.open("rb") as file:
            text = file.read(1024).decode(errors="replace")
    except OSError:
        return False
    return text.startswith(FIRST_LINE) and f"path.append({FOLDER!r})\n" in text


def go_on(executable: str, argv: Sequence[str], env: dict[str, str], *, stand_in: bool) -> NoReturn:
    """Continue as a stand-in, or as an interpreter with a file."""
    Path("/proc/self/comm").write_text(Path(executable if stand_in else "python3").name[:15])
    if stand_in:
        sys.modules.update(STAND_INS)
        interpreter.run(str(interpreter.INTERPRETER), [executable, *argv[1:]], env, isolated=True)
    podmodules.take(argv[1])
    interpreter.run(executable, argv[1:], env)


def _executed(candidates: Sequence[bytes]) -> Path | None:
    """Return the first executable one."""
    paths = [Path(os.fsdecode(each)) for each in candidates]
    return next((each for each in paths if each.is_file() and os.access(each, os.X_OK)), None)


def _is_program(path: Path, argv: Sequence[str], env: dict[str, str]) -> bool:
    """Say whether a stand-in starts an interpreter for this file: sshd and mpirun have not used its modules."""
    unused = not podmodules.MODULES.keys() & sys.modules.keys()
    return "fakes" in sys.modules and unused and interpreter.runs_file(str(path), argv, env)


def _leave(cwd: str | None, session: bool, streams: tuple[int | None, ...]) -> None:
    """Separate from the parent, with these files as standard streams unless they are this process's."""
    if session:
        os.setsid()
    for number, stream in enumerate(streams):
        if stream is not None and stream >= 0:
            os.dup2(stream, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # including the one that reports a failed exec: the program runs
    if cwd is not None:
        os.chdir(cwd)
    interpreter.restore_signals()
    interpreter.restore_system()
    interpreter.keep(sys.stdin, sys.stdout, sys.stderr, sys.modules["__main__"])
    atexit._clear()
    sys.excepthook = sys.__excepthook__
    for name in STAND_INS.keys() & sys.modules.keys():
        del sys.modules[name]
    gc.freeze()
    gc.enable()
