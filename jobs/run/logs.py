"""The log follower: each line of a pod from its first to its last, exactly once.

A follow connection may break: the API server restarts, a proxy times out, the kubelet rotates the file. Lines are
requested with timestamps, starting with the second of the last line. Lines of that second that were read before are
recognised individually, so that none is lost or doubled, and a gap after a rotation is detected. All lines are redacted
before they are written.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from ..cluster.client.errors import ApiError, ClusterError, Forbidden, Invalid, NotFound
from ..cluster.client.kube import Kube
from ..cluster.client.reading import CancelToken
from ..cluster.redact import LineRedactor, safe
from .evidence import EvidenceReader, MultiplexedReader

# RFC 3339 with nanoseconds, as the kubelet writes it before each line (pkg/kubelet/kuberuntime/logs), in the time zone
# of the node's container runtime.
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d) ")
_STARTS = re.compile(rb"seatrial rank 0: ([\w.-]{1,80}) starts\s*$")  # of mpirun, after the rank's tag
_MEASURED = re.compile(rb"seatrial (rank 0: collective\.[\w.-]{1,80}: \d{1,9} \w{1,3} [\d.]{1,12} GB/s)\s*$")
_WAITS = re.compile(rb"seatrial rank \d+: (?:\w+: waits for |sweep: )")  # messages for a waiting user
LARGEST_FILE = 64 << 20
_LONGEST_LINE = 1 << 20
_MOST_OF_ONE_SECOND = 200_000
_RECONNECT_S = 600.0
# A proxy that loses its connection ends ours as if the log were complete. Without the probe's last line, an end is
# accepted after so many consecutive reads without new lines.
_CONFIRMED = 3
# A restarted API server answers 403, 401 or 404 until it has read its roles and objects again, for about a second,
# longer if there are many. Requests are repeated with growing pauses while the container runs, and for this time
# afterwards.
_REFUSED_S = 15.0
_LONGEST_PAUSE_S = 5.0
_LAST = 40
_SHOWN = 500


class Follower:
    """A thread that follows one container's log into a file and into the rank's evidence."""

    def __init__(
        self,
        kube: Kube,
        pod: str,
        *,
        namespace: str,
        container: str,
        reader: EvidenceReader | MultiplexedReader,
        finished: Callable[[], bool],
        file: Path | None = None,
        on_stage: Callable[[str], None] = lambda _: None,
        waits: Callable[[str], None] = lambda _: None,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        self.pod = pod
        self.file = file
        self.reader = reader
        self.last: deque[str] = deque(maxlen=_LAST)  # its last lines other than evidence, to explain a failure
        self.problem = ""
        self.heard = False
        self.gap = False
        self._kube, self._namespace, self._container = kube, namespace, container
        self._finished, self._on_stage, self._waits, self._on_line = finished, on_stage, waits, on_line
        self._resume = Resume()
        self._redactor = LineRedactor()
        self._out: TextIO | None = None
        self._written = 0
        self._rest = b""
        self._moved = False
        self._stop = threading.Event()
        self._cancel_token = CancelToken()
        self.unkept = ""  # why the file is incomplete: an error of our own disk, not of the pod
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start following, or resume after an early end, for example when a list lacked the pod."""
        if self._thread is None or not (self._thread.is_alive() or self.reader.ended):
            self._thread = threading.Thread(target=self._run, name=f"log {self.pod}", daemon=True)
            self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the log; return False if it has not ended."""
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Stop now, even if more lines may follow."""
        self._stop.set()
        self._cancel_token.cut()
        self.join(2.0)

    def _run(self) -> None:
        try:
            self._open()
            self._follow()
        finally:
            self._close()

    def _open(self) -> None:
        if self.file is None or self.unkept:
            return
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self._out = self.file.open("a" if self._written else "w", encoding="utf-8", errors="replace")
        except OSError as error:
            self._give_up(error)

    def _close(self) -> None:
        try:
            if self._out is not None:
                self._out.close()
        except OSError as error:
            self._give_up(error)
        self._out = None

    def _give_up(self, error: OSError) -> None:
        """Stop writing the log: our disk is full, or not writable. The pod's evidence is still read."""
        self.unkept = f"the log of {self.pod} is not kept whole in {self.file}: {error.strerror or error}"
        out, self._out = self._out, None
        with contextlib.suppress(OSError):
            if out is not None:
                out.close()

    def _follow(self) -> None:
        pause, silent = 0.2, 0
        refused: float | None = None  # when a series of refusals began
        while not self._stop.is_set():
            # Checked before reading: the output of a finished container is complete when reading starts.
            over = self._finished()
            try:
                self._read(follow=not over)
            except ApiError as error:
                now = time.monotonic()
                refused = now if refused is None or self._moved else refused
                self.problem = _refusal(error, now - refused)
                # A missing log or pod is accepted after three responses.
                silent = silent + 1 if over and isinstance(error, NotFound | Invalid) else 0
                if over and (silent >= _CONFIRMED or now - refused >= _REFUSED_S):
                    return
                waits = isinstance(error, Invalid) or over  # "container is waiting to start": temporary
                pause = 0.2 if waits or self._moved else min(pause * 2, _LONGEST_PAUSE_S)
            except ClusterError as error:
                self.problem, refused = str(error), None
                pause = 0.2 if self._moved else min(pause * 2, _LONGEST_PAUSE_S)
            else:
                self.problem, refused = "", None
                silent = silent + 1 if over and not self._moved else 0
                whole = self.reader.ended and not self._rest
                if (over and (whole or silent >= _CONFIRMED)) or (whole and self._finished()):
                    break
                pause = 0.2 if self._moved or over else min(pause * 1.5, 2.0)
            self._stop.wait(pause)
        if self._rest:  # no connection follows: the incomplete line is final
            self._take(self._rest)

    def _read(self, *, follow: bool) -> None:
        """Read one connection to its end; set `_moved` if it had a new line."""
        since = f"{self._resume.second}Z" if self._resume.second else None
        self._resume.again()
        self._moved = False
        self._rest = rest = b""
        with self._kube.log_stream(
            self._namespace,
            self.pod,
            deadline_s=_RECONNECT_S,
            cancel_token=self._cancel_token,
            container=self._container,
            timestamps=True,
            follow=follow,
            sinceTime=since,
        ) as chunks:
            for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(line)
                while len(rest) > _LONGEST_LINE:  # cut at the same place in every read
                    self._take(rest[:_LONGEST_LINE])
                    rest = rest[_LONGEST_LINE:]
                self._write()
        self._rest = rest  # an incomplete last line is read again, until it is complete

    def _take(self, line: bytes) -> None:
        match = _STAMP.match(line)
        # Text without a timestamp continues a cut line.
        second = _utc(match[1], match[2]) if match else self._resume.second
        if not self._resume.new(second, line):
            return
        self._moved = self.heard = True
        self.gap = self.gap or self._resume.gap
        text = line[match.end() :] if match else line
        taken, stage = self.reader.feed(text), _STARTS.search(text)
        if stage and not taken:
            self._on_stage(stage[1].decode())
        elif measured := _MEASURED.search(text):
            self._waits(measured[1].decode())
        elif _WAITS.match(text):
            self._waits(safe(text.decode("utf-8", "replace").removeprefix("seatrial "), 400))
        elif not (taken or text.startswith(b"seatrial ")):
            self.last.append(text[:_SHOWN].decode("utf-8", "replace"))
        if self._on_line is not None:
            self._on_line(self._redactor.line(text.decode("utf-8", "replace")))
        self._write(text)

    def _write(self, line: bytes | None = None) -> None:
        """Write a line to the file; without one, flush the lines so far."""
        if self._out is None or (line is not None and self._written > LARGEST_FILE):
            return
        try:
            if line is None:
                self._out.flush()
                return
            text = self._redactor.line(line.decode("utf-8", "replace"))
            self._written += len(text) + 1
            self._out.write(text + "\n")
            if self._written > LARGEST_FILE:
                self._out.write(f"[cut here by seatrial: more than {LARGEST_FILE >> 20} MiB]\n")
        except OSError as error:
            self._give_up(error)


