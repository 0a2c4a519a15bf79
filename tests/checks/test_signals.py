"""A termination signal at any moment of a run: record, exit code and terminal agree, and the verdict is never go."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from checks.framework import signals
from tests.program import run_pytest, seatrial

pytest_plugins = ["pytester"]
NUMBERS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
CONFTEST = """
import os, signal
import checks.framework.session
def send(name, times=1):
    for _ in range(times):
        os.kill(os.getpid(), getattr(signal, name))
def opened(self, cwd):
    def undo():
        send({undo!r}, {times}) if {undo!r} else None
        self.progress("")
        with open("undone", "a") as file:
            file.write("undone ")
    self.ledger.enter("first", undo)
    self.ledger.enter("second", undo)
checks.framework.session.Session.open = opened
pytest_plugins = ["checks.framework.fixtures", "checks.framework.plugin", "reports.plugin"]
def pytest_terminal_summary():
    send({late!r}) if {late!r} else None
"""
SOURCE = """
import os, signal, pytest
def send(name):
    os.kill(os.getpid(), getattr(signal, name))
@pytest.mark.check("a.first", "First")
def test_first(evidence):
    evidence.compare("node-a", observed=8, expected=8, fault="gpu.missing")
    {body}
    evidence.verdict()
@pytest.mark.check("a.second", "Second")
def test_second(evidence):
    evidence.compare("node-a", observed=8, expected=8, fault="gpu.missing")
    evidence.verdict()
