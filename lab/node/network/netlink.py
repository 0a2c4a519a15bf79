"""Links, addresses, routes and routing rules over netlink, without `ip`.

A netlink socket acts in the network namespace in which it was created, for any later user (rtnetlink(7)).
"""

from __future__ import annotations

import os
import socket
import struct
import time

NEWLINK, GETLINK, NEWADDR, NEWROUTE, NEWRULE, DELRULE, NEWQDISC = 16, 18, 20, 24, 32, 33, 36
REQUEST_ACK, CREATE_EXCL, CREATE_REPLACE = 5, 0x600, 0x500
RUNNING = 0x40
PASS, DROP = 1, 6
"""Actions of a routing rule: RTN_UNICAST consults the main table, FR_ACT_BLACKHOLE drops silently."""


def attribute(kind: int, data: bytes) -> bytes:
    """Encode one netlink attribute, padded to four bytes."""
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def ipv4(text: str) -> bytes:
    """Return the four bytes of an address."""
    return socket.inet_aton(text)


class Netlink:
    """rtnetlink of the network namespace in which the object is created."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def request(self, kind: int, body: bytes, flags: int = 0) -> None:
        """Send one request and wait for its acknowledgement."""
        self.socket.send(struct.pack("=IHHII", 16 + len(body), kind, REQUEST_ACK | flags, 1, 0) + body)
        number = -struct.unpack_from("=i", self.socket.recv(65536), 16)[0]
        if number:
            raise OSError(number, os.strerror(number), f"netlink request {kind}")

    def up(self, index: int) -> None:
        """Set an interface up."""
        self.request(NEWLINK, struct.pack("=BxHiII", 0, 0, index, 1, 1))

    def forward(self, index: int) -> None:
        """Enable forwarding on an interface, like net.ipv4.conf.X.forwarding, for a read-only /proc/sys."""
        settings = attribute(1, attribute(1, struct.pack("=I", 1)))  # IFLA_INET_CONF, IPV4_DEVCONF_FORWARDING
        body = struct.pack("=BxHiII", 0, 0, index, 0, 0) + attribute(26, attribute(socket.AF_INET, settings))
        self.request(NEWLINK, body)

    def wait_running(self, index: int) -> None:
        """Wait until a veth pair carries packets: a deferred kernel event reports it for the end that was up first."""
        for _ in range(500):
            header = struct.pack("=IHHII", 32, GETLINK, 1, 1, 0)
            self.socket.send(header + struct.pack("=BxHiII", 0, 0, index, 0, 0))
            if struct.unpack_from("=I", self.socket.recv(65536), 24)[0] & RUNNING:
                return
            time.sleep(0.0005)

    def veth(
        self,
        index: int,
        name: str,
        peer: str,
        peer_netns: int | None = None,
        *,
        peer_index: int = 2,
        mtu: int = 0,
        peer_mtu: int = 0,
    ) -> None:
        """Create a veth pair: `name` (up, index `index`) here, `peer` (down) in `peer_netns`; an `mtu` of 0 is 1500."""
        other = struct.pack("=BxHiII", 0, 0, peer_index if peer_netns else 0, 0, 0)
        other += attribute(3, peer.encode() + b"\0") + (attribute(4, struct.pack("=I", peer_mtu)) if peer_mtu else b"")
        if peer_netns is not None:
            other += attribute(28, struct.pack("=I", peer_netns))
        info = attribute(1, b"veth") + attribute(2, attribute(1, other))
        body = struct.pack("=BxHiII", 0, 0, index, 1, 1) + attribute(3, name.encode() + b"\0") + attribute(18, info)
        self.request(NEWLINK, body + (attribute(4, struct.pack("=I", mtu)) if mtu else b""), CREATE_EXCL)

    def shape(self, index: int, mbit_s: int) -> None:
        """Limit an interface's send rate with a token bucket (net/sched/sch_tbf.c) of two full packets."""
        rate = struct.pack("=BBHhHI", 0, 1, 0, 0, 0, mbit_s * 125_000)  # bytes per second, on Ethernet
        ticks = 3200 * 8_000 // mbit_s >> 6  # the time of 3200 bytes, in 64 ns
        options = attribute(1, rate + bytes(12) + struct.pack("=III", 200_000, ticks, 0))
        body = struct.pack("=BxHiIII", 0, 0, index, 0, 0xFFFFFFFF, 0)  # root qdisc
        self.request(NEWQDISC, body + attribute(1, b"tbf\0") + attribute(2, options), CREATE_REPLACE)

    def address(self, ip: str, index: int) -> None:
        """Add a /32 address to an interface."""
        body = struct.pack("=BBBBI", 2, 32, 0, 0, index) + attribute(2, ipv4(ip)) + attribute(1, ipv4(ip))
        self.request(NEWADDR, body, CREATE_REPLACE)

    def route(
        self,
        ip: str,
        bits: int,
        index: int,
        gateway: str | None = None,
        *,
        local: bool = False,
        mtu: int = 0,
        window: int = 0,
    ) -> None:
        """Route a network to an interface; `local`: the addresses belong to this host.

        `mtu`: larger packets are rejected by ICMP. `window`: maximum TCP receive window.
        """
        table, scope, kind = (255, 254, 2) if local else (254, 0 if gateway else 253, 1)
        body = struct.pack("=BBBBBBBBI", 2, bits, 0, 0, table, 4, scope, kind, 4 if gateway else 0)
        body += attribute(1, ipv4(ip)) + attribute(4, struct.pack("=I", index))
        metrics = attribute(2, struct.pack("=I", mtu)) if mtu else b""
        metrics += attribute(3, struct.pack("=I", window)) if window else b""
        body += attribute(8, metrics) if metrics else b""
        self.request(NEWROUTE, body + (attribute(5, ipv4(gateway)) if gateway else b""), CREATE_REPLACE)

    def rule(
        self,
        add: bool,
        priority: int,
        action: int,
        src: str | None = None,
        dst: str | None = None,
        ports: tuple[int, int] | None = None,
        protocol: int = socket.IPPROTO_TCP,
        source_ports: tuple[int, int] | None = None,
    ) -> None:
        """Add or remove a routing rule for packets from `src` to `dst` at destination `ports` (both ends included)."""
        body = struct.pack("=BBBBBBBBI", 2, 32 if dst else 0, 32 if src else 0, 0, 254, 0, 0, action, 0)
        body += attribute(6, struct.pack("=I", priority))
        body += (attribute(1, ipv4(dst)) if dst else b"") + (attribute(2, ipv4(src)) if src else b"")
        if ports:
            body += attribute(22, bytes([protocol])) + attribute(24, struct.pack("=HH", *ports))
        if source_ports:
            body += attribute(23, struct.pack("=HH", *source_ports))
        self.request(NEWRULE if add else DELRULE, body, CREATE_EXCL if add else 0)
