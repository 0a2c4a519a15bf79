"""Progress of long work: each step on a terminal; in a log, where that would drown the rest, a line every 15 s.

A step reports itself by a call. What goes on in silence, such as the reading of nodes, is named by ``doing``: only the
line in a log says it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from jobs.cluster.redact import redact

QUIET = -2
"""Verbosity of test cases up to which a run prints one line (-q)."""
EVERY_S = 15.0
"""Seconds between two lines in a log: CI systems take a job that says nothing for minutes as hanging."""


class Progress:
    """Call it with what is done or waited for, from any thread; ``close`` it when the run is over."""

    def __init__(self, config: pytest.Config, every_s: float = EVERY_S) -> None:
        self._terminal: Any = config.pluginmanager.getplugin("terminalreporter")
        self._capture: Any = config.pluginmanager.getplugin("capturemanager")
        self._lock = threading.Lock()  # the threads that follow logs tell of their progress, too
        self._every_s = every_s
        self._last, self._since = "starting", time.monotonic()
        self._closed = threading.Event()
        self._reminder: threading.Thread | None = None
        quiet = config.get_verbosity(pytest.Config.VERBOSITY_TEST_CASES) <= QUIET
        quiet = quiet or config.getoption("--print-manifests")  # a stream of YAML and nothing else
        if self._terminal is not None and not self._terminal.isatty and not quiet:
            self._reminder = threading.Thread(target=self._remind, name="progress", daemon=True)
            self._reminder.start()

    def __call__(self, text: str) -> None:
        """Tell what is done or waited for now."""
        self._last, self._since = redact(text), time.monotonic()
        if self._terminal is not None and self._terminal.isatty:
            self._write(self._last)

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Name what is done inside of this block, which says nothing itself."""
        before = self._last, self._since
        self._last, self._since = redact(what), time.monotonic()
        try:
            yield
        finally:
            self._last, self._since = before

    def close(self) -> None:
        """Say nothing more."""
        self._closed.set()
        if self._reminder is not None:
            self._reminder.join()

    def _remind(self) -> None:
        while not self._closed.wait(self._every_s):
            self._write(f"{self._last} (for {time.monotonic() - self._since:.0f} s)")

    def _write(self, text: str) -> None:
        with self._lock, self._capture.global_and_fixture_disabled() if self._capture else contextlib.nullcontext():
            self._terminal.write_line(f"  · {text}", light=True)
