"""How tests wait: for a condition, and no longer than only a hang takes; what is to pass, passes on a clock of its own."""

import asyncio
import selectors
import time

HANG_S = 600.0
"""Longer than anything here takes where all takes ten times as long as it should; no test that passes waits for it."""
KUBECTL_LIMIT = f"--timeout={HANG_S:.0f}s"
"""The same for `kubectl wait` and its like, which else give up early, or never."""
LOOK_S = 0.02
NOT_YET = (LookupError, TypeError, AttributeError, StopIteration)
"""What a condition raises that asks for more than there is so far."""


def until(condition, what="the condition", told=lambda: ""):
    """Return what the condition answers once it is true; fail where it stays false, with the text of `told`."""
    end = time.monotonic() + HANG_S
    while True:
        value, lacks = _look(condition)
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {HANG_S:.0f} s {told()}") from lacks
        time.sleep(LOOK_S)


async def seen(condition, what="the condition", told=None):
    """`until` in an event loop, which goes on meanwhile; `told` is awaited."""
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
    """Run it where seconds pass at once when nothing else is left to do: nothing is late, and nothing is still to come.

    For what lives in its event loop alone: no process, no thread, no socket is waited for.
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
        """Be at once where the next timer is due, in `timeout` seconds."""
        assert timeout is not None, "all wait, and nothing is left that could happen"
        self.now += timeout
        return super().select(0)
