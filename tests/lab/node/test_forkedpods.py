"""Programs forked by tests/forkedpods.py, and their children, run like in a started interpreter."""

import importlib
import json
import os
import re
import subprocess
import sys
import zipimport
from pathlib import Path

import pytest

from jobs.trial import payload
from lab.hardware.files import ENVIRONMENT

forkedpods = forkedscripts = interpreter = podmodules = None


@pytest.fixture(autouse=True, scope="module")
def imported():
    """Import the tested modules on demand, since every worker imports this file."""
    for name in ("forkedpods", "forkedscripts", "interpreter", "podmodules"):
        globals()[name] = importlib.import_module(f"tests.{name}")


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
STARTS = """
import subprocess, sys, threading
lines = threading.Thread(target=sys.stdin.read)
done = subprocess.run(["STAND_IN", "one", "two"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                      start_new_session=True, cwd="CWD", env=ENV)
lines.start()
sys.stdout.write(done.stdout), sys.stderr.write(done.stderr)
sys.exit(done.returncode & 0xFF)
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
    """Create the file of a container's memory limit, with no limit."""
    monkeypatch.setattr(interpreter, "LIMIT", tmp_path / "memory.max")
    interpreter.LIMIT.write_text("max\n")
    return interpreter.LIMIT


@pytest.fixture
def python(tmp_path, limit):
    """Return an interpreter as in pods."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(interpreter.INTERPRETER)
    (folder / "pyvenv.cfg").write_text(ENVIRONMENT.format(home=interpreter.INTERPRETER.parent))
    return folder / "python3"


def forked(argv, env, cwd):
    """Return exit code and output of a program in a fork of this process."""
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


@pytest.mark.parametrize(("end", "packed"), [*((end, False) for end in ENDS), ("exit code", True), ("exception", True)])
def test_a_forked_program_is_as_a_started_one(end, packed, tmp_path, python):
    more, code = ENDS[end]
    script = tmp_path / "script.py"
    if packed:
        script.write_bytes(payload.archive({"__main__.py": TELLS + more + "\n"}))
    else:
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
    assert complained == re.sub(r'  File "<frozen runpy>".*\n', "", started.stderr)  # which starts an archive
    (first_line, *rest), (expected, *rest_expected) = said.splitlines() or [""], started.stdout.splitlines() or [""]
    assert json.loads(first_line or "{}") == json.loads(expected or "{}")
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
    monkeypatch.setattr(interpreter, "INTERPRETER", Path(sys.executable).parent / "python-of-another-version")
    monkeypatch.setattr(forkedpods, "_execute", lambda *_: os._exit(42))
    (tmp_path / "script.py").write_text("print('forked')")
    argv = [sys.executable, str(tmp_path / "script.py")]
    assert forked(argv, {"PATH": ""}, tmp_path)[0] == 42


def stand_in(place, text):
    """Create a stand-in script with this text."""
    place.write_text(f"{forkedscripts.FIRST_LINE}import sys\nsys.path.append({forkedscripts.FOLDER!r})\n{text}\n")
    place.chmod(0o755)
    return place


def both(text, tmp_path, python):
    """Return exit code and output of a program that starts a stand-in, with both forked, and with both started."""
    script, env = tmp_path / "script.py", {"PATH": str(python.parent), "A": "1", "LC_ALL": "C.UTF-8"}
    made = stand_in(tmp_path / "stand-in", text)
    replacements = {"STAND_IN": str(made), "CWD": str(python.parent), "ENV": repr(env | {"TMPDIR": str(tmp_path)})}
    starts = STARTS
    for word, value in replacements.items():
        starts = starts.replace(word, value)
    script.write_text(starts)
    argv, streams = ["python3", str(script)], {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done = subprocess.run(argv, env=env, cwd=tmp_path, executable=python, check=False, **streams)
    return forked(argv, env, tmp_path), (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("end", ENDS)
def test_a_stand_in_is_as_a_started_one(end, tmp_path, python):
    more, code = ENDS[end]
    got, expected = both(TELLS + more, tmp_path, python)
    assert got == expected
    assert got[0] == code & 0xFF


@pytest.mark.parametrize("end", ["in order", "exception", "thread", "signal"])
def test_a_container_of_a_stand_in_and_the_program_that_it_starts_are_as_started_ones(end, tmp_path, python):
    """Like `sshd`, which starts the workers' programs; both are forked."""
    more, code = ENDS[end]
    script = tmp_path / "script.py"
    script.write_text(TELLS + more + "\n")
    env = {"PATH": str(python.parent), "A": "1", "LC_ALL": "C.UTF-8", "TMPDIR": str(tmp_path)}
    words = {'"STAND_IN"': f'"python3", {str(script)!r}', "CWD": str(python.parent), "ENV": repr(env)}
    starts = STARTS
    for word, value in words.items():
        starts = starts.replace(word, value)
    for text in TELLS + more, starts:
        argv = [str(stand_in(tmp_path / "stand-in", text)), "one", "two"]
        streams = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        done = subprocess.run(argv, env=env, cwd=tmp_path, check=False, **streams)
        got = forked(argv, env, tmp_path)
        assert got == (done.returncode, done.stdout, done.stderr)
        assert got[0] & 0xFF == code & 0xFF


