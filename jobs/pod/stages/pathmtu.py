"""The largest unfragmented packet that reaches a peer: UDP with "don't fragment", and an echo at the peer.

No permissions are needed: IP_MTU_DISCOVER=PROBE sets the flag and ignores the kernel's cached path MTU (ip(7)), IP_MTU
reads it. There are three results. The full packet arrives. A smaller one does, and a router reports it (ICMP
"fragmentation needed": TCP adapts). Or a smaller one does, and no router reports it: a black hole, where connections
open and then hang.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from typing import Any, Callable, Dict

# linux/in.h and linux/in6.h; Python 3.8's socket module lacks some of them
IP_MTU_DISCOVER, IP_MTU, IPV6_MTU_DISCOVER, IPV6_MTU = 10, 14, 23, 24
PMTUDISC_DO, PMTUDISC_PROBE = 2, 3
HEADERS: Dict[int, int] = {socket.AF_INET: 28, socket.AF_INET6: 48}  # IP and UDP
SMALLEST: Dict[int, int] = {socket.AF_INET: 576, socket.AF_INET6: 1280}  # RFC 1122, RFC 8200: every host accepts it
LARGEST = 65_535
ANSWER_S = 0.25
TRIES = 3
MARK = b"seatrial"
_HEAD = struct.Struct("!8s8sIH")  # mark, token, number, size


class Echo:
    """A server that answers every probe of this run with a short packet containing the received length."""

    def __init__(self, host: str, token: bytes) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._line = socket.socket(family, socket.SOCK_DGRAM)
        self._line.bind((host, 0))
        self._line.settimeout(0.5)
        self._token = token
        self._closing = threading.Event()
        self.port = int(self._line.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._closing.set()

    def _serve(self) -> None:
        with self._line:
            while not self._closing.is_set():
                try:
                    packet, sender = self._line.recvfrom(LARGEST)
                    if len(packet) < _HEAD.size:
                        continue
                    mark, token, number, _ = _HEAD.unpack_from(packet)
                    if mark == MARK and token == self._token:
                        self._line.sendto(_HEAD.pack(MARK, token, number, len(packet)), sender)
                except OSError:  # a timeout, or an answer that could not be sent
                    continue


def measure(record: Dict[str, Any], address: str, port: int, token: bytes, stopped: Callable[[], bool]) -> None:
    """Fill a peer's `path_mtu`, `first_mtu`, `learned_mtu`, `df_ok`; `error` says why they are unknown."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    probe = _Probe(family, address, port, token)
    try:
        first = record["first_mtu"] = probe.believed()
        if not probe.passes(SMALLEST[family]):
            record["mtu_error"] = "no answer to UDP on port %d" % port
            return
        record["df_ok"] = probe.passes(min(first, LARGEST))
        if record["df_ok"]:
            record["path_mtu"] = record["learned_mtu"] = first
            return
        low, high = SMALLEST[family], first
        learned = probe.believed()
        if learned < high:  # a router has reported the path MTU: try it first
            high = learned + 1
            low = learned if probe.passes(learned) else low
        while high - low > 1 and not stopped():
            middle = (low + high) // 2
            low, high = (middle, high) if probe.passes(middle, 2) else (low, middle)
        record["path_mtu"], record["learned_mtu"] = low, probe.believed()
    except OSError as error:
        record["mtu_error"] = (error.strerror or str(error)).lower()
    finally:
        probe.close()


class _Probe:
    """A sender of packets of an exact size."""

    def __init__(self, family: int, address: str, port: int, token: bytes) -> None:
        self._family, self._address, self._port, self._token = family, address, port, token
        self._number = int.from_bytes(os.urandom(2), "big") << 8
        self._line = self._open(PMTUDISC_PROBE)

    def _open(self, mode: int) -> socket.socket:
        line = socket.socket(self._family, socket.SOCK_DGRAM)
        try:
            if self._family == socket.AF_INET6:
                line.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, mode)
            else:
                line.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, mode)
            line.connect((self._address, self._port))
        except OSError:
            line.close()
            raise
        return line

    def believed(self) -> int:
        """Return the kernel's current path MTU: the interface's, until ICMP has reported less."""
        with self._open(PMTUDISC_DO) as line:
            if self._family == socket.AF_INET6:
                return line.getsockopt(socket.IPPROTO_IPV6, IPV6_MTU)
            return line.getsockopt(socket.IPPROTO_IP, IP_MTU)

    def passes(self, size: int, tries: int = TRIES) -> bool:
        """Return whether a packet of `size` bytes, headers included, is answered."""
        room = size - HEADERS[self._family]
        for _ in range(tries):
            self._number += 1
            head = _HEAD.pack(MARK, self._token, self._number & 0xFFFFFFFF, room & 0xFFFF)
            try:
                self._line.send(head.ljust(room, b"\0"))
                if self._answered(room):
                    return True
            except ConnectionRefusedError:  # ICMP: the port is closed
                continue
            except OSError:  # larger than the interface's MTU, or than ICMP has just reported
                continue
        return False

    def _answered(self, room: int) -> bool:
        limit = time.monotonic() + ANSWER_S
        while True:
            left = limit - time.monotonic()
            if left <= 0:
                return False
            self._line.settimeout(left)
            try:
                packet = self._line.recv(1024)
            except socket.timeout:
                return False
            if len(packet) >= _HEAD.size and _HEAD.unpack_from(packet)[3] == room & 0xFFFF:
                return bool(_HEAD.unpack_from(packet)[2] == self._number & 0xFFFFFFFF)

    def close(self) -> None:
        """Close the socket."""
        self._line.close()


def token_of(run: str) -> bytes:
    """Return the eight bytes by which probes of a run recognise each other."""
    import hashlib  # noqa: PLC0415  (only here)

    return hashlib.sha256(run.encode()).digest()[:8]
