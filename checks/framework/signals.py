"""The signals that end a run: noted at any time, raised as KeyboardInterrupt only where the run can unwind safely.

Start-up, clean-up and report writing are short and bounded: a signal received there is acted on afterwards. The first
signal ends the run; later ones are ignored.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
INTERRUPTED = 2
"""pytest's exit code for a run that a signal ended, used by every command."""


class Ending:
    """The handler of all terminating signals; ``received`` names the first one received, '' before."""

    def __init__(self) -> None:
        self.received = ""
        self._raises = False

    def __call__(self, number: int, _: FrameType | None) -> None:
        """Note the signal; raise KeyboardInterrupt while a block of `interruptible` lasts."""
        name = signal.Signals(number).name
        self.received = self.received or name
        if self._raises:
            raise KeyboardInterrupt(f"received {name}")

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let signals raise KeyboardInterrupt in this block; `check` raises for an earlier one."""
        try:
            self._raises = True
            yield
        finally:
            self._raises = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal was received, even if it was caught elsewhere."""
        if self.received:
            raise KeyboardInterrupt(f"received {self.received}")

    def over(self) -> None:
        """Ignore signals from now on: the verdict is decided, and the process ends soon."""
        for number in NUMBERS:
            signal.signal(number, signal.SIG_IGN)


def install() -> Ending:
    """Install handlers for the terminating signals, once per process; those ignored by ``nohup`` stay ignored."""
    handler = signal.getsignal(signal.SIGTERM)
    if isinstance(handler, Ending):
        return handler
    ending = Ending()
    for number in NUMBERS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, ending)
    return ending


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Turn terminating signals into KeyboardInterrupt in this block, for commands that have nothing to clean up."""
    if threading.current_thread() is not threading.main_thread():  # Python can install handlers in the main thread only
        yield
        return
    before = {number: signal.getsignal(number) for number in NUMBERS}
    try:
        ending = install()
        with ending.interruptible():
            ending.check()
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def child(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that cleans up after itself, and forward signals to it; it never outlives the block."""
    early: list[int] = []
    started: list[subprocess.Popen[bytes]] = []

    def tell(number: int, _: FrameType | None) -> None:
        for each in started:
            each.send_signal(number)
        early.append(number)

    before = {number: signal.signal(number, tell) for number in NUMBERS}
    process = subprocess.Popen(command, env=environment)
    try:
        started.append(process)
        if early:
            process.send_signal(early[0])
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        for number, handler in before.items():
            signal.signal(number, handler)