def _refusal(error: ApiError, lasted_s: float) -> str:
    """Describe a refusal; a lasting one with the missing permission."""
    if lasted_s < _REFUSED_S:
        return str(error)
    if isinstance(error, Forbidden):
        return f"{error}; for {lasted_s:.0f} s: no permission to get pods/log (seatrial rbac shows the Role)"
    return f"{error}; for {lasted_s:.0f} s"


@functools.lru_cache(maxsize=16)
def _utc(second: bytes, offset: bytes) -> str:
    """Return the second of a timestamp in UTC, as `sinceTime` requires; an invalid time is returned unchanged."""
    text = second.decode()
    if offset == b"Z":
        return text
    try:
        moment = datetime.datetime.fromisoformat(text + offset.decode()).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return text
    return moment.strftime("%Y-%m-%dT%H:%M:%S")


class Resume:
    """The state to recognise lines that were read before, in a connection that begins at a known second.

    A log's order in the file is fixed and `sinceTime` filters line by line. So a new connection begins with exactly the
    lines received with a timestamp in or after that second.
    """

    def __init__(self) -> None:
        self.second = ""
        self.gap = False
        self._hashes: deque[int] = deque(maxlen=_MOST_OF_ONE_SECOND)
        self._expected: deque[int] | None = None

    def again(self) -> None:
        """Prepare for a new connection."""
        self._expected = deque(self._hashes) if self.second else None

    def new(self, second: str, line: bytes) -> bool:
        """Return whether this line was not read before."""
        if self._expected is not None:
            if second and second < self.second:
                return False  # a server that ignores sinceTime
            key = hash(line)
            if key in self._expected:
                while self._expected.popleft() != key:
                    pass
                if not self._expected:
                    self._expected = None
                return False
            # None of the expected lines was repeated: the file was rotated meanwhile, and lines may be lost.
            self.gap = self.gap or len(self._expected) == len(self._hashes)
            self._expected = None
        if second > self.second:
            self.second = second
            self._hashes.clear()
        if second >= self.second:
            self._hashes.append(hash(line))
        return True


def tail(kube: Kube, namespace: str, pod: str, container: str, lines: int) -> list[str]:
    """Return the last lines of a container, redacted; [] if it has none yet."""
    redactor = LineRedactor()
    try:
        with kube.log_stream(namespace, pod, deadline_s=30.0, container=container, tailLines=lines) as chunks:
            text = b"".join(chunks)
    except ApiError as error:
        if error.status in {400, 404}:
            return []
        raise
    return [redactor.line(line) for line in text.decode("utf-8", "replace").splitlines()]
