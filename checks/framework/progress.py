"""Progress of long work: one live line on a terminal; otherwise a line every 15 s.

It shows the current action, its duration, the estimated remaining time, and the bandwidth of each completed collective.
A step reports itself by a call; ``doing`` names actions that report nothing, such as the listing of nodes.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import textwrap
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import pytest

from jobs.cluster.redact import redact

QUIET = -2
"""The highest verbosity of test cases at which a run prints one line (-q)."""
EVERY_S = 15.0
"""Seconds between two lines in a log: CI systems terminate jobs without output for minutes."""


TICK_S = 1.0
"""Seconds after which a terminal refreshes the elapsed time."""
_NOTHING = re.compile(r", 0 (?:at fault|suspects)|(?<= pairs) tested")
"""Parts of a sweep's progress (jobs/pod/stages/planner.py) that the single line for the whole sweep omits."""
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_COLLECTIVE = re.compile(r"rank 0: collective\.([\w.-]+)(?P<late>;.*)?", re.DOTALL)
_MEASURED = re.compile(r"rank 0: collective\.([\w.-]+): (\d{1,9}) (\w+) ([\d.]{1,12}) GB/s")
"""The output of rank 0's probe for a completed collective (jobs/pod/stages/collective.py)."""


class Progress:
    """Call it with the current action, from any thread; ``close`` it at the end of the run."""

    def __init__(self, config: pytest.Config, every_s: float = EVERY_S, tick_s: float = TICK_S) -> None:
        self._terminal: Any = config.pluginmanager.getplugin("terminalreporter")
        self._capture: Any = config.pluginmanager.getplugin("capturemanager")
        self._lock = threading.RLock()  # the threads that follow logs also report progress
        self._began = time.monotonic()
        self._last, self._since = "starting", self._began
        self._planned: Sequence[str] = ()
        self._floors: Mapping[str, Mapping[int, float]] = {}
        self._begun: dict[str, float] = {}  # collective -> its start time
        self._measured: list[str] = []  # time of the last line
        self._drawn = False
        self._closed = threading.Event()
        self._reminder: threading.Thread | None = None
        quiet = config.get_verbosity(pytest.Config.VERBOSITY_TEST_CASES) <= QUIET
        quiet = quiet or config.getoption("--print-manifests")  # the output is a YAML stream and nothing else
        self._live = self._terminal is not None and bool(self._terminal.isatty) and not quiet
        self._every_s = tick_s if self._live else every_s
        if self._terminal is not None and not quiet:
            self._reminder = threading.Thread(target=self._remind, name="progress", daemon=True)
            self._reminder.start()

    def expect(self, collectives: Sequence[str], floors: Mapping[str, Mapping[int, float]]) -> None:
        """Set the collectives that will run, in order, and their floors in GB/s by size in bytes."""
        self._planned, self._floors = tuple(collectives), floors

    def __call__(self, text: str) -> None:
        """Record the current action."""
        if measured := _MEASURED.fullmatch(text):
            name, number, unit, rate = measured.groups()
            floor = self._floors.get(name, {}).get(int(number) * UNITS.get(unit, 0))
            said = f", floor {floor:g}" if floor else ""
            self._measured.append(redact(f"{name} {number} {unit} {_figure(rate)} GB/s{said}"))
        else:
            self._set(self._step(text))
        if self._live:
            self._draw()

    def note(self, text: str) -> None:
        """Write a permanent line."""
        if self._reminder is not None:
            with self._lock, self._written():
                self._clear()
                for row in textwrap.wrap(text, shutil.get_terminal_size((100, 24)).columns - 2, break_on_hyphens=False):
                    self._terminal.write_line(row)

    def _set(self, text: str) -> None:
        self._last, self._since = redact(text), time.monotonic()

    def _step(self, text: str) -> str:
        """Format a collective with its number and the total."""
        collective = _COLLECTIVE.fullmatch(text)
        if collective is None:
            return text.removeprefix("rank 0: ") if text.startswith("rank 0: sweep: ") else text
        name = collective[1]
        self._begun.setdefault(name, time.monotonic())
        place = f" ({self._planned.index(name) + 1} of {len(self._planned)})" if name in self._planned else ""
        return f"{name}{place}{collective['late'] or ''}"

    def _left(self) -> str:
        """Estimate the remaining time of the collectives from the completed ones; '' before the first ends."""
        begun = [self._begun[name] for name in self._planned if name in self._begun]
        if len(begun) < 2:  # the end of a collective is known when the next one begins
            return ""
        each = (begun[-1] - begun[0]) / (len(begun) - 1)
        left = each * (len(self._planned) - len(begun) + 1) - (time.monotonic() - begun[-1])
        return f"about {left:.0f} s still" if left >= 1 else ""

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Show an action for this block, which does not report progress itself."""
        before = self._last, self._since
        self._set(what)
        try:
            yield
        finally:
            self._last, self._since = before

    def close(self) -> None:
        """Stop all output."""
        self._closed.set()
        if self._reminder is not None:
            self._reminder.join()
        with self._lock:
            self._clear()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logstart(self) -> Generator[None, Any, Any]:
        """Remove the live line before a check's start is written."""
        with self._lock:
            self._clear()
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self) -> Generator[None, Any, Any]:
        """Remove the live line before a check's end is written."""
        with self._lock:
            self._clear()
            return (yield)

    def _remind(self) -> None:
        while not self._closed.wait(self._every_s):
            if self._live:
                self._draw()
                continue
            said = [f"{self._last} (for {time.monotonic() - self._since:.0f} s)", self._left(), *self._measured]
            self._measured.clear()
            with self._lock, self._written():
                self._terminal.write_line(f"  · {'; '.join(filter(None, said))}", light=True)

    def _draw(self) -> None:
        """Rewrite the line, within the terminal's width and without cutting words."""
        with self._lock, self._written():
            if self._closed.is_set():
                return
            line = _fitting(
                shutil.get_terminal_size().columns - 5,
                _NOTHING.sub("", self._last).replace("of about ", "of ~"),
                [f"{time.monotonic() - self._began:.0f} s", self._left(), *self._measured[-1:]],
            )
            self._terminal.rewrite(f"  · {line}", erase=True, light=True)
            self._flush()
            self._drawn = True

    def _clear(self) -> None:
        if self._drawn:
            with self._written():
                self._terminal.rewrite("", erase=True)
                self._terminal.rewrite("")
                self._flush()
            self._drawn = False

    def _flush(self) -> None:
        """Show a line that is still unfinished."""
        self._terminal.flush()

    def _written(self) -> contextlib.AbstractContextManager[object]:
        return self._capture.global_and_fixture_disabled() if self._capture else contextlib.nullcontext()


def _figure(rate: str) -> str:
    """Format a rate with at most three digits before the point, and one decimal below 100."""
    return rate.partition(".")[0] if len(rate.partition(".")[0]) > 2 else rate


def _fitting(width: int, text: str, rest: Sequence[str]) -> str:
    """Join a text and its details within the width: words are not cut, and the time is dropped first."""
    elapsed, left, *measured = rest
    for more in ((elapsed, left, *measured), (left, *measured), (elapsed, *measured), (elapsed, left), (elapsed,)):
        line = " · ".join(filter(None, (text, *more)))
        if len(line) <= width:
            return line
    room = max(1, width - len(elapsed) - 3)
    return f"{textwrap.shorten(text, room, placeholder=' …', break_on_hyphens=False)} · {elapsed}"
