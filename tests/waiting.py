"""How tests wait: for a condition, and no longer than only a hang takes."""

import time

HANG_S = 120.0
"""Far longer than anything here takes on a machine under load; no test that passes waits for it."""


def until(condition, what="the condition", *, look_s=0.02):
    """Return what the condition answers once it is true; fail where it stays false."""
    end = time.monotonic() + HANG_S
    while not (value := condition()):
        assert time.monotonic() < end, f"{what} did not come true within {HANG_S:.0f} s"
        time.sleep(look_s)
    return value
