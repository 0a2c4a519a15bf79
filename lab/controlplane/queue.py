"""The controllers' work queue, with delays and retries after failures.

A key is queued once, independent of the number of its changes. The work is a synchronous function on the store,
therefore atomic, and is called from the event loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

Key = tuple[str, str]
"""(namespace, name)."""
FIRST_S, MAX_S = 1.0, 60.0
"""Back-off of the job controller (DefaultJobApiBackOff, MaxJobApiBackOff in pkg/controller/job)."""


class Queue:
    """A queue that calls `work(key)`, which returns the seconds until the next call, or None."""

    def __init__(self, work: Callable[[Key], float | None]) -> None:
        self._work = work
        self._keys: dict[Key, None] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._due = False
        self._closed = False

    def add(self, key: Key) -> None:
        """Process a key in the next iteration of the loop."""
        if self._closed:
            return
        self._keys[key] = None
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._run)

    def later(self, key: Key, seconds: float) -> None:
        """Process a key again after a delay; an earlier timer stays."""
        loop = asyncio.get_running_loop()
        held = self._timers.get(key)
        if held is not None:
            if held.when() <= loop.time() + seconds:
                return
            held.cancel()
        self._timers[key] = loop.call_later(max(seconds, 0), self._ring, key)

    def _ring(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def failed(self, key: Key) -> float:
        """Count a failure; return the delay before the next attempt."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        return float(min(FIRST_S * 2**count, MAX_S))

    def forget(self, key: Key) -> None:
        """Forget the failures of a key."""
        self._failures.pop(key, None)

    def _run(self) -> None:
        self._due = False
        keys, self._keys = list(self._keys), {}
        for key in keys:
            if self._closed:
                return
            try:
                again = self._work(key)
            except Exception as error:  # noqa: BLE001 - one broken object must not stop the work on all others
                again = self.failed(key)
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"controller failed on {key}, again in {again:.0f} s", "exception": error}
                )
            if again is not None:
                self.later(key, again)

    def close(self) -> None:
        """Stop, and cancel all timers."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
