"""A program of a pod that tests/forkedpods.py forks finds what it finds where an interpreter is started for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.hardware.files import ENVIRONMENT
from tests import forkedpods

TELLS = """
import faulthandler, json, os, signal, sys, tempfile, threading, warnings
handlers = [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())]
try:
    import yaml
except ImportError:
    yaml = None
print(json.dumps({
    "argv": sys.argv, "path": sys.path[0], "library": len(sys.path), "name": __name__, "file": __file__,
    "main": sys.modules["__main__"].__dict__ is globals(), "env": sorted(os.environ.items()), "yaml": yaml is not None,
    "handlers": handlers, "tmp": tempfile.gettempdir(), "threads": threading.active_count(),
    "ours": sorted({name.partition(".")[0] for name in sys.modules} & {"lab", "tests", "pytest", "_pytest", "jobs"}),
    "files": sorted(os.listdir("/proc/self/fd"))[:3], "executable": sys.executable, "cwd": os.getcwd(),
    "faulthandler": faulthandler.is_enabled(), "shown": warnings.showwarning.__module__, "umask": os.umask(0o22),
    "filters": sorted(map(str, warnings.filters)),
    "streams": [sys.stdout.errors, sys.stderr.errors, sys.stdin.read()],
}), flush=True)
"""
ENDS = {
    "in order": ("", 0),
    "exit code": ("sys.exit(7)", 7),
    "exit word": ("sys.exit('no')", 1),
    "exception": ("raise ValueError('no')", 1),
    "at once": ("os._exit(66)", 66),
    "thread": ("threading.Thread(target=lambda: print('late')).start()", 0),
    "atexit": ("import atexit; atexit.register(print, 'last')", 0),
    "signal": ("os.kill(os.getpid(), signal.SIGTERM)", -15),
    "crash": ("os.kill(os.getpid(), signal.SIGSEGV)", -11),
    "warning": ("warnings.warn('careful')", 0),
    "not flushed": ("print('words', end=''); print('more', end='', file=sys.stderr)", 0),
    "chained": ("try:\n    {}['a']\nexcept KeyError:\n    len(1)", 1),
    "wrong": ("1 +", 1),
}


@pytest.fixture
def limit(tmp_path, monkeypatch):
    """The file of a container's memory limit, which is none."""
    monkeypatch.setattr(forkedpods, "LIMIT", tmp_path / "memory.max")
    forkedpods.LIMIT.write_text("max\n")
    return forkedpods.LIMIT


@pytest.fixture
def python(tmp_path, limit):
    """An interpreter as pods have it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(forkedpods.INTERPRETER)
    (folder / "pyvenv.cfg").write_text(ENVIRONMENT.format(home=forkedpods.INTERPRETER.parent))
    return folder / "python3"


def forked(argv, env, cwd):
    """Exit code and output of a program that a fork of this process becomes."""
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(cwd)
            for number, end in enumerate((os.open(os.devnull, os.O_RDONLY), out_end, err_end)):
                os.dup2(end, number)
            forkedpods.only_the_library()
            forkedpods.become(None, argv, env)
        finally:
            os._exit(99)
    os.close(out_end)
    os.close(err_end)
    with os.fdopen(out) as said, os.fdopen(err) as complained:
        texts = said.read(), complained.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), *texts


@pytest.mark.parametrize("end", ENDS)
def test_a_forked_program_is_as_a_started_one(end, tmp_path, python):
    more, code = ENDS[end]
    script = tmp_path / "script.py"
    script.write_text(TELLS + more + "\n")
    argv = ["python3", str(script), "one", "two"]
    env = {"PATH": str(python.parent), "A": "1", "LC_ALL": "C.UTF-8", "TMPDIR": str(tmp_path)}
    started = subprocess.run(
        argv,
        env=env,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        executable=python,
        check=False,
    )
    got, said, complained = forked(argv, env, tmp_path)
    assert got == started.returncode == code
    assert complained == started.stderr
    (told, *rest), (expected, *rest_expected) = said.splitlines() or [""], started.stdout.splitlines() or [""]
    assert json.loads(told or "{}") == json.loads(expected or "{}")
    assert rest == rest_expected


@pytest.mark.parametrize(
    ("argv", "more"),
    [
        (["python3", "-c", "print('started')"], {}),
        (["python3", "SCRIPT"], {"PYTHONSTARTUP": ""}),
        (["sh", "-c", "echo started"], {"PATH": os.environ["PATH"]}),
        (["python3", "SCRIPT"], {"LIMIT": "67108864"}),
    ],
)
def test_anything_else_is_started(argv, more, tmp_path, python, limit, monkeypatch):
    def execute(_, argv, __):
        os.write(1, b"started")
        os._exit(0)

    limit.write_text(more.get("LIMIT", "max") + "\n")
    monkeypatch.setattr(forkedpods, "_execute", execute)
    script = tmp_path / "script.py"
    script.write_text("print('forked')")
    command = [str(script) if word == "SCRIPT" else word for word in argv]
    assert forked(command, {"PATH": str(python.parent), **more}, tmp_path) == (0, "started", "")


def test_another_interpreter_is_started(tmp_path, limit, monkeypatch):
    monkeypatch.setattr(forkedpods, "INTERPRETER", Path(sys.executable).parent / "python-of-another-version")
    monkeypatch.setattr(forkedpods, "_execute", lambda *_: os._exit(42))
    (tmp_path / "script.py").write_text("print('forked')")
    argv = [sys.executable, str(tmp_path / "script.py")]
    assert forked(argv, {"PATH": ""}, tmp_path)[0] == 42