"""


@pytest.fixture
def ended(pytester, monkeypatch, root):
    """Run two good checks with a signal at some point; return (record, exit code, output)."""
    monkeypatch.setenv("PYTHONPATH", str(root))

    def run(*, body="pass", undo="", late="", times=1):
        pytester.makeconftest(CONFTEST.format(undo=undo, late=late, times=times))
        pytester.makepyfile(test_sample=SOURCE.format(body=body))
        result = run_pytest("--out", "out", "-p", "no:cacheprovider", cwd=pytester.path)
        assert (pytester.path / "undone").read_text() == "undone undone ", "the clean-up is never cut short"
        record = json.loads((pytester.path / "out" / "report.json").read_text())
        said = result.stdout.str()
        assert record["exit_code"] == result.ret, said
        assert f"VERDICT: {record['verdict']}" in said
        assert f"exit code {result.ret}" in " ".join(said.split())  # the line may wrap anywhere
        assert "!!!" not in said
        return record, result.ret, said

    return run


@pytest.mark.parametrize("name", NUMBERS)
def test_a_signal_during_a_check_ends_the_run(ended, name):
    """Inconclusive, exit code 2, a plain sentence; the next check does not start."""
    record, code, said = ended(body=f"send({name!r})")
    assert (record["verdict"], code, record["interrupted"]) == ("inconclusive", 2, f"received {name}")
    assert record["checks"] == []
    assert f"Ended early: received {name}" in said


def test_a_signal_whose_exception_a_user_swallowed_ends_the_run_before_the_next_check(ended):
    """`except BaseException` in a library must not turn an interrupted run into a go."""
    body = "\n    try:\n        send('SIGINT')\n    except BaseException:\n        pass"
    record, code, _ = ended(body=body)
    assert (record["verdict"], code) == ("inconclusive", 2)
    assert [c["id"] for c in record["checks"]] == ["a.first"]


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_signal_during_the_clean_up_takes_no_verdict_away(ended, name, times):
    """All checks were judged, and the clean-up completes: the record holds their results."""
    record, code, _ = ended(undo=name, times=times)
    assert (record["verdict"], code, record["interrupted"]) == ("go", 0, "")


def test_who_is_killed_while_it_cleans_up_has_left_its_record(pytester, monkeypatch, root):
    """The record has the verdict and the pending deletions; no other report exists."""
    monkeypatch.setenv("PYTHONPATH", str(root))
    pytester.makeconftest(CONFTEST.format(undo="SIGKILL", late="", times=1))
    pytester.makepyfile(test_sample=SOURCE.format(body="pass"))
    result = run_pytest("--out", "out", "-p", "no:cacheprovider", cwd=pytester.path)
    assert result.ret == -signal.SIGKILL
    record = json.loads((pytester.path / "out" / "report.json").read_text())
    assert (record["verdict"], record["exit_code"]) == ("go", 0)
    assert record["leftovers"] == [f"{name}: not deleted before the run ended" for name in ("second", "first")]


def test_a_report_that_cannot_be_completed_leaves_no_go_behind(pytester, monkeypatch, root):
    """The record written before the clean-up is removed, and the exit code shows that there is no report."""
    monkeypatch.setenv("PYTHONPATH", str(root))
    pytester.makeconftest(CONFTEST.format(undo="", late="", times=1))
    pytester.makepyfile(test_sample=SOURCE.format(body="os.makedirs('out/report.md/in-the-way')"))
    result = run_pytest("--out", "out", "-p", "no:cacheprovider", cwd=pytester.path)
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    assert not (pytester.path / "out" / "report.json").exists()


def test_three_signals_are_as_one(ended):
    """The first ends the checks, the second arrives during the clean-up, the third while the report is written."""
    record, code, _ = ended(body="send('SIGINT')", undo="SIGINT", late="SIGTERM")
    assert (record["verdict"], code, record["interrupted"]) == ("inconclusive", 2, "received SIGINT")


def test_a_signal_after_the_clean_up_comes_too_late(ended):
    """The verdict is final when the report is written, so report and exit code agree."""
    record, code, _ = ended(late="SIGINT")
    assert (record["verdict"], code, record["interrupted"]) == ("go", 0, "")


@pytest.mark.parametrize("name", NUMBERS)
def test_a_signal_while_the_checks_are_collected_is_no_traceback(pytester, monkeypatch, root, name):
    """No check was judged, so the exit code is 2, with one line and no report."""
    monkeypatch.setenv("PYTHONPATH", str(root))
    pytester.makepyfile(
        test_sample=f"import os, signal\nos.kill(os.getpid(), signal.{name})\n" + SOURCE.format(body="pass")
    )
    done = seatrial("accept", "--cluster", "sim", "--out", "out", "test_sample.py", cwd=pytester.path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr == f"seatrial: received {name} before the first check: nothing was judged\n"
    assert "!!!" not in done.stdout
    assert not (pytester.path / "out").exists()


def test_what_nohup_ignores_stays_ignored(root):
    """SIGHUP of a closed terminal does not end a run started by nohup."""
    source = "import signal; from checks.framework import signals; signals.install(); print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
    done = subprocess.run(["nohup", sys.executable, "-c", source], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout == "True\n"


def test_a_program_under_test_does_not_inherit_what_nohup_ignores(root):
    """`nohup make test`: a test that sends SIGHUP passes there, too."""
    inner = f"{__file__}::test_a_signal_during_a_check_ends_the_run[SIGHUP]"
    command = ["nohup", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", inner]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_command_without_clean_up_ends_with_an_exception_and_gives_the_handlers_back():
    """SIGTERM raises an exception like Ctrl-C."""
    before = signal.getsignal(signal.SIGQUIT)
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"), signals.interruptible():
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGQUIT) == before


def test_outside_the_main_thread_signals_are_left_alone():
    """Python cannot install signal handlers outside the main thread."""
    done = []

    def body():
        with signals.interruptible():
            done.append(1)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert done == [1]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_child_gets_the_signal_and_never_outlives_its_block(name, root, tmp_path):
    """Cron and --partner run accept in a child process, which cleans up, so every signal is forwarded."""
    source = f"""
import os, pathlib, signal, sys, threading
from checks.framework import signals
from tests.waiting import until
ready = pathlib.Path({str(tmp_path / "ready")!r})
code = f"import pathlib, signal, sys, time; signal.signal(signal.{name}, lambda *_: sys.exit(7)); pathlib.Path({{str(ready)!r}}).touch(); time.sleep(600)"
def tell():
    until(ready.exists)
    os.kill(os.getpid(), signal.{name})
with signals.child([sys.executable, "-c", code], os.environ) as child:
    threading.Thread(target=tell).start()
    sys.exit(child.wait())
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 7, done.stderr
