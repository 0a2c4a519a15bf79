"""Reachability of a peer on ports like NCCL's, and the rate of TCP to it.

NCCL listens on ports that the kernel picks (net.ipv4.ip_local_port_range) and connects to its peers' in both directions
(docs.nvidia.com, NCCL: NCCL_SOCKET_IFNAME and bootstrap). A policy that opens only MASTER_PORT makes it hang. So every
rank listens on a few such ports for a moment, and the others connect to them. The bytes sent are bounded in time and in
number, so that a production network is not loaded.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .files import first_line

CONNECT_S = 2.0  # one SYN is retransmitted after 1 s
BLOCK = bytes(256 << 10)
MAX_BYTES = 4 << 30  # in total; two seconds at 16 Gb/s
SLICE_S = 0.05
DEFAULT_RANGE = (32768, 60999)  # Linux's default


def local_range(path: str = "/proc/sys/net/ipv4/ip_local_port_range") -> Tuple[int, int]:
    """Return the first and the last port of the kernel's range."""
    try:
        first, last = map(int, (first_line(path) or "").split())
    except ValueError:
        return DEFAULT_RANGE
    return (first, last) if 0 < first < last < 65536 else DEFAULT_RANGE


class Listeners:
    """A few listening ports, spread over the range; a client sends the run's token first."""

    def __init__(self, host: str, token: bytes, ports: Sequence[int], count: int = 4) -> None:
        self._token = token
        self._closing = threading.Event()
        self._lines: List[socket.socket] = []
        self.error: Optional[str] = None
        self.ports: List[int] = []
        for port in ports or _spread(count):
            line = self._listen(host, port, chosen=bool(ports))
            if line is not None:
                self._lines.append(line)
                self.ports.append(int(line.getsockname()[1]))
                threading.Thread(target=self._accept, args=(line,), daemon=True).start()

    def _listen(self, host: str, port: int, chosen: bool) -> Optional[socket.socket]:
        line = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        for attempt in range(8):
            try:
                line.bind((host, port if chosen else port + attempt))
                line.listen(64)
            except OSError as error:
                self.error = "cannot listen on port %d: %s" % (port, error.strerror)
                if chosen:
                    break
            else:
                line.settimeout(0.5)
                return line
        line.close()
        return None

    def close(self) -> None:
        """Stop listening."""
        self._closing.set()

    def _accept(self, line: socket.socket) -> None:
        with line:
            while not self._closing.is_set():
                try:
                    accepted, _ = line.accept()
                except OSError:  # no client within half a second, or its connection was reset before it was accepted
                    continue
                threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        """Check the token; then count the received bytes until the sender has finished, and report the rate."""
        with line:
            line.settimeout(5)
            try:
                if _exactly(line, len(self._token)) != self._token:
                    return
                line.sendall(b"k")
                line.sendall(json.dumps(_count(line)).encode("ascii"))
            except OSError:
                return


def _exactly(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        block = line.recv(size - len(data))
        if not block:
            break
        data += block
    return data


def _count(line: socket.socket) -> Dict[str, Any]:
    """Read to the end; return bytes, duration, the best slice, and how long this thread waited for a CPU."""
    buffer = bytearray(1 << 20)
    waited, began = cpu_wait_s(), time.monotonic()
    last, before, total = began, _unread(line), 0
    peak = 0.0
    while total < 2 * MAX_BYTES:
        got = line.recv_into(buffer)
        now = time.monotonic()
        total += got
        if now - last >= SLICE_S:  # a shorter slice is not meaningful
            arrived = total + _unread(line)
            peak = max(peak, (arrived - before) * 8 / (now - last) / 1e9)
            last, before = now, arrived
        if got == 0:
            break
    seconds = time.monotonic() - began
    return {"bytes": total, "seconds": round(seconds, 4), "peak_gbit_s": round(peak, 4), "cpu_wait_s": _since(waited)}


def _unread(line: socket.socket) -> int:
    """Return how many bytes have arrived and are unread (SIOCINQ, tcp(7)); 0 if unknown."""
    try:
        import fcntl  # noqa: PLC0415  (some minimal Pythons are built without it)
        import termios  # noqa: PLC0415

        return int(struct.unpack("i", fcntl.ioctl(line, termios.FIONREAD, bytes(4)))[0])
    except (ImportError, OSError):
        return 0


def cpu_wait_s(path: str = "/proc/thread-self/schedstat") -> Optional[float]:
    """Return for how many seconds this thread was runnable without a CPU; None if the kernel does not report it.

    The second value, in nanoseconds: https://docs.kernel.org/scheduler/sched-stats.html#proc-pid-schedstat. It grows on
    a busy node and under a CPU limit.
    """
    try:
        return int((first_line(path) or "").split()[1]) / 1e9
    except (ValueError, IndexError):
        return None


def _since(before: Optional[float]) -> Optional[float]:
    now = cpu_wait_s()
    return None if before is None or now is None else round(now - before, 4)


def _spread(count: int) -> List[int]:
    first, last = local_range()
    width = (last - first) // count
    return [first + width * number + random.randrange(max(1, width - 8)) for number in range(count)]  # noqa: S311


def dial(address: str, port: int, token: bytes) -> Tuple[Optional[socket.socket], Optional[str]]:
    """Connect and send the token; return the connection, or the error."""
    try:
        line = socket.create_connection((address, port), timeout=CONNECT_S)
    except socket.timeout:
        return None, "no answer within %.0f s" % CONNECT_S
    except OSError as error:
        return None, (error.strerror or str(error)).lower()
    try:
        line.sendall(token)
        if _exactly(line, 1) == b"k":
            return line, None
        why = "something else answers on this port"
    except socket.timeout:
        why = "connected, but no answer"
    except OSError as error:
        why = (error.strerror or str(error)).lower()
    line.close()
    return None, why


def send(line: socket.socket, seconds: float) -> Dict[str, Any]:
    """Send for at most so many seconds; return the bytes that the receiver counted, or `error`.

    `cpu_wait_s` is the sum of both sides' waits for a CPU, or None; simultaneous waits count twice.
    """
    line.settimeout(seconds + 3)
    waited = cpu_wait_s()
    limit, sent = time.monotonic() + seconds, 0
    try:
        while time.monotonic() < limit and sent < MAX_BYTES:
            sent += line.send(BLOCK)
        line.shutdown(socket.SHUT_WR)
        text = b""
        while len(text) < 4096:
            block = line.recv(4096)
            if not block:
                break
            text += block
        answer = json.loads(text.decode("ascii"))
    except socket.timeout:
        return {"error": "the connection stalled after %d bytes" % sent}
    except (OSError, ValueError, RecursionError) as error:
        return {"error": "the connection was lost: %s" % error}
    if not isinstance(answer, dict):
        return {"error": "no answer"}
    ours, theirs = _since(waited), answer.get("cpu_wait_s")
    answer["cpu_wait_s"] = None if ours is None or not isinstance(theirs, (int, float)) else round(ours + theirs, 4)
    return answer
