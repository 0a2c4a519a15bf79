"""The probe's clock: its deadline, and requests to stop.

Every wait of every stage checks it, so that the probe prints its evidence and exits before Kubernetes kills it.
"""

from __future__ import annotations

import threading
import time

OWN_DEADLINE = "the probe's own deadline"


class Watch:
    """The probe's deadline; `stop` is called by signals and by the deadline itself."""

    def __init__(self, deadline_s: float, reserve_s: float, before_s: float = 0.0) -> None:
        self.began = time.monotonic()
        self._deadline_s, self._reserve_s = deadline_s, reserve_s
        self.ends = self.began + before_s + deadline_s
        self.soft_ends = self.ends - reserve_s
        self.reason = ""
        self.asked = ""  # a signal's name: handlers only set this, since a lock there could deadlock
        self._event = threading.Event()

    def all_met(self) -> None:
        """Start the deadline now: the waiting time that `before_s` allowed is over."""
        self.ends = min(self.ends, time.monotonic() + self._deadline_s)
        self.soft_ends = self.ends - self._reserve_s

    def elapsed(self) -> float:
        """Return the seconds since the probe started."""
        return time.monotonic() - self.began

    def left(self) -> float:
        """Return the seconds that stages may still use; 0 when stopped."""
        if self._event.is_set():
            return 0.0
        return max(0.0, self.soft_ends - time.monotonic())

    def stop(self, reason: str) -> None:
        """Request every stage to finish; the first reason is kept."""
        if not self._event.is_set():
            self.reason = reason
            self._event.set()

    def expired(self) -> bool:
        """Return whether the deadline stopped the stages, and not a signal."""
        return self._event.is_set() and self.reason == OWN_DEADLINE

    def interrupted(self) -> bool:
        """Return whether a signal stopped the stages early."""
        return self._event.is_set() and self.reason != OWN_DEADLINE

    def stopped(self) -> bool:
        """Return whether stages should finish now."""
        if not self._event.is_set():
            if self.asked:
                self.stop(self.asked)
            elif time.monotonic() >= self.soft_ends:
                self.stop(OWN_DEADLINE)
        return self._event.is_set()
