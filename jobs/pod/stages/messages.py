"""Short JSON lines over one TCP connection between two probes; unknown peers are refused, every read is bounded.

A connection starts with a hello (run, rank, address, clock). Without it, or for another run, it is closed without an
answer: on a real cluster scanners, service meshes and other jobs connect to MASTER_PORT, too.
"""

from __future__ import annotations

import contextlib
import errno
import json
import selectors
import socket
import struct
import threading
import time
from typing import Any, Callable, Dict, Optional

MAX_LINE = 4096
HELLO_TIMEOUT_S = 5.0
REFUSED = "connection refused"


class NoAnswerError(Exception):
    """The peer closed, did not answer, or did not use this protocol."""


class Peer:
    """A connection with another probe: messages are read singly until both have sent hello, then continuously."""

    def __init__(self, line: socket.socket) -> None:
        self.open = True
        self.most = MAX_LINE  # bytes of a message; an identified peer may get a higher limit
        self._line = line
        self._buffer = b""
        self._lock = threading.Lock()
        with contextlib.suppress(OSError):  # detects a lost node within half a minute
            line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
                if hasattr(socket, name):
                    line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def say(self, message: Dict[str, Any]) -> None:
        """Send one message; raises OSError when the connection is gone."""
        with self._lock:
            self._line.sendall(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")

    def send(self, message: Dict[str, Any]) -> bool:
        """Send one message; False when the connection is gone."""
        try:
            self.say(message)
        except OSError:
            return False
        return True

    def next(self, timeout_s: Optional[float]) -> Dict[str, Any]:
        """Return the next message; raise NoAnswerError on a timeout, the end, or an invalid message."""
        limit = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            if len(self._buffer) > self.most:
                raise NoAnswerError("something else answers on this port")
            try:
                if limit is not None:  # without a limit the mode stays unchanged: another thread may be sending
                    self._line.settimeout(max(0.01, limit - time.monotonic()))
                block = self._line.recv(MAX_LINE)
            except socket.timeout:
                raise NoAnswerError("connected, but no answer to the handshake") from None
            except OSError as error:
                raise NoAnswerError("connection lost: %s" % (error.strerror or error)) from None
            if not block:
                raise NoAnswerError("connection closed by the other side")
            self._buffer += block
        text, _, self._buffer = self._buffer.partition(b"\n")
        try:
            message = json.loads(text.decode("utf-8"))
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict) or message.get("seatrial") != 1:
            raise NoAnswerError("something else answers on this port")
        return message

    def known(self, send_s: float = 0) -> None:
        """Wait for messages without limit from now on, and at most `send_s` for each that is sent; 0: without limit."""
        self._line.settimeout(None)
        # Limits only sending: settimeout would also interrupt the other thread's reading.
        self._line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(send_s), 0))

    def listen(self, heard: Callable[[Dict[str, Any]], None], ended: Callable[[], None]) -> None:
        """Pass on messages until the connection ends; runs in its own thread."""
        try:
            while True:
                heard(self.next(None))
        except NoAnswerError:
            self.close()
        ended()

    def close(self, abort: bool = False) -> None:
        """Close; `abort` leaves no TIME_WAIT, which only the owner of the port needs."""
        with self._lock:
            if not self.open:
                return
            self.open = False
            try:
                if abort:
                    self._line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                else:
                    self._line.shutdown(socket.SHUT_RDWR)
            except OSError:  # the peer has closed it already
                pass
            self._line.close()


def connect(address: str, port: int, timeout_s: float) -> Peer:
    """Open a connection; raise NoAnswerError with the failed step."""
    try:
        return Peer(socket.create_connection((address, port), timeout=timeout_s))
    except socket.timeout:
        raise NoAnswerError("no answer within %.0f s" % timeout_s) from None
    except OSError as error:
        refused = error.errno == errno.ECONNREFUSED
        raise NoAnswerError(REFUSED if refused else (error.strerror or str(error)).lower()) from None


def serve(
    listener: socket.socket,
    welcome: Callable[[socket.socket], None],
    room: threading.Semaphore,
    closing: threading.Event,
    wake: Optional[socket.socket] = None,
) -> None:
    """Handle each connection in a thread, which releases `room`, until `closing`; `wake` interrupts the wait."""
    listener.settimeout(1)
    with listener, selectors.DefaultSelector() as either:
        for each in filter(None, (listener, wake)):
            either.register(each, selectors.EVENT_READ)
        while not closing.is_set():
            if not any(key.fileobj is listener for key, _ in either.select(1)):
                continue
            try:
                line, _ = listener.accept()
            except OSError:  # the connection was reset before it was accepted
                closing.wait(0.05)
                continue
            if room.acquire(blocking=False):
                threading.Thread(target=welcome, args=(line,), daemon=True).start()
            else:
                line.close()
