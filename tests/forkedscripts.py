"""The stand-ins that a forked pod starts, of `torchrun`, `nvidia-smi` and the like, are forked, too.

Each is a script of a few lines for the very interpreter that the pod is, and spends two thirds of its time on starting
one and on its imports; a trial has dozens. `start` takes the place of what `subprocess.Popen` forks and executes with.
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
from tests import interpreter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

FOLDER = str(Path(hardware.__file__).parent)
FIRST_LINE = f"#!{interpreter.INTERPRETER} -IS\n"
_start = vars(subprocess)["_fork_exec"]


def _stand_ins() -> dict[str, ModuleType]:
    """Import the stand-ins under the names that their scripts have for them."""
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
    """Start a program, as _posixsubprocess.fork_exec; return its process id.

    `rest`: both ends of the pipes of the three streams and of the one that says when an exec has failed, whether
    signals are restored, whether it begins a session, then what is asked for by nobody here.
    """
    session, credentials = rest[9], rest[10:16]  # of others: a process group, other users, a umask, a function
    script = _script(candidates)
    plain = close_fds and len(pass_fds) == 1 and (cwd is None or Path(cwd).is_dir())
    if (
        script is None
        or not plain
        or credentials != (-1, None, None, None, -1, None)
        or interpreter.memory_is_limited()
    ):
        return int(_start(args, candidates, close_fds, pass_fds, cwd, env, *rest))
    given = dict(os.environ) if env is None else dict(os.fsdecode(each).split("=", 1) for each in env)
    pid = os.fork()
    if pid == 0:
        try:
            gc.disable()  # what other threads of the parent had open would be closed, under numbers that are new here
            _become([script, *map(os.fsdecode, args[1:])], given, cwd, bool(session), (rest[0], rest[3], rest[5]))
        finally:
            os._exit(1)
    return pid


def _script(candidates: Sequence[bytes]) -> str | None:
    """Return the first that can be executed, where it is the script of a stand-in that is imported here."""
    paths = [Path(os.fsdecode(each)) for each in candidates]
    path = next((each for each in paths if each.is_file() and os.access(each, os.X_OK)), None)
    if path is None:
        return None
    with path.open("rb") as file:
        text = file.read(1024).decode(errors="replace")
    return str(path) if text.startswith(FIRST_LINE) and f"path.append({FOLDER!r})\n" in text else None


def _become(
    argv: list[str], env: dict[str, str], cwd: str | None, session: bool, streams: tuple[int | None, ...]
) -> NoReturn:
    """Go on as the script, with these files as its standard streams where they are none of this process."""
    if session:
        os.setsid()
    for number, stream in enumerate(streams):
        if stream is not None and stream >= 0:
            os.dup2(stream, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # the one that says that an exec failed among them: the program runs
    if cwd is not None:
        os.chdir(cwd)
    Path("/proc/self/comm").write_text(Path(argv[0]).name[:15])
    interpreter.restore_signals()
    interpreter.restore_system()
    interpreter.keep(sys.stdin, sys.stdout, sys.stderr, sys.modules["__main__"])
    atexit._clear()
    sys.excepthook = sys.__excepthook__
    sys.modules.update(STAND_INS)
    interpreter.run(str(interpreter.INTERPRETER), argv, env, isolated=True)
