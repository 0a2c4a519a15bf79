"""Commands and their descendants: bounded time, output and lifetime."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from jobs.pod.stages import capture, children, command
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from pathlib import Path


def test_a_command_answers() -> None:
    """The result has the exit code and both streams."""
    answer = command.run(
        [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"], 10, 1000
    )
    assert (answer.exit, answer.out, answer.err, answer.error) == (3, b"out\n", b"err\n", "")


def test_a_missing_command_is_an_answer() -> None:
    """A command that cannot start yields an error text."""
    answer = command.run(["/no/such/tool"], 10, 1000)
    assert answer.exit is None
    assert "cannot start /no/such/tool" in answer.error


def test_a_command_that_does_not_end_is_killed() -> None:
    """The deadline applies to a command that ignores SIGTERM, and its output so far is kept."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('begun', flush=True); time.sleep(6000)"
    answer = command.run([sys.executable, "-c", code], 1, 1000)
    assert (answer.exit, answer.out) == (None, b"begun\n")
    assert "did not end within 1 s" in answer.error


def test_a_command_that_no_one_needs_any_more_is_stopped_and_not_called_late() -> None:
    """A timeout is a finding for some programs, but stopping an unneeded command is not a timeout."""
    answer = command.run([sys.executable, "-c", "import time; time.sleep(6000)"], HANG_S, 1000, over=lambda: True)
    assert (answer.exit, answer.error) == (None, f"{sys.executable} was stopped")


def test_a_command_that_prints_without_end_is_bounded() -> None:
    """Only the beginning is kept."""
    answer = command.run([sys.executable, "-c", "print('x' * 5_000_000)"], 10, 1000)
    assert len(answer.out) == 1000
    assert "more than 1000 bytes" in answer.error


@pytest.mark.parametrize("size", [10, 1000, 1500, 5000, 200_000])
def test_the_captured_file_has_the_beginning_and_the_end(tmp_path: Path, size: int) -> None:
    """A small output is kept completely; of a large one the middle is missing and the file gives the missing size."""
    code = f"import sys; sys.stdout.write(''.join(chr(97 + i % 26) for i in range({size})))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    captured = capture.Capture(process.stdout, str(tmp_path / "out"), head=1000, tail=500)
    process.wait(timeout=HANG_S)
    captured.finish(5)
    whole = "".join(chr(97 + i % 26) for i in range(size))
    text = (tmp_path / "out").read_text()
    assert captured.bytes == size
    assert captured.last(100) == whole[-100:]
    if size <= 1500:
        assert text == whole
    else:
        assert text.startswith(whole[:1000])
        assert text.endswith(whole[-500:])
        assert f"left out {size - 1500} bytes" in text


def test_descendants_are_found_across_sessions() -> None:
    """A grandchild in a separate session is still below its grandparent."""
    code = "import subprocess, sys, time; p = subprocess.Popen(['sleep', '6000'], start_new_session=True); print(p.pid, flush=True); time.sleep(6000)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        grandchild = int(process.stdout.readline())
        assert children.descendants(process.pid) == [grandchild]
    finally:
        for pid in [*children.descendants(process.pid), process.pid]:
            children._signal([pid], 9)
        process.communicate(timeout=HANG_S)