@pytest.mark.parametrize("limited", [False, True])
def test_a_program_that_a_stand_in_starts_is_forked_where_memory_is_not_limited(limited, tmp_path, python, limit):
    limit.write_text("67108864\n" if limited else "max\n")
    script = tmp_path / "script.py"
    script.write_text("import json, sys\nprint('fakes' in sys.modules, 'fractions' in sys.modules)")
    made = stand_in(tmp_path / "stand-in", f"import subprocess\nsubprocess.run(['python3', {str(script)!r}])")
    got = forked([str(made)], {"PATH": str(python.parent)}, tmp_path)
    assert got == (0, f"False {not limited}\n", "")


@pytest.mark.parametrize("limited", [False, True])
def test_a_stand_in_is_forked_where_memory_is_not_limited(limited, tmp_path, python, limit):
    limit.write_text("67108864\n" if limited else "max\n")
    folder = repr(forkedscripts.FOLDER)
    got, started = both(
        f"import fakes.torchrun\nprint('fakes.ssh' in sys.modules, {folder} in sys.path)", tmp_path, python
    )
    assert started == (0, "False True\n", "")
    assert got == (0, f"{not limited} True\n", "")


def test_a_program_is_customized_as_a_started_one_and_its_stand_ins_are_not(tmp_path, python):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import os\nos.getpgid = lambda _: 'changed'\nprint('customized')")
    (folder / "other.py").write_text("place = 'imported'")
    made = stand_in(
        tmp_path / "stand-in", "import os\nprint(os.getpgid(0) == os.getpgrp(), 'fakes.ssh' in sys.modules)"
    )
    script = tmp_path / "script.py"
    source = "print(other.place, os.getpgid(0), sys.path[:2], len(sys.path), sorted(os.environ), flush=True)"
    script.write_text(f"import os, other, subprocess, sys\n{source}\nsubprocess.run([{str(made)!r}])")
    env = {"PATH": str(python.parent), "LC_ALL": "C.UTF-8", "PYTHONPATH": str(folder)}
    argv = ["python3", str(script)]
    done = subprocess.run(argv, env=env, cwd=tmp_path, executable=python, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("customized\nimported changed ")
    assert done.stdout.endswith("\nTrue False\n")
    assert forked(argv, env, tmp_path) == (0, done.stdout.replace("True False\n", "True True\n"), "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_program_without_buffers_writes_at_once(unbuffered, tmp_path, python):
    """Unbuffered output is complete if the program ends abruptly."""
    script = tmp_path / "script.py"
    script.write_text("import os, sys\nprint('a', end='')\nprint('b', end='', file=sys.stderr)\nos._exit(3)")
    env, argv = {"PATH": str(python.parent), "PYTHONUNBUFFERED": unbuffered}, ["python3", str(script)]
    done = subprocess.run(argv, env=env, cwd=tmp_path, executable=python, capture_output=True, text=True, check=False)
    assert forked(argv, env, tmp_path) == (3, done.stdout, done.stderr)
    assert done.stdout == ("a" if unbuffered else "")


def test_a_script_of_anything_else_is_started(tmp_path, python):
    """The script imports from another folder than this process's stand-ins."""
    env = {"PATH": str(python.parent)}
    script, other = tmp_path / "script.py", tmp_path / "other"
    other.write_text(
        f"{forkedscripts.FIRST_LINE}import sys\nsys.path.append('/elsewhere')\nprint('fakes' in sys.modules)"
    )
    other.chmod(0o755)
    script.write_text(f"import subprocess\nsubprocess.run([{str(other)!r}])")
    assert forked(["python3", str(script)], env, tmp_path) == (0, "False\n", "")


@pytest.mark.parametrize("changed", ["", "seatrial_pod/stages/smi.py", "seatrial_pod/reader/__init__.py"])
def test_modules_of_a_pod_are_taken_where_its_archive_is_what_they_were_made_of(changed, tmp_path, monkeypatch):
    monkeypatch.setattr(podmodules, "MOUNT", str(tmp_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    sources = {path: text + ("#" if path == changed else "") for path, text in payload.files().items()}
    for place in (tmp_path / "elsewhere", tmp_path):
        place.mkdir(exist_ok=True)
        program = place / payload.ARCHIVE
        program.write_bytes(payload.archive(sources))
        podmodules.take(str(program))
        assert ("seatrial_pod.stages.run" in sys.modules) == (place == tmp_path and not changed)


def test_modules_of_a_pod_are_what_it_would_import(tmp_path):
    archive = tmp_path / payload.ARCHIVE
    archive.write_bytes(payload.archive(payload.files()))
    theirs = zipimport.zipimporter(str(archive))
    for name, module in podmodules.MODULES.items():
        relative = module.__file__.removeprefix(f"/seatrial/{payload.ARCHIVE}/")
        made = {code.co_filename for code in vars(module).values() if getattr(code, "co_filename", None)}
        assert module.__name__ == module.__spec__.name == name
        assert theirs.get_data(f"{archive}/{relative}").decode() == payload.files()[relative]
        assert compile(payload.files()[relative], module.__file__, "exec") == module.__loader__.get_code(name)
        assert made <= {module.__file__}
