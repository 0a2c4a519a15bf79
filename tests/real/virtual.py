"""Virtual time: the product's own threads, one at a time, on a clock that only advances when all of them wait.

`World.patch` replaces Python's `time` and `threading` by this module's in every loaded module of the product. Exactly
one of the threads runs. When it waits (sleep, Event, Condition, join, or the player's `World.block`), the next ready
one runs. If none is ready, the clock jumps to the nearest deadline. So minutes pass in milliseconds, every grace period
is respected, and a play has the same course each time.
"""

import contextlib
import datetime
import sys
import threading
import time
import types
from collections import deque

END = 4 * 3600.0


class OutOfTime(BaseException):
    """No event remains, or the play has lasted longer than any trial may."""


class Thread:
    """A thread of the world, with the part of threading.Thread that the product uses."""

    def __init__(self, world, target=None, name="", daemon=True, args=(), kwargs=None):
        self.world, self.name, self.daemon = world, name, daemon
        self._target, self._args, self._kwargs = target, args, kwargs or {}
        self.baton = threading.Lock()
        self.baton.acquire()
        self.deadline = None
        self.waits_for = None
        self.woken = False
        self.over = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self):
        self._thread.start()
        self.world.ready.append(self)

    def _run(self):
        self.world.own.add(threading.get_ident())
        self.baton.acquire()
        try:
            if not self.world.closed:
                self._target(*self._args, **self._kwargs)
        except OutOfTime:
            pass
        finally:
            self.over = True
            self.world.wake(self)
            self.world.hand_on()

    def join(self, timeout=None):
        if not self.over:
            self.world.block(None if timeout is None else self.world.now + timeout, self)

    def is_alive(self):
        return not self.over


class Lock:
    def __init__(self, world):
        self._world, self._owner, self._depth = world, None, 0

    def acquire(self):
        while self._owner not in (None, self._world.current):
            self._world.block(None, self)
        self._owner = self._world.current
        self._depth += 1
        return True

    def release(self):
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._world.wake(self)

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *_):
        self.release()


class Event:
    def __init__(self, world):
        self._world, self._set = world, False

    def is_set(self):
        return self._set

    def set(self):
        self._set = True
        self._world.wake(self)

    def clear(self):
        self._set = False

    def wait(self, timeout=None):
        if not self._set:
            self._world.block(None if timeout is None else self._world.now + timeout, self)
        return self._set


class Condition(Lock):
    def wait(self, timeout=None):
        depth, self._depth, self._owner = self._depth, 0, None
        self._world.wake(self)
        woken = self._world.block(None if timeout is None else self._world.now + timeout, (self, "notified"))
        self.acquire()
        self._depth = depth
        return woken

    def notify_all(self):
        self._world.wake((self, "notified"))


class World:
    """A clock and the threads that use it; `now` is in seconds, `wall` the time of day at 0."""

    def __init__(self, wall):
        self.now, self.wall, self.closed = 0.0, wall, False
        self.ready: deque[Thread] = deque()
        self.waiting: list[Thread] = []
        self.own = {threading.get_ident()}
        self.main = Thread(self, name="main")
        self.current = self.main

    def block(self, deadline, key):
        """Wait until `wake(key)` or the deadline; True if it was woken."""
        me = self.current
        if self.closed:
            raise OutOfTime
        me.deadline, me.waits_for, me.woken = deadline, key, False
        self.waiting.append(me)
        self.hand_on(me)
        if self.closed and me is not self.main:
            raise OutOfTime
        if me is self.main and self.now > END:
            raise OutOfTime
        return me.woken

    def wake(self, key):
        for thread in [t for t in self.waiting if t.waits_for == key]:
            self._release(thread, woken=True)

    def _release(self, thread, *, woken):
        self.waiting.remove(thread)
        thread.woken = woken
        self.ready.append(thread)

    def hand_on(self, me=None):
        """Let the next thread run; return when it is this thread's turn again (an ended thread does not return)."""
        if not self.ready:
            timed = [t for t in self.waiting if t.deadline is not None]
            if timed:
                first = min(timed, key=lambda t: t.deadline or 0.0)
                self.now = max(self.now, first.deadline or 0.0)
                self._release(first, woken=False)
            elif self.main in self.waiting:
                self.now = END + 1
                self._release(self.main, woken=False)
            else:
                return
        following = self.ready.popleft()
        self.current = following
        if following is me:
            return
        following.baton.release()
        if me is not None:
            me.baton.acquire()
            self.current = me

    def sleep(self, seconds):
        if threading.get_ident() not in self.own:  # a thread left behind by another test of this process
            time.sleep(max(0.0, seconds))
            return
        self.block(self.now + max(0.0, seconds), object())

    def close(self):
        """End all threads that still wait."""
        self.closed = True
        while self.waiting or self.ready:
            if self.waiting:
                self._release(self.waiting[0], woken=False)
            thread = self.ready.popleft()
            if thread is self.main:
                continue
            self.ready.append(self.main)
            self.current = thread
            thread.baton.release()
            self.main.baton.acquire()
            self.current = self.main

    @contextlib.contextmanager
    def patch(self):
        """Make all loaded modules of the product use this clock."""
        clock = _like(time, monotonic=lambda: self.now, time=lambda: self.wall + self.now, sleep=self.sleep)
        threads = _like(
            threading,
            Thread=lambda **more: Thread(self, **more),
            Lock=lambda: Lock(self),
            RLock=lambda: Lock(self),
            Event=lambda: Event(self),
            Condition=lambda: Condition(self),
        )
        dates = _like(datetime, datetime=self._datetime())
        changed = []
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] not in ("jobs", "seatrial") or module is None:
                continue
            for word, real, ours in (
                ("time", time, clock),
                ("threading", threading, threads),
                ("datetime", datetime, dates),
            ):
                if getattr(module, word, None) is real:
                    setattr(module, word, ours)
                    changed.append((module, word, real))
        try:
            yield
        finally:
            for module, word, real in changed:
                setattr(module, word, real)

    def _datetime(world):  # noqa: N805  (the class below has its own self)
        class Now(datetime.datetime):
            @classmethod
            def now(cls, tz=None):
                return datetime.datetime.fromtimestamp(world.wall + world.now, tz)

        return Now


def _like(module, **ours):
    made = types.ModuleType(module.__name__)
    made.__dict__.update({key: value for key, value in vars(module).items() if not key.startswith("__")} | ours)
    return made
