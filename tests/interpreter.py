"""Steps by which a forked process continues as an interpreter started for a program."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import io
import os
import signal
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn
from zipimport import zipimporter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INTERPRETER = Path(sys.executable).resolve()
LIBRARY = [path for path in sys.path if path.startswith(sys.base_prefix) and "site-packages" not in path]
LENIENT = "surrogateescape"
FOLDERS, UNBUFFERED = "PYTHONPATH", "PYTHONUNBUFFERED"
KNOWN = {FOLDERS, UNBUFFERED}
"""Interpreter variables that are emulated here."""
LIMIT = Path("/sys/fs/cgroup/memory.max")
_KEPT: list[object] = []
_SYSTEM = dict(vars(os))


def memory_is_limited() -> bool:
    """Say whether a fork, which has its parent's memory and its own, might exceed the limit."""
    return LIMIT.is_file() and LIMIT.read_text() != "max\n"


def runs_file(executable: str, argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Say whether this is a file for this very interpreter, without unknown variables in its environment."""
    return (
        Path(executable).resolve() == INTERPRETER
        and len(argv) > 1
        and Path(argv[1]).is_file()
        and not any(name.startswith("PYTHON") and name not in KNOWN for name in env)
    )


def keep(*things: object) -> None:
    """Keep unused objects: streams would close their files, and finalising modules is slow."""
    _KEPT.extend(things)


def run(executable: str, argv: Sequence[str], env: Mapping[str, str], *, isolated: bool = False) -> NoReturn:
    """Run a file and end with its exit code; `isolated`: no imports from its folder (python -I)."""
    code = 1
    try:
        _dress(executable, argv, env)
        if isolated:
            del sys.path[0]
        else:
            _customize(env)
        code = _exit_code_of(argv[0])
        for stream in sys.stdout, sys.stderr:
            stream.flush()
    finally:
        os._exit(code & 0xFF)


def restore_system() -> None:
    """Restore the functions of `os`, which a `sitecustomize` may have replaced."""
    vars(os).update(_SYSTEM)


def restore_signals() -> None:
    """Remove Python handlers of all signals; ignored ones stay ignored (execve(2))."""
    for number in signal.valid_signals():
        if signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN):  # a function; None: a library's
            signal.signal(number, signal.SIG_DFL)


def _dress(executable: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Set the attributes of an interpreter started this way."""
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    tempfile.tempdir = None
    for number in signal.SIGPIPE, signal.SIGXFSZ:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.executable, sys.argv, sys.dont_write_bytecode = executable, list(argv), False
    sys.path[:] = [str(Path(argv[0]).resolve().parent), *LIBRARY]
    sys.path_importer_cache.clear()
    sys.stdin, sys.stdout = os.fdopen(0, errors=LENIENT), os.fdopen(1, "w", errors=LENIENT)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")


def _customize(env: Mapping[str, str]) -> None:
    """Unbuffer the streams, and add import folders, first those that an interpreter adds itself (site)."""
    if env.get(UNBUFFERED):
        keep(sys.stdout, sys.stderr)
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w"), errors=LENIENT, write_through=True)
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), errors="backslashreplace", write_through=True)
    if env.get(FOLDERS):
        sys.path[1:1] = env[FOLDERS].split(os.pathsep)
        with contextlib.suppress(ImportError):
            importlib.import_module("sitecustomize")


def _exit_code_of(path: str) -> int:
    """Run a file, or an archive's entry, to its end like an interpreter, including its threads and exit handlers."""
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    code = 0
    try:
        if zipfile.is_zipfile(path):
            sys.path[0] = path
            archive = zipimporter(path)
            main.__file__, main.__loader__ = archive.get_filename("__main__"), archive
            program = archive.get_code("__main__")
        else:
            main.__file__ = path
            program = compile(Path(path).read_bytes(), path, "exec")
        exec(program, vars(main))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException as error:  # noqa: BLE001 - the interpreter's own last resort
        code = 1
        inner = error.__traceback__ and error.__traceback__.tb_next  # not this function's own call
        sys.excepthook(type(error), error.with_traceback(inner), inner)
    vars(threading)["_shutdown"]()
    atexit._run_exitfuncs()
    return code
