"""Waiting in tests: for a condition, with a limit that only a hang reaches; elapsed time is virtual."""

import asyncio
import selectors
import time

HANG_S = 600.0
"""Longer than any step, even if everything takes ten times as long; no passing test waits for it."""
KUBECTL_LIMIT = f"--timeout={HANG_S:.0f}s"
"""The limit of `kubectl wait` and similar commands, which otherwise give up early, or never."""
LOOK_S = 0.02
NOT_YET = (LookupError, TypeError, AttributeError, StopIteration)
"""Exceptions of a condition that accesses missing data."""


def until(condition, what="the condition", told=lambda: ""):
    """Return the condition's value once it is true; fail if it stays false, with the text of `told`."""
    end = time.monotonic() + HANG_S
    while True:
        value, lacks = _look(condition)
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {HANG_S:.0f} s {told()}") from lacks
        time.sleep(LOOK_S)


async def seen(condition, what="the condition", told=None):
    """`until` in an event loop, which continues meanwhile; `told` is awaited."""
    clock = asyncio.get_running_loop().time
    end = clock() + HANG_S
    while True:
        value, lacks = _look(condition)
        if value:
            return value
        if clock() > end:
            raise AssertionError(
                f"{what} did not come true within {HANG_S:.0f} s {await told() if told else ''}"
            ) from lacks
        await asyncio.sleep(LOOK_S)


def _look(condition):
    try:
        return condition(), None
    except NOT_YET as lacks:
        return None, lacks


def in_no_time(coroutine):
    """Run it with seconds that pass at once when no other work is left: nothing is late or still pending.

    For code that lives in its event loop alone: it waits for no process, thread or socket.
    """
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(coroutine)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self):
        self._clock = _Clock()
        super().__init__(self._clock)

    def time(self):
        return self._clock.now


class _Clock(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout=None):
        """Advance to the next timer at once, in `timeout` seconds."""
        assert timeout is not None, "all wait, and no event remains"
        self.now += timeout
        return super().select(0)
